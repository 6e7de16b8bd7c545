"""Training: the arithmetic, the events, the directory, and what stops it."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from glassformer.checkpoint import read_weights
from glassformer.config import Config, preset
from glassformer.data.batch import IGNORED
from glassformer.decode.hypothesis import Hypothesis
from glassformer.errors import CheckpointError, ConfigError, TrainingError
from glassformer.learn.loss import cross_entropy
from glassformer.learn.schedule import learning_rate
from glassformer.learn.trainer import Averaged, Evaluated, Event, Stepped, Trainer
from glassformer.model.transformer import Transformer
from glassformer.run import RunFiles, load


def ignore(_: Event) -> None:
    pass


def short(*overrides: str) -> Config:
    small = (
        "train.evaluate_every=2",
        "train.snapshot_every=2",
        "train.average=2",
        "train.batch_size=4",
        "data.test_size=10",
    )
    return preset("reversal", ["train.steps=6", *small, *overrides])


def test_it_learns(trained: tuple[Path, list[Event]]) -> None:
    _, events = trained
    evaluations = {event.step: event for event in events if isinstance(event, Evaluated)}
    assert 4.5 <= evaluations[1].loss <= 5.7
    assert evaluations[1].exact_match == 0.0
    assert evaluations[800].exact_match >= 0.8
    assert evaluations[800].test_loss < 0.2
    averaged = events[-1]
    assert isinstance(averaged, Averaged)
    assert averaged.steps == [500, 600, 700, 800]
    assert averaged.exact_match >= 0.95


def test_events(trained: tuple[Path, list[Event]]) -> None:
    directory, events = trained
    steps = [event for event in events if isinstance(event, Stepped)]
    assert [event.step for event in steps] == list(range(1, 801))
    assert all(a.seconds < b.seconds for a, b in pairwise(steps))
    evaluations = [event for event in events if isinstance(event, Evaluated)]
    assert [event.step for event in evaluations] == [1, 100, 200, 300, 400, 500, 600, 700, 800]
    last = [event.loss for event in steps[700:]]
    assert evaluations[-1].loss == pytest.approx(sum(last) / 100)
    written = [json.loads(line) for line in RunFiles(directory).metrics.read_text().splitlines()]
    assert [line["step"] for line in written[:-1]] == [event.step for event in evaluations]
    assert written[-1]["steps"] == [500, 600, 700, 800]


def test_the_rate_reported_is_the_rate_used(trained: tuple[Path, list[Event]]) -> None:
    train = preset("reversal").train
    assert train is not None
    rates = {event.step: event.rate for event in trained[1] if isinstance(event, Stepped)}
    assert rates[1] == pytest.approx(1.5625e-05)  # the next step's would be twice that
    for step in (1, 100, 400, 800):
        assert rates[step] == learning_rate(train.schedule, step=step, d_model=64)


def test_the_steps_are_adam_on_the_smoothed_loss(tmp_path: Path) -> None:
    """Six steps equal a plain loop with PyTorch's own Adam, without the fused one; no dropout.

    With the paper's ε of 1e-9 a gradient that is 0 but for rounding moves a weight as far as any other; a larger ε
    keeps that out of the comparison.
    """
    config = short("model.dropout.residual=0.0", "train.schedule.warmup_steps=3", "train.optimizer.eps=1e-4")
    assert config.train is not None
    trainer = Trainer(config, tmp_path / "run", ignore)
    trainer.train()
    torch.manual_seed(0)
    model = Transformer(config)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-4, fused=False, foreach=False)
    for step in range(1, 7):
        optimizer.param_groups[0]["lr"] = 64**-0.5 * min(step**-0.5, step * 3**-1.5)
        batch = trainer.task.training_batch(4, seed=0, step=step)
        logits = model(batch.source, batch.target, source_is_real=batch.source_is_real)
        loss = torch.nn.CrossEntropyLoss(ignore_index=IGNORED, label_smoothing=0.1)
        loss(logits.reshape(-1, 13), batch.labels.reshape(-1)).backward()
        optimizer.step()
        optimizer.zero_grad()
    found, _ = read_weights(RunFiles(tmp_path / "run").snapshot(6))
    for name, parameter in model.named_parameters():
        assert (found[name] - parameter).abs().max() <= 1e-5, name


def test_one_seed_gives_one_run_and_leaves_the_callers_numbers_alone(tmp_path: Path) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    weights = []
    for i, seed in enumerate((0, 0, 1)):
        torch.manual_seed(7)
        Trainer(short(f"train.seed={seed}"), tmp_path / str(i), ignore).train()
        assert torch.equal(torch.rand(3), expected)
        weights.append(read_weights(tmp_path / str(i) / "model.safetensors")[0]["encoder.layers.0.ffn.w_1.weight"])
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


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
def test_which_snapshots_are_averaged(tmp_path: Path, overrides: tuple[str, ...], expected: str) -> None:
    run = Trainer(short(*overrides), tmp_path / "run", ignore).train()
    assert run.notes["weights"] == expected == load(tmp_path / "run").notes["weights"]


def test_snapshot_0_is_the_untrained_model(tmp_path: Path) -> None:
    Trainer(short(), tmp_path / "run", ignore).train()
    torch.manual_seed(0)
    fresh = Transformer(preset("reversal"))
    found, notes = read_weights(RunFiles(tmp_path / "run").snapshot(0))
    assert notes["weights"] == "after step 0"
    assert all(torch.equal(found[name], parameter) for name, parameter in fresh.named_parameters())


def test_exact_match_asks_for_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The right letters without the end token are not the right answer."""
    trainer = Trainer(short(), tmp_path / "run", ignore)
    answers = [Hypothesis(row[:-1], 0.0, 0.0, "end") for row in trainer._answers]
    answers[0] = Hypothesis(answers[0].ids, 0.0, 0.0, "limit")
    answers[1] = Hypothesis(answers[1].ids[1:], 0.0, 0.0, "end")
    monkeypatch.setattr("glassformer.learn.trainer.write", lambda *_, **__: [[answer] for answer in answers])
    assert trainer._measure(Transformer(preset("reversal")))[1] == pytest.approx(0.8)


