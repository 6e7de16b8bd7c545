"""Two systems: p-values worked out by hand, by trying all swaps on the texts, and beside sacreBLEU's."""

import random
from fractions import Fraction
from itertools import product

import pytest
from sacrebleu import BLEU
from sacrebleu.significance import PairedTest

from glassformer.errors import DataError
from glassformer.evaluate import metrics
from glassformer.evaluate.metrics import METRICS, measure
from glassformer.evaluate.paired import compare

RIGHT, WRONG, TRUE = ["a"] * 5, ["b"] * 5, [["a"]] * 5


def test_exact_by_hand() -> None:
    """Five lines: only no swap and all swaps, 2 of 2^5, reach a difference of 1."""
    compared = compare("exact_match", RIGHT, WRONG, TRUE)
    assert (compared.name, compared.ours, compared.theirs, compared.difference) == ("exact_match", 1, 0, 1)
    assert compared.p_value == 2 / 32
    assert compared.test == "exact randomisation|swaps:32"
    other = compare("exact_match", WRONG, RIGHT, TRUE)
    assert (other.difference, other.p_value) == (-1, 2 / 32)


def test_exact_by_hand_where_they_share_the_wins() -> None:
    """Ours wins 3 lines, theirs 1: a difference of 2 or more of 4 is 0, 1, 3 or 4 wins: (1 + 4 + 4 + 1) of 16."""
    compared = compare("accuracy", [*"aaab"], [*"bbba"], [["a"]] * 4)
    assert compared.difference == 0.5
    assert compared.p_value == 10 / 16


def test_lines_that_count_the_same_do_not_count() -> None:
    """One hundred lines more, equal for both: still 32 swaps, though the difference is now 5/105."""
    same = ["a", "b"] * 50
    compared = compare("exact_match", RIGHT + same, WRONG + same, [["a"]] * 105)
    assert compared.difference == pytest.approx(5 / 105)
    assert (compared.p_value, compared.test) == (2 / 32, "exact randomisation|swaps:32")


@pytest.mark.parametrize("name", METRICS)
def test_a_system_does_not_differ_from_itself(name: str) -> None:
    lines = [*"abcab"] * 4
    compared = compare(name, lines, lines, [[label] for label in "abcba"] * 4)
    assert (compared.difference, compared.p_value, compared.test) == (0, 1, "exact randomisation|swaps:1")


def test_few_trials_draw_the_swaps() -> None:
    """31 trials cannot hold 32 swaps. Of 30 lines, 2 of 2^30 swaps reach: none is drawn, p = (0 + 1)/(1000 + 1)."""
    assert compare("exact_match", RIGHT, WRONG, TRUE, trials=32).test == "exact randomisation|swaps:32"
    assert (
        compare("exact_match", RIGHT, WRONG, TRUE, trials=31, seed=7).test
        == "approximate randomisation|trials:31|seed:7"
    )
    compared = compare("exact_match", RIGHT * 6, WRONG * 6, TRUE * 6, trials=1000)
    assert compared.p_value == 1 / 1001


def texts(seed: int, n_lines: int, vocabulary: str, longest: int) -> tuple[list[str], list[str], list[list[str]]]:
    draw = random.Random(seed)
    lines = [[" ".join(draw.choices(vocabulary, k=draw.randint(1, longest))) for _ in range(n_lines)] for _ in range(3)]
    return lines[0], lines[1], [[line] for line in lines[2]]


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("seed", range(3))
def test_exact_against_swapped_texts(name: str, seed: int) -> None:
    """The same without any counts: swap the texts in all ways, and measure each time."""
    longest = 1 if name in ("accuracy", "macro_f1") else 8
    ours, theirs, references = texts(seed, 6, "abc", longest)
    if longest > 1:
        references[0].append("a b c")  # one line with two
    differences = []
    for swaps in product([False, True], repeat=6):
        pairs = [(b, a) if swap else (a, b) for a, b, swap in zip(ours, theirs, swaps, strict=True)]
        values = [measure(name, lines, references, resamples=2).value for lines in zip(*pairs, strict=True)]
        differences.append(abs(values[0] - values[1]))
    compared = compare(name, ours, theirs, references)
    assert compared.ours == pytest.approx(measure(name, ours, references).value)
    assert compared.theirs == pytest.approx(measure(name, theirs, references).value)
    assert compared.p_value == sum(each >= differences[0] - 1e-6 for each in differences) / 64


def fraction_f1(answers: list[str], truths: list[str]) -> Fraction:
    classes = {*answers, *truths}
    hits = {label: sum(a == t == label for a, t in zip(answers, truths, strict=True)) for label in classes}
    f1 = [Fraction(2 * hits[label], answers.count(label) + truths.count(label)) for label in classes]
    return sum(f1, Fraction(0)) / len(classes)


