"""Tasks that make their own examples. The examples of a step depend on the seed and the step alone."""

import numpy as np
import torch

from glassformer.config.data import DataConfig
from glassformer.data.batch import IGNORED, Batch, is_real, unpad
from glassformer.errors import ConfigError
from glassformer.text.tokenizer import Tokenizer

LETTERS = "abcdefghij"
TEST_SEED = 1234


class Reversal:
    """Letters in, the same letters backwards out: `c a b e d` becomes `d e b a c`. It draws its training batches."""

    kind = "encoder-decoder"

    def __init__(self, config: DataConfig) -> None:
        self.config = config
        self.tokenizer = Tokenizer.letters(LETTERS)
        self._first = self.tokenizer.encode(LETTERS[0])[0]

    def training_batch(self, size: int, *, seed: int, step: int, part: int = 0) -> Batch:
        """Return the batch of one step of one run; `part` counts the batches of a step."""
        return self.examples(size, np.random.default_rng([seed, step, part] if part else [seed, step]))

    def longest_batch(self, size: int) -> Batch:
        """Return a batch in which every sequence is as long as they come."""
        same = Reversal(self.config.model_copy(update={"shortest": self.config.longest}))
        return same.training_batch(size, seed=0, step=0)

    def test_batch(self) -> Batch:
        """Return the test sequences, 500 if nothing else is said: the same in every run, whatever its seed."""
        n = 500 if self.config.test_size is None else self.config.test_size
        return self.examples(n, np.random.default_rng(TEST_SEED))

    def pairs(self, *, held_out: bool) -> list[tuple[str, str]]:
        """Return the test sequences as texts: letters, and the same letters backwards.

        Raises:
            ConfigError: Training examples are asked for, which have no end.

        """
        if not held_out:
            raise ConfigError("the task 'reversal' draws its training examples without end: there is no list of them")
        test, decode = self.test_batch(), self.tokenizer.decode
        assert test.source is not None
        sources, answers = unpad(test.source, test.source_is_real), unpad(test.labels, test.labels != IGNORED)
        return [(decode(source), decode(answer)) for source, answer in zip(sources, answers, strict=True)]

    def examples(self, size: int, random: np.random.Generator) -> Batch:
        """Draw examples: the length first, evenly, then each letter, evenly."""
        pad, start, end = map(self.tokenizer.id_of, ("<pad>", "<s>", "</s>"))
        lengths = random.integers(self.config.shortest, self.config.longest + 1, size)[:, None]  # (B, 1)
        longest = int(lengths.max())
        letters = random.integers(self._first, self._first + len(LETTERS), (size, longest))  # (B, S)
        column = np.arange(longest + 1)  # T = S + 1: the start token, then the letters
        source = np.where(column[:-1] < lengths, letters, pad)  # (B, S)
        mirrored = np.clip(lengths - 1 - column, 0, None)  # (B, T): place 0 reads the last letter
        answer = np.take_along_axis(letters, mirrored, axis=1)  # (B, T)
        labels = np.where(column < lengths, answer, np.where(column == lengths, end, IGNORED))
        target = np.full_like(labels, start)
        target[:, 1:] = np.where(column[1:] <= lengths, labels[:, :-1], pad)
        return Batch(
            source=torch.from_numpy(source),
            source_is_real=is_real(torch.from_numpy(lengths[:, 0]), longest),
            target=torch.from_numpy(target),
            labels=torch.from_numpy(labels),
        )


DIGITS = "0123456789"
# fmt: off
SMALL = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
# fmt: on
HELD_OUT_SEED = 4321


class NumberWords:
    """Numbers from 0 to 999 in, their words out: `4 2 7 =` becomes `four hundred twenty seven`."""

    kind = "decoder"

    def __init__(self, config: DataConfig) -> None:
        """Hold out `test_size` numbers, the same in every run; never 0, as no other number has its word."""
        n = 100 if config.test_size is None else config.test_size
        if n > 998:
            raise ConfigError(f"data.test_size={n} leaves nothing to learn from: there are 1000 numbers, 998 at most")
        # 42 tokens: 10 digits, `=`, 29 words, `<eos>`, `<pad>`
        self.tokenizer = Tokenizer.of_words([*DIGITS, "=", *SMALL, *TENS, "hundred"], specials=["<eos>", "<pad>"])
        others = np.random.default_rng(HELD_OUT_SEED).permutation(np.arange(1, 1000))
        self._held_out, self._kept = sorted(others[:n].tolist()), [0, *sorted(others[n:].tolist())]

    def pairs(self, *, held_out: bool) -> list[tuple[str, str]]:
        """Return prompts and answers, in the order of the numbers."""
        numbers = self._held_out if held_out else self._kept
        return [(" ".join([*str(n), "="]), in_words(n)) for n in numbers]


def in_words(n: int) -> str:
    """Return a number from 0 to 999 in English words, without "and" and hyphens."""
    hundreds, rest = divmod(n, 100)
    words = [SMALL[hundreds], "hundred"] if hundreds else []
    if rest >= 20:
        words += [TENS[rest // 10 - 2], *([SMALL[rest % 10]] if rest % 10 else [])]
    elif rest or not hundreds:
        words.append(SMALL[rest])
    return " ".join(words)


def task_of(config: DataConfig) -> Reversal | NumberWords:
    """Return the task that a configuration names."""
    return Reversal(config) if config.task == "reversal" else NumberWords(config)