class TestDirectory:
    def test_a_finished_run_is_never_written_over(self, tmp_path: Path) -> None:
        Trainer(short(), tmp_path / "run", ignore).train()
        before = (tmp_path / "run/model.safetensors").read_bytes()
        with pytest.raises(
            CheckpointError, match="holds a finished run, which is never written over; choose another --run"
        ):
            Trainer(short(), tmp_path / "run", ignore).train()
        assert (tmp_path / "run/model.safetensors").read_bytes() == before

    def test_a_directory_in_use(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("mine")
        with pytest.raises(CheckpointError, match=r"is in use \(an unfinished run\?\)"):
            Trainer(short(), tmp_path, ignore).train()
        with pytest.raises(CheckpointError, match="is in use"):
            Trainer(short(), tmp_path / "notes.txt", ignore).train()
        assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]

    def test_an_empty_directory_is_taken(self, tmp_path: Path) -> None:
        assert Trainer(short(), tmp_path, ignore).train().notes["weights"]

    def test_a_run_that_was_stopped_is_no_run(self, tmp_path: Path) -> None:
        def stop(event: Event) -> None:
            if isinstance(event, Stepped) and event.step == 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            Trainer(short(), tmp_path / "run", stop).train()
        with pytest.raises(CheckpointError, match="is not finished"):
            load(tmp_path / "run")


def test_a_loss_that_is_no_number_stops_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glassformer.learn.trainer.learning_rate", lambda *_, **__: float("inf"))
    with pytest.raises(TrainingError, match="the loss of step 2 is nan: lower the learning rate"):
        Trainer(short(), tmp_path / "run", ignore).train()
    assert not (tmp_path / "run/model.safetensors").exists()


@pytest.mark.parametrize(
    ("name", "sentence"), [("paper-base", r"has no \[data\] part"), ("microscope", r"has no \[data\] part")]
)
def test_nothing_to_train_on(name: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Trainer(preset(name), Path("nowhere"), ignore)


def test_a_vocabulary_that_is_not_the_tasks() -> None:
    config = preset("reversal", ["model.source_vocabulary=20", "model.target_vocabulary=20"])
    with pytest.raises(ConfigError, match=r"takes an encoder–decoder with source_vocabulary=13 .* has 20 and 20"):
        Trainer(config, Path("nowhere"), ignore)


class TestLoss:
    def test_ignored_labels_count_for_nothing(self) -> None:
        logits, labels = torch.randn(2, 3, 13), torch.tensor([[4, 2, IGNORED], [5, IGNORED, IGNORED]])
        by_hand = (
            -(logits[0, 0].log_softmax(-1)[4] + logits[0, 1].log_softmax(-1)[2] + logits[1, 0].log_softmax(-1)[5]) / 3
        )
        assert cross_entropy(logits, labels).item() == pytest.approx(by_hand.item(), abs=1e-6)

    def test_padding_changes_nothing(self) -> None:
        logits, labels = torch.randn(1, 3, 13), torch.tensor([[4, 2, 7]])
        padded = cross_entropy(
            torch.cat([logits, torch.randn(1, 5, 13)], 1),
            torch.cat([labels, torch.full((1, 5), IGNORED)], 1),
            label_smoothing=0.1,
        )
        assert padded.item() == pytest.approx(cross_entropy(logits, labels, label_smoothing=0.1).item(), abs=1e-6)
