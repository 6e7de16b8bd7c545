"""The ticket router at the size of which the count of its parameters is known."""

from glassformer.config import Config, preset

SEED = (
    "model.source_vocabulary=2856", "model.classifier.classes=5", "model.d_model=64", "model.n_encoder_layers=2",
    "model.positions.kind=learned", "model.positions.size=128", "model.embedding.scale=false",
)  # fmt: skip


def router() -> Config:
    return preset("router", SEED)
