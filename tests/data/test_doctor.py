"""The data doctor: each thing that can be wrong with the data, and the sentence that says so."""

import gzip
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassformer.config import Config
from glassformer.data.corpus import Corpus
from glassformer.data.doctor import Diagnosis, examine, fast_findings
from glassformer.data.findings import FEWEST, LONG

Check = Callable[..., Diagnosis]
Pair = tuple[str, str]
WORDS = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht"]
PAIRS = [(f"{a} {b}", f"{b} {a} {a}") for a in WORDS for b in WORDS]  # nothing is odd about them
OTHERS = [(f"{a} {b} {a}", f"{b} {a}") for a in WORDS for b in WORDS]  # with other sources
SHAPE = {"d_model": 8, "d_ff": 8, "n_heads": 2}
KINDS: dict[str, dict[str, Any]] = {
    "encoder-decoder": {"n_encoder_layers": 1, "n_decoder_layers": 1},
    "decoder": {"kind": "decoder", "n_decoder_layers": 1, "tying": "none"},
    "encoder": {"kind": "encoder", "n_encoder_layers": 1, "tying": "none", "classifier": {}},
}


def write(path: Path, pairs: Sequence[Pair]) -> str:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8", newline="")
    return str(path)


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """Examine pairs that are written to files."""
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))

    def call(
        train: Sequence[Pair] = PAIRS,
        *,
        kind: str = "encoder-decoder",
        text: dict[str, Any] | None = None,
        model: dict[str, Any] | None = None,
        training: dict[str, Any] | None = None,
        validation: Sequence[Pair] = OTHERS,
        test: Sequence[Pair] = (),
        files: dict[str, Any] | None = None,
        **data: Any,
    ) -> Diagnosis:
        names: dict[str, Any] = {"train": [write(tmp_path / "train.tsv", train)]}
        if validation:
            names["validation"] = [write(tmp_path / "dev.tsv", validation)]
        if test:
            names["test"] = [write(tmp_path / "test.tsv", test)]
        config = Config.model_validate(
            {
                "model": SHAPE | KINDS[kind] | (model or {}),
                "data": names | (files or {}) | data,
                "text": text or {"kind": "words"},
                "train": training,
            }
        )
        return examine(Corpus(config))

    return call


def told(diagnosis: Diagnosis) -> list[str]:
    return [f"{finding.severity}: {finding.text}" for finding in diagnosis.findings]


def test_nothing_to_say(check: Check) -> None:
    found = check()
    assert told(found) == []
    train, validation = found.splits
    assert (train.split, train.read, train.kept, train.cut, train.left_out) == ("train", 64, 64, 0, {})
    assert (train.duplicates, train.other_targets, train.sources_in_train) == (0, 0, None)
    assert validation.duplicates is None
    assert validation.sources_in_train is not None
    assert validation.sources_in_train.count == 0


def test_lengths(check: Check) -> None:
    """95 of 100 have 1 to 95 tokens; the median is one of them."""
    lines = [(" ".join(["eins"] * n), " ".join(["zwei"] * (n + 1))) for n in range(1, 101)]
    source, target = check(lines).splits[0].sides
    assert (source.name, source.tokens, source.unknown) == ("source", 5050, 0)
    assert (source.shortest, source.median, source.percentile_95, source.longest) == (1, 50, 95, 100)
    assert source.longest_at == "train.tsv, line 100"
    assert (target.name, target.tokens, target.shortest, target.longest) == ("target", 5150, 2, 101)


def test_unknown_tokens(check: Check) -> None:
    found = check(validation=[("eins zwei eins", "drei"), ("neun", "drei")])
    assert told(found) == ["warning: validation: 25.0 % of the source tokens are unknown to the vocabulary"]
    assert found.splits[1].sides[0].unknown == 1


def test_few_unknown_tokens_are_fine(check: Check) -> None:
    assert told(check(validation=[*OTHERS, ("neun eins", "drei eins")])) == []


