"""A training as TensorBoard reads it."""

import sys
import warnings
from pathlib import Path

import pytest

from glassformer.errors import ConfigError
from glassformer.learn.events import Event
from glassformer.learn.tensorboard import TensorBoard
from glassformer.learn.trainer import Trainer
from tests.learn.corpora import small, write_pairs


def test_its_values_are_those_of_the_events(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    events: list[Event] = []
    with TensorBoard(tmp_path / "run/tensorboard") as board:

        def on_event(event: Event) -> None:
            events.append(event)
            board.show(event)

        Trainer(small(tmp_path, "train.metric='exact_match'"), tmp_path / "run", on_event).train()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own dependencies
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        log = EventAccumulator(str(tmp_path / "run/tensorboard"))
        log.Reload()
    looks = [event for event in events if type(event).__name__ == "Evaluated"]
    for name, field in (("training_loss", "loss"), ("validation_loss", "validation_loss"), ("metric", "metric")):
        written = [(one.step, one.value) for one in log.Scalars(f"look/{name}")]
        assert written == [(look.step, pytest.approx(getattr(look, field), rel=1e-6)) for look in looks]  # type: ignore[union-attr]
    assert [one.step for one in log.Scalars("step/rate")] == list(range(1, 13))


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ConfigError, match=r"pip install 'glassformer\[tensorboard\]'"):
        TensorBoard(tmp_path)
