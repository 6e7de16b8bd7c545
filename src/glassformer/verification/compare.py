"""`verify`: theirs against a configuration or a run."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.config import Config, ModelConfig, load_config
from glassformer.config.run import model_of
from glassformer.errors import VerifyError
from glassformer.model.transformer import Transformer
from glassformer.run import Run, load
from glassformer.verification.align import Assignment
from glassformer.verification.changes import by_column
from glassformer.verification.mapping import mapped, places_of
from glassformer.verification.masks import masked_by, shifted
from glassformer.verification.naming import misplaced
from glassformer.verification.ours import Machine, tapped
from glassformer.verification.prints import Prints, print_of
from glassformer.verification.probes import Probe, probes
from glassformer.verification.record import Operation, Parameters, Record, record
from glassformer.verification.report import Cause, FirstDifference, Mapped, Report
from glassformer.verification.search import Found, Search, difference, part_of
from glassformer.verification.theirs import Theirs, scores
from glassformer.verification.units import units

EXACT, ROUNDED = 1e-9, 1e-6  # of the largest logit; the second where they keep constants in float32
ATTENTION_BIASES, FFN_BIASES = [f"w_{leaf}.bias" for leaf in "qkvo"], ["w_1.bias", "w_2.bias"]
BIASES = "equation 2 has biases in the feed-forward network; PyTorch has them in attention too"
NEXT = 24  # operations in which the place of a difference is looked for
COARSE = {torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float16: 3e-3}  # what cannot be made to compute in float64


def verify(
    theirs: Any,
    against: str | Path | Config | ModelConfig | Run,
    *,
    weights: Mapping[str, Any] | nn.Module | None = None,
    mapping: Mapping[str, Any] | None = None,
    pad_id: int = 0,
    overrides: tuple[str, ...] = (),
) -> Report:
    """Find where another implementation differs from a configuration, and why.

    Theirs is copied, and the copy compared in float64 and eval mode, with weights drawn at random, so that a norm's γ
    of 1 or a bias of 0 hides nothing. The original stays as it is.

    Args:
        theirs: A `torch.nn.Module` that takes ids and gives logits: `(source, target)` of an encoder–decoder, else
            `(ids)`; an `nn.Transformer`; or a function, of ids alone, or of `weights` and ids. Padding has the id
            `pad_id`; parameters named `source_is_real` and `target_is_real` are told which tokens are real.
            Log-probabilities or probabilities do in place of logits.
        against: What it should be: a preset, a file, a run, or a configuration.
        weights: Of theirs: a module loads them first; a function takes them as its first argument, tensors by name or
            a module, such as one that wants masks: `verify(lambda m, x, y: m(x, y, masks(x, y)), …, weights=model)`.
        mapping: Which of their parameters are ours, where the proposal is wrong: see `verification.mapping`.
        pad_id: The id that is padding.
        overrides: Fields to change in a preset or file, such as "model.norm.placement=pre".

    Raises:
        VerifyError: Theirs cannot be called or copied, or weights do not fit.
        ConfigError: There is no such configuration.

    """
    run, config = _against(against, overrides)
    with torch.random.fork_rng(devices=[]):
        copy = Theirs(theirs, config, weights=weights, pad_id=pad_id)
        return Comparison(copy, config, run, mapping or {}).report()


def _against(against: Any, overrides: tuple[str, ...]) -> tuple[Run | None, ModelConfig]:
    if isinstance(against, (str, Path)) and Path(against).is_dir():
        against = load(Path(against))
    if isinstance(against, (str, Path)):
        against = load_config(str(against), overrides)
    if isinstance(against, Run):
        return against, model_of(against.config)
    return None, model_of(against)


class Comparison:
    """One comparison: what theirs computes on some batches, and the search for what makes ours do the same."""

    def __init__(self, theirs: Theirs, config: ModelConfig, run: Run | None, mapping: Mapping[str, Any]) -> None:
        self.theirs, self.config, self.run, self.given = theirs, config, run, theirs.values()
        theirs.draw(seed=3)
        self.probes = probes(config, pad_id=theirs.pad_id)
        theirs.settle_axes(self.probes[0])
        self.parameters = Parameters(theirs.parameters)
        self.logits = [self._called(probe) for probe in self.probes]
        self.is_normal = False  # whether theirs are log-probabilities
        self._normalise()
        self.record = self._recorded(self.probes[0])
        self.units = units(self._recorded(self.probes[1]))  # the longest, which reads the most rows of position tables
        own = None if theirs.parameters or run is None else dict(run.model.named_parameters())
        if not theirs.parameters and own is None:
            raise VerifyError(
                "your model shows no parameters: give its weights (weights=…), or compare it with a run that has them"
            )
        self.machine = Machine(config, self.units, self.parameters, self.probes[1], own)
        ours = dict(Transformer(config).named_parameters())
        self.machine.fixed = places_of(mapping, ours, theirs.parameters, self.parameters)
        in_float32 = theirs.keeps_float32 or any(one.values.dtype == torch.float32 for one in self.record.operations)
        self.tolerance = COARSE.get(theirs.precision, ROUNDED if in_float32 else EXACT)
        self.prints = Prints([print_of(one.values) for one in self.record.operations], 10 * self.tolerance)

    def _called(self, probe: Probe) -> Tensor:
        logits = self.theirs(probe)
        if not torch.equal(logits.nan_to_num(0.0), self.theirs(probe).nan_to_num(0.0)):
            raise VerifyError(
                "your model gives another result each time: something draws random numbers in eval mode (dropout that "
                "does not ask self.training, perhaps); take it out first"
            )
        vocabulary = self.config.target_vocabulary
        if vocabulary is not None and logits.shape != (*probe.real.shape, vocabulary):
            hint = ""
            if logits.shape == (*probe.real.shape, self.config.d_model):
                hint = ": that is d_model; is the output layer missing?"
            elif logits.shape in ((len(logits), vocabulary), (len(logits), 1, vocabulary)):
                hint = ": of the last position alone; call it so that it gives all"
            raise VerifyError(
                f"your logits must have the shape (B, T, V) = {(*probe.real.shape, vocabulary)}, but they have "
                f"{tuple(logits.shape)}{hint}"
            )
        return logits

    def _normalise(self) -> None:
        """Take log-probabilities and probabilities as what they are."""
        first = self.logits[0]
        if first.ndim == 3 and _sums_to_one(first) and float(first.min()) >= 0:
            self.logits, self.is_normal = [logits.log() for logits in self.logits], True
        elif first.ndim == 3 and _sums_to_one(first.exp()):
            self.is_normal = True

    def _recorded(self, probe: Probe) -> Record:
        with _whole_layers():
            return record(lambda: scores(self.theirs.call(probe)), self.parameters, self.theirs.module)

    def report(self) -> Report:
        """Search, and put together what was found."""
        search = Search(
            self.machine, self.probes[:2], self.logits[:2], self.prints, self.tolerance, is_normal=self.is_normal
        )
        base = search.base()
        equal, best = search.run(base)
        alignment = self.machine.alignment(best.variant)
        assert alignment is not None
        assignment = self.machine.assignment(best.variant, alignment)
        model = self.machine.model(best.variant)
        assert model is not None
        unused = self._unused()
        explained = search.equals(best.differences)
        causes = list(self._searched(equal, best))
        if explained:  # else the parts may have been taken for others
            causes += self._missing(model, assignment)
            names = misplaced(assignment.places, self.parameters, unused)
            if any(cause.name == "activation-missing" for cause in causes):  # then both branches do the same work
                names = [one for one in names if one.name != "gate-and-up-swapped"]
            causes += [Cause(one.name, one.says, "", one.fix) for one in names]
            causes += self._ported(assignment)
        is_equal = explained and not causes
        is_seen = not is_equal and not search.equals(base.differences)  # names alone tell the rest
        first = self._first(base if explained else best) if is_seen else None
        return Report(
            equal=is_equal, causes=tuple(causes), explained=explained, first=first,
            differences=self._named(search, base), left=self._named(search, best),
            mapping=tuple(self._mapping(model, assignment)), unused=tuple(unused),
            notes=tuple(self._notes(best, causes)),
        )  # fmt: skip

    def _named(self, search: Search, found: Found) -> dict[str, float]:
        words = {"whole": "nothing padded", "right": "padded on the right"}
        model = self.machine.model(found.variant)
        assert model is not None
        names = [words[probe.name] for probe in self.probes[:2]]
        return dict(zip(names, search.differences(model), strict=True))

    def _searched(self, equal: list[Found], best: Found) -> Iterator[Cause]:
        """Yield the causes of the best explanation; where another single one has the same effect, it is named."""
        others = [found.variant.causes for found in equal if len(found.variant.causes) == len(best.variant.causes)]
        for i, deviation in enumerate(best.variant.causes):
            if deviation.name == "cross-reads-first-layer" and not self._unused():  # there is no other layer
                yield Cause("layers-encoder-1", "has 1 encoder layer", "", "give both as many (n_encoder_layers)")
                continue
            rest = [one for k, one in enumerate(best.variant.causes) if k != i]
            same = {
                one.name
                for causes in others
                for one in causes
                if one not in best.variant.causes and all(other in causes for other in rest)
            }
            settings = best.variant.ways[i][1].settings
            yield Cause(deviation.name, deviation.says, deviation.section, deviation.fix, tuple(sorted(same)), settings)

    def _missing(self, model: Transformer, assignment: Assignment) -> Iterator[Cause]:
        """Yield what ours has and theirs has not, though the results agree without it."""
        if not self.theirs.parameters:
            return
        found: dict[str, list[str]] = {}
        for name in dict(model.named_parameters()):
            if name not in assignment.places:
                leaf = ".".join(name.split(".")[-2:])
                found.setdefault(leaf, []).append(name)
        for choice, leaves in (("none", ATTENTION_BIASES + FFN_BIASES), ("ffn", ATTENTION_BIASES)):
            if set(leaves) <= set(found):
                found = {leaf: names for leaf, names in found.items() if leaf not in (*leaves, "w_gate.bias")}
                where = "attention" if choice == "ffn" else "its layers"
                settings = (f"model.biases={choice}",)
                yield Cause(f"biases-{choice}", f"has no biases in {where}", BIASES, "add them", settings=settings)
        for leaf, names in found.items():
            if leaf == "w_o.weight":
                yield Cause(
                    "no-w-o",
                    "has no output projection W_O after joining its heads",
                    "section 3.2.2: MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O",
                    "add a linear layer d_model → d_model",
                )
            elif leaf == "norm.bias":
                yield Cause(
                    "no-norm-bias",
                    f"has no β in its norms ({len(names)} times)",
                    "section 3.1 and Ba et al. 2016: γ and β of the norm are learned",
                    "nn.LayerNorm(d_model, bias=True)",
                )
            elif leaf.endswith(".bias") and not (leaf == "w_o.bias" and "w_o.weight" in found):
                yield Cause(
                    f"no-bias-{leaf.split('.')[0].replace('_', '-')}",
                    f"has no bias where ours has {leaf} ({len(names)} times)",
                    BIASES,
                    "add it (bias=True), or set model.biases",
                )

    def _ported(self, assignment: Assignment) -> Iterator[Cause]:
        """Yield weights that are not the run's, where most are: they were carried over, some of them wrongly."""
        if self.run is None or not self.theirs.parameters:
            return
        given = torch.cat([self.given[name].double().flatten() for name in self.parameters.names])
        own = {name: parameter.detach().double() for name, parameter in self.run.model.named_parameters()}
        here = {name: given[torch.from_numpy(places)] for name, places in assignment.places.items() if name in own}
        wrong = [name for name, value in here.items() if not _close(value, own[name])]
        if wrong and len(wrong) <= len(here) / 2:
            shown = [f"{name} holds {_what(here[name], name, own)}" for name in wrong[:3]]
            more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
            yield Cause(
                "weights-differ",
                f"has other weights than the run in some places: {'; '.join(shown)}{more}",
                "",
                "carry these over anew; --show-mapping tells which of yours they are",
            )

    def _unused(self) -> list[str]:
        used = np.zeros(int(self.parameters.starts[-1]), dtype=bool)
        for use in self.record.uses:
            if use.operation.index in self.record.live:
                used[use.places.ravel()] = True
        return [
            name
            for name, start, end in zip(
                self.parameters.names, self.parameters.starts, self.parameters.starts[1:], strict=False
            )
            if end > start and not used[start:end].any()
        ]

    def _mapping(self, model: Transformer, assignment: Assignment) -> Iterator[Mapped]:
        for name in dict(model.named_parameters()):
            yield mapped(name, assignment.places.get(name), self.theirs.parameters, self.parameters)

    def _first(self, found: Found) -> FirstDifference | None:
        """Say where a variant first differs."""
        if found.reached.part is None or found.reached.tensor is None:
            part = "output" if found.differences[0] > self.tolerance else "padding"
            return FirstDifference(part, "logits", self._where(self.record.operations[-1]), None)
        model = self.machine.model(found.variant)
        assert model is not None
        tensors = tapped(model, self.probes[0])
        part, tensor, names = found.reached.part, found.reached.tensor, list(tensors)
        last, stem = names.index(tensor), tensor.rpartition(".")[0]
        lost = {x for x in "kv" if f"{stem}.{x}" in tensors and not len(self.prints.find(tensors[f"{stem}.{x}"]))}
        if tensor.endswith(("cross_attention.k", "cross_attention.heads")) and lost == {"k", "v"}:
            # they read another memory; if one vector is added to all its rows, the weights stay
            part = tensor = "memory"
            last = names.index(tensor) + 1
        elif tensor.endswith("self_attention.q") and lost == {"k", "v"}:
            tensor = names[last - 1]  # what the layer reads is no longer what came before it
            part = part_of(tensor)
        ours = tensors[tensor]
        earlier = [self.prints.find(tensors[name]) for name in names[:last]]
        start = int(max((hits[0] for hits in earlier if len(hits)), default=-1)) + 1
        known = {int(hit) for hits in earlier for hit in hits}
        nexts = [one for one in self.record.operations[start:] if one.index not in known][:NEXT]
        alike = [one for one in nexts if one.values.numel() == ours.numel()]
        where = self._where(alike[0]) if alike else ""
        apart = [largest for one in alike if (largest := _apart(ours, one.values.double())) is not None]
        return FirstDifference(part, tensor, where, min(apart, default=None))

    @staticmethod
    def _where(operation: Operation) -> str:
        return ", ".join(part for part in (operation.module, operation.line) if part)

    def _notes(self, found: Found, causes: Sequence[Cause]) -> Iterator[str]:
        if self.theirs.time_first:
            yield "yours takes its ids as (T, B), and was called so (of nn.Transformer: batch_first=True changes it)"
        if self.is_normal:
            yield "yours returns log-probabilities or probabilities: they were compared with ours, as log-probabilities"
        unused = self._unused()
        if unused and not any(cause.name == "one-layer-for-all" for cause in causes):
            more = f", and {len(unused) - 3} more" if len(unused) > 3 else ""
            yield f"nothing depends on your {', '.join(unused[:3])}{more}"
        yield from self._padded_on_the_left(found)
        yield from self._fast_path()

    def _padded_on_the_left(self, found: Found) -> Iterator[str]:
        """Say what becomes of a batch that is padded on the left, which most models are not made for."""
        probe, theirs, model = self.probes[2], self.logits[2], self.machine.model(found.variant)
        assert model is not None

        def is_equal() -> bool:
            ours = probe.ours(model)
            return difference(ours.log_softmax(-1) if self.is_normal else ours, theirs, probe) <= self.tolerance

        if is_equal():
            return
        if bool(theirs[probe.real].isnan().any()):
            yield "padded on the left, it gives NaN: a row that may see nothing has no softmax"
            return
        by_column(model)
        reason = "its positions count columns, padding too, and ours real tokens"
        if not is_equal():
            masked_by("decoder", lambda _, n_queries, n_keys: shifted(0)(None, n_queries, n_keys))(model)
            reason = f"{reason}; and its decoder sees the padding" if is_equal() else ""
        yield f"padded on the left, it gives other results than ours{': ' if reason else ''}{reason}"

    def _fast_path(self) -> Iterator[str]:
        """Tell of the fast path of PyTorch's encoder, which makes rows of padding 0."""
        encoders = [
            (name, part)
            for name, part in (self.theirs.module.named_modules() if self.theirs.module is not None else ())
            if isinstance(part, nn.TransformerEncoder)
        ]
        for name, encoder in encoders:
            outputs: list[Tensor] = []
            handle = encoder.register_forward_hook(lambda _, __, out, outputs=outputs: outputs.append(out.detach()))
            try:
                self.theirs(self.probes[1])
                with _whole_layers():
                    self.theirs(self.probes[1])
            finally:
                handle.remove()
            if len(outputs) == 2 and not _alike(*outputs):
                yield (
                    f"in eval mode PyTorch's fast path makes the output of {name or 'the encoder'} 0 at padding: "
                    "compare real places only, or set its use_nested_tensor to False"
                )


