"""Faults that users of such software report about data and training, each as a case.

The numbers are those of the list that this project keeps. Others of its training half: 7 in tests/data/test_corpus.py,
8 and 10 in tests/text/, 29 in tests/test_checkpoint.py.
"""

import copy
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from glassformer.checkpoint import read_weights
from glassformer.config import Config
from glassformer.data.batch import pairs
from glassformer.errors import CheckpointError, ConfigError, DataError
from glassformer.learn.events import Evaluated, Event, Started, Stepped
from glassformer.learn.learner import Learner
from glassformer.learn.loss import Objective
from glassformer.learn.trainer import Trainer
from glassformer.learn.validation import Validation
from glassformer.model.transformer import Transformer
from glassformer.run import load
from tests.conftest import Cli
from tests.learn.corpora import small


def trained(config: Config, directory: Path) -> list[Event]:
    events: list[Event] = []
    Trainer(config, directory, events.append).train()
    return events


def learner(config: Config, *, double: bool = True) -> Learner:
    torch.manual_seed(3)
    model = Transformer(config)
    assert config.train is not None
    return Learner(model.double() if double else model, config.train, Objective(config.train.label_smoothing))


def sized(folder: Path, *overrides: str) -> Config:
    """The small configuration with its vocabulary's size filled in, and no dropout."""
    return Trainer(small(folder, "model.dropout.residual=0.0", *overrides), "nowhere", lambda _: None).config


BATCHES = [  # of 9, 2 and 4 labels
    pairs([[5, 6, 7], [4]], [[4, 5, 6, 7, 8], [9, 5]], start=1, end=2),
    pairs([[8, 8]], [[7]], start=1, end=2),
    pairs([[9, 4, 4, 4]], [[5, 5, 5]], start=1, end=2),
]


def test_1_a_pair_is_never_shifted(folder: Path, tmp_path: Path) -> None:
    """x1, nothing, x3 with y1, y2, nothing: only (x1, y1) is learnt from, and the others are counted."""
    (folder / "a.en").write_text("x1\n\nx3\n")
    (folder / "a.de").write_text("y1\ny2\n\n")
    config = small(
        folder, "data.train=['a.en', 'a.de']", "data.format='parallel'", "data.validation=[]", "train.steps=2"
    )
    start = trained(config, tmp_path / "run")[0]
    assert isinstance(start, Started)
    assert start.n_examples == 1
    assert [finding.text for finding in start.findings] == ["2 of 3 examples are left out: one side is blank"]
    tokens = load(tmp_path / "run").tokenizer
    trainer = Trainer(config, tmp_path / "again", lambda _: None)
    ((batch,),) = trainer.feed.steps(1)
    assert batch.source is not None
    assert (tokens.tokens(batch.source[0].tolist()), tokens.tokens(batch.labels[0].tolist())) == (
        ["x1"],
        ["y1", "</s>"],
    )


def test_4_files_that_do_not_fit_together(folder: Path, here: Cli, tmp_path: Path) -> None:
    (folder / "a.en").write_text("x\n" * 10)
    (folder / "a.de").write_text("y\n" * 9)
    config = small(folder, "data.train=['a.en', 'a.de']", "data.format='parallel'", "data.validation=[]")
    with pytest.raises(DataError, match=r"a\.en has 10 lines, but .*a\.de has 9"):
        Trainer(config, tmp_path / "run", lambda _: None)
    (folder / "train.tsv").write_bytes(b"a\tb\n" * 6 + "Stra\u00dfe\tx\n".encode("latin-1") + b"a\tb\n")
    with pytest.raises(DataError, match=r"train\.tsv, line 7 is not UTF-8"):
        Trainer(small(folder), tmp_path / "run", lambda _: None)
    assert not (tmp_path / "run").exists()


