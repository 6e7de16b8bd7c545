"""Our machine with their weights, and changed in known ways until it computes what theirs does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from glassformer.config.model import ModelConfig
from glassformer.model.tap import Tap
from glassformer.model.transformer import Transformer
from glassformer.verification.align import Alignment, Assignment, Orders, align, assign, named
from glassformer.verification.deviation import Deviation, Way
from glassformer.verification.probes import Probe
from glassformer.verification.record import Parameters, Places, record
from glassformer.verification.units import Unit, units

USUAL = Orders()
TORN = 2.0  # off what a fit is worth, for one matrix of ours that is several of theirs


@dataclass(frozen=True)
class Variant:
    """Our machine, made to differ in some ways."""

    ways: tuple[tuple[Deviation, Way], ...] = ()
    orders: Orders = USUAL

    @property
    def causes(self) -> tuple[Deviation, ...]:
        """The deviations that it has."""
        return tuple(deviation for deviation, _ in self.ways)

    def and_(self, deviation: Deviation, way: Way) -> "Variant":
        """Return this variant with one more."""
        return Variant((*self.ways, (deviation, way)), self.orders)


@dataclass(frozen=True)
class Fit:
    """How well parts fit together."""

    gain: float  # the more, the better
    is_whole: bool  # nothing is missing, left over or in two places


class Machine:
    """Builds variants of a configuration with the weights of theirs."""

    def __init__(
        self,
        config: ModelConfig,
        theirs: Sequence[Unit],
        parameters: Parameters,
        probe: Probe,
        own: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Take what is known of theirs.

        Args:
            config: What theirs should be.
            theirs: Its parts that hold weights, in order.
            parameters: Its numbers.
            probe: The batch that their parts were recorded on.
            own: The weights of every variant, where theirs shows none.

        """
        self._own = own
        self.config, self._theirs, self._parameters, self._probe = config, theirs, parameters, probe
        self._alignments: dict[object, Alignment | None] = {}
        self._models: dict[object, Transformer | None] = {}
        self.fixed: Mapping[str, Places] = {}  # what a mapping file says

    def model(self, variant: Variant) -> Transformer | None:
        """Return a variant with their weights, in float64 and eval mode; None where its ways do not go together."""
        if self._config(variant) is None:
            return None
        made = Variant(tuple(pair for pair in variant.ways if pair[1].remakes), variant.orders)
        key = (tuple(way for _, way in made.ways), made.orders)
        if key not in self._models:
            self._models = {key: self._filled(made)}  # of many variants that only hooks tell apart
        model = self._models[key]
        if model is not None:
            for module in model.modules():
                module._forward_hooks.clear()
                module._forward_pre_hooks.clear()
            for _, way in variant.ways:
                if way.change is not None and not way.makes_parameters:
                    way.change(model)
        return model

    def _filled(self, variant: Variant) -> Transformer | None:
        model = self._made(variant)
        alignment = None if model is None else self.alignment(variant)
        if model is not None and alignment is not None:
            self._fill(model, self.assignment(variant, alignment))
            for name, value in (self._own or {}).items():
                if name in (mine := dict(model.named_parameters())):
                    mine[name].data.copy_(value)
            return model
        return None

    def alignment(self, variant: Variant) -> Alignment | None:
        """Return which part of theirs is which of the variant's."""
        key = tuple(way for _, way in variant.ways if way.makes_parameters)
        if key not in self._alignments:
            self._alignments[key] = self._aligned(
                Variant(tuple(pair for pair in variant.ways if pair[1].makes_parameters))
            )
        return self._alignments[key]

    def assignment(self, variant: Variant, alignment: Alignment) -> Assignment:
        """Return where the numbers of each parameter of the variant stand in theirs."""
        config = self._config(variant)
        assert config is not None
        found = assign(alignment, variant.orders, config.d_k)
        found.places.update(self.fixed)
        return found

    def fit(self, variant: Variant) -> Fit | None:
        """Return how well a variant's parts fit theirs; None where it cannot be made."""
        alignment = None if self._config(variant) is None else self.alignment(variant)
        if alignment is None:
            return None
        n_torn = len(self.assignment(variant, alignment).conflicts)
        return Fit(alignment.gain - TORN * n_torn, alignment.is_whole and not n_torn)

    @property
    def theirs(self) -> Sequence[Unit]:
        """The parts of theirs that hold weights, in order."""
        return self._theirs

    def _config(self, variant: Variant) -> ModelConfig | None:
        config: ModelConfig | None = self.config
        for _, way in variant.ways:
            config = None if config is None else way.config(config)
        if config is None or not all(way.when(config) for _, way in variant.ways if not way.remakes):
            return None  # what one changes is not there when others are made
        return config

    def _made(self, variant: Variant) -> Transformer | None:
        config = self._config(variant)
        if config is None:
            return None
        model = Transformer(config).double().eval()
        for _, way in variant.ways:
            if way.change is not None:
                way.change(model)
        return model

    def _aligned(self, variant: Variant) -> Alignment | None:
        model = self._made(variant)
        if model is None:
            return None
        own = dict(model.named_parameters())
        random = torch.Generator().manual_seed(1)
        for parameter in own.values():
            nn.init.normal_(parameter, generator=random)
        parameters = Parameters(own)
        names = {int(start): name for name, start in zip(parameters.names, parameters.starts[:-1], strict=True)}
        found = units(record(lambda: self._probe.ours(model), parameters))
        return align(named(found, names), self._theirs, model.config.d_k)

    def _fill(self, model: Transformer, assignment: Assignment) -> None:
        """Give a model their numbers; where they have none, a bias is 0, a γ is 1, and a square matrix does nothing."""
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                places = assignment.places.get(name)
                if places is not None and places.shape == parameter.shape:
                    values = np.where(places >= 0, self._parameters.values[places.clip(min=0)], 0.0)
                    parameter.copy_(torch.from_numpy(values))
                elif parameter.ndim == 1:
                    parameter.fill_(1.0 if name.endswith("norm.weight") else 0.0)
                elif parameter.shape[0] == parameter.shape[1] and name.endswith("w_o.weight"):
                    nn.init.eye_(parameter)


def tapped(model: Transformer, probe: Probe) -> dict[str, Tensor]:
    """Return every named tensor of a forward pass, in the order in which they are computed."""
    found: dict[str, Tensor] = {}
    handles = []
    for name, module in model.named_modules():
        if isinstance(module, Tap) and name != "probabilities":  # which others do not compute

            def keep(_: nn.Module, __: object, out: Tensor, name: str = name) -> None:
                found[name] = out

            handles.append(module.register_forward_hook(keep))
    try:
        probe.ours(model)
    finally:
        for handle in handles:
            handle.remove()
    return found
