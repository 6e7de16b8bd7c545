"""`glassformer check`: the data doctor. What stands in the examples, what is wrong with them, and if a batch fits."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import typer

from glassformer.cli.options import ConfigArgument, DeviceOption, JsonOption, SetOption
from glassformer.cli.show import counted, print_json, table
from glassformer.config import Config, load_config
from glassformer.errors import ConfigError, GlassformerError

if TYPE_CHECKING:
    from glassformer.data.corpus import Corpus
    from glassformer.data.doctor import Diagnosis, Finding, SplitReport
    from glassformer.learn.trainer import Trainer

COLOURS = {"error": typer.colors.RED, "warning": typer.colors.YELLOW, "note": typer.colors.BLUE}  # the worst first
MOST_CLASSES = 20  # that are printed; --json has all
ODD = {
    "copied": "source and target the same",
    "odd_ratio": "lengths that do not match",
    "replacement_characters": "with U+FFFD",
    "mojibake": "with characters such as Ã¤",
    "control_characters": "with control characters",
    "carriage_returns": "with carriage returns",
    "byte_order_marks": "with byte order marks",
}


@dataclass(frozen=True)
class Heaviest:
    """The batch that needs the most memory, forward and backward once."""

    rows: int
    tokens: int  # of its longest row
    seconds: float
    peak_memory: int | None  # bytes that the process, or the device, held at most so far; None: the system does not say


def check(
    config: ConfigArgument, set_: SetOption = None, device: DeviceOption = "cpu", json: JsonOption = False
) -> None:
    """Look at the data before any training: counts, lengths, unknown tokens, repetitions, damaged characters.

    Also whether test or validation texts stand in train, and whether the heaviest batch fits into memory. The exit
    code is 1 if training would refuse, or make no sense.
    """
    loaded = load_config(config, set_ or ())
    if loaded.data is None:
        raise ConfigError(
            f"there is nothing to check in {config}: it has no [data] part, which names the examples; "
            "presets with one: reversal, number-words, router"
        )
    from glassformer.data.doctor import Finding, examine

    corpus, trainer, refusal = _prepared(loaded, device)
    diagnosis = examine(corpus)
    findings, heaviest = list(diagnosis.findings), None
    if refusal is not None and not any(refusal in finding.text for finding in findings):
        findings.append(Finding("error", refusal))
    if not json:
        _show(config, corpus, diagnosis)
        _show_findings(findings)
    if trainer is not None:
        try:
            heaviest = _tried(trainer, device)
        except GlassformerError as error:
            findings.append(Finding("error", str(error)))
            if not json:
                _show_findings(findings[-1:])
    if json:
        splits = [asdict(report) for report in diagnosis.splits]
        found = {"config": config, "vocabularies": _vocabularies(corpus), "splits": splits}
        print_json({**found, "findings": findings, "heaviest_batch": heaviest})
    elif heaviest is not None:
        memory = "" if heaviest.peak_memory is None else f"; {_size(heaviest.peak_memory)} of memory at the peak"
        typer.echo(
            f"The heaviest batch, {counted(heaviest.rows, 'row')} of {counted(heaviest.tokens, 'token')}, took "
            f"{heaviest.seconds:.2f} s forward and backward{memory}."
        )
    elif trainer is None:
        reason = "the configuration has no [train] part" if loaded.train is None else "training would refuse"
        typer.echo(f"No batch was tried: {reason}.")
    if any(finding.severity == "error" for finding in findings):
        raise typer.Exit(1)


def _prepared(config: Config, device: str) -> "tuple[Corpus, Trainer | None, str | None]":
    """Return the corpus, and what would train on it; or why training refuses."""
    from glassformer.data.corpus import Corpus
    from glassformer.learn.trainer import Trainer

    if config.train is None:
        return Corpus(config), None, None
    try:
        with TemporaryDirectory() as empty:  # it writes nothing there before it trains
            trainer = Trainer(config, empty, lambda _: None, device=device)
    except GlassformerError as error:
        return Corpus(config), None, str(error)
    return trainer.corpus, trainer, None


def _tried(trainer: "Trainer", device: str) -> Heaviest:
    """Go through the heaviest batch as training does before its first step.

    Raises:
        TrainingError: It does not fit into memory.

    """
    started = trainer.try_heaviest()
    return Heaviest(*started.heaviest, started.heaviest_seconds, _peak_memory(device))


def _peak_memory(device: str) -> int | None:
    if device.startswith("cuda"):
        import torch

        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows has no such module
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _vocabularies(corpus: "Corpus") -> list[dict[str, Any]]:
    """Describe the vocabulary of each side; one where both have the same."""
    words, found = corpus.vocabularies, []
    for name, tokenizer in (("text", words.source), ("target_text", words.target)):
        if name == "target_text" and words.target is words.source:
            continue
        settings = getattr(corpus.config, name)
        kind = "of the task" if settings is None else (settings.file or settings.kind)
        found.append({"name": name, "kind": kind, "size": tokenizer.size, "normalised": tokenizer.normalised})
    return found


def _show(name: str, corpus: "Corpus", diagnosis: "Diagnosis") -> None:
    kind, classes = corpus.config.model.kind, corpus.vocabularies.classes
    what = f"{corpus.data.task!r}, which makes its own examples" if corpus.data.task else ", ".join(corpus.data.train)
    typer.echo(f"{name}: a model of kind {kind!r} learns from {what}")
    for one in _vocabularies(corpus):
        of = {"text": "of both sides", "target_text": "of the targets"}[one["name"]]
        of = "of the sources" if corpus.config.target_text and one["name"] == "text" else of
        of = f" {of}" if kind == "encoder-decoder" else ""
        typer.echo(f"vocabulary{of}: {one['kind']}, {one['size']:,} tokens; normalised: {one['normalised']}")
    splits = diagnosis.splits
    if not splits:
        return
    names = [report.split for report in splits]
    table(("examples", *names), _counts(splits, in_windows=bool(corpus.data.window)), align="l" + "r" * len(names))
    _show_lengths(splits, in_windows=bool(corpus.data.window))
    if classes:
        largest = sorted(classes, key=lambda name: -max(report.classes[name] for report in splits))[:MOST_CLASSES]
        rows = [(name, *(f"{report.classes[name]:,}" for report in splits)) for name in largest]
        table(("class", *names), rows, align="l" + "r" * len(names))
        if len(classes) > MOST_CLASSES:
            typer.echo(f"and {len(classes) - MOST_CLASSES:,} more, with fewer examples")


def _counts(splits: "Sequence[SplitReport]", *, in_windows: bool) -> list[tuple[str, ...]]:
    """Return the rows of the counts: the first two always, and those of which there is something to tell."""
    reasons = list(dict.fromkeys(reason for report in splits for reason in report.left_out))

    def numbers(report: "SplitReport") -> dict[str, int | None]:
        sources, pairs = report.sources_in_train, report.pairs_in_train
        return {
            "lines" if in_windows else "read": report.read,
            "windows" if in_windows else "kept": report.kept,
            **{f"left out: {reason.replace('_', ' ')}": report.left_out.get(reason, 0) for reason in reasons},
            "kept, but cut": report.cut,
            "repetitions of an earlier one": report.duplicates,
            "an earlier source, another target": report.other_targets,
            **{what: report.odd[name].count for name, what in ODD.items() if name in report.odd},
            "source stands in train": None if sources is None else sources.count,
            "source and target stand in train": None if pairs is None else pairs.count,
        }

    columns = [numbers(report) for report in splits]
    rows = [(name, [column[name] for column in columns]) for name in columns[0]]
    return [
        (name, *("" if value is None else f"{value:,}" for value in values))
        for place, (name, values) in enumerate(rows)
        if place < 2 or any(values)
    ]


def _show_lengths(splits: "Sequence[SplitReport]", *, in_windows: bool) -> None:
    columns = ("window",) if in_windows else ("shortest", "median", "95 %", "longest", "where")
    rows: list[tuple[str, ...]] = []
    for report in splits:
        for side in report.sides:
            lengths = (side.longest,) if in_windows else (side.shortest, side.median, side.percentile_95, side.longest)
            share = f"{100 * side.unknown / max(1, side.tokens):.2f} %"
            where = () if in_windows else (side.longest_at,)
            rows.append((report.split, side.name, f"{side.tokens:,}", share, *(f"{n:,}" for n in lengths), *where))
    table(("tokens", "", "in all", "unknown", *columns), rows, align="llrr" + ("r" if in_windows else "rrrrl"))


def _show_findings(findings: "Sequence[Finding]") -> None:
    for severity, colour in COLOURS.items():
        for finding in findings:
            if finding.severity == severity:
                typer.echo(f"{typer.style(f'{severity:<8}', fg=colour)} {finding.text}")


def _size(n: int) -> str:
    return f"{n / 1e9:.2f} GB" if n >= 1e9 else f"{n / 1e6:.0f} MB"
