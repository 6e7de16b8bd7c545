"""Everything else that a run is made from: its data, its training, its decoding. No torch."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from glassformer.config.model import Count, Frozen, ModelConfig, Rate


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
    """How a model writes."""

    extra_length: Annotated[int, Field(ge=0, le=2**31 - 1)] = 50  # at most source length + 50 tokens (section 6.1)


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