def test_blank_sides(check: Check) -> None:
    found = check([*PAIRS, ("eins", " "), ("", "zwei")])
    assert told(found) == ["note: train: 2 of 66 examples are left out: one side is blank"]
    assert (found.splits[0].read, found.splits[0].kept, found.splits[0].left_out) == (66, 64, {"blank": 2})
    many = check([*PAIRS, *[("eins", "")] * 10])
    assert told(many) == ["warning: train: 10 of 74 examples are left out: one side is blank"]


def test_too_long(check: Check) -> None:
    found = check([*PAIRS, (" ".join(WORDS), " ".join(WORDS[::-1]))], max_length=7)
    assert told(found) == [
        "note: train: 1 of 65 examples is left out: longer than data.max_length, or the model's positions, allow"
    ]


def test_cut(check: Check) -> None:
    found = check([*PAIRS, (" ".join(WORDS), "eins")], max_length=7, truncate=True)
    assert told(found) == [
        "note: train: 1 of 65 examples has a source longer than data.max_length, or the model's positions, allow: it is cut"
    ]
    assert found.splits[0].cut == 1


@pytest.mark.parametrize("side", [0, 1])
def test_longest_far_above_the_median(check: Check, side: int) -> None:
    pair = ("eins " * 3000, "zwei " * 2900) if side == 0 else ("zwei " * 2900, "eins " * 3000)
    found = check([*PAIRS[:16], pair, *PAIRS[16:]])
    assert told(found) == [
        "warning: train: the longest example has 3,000 tokens (train.tsv, line 17), 1,000 times the median: "
        "set data.max_length"
    ]


def test_longest_of_a_decoder(check: Check) -> None:
    """It reads a start token, the prompt and the answer in one row."""
    found = check([*PAIRS, ("eins " * 200, "zwei " * 199)], kind="decoder")
    assert told(found) == [
        "warning: train: the longest example has 400 tokens (train.tsv, line 65), 67 times the median: "
        "set data.max_length"
    ]


def test_far_above_the_median_but_not_long(check: Check) -> None:
    assert told(check([*PAIRS, ("eins " * 200, "zwei " * 200)])) == []


def test_long_but_not_for_these_texts(check: Check) -> None:
    assert told(check([("eins " * n, "zwei " * n) for n in range(100, 2 * LONG)], validation=[("zwei", "eins")])) == []


def test_ratio_and_copies(check: Check) -> None:
    found = check([*PAIRS * 20, ("eins", "zwei " * 10), ("eins zwei vier", " eins zwei vier ")])
    sentences = told(found)
    assert (
        "note: train: 1 of 1,282 examples has more than 9 times as many tokens on one side as on the other "
        "(train.tsv, line 1281)"
    ) in sentences
    assert ("note: train: 1 of 1,282 examples has the source itself as the target (train.tsv, line 1282)") in sentences
    assert told(check([*PAIRS, ("eins", "zwei " * 9)])) == []  # 1:9 is allowed


def test_many_odd_pairs_are_a_warning(check: Check) -> None:
    found = told(check([*PAIRS, *[(f"eins{i}", "zwei " * 10) for i in range(5)]]))
    assert found[0].startswith("warning: train: 5 of 69 examples have more than 9 times as many tokens")
    assert "(train.tsv, line 65; train.tsv, line 66; train.tsv, line 67; …)" in found[0]
    found = told(check([*PAIRS, *[(f"eins{i}", f"eins{i}") for i in range(5)]]))
    assert found[0].startswith("warning: train: 5 of 69 examples have the source itself as the target")


