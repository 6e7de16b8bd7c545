"""Tasks that make their own examples. The examples of a step depend on the seed and the step alone."""

import numpy as np
import torch

from glassformer.config.run import DataConfig
from glassformer.data.batch import IGNORED, Batch, is_real, unpad
from glassformer.text.tokenizer import Tokenizer

LETTERS = "abcdefghij"
TEST_SEED = 1234


class Reversal:
    """Letters in, the same letters backwards out: `c a b e d` becomes `d e b a c`."""

    def __init__(self, config: DataConfig) -> None:
        self.config = config
        self.tokenizer = Tokenizer.letters(LETTERS)
        self._first = self.tokenizer.encode(LETTERS[0])[0]

    def training_batch(self, size: int, *, seed: int, step: int) -> Batch:
        """Return the batch of one step of one run."""
        return self.examples(size, np.random.default_rng([seed, step]))

    def test_batch(self) -> Batch:
        """Return the test sequences: the same in every run, whatever its seed."""
        return self.examples(self.config.test_size, np.random.default_rng(TEST_SEED))

    def test_pairs(self) -> list[tuple[str, str]]:
        """Return the test sequences as texts: letters, and the same letters backwards."""
        test, decode = self.test_batch(), self.tokenizer.decode
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
