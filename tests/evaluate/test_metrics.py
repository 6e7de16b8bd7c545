"""Measures of text: values and intervals worked out by hand, and what sacreBLEU says itself."""

import logging
from dataclasses import asdict
from functools import cache
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu import BLEU, CHRF, __version__

from glassformer import __version__ as own_version
from glassformer.errors import DataError
from glassformer.evaluate import metrics
from glassformer.evaluate.metrics import METRICS, Measured, confusion, edit_distance, measure

OURS = ["exact_match", "token_error_rate", "phone_error_rate", "accuracy", "macro_f1"]


def interval(measured: Measured) -> tuple[float, float, float]:
    return measured.value, measured.low, measured.high


def test_the_names_are_these() -> None:
    assert list(METRICS) == ["bleu", "chrf", *OURS]


# Of two lines, a resample holds the first twice, both, or the second twice, with chances 1/4, 1/2, 1/4. All three are
# more than 2.5 %, so the interval of 95 % runs from the least to the largest of the three values.
@pytest.mark.parametrize(
    ("name", "hypotheses", "references", "expected"),
    [
        # right, wrong: 1, 1/2, 0
        ("exact_match", ["a b", "c"], [["a b"], ["d"]], (1 / 2, 0, 1)),
        ("exact_match", [" a b\n", "c"], [["x", "a b "], ["c"]], (1, 1, 1)),  # one of two, outer space; both right
        ("exact_match", ["a  b", "c"], [["a b"], ["C"]], (0, 0, 0)),  # inner space and case do count
        ("accuracy", ["cat", "dog"], [["cat"], ["cow"]], (1 / 2, 0, 1)),
        # b -> x and one more d: 2 edits of 4 tokens; then none of 1: 4/8, 2/5, 0/2
        ("token_error_rate", ["a b c", "a"], [["a x c d"], ["a"]], (2 / 5, 0, 1 / 2)),
        # two tokens too many for one, then 1 of 2: 4/2, 3/3, 2/4; a rate above 1
        ("token_error_rate", ["a b c", "a b"], [["a"], ["a c"]], (1, 1 / 2, 2)),
        # a reference without any token: 2 edits of 0 tokens, which count as one: 4/1, 2/2, 0/4
        ("token_error_rate", ["a b", "a b"], [[""], ["a b"]], (1, 0, 4)),
        # as tokens AH0 for AH1 is wrong, as phones it is right; B for P is wrong in both: 2/2, 2/4, 0/2 and 1 less
        ("token_error_rate", ["AH0 B", "AH0 L"], [["AH1 P"], ["AH0 L"]], (2 / 4, 0, 1)),
        ("phone_error_rate", ["AH0 B", "AH0 L"], [["AH1 P"], ["AH0 L"]], (1 / 4, 0, 1 / 2)),
        # a: 1 hit, answered 2, true 1: 2/3; b: never answered: 0; the mean is 1/3. Line 1 twice: only a occurs: 1.
        # Line 2 twice: a was answered and never true, b true and never answered: 0
        ("macro_f1", ["a", "a"], [["a"], ["b"]], (1 / 3, 0, 1)),
    ],
)  # fmt: skip
def test_two_lines_by_hand(
    name: str, hypotheses: list[str], references: list[list[str]], expected: tuple[float, float, float]
) -> None:
    assert interval(measure(name, hypotheses, references)) == pytest.approx(expected)


@pytest.mark.parametrize("name", OURS)
def test_one_line_has_an_interval_of_no_width(name: str) -> None:
    for line, right in (("a", 1), ("b", 0)):
        value = 1 - right if name.endswith("error_rate") else right
        assert interval(measure(name, [line], [["a"]])) == (value, value, value)


def test_interval_of_many_lines() -> None:
    """Of n = 400 lines half right: ± 1.96 √(1/4 / n) = ± 0.049."""
    measured = measure("exact_match", ["a"] * 400, [["a"], ["b"]] * 200)
    assert interval(measured) == pytest.approx((0.5, 0.451, 0.549), abs=0.006)


