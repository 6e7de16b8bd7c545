"""From files to ids, for each kind of model: tiny files, and every id and every count by hand."""

import shutil
from collections import Counter
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from sentencepiece import SentencePieceTrainer

from glassformer.config import Config, ModelConfig
from glassformer.config.data import DataConfig, TextConfig
from glassformer.config.train import TrainConfig
from glassformer.data import corpus as corpus_module
from glassformer.data import store
from glassformer.data.batch import IGNORED, unpad
from glassformer.data.corpus import Corpus, Split
from glassformer.data.examples import Pairs, Windows
from glassformer.data.feed import DrawnFeed, ExampleFeed
from glassformer.data.store import Rows
from glassformer.errors import ConfigError, DataError
from glassformer.text.learn import learn
from glassformer.text.sentencepiece import read_sentencepiece
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.vocabularies import Vocabularies

I = IGNORED  # noqa: E741  the tables below are read at a glance
PAD, START, END, UNKNOWN = 0, 1, 2, 3  # of words and letters, where there is a start token
LAYERS: dict[str, dict[str, Any]] = {
    "encoder-decoder": {"n_encoder_layers": 1, "n_decoder_layers": 1},
    "decoder": {"n_decoder_layers": 1, "tying": "none"},
    "encoder": {"n_encoder_layers": 1, "tying": "none", "classifier": {}},
}
BAD_BYTES = b"a\n" * 6 + b"caf\xe9\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Case:
    """Files in a folder, and corpora of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, **files: str | bytes) -> None:
        for name, content in files.items():
            data = content if isinstance(content, bytes) else content.encode()
            (self.folder / name.replace("_", ".")).write_bytes(data)

    def config(
        self,
        kind: str = "encoder-decoder",
        *,
        text: dict[str, Any] | None = None,
        target_text: dict[str, Any] | None = None,
        model: dict[str, Any] | None = None,
        **data: Any,
    ) -> Config:
        for split in ("train", "validation", "test"):
            if split in data:
                data[split] = [str(self.folder / name) for name in data[split]]
        values = {"kind": kind, "d_model": 8, "n_heads": 2, "d_ff": 8, **LAYERS[kind], **(model or {})}
        return Config(
            model=ModelConfig.model_validate(values),
            data=DataConfig.model_validate(data),
            text=TextConfig.model_validate({"kind": "words"} if text is None else text),
            target_text=None if target_text is None else TextConfig.model_validate(target_text),
        )

    def corpus(self, kind: str = "encoder-decoder", **fields: Any) -> Corpus:
        return Corpus(self.config(kind, **fields))


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def rows_of(corpus: Corpus, split: Split = "train") -> list[tuple[list[int], list[int], list[int]]]:
    """Source, target and labels of each example alone, so that nothing is padded."""
    examples = corpus.examples(split)
    found = []
    for i in range(len(examples)):
        batch = examples.batch([i])
        source = [] if batch.source is None else batch.source[0].tolist()
        target = [] if batch.target is None else batch.target[0].tolist()
        labels = batch.labels.tolist() if batch.target is None else batch.labels[0].tolist()
        found.append((source, target, labels))
    return found


def counts_of(corpus: Corpus, split: Split = "train", *names: str) -> tuple[int, ...]:
    counts = corpus.examples(split).counts
    return tuple(counts[name] for name in names or ("read", "blank", "too_long", "cut", "unknown_class"))


def lengths_of(corpus: Corpus, split: Split = "train") -> list[Any]:
    found: list[Any] = corpus.examples(split).lengths.tolist()
    return found


class TestEncoderDecoder:
    def test_ids_and_counts(self, case: Case) -> None:
        """By frequency, then code points: b 4, a 5, y 6, c 7, x 8."""
        case.write(train_a="b a\nb b c\n", train_b="y x y\na\n")
        corpus = case.corpus(train=["train.a", "train.b"])
        assert corpus.vocabularies.source is corpus.vocabularies.target
        assert corpus.vocabularies.source.tokens(range(9)) == ["<pad>", "<s>", "</s>", "<unk>", "b", "a", "y", "c", "x"]
        assert rows_of(corpus) == [([4, 5], [1, 6, 8, 6], [6, 8, 6, 2]), ([4, 4, 7], [1, 5], [5, 2])]
        assert lengths_of(corpus) == [[2, 4], [3, 2]]
        assert counts_of(corpus) == (2, 0, 0, 0, 0)
        tokens = ("source_tokens", "target_tokens", "source_unknown", "target_unknown")
        assert counts_of(corpus, "train", *tokens) == (5, 4, 0, 0)
        model = corpus.config.model
        assert (model.source_vocabulary, model.target_vocabulary) == (9, 9)

    def test_fault_1_a_blank_side_takes_its_partner_along_and_nothing_else(self, case: Case) -> None:
        case.write(train_a="x1\n\nx3\n", train_b="y1\ny2\n\n")
        corpus = case.corpus(train=["train.a", "train.b"])
        words = corpus.vocabularies.source
        x1, y1 = words.id_of("x1"), words.id_of("y1")
        assert rows_of(corpus) == [([x1], [START, y1], [y1, END])]
        assert counts_of(corpus) == (3, 2, 0, 0, 0)

    def test_a_blank_pair_far_along_shifts_nothing(self, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("glassformer.data.corpus.CHUNK", 3)
        n = 11
        case.write(
            train_a="".join("\n" if i in (2, 5) else f"s{i}\n" for i in range(n)),
            train_b="".join(" \t\n" if i in (5, 6) else f"t{i}\n" for i in range(n)),
        )
        corpus = case.corpus(train=["train.a", "train.b"])
        words = corpus.vocabularies.source
        found = [(words.decode(source), words.decode(labels)) for source, _, labels in rows_of(corpus)]
        assert found == [(f"s{i}", f"t{i}") for i in range(n) if i not in (2, 5, 6)]
        assert counts_of(corpus) == (n, 3, 0, 0, 0)

    def test_white_space_is_blank(self, case: Case) -> None:
        case.write(train_tsv="a\tb\n \u3000\tb\na\t\u2028 \n\n\t\n")
        for kind in ("words", "letters", "bytes"):
            corpus = case.corpus(train=["train.tsv"], text={"kind": kind})
            assert len(rows_of(corpus)) == 1
            assert counts_of(corpus) == (5, 4, 0, 0, 0)

    def test_what_normalisation_leaves_empty_is_blank(self, case: Case) -> None:
        case.write(train_tsv="a\tb\n\u0301\tb\na\t\u0301\n")
        corpus = case.corpus(train=["train.tsv"], text={"kind": "words", "normalise": ["strip-accents"]})
        assert len(rows_of(corpus)) == 1
        assert counts_of(corpus) == (3, 2, 0, 0, 0)

    def test_too_long_by_setting(self, case: Case) -> None:
        """Of either side, special tokens aside."""
        case.write(train_tsv="a b\tx y\na b c\tx\na\tx y z\na b c\tx y z\n")
        corpus = case.corpus(train=["train.tsv"], max_length=2)
        assert lengths_of(corpus) == [[2, 3]]
        assert counts_of(corpus) == (4, 0, 3, 0, 0)

    def test_too_long_for_learned_positions(self, case: Case) -> None:
        """Of a table of 3 rows the source may take 3; the target has the start token before it."""
        case.write(train_tsv="a b c\tx y\na b c d\tx\na\tx y z\n")
        positions = {"positions": {"kind": "learned", "size": 3}}
        corpus = case.corpus(train=["train.tsv"], model=positions)
        assert lengths_of(corpus) == [[3, 3]]
        assert counts_of(corpus) == (3, 0, 2, 0, 0)
        later = {"positions": {"kind": "learned", "size": 5, "first": 2}}
        assert lengths_of(case.corpus(train=["train.tsv"], model=later)) == [[3, 3]]
        both = case.corpus(train=["train.tsv"], model={"positions": {"kind": "learned", "size": 9}}, max_length=3)
        assert lengths_of(both) == [[3, 3], [1, 4]]

    def test_sources_are_cut_if_asked_for(self, case: Case) -> None:
        case.write(train_tsv="a a a b c\tx\na\tx\na b\tx y z\n")
        corpus = case.corpus(train=["train.tsv"], max_length=2, truncate=True)
        a, x = (corpus.vocabularies.source.id_of(word) for word in "ax")
        assert rows_of(corpus) == [([a, a], [1, x], [x, 2]), ([a], [1, x], [x, 2])]
        assert lengths_of(corpus) == [[2, 2], [1, 2]]
        assert counts_of(corpus) == (3, 0, 1, 1, 0)  # a target is never cut
        positions = {"positions": {"kind": "learned", "size": 4}}
        by_table = case.corpus(train=["train.tsv"], truncate=True, model=positions)
        assert lengths_of(by_table) == [[4, 2], [1, 2], [2, 4]]
        assert counts_of(by_table) == (3, 0, 0, 1, 0)
        assert len(rows_of(by_table)[0][0]) == 4
        without_end = case.corpus(train=["train.tsv"], truncate=True)
        assert lengths_of(without_end) == [[5, 2], [1, 2], [2, 4]]

    def test_two_vocabularies(self, case: Case) -> None:
        case.write(train_tsv="a b b\tx y\nb\tab\n", dev_tsv="x\ta\n")
        fields = {"target_text": {"kind": "letters"}, "model": {"tying": "none"}}
        corpus = case.corpus(train=["train.tsv"], validation=["dev.tsv"], **fields)
        source, target = corpus.vocabularies.source, corpus.vocabularies.target
        assert source.tokens(range(4, 6)) == ["b", "a"]
        assert target.tokens(range(4, 9)) == [" ", "a", "b", "x", "y"]
        model = corpus.config.model
        assert (model.source_vocabulary, model.target_vocabulary) == (source.size, target.size) == (6, 9)
        assert rows_of(corpus) == [([5, 4, 4], [1, 7, 4, 8], [7, 4, 8, 2]), ([4], [1, 5, 6], [5, 6, 2])]
        assert rows_of(corpus, "validation") == [([UNKNOWN], [1, 5], [5, 2])]  # x is no word of the sources

    def test_unknown_words_are_counted(self, case: Case) -> None:
        """And the vocabulary is that of the training files alone."""
        case.write(train_tsv="a b\tx\n", dev_tsv="a new word\tx\nb\tx y y\n", last_tsv="z\tz\n")
        corpus = case.corpus(train=["train.tsv"], validation=["dev.tsv"], test=["last.tsv"])
        assert corpus.vocabularies.source.tokens(range(4, 7)) == ["a", "b", "x"]
        assert corpus.vocabularies.source.size == 7
        tokens = ("source_tokens", "source_unknown", "target_tokens", "target_unknown")
        assert counts_of(corpus, "train", *tokens) == (2, 0, 1, 0)
        assert counts_of(corpus, "validation", *tokens) == (4, 2, 4, 2)
        assert rows_of(corpus, "validation")[0][0] == [4, UNKNOWN, UNKNOWN]
        assert rows_of(corpus, "test") == [([UNKNOWN], [1, UNKNOWN], [UNKNOWN, END])]

    def test_text_that_is_spelt_like_special_tokens(self, case: Case) -> None:
        case.write(train_tsv="a </s>\t<s> b\n")
        corpus = case.corpus(train=["train.tsv"], text={"kind": "bytes"})
        ((source, target, labels),) = rows_of(corpus)
        assert corpus.vocabularies.source.decode(source) == "a </s>"
        assert corpus.vocabularies.target.decode(labels) == "<s> b"
        assert END not in source
        assert target.count(START) == labels.count(END) == 1

    def test_a_file_of_each_format_gives_the_same_ids(self, case: Case) -> None:
        case.write(
            train_a="a b\nb\n", train_b="x\ny x\n",
            train_tsv="a b\tx\nb\ty x\n",
            train_csv="target,source\nx,a b\ny x,b\n",
            train_jsonl='{"source": "a b", "target": "x"}\n{"target": "y x", "source": "b"}\n',
        )  # fmt: skip
        expected = rows_of(case.corpus(train=["train.a", "train.b"]))
        for name in ("train.tsv", "train.csv", "train.jsonl"):
            assert rows_of(case.corpus(train=[name])) == expected
        (case.folder / "train.txt").write_bytes((case.folder / "train.tsv").read_bytes())
        assert rows_of(case.corpus(train=["train.txt"], format="tsv")) == expected
        backwards = case.corpus(train=["train.tsv"], source="2", target="1")
        assert [len(source) for source, _, _ in rows_of(backwards)] == [1, 2]

    def test_several_files_one_after_another(self, case: Case) -> None:
        case.write(a_src="a\n", a_tgt="x\n", b_src="b\nc\n", b_tgt="y\nz\n")
        corpus = case.corpus(train=["a.src", "a.tgt", "b.src", "b.tgt"])
        decode = corpus.vocabularies.source.decode
        assert [(decode(s), decode(t)) for s, _, t in rows_of(corpus)] == [("a", "x"), ("b", "y"), ("c", "z")]

    def test_a_whole_batch(self, case: Case) -> None:
        case.write(train_tsv="a b\tx\nb\ty x\n")
        batch = case.corpus(train=["train.tsv"]).examples("train").batch(np.array([1, 0]))
        assert batch.source is not None
        assert unpad(batch.source, batch.source_is_real) == [[4], [6, 4]]
        assert batch.labels.tolist() == [[7, 5, 2], [5, 2, I]]


class TestDecoder:
    def test_pairs(self, case: Case) -> None:
        """A prompt and its answer: a 4, b 5, x 6, y 7; only the answer is asked for."""
        case.write(train_tsv="a b\tx y\n\tx\na\t\nb\ty\n")
        corpus = case.corpus("decoder", train=["train.tsv"])
        b, a, x, y = (corpus.vocabularies.target.id_of(word) for word in "baxy")
        assert rows_of(corpus) == [([], [1, a, b, x, y], [I, I, x, y, 2]), ([], [1, b, y], [I, y, 2])]
        assert lengths_of(corpus) == [5, 3]
        assert counts_of(corpus) == (4, 2, 0, 0, 0)
        assert corpus.config.model.target_vocabulary == 8
        assert corpus.config.model.source_vocabulary is None

    def test_the_lengths_are_what_is_read(self, case: Case) -> None:
        case.write(train_tsv="a b\tx y\nb\ty\n", train_txt="a b\nb\n")
        for name in ("train.tsv", "train.txt"):
            examples = case.corpus("decoder", train=[name]).examples("train")
            for i, length in enumerate(examples.lengths):
                batch = examples.batch([i])
                assert batch.n_columns == batch.n_tokens == length

    def test_lines(self, case: Case) -> None:
        case.write(train_txt="a b\n\n \nb")
        corpus = case.corpus("decoder", train=["train.txt"])
        assert corpus.vocabularies.target.tokens([4, 5]) == ["b", "a"]
        assert rows_of(corpus) == [([], [1, 5, 4], [5, 4, 2]), ([], [1, 4], [4, 2])]
        assert lengths_of(corpus) == [3, 2]
        assert counts_of(corpus) == (4, 2, 0, 0, 0)

    def test_too_long(self, case: Case) -> None:
        """Prompt, answer and start token share the positions; max_length is of each side."""
        case.write(train_tsv="a b\tx y\na b c\tx\na\tx y z\na\tx\n")
        assert lengths_of(case.corpus("decoder", train=["train.tsv"], max_length=2)) == [5, 3]
        positions = {"positions": {"kind": "learned", "size": 4}}
        corpus = case.corpus("decoder", train=["train.tsv"], model=positions)
        assert lengths_of(corpus) == [3]
        assert rows_of(corpus) == [([], [1, 4, 5], [I, 5, 2])]  # the last of the four
        assert counts_of(corpus) == (4, 0, 3, 0, 0)

    def test_the_tasks_own_examples(self) -> None:
        config = Config(
            model=ModelConfig.model_validate({"kind": "decoder", "d_model": 8, "n_heads": 2, **LAYERS["decoder"]}),
            data=DataConfig(task="number-words"),
        )
        corpus = Corpus(config)
        assert corpus.config.model.target_vocabulary == 42
        examples = corpus.examples("train")
        assert (len(examples), len(corpus.examples("test")), len(corpus.examples("validation"))) == (900, 100, 100)
        batch = examples.batch([0])
        words = corpus.vocabularies.target
        assert words.tokens(batch.target[0].tolist()) == ["0", "=", "zero"] if batch.target is not None else False
        assert batch.labels.tolist() == [[I, words.id_of("zero"), words.end_id]]
        assert corpus.has("test")
        train = {" ".join(prompt) for prompt in corpus.texts("train")[0]}
        assert not train & {" ".join(prompt) for prompt in corpus.texts("test")[0]}


class TestEncoder:
    def test_classes(self, case: Case) -> None:
        """In the order of their names; texts have no start token: a 3, b 4."""
        case.write(
            train_csv="text,team\na a b,net\nb a,account\n,net\nb,\na,net\n",
            dev_csv="text,team\nb,net\na,printer\n,printer\nc,account\n",
        )
        corpus = case.corpus("encoder", train=["train.csv"], validation=["dev.csv"], source="text", target="team")
        words = corpus.vocabularies.source
        assert words.tokens(range(words.size)) == ["<pad>", "</s>", "<unk>", "a", "b"]
        assert corpus.vocabularies.classes == ("account", "net")
        assert rows_of(corpus) == [([3, 3, 4], [], [1]), ([4, 3], [], [0]), ([3], [], [1])]
        assert lengths_of(corpus) == [3, 2, 1]
        assert counts_of(corpus) == (5, 2, 0, 0, 0)
        assert rows_of(corpus, "validation") == [([4], [], [1]), ([2], [], [0])]
        assert counts_of(corpus, "validation") == (4, 1, 0, 0, 1)
        assert corpus.class_counts().tolist() == [1, 2]
        model = corpus.config.model
        assert (model.source_vocabulary, model.target_vocabulary) == (5, None)
        assert model.classifier is not None
        assert model.classifier.classes == 2

    def test_blanks_around_a_class_are_no_part_of_it(self, case: Case) -> None:
        case.write(train_tsv="a\t x \nb\ty\nc\tx\n")
        corpus = case.corpus("encoder", train=["train.tsv"])
        assert corpus.vocabularies.classes == ("x", "y")
        assert [labels for _, _, labels in rows_of(corpus)] == [[0], [1], [0]]

    def test_class_counts_are_of_what_is_learnt_from(self, case: Case) -> None:
        case.write(train_tsv="a\tx\na b c\tx\nb\ty\n")
        assert case.corpus("encoder", train=["train.tsv"], max_length=2).class_counts().tolist() == [1, 1]

    def test_texts_are_cut_if_asked_for(self, case: Case) -> None:
        case.write(train_tsv="a a a b\tx\nb\ty\n")
        corpus = case.corpus("encoder", train=["train.tsv"], max_length=2, truncate=True)
        assert [source for source, _, _ in rows_of(corpus)] == [[3, 3], [4]]
        assert counts_of(corpus) == (2, 0, 0, 1, 0)
        positions = {"positions": {"kind": "learned", "size": 3}}
        assert lengths_of(case.corpus("encoder", train=["train.tsv"], model=positions)) == [1]

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("a\tx\nb\tx\n", r"have 1 different classes, but a classifier has 2 to 1000: is data\.target the column"),
            ("a\tx\nb\ty\u2028z\n", r"the class 'y\\u2028z' is not one printable line"),
            ("".join(f"a\t{i}\n" for i in range(1001)), "have 1001 different classes"),
        ],
        ids=["one", "not printable", "too many"],
    )
    def test_classes_that_are_none(self, case: Case, content: str, message: str) -> None:
        case.write(train_tsv=content)
        with pytest.raises(DataError, match=message):
            case.corpus("encoder", train=["train.tsv"])

    def test_class_weights_are_for_classifiers(self, case: Case) -> None:
        case.write(train_tsv="a\tx\n")
        with pytest.raises(ConfigError, match="class weights are for classifiers"):
            case.corpus(train=["train.tsv"]).class_counts()


class TestWindows:
    def test_by_hand(self, case: Case) -> None:
        """No start token: letters begin with <pad> 0, </s> 1, <unk> 2, then a 3, newline 4, b 5, c 6."""
        case.write(train_txt="aba\nca\n")
        corpus = case.corpus("decoder", train=["train.txt"], window=3, text={"kind": "letters"})
        letters = corpus.vocabularies.target
        assert letters.tokens(range(letters.size)) == ["<pad>", "</s>", "<unk>", "a", "\n", "b", "c"]
        # 3 5 3 4 6 3 4
        assert rows_of(corpus) == [([], [3, 5, 3], [5, 3, 4]), ([], [4, 6, 3], [6, 3, 4])]
        assert lengths_of(corpus) == [3, 3]
        assert counts_of(corpus, "train", "lines", "target_tokens", "target_unknown") == (2, 7, 0)
        assert corpus.config.model.target_vocabulary == 7

    def test_the_last_short_window_is_used(self, case: Case) -> None:
        case.write(train_txt="aba\nca\n")
        corpus = case.corpus("decoder", train=["train.txt"], window=4, text={"kind": "letters"})
        assert rows_of(corpus) == [([], [3, 5, 3, 4], [5, 3, 4, 6]), ([], [6, 3], [3, 4])]
        assert lengths_of(corpus) == [4, 2]
        longer = case.corpus("decoder", train=["train.txt"], window=100, text={"kind": "letters"})
        assert rows_of(longer) == [([], [3, 5, 3, 4, 6, 3], [5, 3, 4, 6, 3, 4])]

    def test_between_two_files_stands_an_end_token(self, case: Case) -> None:
        case.write(a_txt="ab", b_txt="b\n", c_txt="a")
        corpus = case.corpus("decoder", train=["a.txt", "b.txt", "c.txt"], window=50, text={"kind": "letters"})
        a, b, newline = (corpus.vocabularies.target.id_of(letter) for letter in "ab\n")
        whole = [a, b, 1, b, newline, 1, a]
        assert rows_of(corpus) == [([], whole[:-1], whole[1:])]

    @pytest.mark.parametrize("name", ["newlines.json", "blanks.model"])
    @pytest.mark.parametrize("piece", [1, 30, 2**16])
    def test_a_file_is_one_text(self, case: Case, monkeypatch: pytest.MonkeyPatch, name: str, piece: int) -> None:
        """Tokens may hold several newlines; a blank that a vocabulary puts before a text stands before it only."""
        text = "the cat.\n\n\n\n  It sat\non a mat;\nit\n\n\nslept\n \n" * 5
        given = self.newlines(case) if name == "newlines.json" else self.blanks(case)
        monkeypatch.setattr("glassformer.data.readers.PIECE", piece)
        monkeypatch.setattr("glassformer.data.corpus.TOGETHER", 2)
        case.write(a_txt=text, b_txt=text[5:])
        files = {"train": ["a.txt", "b.txt"], "text": {"file": str(case.folder / name)}}
        corpus = case.corpus("decoder", window=10_000, **files)
        ((_, read, asked),) = rows_of(corpus)
        expected = [*given.encode(text), given.end_id, *given.encode(text[5:])]
        assert [read[0], *asked] == expected
        lines = [i for line in StringIO(text) for i in given.encode(line)]
        assert lines != given.encode(text)  # or there is nothing to see here
        assert counts_of(corpus, "train", "lines", "target_tokens") == (110, len(expected) - 1)

    def newlines(self, case: Case) -> Tokenizer:
        """Byte pairs that somebody else has learnt from whole texts."""
        given = learn(["a\n\n\n\nb c\n\n\n\n  d"] * 9, TextConfig(kind="bpe", size=290), start=False)
        assert given.tokens(given.encode("a\n\n\nb")) == ["a", "ĊĊ", "Ċ", "b"]
        given.save(case.folder / "newlines.json")
        return given

    def blanks(self, case: Case) -> Tokenizer:
        out = BytesIO()
        SentencePieceTrainer.train(
            sentence_iterator=iter(["the cat it sat on a mat it slept . ;"] * 50), model_writer=out, vocab_size=290,
            byte_fallback=True, hard_vocab_limit=False, normalization_rule_name="identity", num_threads=1, minloglevel=2,
        )  # fmt: skip
        (case.folder / "blanks.model").write_bytes(out.getvalue())
        return read_sentencepiece(case.folder / "blanks.model")

    def test_a_vocabulary_is_learnt_from_what_it_will_cut(self, case: Case) -> None:
        case.write(train_txt="a\n\n\nb\n\n\n" * 20)
        corpus = case.corpus("decoder", train=["train.txt"], window=8, text={"kind": "bpe", "size": 264})
        assert corpus.vocabularies.target.id_of("ĊĊ") in rows_of(corpus)[0][1]

    def test_a_line_that_a_given_vocabulary_cannot_read(self, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        """Lines are counted as in the files, however many are cut together."""
        case.write(a_txt="ab\n\nba\na", b_txt="b\nbxa\nab\n")
        given = Vocabularies.one(Tokenizer.letters("ab"))
        for piece in (1, 2**16):
            monkeypatch.setattr("glassformer.data.readers.PIECE", piece)
            corpus = Corpus(case.config("decoder", train=["a.txt", "b.txt"], window=8), given)
            with pytest.raises(DataError, match=r"^line 6 of the train text: character 2 is 'x', which the vocabulary"):
                corpus.examples("train")

    @pytest.mark.parametrize("window", [1, 3, 8, 50])
    @pytest.mark.parametrize("size", [2, 3, 9, 40])
    def test_of_an_epoch_they_have_no_token_in_common(self, window: int, size: int) -> None:
        """And they leave none out but those before the first one, which lies elsewhere in each epoch."""
        text = Windows(Rows.of([list(range(size))]), window, counts=Counter())
        begins = set()
        for epoch in range(1, 30):
            examples = text.of_epoch(5, epoch)
            read: list[int] = []
            for i in range(len(examples)):
                batch = examples.batch([i])
                assert batch.target is not None
                assert batch.labels.tolist() == [[token + 1 for token in batch.target[0].tolist()]]
                assert 1 <= batch.n_tokens <= window
                assert batch.n_tokens == examples.lengths[i]
                read += batch.target[0].tolist()
            assert read == list(range(read[0], size - 1))
            assert read[0] < window
            begins.add(read[0])
            assert examples.of_epoch(5, epoch).lengths.tolist() == examples.lengths.tolist()
        assert len(begins) > 1 or min(window, size - 1) == 1
        assert len(begins) >= min(window, size - 1, 8) - 1

    def test_an_epoch_depends_on_seed_and_number_alone(self) -> None:
        text = Windows(Rows.of([list(range(500))]), 100, counts=Counter())

        def first(seed: int, epoch: int) -> int:
            batch = text.of_epoch(seed, epoch).batch([0])
            assert batch.target is not None
            return int(batch.target[0, 0])

        assert first(1, 2) == first(1, 2)
        assert len({first(seed, epoch) for seed in range(3) for epoch in range(3)}) > 5

    def test_several_in_one_batch(self, case: Case) -> None:
        case.write(train_txt="aba\nca\n")
        examples = case.corpus("decoder", train=["train.txt"], window=4, text={"kind": "letters"}).examples("train")
        batch = examples.batch([1, 0])
        assert batch.target is not None
        assert batch.target.tolist() == [[6, 3, 0, 0], [3, 5, 3, 4]]
        assert batch.labels.tolist() == [[3, 4, I, I], [5, 3, 4, 6]]

    @pytest.mark.parametrize("content", ["a", "", "\n"])
    def test_too_short_a_text(self, case: Case, content: str) -> None:
        case.write(train_txt="ab\n", dev_txt=content)
        corpus = case.corpus("decoder", train=["train.txt"], validation=["dev.txt"], window=4, text={"kind": "letters"})
        with pytest.raises(DataError, match=rf"the text has {len(content)} tokens: too few"):
            corpus.examples("validation")


class TestLineEnds:
    @pytest.mark.parametrize("name", ["train.txt", "train.tsv", "train.csv", "train.jsonl"])
    @pytest.mark.parametrize("kind", ["letters", "bytes", "words", "bpe"])
    def test_crlf_and_a_byte_order_mark(self, case: Case, name: str, kind: str) -> None:
        lines = {
            "train.txt": "a b\n\nc a",
            "train.tsv": "a b\tc\nb\ta\n",
            "train.csv": "source,target\na b,c\nb,a\n",
            "train.jsonl": '{"source": "a b", "target": "c"}\n{"source": "b", "target": "a"}\n',
        }[name]
        text: dict[str, Any] = {"kind": kind} | ({"size": 270} if kind == "bpe" else {})
        windows = [{}, {"window": 2}] if name == "train.txt" else [{}]
        for fields in windows:
            found = []
            for content in (
                lines,
                lines.replace("\n", "\r\n"),
                "\ufeff" + lines,
                "\ufeff" + lines.replace("\n", "\r\n"),
            ):
                (case.folder / name).write_bytes(content.encode())
                corpus = case.corpus("decoder", train=[name], text=text, **fields)
                found.append((corpus.vocabularies.target.json, rows_of(corpus), corpus.examples("train").counts))
            assert found[0] == found[1] == found[2] == found[3]
            assert len(found[0][1]) >= 2

    def test_parallel_files_of_two_systems(self, case: Case) -> None:
        case.write(lf_a="a b\nb\n", lf_b="x\ny\n", crlf_a="\ufeffa b\r\nb\r\n", crlf_b="\ufeffx\r\ny")
        expected = rows_of(case.corpus(train=["lf.a", "lf.b"]))
        for names in (["crlf.a", "crlf.b"], ["lf.a", "crlf.b"], ["crlf.a", "lf.b"]):
            assert rows_of(case.corpus(train=names)) == expected

    def test_unicodes_line_ends_end_no_line(self, case: Case) -> None:
        case.write(train_tsv="a\u2028b\x85c\x0bd\tx\ne\ty\n")
        corpus = case.corpus(train=["train.tsv"], text={"kind": "bytes"})
        decode = corpus.vocabularies.source.decode
        assert [decode(source) for source, _, _ in rows_of(corpus)] == ["a\u2028b\x85c\x0bd", "e"]


class TestTexts:
    def test_sources_and_references(self, case: Case) -> None:
        case.write(train_tsv=" a \t x\nb\ty\n\tz\nb\t \na\tx\n")
        corpus = case.corpus(train=["train.tsv"])
        assert corpus.texts("train") == ([" a ", "b", "a"], [[" x"], ["y"], ["x"]])  # as they are learnt

    def test_several_references(self, case: Case) -> None:
        """One source with all of its targets, each once, where it comes first."""
        case.write(train_tsv="a\tx\nb\ty\na\tz\na\tx\nb\ty\nc\tw\n")
        corpus = case.corpus(train=["train.tsv"])
        expected = [("a", ["x", "z"]), ("b", ["y"]), ("b", ["y"]), ("c", ["w"])]
        assert list(zip(*corpus.texts("train"), strict=True)) == expected
        drawn = list(zip(*corpus.texts("train", 2), strict=True))
        assert len(drawn) == 2
        assert all(row in expected for row in drawn)
        assert list(zip(*corpus.texts("train", 100), strict=True)) == expected

    def test_of_a_classifier_each_line_counts(self, case: Case) -> None:
        case.write(train_tsv="a\tx\na\ty\n\tx\nb\t\nc\tx\n")
        corpus = case.corpus("encoder", train=["train.tsv"])
        assert corpus.texts("train") == (["a", "a", "c"], [["x"], ["y"], ["x"]])
        assert len(corpus.texts("train", 2)[0]) == 2


class TestKept:
    def test_ids_are_made_once(self, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        case.write(train_tsv="a b\tx\n\ty\n")
        corpus = case.corpus(train=["train.tsv"])
        before = rows_of(corpus), corpus.examples("train").counts

        def no(*_: object) -> None:
            raise AssertionError

        monkeypatch.setattr(Tokenizer, "encode_batch", no)
        assert (rows_of(corpus), corpus.examples("train").counts) == before

    def test_vocabularies_are_learnt_once(self, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of the same files and settings; of another text, setting or side anew."""
        calls: list[str] = []
        real = corpus_module.tokenizer_for

        def counted(config: TextConfig, texts: Any, *, start: bool) -> Tokenizer:
            calls.append(config.kind)
            return real(config, texts, start=start)

        monkeypatch.setattr(corpus_module, "tokenizer_for", counted)
        case.write(train_tsv="a b\tx\nc\ty\n")
        first = case.corpus(train=["train.tsv"]).vocabularies
        assert case.corpus(train=["train.tsv"]).vocabularies == first
        assert calls == ["words"]
        case.corpus(train=["train.tsv"], text={"kind": "letters"})
        case.corpus(train=["train.tsv"], source="2", target="1")
        case.write(train_tsv="a b\tx\nc\tz\n")
        assert case.corpus(train=["train.tsv"]).vocabularies != first
        assert calls == ["words", "letters", "words", "words"]

    @pytest.mark.parametrize("fields", [{}, {"kind": "decoder", "window": 2, "text": {"kind": "bpe", "size": 300}}])
    def test_a_file_that_changes_while_it_is_read(
        self, case: Case, cache: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
    ) -> None:
        """Nothing is kept of it: it would stand there for ever under the name of what the file held before."""
        name = "train.txt" if "window" in fields else "train.tsv"
        path, texts = case.folder / name, ("a b\tx\n", "a b\tx\nc\ty y\n")
        path.write_text(texts[1])
        expected = rows_of(case.corpus(train=[name], **fields))
        shutil.rmtree(cache)

        def while_it_runs(function: Any) -> Any:
            def changing(*given: Any, **named: Any) -> Any:
                path.write_text(texts[1])
                return function(*given, **named)

            return changing

        changed = f"^{path} changed while it was read; run the same command again$"
        path.write_text(texts[0])
        with monkeypatch.context() as patch:
            patch.setattr(corpus_module, "tokenizer_for", while_it_runs(corpus_module.tokenizer_for))
            with pytest.raises(DataError, match=changed):
                case.corpus(train=[name], **fields)
        assert list(cache.iterdir()) == [] if cache.exists() else True
        path.write_text(texts[0])
        corpus = case.corpus(train=[name], **fields)
        before = sorted(cache.iterdir())
        with monkeypatch.context() as patch:
            patch.setattr(Tokenizer, "encode_batch", while_it_runs(Tokenizer.encode_batch))
            with pytest.raises(DataError, match=changed):
                corpus.examples("train")
        assert sorted(cache.iterdir()) == before
        assert rows_of(case.corpus(train=[name], **fields)) == expected
        path.write_text(texts[0])
        assert rows_of(case.corpus(train=[name], **fields)) != expected

    def test_a_file_is_read_once_for_its_name(self, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        read: list[str] = []
        real = store._digest
        monkeypatch.setattr(store, "_digest", lambda path: read.append(path.name) or real(path))
        case.write(
            train_tsv="a b\tx\nc\ty\n" * 20, dev_tsv="a\tx\n", held_tsv="".join(f"{i}\t{i % 2}\n" for i in range(40))
        )
        corpus = case.corpus("encoder", train=["train.tsv"], validation=["dev.tsv"])
        assert corpus.fingerprint
        assert corpus.class_counts().tolist() == [20, 20]
        for split in ("train", "validation"):
            corpus.examples(split)
        assert read == ["train.tsv", "dev.tsv"]
        held = case.corpus("encoder", train=["held.tsv"], held_out=0.5)
        assert len(held.examples("train")) + len(held.examples("validation")) == 40
        assert read[2:] == ["held.tsv"]

    def test_another_text_or_setting_makes_others(self, case: Case, cache: Path) -> None:
        """Each of these has ids of its own, and the ones before come back as they were."""
        rest = "".join(f"{letter}\t{letter} y\ta\n" for letter in "bcdefgh")
        case.write(train_tsv=f"a b\tx\tb\n{rest}", other_tsv=f"b b\tx\tb\n{rest}")
        variants: list[dict[str, Any]] = [
            {},
            {"text": {"kind": "letters"}},
            {"text": {"kind": "words", "min_count": 2}},
            {"source": "2", "target": "1"},
            {"source": "1", "target": "3"},
            {"held_out": 0.5},
            {"text": {"kind": "bytes"}, "source": "1", "target": "2"},  # bytes: one vocabulary for all of these
            {"text": {"kind": "bytes"}, "source": "3", "target": "2"},
            {"text": {"kind": "bytes"}, "source": "1", "target": "3"},
            {"text": {"kind": "bytes"}, "held_out": 0.5},
            {"text": {"kind": "bytes"}, "held_out": 0.3},
            {"kind": "encoder"},
            {"target_text": {"kind": "bytes"}, "model": {"tying": "none"}},
            {"target_text": {"kind": "letters"}, "model": {"tying": "none"}},
        ]

        def found(fields: dict[str, Any], name: str = "train.tsv") -> Any:
            return rows_of(case.corpus(**({"train": [name]} | fields)))

        first = [found(fields) for fields in variants]
        assert len({str(rows) for rows in first}) == len(first)
        assert found({}, "other.tsv") != first[0]
        assert [found(fields) for fields in reversed(variants)] == first[::-1]
        n = len(list(cache.iterdir()))
        (case.folder / "train.tsv").rename(case.folder / "moved.tsv")
        assert found({}, "moved.tsv") == first[0]
        assert len(list(cache.iterdir())) == n

    def test_lengths_are_no_part_of_what_is_kept(self, case: Case, cache: Path) -> None:
        case.write(train_tsv="a b\tx\na\ty\n")
        assert lengths_of(case.corpus(train=["train.tsv"])) == [[2, 2], [1, 2]]
        assert lengths_of(case.corpus(train=["train.tsv"], max_length=1)) == [[1, 2]]
        assert lengths_of(case.corpus(train=["train.tsv"])) == [[2, 2], [1, 2]]
        assert len([path for path in cache.iterdir() if path.is_dir()]) == 1  # beside it the vocabulary

    def test_windows_and_lines_of_one_file(self, case: Case) -> None:
        case.write(train_txt="ab\nb\n")
        fields = {"train": ["train.txt"], "text": {"kind": "bytes"}}
        lines = rows_of(case.corpus("decoder", **fields))
        windows = rows_of(case.corpus("decoder", window=2, **fields))
        assert len(lines) == len(windows) == 2
        assert rows_of(case.corpus("decoder", **fields)) == lines
        longer = rows_of(case.corpus("decoder", window=4, **fields))
        assert longer == [([], [row for _, read, _ in windows for row in read], [row for *_, asked in windows for row in asked])]  # fmt: skip


class TestHeldOut:
    TSV = "".join(f"s{i % 300}\tt{i}\n" for i in range(600))

    def test_pairs(self, case: Case) -> None:
        """A share of the sources; the same source never stands on both sides; vocabulary from the rest alone."""
        case.write(train_tsv=self.TSV, last_tsv="s1\tt1\n")
        corpus = case.corpus(train=["train.tsv"], test=["last.tsv"], held_out=0.2)
        sides = {split: corpus.texts(split) for split in ("train", "validation")}
        sources = {split: set(found[0]) for split, found in sides.items()}
        assert not sources["train"] & sources["validation"]
        assert len(sources["train"] | sources["validation"]) == 300
        assert 30 <= len(sources["validation"]) <= 90
        n = {split: len(corpus.examples(split)) for split in ("train", "validation")}
        assert sum(n.values()) == 600
        assert n["validation"] == 2 * len(sources["validation"])
        assert corpus.vocabularies.source.size == 4 + n["train"] // 2 + n["train"]
        assert counts_of(corpus, "validation", "source_unknown") == (n["validation"],)
        assert corpus.has("validation")
        assert len(corpus.examples("test")) == 1

    def test_more_held_out_holds_the_same_and_others(self, case: Case) -> None:
        case.write(train_tsv=self.TSV)
        small, large = (
            set(case.corpus(train=["train.tsv"], held_out=share).texts("validation")[0]) for share in (0.1, 0.3)
        )
        assert small < large

    def test_windows(self, case: Case) -> None:
        """The end of the text, all files together."""
        case.write(a_txt="ab\ncd\n", b_txt="ef\ngh")
        fields = {"train": ["a.txt", "b.txt"], "window": 100, "text": {"kind": "bytes"}}
        corpus = case.corpus("decoder", held_out=0.3, **fields)
        decode = corpus.vocabularies.target.decode
        ((_, train, train_labels),) = rows_of(corpus)
        ((_, held, held_labels),) = rows_of(corpus, "validation")
        assert decode([train[0], *train_labels]) == "ab\ncd\ne"
        assert decode([held[0], *held_labels]) == "f\ngh"
        assert train_labels.count(1) == 1  # between the files, as without held_out
        assert held_labels.count(1) == 0
        ((_, train, train_labels),) = rows_of(case.corpus("decoder", held_out=0.8, **fields))
        assert decode([train[0], *train_labels]) == "ab"

    def test_files_stand_apart(self, case: Case) -> None:
        with pytest.raises(ValidationError, match="held_out has nothing to do"):
            case.config(train=["a.tsv"], validation=["b.tsv"], held_out=0.1)


class TestFeeds:
    def test_of_files(self, case: Case) -> None:
        case.write(train_tsv="a b\tx\nb\ty\n\tz\n")
        feed = case.corpus(train=["train.tsv"]).feed(TrainConfig(batch_size=1))
        assert isinstance(feed, ExampleFeed)
        assert feed.lengths is not None
        assert (len(feed.lengths), feed.n_steps(1), feed.counts["blank"]) == (2, 2, 1)

    def test_of_a_task_that_draws(self) -> None:
        config = Config(model=ModelConfig(n_encoder_layers=1, n_decoder_layers=1), data=DataConfig(task="reversal"))
        corpus = Corpus(config)
        assert corpus.config.model.source_vocabulary == 13
        assert isinstance(corpus.feed(TrainConfig()), DrawnFeed)
        assert len(corpus.examples("test")) == 500
        for settings in ({"epochs": 2}, {"batch_tokens": 100}, {"snapshot_epochs": [1]}):
            with pytest.raises(ConfigError, match="without end: set steps and batch_size"):
                corpus.feed(TrainConfig.model_validate(settings))
        with pytest.raises(ConfigError, match="no list of them"):
            corpus.examples("train")

    def test_the_reversal_test_set_is_its_own(self) -> None:
        config = Config(model=ModelConfig(n_encoder_layers=1, n_decoder_layers=1), data=DataConfig(task="reversal"))
        corpus = Corpus(config)
        assert isinstance(corpus._task, object)
        batch = corpus.examples("test").batch(range(500))
        expected = corpus._task.test_batch()  # type: ignore[union-attr]
        assert torch.equal(batch.labels, expected.labels)
        assert torch.equal(batch.source, expected.source)  # type: ignore[arg-type]


class TestRefusals:
    """One sentence each, and none of them after something was learnt."""

    @pytest.mark.parametrize(
        ("kind", "fields", "found", "given"),
        [
            ("encoder-decoder", {"source_vocabulary": 99, "target_vocabulary": 6}, "vocabulary of 6 tokens", r"model\.source_vocabulary=99"),
            ("encoder-decoder", {"source_vocabulary": 6, "target_vocabulary": 5}, "vocabulary of 6 tokens", r"model\.target_vocabulary=5"),
            ("decoder", {"target_vocabulary": 7}, "vocabulary of 6 tokens", r"model\.target_vocabulary=7"),
            ("encoder", {"classifier": {"classes": 5}}, "2 classes", r"model\.classifier\.classes=5"),
        ],
        ids=["source", "target", "decoder", "classes"],
    )  # fmt: skip
    def test_another_size_than_the_datas(
        self, case: Case, kind: str, fields: dict[str, Any], found: str, given: str
    ) -> None:
        case.write(train_tsv="a\ta\nb\tb\n")
        with pytest.raises(ConfigError, match=rf"the data have (a )?{found}, but {given}"):
            case.corpus(kind, train=["train.tsv"], model={"tying": "none"} | fields)
        right = {"source_vocabulary": 6, "target_vocabulary": 6} if kind == "encoder-decoder" else {}
        case.corpus(kind, train=["train.tsv"], model=right)

    @pytest.mark.parametrize("tying", ["all", "source-target"])
    def test_tying_two_vocabularies(self, case: Case, tying: str) -> None:
        """Before anything is read: there are no such files."""
        with pytest.raises(
            ValidationError, match=f"tying='{tying}' makes source and target one matrix, but target_text"
        ) as error:
            case.config(train=["none.tsv"], target_text={"kind": "words"}, model={"tying": tying})
        assert error.value.error_count() == 1
        case.config(train=["none.tsv"], target_text={"kind": "words"}, model={"tying": "target-output"})

    def test_a_configuration_without_text(self) -> None:
        with pytest.raises(ValidationError, match=r"a \[text\] table"):
            Config(
                model=ModelConfig(n_encoder_layers=1, n_decoder_layers=1),
                data=DataConfig.model_validate({"train": ["a"]}),
            )

    def test_a_configuration_without_data(self) -> None:
        with pytest.raises(ConfigError, match=r"no \[data\] part"):
            Corpus(Config(model=ModelConfig(n_encoder_layers=1, n_decoder_layers=1)))

    @pytest.mark.parametrize(
        ("kind", "fields", "message"),
        [
            ("encoder-decoder", {"format": "text"}, "plain text is for a decoder alone; a model of kind='encoder-decoder'"),
            ("encoder", {"format": "text"}, "plain text is for a decoder alone; a model of kind='encoder'"),
            ("decoder", {"train": ["none.tsv"], "window": 5}, "windows are cut from plain text, not from files of the format 'tsv'"),
            ("encoder-decoder", {"window": 5}, "windows are cut from plain text, not from files of the format 'parallel'"),
            ("encoder", {"model": {"classifier": None}}, r"it needs \[model.classifier\] with a pooling"),
            ("encoder", {"model": {"classifier": {"pooling": "none"}}}, r"it needs \[model.classifier\] with a pooling"),
        ],
    )  # fmt: skip
    def test_data_that_do_not_go_with_the_model(
        self, case: Case, kind: str, fields: dict[str, Any], message: str
    ) -> None:
        """Before anything is read: there are no such files."""
        with pytest.raises(ConfigError, match=message):
            case.corpus(kind, **({"train": ["none.txt"]} | fields))

    @pytest.mark.parametrize(("task", "kind"), [("reversal", "decoder"), ("number-words", "encoder-decoder")])
    def test_a_task_is_for_its_kind_of_model(self, task: Any, kind: str) -> None:
        config = Config(model=ModelConfig.model_validate({"kind": kind, **LAYERS[kind]}), data=DataConfig(task=task))
        with pytest.raises(ConfigError, match=rf"the task '{task}' is for a model of kind=.*, not '{kind}'"):
            Corpus(config)

    def test_nothing_left(self, case: Case) -> None:
        case.write(train_tsv="a b c\tx\n\ty\na b\t\n", dev_tsv="")
        corpus = case.corpus(train=["train.tsv"], validation=["dev.tsv"], max_length=2)
        with pytest.raises(
            DataError,
            match=r"nothing is left of the train examples: 3 read; 2 left out: one side is blank; "
            r"1 left out: longer than data\.max_length, or the model's positions, allow$",
        ):
            corpus.examples("train")
        with pytest.raises(DataError, match=r"nothing is left of the validation examples: 0 read$"):
            corpus.examples("validation")

    def test_nothing_left_by_what_a_format_leaves_out(self, case: Case) -> None:
        case.write(
            train_po='msgid "a"\nmsgstr "b"\n',
            dev_po='#, fuzzy\nmsgid "a"\nmsgstr "b"\n\n#, fuzzy\nmsgid "b"\nmsgstr "b"\n\nmsgid "c"\nmsgstr ""\n',
        )
        corpus = case.corpus(train=["train.po"], validation=["dev.po"])
        with pytest.raises(
            DataError,
            match=r"the validation examples: 0 read; 2 left out: fuzzy; 1 left out: untranslated$",
        ):
            corpus.examples("validation")

    def test_nothing_left_for_one_side(self, case: Case) -> None:
        case.write(train_tsv="a\tx\n", last_tsv="\tx\n")
        corpus = case.corpus(train=["train.tsv"], test=["last.tsv"], held_out=0.0001)
        told = r"0 read; data\.held_out=0\.0001 is the share of validation, and equal sources stay on one side$"
        with pytest.raises(DataError, match=f"nothing is left of the validation examples: {told}"):
            corpus.examples("validation")
        with pytest.raises(
            DataError, match=r"nothing is left of the test examples: 1 read; 1 left out: one side is blank$"
        ):
            corpus.examples("test")

    def test_no_text_at_all(self, case: Case) -> None:
        case.write(train_tsv="\t\n")
        with pytest.raises(DataError, match="no text to learn a vocabulary from"):
            case.corpus(train=["train.tsv"])

    def test_files_that_cannot_be_read(self, case: Case) -> None:
        """Fault 4: with both counts, with file and line; in the cache no trace of them."""
        case.write(ten_a="a\n" * 10, nine_b="b\n" * 9, bad_a=BAD_BYTES, seven_b="b\n" * 7, good_tsv="a\tb\n")
        with pytest.raises(DataError, match=r"ten\.a has 10 lines, but .*nine\.b has 9"):
            case.corpus(train=["ten.a", "nine.b"])
        with pytest.raises(DataError, match=r"bad\.a, line 7 is not UTF-8"):
            case.corpus(train=["bad.a", "seven.b"])
        with pytest.raises(DataError, match=r"cannot read .*none\.tsv: No such file"):
            case.corpus(train=["none.tsv"])
        corpus = case.corpus("decoder", train=["bad.a"], text={"kind": "bytes"})  # bytes read nothing to learn
        with pytest.raises(DataError, match=r"^[^;]*bad\.a, line 7 is not UTF-8; convert the file first$"):
            corpus.examples("train")
        windows = case.corpus("decoder", train=["bad.a"], text={"kind": "bytes"}, window=3)
        with pytest.raises(DataError, match=r"^[^;]*bad\.a, line 7 is not UTF-8; convert the file first$"):
            windows.examples("train")

    def test_text_that_a_given_vocabulary_cannot_read(self, case: Case) -> None:
        """Where it stands, of a vocabulary without an unknown token."""
        case.write(train_tsv="a\tb\nb\ta\n", dev_tsv="a\tb\nab\tbxa\n")
        config = case.config(train=["train.tsv"], validation=["dev.tsv"])
        corpus = Corpus(config, Vocabularies.one(Tokenizer.letters("ab")))
        assert rows_of(corpus) == [([3], [1, 4], [4, 2]), ([4], [1, 3], [3, 2])]
        with pytest.raises(
            DataError, match=r"^[^:]*dev\.tsv, line 2: character 2 is 'x', which the vocabulary does not have"
        ):
            corpus.examples("validation")


class TestGivenVocabularies:
    @pytest.mark.parametrize("kind", list(LAYERS))
    def test_of_a_file(self, case: Case, kind: str) -> None:
        given = learn(["b a"], TextConfig(kind="words"), start=kind != "encoder")
        given.save(case.folder / "tokenizer.json")
        case.write(train_tsv="a new\tb\na\ta\n")
        corpus = case.corpus(kind, train=["train.tsv"], text={"file": str(case.folder / "tokenizer.json")})
        assert corpus.vocabularies.target == given
        assert counts_of(corpus, "train", "source_tokens", "source_unknown") == (3, 1)

    def test_nothing_is_learnt(self, case: Case) -> None:
        """As when a training begins with the weights of another."""
        case.write(train_tsv="a new\tb\n")
        given = Vocabularies.one(learn(["b a"], TextConfig(kind="words")))
        corpus = Corpus(case.config(train=["train.tsv"]), given)
        assert corpus.vocabularies is given
        assert rows_of(corpus) == [([4, UNKNOWN], [1, 5], [5, 2])]
        assert corpus.config.model.source_vocabulary == 6

    def test_classes_keep_their_numbers(self, case: Case) -> None:
        case.write(train_tsv="a\tb-class\nb\tnew\nb\ta-class\n")
        words = learn(["b a"], TextConfig(kind="words"), start=False)
        corpus = Corpus(case.config("encoder", train=["train.tsv"]), Vocabularies.one(words, ("b-class", "a-class")))
        assert [labels for _, _, labels in rows_of(corpus)] == [[0], [1]]
        assert counts_of(corpus) == (3, 0, 0, 0, 1)
        examples = corpus.examples("train")
        assert isinstance(examples, Pairs)
        assert examples.class_counts(2).tolist() == [1, 1]
        other = Corpus(case.config("encoder", train=["train.tsv"]), Vocabularies.one(words, ("a-class", "b-class")))
        assert [labels for _, _, labels in rows_of(other)] == [[1], [0]]  # not those that were kept before
