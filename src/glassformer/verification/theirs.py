"""Another implementation, made ready to be asked: copied, in float64, in eval mode, with weights drawn anew."""

import copy
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import CellType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from glassformer.config.model import ModelConfig
from glassformer.errors import VerifyError
from glassformer.model.transformer import Embedding
from glassformer.verification.probes import Probe

Logits = Callable[..., Tensor]


class Theirs:
    """A copy of another implementation, and how it is called. The original is never touched.

    It takes ids, padding and all, and gives logits: `(source, target)` of an encoder–decoder, `(ids)` of a decoder or
    an encoder alone. Padding is the id `pad_id`; who has parameters named `source_is_real` and `target_is_real` is told
    there too which tokens are real, True = real.
    """

    def __init__(
        self, model: Any, config: ModelConfig, *, weights: Mapping[str, Any] | nn.Module | None, pad_id: int
    ) -> None:
        """Copy a model.

        Args:
            model: A `torch.nn.Module` that gives logits; an `nn.Transformer`, which is put between the embeddings and
                the output of the configuration; or a function, of ids alone, or of `weights` and ids.
            config: What it should be.
            weights: Of a module, to be loaded first; of a function, its first argument: tensors, or a module.
            pad_id: The id that is padding.

        Raises:
            VerifyError: It cannot be copied, or the weights do not fit.

        """
        self.config, self.pad_id = config, pad_id
        if isinstance(model, nn.Transformer):
            model = Sandwich(model, config)
        self.module: nn.Module | None = None
        self.weights: Any = None
        if isinstance(model, nn.Module):
            self.module = _copied(model)
            if weights is not None:
                _load(self.module, weights)
            self._function: Logits = self.module
        elif callable(model):
            self._function = model
            if isinstance(weights, nn.Module):
                self.weights = self.module = _copied(weights)
            else:
                self.weights = None if weights is None else _doubled(_copied(dict(weights)))
        else:
            raise VerifyError(f"a model is a torch.nn.Module or a function, not {type(model).__name__}")
        if self.module is not None:
            self.module.double().eval()
        named = dict(_flat(self.weights or {}) if self.module is None else self.module.named_parameters())
        constants = {name for name, tensor in named.items() if not tensor.requires_grad and _is_sinusoids(tensor)}
        self.parameters = {name: tensor.detach() for name, tensor in named.items() if name not in constants}
        kept = [*(named[name] for name in constants), *(self.module.buffers() if self.module is not None else ())]
        self.keeps_float32 = any(map(_is_rounded, kept))  # in constants, of which no float64 makes more
        signature = _signature(model.forward if isinstance(model, nn.Module) else model)
        self.precision, self._calls = torch.float64, 0  # of what it returned last; how often it was called
        self._told = {name for name in ("source_is_real", "target_is_real") if name in signature}
        self.time_first = False  # ids are (T, B), and so are the first axes of what it returns

    def values(self) -> dict[str, Tensor]:
        """Return a copy of its weights."""
        return {name: tensor.clone() for name, tensor in self.parameters.items()}

    def draw(self, seed: int) -> None:
        """Give every parameter new numbers, so that none is 1 or 0 and no two are equal.

        Matrices keep the size of their values near that of a fresh layer; what was 1 (a γ) stays near 1.
        """
        random = torch.Generator().manual_seed(seed)
        for tensor in self.parameters.values():
            noise = torch.randn(tensor.shape, generator=random, dtype=torch.float64)
            with torch.no_grad():
                if tensor.ndim >= 2:
                    tensor.copy_(1.2 * noise / (sum(tensor.shape[-2:]) / 2) ** 0.5)
                else:
                    is_gamma = tensor.numel() > 0 and float(tensor.double().mean()) > 0.5
                    tensor.copy_(0.3 * noise + is_gamma)

    def __call__(self, probe: Probe) -> Tensor:
        """Return the logits of a batch, in float64.

        Raises:
            VerifyError: The model fails, or what it returns is not logits of the right shape.

        """
        out = scores(self.call(probe))
        if not isinstance(out, Tensor) or out.ndim not in (2, 3):
            got = f"a tensor of shape {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
            raise VerifyError(f"your model must return logits, a tensor (B, T, vocabulary), but it returned {got}")
        self.precision = out.dtype
        size = probe.real.T.shape if self.time_first else probe.real.shape
        if out.ndim == 2 and len(out) == size.numel() and self.config.classifier is None:
            out = out.view(*size, -1)  # (B T, V)
        logits: Tensor = out.transpose(0, 1) if self.time_first else out
        return logits.detach().double()

    def call(self, probe: Probe) -> Any:
        """Return whatever it makes of a batch.

        Raises:
            VerifyError: The model fails.

        """
        ids = [side for side in (probe.source, probe.target) if side is not None]
        told = {name: getattr(probe, name) for name in self._told}
        if self.time_first:
            ids, told = [side.T for side in ids], {name: is_real.T for name, is_real in told.items()}
        first = [] if self.weights is None else [self.weights]
        self._calls += 1
        with torch.random.fork_rng(devices=[]), torch.no_grad(), warnings.catch_warnings(action="ignore"):
            torch.manual_seed(self._calls)  # so that what draws random numbers shows it
            try:
                return self._function(*first, *(side.clone() for side in ids), **told)
            except Exception as error:  # whatever a stranger's code does
                shapes = " and ".join(str(tuple(side.shape)) for side in ids)
                raise VerifyError(
                    f"your model cannot be called with {'weights and ' if first else ''}ids of shape {shapes}: "
                    f"{type(error).__name__}: {error}"
                ) from error

    def settle_axes(self, probe: Probe) -> None:
        """Find out whether it takes (T, B): then the order of a batch's rows matters to it, but not so transposed."""
        if not self._is_by_row(probe):
            self.time_first = True
            self.time_first = self._is_by_row(probe)

    def _is_by_row(self, probe: Probe) -> bool:
        try:
            rows, turned = self(probe), self(probe.flipped())
        except VerifyError:
            return False
        return rows.shape == turned.shape and torch.allclose(
            rows.flip(0), turned, rtol=0, atol=1e-4 * float(rows.abs().max())
        )


