"""What is refused before a training begins: settings that do not go with each other, the data, or the processes."""

from glassformer.config.files import differences
from glassformer.config.run import Config
from glassformer.config.train import TrainConfig
from glassformer.errors import ConfigError


def check_settings(settings: TrainConfig, *, n_processes: int, has_validation: bool) -> None:
    """Refuse a measure without something to measure, and fewer batches a step than there are processes to share them.

    Raises:
        ConfigError: One of that.

    """
    if settings.accumulate < n_processes:
        raise ConfigError(
            f"{n_processes} processes share the batches of a step, but train.accumulate={settings.accumulate}: set it "
            f"to {n_processes} or a multiple (what is learnt depends on it, and not on the number of processes)"
        )
    if not has_validation and (settings.patience or settings.average_of == "best" or settings.metric != "loss"):
        raise ConfigError(
            "patience, average_of='best' and a metric need examples that nothing is learnt from: "
            "name some files in data.validation"
        )


def check_model(config: Config, other: Config) -> None:
    """Refuse to begin with weights of another model or vocabulary; only the model's dropout may differ.

    Raises:
        ConfigError: More differs.

    """
    own = config.model.model_copy(update={"dropout": other.model.dropout})
    found = differences(config.model_copy(update={"model": own}), other, table="model")
    for table in ("text", "target_text"):
        if config.data is not None and config.data.task is None:
            found += differences(config, other, table=f"{table}.")
    if found:
        raise ConfigError(f"the weights to begin with belong to another model or vocabulary: {'; '.join(found)}")


def check_loss(config: Config) -> None:
    """Refuse a smoothing that this output cannot have.

    Raises:
        ConfigError: It cannot.

    """
    settings, classifier = config.train, config.model.classifier
    assert settings is not None
    if settings.smoothing == "others-but-pad" and classifier is not None:
        raise ConfigError("smoothing='others-but-pad' leaves out padding, which is no class: use 'all' or 'others'")
    if settings.class_weights != "none" and classifier is None:
        raise ConfigError("class weights are for classifiers, which an encoder alone is")
    n = config.model.target_vocabulary or (classifier.classes if classifier else None) or 0
    if settings.smoothing == "others" and settings.label_smoothing * n > n - 1:
        raise ConfigError(
            f"label_smoothing={settings.label_smoothing} leaves the right one of {n} with less than the others: "
            f"the most is {(n - 1) / n:.3f}"
        )