def test_of_several_references_the_one_with_fewest_edits() -> None:
    # 3 edits of 5 and 1 edit of 3
    assert measure("token_error_rate", ["a b c"], [["a b x y z", "a b d"]]).value == pytest.approx(1 / 3)
    # one edit each, of 1 token and of 3: the longer
    for references in (["a", "a b c"], ["a b c", "a"]):
        assert measure("token_error_rate", ["a b"], [references]).value == pytest.approx(1 / 3)
    assert measure("phone_error_rate", ["AH0"], [["B", "AH2"]]).value == 0


@pytest.mark.parametrize(
    ("line", "bare"),
    [("AH0 B ER1", "AH B ER"), ("ow2\tT", "ow T"), ("X2Y 2 AH3 AH00 AH10", "X2Y 2 AH3 AH00 AH10")],
)
def test_only_a_stress_digit_at_the_end_of_a_phone_goes(line: str, bare: str) -> None:
    assert measure("phone_error_rate", [line], [[bare]]).value == 0
    assert metrics.STRESS.sub("", line).split() == bare.split()


def test_macro_f1_by_hand() -> None:
    # a: 1 hit, answered 1, true 2: 2/3; b: 1 hit, answered 3, true 1: 1/2; c: true 1, never answered: 0
    measured = measure("macro_f1", ["a", "b", "b", "b"], [["a"], ["a"], ["b"], ["c"]])
    assert measured.value == pytest.approx((2 / 3 + 1 / 2) / 3)
    # d is answered and never true: a class too
    measured = measure("macro_f1", ["a", "d"], [["a"], ["a"]])
    assert measured.value == pytest.approx((2 / 3 + 0) / 2)


def test_confusion_by_hand() -> None:
    table = confusion(["a", "b ", "b", "b", "d"], [["a"], ["a"], ["b"], [" c"], ["b"]])
    assert table.labels == ["a", "b", "c", "d"]
    assert table.counts == [
        [1, 1, 0, 0],  # a: once right, once b
        [0, 1, 0, 1],  # b: once right, once d
        [0, 1, 0, 0],
        [0, 0, 0, 0],
    ]
    assert table.precision == pytest.approx([1, 1 / 3, 0, 0])
    assert table.recall == pytest.approx([1 / 2, 1 / 2, 0, 0])
    assert table.f1 == pytest.approx([2 / 3, 2 / 5, 0, 0])
    assert table.support == [2, 2, 1, 0]
    assert all(type(number) is int for row in table.counts for number in row)  # plain numbers, for JSON
    assert type(table.f1[0]) is float


def test_confusion_agrees_with_the_metrics() -> None:
    answers, truths = list("aabbbccca"), [[label] for label in "abbbccabc"]
    table = confusion(answers, truths)
    assert sum(table.f1) / len(table.f1) == pytest.approx(measure("macro_f1", answers, truths).value)
    n_right = sum(table.counts[i][i] for i in range(len(table.labels)))
    assert n_right / sum(table.support) == pytest.approx(measure("accuracy", answers, truths).value)


# --- BLEU and chrF -----------------------------------------------------------------------------------------------------


def test_bleu_of_a_perfect_file() -> None:
    lines = ["the cat sat on the mat", "a dog ran by it"]
    assert interval(measure("bleu", lines, [[line] for line in lines])) == pytest.approx((100, 100, 100))


def test_bleu_by_hand() -> None:
    # 4 of 5 words, 3 of 4 pairs, 2 of 3 triples, 1 of 2 fours: the product is 1/5; 5 words for 6: e^(1 - 6/5)
    expected = 100 * 0.2**0.25 * exp(-0.2)
    measured = measure("bleu", ["a b c d e"], [["a b c d f g"]])
    assert interval(measured) == pytest.approx((expected, expected, expected))
    assert expected == pytest.approx(54.75, abs=0.01)


def test_bleu_interval_by_hand() -> None:
    # one line all right, one all wrong: 4 of 8, 3 of 6, 2 of 4, 1 of 2, so 50; twice the one 100, twice the other 0.
    # sacreBLEU's interval is the mean (about 100/4 + 50/2 + 0/4 = 50) ± half of 100 - 0
    measured = measure("bleu", ["a b c d", "w x y z"], [["a b c d"], ["e f g h"]])
    assert measured.value == pytest.approx(50)
    assert (measured.high - measured.low) / 2 == pytest.approx(50)
    assert (measured.high + measured.low) / 2 == pytest.approx(50, abs=5)


