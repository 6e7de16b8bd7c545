"""glassformer: a Transformer you can train, run and see through.

import glassformer as gf

config = gf.preset("reversal")                  # a frozen configuration
model = gf.Transformer(config)                  # a torch module with named taps
run = gf.load("runs/reversal")                  # a trained run
run.translate("c a b e d")                      # "d e b a c"
gf.trace(model, [5, 3, 4], [1, 4])["decoder.layers.1.cross_attention.weights"].axes
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glassformer.config import Config, ModelConfig, load_config, preset
    from glassformer.errors import (
        CheckpointError,
        ConfigError,
        DataError,
        DecodingError,
        GlassformerError,
        TrainingError,
        VerifyError,
    )
    from glassformer.inspect.count import count
    from glassformer.inspect.shapes import shapes
    from glassformer.inspect.trace import trace, watch
    from glassformer.learn.trainer import Trainer
    from glassformer.model.transformer import Memory, Transformer
    from glassformer.run import Run, load
    from glassformer.verification.compare import verify
    from glassformer.verification.training import verify_batches, verify_dropout, verify_loss, verify_schedule
    from glassformer.writer import Writer

__version__ = version("glassformer")

# A name is imported when it is first used, so that `import glassformer` and the command line's help need no torch.
_HOMES = {
    "glassformer.config": ("Config", "ModelConfig", "load_config", "preset"),
    "glassformer.errors": (
        "CheckpointError", "ConfigError", "DataError", "DecodingError", "GlassformerError", "TrainingError",
        "VerifyError",
    ),
    "glassformer.inspect.count": ("count",),
    "glassformer.inspect.shapes": ("shapes",),
    "glassformer.inspect.trace": ("trace", "watch"),
    "glassformer.learn.trainer": ("Trainer",),
    "glassformer.model.transformer": ("Memory", "Transformer"),
    "glassformer.run": ("Run", "load"),
    "glassformer.verification.compare": ("verify",),
    "glassformer.verification.training": ("verify_batches", "verify_dropout", "verify_loss", "verify_schedule"),
    "glassformer.writer": ("Writer",),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "CheckpointError", "Config", "ConfigError", "DataError", "DecodingError", "GlassformerError", "Memory",
    "ModelConfig", "Run", "Trainer", "TrainingError", "Transformer", "VerifyError", "Writer", "count", "load",
    "load_config", "preset", "shapes", "trace", "verify", "verify_batches", "verify_dropout", "verify_loss",
    "verify_schedule", "watch",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'glassformer' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
