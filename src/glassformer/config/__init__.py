"""Configurations: frozen, validated, importable without torch."""

from glassformer.config.files import dump, load_config, parse, preset, preset_names, with_decode
from glassformer.config.model import Classifier, Dropout, Embedding, FeedForward, ModelConfig, Norm, Positions
from glassformer.config.run import Adam, Config, DataConfig, DecodeConfig, Schedule, TrainConfig, model_of

__all__ = [
    "Adam", "Classifier", "Config", "DataConfig", "DecodeConfig", "Dropout", "Embedding", "FeedForward",
    "ModelConfig", "Norm", "Positions", "Schedule", "TrainConfig",
    "dump", "load_config", "model_of", "parse", "preset", "preset_names", "with_decode",
]  # fmt: skip
