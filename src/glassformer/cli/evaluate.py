"""`glassformer evaluate`: how good a run is, with intervals, signatures and a result file."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli.decoding import FIELDS, decoding
from glassformer.cli.options import (
    BatchSizeOption,
    DeviceOption,
    EnsembleOption,
    JsonOption,
    RunArgument,
    TruncateOption,
)
from glassformer.cli.show import as_json, counted, metric_value, print_json, table
from glassformer.cli.writing import load_runs
from glassformer.errors import DataError
from glassformer.files import write_text
from glassformer.text.lines import read_parallel

if TYPE_CHECKING:
    from glassformer.config import Config
    from glassformer.evaluate.metrics import Confusion
    from glassformer.evaluate.report import Evaluation
    from glassformer.text.vocabularies import Vocabularies

MOST_COLUMNS = 12  # classes whose confusion is printed; with more it stands in the result file


SourceOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The sources, a line each, .gz too. \\[default: the run's own test set]"),
]
TargetOption = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="The references, or classes, line by line. Repeatable: several references."),
]
MetricOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="bleu, chrf, exact_match, token_error_rate, phone_error_rate, accuracy or macro_f1. Repeatable.",
    ),
]
AgainstOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="What another system wrote, line by line: each metric is compared."),
]
ResultOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.json",
        help="Where the result goes, with what was written beside it as FILE.txt. \\[default: RUN/evaluation.json]",
    ),
]


@decoding(*(name for name in FIELDS if name != "n_best"))
def evaluate(
    run: RunArgument,
    source: SourceOption = None,
    target: TargetOption = None,
    metric: MetricOption = None,
    against: AgainstOption = None,
    result: ResultOption = None,
    ensemble: EnsembleOption = None,
    batch_size: BatchSizeOption = 64,
    truncate: TruncateOption = False,
    device: DeviceOption = "cpu",
    json: JsonOption = False,
    decode: dict[str, Any] = {},  # noqa: B006  filled by `decoding`
) -> None:
    """Write from each source, or classify it, and measure the result against the references.

    Each metric comes with its 95 % bootstrap interval and a signature. Lines without a source or a reference are left
    out and counted. The result file also tells the decoding settings, the weights and the versions.
    """
    if (source is None) != (not target):
        raise typer.BadParameter("--source and --target go together", param_hint="--target" if source else "--source")
    from glassformer.evaluate.report import evaluate as evaluate_run

    loaded, others = load_runs(run, ensemble, device)
    if source is not None:
        files = read_parallel([source, *(target or ()), *([against] if against else ())])
        theirs = files.pop() if against else None
        sources, references = files[0], [list(row) for row in zip(*files[1:], strict=True)]
    else:
        sources, references = _own_test_set(loaded.config, loaded.vocabularies, run)
        theirs = None if against is None else read_parallel([against])[0]
    path = run / "evaluation.json" if result is None else result
    inputs = [file for file in (source, *(target or ()), against) if file is not None]
    _check_outputs(path, inputs, [run, *(ensemble or ())])
    found = evaluate_run(
        loaded,
        sources,
        references,
        path.with_suffix(".txt"),
        metrics=metric or (),
        against=theirs,
        decode=decode,
        ensemble=others,
        batch_size=batch_size,
        truncate=truncate,
    )
    whole = {"run": str(run), "source": None if source is None else str(source), "target": [*map(str, target or ())]}
    whole |= {"against_file": None if against is None else str(against), "ensemble": [*map(str, ensemble or ())]}
    whole |= vars(found)
    write_text(path, as_json(whole, indent=2) + "\n")
    if json:
        print_json(whole)
    else:
        _show(found, path)


def _check_outputs(path: Path, inputs: Sequence[Path], runs: Sequence[Path]) -> None:
    """Refuse a name whose files would take the place of what is read, or that has no place."""
    from glassformer.run import RunFiles

    if path.suffix != ".json":
        raise typer.BadParameter(f"{path}: the name must end in .json", param_hint="--result")
    if not path.parent.is_dir():
        raise typer.BadParameter(f"there is no directory {path.parent}", param_hint="--result")
    inputs = [*inputs, *(file for run in runs for file in RunFiles(run).own())]
    for output in (path, path.with_suffix(".txt")):
        if any(output.resolve() == file.resolve() for file in inputs):
            raise typer.BadParameter(f"{output} would be written over; choose another name", param_hint="--result")


def _own_test_set(config: "Config", vocabularies: "Vocabularies", run: Path) -> tuple[list[str], list[list[str]]]:
    """Return the test examples that a run's configuration names."""
    from glassformer.data.corpus import Corpus

    if config.data is not None and config.data.window:
        raise DataError(
            f"{run} has learnt plain text, which has no sources and references: glassformer score {run} --input FILE "
            "gives its perplexity"
        )
    if config.data is None or not (config.data.task or config.data.test):
        raise DataError(
            f"{run} has no test set of its own, as its data.test names none: give --source and --target, or name files "
            "there before training"
        )
    return Corpus(config, vocabularies).texts("test")


def _show(found: "Evaluation", path: Path) -> None:
    rows = [
        (
            one.name,
            metric_value(one.name, one.value),
            f"{metric_value(one.name, one.low)} to {metric_value(one.name, one.high)}",
        )
        for one in found.metrics
    ]
    table(("metric", "value", "95 % interval"), rows, align="lrr")
    for one in found.metrics:
        typer.echo(one.signature)
    if found.against:
        compared = [
            (
                one.name,
                metric_value(one.name, one.ours),
                metric_value(one.name, one.theirs),
                _difference(one.name, one.difference),
                f"{one.p_value:.4f}",
                one.test,
            )
            for one in found.against
        ]
        table(("compared", "this run", "the other", "difference", "p", "test"), compared, align="lrrrrl")
    if found.confusion is not None:
        _show_classes(found.confusion)
    if found.perplexity is not None:
        typer.echo(f"perplexity {found.perplexity:.4f} over {found.n_tokens:,} tokens of the references")
    left_out = f"; {found.n_left_out} without a source or a reference were left out" if found.n_left_out else ""
    typer.echo(f"{counted(found.n_lines, 'line')}{left_out}")
    for n, what in (
        (found.n_cut, "cut at the length limit"),
        (found.n_truncated, "written from a source that was longer than the model's positions and was cut"),
    ):
        if n:
            typer.echo(f"{counted(n, 'result')} {what}")
    if found.n_unscored:
        typer.echo(f"{counted(found.n_unscored, 'reference')} that the vocabulary cannot read: not in the perplexity")
    typer.echo(f"The result is in {path}, what was written in {found.hypotheses}.")


def _difference(metric: str, value: float) -> str:
    return f"{value:+.2f}" if metric in ("bleu", "chrf") else f"{100 * value:+.2f} %"


def _show_classes(found: "Confusion") -> None:
    labels = found.labels
    if len(labels) <= MOST_COLUMNS:
        rows: Sequence[Sequence[str]] = [
            (label, *(str(n) if n else "·" for n in row)) for label, row in zip(labels, found.counts, strict=True)
        ]
        table(("true \\ answer", *labels), rows, align="l" + "r" * len(labels))
    columns = (found.precision, found.recall, found.f1, found.support)
    rows = [
        (label, f"{p:.3f}", f"{r:.3f}", f"{f:.3f}", str(n)) for label, p, r, f, n in zip(labels, *columns, strict=True)
    ]
    table(("class", "precision", "recall", "F1", "lines"), rows, align="lrrrr")