@pytest.mark.parametrize(
    ("text", "name", "sentence"),
    [
        ("kaputt\ufffd", "replacement_characters", "warning: train: 1 of 65 examples holds U+FFFD"),
        ("schÃ¶n", "mojibake", "warning: train: 1 of 65 examples holds characters such as Ã¤"),
        ("Ã„rger", "mojibake", "warning: train: 1 of 65 examples holds characters such as Ã¤"),
        ("20â€“30", "mojibake", "warning: train: 1 of 65 examples holds characters such as Ã¤"),
        ("Ð¿Ñ€Ð¸Ð²ÐµÑ‚", "mojibake", "warning: train: 1 of 65 examples holds characters such as Ã¤"),
        ("ï»¿eins", "mojibake", "warning: train: 1 of 65 examples holds characters such as Ã¤"),
        ("zu\x07m", "control_characters", "warning: train: 1 of 65 examples holds control characters"),
        ("zu\x0cm", "control_characters", "warning: train: 1 of 65 examples holds control characters"),
        ("zu\rm", "carriage_returns", "warning: train: 1 of 65 examples holds a carriage return in the middle"),
        ("zu\ufeffm", "byte_order_marks", "warning: train: 1 of 65 examples holds a byte order mark in the middle"),
    ],
)
@pytest.mark.parametrize("side", [0, 1])
def test_characters(check: Check, text: str, name: str, sentence: str, side: int) -> None:
    found = check([*PAIRS, (text, "gut") if side == 0 else ("gut", text)])
    assert found.splits[0].odd[name].count == 1
    assert found.splits[0].odd[name].first == ("train.tsv, line 65",)
    (one,) = told(found)
    assert one.startswith(sentence)
    assert one.endswith("(train.tsv, line 65)")


@pytest.mark.parametrize(
    "text",
    ["Spaß“ und Straße…", "voilà…»", "ESPAÑA", "NÃO SÃO", "«déjà vu»", "Ångström ÄÖÜ", "20 °C", "привет", "a\u200bb"],
)
def test_right_characters(check: Check, text: str) -> None:
    assert told(check([*PAIRS, (text, "gut")])) == []


def test_few_control_characters_are_a_note(check: Check) -> None:
    lines = [(f"{a} {i}", f"{b} {i}") for i in range(20) for a, b in PAIRS]
    assert told(check([*lines, ("zu\x07m", "gut")]))[0].startswith("note: train: 1 of 1,281 examples holds control")


def test_repetitions(check: Check) -> None:
    found = check([*PAIRS, PAIRS[3], (f" {PAIRS[4][0]} ", PAIRS[4][1])])
    assert told(found) == ["note: train: 2 of 66 examples are repetitions of an earlier one"]
    assert found.splits[0].duplicates == 2
    assert told(check(PAIRS * 2)) == ["warning: train: 64 of 128 examples are repetitions of an earlier one"]


def test_other_targets(check: Check) -> None:
    found = check([*PAIRS, (PAIRS[3][0], "zwei acht"), (PAIRS[3][0], "zwei sieben")])
    assert told(found) == ["note: train: 2 of 66 examples give a source another target than an earlier one"]
    assert (found.splits[0].duplicates, found.splits[0].other_targets) == (0, 2)


def test_test_texts_that_stand_in_train(check: Check) -> None:
    found = check(test=[OTHERS[0], PAIRS[7], (PAIRS[9][0], "acht"), *OTHERS[1:]])
    assert told(found) == [
        "warning: test: 2 of 66 sources stand in the training examples too, 1 with the same target "
        "(test.tsv, line 2; test.tsv, line 3)"
    ]
    report = found.splits[2]
    assert report.pairs_in_train is not None
    assert report.pairs_in_train.first == ("test.tsv, line 2",)


def test_validation_texts_that_stand_in_train(check: Check) -> None:
    sentence = told(check(validation=PAIRS))[0]
    assert sentence.startswith("warning: validation: 64 of 64 sources stand in the training examples too, 64 with")
    assert sentence.endswith("(dev.tsv, line 1; dev.tsv, line 2; dev.tsv, line 3; …)")


def test_no_validation(check: Check) -> None:
    (sentence,) = told(check(validation=()))
    assert sentence.startswith("note: no validation examples: nothing is measured on what is not learnt")


def test_held_out(check: Check) -> None:
    """What is kept for validation never stands in train."""
    found = check(PAIRS * 4, validation=(), held_out=0.3)
    train, validation = found.splits
    assert train.read + validation.read == 256
    assert validation.read > 0
    assert validation.sources_in_train is not None
    assert validation.sources_in_train.count == 0


def test_a_split_that_cannot_be_read(check: Check, tmp_path: Path) -> None:
    (tmp_path / "bad.tsv").write_bytes(b"eins\tzwei\nsch\xf6n\tdrei\n")
    found = check(test=OTHERS, files={"validation": [str(tmp_path / "bad.tsv")]})
    assert told(found) == [f"error: validation: {tmp_path}/bad.tsv, line 2 is not UTF-8; convert the file first"]
    assert [report.split for report in found.splits] == ["train", "test"]


