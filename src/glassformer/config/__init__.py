"""Configurations: frozen, validated, importable without torch."""

from glassformer.config.data import DataConfig, TextConfig
from glassformer.config.files import dump, load_config, parse, preset, preset_names, with_decode
from glassformer.config.model import Classifier, Dropout, Embedding, FeedForward, ModelConfig, Norm, Positions
from glassformer.config.run import Config, DecodeConfig, model_of
from glassformer.config.train import Adam, Schedule, TrainConfig

__all__ = [
    "Adam", "Classifier", "Config", "DataConfig", "DecodeConfig", "Dropout", "Embedding", "FeedForward",
    "ModelConfig", "Norm", "Positions", "Schedule", "TextConfig", "TrainConfig",
    "dump", "load_config", "model_of", "parse", "preset", "preset_names", "with_decode",
]  # fmt: skip
