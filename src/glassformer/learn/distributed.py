"""Several processes that train one model, as `torchrun` starts them: what each tells the others, and who writes.

The batches of a step are dealt out among the processes, so that what is learnt does not depend on how many there are.
"""

import contextlib
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from glassformer.errors import ConfigError, TrainingError
from glassformer.model.transformer import Transformer

T = TypeVar("T")
WAIT = timedelta(hours=2)  # for the others: the first one may be learning a vocabulary from a large corpus


class Processes:
    """The processes of one training, seen from one of them; by itself, one that is alone."""

    def __init__(self, rank: int = 0, count: int = 1, local_rank: int = 0) -> None:
        self.rank, self.count, self._local_rank = rank, count, local_rank

    @property
    def is_first(self) -> bool:
        """Whether this is the one that writes and speaks."""
        return self.rank == 0

    def sum(self, *values: float) -> list[float]:
        """Return the sum of each value over all processes, the same in each."""
        if self.count == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total)
        return total.tolist()

    def gather(self, value: T) -> list[T]:
        """Return the value of every process, in their order."""
        if self.count == 1:
            return [value]
        values: list[T] = [value] * self.count
        dist.all_gather_object(values, value)
        return values

    def wait(self) -> None:
        """Go on when all have come here."""
        self.sum(0.0)

    @contextlib.contextmanager
    def first_of_machine(self) -> Iterator[None]:
        """Let one process of each machine go first, and the others when it is done: they find what it has made."""
        if self._local_rank != 0:
            self.wait()
        yield
        if self._local_rank == 0:
            self.wait()

    def device(self, name: str) -> str:
        """Return the device of this process: of a machine with several GPUs, its own one."""
        return f"cuda:{self._local_rank}" if name == "cuda" and self.count > 1 else name

    def wrapped(self, model: Transformer, *, shard: bool) -> nn.Module:
        """Return what goes forward in training: its gradients are means over the processes.

        Args:
            model: With `shard` it is changed in place: each of its parameters becomes a `DTensor`.
            shard: Whether each process keeps a part of every parameter (FSDP2), or all of them (DDP).

        """
        if self.count == 1:
            return model
        if not shard:
            device = model.device
            own = None if device.index is None else [device.index]
            return DistributedDataParallel(model, device_ids=own, gradient_as_bucket_view=True)
        for stack in (model.encoder, model.decoder):
            for layer in () if stack is None else stack.layers:
                fully_shard(layer)
        fully_shard(model)
        return model


@contextlib.contextmanager
def processes(device: str) -> Iterator[Processes]:
    """Join the others that `torchrun` has started, as the environment says; without it, be alone.

    Raises:
        ConfigError: The environment is not torchrun's.
        TrainingError: Another process has ended before this one.

    """
    defaults = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    try:
        rank, count, local_rank = (int(os.environ.get(name, default)) for name, default in defaults.items())
    except ValueError as error:
        raise ConfigError(f"{', '.join(defaults)} in the environment are not as torchrun sets them: {error}") from error
    if count == 1:
        yield Processes()
        return
    if device == "cuda":
        torch.cuda.set_device(local_rank)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device == "cuda" else "gloo", timeout=WAIT)
    try:
        yield Processes(rank, count, local_rank)
        dist.destroy_process_group()  # not after an error: it would wait for the others
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "Connection" not in str(error):  # gloo's errors have no own class
            raise
        raise TrainingError(
            f"process {rank} of {count} (counted from 0) ends, as another one has ended: what went wrong is told there"
        ) from error


def share_gradients(module: nn.Module, *, now: bool) -> None:
    """Say whether the next forward and backward shares its gradients, or only adds them up for a later one."""
    if isinstance(module, DistributedDataParallel):
        module.require_backward_grad_sync = now
    elif isinstance(module, FSDPModule):
        module.set_requires_gradient_sync(now)


def own_part(tensor: Tensor) -> Tensor:
    """Return the part of a tensor that this process keeps, as a view: all of it, where it is not sharded."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """Return all of a tensor. All processes must ask for it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def as_sharded_as(tensor: Tensor, model: Tensor) -> Tensor:
    """Return a whole tensor in the parts of another one; the same where that has none."""
    if isinstance(model, DTensor) and tensor.shape == model.shape:
        return distribute_tensor(tensor, model.device_mesh, model.placements, src_data_rank=None)
    return tensor
