"""One known way in which implementations differ, and how our machine is made to differ so."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from glassformer.config.model import ModelConfig
from glassformer.verification import changes as c

When = Callable[[ModelConfig], bool]
SIDES = ("encoder", "decoder")


def always(_: ModelConfig) -> bool:
    """Whatever the configuration."""
    return True


def both_stacks(config: ModelConfig) -> bool:
    """Encoder–decoders."""
    return config.kind == "encoder-decoder"


def has(side: str) -> When:
    """Return whether a model has an encoder, or a decoder."""
    return lambda config: config.has_encoder if side == "encoder" else config.has_decoder


def pre(config: ModelConfig) -> bool:
    """Pre-norm models."""
    return config.norm.placement == "pre"


def post(config: ModelConfig) -> bool:
    """Post-norm models."""
    return not pre(config)


def layernorm(config: ModelConfig) -> bool:
    """Models with LayerNorm."""
    return config.norm.kind == "layernorm"


def rmsnorm(config: ModelConfig) -> bool:
    """Models with RMSNorm."""
    return config.norm.kind == "rmsnorm"


def rotary(config: ModelConfig) -> bool:
    """Models that turn queries and keys."""
    return config.positions.kind == "rotary"


def adds_positions(config: ModelConfig) -> bool:
    """Models that add something to the embedding for the position."""
    return config.positions.kind in ("sinusoidal", "learned")


def both(*when: When) -> When:
    """Return whether all of them hold."""
    return lambda config: all(one(config) for one in when)


@dataclass(frozen=True, eq=False)
class Way:
    """One way to make our machine differ: other fields of the configuration, a change of the model, or both."""

    fields: dict[str, Any] = field(default_factory=dict)  # "norm__placement": "pre"
    change: c.Change | None = None
    when: When = always
    makes_parameters: bool = False  # or takes some away

    @property
    def remakes(self) -> bool:
        """Whether a model must be made anew for it: hooks alone can be taken off again."""
        return bool(self.fields) or self.makes_parameters

    @property
    def settings(self) -> tuple[str, ...]:
        """The fields, as `--set` takes them; none where they alone do not make it."""
        if self.change is not None:
            return ()
        flat = {path: value for path, value in self.fields.items() if value is not None}
        flat |= {
            f"{path}__{key}": one
            for path, value in flat.items()
            if isinstance(value, dict)
            for key, one in value.items()
        }
        simple = {path.replace("__", "."): value for path, value in flat.items() if not isinstance(value, dict)}
        return tuple(f"model.{path}={str(value).lower()}" for path, value in simple.items())

    def config(self, config: ModelConfig) -> ModelConfig | None:
        """Return the configuration to make the model from; None where this way does not apply."""
        if not self.when(config):
            return None
        return c.configured(config, **self.fields) if self.fields else config


def fields(when: When = always, change: c.Change | None = None, **values: Any) -> Way:
    """Return a way by fields that leave the parameters as they are."""
    return Way(values, change, when)


def parameters(when: When = always, **values: Any) -> Way:
    """Return a way by fields that make parameters or take some away."""
    return Way(values, None, when, makes_parameters=True)


def hooks(change: c.Change, when: When = always) -> Way:
    """Return a way by hooks alone."""
    return Way({}, change, when)


def modules(change: c.Change, when: When = always) -> Way:
    """Return a way that puts modules in, or takes some out."""
    return Way({}, change, when, makes_parameters=True)


@dataclass(frozen=True, eq=False)
class Deviation:
    """One known way to differ."""

    name: str
    says: str  # what theirs does: the end of "your model …"
    section: str  # of the paper, or another source
    fix: str
    ways: tuple[Way, ...]


def deviation(name: str, says: str, section: str, fix: str, *ways: Way) -> Deviation:
    """Return a deviation; several ways are ways to do the same thing wrong."""
    return Deviation(name, says, section, fix, ways)
