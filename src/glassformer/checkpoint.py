"""Weights on disk: safetensors files that are written whole, checked when they are read, and averaged."""

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from glassformer.errors import CheckpointError
from glassformer.files import written_whole

CHECKSUM = "sha256"  # of the tensors and the notes, among the notes


def save_weights(model: nn.Module, path: Path, notes: Mapping[str, str]) -> None:
    """Write the parameters of a model, tied ones once, with notes about where they come from.

    Raises:
        CheckpointError: The file cannot be written; what stood there before is untouched.

    """
    save_tensors({name: p.detach() for name, p in model.named_parameters()}, path, notes)


def save_tensors(tensors: Mapping[str, Tensor], path: Path, notes: Mapping[str, str]) -> None:
    """Write tensors, with notes.

    Raises:
        CheckpointError: The file cannot be written; what stood there before is untouched.

    """
    own = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    with written_whole(path) as temporary:
        try:
            save_file(own, temporary, {**notes, CHECKSUM: _checksum(own, notes)})
        except SafetensorError as error:
            found = re.search(r"os error (\d+)", str(error))
            raise (OSError(int(found[1]), os.strerror(int(found[1]))) if found else OSError(str(error))) from error


def load_weights(model: nn.Module, path: Path) -> dict[str, str]:
    """Fill a model with the weights of a file, all or none of them; return the file's notes.

    Where all of them have one precision, such as bfloat16, the model has it too.

    Raises:
        CheckpointError: The file is missing or damaged, or its tensors are not those of the model.

    """
    tensors, notes = read_weights(path)
    parameters = dict(model.named_parameters())
    for name, parameter in parameters.items():
        if name not in tensors:
            raise CheckpointError(f"{path} has no tensor {name}: it belongs to another model")
        if tensors[name].shape != parameter.shape:
            raise CheckpointError(
                f"{name} is {tuple(tensors[name].shape)} in {path}, but {tuple(parameter.shape)} in the model "
                "that the configuration describes"
            )
        if not tensors[name].is_floating_point():
            raise CheckpointError(f"{name} is {tensors[name].dtype} in {path}; weights are floating-point numbers")
        if not tensors[name].isfinite().all():
            raise CheckpointError(f"{name} holds infinity or NaN in {path}: its training went wrong; use another copy")
    extra = sorted(tensors.keys() - parameters.keys())
    if extra:
        raise CheckpointError(f"{path} holds {extra[0]}, which the model does not have: it belongs to another model")
    dtypes = {tensor.dtype for tensor in tensors.values()}
    if len(dtypes) == 1:
        model.to(dtypes.pop())
    fill(model, tensors)
    return notes


def fill(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put tensors in the place of the parameters of the same names."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[name])


def read_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the notes of a file, after checking its checksum if it has one."""
    if not path.is_file():
        raise CheckpointError(f"there are no weights at {path}")
    try:
        with safe_open(path, framework="pt") as file:
            notes = dict(sorted((file.metadata() or {}).items()))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a mapping
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is damaged or cut short ({error}); use another copy or train again") from error
    if CHECKSUM in notes and notes[CHECKSUM] != _checksum(tensors, notes):
        raise CheckpointError(f"{path} is damaged: its tensors are not those that were written; use another copy")
    return tensors, notes


def average_weights(paths: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of several files of weights (section 6.1), summed in float64.

    Raises:
        CheckpointError: The files do not hold the same tensors.

    """
    sums: dict[str, Tensor] = {}
    dtypes: dict[str, torch.dtype] = {}
    for path in paths:
        tensors, _ = read_weights(path)
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        if sums and shapes != {name: tensor.shape for name, tensor in sums.items()}:
            raise CheckpointError(f"{path} and {paths[0]} hold different tensors: only equal models can be averaged")
        for name, tensor in tensors.items():
            sums[name] = sums[name] + tensor.double() if name in sums else tensor.double()
            dtypes[name] = tensor.dtype
    return {name: (total / len(paths)).to(dtypes[name]) for name, total in sums.items()}


def _checksum(tensors: Mapping[str, Tensor], notes: Mapping[str, str]) -> str:
    """Return a hash of all that a file says: names, types, shapes and numbers, and the other notes."""
    others = sorted((name, note) for name, note in notes.items() if name != CHECKSUM)
    digest = hashlib.sha256(repr(others).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
