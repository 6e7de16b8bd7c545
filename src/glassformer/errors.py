"""The errors that a user can cause: one base, one kind for each thing that can be wrong.

Every message says what is wrong, where, what was found, what is allowed and what to do.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class GlassformerError(Exception):
    """Base of all errors that carry a sentence for the user."""


class ConfigError(GlassformerError):
    """A configuration, preset, field or choice that does not exist or makes no sense."""


class DataError(GlassformerError):
    """Text or token ids that cannot be read, or do not fit the model."""


class CheckpointError(GlassformerError):
    """A run directory or a file of weights that is missing, damaged, or does not fit."""


class DecodingError(GlassformerError):
    """A request to the search that this model or this input does not allow."""


class VerifyError(GlassformerError):
    """Another implementation that cannot be compared."""


class TrainingError(GlassformerError):
    """Training cannot go on."""


class TrainingStopped(TrainingError):  # noqa: N818  nothing went wrong
    """Training ended before its last step because somebody asked for it; its state is saved."""


def nearest(wrong: str, allowed: Iterable[str]) -> str:
    """End a sentence about an unknown word: with the closest allowed one where there is one, else with a full stop."""
    near = get_close_matches(wrong, list(allowed), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else "."
