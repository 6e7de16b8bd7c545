"""Everything else that a run is made from: its data, its training, its decoding. No torch."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from glassformer.config.model import Count, Frozen, ModelConfig, Rate

Size = Annotated[int, Field(ge=0, le=2**31 - 1)]


class DataConfig(Frozen):
    """Where the examples come from. The reversal task makes its own: letters in, the same letters backwards out."""

    task: Literal["reversal"] = "reversal"
    shortest: Count = 3  # letters in a sequence
    longest: Count = 8
    test_size: Count = 500  # sequences for the exact match, the same in every run; short ones occur in training too

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.shortest > self.longest:
            raise ValueError(f"data.shortest={self.shortest} is more than data.longest={self.longest}")
        return self


class Adam(Frozen):
    """The optimiser (section 5.3)."""

    beta_1: Rate = 0.9
    beta_2: Rate = 0.98
    eps: Annotated[float, Field(gt=0.0)] = 1e-9


class Schedule(Frozen):
    """The learning rate at each step; "paper" is section 5.3, equation 3."""

    kind: Literal["paper"] = "paper"
    warmup_steps: Count = 4000


class TrainConfig(Frozen):
    """How a model learns."""

    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    steps: Count = 100_000
    batch_size: Count = 64  # sequences a step
    optimizer: Adam = Adam()
    schedule: Schedule = Schedule()
    label_smoothing: Rate = 0.1  # section 5.4
    evaluate_every: Count = 100  # steps between two looks at the test loss and the exact match
    snapshot_every: Count = 100  # steps between two copies of the weights on disk
    # the run keeps the mean of its last so many snapshots (section 6.1), none from the first half of training
    average: Count = 5


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


class Config(Frozen):
    """One experiment: what stands in a preset, in a user's TOML file, and in a run directory."""

    about: str = ""  # one sentence for people
    model: ModelConfig
    data: DataConfig | None = None
    train: TrainConfig | None = None
    decode: DecodeConfig = DecodeConfig()


def model_of(config: ModelConfig | Config) -> ModelConfig:
    """Return the [model] part; it stands for itself."""
    return config.model if isinstance(config, Config) else config
