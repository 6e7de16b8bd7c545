"""How a run learned, and what its positions look like, as data."""

import json
from typing import Any

from glassformer.config.model import ModelConfig
from glassformer.config.run import model_of
from glassformer.data.batch import IGNORED, continuations, pairs
from glassformer.errors import DataError
from glassformer.explorer.api import Request, tokens
from glassformer.explorer.shelf import GREEDY, Shelved
from glassformer.inspect.positions import shift, table, waves
from glassformer.learn.loss import smoothing_floor
from glassformer.learn.schedule import STEPS, learning_rate

POINTS = 200  # of the curve of the learning rate


def training(shelved: Shelved) -> dict[str, Any]:
    """Return a run's looks at its validation examples, its learning rate, and the floor of its loss."""
    config = shelved.run.config
    lines = _lines(shelved)
    looks = [line for line in lines if "step" in line]
    averaged = next((line for line in lines if "steps" in line), None)
    given: dict[str, Any] = {
        "looks": looks,
        "averaged": averaged,
        "snapshots": shelved.snapshots,
        "rates": [],
        "floor": None,
        "metric": None,
    }
    if config.train is None:
        return given
    last = max([look["step"] for look in looks], default=config.train.steps or STEPS)
    places = sorted({max(1, round(1 + (last - 1) * i / (POINTS - 1))) for i in range(POINTS)})
    schedule, d_model = config.train.schedule, config.model.d_model
    if looks and config.train.steps is None and config.train.patience is not None:
        given["rates"] = [(look["step"], look["rate"]) for look in looks]  # where it would have ended is not known
    else:
        ends = config.train.steps or last
        given["rates"] = [(at, learning_rate(schedule, step=at, d_model=d_model, last_step=ends)) for at in places]
    classes = model_of(config).target_vocabulary
    if classes is not None and config.train.smoothing == "all":
        given["floor"] = smoothing_floor(config.train.label_smoothing, classes)
    given["metric"], given["label_smoothing"] = config.train.metric, config.train.label_smoothing
    return given


def teaching(shelved: Shelved, request: Request) -> dict[str, Any]:
    """Return x and y of an input, one place apart, as training lays them out; a target that no loss counts is None.

    Raises:
        DataError: The model does not write.

    """
    run = shelved.run
    if not run.config.model.has_decoder:
        raise DataError("an encoder alone learns a class for a text: nothing is shifted")
    tokenizer, data = run.tokenizer, run.config.data
    if data is not None and data.window is not None:  # plain text: every token is asked for, and none is an end
        x, y = (ids := shelved.input(request.source, None, request.snapshot).target or ())[:-1], ids[1:]
        return {"x": tokens(tokenizer, x), "y": tokens(tokenizer, y), "counted": [True] * len(y)}
    writer = run.writer(GREEDY)
    with shelved.lock:
        writer.models = [shelved.model(request.snapshot)]
        prompt = writer.prompt(request.source)
        if prompt.is_blank:
            raise DataError("the text is blank: there is nothing to read")
        answer = tokenizer.encode(request.target) if request.target is not None else writer.write([prompt])[0][0].ids
    if prompt.source is not None:
        assert tokenizer.start_id is not None
        batch = pairs([prompt.source], [answer], start=tokenizer.start_id, end=tokenizer.end_id)
    else:
        batch = continuations([prompt.read], [answer], start=None, end=tokenizer.end_id)
    assert batch.target is not None
    read, labels = batch.target[0].tolist(), batch.labels[0].tolist()
    return {
        "x": tokens(tokenizer, tuple(read)),
        "y": tokens(tokenizer, (*read[1:], tokenizer.end_id)),
        "counted": [label != IGNORED for label in labels],
    }


def positions(config: ModelConfig, *, rows: int = 50, pair: int = 0, by: int = 3) -> dict[str, Any]:
    """Return the table of positions, its waves, and the rotation that moves a pair; {} where no formula makes them."""
    if config.positions.kind not in ("sinusoidal", "rotary"):
        return {"kind": config.positions.kind}
    found = {
        "kind": config.positions.kind,
        "ladder": config.positions.ladder,
        "table": table(config, list(range(rows))),
        "waves": [(wave.pair, wave.frequency, wave.wavelength) for wave in waves(config)],
    }
    if config.positions.kind == "rotary":
        return found
    moved = shift(config, pair=pair, by=by, at=[0, 10, 40])
    return found | {"shift": {"pair": pair, "by": by, "matrix": moved.matrix, "rows": moved.rows}}


def _lines(shelved: Shelved) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl: the looks, and at the end that of the mean of several snapshots."""
    if shelved.files is None or not shelved.files.metrics.is_file():
        return []
    return [json.loads(line) for line in shelved.files.metrics.read_text(encoding="utf-8").splitlines()]