class Sandwich(nn.Module):
    """An `nn.Transformer` between the embeddings and the output of a configuration."""

    def __init__(self, transformer: nn.Transformer, config: ModelConfig) -> None:
        super().__init__()
        if config.kind != "encoder-decoder":
            raise VerifyError(f"nn.Transformer is an encoder–decoder, but the configuration says kind={config.kind!r}")
        if config.source_vocabulary is None or config.target_vocabulary is None:
            raise VerifyError(
                "nn.Transformer has no embeddings: set model.source_vocabulary and model.target_vocabulary"
            )
        if transformer.d_model != config.d_model:
            raise VerifyError(
                f"your nn.Transformer has d_model={transformer.d_model}, the configuration {config.d_model}"
            )
        self.transformer = _copied(transformer)
        self.source, self.target = (
            Embedding(config, config.source_vocabulary),
            Embedding(config, config.target_vocabulary),
        )
        self.output = nn.Linear(config.d_model, config.target_vocabulary, bias=config.output_bias)
        for module in (self.source, self.target, self.output):
            for parameter in module.parameters():
                nn.init.normal_(parameter)
        if config.tying in ("all", "source-target"):
            self.target.tokens.weight = self.source.tokens.weight
        if config.tying in ("all", "target-output"):
            self.output.weight = self.target.tokens.weight
        self.first = config.positions.first

    def forward(self, source: Tensor, target: Tensor, source_is_real: Tensor, target_is_real: Tensor) -> Tensor:
        """(B, S) and (B, T) ids -> (B, T, V)."""
        batch_first = self.transformer.batch_first
        x, y = (
            embedding(ids, (is_real.cumsum(1) - 1).clamp(min=0) + self.first)
            for embedding, ids, is_real in (
                (self.source, source, source_is_real),
                (self.target, target, target_is_real),
            )
        )
        n = target.shape[1]
        out = self.transformer(
            x if batch_first else x.transpose(0, 1),
            y if batch_first else y.transpose(0, 1),
            tgt_mask=torch.ones(n, n, dtype=torch.bool).triu(1),
            src_key_padding_mask=~source_is_real,
            tgt_key_padding_mask=~target_is_real,
            memory_key_padding_mask=~source_is_real,
        )
        logits: Tensor = self.output(out if batch_first else out.transpose(0, 1))
        return logits


def _is_sinusoids(table: Tensor) -> bool:
    """Whether a frozen table is a constant: sines and cosines of positions, whose squares are 1/2 in the mean."""
    return table.ndim == 2 and torch.allclose(table.square().mean(1), torch.tensor(0.5).to(table), atol=1e-3)


def _is_rounded(constant: Tensor) -> bool:
    """Whether numbers were computed in float32: they fit into it, but not into fewer bits, as 0 and 1 would."""
    x = constant.detach()
    return (
        x.is_floating_point()
        and torch.equal(x.float().double(), x.double())
        and not torch.equal(x.bfloat16().double(), x.double())
    )


def scores(out: Any) -> Any:
    """Return what is likely meant of several results: `logits`, or the first."""
    if isinstance(out, Mapping):
        return out.get("logits", out)
    if hasattr(out, "logits"):
        return out.logits
    return out[0] if isinstance(out, (list, tuple)) and out else out


def _copied(model: Any) -> Any:
    memo: dict[int, Any] = {}
    try:
        found = copy.deepcopy(model, memo)
    except Exception as error:
        raise VerifyError(f"your model cannot be copied ({error}); give a function that builds it") from error
    for module in found.modules() if isinstance(found, nn.Module) else ():
        vars(module).update(_rebound(vars(module), memo))
    return found


def _rebound(value: Any, memo: Mapping[int, Any]) -> Any:
    """Let functions that a copy holds use the copy's parts: deepcopy leaves a lambda with those of the original."""
    if isinstance(value, dict):
        return type(value)((key, _rebound(item, memo)) for key, item in value.items())
    if isinstance(value, list):
        return [_rebound(item, memo) for item in value]
    if not isinstance(value, FunctionType) or not (value.__closure__ or value.__defaults__):
        return value
    cells = tuple(CellType(memo.get(id(cell.cell_contents), cell.cell_contents)) for cell in value.__closure__ or ())
    defaults = tuple(memo.get(id(one), one) for one in value.__defaults__ or ()) or None
    found = FunctionType(value.__code__, value.__globals__, value.__name__, defaults, cells)
    found.__kwdefaults__ = value.__kwdefaults__
    return found


def _load(module: nn.Module, weights: Mapping[str, Any] | nn.Module) -> None:
    try:
        module.load_state_dict(weights.state_dict() if isinstance(weights, nn.Module) else dict(weights))
    except RuntimeError as error:
        raise VerifyError(f"the weights do not fit your model: {' '.join(str(error).split())}") from error


def _doubled(value: Any) -> Any:
    """Return nested dictionaries and lists of tensors with float64 in place of other floats."""
    if isinstance(value, Tensor):
        return value.detach().double() if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: _doubled(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_doubled, value))
    return value


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor) and value.is_floating_point():
        yield name, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    for key, item in items:
        yield from _flat(item, f"{name}.{key}" if name else str(key))


def _signature(function: Any) -> set[str]:
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # of C functions
        return set()
