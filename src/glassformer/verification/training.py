"""What a forward pass cannot show: a user's loss, schedule, batches and dropout, each probed by itself."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.config.train import Schedule
from glassformer.data.batch import IGNORED
from glassformer.errors import VerifyError
from glassformer.learn.loss import Objective
from glassformer.learn.schedule import learning_rate
from glassformer.verification.report import Cause, Report

CLOSE = 1e-6  # as a share of the value: losses are often computed in float32
SMOOTHED = "section 5.4: label smoothing of ε = 0.1"
MEAN = "the mean over all tokens that are no padding, however they fall into rows and batches"

SMOOTHING = {  # how a loss may be smoothed, the reference's way first
    "": ("as asked", None),
    "smoothing-others": ("gives ε to the other tokens, ε/(V - 1) each, none of it to the right one", "others"),
    "smoothing-others-but-pad": ("gives ε to the other tokens but padding, ε/(V - 2) each", "others-but-pad"),
    "smoothing-all": ("gives ε to all tokens, ε/V each", "all"),
    "smoothing-missing": ("does not smooth the labels", "none"),
}
COUNTED = {
    "": "counts no padding",
    "padding-in-loss": "counts the places of padding as if something were to be written there",
    "padding-in-count": "divides by all places, those of padding too",
}
REDUCED = {
    "": "is a mean over tokens",
    "mean-of-means": "is the mean of each row's mean, so that short rows weigh more",
    "sum": "is a sum, so that it grows with the batch",
    "mean-over-rows": "divides by the rows, so that it grows with their length",
}
DOUBLED = {"": "reads logits", "softmax-twice": "takes a softmax of its own before the one that cross-entropy has"}


def verify_loss(
    loss: Callable[[Tensor, Tensor], Tensor],
    *,
    label_smoothing: float = 0.1,
    smoothing: str = "all",
    pad_id: int = 0,
    vocabulary: int = 13,
) -> Report:
    """Find where a loss differs from the paper's.

    Args:
        loss: Takes logits (B, T, V) and labels (B, T), which hold `pad_id` at padding, and returns one number.
        label_smoothing: ε, as it should be.
        smoothing: Where ε should go: "all", "others" or "others-but-pad".
        pad_id: What stands in the labels at padding; -100 is PyTorch's own.
        vocabulary: V, of the probe.

    Raises:
        VerifyError: It fails, or returns no number.

    """
    found = [_value(loss, *probe) for probe in _loss_probes(vocabulary, pad_id)]
    right = _losses(("", "", "", ""), vocabulary, pad_id, label_smoothing, smoothing)
    if _all_close(found, right):
        return Report(equal=True)
    choices = sorted(product(SMOOTHING, COUNTED, REDUCED, DOUBLED), key=lambda names: sum(map(bool, names)))
    for names in choices:
        if _all_close(found, _losses(names, vocabulary, pad_id, label_smoothing, smoothing)):
            return Report(equal=False, causes=tuple(_loss_causes(names)))
    shift = [a - b for a, b in zip(found, right, strict=True)]
    if all(math.isclose(one, shift[0], rel_tol=1e-4) for one in shift):
        says = (
            f"is always {shift[0]:+.4g} away from the cross-entropy: a divergence, which leaves an entropy out, perhaps"
        )
        return _one("constant-apart", says, SMOOTHED, "nothing is to be mended: the gradient is the same")
    return Report(equal=False, explained=False)


def _loss_probes(vocabulary: int, pad_id: int) -> Iterator[tuple[Tensor, Tensor]]:
    random = torch.Generator().manual_seed(0)
    for lengths in ((6, 2, 4), (5, 1), (3, 3)):
        logits = 2 * torch.randn(len(lengths), max(lengths), vocabulary, generator=random, dtype=torch.float64)
        labels = torch.randint(0, vocabulary - 1, logits.shape[:2], generator=random)
        labels += labels >= pad_id  # any but that of padding
        labels[torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None]] = pad_id
        yield logits, labels


def _losses(names: Sequence[str], vocabulary: int, pad_id: int, epsilon: float, smoothing: str) -> list[float]:
    smoothed, counted, reduced, doubled = names
    kind = SMOOTHING[smoothed][1] or smoothing
    if kind == "none":
        epsilon, kind = 0.0, "all"
    objective = Objective(epsilon, kind, max(pad_id, 0))  # type: ignore[arg-type]
    found = []
    for logits, labels in _loss_probes(vocabulary, pad_id):
        if doubled:
            logits = logits.softmax(-1)
        is_real = labels != pad_id
        asked = is_real | (counted == "padding-in-loss")
        each = torch.zeros(labels.shape, dtype=torch.float64)
        for b, t in asked.nonzero().tolist():
            each[b, t] = objective(logits[b, t][None], labels[b, t][None].clamp(min=0))
        counts = (asked if counted != "padding-in-count" else torch.ones_like(asked)).double()
        match reduced:
            case "":
                value = each.sum() / counts.sum()
            case "mean-of-means":
                value = (each.sum(1) / counts.sum(1)).mean()
            case "sum":
                value = each.sum()
            case _:
                value = each.sum() / len(each)
        found.append(float(value))
    return found


def _loss_causes(names: Sequence[str]) -> Iterator[Cause]:
    smoothed, counted, reduced, doubled = names
    if smoothed:
        yield Cause(smoothed, SMOOTHING[smoothed][0], SMOOTHED, "set train.smoothing to the same, or change yours")
    if counted:
        yield Cause(counted, COUNTED[counted], MEAN, "F.cross_entropy(..., ignore_index=pad_id)")
    if reduced:
        yield Cause(reduced, REDUCED[reduced], MEAN, "sum the losses of all tokens, and divide once by their number")
    if doubled:
        yield Cause(doubled, DOUBLED[doubled], "section 3.4", "give F.cross_entropy the logits")


def verify_schedule(
    rate: Callable[[int], float], *, schedule: Schedule | None = None, d_model: int = 512, last_step: int | None = None
) -> Report:
    """Find where a learning rate differs from the paper's (section 5.3, equation 3), or from another schedule.

    Args:
        rate: Takes a step, from 1, and returns the rate of that update.
        schedule: As it should be; unset: the paper's, with 4000 steps of warm-up.
        d_model: For the paper's.
        last_step: Where a cosine ends.

    """
    asked = schedule or Schedule()
    warmup = max(asked.warmup_steps, 1)
    steps = sorted({1, 2, 3, 7, *(max(1, warmup * k // 4) for k in (1, 2, 3, 4, 5, 8, 20)), warmup + 1})
    found = [float(rate(step)) for step in steps]

    def reference(step: float, one: Schedule = asked) -> float:
        if step <= 0:
            return 0.0
        return learning_rate(one, step=step, d_model=d_model, last_step=last_step)  # type: ignore[arg-type]

    def like(values: Sequence[float]) -> bool:
        return all(math.isclose(a, b, rel_tol=CLOSE, abs_tol=1e-15) for a, b in zip(found, values, strict=True))

    if like([reference(step) for step in steps]):
        return Report(equal=True)
    section = "section 5.3, equation 3: d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5), steps from 1"
    for by, says in ((-1, "is one step late: its first update has the rate of step 0"), (1, "is one step early")):
        if like([reference(step + by) for step in steps]):
            return _one(
                "schedule-off-by-one", says, section, "count updates from 1, and set the rate before the update"
            )
    for times in (2, 4, 8, 16, 32, 64, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64):
        longer = replace_schedule(asked, max(1, round(warmup * times)))
        if like([reference(step * times) for step in steps]):
            return _one(
                "schedule-units",
                f"counts {times:g} steps for each update, as who counts batches in place of updates",
                section,
                "count updates",
            )
        if like([reference(step, longer) for step in steps]):
            return _one(
                "warmup-units",
                f"warms up for {longer.warmup_steps:,} updates in place of {warmup:,}",
                section,
                "give the warm-up in updates",
            )
    for power, name in ((0.5, "no-d-model"), (-0.5, "d-model-twice")):
        if like([reference(step) * d_model**power for step in steps]):
            says = "leaves out d_model^-0.5" if power > 0 else "has d_model^-0.5 twice"
            return _one(f"schedule-{name}", says, section, "multiply by d_model ** -0.5, once")
    ratios = {a / b for a, b in zip(found, map(reference, steps), strict=True) if b}
    if max(ratios) - min(ratios) <= CLOSE * max(map(abs, ratios)):
        return _one(
            "schedule-factor", f"is {max(ratios):.6g} times the rate, at every step", section, "take the factor out"
        )
    return Report(equal=False, explained=False)


def replace_schedule(schedule: Schedule, warmup_steps: int) -> Schedule:
    """Return a schedule with another warm-up."""
    return schedule.model_copy(update={"warmup_steps": warmup_steps})


SHIFTED = "section 3.1: the output embeddings are offset by one position"
READ = {  # what a decoder may read in place of the start token and the target
    "target-not-shifted": (
        "lets the decoder read what it is to write",
        "put the start token before the target that the decoder reads, and leave its last token out",
    ),
    "start-token-end": (
        "begins with the end token",
        "nothing is wrong with it, as long as decoding begins so too; else give the start token",
    ),
    "end-token-read": (
        "lets the decoder read the end token",
        "leave it out of what the decoder reads: nothing is to be written after it",
    ),
}
ASKED = {  # what may be asked in place of the target and the end token
    "end-token-missing": (
        "never asks for the end token, so that nothing learns to stop",
        "put the end token after each target in the labels",
    ),
    "start-token-asked": ("asks for the start token", "the labels are the target and the end token"),
}


def verify_batches(
    make: Callable[[list[list[int]], list[list[int]]], Sequence[Tensor]],
    *,
    start_id: int = 1,
    end_id: int = 2,
    pad_id: int = 0,
) -> Report:
    """Find where batches of pairs are laid out otherwise than a decoder needs them (section 3.1: shifted right).

    Args:
        make: Takes sources and targets, rows of ids without special tokens, and returns the source (B, S), what the
            decoder reads (B, T), and the labels (B, T).
        start_id: What the decoder reads first.
        end_id: What it is to write last.
        pad_id: Padding; in the labels -100 is as good.

    Raises:
        VerifyError: It does not return three tensors.

    """
    sources, targets = [[5, 6, 7], [8]], [[9, 10, 11, 12], [7, 6]]
    made = make([list(row) for row in sources], [list(row) for row in targets])
    if len(made) != 3:
        raise VerifyError(f"make must return source, decoder input and labels, three tensors, not {len(made)}")
    source, read, labels = (_rows(one, pad_id) for one in made)
    with_start, with_end = [[start_id, *row] for row in targets], [[*row, end_id] for row in targets]
    with_both = [[start_id, *row, end_id] for row in targets]
    causes = list[Cause]()
    if read != with_start:
        unshifted = read in (targets, with_end) or read == labels
        from_end = read == [[end_id, *row] for row in targets]
        name = "target-not-shifted" if unshifted else "start-token-end" if from_end else "end-token-read"
        says, fix = READ[name] if unshifted or from_end or read == with_both else (
            f"lets the decoder read {read[0]} for the target {targets[0]}", f"it should read {with_start[0]}"
        )  # fmt: skip
        causes.append(Cause(name if (says, fix) in READ.values() else "decoder-input", says, SHIFTED, fix))
    if labels != with_end:
        name = "end-token-missing" if labels in (targets, with_start) else "start-token-asked"
        says, fix = ASKED[name] if labels in (targets, with_start, with_both) else (
            f"asks for {labels[0]} where the target is {targets[0]}", f"it should ask for {with_end[0]}"
        )  # fmt: skip
        causes.append(Cause(name if (says, fix) in ASKED.values() else "labels", says, SHIFTED, fix))
    if source not in (sources, [[*row, end_id] for row in sources]):
        says = f"gives the encoder {source[0]} for the source {sources[0]}"
        causes.append(Cause("source", says, "section 3.1", "give the encoder the source as it is"))
    return Report(equal=not causes, causes=tuple(causes))


def _rows(ids: Tensor, pad_id: int) -> list[list[int]]:
    """Return rows without their padding on either side."""
    rows = []
    for row in ids.tolist():
        places = [i for i, one in enumerate(row) if one not in (pad_id, IGNORED)]
        rows.append(row[places[0] : places[-1] + 1] if places else [])
    return rows


def verify_dropout(model: nn.Module, *inputs: Any) -> Report:
    """Find dropout that is on in eval mode, or off in training.

    Args:
        model: Is copied, and stays as it is.
        inputs: What it is called with.

    """
    causes = []
    for training in (False, True):
        one = copy.deepcopy(model).train(training)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(0)
            results = [_first(one(*inputs)) for _ in range(2)]
        differ = not torch.equal(*results)
        if differ and not training:
            causes.append(
                Cause(
                    "dropout-in-eval",
                    "draws random numbers in eval mode",
                    "section 5.4: dropout is for training",
                    "F.dropout(x, p, training=self.training), or nn.Dropout",
                )
            )
        if not differ and training:
            causes.append(
                Cause(
                    "dropout-off-in-training",
                    "draws no random numbers in training",
                    "section 5.4: P_drop = 0.1",
                    "call model.train() after each evaluation; give the layers their rate",
                )
            )
    return Report(equal=not causes, causes=tuple(causes))


def _first(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else _first(value[0])


def _one(name: str, says: str, section: str, fix: str) -> Report:
    return Report(equal=False, causes=(Cause(name, says, section, fix),))


def _value(loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, labels: Tensor) -> float:
    value = loss(logits.clone(), labels.clone())
    if isinstance(value, Tensor) and value.numel() != 1:
        raise VerifyError(f"a loss must be one number, but yours has the shape {tuple(value.shape)}")
    return float(value)


def _all_close(found: Sequence[float], wanted: Sequence[float]) -> bool:
    return all(math.isclose(a, b, rel_tol=CLOSE) for a, b in zip(found, wanted, strict=True))