@contextlib.contextmanager
def _whole_layers() -> Iterator[None]:
    """Keep PyTorch from doing a whole encoder layer in one operation, in which nothing can be seen."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _sums_to_one(values: Tensor) -> bool:
    sums = values.sum(-1)
    return bool(torch.allclose(sums, torch.ones_like(sums), atol=1e-4))


def _close(one: Tensor, other: Tensor) -> bool:
    """Whether weights are the same, but for what a half-precision file leaves of them."""
    return one.shape == other.shape and float((one - other).abs().max()) <= 1e-2 * float(other.abs().max())


def _what(value: Tensor, name: str, own: Mapping[str, Tensor]) -> str:
    """Say what stands in a weight's place."""
    if value.ndim == 2 and _close(value.T, own[name]):
        return "ours transposed"
    other = next((one for one, weight in own.items() if _close(value, weight)), None)
    return f"our {other}" if other else "other numbers"


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, atol=1e-6)


def _apart(ours: Tensor, theirs: Tensor) -> float | None:
    """Return the largest difference of two tensors, perhaps of (B, T, D) and (T, B, D); None: of other shapes."""
    layouts = (theirs, theirs.transpose(0, 1)) if theirs.ndim > 1 else (theirs,)
    return min(
        (float((one - ours).abs().nan_to_num(0.0, posinf=0.0).max()) for one in layouts if one.shape == ours.shape),
        default=None,
    )