@pytest.mark.parametrize("seed", range(20))
def test_equal_differences_are_equal_whatever_the_rounding(seed: int) -> None:
    """Macro-F1 adds thirds and sevenths; here it does so exactly."""
    ours, theirs, references = texts(seed, 7, "abcde", 1)
    truths = [all_of[0] for all_of in references]
    differences = []
    for swaps in product([False, True], repeat=7):
        pairs = [(b, a) if swap else (a, b) for a, b, swap in zip(ours, theirs, swaps, strict=True)]
        first, second = ([*lines] for lines in zip(*pairs, strict=True))
        differences.append(abs(fraction_f1(first, truths) - fraction_f1(second, truths)))
    expected = Fraction(sum(each >= differences[0] for each in differences), 2**7)
    assert compare("macro_f1", ours, theirs, references).p_value == pytest.approx(float(expected), abs=1e-12)


@pytest.mark.parametrize("name", METRICS)
def test_drawn_swaps_come_near_to_all_swaps(name: str) -> None:
    ours, theirs, references = texts(1, 12, "abcd", 1 if name in ("accuracy", "macro_f1") else 8)
    exact = compare(name, ours, theirs, references, trials=4096)
    drawn = compare(name, ours, theirs, references, trials=100)
    assert exact.test.startswith("exact")
    if exact.test != "exact randomisation|swaps:4096":  # some lines count the same
        assert name in ("exact_match", "accuracy", "macro_f1", "token_error_rate", "phone_error_rate")
    assert drawn.p_value == pytest.approx(exact.p_value, abs=0.15)  # three times √(1/4 / 100)


def test_bleu_comes_near_to_sacrebleus_own_test() -> None:
    """Its strict > and our ≥ agree where hardly a trial equals the observed difference."""
    draw = random.Random(4)
    references = [[" ".join(draw.choices("abcdefgh", k=10))] for _ in range(60)]
    systems = [
        [" ".join(w if draw.random() < right else "x" for w in all_of[0].split()) for all_of in references]
        for right in (0.80, 0.77)
    ]
    _, scores = PairedTest(
        list(zip(["theirs", "ours"], systems, strict=True)), {"BLEU": BLEU()}, [[r[0] for r in references]], "ar", 2000
    )()
    theirs, ours = scores["BLEU"]
    compared = compare("bleu", systems[1], systems[0], references, trials=2000)
    assert 0.05 < compared.p_value < 0.95
    assert compared.p_value == pytest.approx(ours.p_value, abs=0.04)
    assert (compared.ours, compared.theirs) == (ours.score, theirs.score)


@pytest.mark.parametrize("trials", [500, 10_000])
def test_one_seed_gives_one_result_and_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch, trials: int) -> None:
    ours, theirs, references = texts(5, 10, "ab", 4)
    first = compare("token_error_rate", ours, theirs, references, trials=trials, seed=0)
    assert first == compare("token_error_rate", ours, theirs, references, trials=trials, seed=0)
    for block in (1, 100):  # one trial at once, and some ten
        monkeypatch.setattr(metrics, "BLOCK", block)
        assert first == compare("token_error_rate", ours, theirs, references, trials=trials, seed=0)


def test_another_seed_draws_other_swaps() -> None:
    ours, theirs, references = texts(6, 40, "ab", 4)
    p_values = {compare("token_error_rate", ours, theirs, references, trials=500, seed=s).p_value for s in range(5)}
    assert len(p_values) > 1


@pytest.mark.parametrize(
    ("name", "ours", "theirs", "sentence"),
    [
        ("blue", ["a"], ["a"], "there is no metric 'blue'; did you mean 'bleu'?"),
        ("bleu", ["a", "b"], ["a"], "2 lines were written, but 1 lines have references"),
        ("bleu", ["a"], ["a", "b"], "2 lines were written, but 1 lines have references"),
        ("bleu", [], ["a", "b"], "2 lines were written, but 1 lines have references"),  # 0 + 2 = 1 + 1
    ],
)
def test_what_cannot_be_compared(name: str, ours: list[str], theirs: list[str], sentence: str) -> None:
    with pytest.raises(DataError) as caught:
        compare(name, ours, theirs, [["a"]])
    assert str(caught.value).startswith(sentence)


def test_too_few_trials() -> None:
    with pytest.raises(DataError, match="trials=0 test nothing: the smallest is 1"):
        compare("exact_match", RIGHT, WRONG, TRUE, trials=0)
