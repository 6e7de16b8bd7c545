"""How a training begins, begins again and goes on; what is tried before, and what is measured on the way."""

import json
import resource
from pathlib import Path

import pytest
import torch

from glassformer.checkpoint import load_weights, read_weights
from glassformer.config import Config
from glassformer.data.corpus import Corpus
from glassformer.errors import CheckpointError, ConfigError, TrainingError
from glassformer.learn import validation
from glassformer.learn.events import Evaluated, Event, Started
from glassformer.learn.learner import Learner, Update
from glassformer.learn.trainer import Trainer
from glassformer.model.transformer import Transformer
from glassformer.run import RunFiles, load
from tests.learn.corpora import small, write_labelled


def train(config: Config, directory: Path, **how: object) -> list[Event]:
    events: list[Event] = []
    Trainer(config, directory, events.append, **how).train()  # type: ignore[arg-type]
    return events


class Killed(BaseException):
    """In place of kill -9."""


def kill_at(patch: pytest.MonkeyPatch, updates: int) -> None:
    """Let the training end without a word at a step."""
    step = Learner.step

    def killed(self: Learner, *arguments: object) -> Update:
        if self.counters.updates == updates:
            raise Killed
        return step(self, *arguments)  # type: ignore[arg-type]

    patch.setattr(Learner, "step", killed)


def begun(config: Config, directory: Path, **how: object) -> None:
    """Begin a training that is killed in its third step."""
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, 2)
        with pytest.raises(Killed):
            train(config, directory, **how)


