"""What `translate` and `generate` have in common: lines in, what was written out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from glassformer.cli.lines import Line, Tally, chunks
from glassformer.cli.show import counted, print_json
from glassformer.errors import DataError, DecodingError
from glassformer.text.lines import one_line

if TYPE_CHECKING:
    from glassformer.decode.hypothesis import Prompt
    from glassformer.interop.engine import Engine
    from glassformer.run import Run
    from glassformer.writer import Writer, Written


@dataclass(frozen=True)
class Shown:
    """What is printed for each line."""

    source: str = "source"  # what the text that was read is called in JSON
    target: str = "target"  # and what was written
    scores: bool = False
    alignments: bool = False
    with_prompt: bool = False
    n_best: bool = False  # several results a line, each with the line's number and its rank
    json: bool = False


def load_runs(run: Path, others: Sequence[Path] | None, device: str) -> tuple["Run", list["Run"]]:
    """Open a run and those that vote with it."""
    from glassformer.run import load

    return load(run, device=device), [load(other, device=device) for other in others or ()]


def open_writer(
    verb: str,
    run: Path,
    engine: "Engine | None",
    decode: dict[str, Any],
    *,
    ensemble: Sequence[Path] | None,
    device: str,
    batch_size: int,
    truncate: bool = False,
    chat: bool = False,
) -> "Writer":
    """Open what `translate` or `generate` writes with: a run and others that vote, or what an engine reads.

    Raises:
        DecodingError: It holds a model of another kind than the verb needs.

    """
    if engine is not None:
        if ensemble or truncate or device != "cpu":
            raise typer.BadParameter(
                "it works with one model on the CPU: leave --ensemble, --truncate and --device out",
                param_hint="--engine",
            )
        from glassformer.interop.engine import open_writer

        writer = open_writer(engine, run, decode, batch_size=batch_size, chat=chat)
        _check_kind(verb, run, writer.models[0].config.kind)
        return writer
    loaded, others = load_runs(run, ensemble, device)
    _check_kind(verb, run, loaded.config.model.kind)
    return loaded.writer(decode, ensemble=others, batch_size=batch_size, truncate=truncate, chat=chat)


def _check_kind(verb: str, run: Path, kind: str) -> None:
    right = {"encoder-decoder": "translate", "decoder": "generate", "encoder": "classify"}[kind]
    if right != verb:
        lacks = {
            "translate": "no encoder–decoder: it does not translate",
            "generate": "no decoder-only model: it does not go on from a text",
        }[verb]
        raise DecodingError(f"{run} is {lacks}; use {right}")


def write_lines(writer: "Writer", lines: Iterator[Line], shown: Shown, *, prefix: str = "") -> None:
    """Write from each line and print the result; what cannot be read gives a blank line and a message.

    Raises:
        typer.Exit: With code 1 at the end, where a line could not be read.

    """
    tally = Tally()
    for group in chunks(lines, writer.batch_size):
        prompts, problems = _prompts(writer, group, prefix)
        results = writer.write(prompts)
        alignments = _alignments(writer, prompts, results) if shown.alignments else None
        for i, line in enumerate(group):
            tally.add(line, problems.get(line.number), n_cut=prompts[i].n_cut, n_unknown=prompts[i].n_unknown)
            for written in results[i][:1]:
                if written.stopped == "limit":
                    typer.echo(
                        f"{line.where}: cut at the length limit of {counted(len(written.ids), 'token')}", err=True
                    )
            links = None if alignments is None else alignments[i]
            if shown.json:
                print_json(_object(line, results[i], links, shown, problems.get(line.number)))
            else:
                texts = [written.text for written in results[i]]
                if shown.with_prompt:
                    texts = [writer.tokenizer.decode([*prompts[i].read, *written.ids]) for written in results[i]]
                _print(line, results[i], texts, links, shown)
    tally.close()


def _prompts(writer: "Writer", group: Sequence[Line], prefix: str) -> tuple[list["Prompt"], dict[int, str]]:
    """Return what each line asks for, a blank for one that cannot be read, and what is wrong with those."""
    prompts, problems = [], {}
    for line in group:
        try:
            prompts.append(writer.prompt(line.text, prefix=prefix, number=line.number))
        except (DataError, DecodingError) as error:
            problems[line.number] = str(error)
            prompts.append(writer.prompt(""))
    return prompts, problems


def _alignments(
    writer: "Writer", prompts: Sequence["Prompt"], results: Sequence[Sequence["Written"]]
) -> list[list[list[tuple[int, int]]]]:
    """Return for each result of each line its links (place in the source, place in the target)."""
    pairs = [(prompt, written) for prompt, row in zip(prompts, results, strict=True) for written in row]
    links = iter(writer.alignments([prompt for prompt, _ in pairs], [written.ids for _, written in pairs]))
    return [[next(links) for _ in row] for row in results]


def _object(
    line: Line,
    results: Sequence["Written"],
    links: Sequence[Sequence[tuple[int, int]]] | None,
    shown: Shown,
    problem: str | None,
) -> dict[str, Any]:
    """Return the JSON object of one line: its first result, and all of them where there are several."""
    objects: list[dict[str, Any]] = []
    for k, written in enumerate(results):
        one: dict[str, Any] = {shown.target: written.text, "tokens": written.tokens}
        one |= {"score": written.score, "log_probability": written.log_probability, "stopped": written.stopped}
        if written.stopped == "empty":
            one |= {"score": None, "log_probability": None}
        objects.append(one | ({} if links is None else {"alignment": links[k]}))
    found = {shown.source: line.text, **objects[0]}
    if shown.n_best:
        found["n_best"] = objects
    return found | ({} if problem is None else {"stopped": "unreadable", "error": problem})


def _print(
    line: Line,
    results: Sequence["Written"],
    texts: Sequence[str],
    links: Sequence[Sequence[tuple[int, int]]] | None,
    shown: Shown,
) -> None:
    """Print the results of one line, columns before the text with tabs between."""
    for k, written in enumerate(results):
        columns = [str(line.number), str(k + 1)] if shown.n_best else []
        if shown.scores:
            scores = (written.score, written.log_probability)
            columns += ["" if written.stopped == "empty" else f"{score:.4f}" for score in scores]
        if links is not None:
            columns.append(" ".join(f"{source}-{target}" for source, target in links[k]))
        typer.echo("\t".join([*columns, one_line(texts[k])]))
