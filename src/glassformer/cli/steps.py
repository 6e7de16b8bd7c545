"""`glassformer steps`: decoding, one word at a time."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glassformer.cli.decoding import decoding
from glassformer.cli.options import LARGEST, DeviceOption, JsonOption, RunArgument
from glassformer.cli.show import counted, print_json, table
from glassformer.errors import DataError

if TYPE_CHECKING:
    from glassformer.decode.beam import Record
    from glassformer.decode.hypothesis import Prompt
    from glassformer.writer import Writer, Written, WrittenToken


@decoding()
def steps(
    run: RunArgument,
    text: Annotated[str, typer.Argument(help="The source, or the text to go on from.", show_default=False)],
    top: Annotated[
        int | None,
        typer.Option(
            min=1, max=LARGEST, help="How many of the most likely tokens to show. \\[default: 3]", show_default=False
        ),
    ] = None,
    prefix: Annotated[str, typer.Option(help="What the translation begins with.")] = "",
    device: DeviceOption = "cpu",
    json: JsonOption = False,
    decode: dict[str, Any] = {},  # noqa: B006  filled by `decoding`
) -> None:
    """Write one word at a time: what the decoder has, what it chooses, and the most likely tokens.

    It writes greedily, or with --sample draws. With --beam-size 2 or more it shows the search: at each step which
    candidates go on, which are finished, which are pruned, and why.
    """
    from glassformer.run import load

    writer = load(run, device=device).writer({"beam_size": 1, **decode})
    if writer.config.beam_size == 1 and decode.keys() & {"length_penalty", "alpha"}:
        raise typer.BadParameter("scores are those of a search: set --beam-size too", param_hint="--length-penalty")
    prompt = writer.prompt(text, prefix=prefix, number=1)
    if prompt.is_blank:
        raise DataError("the text is blank: there is nothing to read")
    if writer.config.beam_size != 1:
        if top is not None:
            raise typer.BadParameter("a search shows all its candidates: leave --top out", param_hint="--top")
        _show_search(writer, prompt, text, json=json)
        return
    written = writer.steps(prompt, top=top or 3)
    if written[-1].chosen.token != writer.tokenizer.tokens([writer.tokenizer.end_id])[0]:
        typer.echo(f"cut at the length limit of {counted(len(prompt.prefix) + len(written), 'token')}", err=True)
    if json:
        print_json({"source": text, "steps": written})
    else:
        show_steps(written)


def show_steps(written: Sequence["WrittenToken"]) -> None:
    """Print a table with a row for each step."""
    top = len(written[0].candidates)
    table(
        (
            "decoder input so far",
            "chosen",
            "probability",
            f"the {top} most likely" if top > 1 else "the most likely",
        ),
        [
            (
                " ".join(step.so_far),
                step.chosen.token,
                f"{step.chosen.probability:.3f}",
                " · ".join(f"{candidate.token} {candidate.probability:.3f}" for candidate in step.candidates),
            )
            for step in written
        ],
        align="llrl",
    )


def _show_search(writer: "Writer", prompt: "Prompt", text: str, *, json: bool) -> None:
    record, results = writer.record(prompt)
    names = writer.tokenizer.tokens
    if json:
        found = [[asdict(c) | {"token": names([c.token])[0]} for c in step] for step in record.steps]
        print_json({"source": text, "steps": found, "stopped": record.stopped, "results": results})
        return
    rows = list(_rows(writer, prompt, record))
    header = ("step", "what goes on", "token", "log-prob.", "total", "penalty", "score", "what becomes of it")
    table(header, rows, align="rllrrrrl")
    typer.echo(f"The search stopped: {record.stopped}. A score is total / penalty.\n")
    table(("rank", "score", "log-prob.", "result"), _results(results), align="rrrl")


def _rows(writer: "Writer", prompt: "Prompt", record: "Record") -> list[tuple[str, ...]]:
    """Return a row for each candidate of each step."""
    names, rows = writer.tokenizer.tokens, []
    live = [list(prompt.prefix)]
    for number, step in enumerate(record.steps, start=1):
        for k, c in enumerate(step):
            fate = f"{c.fate}: {c.why}" if c.why else c.fate
            figures = (c.log_probability, c.total, c.penalty, c.score)
            before = " ".join(names([*prompt.read, *live[c.parent]]))
            rows.append(
                (str(number) if k == 0 else "", before, *names([c.token]), *map("{:.3f}".format, figures), fate)
            )
        live = [[*live[c.parent], c.token] for c in step if c.fate == "goes on"]
    return rows


def _results(results: Sequence["Written"]) -> list[tuple[str, ...]]:
    return [
        (str(k), f"{found.score:.3f}", f"{found.log_probability:.3f}", f"{' '.join(found.tokens)} ({found.stopped})")
        for k, found in enumerate(results, start=1)
    ]
