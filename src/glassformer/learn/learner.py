"""The arithmetic of one step: gradients of its batches, scaled, clipped, taken by Adam; and the moving average."""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from glassformer.config.train import TrainConfig
from glassformer.data.batch import Batch
from glassformer.errors import TrainingError
from glassformer.learn.distributed import Processes, as_sharded_as, own_part, share_gradients, whole
from glassformer.learn.loss import Objective
from glassformer.model.transformer import Transformer

FIRST_SCALE = 2.0**16  # float16: gradients below 6e-8 vanish, so the loss is multiplied; halved when it overflows
GROW_AFTER = 2000  # good steps, after which the scale is doubled
MOST_SKIPPED = 30  # steps in a row without finite gradients: then it will not get better by itself


@dataclass
class Counters:
    """The numbers that the arithmetic carries from step to step."""

    updates: int = 0  # steps that changed the weights
    skipped: int = 0  # steps that did not, as a gradient was not finite
    skipped_in_a_row: int = 0
    scale: float = 1.0  # of the loss, float16 only
    good_in_a_row: int = 0  # steps since the scale was changed


@dataclass(frozen=True)
class Update:
    """What one step did."""

    loss: float  # sum over its labels, those of all processes
    n_labels: float  # or the sum of their weights
    gradient_norm: float  # of all gradients together, before they are clipped
    skipped: bool


