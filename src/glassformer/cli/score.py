"""`glassformer score`: what a model gives to texts."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli.decoding import SCORING, decoding
from glassformer.cli.lines import Line, Tally, chunks, lines_of
from glassformer.cli.options import (
    BatchSizeOption,
    DeviceOption,
    EnsembleOption,
    InputOption,
    JsonOption,
    RunArgument,
    TextsArgument,
)
from glassformer.cli.show import counted, print_json
from glassformer.cli.writing import load_runs
from glassformer.errors import DataError, DecodingError
from glassformer.text.lines import read_parallel

if TYPE_CHECKING:
    from glassformer.writer import Scored, Writer


@decoding(*SCORING)
def score(
    run: RunArgument,
    text: TextsArgument = None,
    input: InputOption = None,
    source: Annotated[Path | None, typer.Option(metavar="FILE", help="The sources, or prompts, a line each.")] = None,
    target: Annotated[Path | None, typer.Option(metavar="FILE", help="The texts to score, a line each.")] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Print each token with its log-probability.")] = False,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="The texts go on: do not score the end token after them.")
    ] = False,
    ensemble: EnsembleOption = None,
    batch_size: BatchSizeOption = 64,
    device: DeviceOption = "cpu",
    json: JsonOption = False,
    decode: dict[str, Any] = {},  # noqa: B006  filled by `decoding`
) -> None:
    """Score texts: score, log-probability and perplexity of each line, with tabs between; of all on standard error.

    An encoder–decoder scores targets: two files, or lines with a tab between source and target. A decoder alone scores
    whole lines, or with two files what comes after a prompt. The end token counts, but not after a whole line. The
    score is log-probability / length penalty, as in a search with the same options. A pair of which one side is blank
    gives a blank line and does not count.
    """
    loaded, others = load_runs(run, ensemble, device)
    writer = loaded.writer(decode, ensemble=others, batch_size=batch_size)
    if (source is None) != (target is None):
        raise typer.BadParameter("--source and --target go together", param_hint="--source" if target else "--target")
    if unfinished and not writer.has_source and source is None:
        raise typer.BadParameter("no end token is scored after whole lines anyway", param_hint="--unfinished")
    pairs = _pairs(writer, text, input, source, target)
    tally, total, n_tokens, n_blank, n_lines = Tally(), 0.0, 0, 0, 0
    for group, ended in pairs:
        for (line, _), found in zip(group, _scored(writer, group, ended=ended and not unfinished), strict=True):
            n_lines += 1
            if isinstance(found, str):
                tally.add(line, found)
            elif found.tokens:
                total, n_tokens = total + found.log_probability, n_tokens + len(found.tokens)
            else:
                n_blank += 1
            _print(line, found, tokens=tokens, json=json)
    blank = f"; {n_blank:,} left out, as one side is blank" if n_blank else ""
    from glassformer.decode.score import perplexity

    found = f"perplexity {perplexity(total, n_tokens):.4f}" if n_tokens else "nothing was scored"
    typer.echo(f"{found} over {counted(n_tokens, 'token')} in {counted(n_lines, 'line')}{blank}", err=True)
    tally.close()


Pair = tuple[Line, tuple[str | None, str] | None]  # a line; what was read before, and the text to score


def _pairs(
    writer: "Writer", text: Sequence[str] | None, files: Sequence[Path] | None, source: Path | None, target: Path | None
) -> Iterator[tuple[list[Pair], bool]]:
    """Yield groups of pairs, and whether each text is a whole that ends."""
    if source is not None and target is not None:
        if text or files:
            raise typer.BadParameter("give two files, or lines, not both", param_hint="--source")
        both = list(zip(*read_parallel([source, target]), strict=True))
        lines = [Line(n, f"line {n}", "\t".join(pair), False) for n, pair in enumerate(both, start=1)]
        size = 16 * writer.batch_size
        for start in range(0, len(lines), size):
            yield list(zip(lines[start : start + size], both[start : start + size], strict=True)), True
        return
    for group in chunks(lines_of(text, files), writer.batch_size):
        if writer.has_source:
            yield [(line, _split(line.text)) for line in group], True
        else:
            yield [(line, (None, line.text)) for line in group], False


def _split(text: str) -> tuple[str, str] | None:
    """Return source and target; None where a text has no tab between them."""
    source, tab, target = text.partition("\t")
    return (source, target) if tab or not text.strip() else None


def _scored(writer: "Writer", group: Sequence[Pair], *, ended: bool) -> list["Scored | str"]:
    """Return for each pair its scores, or what is wrong with it."""
    results: list[Scored | str] = []
    prompts, targets, places = [], [], []
    for i, (line, pair) in enumerate(group):
        if pair is None:
            results.append("no tab: write source and target with a tab between, or give two files")
            continue
        before, after = pair
        try:
            prompt, ids = writer.pair(before, after, ended=ended, number=line.number)
        except (DataError, DecodingError) as error:
            results.append(str(error))
            continue
        results.append("")
        prompts.append(prompt)
        targets.append(ids)
        places.append(i)
    for i, found in zip(places, writer.score(prompts, targets), strict=True):
        results[i] = found
    return results


def _print(line: Line, found: "Scored | str", *, tokens: bool, json: bool) -> None:
    if json:
        values: dict[str, Any] = {"text": line.text}
        if isinstance(found, str):
            values["error"] = found
        else:
            values |= {"tokens": found.tokens, "log_probabilities": found.log_probabilities, "score": found.score}
            values |= {"log_probability": found.log_probability, "perplexity": found.perplexity}
            if not found.tokens:
                values |= dict.fromkeys(("score", "log_probability", "perplexity"))
        print_json(values)
    elif isinstance(found, str) or not found.tokens:
        typer.echo()
    else:
        columns = [f"{value:.4f}" for value in (found.score, found.log_probability, found.perplexity)]
        if tokens:
            pairs = zip(found.tokens, found.log_probabilities, strict=True)
            columns.append(" ".join(f"{token}:{value:.4f}" for token, value in pairs))
        typer.echo("\t".join(columns))