class TestBeginning:
    def test_the_weights_of_another_run_are_not_lost(self, folder: Path, tmp_path: Path) -> None:
        """A fine-tuning that is killed before its first look goes on from the weights that it began with."""
        train(small(folder), tmp_path / "other")
        config = small(folder, "train.seed=5")
        begun(config, tmp_path / "run", start_from=load(tmp_path / "other"))
        train(config, tmp_path / "run", resume=True)
        train(config, tmp_path / "whole", start_from=load(tmp_path / "other"))
        for name in ("snapshots/000000", "model"):
            run, whole = (read_weights(tmp_path / one / f"{name}.safetensors")[0] for one in ("run", "whole"))
            assert all(torch.equal(run[key], whole[key]) for key in whole)

    def test_nothing_stays_of_a_run_without_a_state(self, folder: Path, tmp_path: Path) -> None:
        """A second vocabulary, copies of weights, half a file: all of them would be taken for the new run's."""
        files = RunFiles(tmp_path / "run")
        begun(small(folder, "target_text.kind=letters", "model.tying=none"), files.directory)
        files.state.unlink()
        (files.snapshots / "000003.safetensors").write_bytes(b"old")
        (files.directory / ".model.safetensors.17.part").write_bytes(b"half")
        train(small(folder), files.directory, resume=True)
        assert not (files.directory / "source_tokenizer.json").exists()
        assert files.snapshot_steps() == [0, 4, 8, 12]
        assert not list(files.directory.rglob(".*.part"))
        train(small(folder), tmp_path / "whole")
        assert load(files.directory).vocabularies.source == load(tmp_path / "whole").vocabularies.source

    def test_a_folder_with_a_configuration_is_no_run(self, folder: Path, tmp_path: Path) -> None:
        """Somebody's project, which has a config.toml of its own, and perhaps a metrics.jsonl."""
        (tmp_path / "mine").mkdir()
        for name in ("config.toml", "metrics.jsonl"):
            (tmp_path / "mine" / name).write_text("# mine")
        with pytest.raises(CheckpointError, match="mine is in use, and not by a run"):
            train(small(folder), tmp_path / "mine", resume=True)
        assert [path.read_text() for path in (tmp_path / "mine").iterdir()] == ["# mine", "# mine"]

    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            ("train.class_weights=balanced", "class weights are for classifiers"),
            ("data.max_length=1000", "does not fit into memory"),
        ],
    )
    def test_what_is_refused_leaves_nothing_behind(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, sentence: str
    ) -> None:
        def full(self: Learner, batch: object) -> None:
            raise torch.OutOfMemoryError("out of memory")

        monkeypatch.setattr(Learner, "try_step", full)
        with pytest.raises((ConfigError, TrainingError), match=sentence):
            train(small(folder, change), tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_other_validation_examples_do_not_go_on(self, folder: Path, tmp_path: Path) -> None:
        begun(small(folder), tmp_path / "run")
        (folder / "dev.tsv").write_text("red\tred\n")
        with pytest.raises(ConfigError, match=r"a file of data\.train or data\.validation has changed"):
            train(small(folder), tmp_path / "run", resume=True)

    def test_lines_that_a_power_cut_took(self, folder: Path, tmp_path: Path) -> None:
        """What is missing of metrics.jsonl is not made up for with zero bytes."""
        begun(small(folder, "train.evaluate_every=1"), tmp_path / "run")
        metrics = tmp_path / "run/metrics.jsonl"
        metrics.write_bytes(metrics.read_bytes()[:-100])
        kept = metrics.read_bytes()
        train(small(folder, "train.evaluate_every=1"), tmp_path / "run", resume=True)
        assert metrics.read_bytes().startswith(kept)
        assert b"\0" not in metrics.read_bytes()


class TestTrial:
    def test_it_changes_nothing(self, folder: Path, tmp_path: Path) -> None:
        """Not even where a gradient is infinite; and Adam's moments are there when it is measured, and gone after."""
        trainer = Trainer(small(folder), tmp_path / "run", lambda _: None)
        learner = trainer._learner()
        before = [p.detach().clone() for p in learner.model.parameters()]
        next(learner.model.parameters()).register_hook(lambda gradient: torch.full_like(gradient, torch.inf))
        taken: list[int] = []
        step = learner._optimizer.step

        def counted() -> None:
            step()
            taken.append(len(learner._optimizer.state))

        learner._optimizer.step = counted  # type: ignore[method-assign, assignment]
        learner.try_step(trainer.feed.heaviest()[0])
        assert all(torch.equal(a, b) for a, b in zip(before, learner.model.parameters(), strict=True))
        assert taken == [len(before)]
        assert not learner._optimizer.state

    def test_many_targets_are_tried_too(self, folder: Path) -> None:
        """Long sources make the batch of the most tokens, but a row of logits stands behind each target token."""
        lines = ["red " * 100 + "\tred"] * 64 + ["red " * 90 + "\t" + "red " * 88] * 64
        (folder / "train.tsv").write_text("\n".join(lines))
        config = small(folder, "train.batch_size=64")
        assert config.train is not None
        first, second = Corpus(config).feed(config.train).heaviest()
        assert first.source is not None
        assert first.source.shape == (64, 100)
        assert second.labels.shape == (64, 89)

    def test_no_memory_in_the_middle(self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(self: Learner, *_: object) -> Update:
            raise torch.OutOfMemoryError("CUDA out of memory")

        monkeypatch.setattr(Learner, "step", full)
        with pytest.raises(TrainingError, match=r"step 1 does not fit into memory: lower train\.batch_tokens"):
            train(small(folder), tmp_path / "run")


class TestMeasuring:
    def test_what_the_model_cannot_read_is_left_out_of_both(self, folder: Path, tmp_path: Path) -> None:
        """A validation text longer than the positions, and an example longer than data.max_length."""
        write_labelled(folder)
        with (folder / "dev.csv").open("a") as file:
            file.write(f"{'blue ' * 30},blue\n")
        changes = ("model.positions.kind=learned", "model.positions.size=12", "train.metric=accuracy")
        assert train(small(folder, *changes, kind="encoder"), tmp_path / "run")
        (folder / "dev.tsv").write_text("red green blue\tblue green red\nred\tred\n")
        corpus = Corpus(small(folder, "data.max_length=2"))
        assert len(corpus.examples("validation")) == 1
        assert corpus.texts("validation", only_learnable=True) == (["red"], [["red"]])
        assert len(corpus.texts("validation")[0]) == 2

    def test_texts_are_as_in_training(self, folder: Path) -> None:
        """Blanks at the ends stay, as the model has learnt them; a reference is what one line can hold."""
        rows = [{"source": "red ", "target": "red\nblue"}, {"source": " green", "target": " green"}]
        (folder / "dev.jsonl").write_text("\n".join(map(json.dumps, rows)))
        (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
        corpus = Corpus(
            small(folder, "data.train=['train.jsonl']", "data.validation=['dev.jsonl']", "text.kind=letters")
        )
        assert corpus.texts("validation") == (["red ", " green"], [["red blue"], [" green"]])

    def test_a_part_is_drawn_from_all(self, folder: Path) -> None:
        """A file that is sorted by class would show but one."""
        write_labelled(folder)
        (folder / "dev.csv").write_text("text,team\n" + "a,blue\n" * 50 + "b,green\n" * 50)
        texts, names = Corpus(small(folder, kind="encoder")).texts("validation", 20)
        assert len(texts) == 20
        assert {name for (name,) in names} == {"blue", "green"}
        assert (texts, names) == Corpus(small(folder, kind="encoder")).texts("validation", 20)
        assert texts == sorted(texts)  # in their order

    def test_the_logits_of_a_look_have_a_limit(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(validation, "LOGITS", 200)
        trainer = Trainer(small(folder), tmp_path / "run", lambda _: None)
        assert trainer.validation is not None
        areas: list[int] = []
        model = Transformer(trainer.config).eval()
        model.logits.register_forward_hook(lambda _, __, logits: areas.append(logits.numel()))
        trainer.validation.measure(model)
        n = trainer.config.model.target_vocabulary or 0
        assert max(areas) <= 200 + 8 * n  # one row alone may be larger

    @pytest.mark.parametrize("ema", ["", "0.9"])
    def test_a_look_is_at_what_is_kept(self, folder: Path, tmp_path: Path, ema: str) -> None:
        """Of the averaged weights where there are some, and without dropout."""
        config = small(folder, "train.evaluate_every=4", "model.dropout.residual=0.5", f"train.ema={ema}")
        looks = {one.step: one for one in train(config, tmp_path / "run") if isinstance(one, Evaluated)}
        trainer = Trainer(config, tmp_path / "other", lambda _: None)
        assert trainer.validation is not None
        for step in (4, 8, 12):
            model = Transformer(trainer.config).eval()
            load_weights(model, RunFiles(tmp_path / "run").snapshot(step))
            assert looks[step].validation_loss == trainer.validation.measure(model).loss

    def test_where_no_step_went_well(self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Learner, "step", lambda *_: Update(float("inf"), 8, float("inf"), skipped=True))
        looks = [one for one in train(small(folder), tmp_path / "run") if isinstance(one, Evaluated)]
        assert {look.loss for look in looks} == {None}
        lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
        assert [json.loads(line).get("loss") for line in lines] == [None] * len(lines)


def test_weights_that_are_no_numbers_are_no_run(folder: Path, tmp_path: Path) -> None:
    """A rate far too high: no such look is the best, and no run is made of it."""
    events: list[Event] = []
    with pytest.raises(TrainingError, match="they, or the loss that they give, are infinite or no numbers"):
        Trainer(small(folder, "train.schedule.peak=1e30"), tmp_path / "run", events.append).train()
    looks = [event for event in events if isinstance(event, Evaluated)]
    assert looks
    assert not any(look.is_best for look in looks)
    assert not (tmp_path / "run/model.safetensors").exists()


def test_another_vocabulary_to_begin_with(folder: Path, tmp_path: Path) -> None:
    train(small(folder), tmp_path / "other")
    with pytest.raises(ConfigError, match=r"another model or vocabulary: text\.kind='letters', not 'words'"):
        train(small(folder, "text.kind=letters"), tmp_path / "run", start_from=load(tmp_path / "other"))


def test_a_warm_up_without_an_end_is_told(folder: Path, tmp_path: Path) -> None:
    start = train(small(folder, "train.schedule.warmup_steps=13"), tmp_path / "run")[0]
    assert isinstance(start, Started)
    assert [finding.text for finding in start.findings] == [
        "the training ends after 12 steps, before its warm-up of 13 does: the learning rate only rises"
    ]


def test_a_full_disk_is_called_so(folder: Path, tmp_path: Path) -> None:
    """The library that writes the weights gives its own error; what to do is said nevertheless."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(CheckpointError, match=r"File too large; nothing was changed there: free some space, or"):
            train(small(folder), tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_task_has_its_own_vocabulary() -> None:
    from glassformer.config import preset

    with pytest.raises(ConfigError, match=r"the task 'reversal' has a vocabulary of its own: leave \[text\] out"):
        preset("reversal", ["text.kind=letters"])


def test_sources_are_cut_as_in_training(folder: Path, tmp_path: Path) -> None:
    """An encoder–decoder that learnt from sources of two tokens reads two."""
    events = train(small(folder, "data.max_length=2", "data.truncate=true"), tmp_path / "run")
    assert isinstance(events[0], Started)
    writer = load(tmp_path / "run").writer()
    prompt = writer.prompt("red green blue gold")
    assert (len(prompt.source or ()), prompt.n_cut) == (2, 2)


def test_windows_are_gone_on_from_as_they_were_learnt(folder: Path, tmp_path: Path) -> None:
    """A vocabulary from a file may have a start token, which no window of a text shows."""
    train(small(folder, kind="decoder"), tmp_path / "other")
    (folder / "text.txt").write_text("red green blue gold " * 50)
    changes = (
        "data.train=['text.txt']", "data.validation=[]", "data.window=8", "text.kind=",
        f"text.file='{tmp_path / 'other/tokenizer.json'}'", "model.source_vocabulary=",
    )  # fmt: skip
    train(small(folder, *changes, kind="decoder"), tmp_path / "run")
    run = load(tmp_path / "run")
    assert run.tokenizer.start_id is not None
    assert run.writer().prompt("red").read == run.tokenizer.encode("red")