def test_chrf_by_hand() -> None:
    # letters: 2 of 2 written are right, of 3 wanted; pairs: 1 of 1, of 2; triples cannot be written.
    # precision 1, recall (2/3 + 1/2)/2 = 7/12; F2 = 5 · 1 · 7/12 / (4 + 7/12) = 35/55
    expected = 100 * 35 / 55
    assert interval(measure("chrf", ["ab"], [["abc"]])) == pytest.approx((expected, expected, expected))


def test_several_references_as_sacrebleu_has_them() -> None:
    """Line 1 has two references, line 2 has one; in sacreBLEU's own form they are two streams."""
    hypotheses = ["the cat sat on a mat", "a dog ran by it today"]
    references = [["a cat sat there on the mat", "the cat sat on the mat"], ["a dog ran by it"]]
    streams = [["a cat sat there on the mat", "a dog ran by it"], ["the cat sat on the mat", None]]
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF())):
        measured = measure(name, hypotheses, references)
        assert measured.value == metric.corpus_score(hypotheses, streams).score
        assert "|nrefs:var|" in measured.signature
        one = measure(name, hypotheses, [all_of[:1] for all_of in references])
        assert one.value < measured.value
        assert "|nrefs:1|" in one.signature


@pytest.mark.parametrize("seed", [12345, 0])
def test_value_interval_and_signature_are_those_of_sacrebleu(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", str(seed))
    hypotheses = ["the cat sat on a mat .", "a dog ran by it", "x y z w v", "Nothing, here is right!"] * 3
    references = [["the cat sat on the mat."], ["a dog ran by"], ["x y z v w"], ["All of this is right, here."]] * 3
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF())):
        score = metric.corpus_score(hypotheses, [[all_of[0] for all_of in references]], n_bootstrap=1000)
        measured = measure(name, hypotheses, references, seed=seed)
        assert measured.value == score.score
        assert (measured.high + measured.low) / 2 == pytest.approx(float(score._mean), rel=1e-6)
        assert (measured.high - measured.low) / 2 == pytest.approx(float(score._ci), rel=1e-5)
        assert score.format(signature=str(metric.get_signature())).startswith(f"{measured.signature} = ")


def test_chrf_where_some_resamples_are_0() -> None:
    """sacreBLEU's own interval ends in a TypeError here."""
    measured = measure("chrf", ["ab", "c"], [["ab"], ["d"]])
    # right and wrong: letters 2 of 3 and 2 of 3, pairs 1 of 1: precision and recall 5/6; alone 100 and 0
    assert measured.value == pytest.approx(100 * 5 / 6)
    assert (measured.high - measured.low) / 2 == pytest.approx(50)
    assert (measured.high + measured.low) / 2 == pytest.approx(100 / 4 + 100 * 5 / 6 / 2, abs=5)