def test_6_a_vocabulary_of_another_format(folder: Path, here: Cli, tmp_path: Path) -> None:
    """A list of words is no vocabulary that is read; one that hardly fits the text is told of before training."""
    (folder / "words.txt").write_text("red\ngreen\n")
    values = small(folder).model_dump(exclude_none=True)
    with pytest.raises(DataError, match=r"words\.txt"):
        Trainer(Config.model_validate(values | {"text": {"file": str(folder / "words.txt")}}), "x", lambda _: None)
    (folder / "mine.toml").write_text(
        f"[model]\nn_encoder_layers = 1\nn_decoder_layers = 1\nd_model = 16\nd_ff = 32\nn_heads = 2\n"
        f"[data]\nfolder = '{folder}'\ntrain = ['train.tsv']\n[text]\nkind = 'words'\nsize = 9\n[train]\nsteps = 1\n"
    )
    done = here("train", folder / "mine.toml", "--run", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "of the source tokens are unknown to the vocabulary" in done.stderr


def test_9_another_vocabulary_size(folder: Path, tmp_path: Path) -> None:
    trained(small(folder, "train.steps=1"), tmp_path / "run")
    n = load(tmp_path / "run").tokenizer.size
    with pytest.raises(
        ConfigError, match=rf"the data have a vocabulary of {n} tokens, but model\.source_vocabulary=99"
    ):
        Trainer(small(folder, "model.source_vocabulary=99", "model.target_vocabulary=99"), "x", lambda _: None)
    config = (tmp_path / "run/config.toml").read_text().replace(f"_vocabulary = {n}", "_vocabulary = 99")
    (tmp_path / "run/config.toml").write_text(config)
    with pytest.raises(CheckpointError, match=rf"has {n} tokens, but its model was built for 99"):
        load(tmp_path / "run")


def test_11_a_character_that_was_never_seen(folder: Path, tmp_path: Path) -> None:
    for kind in ("words", "letters", "bytes", "bpe"):
        values = small(folder, "train.steps=1").model_dump(exclude_none=True)
        text = {"kind": kind} | ({"size": 300} if kind == "bpe" else {})
        trained(Config.model_validate(values | {"text": text}), tmp_path / kind)
        run = load(tmp_path / kind)
        assert isinstance(run.translate("\u65e5\u672c \U0001f600"), str)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_13_and_14_padding_in_training(folder: Path, precision: str) -> None:
    """A row that is all padding, in each precision: finite gradients, the same as without that row."""
    own = learner(sized(folder, f"train.precision='{precision}'"), double=False)
    batch = BATCHES[0]
    assert batch.source is not None
    assert batch.source_is_real is not None
    assert batch.target is not None
    padding = torch.zeros_like(batch.source[:1])
    with_padding = copy.copy(batch)
    more = {
        "source": torch.cat([batch.source, padding]),
        "source_is_real": torch.cat([batch.source_is_real, torch.zeros_like(padding, dtype=torch.bool)]),
        "target": torch.cat([batch.target, torch.zeros_like(batch.target[:1])]),
        "labels": torch.cat([batch.labels, torch.full_like(batch.labels[:1], -100)]),
    }
    with_padding = type(batch)(**more)
    found = []
    for one in (batch, with_padding):
        own._optimizer.zero_grad()
        loss, n = own.gradients([one])
        found.append(
            (loss, n, [p.grad.clone() / own.counters.scale for p in own.model.parameters() if p.grad is not None])
        )
    assert found[0][1] == found[1][1] == 9
    close = 1e-6 if precision == "float32" else 2e-2
    assert found[1][0] == pytest.approx(found[0][0], rel=close)
    for a, b in zip(found[0][2], found[1][2], strict=True):
        assert b.isfinite().all()
        assert (a - b).abs().max() <= close * max(1.0, float(a.abs().max()))


class TestArithmetic:
    def test_23_unequal_parts_give_the_gradient_of_the_whole(self, folder: Path) -> None:
        own = learner(sized(folder))
        own.gradients(BATCHES)
        parts = {name: p.grad.clone() for name, p in own.model.named_parameters() if p.grad is not None}
        own._optimizer.zero_grad()
        logits = [own.model(b.source, b.target, source_is_real=b.source_is_real) for b in BATCHES]
        labels = torch.cat([batch.labels.flatten() for batch in BATCHES])
        every = torch.cat([one.flatten(0, 1) for one in logits])
        torch.nn.functional.cross_entropy(every, labels, label_smoothing=0.1).backward()
        for name, p in own.model.named_parameters():
            assert p.grad is not None
            assert (p.grad - parts[name]).abs().max() <= 1e-12, name

    def test_23_the_last_window_is_used(self, folder: Path, tmp_path: Path) -> None:
        """120 examples in batches of 8 are 15 batches: at 4 a step the last step has 3, and none is dropped."""
        config = small(folder, "train.accumulate=4", "train.steps=4", "model.dropout.residual=0.0")
        trainer = Trainer(config, tmp_path / "run", lambda _: None)
        sizes = [[len(batch) for batch in step] for step in trainer.feed.steps(1)]
        assert sizes == [[8] * 4, [8] * 4, [8] * 4, [8] * 3]

    def test_24_perplexity_is_of_the_unsmoothed_mean_over_tokens(self, folder: Path, tmp_path: Path) -> None:
        trainer = Trainer(small(folder), tmp_path / "run", lambda _: None)
        model = trainer.train().model
        validation = Validation(trainer.corpus, trainer.settings)
        examples, total, n = trainer.corpus.examples("validation"), 0.0, 0
        for i in range(len(examples)):  # one by one: no padding at all
            batch = examples.batch([i])
            with torch.no_grad():
                log_p = model(batch.source, batch.target).double().log_softmax(-1)
            total -= float(log_p.gather(-1, batch.labels[..., None]).sum())
            n += batch.labels.numel()
        assert validation.measure(model).loss == pytest.approx(total / n, rel=1e-6)

    def test_25_clipped_after_unscaling(self, folder: Path) -> None:
        """With float16's scale of 65 536 the clipped update is what it is without."""
        changes = ("train.optimizer.clip=0.01", "train.schedule.kind='constant'", "train.optimizer.eps=1.0")
        plain, scaled = (learner(sized(folder, *changes)) for _ in range(2))
        scaled.counters.scale = 2.0**16
        updates = [own.step(BATCHES, rate=0.1) for own in (plain, scaled)]
        assert updates[0].gradient_norm > 0.01
        assert updates[1].gradient_norm == pytest.approx(updates[0].gradient_norm)
        for a, b in zip(plain.model.parameters(), scaled.model.parameters(), strict=True):
            assert (a - b).abs().max() <= 1e-12
        norms = [
            sum(float(p.grad.square().sum()) for p in own.model.parameters() if p.grad is not None)
            for own in (plain, scaled)
        ]
        assert norms == pytest.approx([0.01**2, 0.01**2])

    @pytest.mark.parametrize("precision", ["float32", "float16"])
    def test_25_an_infinite_gradient_skips_a_step_and_is_counted(self, folder: Path, precision: str) -> None:
        own = learner(sized(folder, f"train.precision='{precision}'"), double=False)
        parameter = next(own.model.parameters())
        handle = parameter.register_hook(lambda gradient: torch.full_like(gradient, torch.inf))
        before = [p.detach().clone() for p in own.model.parameters()]
        assert own.step(BATCHES, rate=0.1).skipped
        handle.remove()
        assert all(torch.equal(a, b) for a, b in zip(before, own.model.parameters(), strict=True))
        assert (own.counters.skipped, own.counters.updates) == (1, 0)
        assert own.counters.scale == (2.0**15 if precision == "float16" else 1.0)
        assert not own.step(BATCHES, rate=0.1).skipped
        assert not any(torch.equal(a, b) for a, b in zip(before, own.model.parameters(), strict=True))

    def test_26_the_rate(self, folder: Path, tmp_path: Path, here: Cli) -> None:
        events = trained(small(folder), tmp_path / "run")
        first = next(event for event in events if isinstance(event, Stepped))
        assert first.rate == pytest.approx(0.0015)
        (start,) = [event for event in events if isinstance(event, Started)]
        assert (start.peak_rate, start.peak_step) == (0.003, 2)
        done = here(
            "train", "reversal", "--run", tmp_path / "toy", "--set", "train.steps=2", "--set", "data.test_size=5"
        )
        assert done.stderr.index("the learning rate has its peak of 3.13e-05 at step 2") < done.stderr.index(
            "training loss"
        )


KILLED = """
import os, signal, sys
from glassformer.learn.events import Stepped
from glassformer.learn.trainer import Trainer
from tests.learn.corpora import small
from pathlib import Path

folder, directory, at, *changes = sys.argv[1:]

def on_event(event):
    if isinstance(event, Stepped) and event.step == int(at):
        os.kill(os.getpid(), signal.SIGKILL)

Trainer(small(Path(folder), *changes), directory, on_event, resume=True).train()
"""


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_27_killed_in_the_middle_and_resumed(folder: Path, tmp_path: Path, precision: str) -> None:
    """200 steps at a stretch equal 100, kill -9 some steps later, and 100 more: bit for bit, with dropout.

    An epoch has 15 steps, so that step 100 lies in the middle of one; the count of looks without a new best goes on.
    """
    changes = [
        "train.steps=200", "train.evaluate_every=50", "train.snapshot_every=50", "train.patience=100",
        "train.metric='exact_match'", "model.dropout.attention=0.1", f"train.precision='{precision}'",
    ]  # fmt: skip

    def run(name: str, kill_at: int) -> int:
        call = [sys.executable, "-c", KILLED, str(folder), str(tmp_path / name), str(kill_at), *changes]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        return subprocess.run(call, check=False, cwd=Path(__file__).parents[1], env=environment).returncode

    assert run("whole", 0) == 0
    assert run("parts", 117) == -signal.SIGKILL
    assert (tmp_path / "parts/state.safetensors").exists()
    assert run("parts", 0) == 0
    for name in ("model", "snapshots/000150", "snapshots/000200"):
        whole, parts = (read_weights(tmp_path / run / f"{name}.safetensors")[0] for run in ("whole", "parts"))
        assert all(torch.equal(whole[key], parts[key]) for key in whole)
    looks = [(tmp_path / run / "metrics.jsonl").read_text().splitlines() for run in ("whole", "parts")]
    assert len(looks[0]) == len(looks[1]) == 6


def test_30_one_long_line(folder: Path, tmp_path: Path, here: Cli) -> None:
    """A line of 3 000 tokens: told before training, and its batch is the first that is tried."""
    with (folder / "train.tsv").open("a") as file:
        file.write(f"{'red ' * 3000}\tred\n")
    events: list[Event] = []
    trainer = Trainer(small(folder, "train.steps=2", "train.batch_size=2"), tmp_path / "run", events.append)
    seen: list[int] = []
    trainer_model = Transformer.forward

    def forward(self: Transformer, source: torch.Tensor, *more: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        seen.append(source.shape[1])
        return trainer_model(self, source, *more, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transformer, "forward", forward)
        trainer.train()
    assert seen[0] == 3000
    assert isinstance(events[0], Started)
    assert events[0].heaviest == (2, 3000)
    (finding,) = events[0].findings
    assert "the longest example has 3,000 tokens" in finding.text
    assert "set data.max_length" in finding.text
    config = small(folder, "train.steps=1", "data.max_length=50")
    start = trained(config, tmp_path / "short")[0]
    assert isinstance(start, Started)
    assert start.n_examples == 120
    assert "1 of 121 examples is left out: longer than data.max_length" in start.findings[0].text


def test_31_tied_matrices_stay_tied(folder: Path, tmp_path: Path) -> None:
    """After training, resuming and loading: one storage, written once."""
    trained(small(folder), tmp_path / "run")
    tensors, _ = read_weights(tmp_path / "run/model.safetensors")
    assert [name for name in tensors if "tokens" in name or name.startswith("output")] == [
        "encoder.embedding.tokens.weight"
    ]
    model = load(tmp_path / "run").model
    assert model.encoder is not None
    assert model.decoder is not None
    assert model.output is not None
    shared = {model.encoder.embedding.tokens.weight, model.decoder.embedding.tokens.weight, model.output.weight}
    assert len(shared) == 1


def test_36_a_run_half_written_never_loads(folder: Path, tmp_path: Path) -> None:
    """Killed while it writes its last file: no run yet, the state intact, and it goes on to the end."""
    config = small(folder)

    def break_off(event: Event) -> None:
        if isinstance(event, Evaluated) and event.step == 12:
            raise MemoryError

    with pytest.raises(MemoryError):
        Trainer(config, tmp_path / "run", break_off).train()
    (tmp_path / "run/.model.safetensors.123.part").write_bytes(b"half")
    with pytest.raises(CheckpointError, match="is not finished"):
        load(tmp_path / "run")
    Trainer(config, tmp_path / "run", lambda _: None, resume=True).train()
    trained(config, tmp_path / "whole")
    a, b = (read_weights(tmp_path / run / "model.safetensors")[0] for run in ("run", "whole"))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_36_a_full_disk_leaves_the_last_state(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from glassformer.learn import keeper

    real, config, written = keeper.save_tensors, small(folder, "train.steps=30"), []

    def full(tensors: dict[str, torch.Tensor], path: Path, notes: dict[str, str]) -> None:
        written.append(path)
        if len(written) == 4:  # after those of steps 0, 5 and 10
            raise CheckpointError(f"cannot write {path}: No space left on device")
        real(tensors, path, notes)

    monkeypatch.setattr(keeper, "save_tensors", full)
    with pytest.raises(CheckpointError, match="No space left"):
        trained(config, tmp_path / "run")
    monkeypatch.undo()
    events: list[Event] = []
    Trainer(config, tmp_path / "run", events.append, resume=True).train()
    assert isinstance(events[0], Started)
    assert events[0].step == 10
    trained(config, tmp_path / "whole")
    a, b = (read_weights(tmp_path / run / "model.safetensors")[0] for run in ("run", "whole"))
    assert all(torch.equal(a[name], b[name]) for name in a)