def test_nothing_left(check: Check) -> None:
    found = check(max_length=1)
    assert told(found) == [
        f"error: {split}: nothing is left of the {split} examples: 64 read; 64 left out: longer than "
        "data.max_length, or the model's positions, allow"
        for split in ("train", "validation")
    ]


CLASSES = [(f"{source} {i}", "laut" if i % 2 else "leise") for i in range(4) for source, _ in PAIRS]


def test_classes(check: Check) -> None:
    found = check(CLASSES, kind="encoder", validation=[("eins zwei 1", "laut"), ("sechs 0", "leise")])
    assert told(found) == [
        "warning: validation: 1 of 2 texts stand in the training examples too, 1 with the same class (dev.tsv, line 1)"
    ]
    assert [report.classes for report in found.splits] == [{"laut": 128, "leise": 128}, {"laut": 1, "leise": 1}]
    assert [side.name for side in found.splits[0].sides] == ["text"]


def test_rare_and_uneven_classes(check: Check) -> None:
    rare = [(f"acht {i}", "selten") for i in range(FEWEST - 1)]
    sentences = told(
        check([*CLASSES * 3, *rare], kind="encoder", validation=[("sechs 0", "laut"), ("sechs 1", "leise")])
    )
    assert "warning: train: fewer than 10 examples are too few to learn a class from: 'selten' (9)" in sentences
    assert (
        "note: train: 384 examples have the class 'laut', 9 the class 'selten': train.class_weights='balanced' lets "
        "each class count alike"
    ) in sentences
    assert "note: validation: no example has the class 'selten'" in sentences
    training = {"steps": 1, "class_weights": "balanced"}
    assert not any("balanced" in one for one in told(check([*CLASSES * 3, *rare], kind="encoder", training=training)))


def test_unknown_class(check: Check) -> None:
    """Even one is worth a warning: is it the same set of classes?"""
    known = [(f"sechs {i}", "laut") for i in range(50)] + [("sechs", "leise")]
    found = check(CLASSES * 20, kind="encoder", text={"kind": "letters"}, validation=[*known, ("acht", "schrill")])
    assert "warning: validation: 1 of 52 examples is left out: of a class that the model does not have" in told(found)


def test_unknown_classes(check: Check) -> None:
    found = check(
        CLASSES, kind="encoder", validation=[("sechs 0", "laut"), ("sechs 1", "leise"), ("sechs 2", "schrill")]
    )
    assert told(found) == ["warning: validation: 1 of 3 examples is left out: of a class that the model does not have"]
    assert found.splits[1].classes == {"laut": 1, "leise": 1}


def test_one_text_of_two_classes(check: Check) -> None:
    found = check([*CLASSES, (CLASSES[0][0], "laut")], kind="encoder", validation=CLASSES[1:3])
    assert (
        "warning: train: 1 of 257 examples has a text that stands there with another class too: no model can be right "
        "about both"
    ) in told(found)


def test_vocabulary_smaller_than_asked(check: Check) -> None:
    assert told(check(text={"kind": "words", "size": 5000})) == [
        "note: the vocabulary has 12 tokens, not text.size=5000: the texts give no more"
    ]


def test_what_a_format_skips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    entries = ['msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n']
    entries += [f'msgid "{source}"\nmsgstr "{target}"\n' for source, target in PAIRS]
    entries += ['#, fuzzy\nmsgid "open"\nmsgstr "offen"\n', 'msgid "close"\nmsgstr ""\n']
    (tmp_path / "a.po").write_text("\n".join(entries), encoding="utf-8")
    data = {"train": [str(tmp_path / "a.po")]}
    config = {"model": SHAPE | KINDS["encoder-decoder"], "data": data, "text": {"kind": "words"}}
    found = examine(Corpus(Config.model_validate(config)))
    assert told(found)[:2] == [
        "note: train: 1 of 65 examples is left out: fuzzy",
        "note: train: 1 of 65 examples is left out: untranslated",
    ]


