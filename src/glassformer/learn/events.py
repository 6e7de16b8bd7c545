"""What a training tells while it goes on."""

from dataclasses import dataclass

from glassformer.data.findings import Finding


@dataclass(frozen=True)
class Started:
    """Training is about to begin, or to go on."""

    step: int  # steps that are done
    last_step: int  # without an early end
    n_examples: int | None  # to learn from; None: a task that draws them without end
    findings: list[Finding]  # what the counts and lengths of the examples say about them
    peak_step: int
    peak_rate: float
    heaviest: tuple[int, int]  # rows and columns of the batch that was tried first
    heaviest_seconds: float
    seconds: float  # of the steps that are done


@dataclass(frozen=True)
class Stepped:
    """One step is done."""

    step: int
    epoch: int
    loss: float  # of this step's batches, with label smoothing
    rate: float  # the learning rate that was used
    gradient_norm: float  # before clipping
    n_tokens: int  # real ones, of both sides
    skipped: int  # steps so far that changed nothing, as a gradient was not finite
    seconds: float  # of all steps so far, without looks and writing


@dataclass(frozen=True)
class Evaluated:
    """The model was measured on the validation examples."""

    step: int
    epoch: int
    rate: float  # the learning rate that the step used
    loss: float | None  # with label smoothing, mean over all labels since the look before; None: no step went well
    validation_loss: float | None  # plain cross-entropy over all tokens; None: there are no validation examples
    metric: float | None  # of what the model wrote; None: the loss is the metric
    is_best: bool
    skipped: int
    seconds: float


@dataclass(frozen=True)
class Averaged:
    """The run's own weights are the mean of these snapshots; measured like the others."""

    steps: list[int]
    validation_loss: float | None
    metric: float | None


Event = Started | Stepped | Evaluated | Averaged
