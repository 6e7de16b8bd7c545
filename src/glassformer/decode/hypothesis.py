"""What a search starts from, what it finds, and how that is scored."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from glassformer.config.run import DecodeConfig
from glassformer.errors import DecodingError


@dataclass(frozen=True)
class Prompt:
    """What one search starts from."""

    source: Sequence[int] | None  # ids for the encoder; None where the model has none
    read: Sequence[int]  # ids that the decoder reads first: the start token, or a text to go on from
    limit: int  # the most tokens that may be written, those of the prefix and the end token included
    prefix: Sequence[int] = ()  # the first tokens of what is written
    number: int = 0  # of the line; with the seed, it decides what sampling draws
    n_cut: int = 0  # tokens of the source that were cut off
    n_unknown: int = 0  # tokens of the text that the vocabulary does not have

    def check(self) -> None:
        """Refuse a limit that leaves no room for a token.

        Raises:
            DecodingError: It says how many tokens the prefix takes.

        """
        if self.limit <= len(self.prefix):
            after = f" after the {len(self.prefix)} of the prefix" if self.prefix else ""
            raise DecodingError(f"a length limit of {self.limit} leaves no room for a token{after}: set a larger one")

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing to read: then nothing is written."""
        return not (self.read if self.source is None else self.source)


@dataclass(frozen=True)
class Hypothesis:
    """What a search wrote."""

    ids: list[int]  # the prefix included, the end token not
    log_probability: float  # of all tokens that were written, the end token included
    score: float  # log-probability / penalty
    # end: the end token was written; limit: the length limit cut it; empty: there was nothing to read
    stopped: Literal["end", "limit", "empty"]


BLANK = Hypothesis([], 0.0, 0.0, "empty")


def length_penalty(config: DecodeConfig, length: int) -> float:
    """Return what the log-probability of `length` tokens, the end token among them, is divided by."""
    match config.length_penalty:
        case "wu":  # Wu et al. 2016, equation 14, without the coverage term; the paper's, section 6.1
            return float(((5 + length) / 6) ** config.penalty_exponent)
        case "power":
            return float(length**config.penalty_exponent)
        case "average":
            return float(length)
        case "none":
            return 1.0


def scored(ids: Sequence[int], log_probability: float, *, end_id: int, config: DecodeConfig) -> Hypothesis:
    """Turn the tokens that were written, the end token perhaps the last, into a hypothesis with its score."""
    score = log_probability / length_penalty(config, len(ids))
    ended = ids[-1] == end_id
    return Hypothesis(list(ids[:-1] if ended else ids), log_probability, score, "end" if ended else "limit")