def test_lines_of_a_decoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "a.txt").write_text("eins zwei\n\ndrei\neins zwei\n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("drei\nvier\n", encoding="utf-8")
    data = {"train": [str(tmp_path / "a.txt")], "test": [str(tmp_path / "b.txt")]}
    config = {"model": SHAPE | KINDS["decoder"], "data": data, "text": {"kind": "words"}}
    found = examine(Corpus(Config.model_validate(config)))
    train, test = found.splits
    assert [(side.name, side.tokens) for side in train.sides] == [("text", 5)]
    assert (train.kept, train.duplicates, train.other_targets) == (3, 1, 0)
    assert test.pairs_in_train is None
    assert "warning: test: 1 of 2 texts stand in the training examples too (b.txt, line 1)" in told(found)
    assert "warning: test: 50.0 % of the tokens are unknown to the vocabulary" in told(found)


def test_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    with gzip.open(tmp_path / "a.txt.gz", "wt", encoding="utf-8") as file:
        file.write("abc abc\n" * 100)
    (tmp_path / "b.txt").write_text("abc äöab\nc" * 20, encoding="utf-8")
    data = {"train": [str(tmp_path / "a.txt.gz")], "validation": [str(tmp_path / "b.txt")], "window": 16}
    config = {"model": SHAPE | KINDS["decoder"], "data": data, "text": {"kind": "letters"}}
    found = examine(Corpus(Config.model_validate(config)))
    train, validation = found.splits
    assert (train.read, train.kept, train.sides[0].tokens, train.sides[0].longest) == (100, 50, 800, 16)
    assert validation.unseen == "äö"
    assert told(found) == [
        "warning: validation: 20.0 % of the tokens are unknown to the vocabulary",
        "note: validation: 2 of its characters do not stand in train: 'ä', 'ö'",
    ]


def test_drawn_examples() -> None:
    config = {"model": {**SHAPE, **KINDS["encoder-decoder"]}, "data": {"task": "reversal"}}
    found = examine(Corpus(Config.model_validate(config)))
    assert told(found) == ["note: train: the task 'reversal' draws its examples: there is no list to check"]
    assert [(report.split, report.kept) for report in found.splits] == [("validation", 500)]


def test_number_words() -> None:
    config = {"model": {**SHAPE, **KINDS["decoder"]}, "data": {"task": "number-words"}}
    found = examine(Corpus(Config.model_validate(config)))
    assert told(found) == []
    assert [(report.split, report.kept) for report in found.splits] == [("train", 900), ("validation", 100)]


def test_fast_findings_need_no_more_than_counts_and_lengths() -> None:
    counts = Counter(read=100, blank=1, too_long=20, cut=2, source_tokens=100, source_unknown=6, target_tokens=100)
    lengths = np.array([[5, 6]] * 50 + [[4000, 20]], np.uint32)
    assert [(one.severity, one.text.partition(":")[0]) for one in fast_findings(counts, lengths)] == [
        ("warning", "6.0 % of the source tokens are unknown to the vocabulary"),
        ("note", "1 of 100 examples is left out"),
        ("warning", "20 of 100 examples are left out"),
        ("note", "2 of 100 examples have a source longer than data.max_length, or the model's positions, allow"),
        ("warning", "the longest example has 4,000 tokens, 800 times the median"),
    ]
    assert fast_findings(Counter(), np.array([3, 4], np.uint32)) == []


def test_texts_are_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    for module in ("corpus", "doctor"):
        monkeypatch.setattr(f"glassformer.data.{module}.CHUNK", 100)
    n = 4000
    train = write(tmp_path / "train.tsv", [(f"{i} {'x' * 500}", f"{i} {'y' * 500}") for i in range(n)])
    text = {"kind": "words", "size": 12}
    config = {"model": SHAPE | KINDS["encoder-decoder"], "data": {"train": [train]}, "text": text}
    corpus = Corpus(Config.model_validate(config))
    tracemalloc.start()
    try:
        found = examine(corpus)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.splits[0].read == n
    assert peak < (tmp_path / "train.tsv").stat().st_size / 2
