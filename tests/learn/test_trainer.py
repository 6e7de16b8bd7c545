"""Training: the loop, the events, the directory, and what stops it."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from glassformer.checkpoint import read_weights
from glassformer.config import Config, preset
from glassformer.data.batch import IGNORED
from glassformer.errors import CheckpointError, ConfigError, DataError, TrainingError, TrainingStopped
from glassformer.learn.events import Averaged, Evaluated, Event, Started, Stepped
from glassformer.learn.schedule import learning_rate
from glassformer.learn.trainer import Trainer
from glassformer.model.transformer import Transformer
from glassformer.run import RunFiles, load
from tests.learn.corpora import small, write_pairs


def ignore(_: Event) -> None:
    pass


def short(*overrides: str) -> Config:
    """The toy, for six steps."""
    few = (
        "train.evaluate_every=2",
        "train.snapshot_every=2",
        "train.average=2",
        "train.batch_size=4",
        "data.test_size=10",
    )
    return preset("reversal", ["train.steps=6", *few, *overrides])


def events_of(config: Config, directory: Path, **more: Any) -> list[Event]:
    events: list[Event] = []
    Trainer(config, directory, events.append, **more).train()
    return events


def looks(events: list[Event]) -> list[Evaluated]:
    return [event for event in events if isinstance(event, Evaluated)]


def weights(directory: Path, name: str = "model.safetensors") -> dict[str, torch.Tensor]:
    return read_weights(directory / name)[0]


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


class TestToy:
    def test_it_learns(self, trained: tuple[Path, list[Event]]) -> None:
        found = {event.step: event for event in looks(trained[1])}
        assert 4.5 <= found[1].loss <= 5.7
        assert found[1].metric == 0.0
        assert (found[800].metric or 0) >= 0.8
        assert (found[800].validation_loss or 9) < 0.2
        averaged = trained[1][-1]
        assert isinstance(averaged, Averaged)
        assert averaged.steps == [500, 600, 700, 800]
        assert (averaged.metric or 0) >= 0.95

    def test_events(self, trained: tuple[Path, list[Event]]) -> None:
        directory, events = trained
        start, steps = events[0], [event for event in events if isinstance(event, Stepped)]
        assert isinstance(start, Started)
        assert (start.peak_step, start.last_step, start.n_examples) == (400, 800, None)
        assert start.peak_rate == pytest.approx(0.00625)
        assert [event.step for event in steps] == list(range(1, 801))
        assert all(a.seconds < b.seconds for a, b in pairwise(steps))
        assert [event.step for event in looks(events)] == [1, 100, 200, 300, 400, 500, 600, 700, 800]
        written = [json.loads(line) for line in RunFiles(directory).metrics.read_text().splitlines()]
        assert [line["step"] for line in written[:-1]] == [event.step for event in looks(events)]
        assert written[-1]["steps"] == [500, 600, 700, 800]

    def test_the_rate_reported_is_the_rate_used(self, trained: tuple[Path, list[Event]]) -> None:
        settings = preset("reversal").train
        assert settings is not None
        rates = {event.step: event.rate for event in trained[1] if isinstance(event, Stepped)}
        assert rates[1] == pytest.approx(1.5625e-05)  # the next step's would be twice that
        for step in (1, 100, 400, 800):
            assert rates[step] == learning_rate(settings.schedule, step=step, d_model=64)

    def test_the_steps_are_adam_on_the_smoothed_loss(self, tmp_path: Path) -> None:
        """Six steps equal a plain loop with PyTorch's own Adam, without the fused one; no dropout.

        With the paper's ε of 1e-9 a gradient that is 0 but for rounding moves a weight as far as any other; a larger ε
        keeps that out of the comparison.
        """
        config = short("model.dropout.residual=0.0", "train.schedule.warmup_steps=3", "train.optimizer.eps=1e-4")
        trainer = Trainer(config, tmp_path / "run", ignore)
        trainer.train()
        torch.manual_seed(0)
        model = Transformer(config)
        optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-4, fused=False, foreach=False)
        batches = trainer.feed.steps(1)
        for step in range(1, 7):
            optimizer.param_groups[0]["lr"] = 64**-0.5 * min(step**-0.5, step * 3**-1.5)
            (batch,) = next(batches)
            logits = model(batch.source, batch.target, source_is_real=batch.source_is_real)
            loss = torch.nn.CrossEntropyLoss(ignore_index=IGNORED, label_smoothing=0.1)
            loss(logits.reshape(-1, 13), batch.labels.reshape(-1)).backward()
            optimizer.step()
            optimizer.zero_grad()
        found = weights(tmp_path / "run", "snapshots/000006.safetensors")
        for name, parameter in model.named_parameters():
            assert (found[name] - parameter).abs().max() <= 1e-5, name

    def test_one_seed_gives_one_run_and_leaves_the_callers_numbers_alone(self, tmp_path: Path) -> None:
        torch.manual_seed(7)
        expected = torch.rand(3)
        found = []
        for i, seed in enumerate((0, 0, 1)):
            torch.manual_seed(7)
            Trainer(short(f"train.seed={seed}"), tmp_path / str(i), ignore).train()
            assert torch.equal(torch.rand(3), expected)
            found.append(weights(tmp_path / str(i)))
        assert same(found[0], found[1])
        assert not same(found[0], found[2])

    def test_snapshot_0_is_the_untrained_model(self, tmp_path: Path) -> None:
        Trainer(short(), tmp_path / "run", ignore).train()
        torch.manual_seed(0)
        fresh = Transformer(preset("reversal"))
        found, notes = read_weights(RunFiles(tmp_path / "run").snapshot(0))
        assert notes["weights"] == "after step 0"
        assert all(torch.equal(found[name], parameter) for name, parameter in fresh.named_parameters())

    @pytest.mark.parametrize(
        "change", [{"steps": None, "epochs": 2}, {"batch_size": None, "batch_tokens": 64}, {"snapshot_epochs": (2,)}]
    )
    def test_what_a_task_without_end_has_not(self, change: dict[str, object]) -> None:
        settings = preset("reversal").train
        assert settings is not None
        config = preset("reversal").model_copy(update={"train": settings.model_copy(update=change)})
        with pytest.raises(ConfigError, match="draws its examples without end: set steps and batch_size"):
            Trainer(config, "nowhere", ignore)


class TestKinds:
    """Each kind of model learns something from files in a few hundred small steps."""

    LEARN = ("train.steps=400", "train.evaluate_every=100", "train.snapshot_every=100", "train.batch_size=32")

    def test_an_encoder_decoder(self, folder: Path, tmp_path: Path) -> None:
        write_pairs(folder, 1000)
        config = small(folder, *self.LEARN, "train.metric='token_error_rate'", "train.schedule.peak=0.01")
        first, *_, last = looks(events_of(config, tmp_path / "run"))
        assert (last.validation_loss or 9) < 0.6 * (first.validation_loss or 0)
        assert (last.metric or 9) < 0.8 * (first.metric or 0)

    def test_a_decoder(self, folder: Path, tmp_path: Path) -> None:
        write_pairs(folder, 1000)
        config = small(
            folder, *self.LEARN, "train.metric='token_error_rate'", "train.schedule.peak=0.01", kind="decoder"
        )
        first, *_, last = looks(events_of(config, tmp_path / "run"))
        assert (last.validation_loss or 9) < 0.6 * (first.validation_loss or 0)
        assert (last.metric or 9) < 0.8 * (first.metric or 0)

    def test_a_classifier(self, folder: Path, tmp_path: Path) -> None:
        config = small(folder, *self.LEARN, "train.metric='accuracy'", kind="encoder")
        events = events_of(config, tmp_path / "run")
        assert (looks(events)[-1].metric or 0) >= 0.9
        run = load(tmp_path / "run")
        assert run.classes == ("blue", "green", "red")
        assert run.classify("red teal gold").label == "red"

    def test_windows(self, folder: Path, tmp_path: Path) -> None:
        (folder / "text.txt").write_text("the cat sat on the mat. " * 200)
        config = small(folder, *self.LEARN, kind="decoder")
        data = {"folder": str(folder), "train": ("text.txt",), "held_out": 0.1, "window": 16}
        values = config.model_dump(exclude_none=True) | {"data": data, "text": {"kind": "letters"}}
        events = events_of(Config.model_validate(values), tmp_path / "run")
        assert (looks(events)[-1].validation_loss or 9) < 0.2
        written = load(tmp_path / "run").generate("the cat ", {"max_length": 12})
        assert written == "sat on the m"


class TestSettings:
    def test_epochs(self, folder: Path, tmp_path: Path) -> None:
        config = small(folder)
        settings = config.train.model_copy(
            update={"steps": None, "epochs": 3, "evaluate_every": None, "snapshot_every": None}
        )
        events = events_of(config.model_copy(update={"train": settings}), tmp_path / "run")
        assert [(look.step, look.epoch) for look in looks(events)] == [(1, 1), (15, 1), (30, 2), (45, 3)]
        assert RunFiles(tmp_path / "run").snapshot_steps() == [0, 15, 30, 45]

    def test_chosen_snapshots_stay_and_others_go(self, folder: Path, tmp_path: Path) -> None:
        config = small(
            folder, "train.steps=40", "train.keep=2", "train.snapshot_steps=[3, 7]", "train.snapshot_epochs=[1]"
        )
        events = events_of(config, tmp_path / "run")
        assert RunFiles(tmp_path / "run").snapshot_steps() == [0, 3, 7, 15, 36, 40]
        assert events[-1].steps == [36, 40]  # type: ignore[union-attr]

    def test_the_best_are_averaged(self, folder: Path, tmp_path: Path) -> None:
        config = small(folder, "train.average_of='best'", "train.snapshot_every=5", "train.steps=30", "train.keep=1")
        events = events_of(config, tmp_path / "run")
        by_loss = sorted(looks(events)[1:], key=lambda look: look.validation_loss or 9)
        assert events[-1].steps == sorted(look.step for look in by_loss[:2])  # type: ignore[union-attr]
        best = [look.step for look in looks(events) if look.is_best]
        assert best[-1] == by_loss[0].step

    def test_patience(self, folder: Path, tmp_path: Path) -> None:
        """With a rate of next to nothing no look is better than the one before for long."""
        config = small(
            folder, "train.steps=500", "train.patience=3", "train.schedule.peak=1e-20", "train.metric='exact_match'"
        )
        events = events_of(config, tmp_path / "run")
        assert [look.step for look in looks(events)] == [1, 5, 10, 15]
        assert load(tmp_path / "run").notes["weights"] == "mean of the snapshots after steps 12, 15"

    def test_a_moving_average_is_what_is_kept(self, folder: Path, tmp_path: Path) -> None:
        config = small(folder, "train.ema=0.5", "train.snapshot_every=1", "train.steps=3", "train.average=1")
        plain = small(folder, "train.snapshot_every=1", "train.steps=3", "train.average=1")
        Trainer(config, tmp_path / "ema", ignore).train()
        Trainer(plain, tmp_path / "plain", ignore).train()
        w = [weights(tmp_path / "plain", f"snapshots/00000{i}.safetensors") for i in range(4)]
        expected = w[0]
        for i, decay in ((1, 1 / 10), (2, 2 / 11), (3, 3 / 12)):  # as in a plain mean at first
            expected = {name: decay * expected[name] + (1 - decay) * w[i][name] for name in expected}
        found = weights(tmp_path / "ema")
        assert all((found[name] - expected[name]).abs().max() <= 1e-6 for name in expected)
        assert not same(found, w[3])

    def test_weight_decay_is_of_matrices(self, folder: Path, tmp_path: Path) -> None:
        config = small(
            folder,
            "train.optimizer.weight_decay=0.5",
            "train.steps=1",
            "train.schedule.peak=1e-3",
            "train.schedule.warmup_steps=0",
        )
        Trainer(config, tmp_path / "decayed", ignore).train()
        plain = small(folder, "train.steps=1", "train.schedule.peak=1e-3", "train.schedule.warmup_steps=0")
        Trainer(plain, tmp_path / "plain", ignore).train()
        before = weights(tmp_path / "plain", "snapshots/000000.safetensors")
        with_decay, without = weights(tmp_path / "decayed"), weights(tmp_path / "plain")
        for name, start in before.items():
            shrunk = 1e-3 * 0.5 * start if start.ndim >= 2 else 0.0
            assert (without[name] - with_decay[name] - shrunk).abs().max() <= 1e-6, name

    def test_balanced_class_weights(self, folder: Path, tmp_path: Path) -> None:
        trainer = Trainer(small(folder, "train.class_weights='balanced'", kind="encoder"), tmp_path / "run", ignore)
        found = trainer._learner().objective.class_weights
        counts = Counter(line.split(",")[1] for line in (folder / "train.csv").read_text().splitlines()[1:])
        assert found is not None
        assert found.tolist() == pytest.approx([120 / 3 / counts[name] for name in ("blue", "green", "red")])
        with pytest.raises(ConfigError, match="class weights are for classifiers"):
            Trainer(small(folder, "train.class_weights='balanced'"), tmp_path / "x", ignore).train()

    def test_what_needs_validation_examples(self, folder: Path) -> None:
        for change in ("patience=2", "average_of='best'", "metric='exact_match'"):
            config = small(folder, f"train.{change}", "train.snapshot_every=5", "data.validation=[]")
            with pytest.raises(
                ConfigError, match=r"need examples that nothing is learnt from: name some files in data\.validation"
            ):
                Trainer(config, "nowhere", ignore)

    def test_without_validation_examples(self, folder: Path, tmp_path: Path) -> None:
        events = events_of(small(folder, "data.validation=[]"), tmp_path / "run")
        assert {(look.validation_loss, look.metric, look.is_best) for look in looks(events)} == {(None, None, False)}
        assert load(tmp_path / "run").notes["weights"] == "mean of the snapshots after steps 8, 12"

    def test_a_metric_that_does_not_go_with_the_model(self, folder: Path) -> None:
        for kind, metric in (("encoder", "bleu"), ("decoder", "accuracy"), ("encoder-decoder", "macro_f1")):
            with pytest.raises(ConfigError, match=f"train.metric='{metric}' does not go with a model of kind='{kind}'"):
                Trainer(small(folder, f"train.metric='{metric}'", kind=kind), "nowhere", ignore)


class TestFrom:
    def test_fine_tuning_begins_with_the_other_runs_weights(self, folder: Path, tmp_path: Path) -> None:
        Trainer(small(folder), tmp_path / "first", ignore).train()
        first = load(tmp_path / "first")
        write_pairs(folder, 40, seed=5)
        (folder / "train.tsv").write_text("red unseen\tunseen red\n" * 20)
        config = small(folder, "model.dropout.residual=0.3")
        Trainer(config, tmp_path / "second", ignore, start_from=first).train()
        assert same(weights(tmp_path / "second", "snapshots/000000.safetensors"), weights(tmp_path / "first"))
        second = load(tmp_path / "second")
        assert second.vocabularies == first.vocabularies
        assert second.config.model.dropout.residual == 0.3

    def test_another_model(self, folder: Path, tmp_path: Path) -> None:
        Trainer(small(folder), tmp_path / "first", ignore).train()
        with pytest.raises(ConfigError, match=r"belong to another model or vocabulary: model\.d_ff=48, not 32"):
            Trainer(small(folder, "model.d_ff=48"), tmp_path / "x", ignore, start_from=load(tmp_path / "first"))


class TestDirectory:
    @pytest.mark.parametrize(
        ("overrides", "expected"),
        [
            ((), "mean of the snapshots after steps 4, 6"),
            (("train.average=1",), "after step 6"),
            (("train.average=9",), "mean of the snapshots after steps 4, 6"),  # none from the first half
            (("train.steps=1",), "after step 1"),
            (("train.steps=7",), "mean of the snapshots after steps 6, 7"),
        ],
    )
    def test_which_snapshots_are_averaged(self, tmp_path: Path, overrides: tuple[str, ...], expected: str) -> None:
        run = Trainer(short(*overrides), tmp_path / "run", ignore).train()
        assert run.notes["weights"] == expected == load(tmp_path / "run").notes["weights"]

    def test_a_finished_run_is_never_written_over(self, tmp_path: Path) -> None:
        Trainer(short(), tmp_path / "run", ignore).train()
        before = (tmp_path / "run/model.safetensors").read_bytes()
        with pytest.raises(
            CheckpointError, match="holds a finished run, which is never written over; choose another --run"
        ):
            Trainer(short(), tmp_path / "run", ignore).train()
        assert (tmp_path / "run/model.safetensors").read_bytes() == before
        assert not (tmp_path / "run/state.safetensors").exists()

    def test_a_directory_in_use(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("mine")
        for place in (tmp_path, tmp_path / "notes.txt"):
            with pytest.raises(CheckpointError, match="is in use, and not by a run"):
                Trainer(short(), place, ignore).train()
        assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]

    def test_an_empty_directory_is_taken(self, tmp_path: Path) -> None:
        assert Trainer(short(), tmp_path, ignore).train().notes["weights"]

    def test_no_directory_is_made_for_data_that_cannot_be_read(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"cannot read .*train\.tsv: No such file"):
            Trainer(small(tmp_path), tmp_path / "run", ignore)
        assert not (tmp_path / "run").exists()


class TestStopping:
    def stop_at(self, step: int, config: Config, directory: Path, **more: Any) -> list[Event]:
        """Train until a step, as Ctrl-C there would do it."""
        events: list[Event] = []

        def on_event(event: Event) -> None:
            events.append(event)
            if isinstance(event, Stepped) and event.step == step:
                trainer.request_stop()

        trainer = Trainer(config, directory, on_event, **more)
        with pytest.raises(
            TrainingStopped, match=rf"stopped after step {step}; go on with: glassformer train .* --resume"
        ):
            trainer.train()
        return events

    @pytest.mark.parametrize(
        "change", ["train.ema=0.9", "train.precision='bfloat16'", "train.accumulate=3", "train.metric='exact_match'"]
    )
    def test_resuming_gives_the_same_run(self, folder: Path, tmp_path: Path, change: str) -> None:
        """Stopped twice, in the middle of an epoch: the same weights, snapshots and lines."""
        config = small(folder, change, "train.steps=40", "model.dropout.attention=0.1")
        Trainer(config, tmp_path / "whole", ignore).train()
        self.stop_at(7, config, tmp_path / "parts")
        self.stop_at(23, config, tmp_path / "parts", resume=True)
        events = events_of(config, tmp_path / "parts", resume=True)
        assert events[0].step == 23  # type: ignore[union-attr]
        assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
        names = [sorted(path.name for path in (tmp_path / run / "snapshots").iterdir()) for run in ("whole", "parts")]
        assert names[0] == names[1]
        for name in names[0]:
            assert same(weights(tmp_path / "whole/snapshots", name), weights(tmp_path / "parts/snapshots", name))
        lines = [
            [json.loads(line) for line in (tmp_path / run / "metrics.jsonl").read_text().splitlines()]
            for run in ("whole", "parts")
        ]
        for line in (*lines[0], *lines[1]):
            line.pop("seconds", None)
        assert lines[0] == lines[1]

    def test_another_configuration_does_not_go_on(self, folder: Path, tmp_path: Path) -> None:
        self.stop_at(7, small(folder), tmp_path / "run")
        with pytest.raises(
            ConfigError, match=r"goes on as it was begun, but this configuration differs: train\.steps=13, not 12$"
        ):
            Trainer(small(folder, "train.steps=13"), tmp_path / "run", ignore, resume=True)

    def test_other_data_do_not_go_on(self, folder: Path, tmp_path: Path) -> None:
        self.stop_at(7, small(folder), tmp_path / "run")
        with (folder / "train.tsv").open("a") as file:
            file.write("red blue\tblue red\n")
        trainer = Trainer(small(folder), tmp_path / "run", ignore, resume=True)
        with pytest.raises(
            ConfigError,
            match=r"the examples are not those that .* was begun with: a file of data\.train or data\.validation has",
        ):
            trainer.train()

    def test_an_unfinished_run_is_not_taken_for_nothing(self, folder: Path, tmp_path: Path) -> None:
        self.stop_at(7, small(folder), tmp_path / "run")
        with pytest.raises(CheckpointError, match="holds an unfinished run: go on with --resume"):
            Trainer(small(folder), tmp_path / "run", ignore).train()
        with pytest.raises(CheckpointError, match="is not finished"):
            load(tmp_path / "run")

    def test_resuming_begins_where_there_is_nothing(self, folder: Path, tmp_path: Path) -> None:
        assert looks(events_of(small(folder), tmp_path / "run", resume=True))[0].step == 1

    def test_a_run_that_never_saved_its_state_begins_again(self, folder: Path, tmp_path: Path) -> None:
        self.stop_at(7, small(folder), tmp_path / "run")
        (tmp_path / "run/state.safetensors").unlink()
        events = events_of(small(folder), tmp_path / "run", resume=True)
        assert [look.step for look in looks(events)] == [1, 5, 10, 12]
        assert len((tmp_path / "run/metrics.jsonl").read_text().splitlines()) == 5

    def test_a_damaged_state(self, folder: Path, tmp_path: Path) -> None:
        self.stop_at(7, small(folder), tmp_path / "run")
        path = tmp_path / "run/state.safetensors"
        path.write_bytes(path.read_bytes()[:-50])
        with pytest.raises(CheckpointError, match=r"state\.safetensors is damaged or cut short"):
            Trainer(small(folder), tmp_path / "run", ignore, resume=True).train()


def test_gradients_that_are_no_numbers_end_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.learn.trainer.learning_rate", lambda *_, **__: float("inf"))
    with pytest.raises(
        TrainingError, match=r"the gradients of the last 30 steps were infinite or no numbers \(loss nan\)"
    ):
        Trainer(short("train.steps=50"), tmp_path / "run", ignore).train()
    assert not (tmp_path / "run/model.safetensors").exists()


@pytest.mark.parametrize("table", ["data", "train"])
def test_nothing_to_train_on(table: str) -> None:
    config = preset("reversal").model_copy(update={table: None})
    with pytest.raises(ConfigError, match=rf"has no \[{table}\] part"):
        Trainer(config, Path("nowhere"), ignore)


def test_a_task_for_another_kind_of_model() -> None:
    values = preset("reversal").model_dump(exclude_none=True) | {"data": {"task": "number-words"}}
    with pytest.raises(
        ConfigError, match="the task 'number-words' is for a model of kind='decoder', not 'encoder-decoder'"
    ):
        Trainer(Config.model_validate(values), Path("nowhere"), ignore)


def test_a_batch_that_does_not_fit(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr("glassformer.learn.learner.Learner.gradients", refuse)
    with pytest.raises(
        TrainingError, match=r"the heaviest batch, 8 rows of 7 tokens, does not fit into memory: lower train\.batch"
    ):
        Trainer(small(folder), tmp_path / "run", ignore).train()
