"""How a model writes, and the whole of one experiment. No torch."""

from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from glassformer.config.data import DataConfig, TextConfig
from glassformer.config.model import Count, Frozen, ModelConfig
from glassformer.config.train import TrainConfig
from glassformer.errors import ConfigError

Size = Annotated[int, Field(ge=0, le=2**31 - 1)]


class DecodeConfig(Frozen):
    """How a model writes (section 6.1). Lengths count what is written: a forced prefix and the end token, no prompt."""

    # how many hypotheses go on at each step (the paper: 4); 1: the most likely token each time, which is greedy
    beam_size: Count = 1
    n_best: Annotated[int, Field(ge=1, le=10_000)] = (
        1  # how many results a line gives: without sampling at most beam_size
    )
    # a hypothesis of n tokens has the score log-probability / penalty: wu ((5 + n) / 6)^α (Wu et al. 2016, the
    # paper's), power n^α, average n, none 1
    length_penalty: Literal["wu", "power", "average", "none"] = "wu"
    alpha: Annotated[float, Field(ge=-10.0, le=10.0)] | None = None  # α; unset: 0.6; only for wu and power
    # at most source length + so many tokens; a decoder alone has no source: so many; unset: 50
    extra_length: Size | None = None
    max_length: Count | None = None  # at most this many instead
    min_length: Size = 0  # the end token may not come earlier
    forbidden: tuple[str, ...] = Field((), strict=False)  # tokens that are never written
    no_repeat_ngram: Size = 0  # no n tokens in a row occur twice in what is written; 0: they may
    sample: bool = False  # draw each token by its probability
    temperature: Annotated[float, Field(ge=1e-4)] = 1.0  # logits are divided by it before a token is drawn
    top_k: Count | None = None  # draw from the k most likely tokens
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = None  # from the fewest that have this share together
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0  # with the number of the line, it decides what is drawn

    @property
    def penalty_exponent(self) -> float:
        """α of the length penalty."""
        return 0.6 if self.alpha is None else self.alpha

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.alpha is not None and self.length_penalty not in ("wu", "power"):
            raise ValueError(f"alpha belongs to the length penalties wu and power, not to {self.length_penalty!r}")
        if self.max_length is not None and self.extra_length is not None:
            raise ValueError("max_length stands for a limit by extra_length: set one of them")
        if self.max_length is not None and self.min_length > self.max_length:
            raise ValueError(f"min_length={self.min_length} is more than max_length={self.max_length}")
        if self.sample and self.beam_size != 1:
            raise ValueError(f"sample draws its tokens, which has no beam: set beam_size=1, not {self.beam_size}")
        if not self.sample:
            for name, unset in (("temperature", 1.0), ("top_k", None), ("top_p", None), ("seed", 0)):
                if getattr(self, name) != unset:
                    raise ValueError(f"{name} belongs to sampling: set sample too")
            if self.n_best > self.beam_size:
                raise ValueError(
                    f"n_best={self.n_best} results need a beam as wide, but beam_size={self.beam_size}: set both"
                )
        return self


class Notes(Frozen):
    """What a model's sizes do not say, in words for people; nothing reads them but a comparison."""

    task: str = ""  # what it learnt to do
    vocabulary: str = ""
    context: str = ""  # how much it reads at once
    parameters: str = ""  # what its authors count


class Config(Frozen):
    """One experiment: what stands in a preset, in a user's TOML file, and in a run directory."""

    about: str = ""  # one sentence for people
    model: ModelConfig
    data: DataConfig | None = None
    text: TextConfig | None = None  # the vocabulary; a task has its own
    target_text: TextConfig | None = None  # another one for targets; unset: one vocabulary for both sides
    train: TrainConfig | None = None
    decode: DecodeConfig = DecodeConfig()
    notes: Notes = Notes()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.data is not None and self.data.task is None and self.text is None:
            raise ValueError("say how the texts are cut into tokens: a [text] table, such as kind='bpe', size=8000")
        if self.data is not None and self.data.task is not None and (self.text or self.target_text):
            raise ValueError(f"the task {self.data.task!r} has a vocabulary of its own: leave [text] out")
        if self.data is not None and self.data.truncate and self.model.kind == "decoder":
            raise ValueError(
                "truncate cuts sources, but a decoder alone has none: leave long examples out by max_length"
            )
        if self.target_text is not None:
            if self.text is None:
                raise ValueError("target_text is a second vocabulary: the first one, [text], is missing")
            if self.model.kind != "encoder-decoder":
                raise ValueError(f"a model of kind={self.model.kind!r} has one vocabulary: leave target_text out")
            if self.model.tying in ("all", "source-target"):
                raise ValueError(
                    f"tying={self.model.tying!r} makes source and target one matrix, but target_text gives the target "
                    "a vocabulary of its own; use one for both, or tying='target-output' or 'none'"
                )
        return self


def model_of(config: ModelConfig | Config) -> ModelConfig:
    """Return the [model] part, which stands for itself, once it has all of its sizes.

    Raises:
        ConfigError: A vocabulary has no size yet.

    """
    model = config.model if isinstance(config, Config) else config
    missing = [field for field, value in _sizes(model).items() if value is None]
    if missing:
        raise ConfigError(
            f"model.{missing[0]} is not set: training takes it from its data, and the run's config.toml has it then; "
            f"to go on without, set it, such as --set model.{missing[0]}={8 if 'classes' in missing[0] else 8000}"
        )
    return model


def with_sizes(config: Config, *, source: int, target: int, classes: int | None = None) -> Config:
    """Return the configuration with the sizes of the model that its data decide.

    Raises:
        ConfigError: The configuration names another size.

    """
    found = {"source_vocabulary": source, "target_vocabulary": target, "classifier.classes": classes}
    values = config.model_dump(mode="python", exclude_none=True)
    for field, own in _sizes(config.model).items():
        size = found[field]
        if own is None:
            *tables, name = field.split(".")
            table = values["model"]
            for part in tables:
                table = table[part]
            table[name] = size
        elif own != size:
            what = f"{size} classes" if "classes" in field else f"a vocabulary of {size} tokens"
            raise ConfigError(f"the data have {what}, but model.{field}={own}: leave it out, or set it to {size}")
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError("; ".join(one["msg"].removeprefix("Value error, ") for one in error.errors())) from None


def _sizes(model: ModelConfig) -> dict[str, int | None]:
    """Return the sizes of a model that come from its data."""
    sizes = {"source_vocabulary": model.source_vocabulary} if model.has_encoder else {}
    if model.has_decoder:
        sizes["target_vocabulary"] = model.target_vocabulary
    if model.classifier is not None:
        sizes["classifier.classes"] = model.classifier.classes
    return sizes
