"""How a model learns. No torch."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from glassformer.config.model import Count, Frozen, Rate

Step = Annotated[int, Field(ge=0, le=2**31 - 1)]
Steps = Annotated[tuple[Count, ...], Field(strict=False)]
Positive = Annotated[float, Field(gt=0.0)]


class Adam(Frozen):
    """The optimiser (section 5.3), with decoupled weight decay (AdamW) where that is asked for."""

    beta_1: Rate = 0.9
    beta_2: Rate = 0.98
    eps: Positive = 1e-9
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.0  # of matrices; norms and biases have none
    clip: Positive | None = None  # the largest norm of all gradients together; unset: any


class Schedule(Frozen):
    """The learning rate at each step.

    Each rises in a straight line for `warmup_steps` first. "paper": d_model^-0.5 · step^-0.5 (section 5.3, equation 3).
    "inverse-sqrt": the same curve through a rate of one's own at the end of the warm-up.
    "cosine": from the peak down to `final` of it at the last step. "constant": the peak.
    """

    kind: Literal["paper", "inverse-sqrt", "cosine", "constant"] = "paper"
    warmup_steps: Step = 4000
    peak: Positive | None = None  # the largest rate; "paper" has its own
    final: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0  # cosine: the last rate, as a share of the peak

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.kind == "paper") != (self.peak is None):
            raise ValueError(
                "the schedule 'paper' has its peak from d_model and warmup_steps: leave peak out"
                if self.kind == "paper"
                else f"the schedule {self.kind!r} needs a peak, its largest learning rate, such as peak=1e-3"
            )
        if self.kind in ("paper", "inverse-sqrt") and self.warmup_steps == 0:
            raise ValueError(f"the schedule {self.kind!r} rises first: warmup_steps must be at least 1")
        if self.final and self.kind != "cosine":
            raise ValueError(f"final belongs to the schedule 'cosine', not to {self.kind!r}")
        return self


class TrainConfig(Frozen):
    """How a model learns, what is measured on the way, and what is kept."""

    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    steps: Count | None = None  # so many changes of the weights; unset: by epochs, else 100 000
    epochs: Count | None = None  # or so many times over the training examples
    batch_size: Count | None = None  # examples a batch; unset and no batch_tokens: 64
    batch_tokens: Count | None = None  # or tokens a batch: its rows times the longer of its two sides, padding included
    # batches a step: their gradient is that of one batch of all of them; several processes share them out
    accumulate: Count = 1
    # on several processes: whether each keeps a part of the weights, their gradients and Adam's state (FSDP2), or all
    shard: bool = False
    precision: Literal["float32", "bfloat16", "float16"] = "float32"  # of the products; weights stay float32
    optimizer: Adam = Adam()
    schedule: Schedule = Schedule()
    label_smoothing: Rate = 0.1  # ε, section 5.4
    # where ε goes: "all" of the V tokens, ε/V each (PyTorch); the "others", ε/(V - 1) each;
    # "others-but-pad", ε/(V - 2) each
    smoothing: Literal["all", "others", "others-but-pad"] = "all"
    class_weights: Literal["none", "balanced"] = "none"  # classifiers: balanced: each class counts alike in all
    evaluate_every: Count | None = None  # steps between two looks at the validation examples; unset: an epoch
    # what the best weights are best in: the loss, or what is decoded from the first `metric_examples` of validation
    metric: Literal["loss", "exact_match", "bleu", "chrf", "token_error_rate", "accuracy", "macro_f1"] = "loss"
    metric_examples: Count = 500
    patience: Count | None = None  # stop after so many looks in a row without a new best; unset: never
    snapshot_every: Count | None = None  # steps between two copies of the weights on disk; unset: at each look
    snapshot_steps: Steps = ()  # more copies, after these steps, …
    snapshot_epochs: Steps = ()  # … and these epochs; both stay
    keep: Count | None = None  # of the regular copies the last so many stay (and the best, if they are averaged)
    # the run's weights are the mean of so many regular copies (section 6.1): its last ones, none from the first half
    # of training, or those that were best
    average: Count = 5
    average_of: Literal["last", "best"] = "last"
    ema: Annotated[float, Field(gt=0.0, lt=1.0)] | None = (
        None  # decay of a moving average of the weights; it is what is measured and kept
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.steps is not None and self.epochs is not None:
            raise ValueError("steps and epochs both say when to stop: set one of them")
        if self.batch_size is not None and self.batch_tokens is not None:
            raise ValueError("batch_size and batch_tokens both say how large a batch is: set one of them")
        if self.smoothing != "all" and not self.label_smoothing:
            raise ValueError(f"smoothing={self.smoothing!r} says where label_smoothing goes, which is 0")
        if self.keep is not None and self.keep < self.average and self.average_of == "last":
            raise ValueError(f"keep={self.keep} leaves fewer copies than average={self.average} takes")
        if self.average_of == "best" and self.snapshot_every != self.evaluate_every:
            raise ValueError("average_of='best' takes copies that were measured: set snapshot_every as evaluate_every")
        return self