def test_sacrebleu_says_nothing_to_the_user(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """It warns of 100 lines that look tokenised."""
    lines = ["it ends with a full stop ."] * 150
    with caplog.at_level(logging.DEBUG):
        measure("bleu", lines, [[line] for line in lines])
        measure("chrf", lines, [[line] for line in lines])
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


def test_the_environment_does_not_set_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    hypotheses, references = ["a b c d e", "x", "k l m n"], [["a b c d"], ["y"], ["k l m n o"]]
    expected = measure("bleu", hypotheses, references)
    monkeypatch.setenv("SACREBLEU_SEED", "77")
    assert measure("bleu", hypotheses, references) == expected


# --- all ---------------------------------------------------------------------------------------------------------------


def test_signatures() -> None:
    for name in METRICS:
        measured = measure(name, ["a", "b"], [["a"], ["c"]], resamples=50, seed=7)
        first, *rest = measured.signature.split("|")
        assert first == {"bleu": "BLEU", "chrf": "chrF2"}.get(name, name)
        assert rest[:3] == ["nrefs:1", "bs:50", "seed:7"]
        assert rest[-1] == "version:" + (own_version if name in OURS else __version__)
    assert "|nrefs:2|" in measure("exact_match", ["a"], [["a", "b"]]).signature
    assert "|nrefs:var|" in measure("exact_match", ["a", "b"], [["a", "b"], ["b"]]).signature


@pytest.mark.parametrize("name", METRICS)
def test_one_seed_gives_one_result(name: str) -> None:
    hypotheses = [f"{letter} 1 2 3 4" for letter in "abcabcaabb" * 5]
    references = [[f"{letter} 1 2 3 4"] for letter in "abcbcabaab" * 5]
    first = measure(name, hypotheses, references, seed=0)
    assert first == measure(name, hypotheses, references, seed=0)
    others = [measure(name, hypotheses, references, seed=seed, resamples=50) for seed in range(5)]
    assert {other.value for other in others} == {first.value}
    assert len({(other.low, other.high) for other in others}) > 1
    assert all(type(number) is float for number in interval(first))
    assert asdict(first)["name"] == name


@pytest.mark.parametrize("block", [1, 64, 1000])
def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    hypotheses, references = [*"abcabcaabb"], [[label] for label in "abcbcabaab"]
    expected = [measure(name, hypotheses, references) for name in OURS]
    monkeypatch.setattr(metrics, "BLOCK", block)  # of 10 lines: 1, 6, and 100 resamples at once
    assert [measure(name, hypotheses, references) for name in OURS] == expected


@pytest.mark.parametrize("name", METRICS)
def test_empty_lines(name: str) -> None:
    """An empty answer and an empty reference are lines like others."""
    measured = measure(name, ["", "", "a"], [["a b"], [""], ["a"]])
    assert measured.low <= measured.high
    assert interval(measure(name, [""], [["a"]]))[0] == (1 if name.endswith("error_rate") else 0)


@pytest.mark.parametrize(
    ("name", "hypotheses", "references", "sentence"),
    [
        ("blue", ["a"], [["a"]], "there is no metric 'blue'; did you mean 'bleu'? Metrics: bleu, chrf, exact_match, token_error_rate, phone_error_rate, accuracy, macro_f1"),
        ("rouge-l", ["a"], [["a"]], "there is no metric 'rouge-l'. Metrics: bleu, chrf, exact_match, token_error_rate, phone_error_rate, accuracy, macro_f1"),
        ("bleu", ["a", "b"], [["a"]], "2 lines were written, but 1 lines have references: line i of the one must belong to line i of the other"),
        ("chrf", [], [], "there is no line: chrf needs at least one"),
        ("bleu", ["a", "b"], [["a"], []], "line 2 has no reference: each line needs at least one"),
        ("exact_match", ["a", "b"], ["a", "b"], "the references of line 1 are the string 'a': give a list of strings"),
        ("accuracy", ["a"], [["a", "b"]], "line 1 has 2 references: accuracy takes exactly one, the true label"),
        ("macro_f1", ["a", "b"], [["a"], ["a", "b", "c"]], "line 2 has 3 references: macro_f1 takes exactly one, the true label"),
        ("macro_f1", ["a"] * 1001, [[str(i)] for i in range(1001)], "1002 different labels in 1001 lines are too many, the most is 1000: each line must be one label, not a text"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured(name: str, hypotheses: list[str], references: list[list[str]], sentence: str) -> None:
    with pytest.raises(DataError) as caught:
        measure(name, hypotheses, references)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("resamples", [1, 0, -3])
@pytest.mark.parametrize("name", ["bleu", "exact_match"])
def test_too_few_resamples(name: str, resamples: int) -> None:
    with pytest.raises(DataError, match=f"resamples={resamples} give no interval: the smallest is 2"):
        measure(name, ["a"], [["a"]], resamples=resamples)


def test_what_cannot_be_confused() -> None:
    with pytest.raises(DataError, match="line 1 has 2 references: confusion takes exactly one"):
        confusion(["a"], [["a", "b"]])
    with pytest.raises(DataError, match="1 lines were written, but 0 lines have references"):
        confusion(["a"], [])


@given(st.text("abc", max_size=7), st.text("abc", max_size=7))
def test_edit_distance_against_its_definition(a: str, b: str) -> None:
    @cache
    def distance(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        return min(distance(i - 1, j) + 1, distance(i, j - 1) + 1, distance(i - 1, j - 1) + (a[i - 1] != b[j - 1]))

    assert edit_distance(a, b) == distance(len(a), len(b))
    assert edit_distance(list(b), list(a)) == distance(len(a), len(b))


def test_edit_distance_by_hand() -> None:
    assert edit_distance("kitten", "sitting") == 3  # k -> s, e -> i, one more g
    assert edit_distance(["the", "cat"], ["the", "black", "cat"]) == 1