class Learner:
    """A model and what changes it.

    Of several processes each has a learner of its own, and calls the same methods at the same time.
    """

    def __init__(
        self, model: Transformer, settings: TrainConfig, objective: Objective, processes: Processes | None = None
    ) -> None:
        self.model, self.settings, self.objective = model, settings, objective
        self.counters = Counters(scale=FIRST_SCALE if settings.precision == "float16" else 1.0)
        self._processes = processes or Processes()
        self._forward = self._processes.wrapped(model, shard=settings.shard)
        self._parameters = dict(model.named_parameters())
        adam, every = settings.optimizer, list(self._parameters.values())
        groups = [
            {"params": [p for p in every if p.ndim >= 2], "weight_decay": adam.weight_decay},
            {"params": [p for p in every if p.ndim < 2], "weight_decay": 0.0},
        ]
        self._optimizer = torch.optim.AdamW(groups, lr=0.0, betas=(adam.beta_1, adam.beta_2), eps=adam.eps, fused=True)
        self._average = {name: p.detach().clone() for name, p in self._parameters.items()} if settings.ema else None

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(iter(self._parameters.values())).device

    def step(self, batches: Sequence[Batch], rate: float) -> Update:
        """Change the weights once, by the gradient of the mean loss over all labels of the batches.

        Args:
            batches: Of several processes: those of this one, as many as the others have.
            rate: The learning rate.

        Raises:
            TrainingError: For many steps no gradient was finite.

        """
        self._optimizer.zero_grad()
        loss, n_labels = self.gradients(batches)
        norm = self._unscaled_norm()
        update = Update(loss, n_labels, norm, skipped=not math.isfinite(norm + loss))
        self._count(update)
        if update.skipped:
            return update
        clip = self.settings.optimizer.clip
        if clip is not None and norm > clip:
            torch._foreach_mul_(self._own_gradients(), clip / norm)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
        if self._average is not None:
            # its first steps weigh as in a plain mean, or the fresh weights would stay in it for long
            decay = min(self.settings.ema or 0.0, self.counters.updates / (self.counters.updates + 9))
            average = [own_part(value) for value in self._average.values()]
            torch._foreach_lerp_(average, self._own_weights(), 1 - decay)
        return update

    def gradients(self, batches: Sequence[Batch]) -> tuple[float, float]:
        """Add up the gradients of some batches, and of those of the other processes, as if they were one batch.

        Returns:
            The summed loss and the number of labels, over all processes.

        """
        moved, processes = [batch.to(self.device) for batch in batches], self._processes
        (n_labels,) = processes.sum(sum(self.objective.count(batch.labels) for batch in moved))
        # the gradients of the processes are averaged, but what is wanted is the mean over all labels
        factor = self.counters.scale * processes.count / max(n_labels, 1e-9)
        losses = []
        for i, batch in enumerate(moved):
            self._draw_anew(place=processes.rank + i * processes.count)
            share_gradients(self._forward, now=i == len(moved) - 1)
            loss = self.loss(batch)
            torch.autograd.backward(loss * factor)
            losses.append(loss.detach())
        (loss_of_all,) = processes.sum(float(sum(losses)))
        return loss_of_all, n_labels

    def try_step(self, batch: Batch) -> None:
        """Take a step that changes nothing, before the first one: is there memory for it, and for Adam's moments?"""
        self.gradients([batch])
        for gradient in self._own_gradients():
            gradient.zero_()  # so that the weights stay, whatever it was
        self._optimizer.step()
        self._optimizer.state.clear()
        self._optimizer.zero_grad()

    def loss(self, batch: Batch) -> Tensor:
        """Return the summed loss of a batch, with the precision and the smoothing of the settings."""
        precision = self.settings.precision
        with torch.autocast(
            self.device.type,
            dtype=torch.bfloat16 if precision == "bfloat16" else torch.float16,
            enabled=precision != "float32",
        ):
            logits = self._forward(batch.source, batch.target, source_is_real=batch.source_is_real)
        return self.objective(logits, batch.labels)

    @contextlib.contextmanager
    def measured(self) -> Iterator[Transformer]:
        """Give the model as it is measured and kept: with its averaged weights, if it has them, and without dropout."""
        if self._average is None and not isinstance(self.model, FSDPModule):
            self.model.eval()
            try:
                yield self.model
            finally:
                self.model.train()
            return
        model = Transformer(self.model.config).to(self.device)  # whole, and as `encode` and `decode` need it
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(whole((self._average or self._parameters)[name]))
        yield model.eval()

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors that the next step depends on, however many processes there are; in the first alone."""
        found = {f"weights/{name}": p.detach() for name, p in self._parameters.items()}
        for name, p in self._parameters.items():
            for key, value in self._optimizer.state.get(p, {}).items():
                found[f"adam/{key}/{name}"] = value
        for name, value in (self._average or {}).items():
            found[f"average/{name}"] = value
        kept = {}
        for name, value in found.items():
            all_of_it = whole(value)
            if self._processes.is_first:
                kept[name] = all_of_it
        return kept

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `tensors` returned, in every process."""
        with torch.no_grad():
            for name, p in self._parameters.items():
                p.copy_(as_sharded_as(tensors[f"weights/{name}"].to(self.device), p))
                own = {key.split("/")[1]: value for key, value in tensors.items() if _is_adams(key, name)}
                if own:  # none before the first step
                    state = {key: as_sharded_as(value.to(self.device), p) for key, value in own.items()}
                    self._optimizer.state[p] = state
            for name, value in (self._average or {}).items():
                value.copy_(as_sharded_as(tensors[f"average/{name}"].to(self.device), value))

    def _draw_anew(self, *, place: int) -> None:
        """Begin the random numbers of a batch, which depend on the step and its place in it, and on nothing before.

        So nothing of them is kept to go on from, and they are the same on one process or many.
        """
        step = self.counters.updates + self.counters.skipped
        seed = np.random.SeedSequence([self.settings.seed, step, place]).generate_state(1, np.uint64)
        torch.manual_seed(int(seed[0]))

    def _own_weights(self) -> list[Tensor]:
        return [own_part(p.detach()) for p in self._parameters.values()]

    def _own_gradients(self) -> list[Tensor]:
        return [own_part(p.grad) for p in self._parameters.values() if p.grad is not None]

    def _unscaled_norm(self) -> float:
        """Take the scale of the loss out of the gradients, before anything looks at them; return their norm."""
        if self.counters.scale != 1.0:
            torch._foreach_mul_(self._own_gradients(), 1.0 / self.counters.scale)
        gradients = [p.grad for p in self._parameters.values() if p.grad is not None]
        return float(whole(torch.nn.utils.get_total_norm(gradients)))

    def _count(self, update: Update) -> None:
        own = self.counters
        if not update.skipped:
            own.updates, own.skipped_in_a_row, own.good_in_a_row = own.updates + 1, 0, own.good_in_a_row + 1
            if self.settings.precision == "float16" and own.good_in_a_row == GROW_AFTER:
                own.scale, own.good_in_a_row = own.scale * 2, 0
            return
        own.skipped, own.skipped_in_a_row, own.good_in_a_row = own.skipped + 1, own.skipped_in_a_row + 1, 0
        own.scale = max(1.0, own.scale / 2)
        if own.skipped_in_a_row == MOST_SKIPPED:
            raise TrainingError(
                f"the gradients of the last {MOST_SKIPPED} steps were infinite or no numbers (loss {update.loss}): "
                "lower the learning rate, warm up for longer, or set train.optimizer.clip=1"
            )


def _is_adams(key: str, name: str) -> bool:
    return key.startswith("adam/") and key.split("/", 2)[2] == name
