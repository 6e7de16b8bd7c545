"""`translate` and `generate --engine`: what the run writes, in the same format."""

import json
import random
import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import tokenizers

from glassformer.config import Config
from glassformer.config.files import dump
from glassformer.errors import CheckpointError, DataError, DecodingError
from glassformer.interop import engine as engines
from glassformer.interop.convert import convert
from glassformer.interop.ctranslate2 import FILE
from glassformer.interop.engine import Engine, open_writer
from glassformer.run import Run, load, save
from glassformer.text.vocabularies import Vocabularies
from tests.conftest import Cli, random_run

TEXTS = [" ".join("abcdefghij"[(7 * i + 3 * j) % 10] for j in range(3 + i % 6)) for i in range(100)]
LINES = "c a b e d\n\na b c\ncabed\nj i h g f e d c\na a a\n"
ENGINES = ("ctranslate2", "onnx")


@pytest.fixture(scope="module")
def exported(run_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("engine")
    for engine in ENGINES:
        convert(run_directory, place / engine, to=engine)
    return {engine: place / engine for engine in ENGINES}


@pytest.mark.parametrize("options", [(), ("--beam-size", "4"), ("--beam-size", "4", "--n-best", "2"), ("--beam-size", "3", "--alpha", "1.2"),
                                     ("--beam-size", "4", "--length-penalty", "power"), ("--max-length", "2")])  # fmt: skip
@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_lines(
    here: Cli, options: tuple[str, ...], engine: str, exported: dict[str, Path], run_directory: Path
) -> None:
    own = here("translate", run_directory, *options, "--json", stdin=LINES)
    theirs = here("translate", exported[engine], "--engine", engine, *options, "--json", stdin=LINES)
    assert theirs.stderr == own.stderr
    assert theirs.returncode == own.returncode
    ours, found = ([json.loads(line) for line in done.stdout.splitlines()] for done in (own, theirs))
    assert len(ours) == len(found) == 6
    for a, b in zip(ours, found, strict=True):
        assert a.keys() == b.keys()
        assert a["source"] == b["source"]
        assert (a["target"], a["tokens"]) == (b["target"], b["tokens"])
        assert a["score"] == pytest.approx(b["score"], abs=2e-3)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_hundred(engine: str, exported: dict[str, Path], run_directory: Path) -> None:
    """Token for token on 100 texts of a trained run."""
    run, other = load(run_directory), open_writer(engine, exported[engine])
    own = run.writer().write([run.writer().prompt(text) for text in TEXTS])
    found = other.write([other.prompt(text) for text in TEXTS])
    assert [row[0].ids for row in found] == [row[0].ids for row in own]
    assert {row[0].stopped for row in found} == {"end"}


def test_all_that_onnx_does(exported: dict[str, Path], run_directory: Path) -> None:
    """Samples, prefixes, streams, steps and scores are ours, over logits of onnxruntime."""
    run, path = load(run_directory), exported["onnx"]
    for way in ({"sample": True, "n_best": 2}, {"no_repeat_ngram": 2, "beam_size": 3, "min_length": 7}):
        own, other = run.writer(way), open_writer("onnx", path, way)
        prompts = [own.prompt(text, prefix="b", number=i) for i, text in enumerate(TEXTS[:20])]
        a, b = own.write(prompts), other.write(prompts)
        assert [[one.ids for one in row] for row in b] == [[one.ids for one in row] for row in a]
    own, other = run.writer(), open_writer("onnx", path)
    assert list(other.stream(other.prompt("c a b"))) == list(own.stream(own.prompt("c a b")))
    for a, b in zip(own.steps(own.prompt("c a b")), other.steps(other.prompt("c a b")), strict=True):
        assert a.chosen.token == b.chosen.token
        assert a.chosen.probability == pytest.approx(b.chosen.probability, abs=1e-6)
    pairs = [own.pair(text, "d e b a c") for text in TEXTS[:5]]
    scores = [writer.score([p for p, _ in pairs], [ids for _, ids in pairs]) for writer in (own, other)]
    for a, b in zip(*scores, strict=True):
        assert a.log_probabilities == pytest.approx(b.log_probabilities, abs=1e-4)
    with pytest.raises(DecodingError, match="this engine gives texts and scores only"):
        other.alignments([other.prompt("a b")], [[3]])


def test_a_loop_of_somebody_else(exported: dict[str, Path], run_directory: Path) -> None:
    """docs/convert.md is enough to write with onnxruntime and the library of tokenizers alone, a padded batch at once."""
    tokenizer = tokenizers.Tokenizer.from_file(str(exported["onnx"] / "tokenizer.json"))
    encoder, decoder = (onnxruntime.InferenceSession(exported["onnx"] / f"{side}coder.onnx") for side in ("en", "de"))
    texts = ["c a b e d", "j i", "a b c d e f g h"]
    read = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    source = np.array([[0] * (8 - len(ids)) + ids for ids in read])
    is_real = np.array([[False] * (8 - len(ids)) + [True] * len(ids) for ids in read])
    names = [one.name for one in encoder.get_outputs()]
    memory = dict(zip(names, encoder.run(None, {"source": source, "source_is_real": is_real}), strict=True))
    fixed = {"source_is_real": is_real, **{name: value for name, value in memory.items() if name != "memory"}}
    shapes = {one.name: one.shape for one in decoder.get_inputs() if one.name.startswith("past.")}
    past = {name: np.zeros((3, shape[1], 0, shape[3]), np.float32) for name, shape in shapes.items()}
    past["past_is_real"] = np.zeros((3, 0), bool)
    target, written = np.full((3, 1), tokenizer.token_to_id("<s>")), np.zeros((3, 0), int)
    for _ in range(12):
        given = {"target": target, "target_is_real": np.ones((3, 1), bool), **past, **fixed}
        logits, *present = decoder.run(None, given)
        past = {
            one.name.replace("present", "past"): value
            for one, value in zip(decoder.get_outputs()[1:], present, strict=True)
        }
        target = logits[:, -1:].argmax(axis=-1)
        written = np.concatenate([written, target], axis=1)
    end = tokenizer.token_to_id("</s>")
    found = [" ".join(tokenizer.id_to_token(i) for i in row[: row.index(end)]) for row in written.tolist()]
    assert found == load(run_directory).translate(texts)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_decoder_alone(engine: str, here: Cli, random_runs: dict[str, Path], tmp_path: Path) -> None:
    out, lines = tmp_path / "out", "ab\n\nlonger than that\nof 8 too\n"
    assert convert(random_runs["decoder"], out, to=engine)[-1] == "tried on 20 inputs: 20 come out the same"
    both = (
        (),
        ("--beam-size", "3", "--n-best", "2"),
        ("--min-length", "5", "--no-repeat-ngram", "2"),
        ("--with-prompt",),
    )
    for options in (
        both if engine == "ctranslate2" else (*both, ("--sample", "--n-best", "2"), ("--stream",), ("--scores",))
    ):
        own = here("generate", random_runs["decoder"], *options, "--max-length", "9", stdin=lines)
        found = here("generate", out, "--engine", engine, *options, "--max-length", "9", stdin=lines)
        assert (found.stdout, found.stderr, found.returncode) == (own.stdout, own.stderr, own.returncode), options


def test_an_encoder_alone(here: Cli, random_runs: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "onnx"
    assert convert(random_runs["encoder"], out, to="onnx")[-1] == "tried on 20 inputs: 20 come out the same"
    assert json.loads((out / "classes.json").read_text()) == ["network", "printer", "account"]
    done = here("translate", out, "--engine", "onnx", "a b")
    assert done.returncode == 1
    assert "holds an encoder alone, which does not write" in done.stderr


def test_what_they_do_not_do(here: Cli, exported: dict[str, Path], run_directory: Path, tmp_path: Path) -> None:
    ct2, graphs = (exported[engine] for engine in ENGINES)
    for engine, other in (("ctranslate2", graphs), ("onnx", ct2)):
        with pytest.raises(
            CheckpointError, match=f"was not made for {engine}; make .*: glassformer convert RUN OUT --to {engine}"
        ):
            open_writer(engine, other)
        with pytest.raises(
            CheckpointError, match=f"reversal was not made for .*: glassformer convert .*reversal OUT --to {engine}"
        ):
            open_writer(engine, run_directory)
        with pytest.raises(CheckpointError, match=f"there is nothing at .*nowhere; make it: .* --to {engine}"):
            open_writer(engine, tmp_path / "nowhere")
    with pytest.raises(DecodingError, match="there is no engine 'tflite'; there are ctranslate2, onnx"):
        open_writer("tflite", ct2)
    with pytest.raises(DecodingError, match="does not sample"):
        open_writer("ctranslate2", ct2, {"sample": True})
    writer = open_writer("ctranslate2", ct2)
    with pytest.raises(DecodingError, match="gives a prefix no score"):
        writer.write([writer.prompt("a b", prefix="b")])
    prompt = writer.prompt("a b")
    for ask in (
        writer.steps,
        writer.stream,
        writer.record,
        lambda one: writer.score([one], [[3]]),
        lambda one: writer.alignments([one], [[3]]),
    ):
        with pytest.raises(DecodingError, match="gives texts and scores only"):
            ask(prompt)
    damaged = tmp_path / "damaged"
    shutil.copytree(ct2, damaged)
    (damaged / FILE).write_bytes((ct2 / FILE).read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="CTranslate2 cannot open"):
        open_writer("ctranslate2", damaged)
    for options in (("--alignments",), ("--ensemble", ct2), ("--truncate",), ("--device", "cuda")):
        assert here("translate", ct2, "--engine", "ctranslate2", *options, "a b").returncode == 2
    for verb, arguments in (("translate", (ct2,)), ("generate", (graphs, "--engine", "onnx"))):
        done = here(verb, *arguments, "a b")
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
    assert "is no decoder-only model: it does not go on from a text; use translate" in done.stderr
    assert "it was made for another engine: write with --engine" in here("translate", ct2, "a b").stderr


@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_of_files(engine: Engine, here: Cli, tmp_path: Path) -> None:
    """What was learnt from files reads as it learnt to, cut texts too; where the files were is not told."""
    run = random_run(tmp_path / "run", "encoder-decoder", words="one two three four five six", seed=2)
    config = load(run).config
    data = {
        "train": [str(tmp_path / "train.tsv")],
        "folder": str(tmp_path),
        "max_length": 4,
        "truncate": True,
        "format": "tsv",
    }
    whole = config.model_dump(exclude_none=True) | {"data": data, "text": {"kind": "words"}}
    (run / "config.toml").write_text(dump(Config.model_validate(whole)), encoding="utf-8")
    assert convert(run, tmp_path / "out", to=engine)[-1] == "tried on 20 inputs: 20 come out the same"
    assert str(tmp_path) not in (tmp_path / "out" / "glassformer.toml").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "run"]
    lines = "one two\nsix five four three two one\n"
    own = here("translate", run, "--max-length", "6", stdin=lines)
    found = here("translate", tmp_path / "out", "--engine", engine, "--max-length", "6", stdin=lines)
    assert "cut" in own.stderr
    assert (found.stdout, found.stderr) == (own.stdout, own.stderr)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ["decoder", "encoder-decoder"])
