"""`glassformer classify`: texts in, the names of their classes out."""

from typing import TYPE_CHECKING, Annotated

import typer

from glassformer.cli.lines import Line, Tally, chunks, lines_of
from glassformer.cli.options import (
    BatchSizeOption,
    DeviceOption,
    EnsembleOption,
    InputOption,
    JsonOption,
    RunArgument,
    TextsArgument,
    TruncateOption,
)
from glassformer.cli.show import print_json
from glassformer.cli.writing import load_runs
from glassformer.errors import DataError
from glassformer.text.lines import one_line

if TYPE_CHECKING:
    from glassformer.run import Classified, Run

UNDECIDED = "don't know"


def classify(
    run: RunArgument,
    text: TextsArgument = None,
    input: InputOption = None,
    threshold: Annotated[
        float, typer.Option(min=0.0, max=1.0, help=f"Below this probability the answer is “{UNDECIDED}”.")
    ] = 0.0,
    scores: Annotated[
        bool, typer.Option("--scores", help="Print every class with its probability, the most likely first.")
    ] = False,
    ensemble: EnsembleOption = None,
    batch_size: BatchSizeOption = 64,
    truncate: TruncateOption = False,
    device: DeviceOption = "cpu",
    json: JsonOption = False,
) -> None:
    """Name the class of each line with a trained encoder-only model; a blank line stays blank.

    A line that the vocabulary cannot read gives an empty line, a message on standard error, and exit code 1 at the end.
    """
    loaded, others = load_runs(run, ensemble, device)
    tally = Tally()
    for group in chunks(lines_of(text, input), batch_size):
        problems = _problems(loaded, others, group, truncate=truncate)
        texts = ["" if line.number in problems else line.text for line in group]
        found = loaded.classify(texts, threshold=threshold, ensemble=others, batch_size=batch_size, truncate=truncate)
        for line, result in zip(group, found, strict=True):
            tally.add(line, problems.get(line.number), n_cut=result.n_cut)
            _print(line, result, problems.get(line.number), scores=scores, json=json)
    tally.close()


def _problems(run: "Run", ensemble: list["Run"], group: list[Line], *, truncate: bool) -> dict[int, str]:
    """Return what is wrong with the lines that cannot be read."""
    problems = {}
    for line in group:
        try:
            run.read(line.text, ensemble=ensemble, truncate=truncate)
        except DataError as error:
            problems[line.number] = str(error)
    return problems


def _print(line: Line, result: "Classified", problem: str | None, *, scores: bool, json: bool) -> None:
    if json:
        found = {"text": line.text, "label": result.label, "probabilities": result.probabilities}
        print_json(found | ({} if problem is None else {"label": None, "error": problem}))
        return
    label = UNDECIDED if result.label is None else result.label
    ranked = [f"{name} {probability:.3f}" for name, probability in result.probabilities.items()] if scores else []
    typer.echo("\t".join(map(one_line, [label, *ranked])))