def test_short_learned_positions(engine: Engine, kind: str, tmp_path: Path) -> None:
    random_run(tmp_path / "run", kind, positions={"kind": "learned", "size": 5})
    assert convert(tmp_path / "run", tmp_path / "out", to=engine)[-1] == "tried on 20 inputs: 20 come out the same"
    own, other = load(tmp_path / "run").writer(), open_writer(engine, tmp_path / "out")
    for writer in (own, other):
        with pytest.raises(DataError, match=r"the model's learned positions end after [45]"):
            writer.prompt("123456")
    prompts = [own.prompt("1234"), own.prompt("a")]
    assert [row[0].ids for row in other.write(prompts)] == [row[0].ids for row in own.write(prompts)]


def test_what_ended_comes_first(exported: dict[str, Path]) -> None:
    """Before what a limit has cut, as in our own beam."""
    writer = open_writer("ctranslate2", exported["ctranslate2"], {"beam_size": 4, "n_best": 4, "max_length": 4})
    stopped = [[one.stopped for one in row] for row in writer.write([writer.prompt(text) for text in TEXTS])]
    assert all(row == sorted(row) for row in stopped)  # "end", "limit"
    assert any(len(set(row)) == 2 for row in stopped)


def test_patience(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CTranslate2's beam, as it comes, more often stops before it has found what ours finds."""
    words = [f"word{i}" for i in range(20)]
    run = load(random_run(tmp_path / "run", "encoder-decoder", words=" ".join(words), seed=45))
    convert(tmp_path / "run", tmp_path / "out", to="ctranslate2")
    draw, way = (
        random.Random(0),
        {"max_length": 12, "beam_size": 4, "length_penalty": "power", "alpha": 1.0, "min_length": 0},
    )
    own = run.writer(way)
    prompts = [own.prompt(" ".join(draw.choices(words, k=draw.randint(2, 8)))) for _ in range(40)]
    expected = [row[0].ids for row in own.write(prompts)]

    def same() -> int:
        found = open_writer("ctranslate2", tmp_path / "out", way).write(prompts)
        return sum(row[0].ids == ids for row, ids in zip(found, expected, strict=True))

    with_patience = same()
    monkeypatch.setattr(engines, "PATIENCE", 1.0)
    assert with_patience > same()


@pytest.mark.parametrize(
    "way", [{"no_repeat_ngram": 1, "beam_size": 2}, {"min_length": 9, "beam_size": 4, "n_best": 4}]
)
def test_prompts_of_any_length(way: dict[str, int], random_runs: dict[str, Path], tmp_path: Path) -> None:
    """The rules hold for what is written: for CTranslate2 a prompt that is longer than another is written, too."""
    convert(random_runs["decoder"], tmp_path / "out", to="ctranslate2")
    way |= {"max_length": 9}
    own, other = load(random_runs["decoder"]).writer(way), open_writer("ctranslate2", tmp_path / "out", way)
    prompts = [own.prompt(text) for text in ("ab", "xyz xyz xyz", "a", "this one is quite a bit longer")]
    for ours, theirs in zip(own.write(prompts), other.write(prompts), strict=True):
        assert [one.ids for one in theirs] == [one.ids for one in ours]
        assert [one.score for one in theirs] == pytest.approx([one.score for one in ours], abs=1e-4)


def test_past_the_table(here: Cli, exported: dict[str, Path]) -> None:
    """CTranslate2 has 2 048 positions: a longer line is refused, and the others are written."""
    done = here(
        "translate", exported["ctranslate2"], "--engine", "ctranslate2", stdin="a b\n" + "a " * 2050 + "\nb c\n"
    )
    assert done.stdout == "b a\n\nc b\n"
    assert "line 2: the text has 2050 tokens" in done.stderr
    assert done.returncode == 1


def test_the_frame_of_a_source(tmp_path: Path) -> None:
    """What stands around a source, CTranslate2 puts there itself, and it is read back."""
    run = load(random_run(tmp_path / "plain", "encoder-decoder", words="one two three"))
    source = run.vocabularies.source
    vocabularies = Vocabularies(source.with_frame([], [source.end_id]), run.vocabularies.target)
    save(Run(run.config, run.model, vocabularies, {}), tmp_path / "run")
    convert(tmp_path / "run", tmp_path / "out", to="ctranslate2")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["add_source_eos"] is True
    convert(tmp_path / "out", tmp_path / "back")
    back, own = load(tmp_path / "back"), load(tmp_path / "run")
    assert back.writer().prompt("one two").source == own.writer().prompt("one two").source
    way = {"max_length": 8, "beam_size": 1, "min_length": 0}
    texts = [run.writer(way).write([run.writer(way).prompt("three one")])[0][0].tokens for run in (own, back)]
    (engine,) = (lambda one: one.write([one.prompt("three one")]))(open_writer("ctranslate2", tmp_path / "out", way))
    assert texts[0] == texts[1] == engine[0].tokens


@pytest.mark.parametrize("engine", ENGINES)
def test_files_of_two_models(engine: Engine, exported: dict[str, Path], tmp_path: Path) -> None:
    """Files that do not belong together are found when they are opened."""
    for name, before, after, message in (
        (
            "glassformer.toml",
            "n_heads = 4",
            "n_heads = 8",
            "is no graph of the model beside it" if engine == "onnx" else None,
        ),
        ("tokenizer.json", '"a":', '"q":', None if engine == "onnx" else "is not that of the model beside it"),
        (
            "glassformer.toml",
            "d_model = 64",
            "d_model = 32",
            "is no graph of the model beside it" if engine == "onnx" else None,
        ),
    ):
        place = tmp_path / str(len(list(tmp_path.iterdir())))
        shutil.copytree(exported[engine], place)
        text = (place / name).read_text()
        assert before in text
        (place / name).write_text(text.replace(before, after))
        if message is not None:
            with pytest.raises(CheckpointError, match=message):
                open_writer(engine, place)
