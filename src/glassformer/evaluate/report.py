"""One evaluation of a run: it writes, the file that it wrote is measured, and all that was set is told."""

import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from glassformer.decode.rules import Rules
from glassformer.decode.score import perplexity, score
from glassformer.errors import DataError, DecodingError
from glassformer.evaluate.metrics import OF_CLASSES, Confusion, Measured, confusion, measure, metric_for
from glassformer.evaluate.paired import Compared, compare
from glassformer.files import write_text
from glassformer.run import Run
from glassformer.text.lines import one_line, read_lines
from glassformer.writer import Writer

OF_TEXT = ("bleu", "chrf", "exact_match", "token_error_rate")


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found, and what another needs to find the same."""

    kind: str  # of the model
    metrics: list[Measured]
    perplexity: float | None  # exp of the mean of minus a token's log-probability, over each line's first reference
    n_tokens: int | None  # tokens that the perplexity is of, end tokens included
    n_lines: int  # lines that were measured
    n_left_out: int  # lines without a source or without a reference
    n_cut: int  # results that the length limit cut
    n_truncated: int  # lines whose source was cut at the end of the learned positions
    n_unscored: int  # references that the vocabulary cannot read, which the perplexity leaves out
    confusion: Confusion | None  # of a classifier
    against: list[Compared]  # with the lines of another system
    decode: dict[str, Any]  # how it wrote
    weights: list[dict[str, str]]  # of each model: where its weights come from, and their checksum
    hypotheses: str  # the file that was measured
    versions: dict[str, str]
    seconds: float  # that writing took


def evaluate(
    run: Run,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    hypotheses: Path,
    *,
    metrics: Sequence[str] = (),
    against: Sequence[str] | None = None,
    decode: Mapping[str, Any] | None = None,
    ensemble: Sequence[Run] = (),
    batch_size: int = 64,
    truncate: bool = False,
) -> Evaluation:
    """Let a run write from each source, and measure what it wrote; or classify each, and measure the answers.

    Args:
        run: Of any kind.
        sources: What is read: sources, texts to go on from, or texts to classify.
        references: For each source the texts that are right, or its class; blank ones do not count. A line with a
            blank source, or without a reference, is left out of all numbers.
        hypotheses: Where the results are written, a line for each source; what stands there is what is measured.
        metrics: Names; none: bleu, chrf, exact_match and token_error_rate, or accuracy and macro_f1.
        against: What another system wrote, a line for each source: each metric is compared.
        decode: Fields of [decode] to change.
        ensemble: Other runs that vote.
        batch_size: Lines that are worked on together.
        truncate: Cut what is longer than learned positions.

    Raises:
        DataError: Numbers of lines differ, nothing is left to measure, a line cannot be read, or no such metric.
        CheckpointError: The file cannot be written.

    """
    right, kept = _measurable(sources, references, against)
    classifies = run.config.model.kind == "encoder"
    names, wanted = metrics or (OF_CLASSES if classifies else OF_TEXT), [right[i] for i in kept]
    for name in names:  # before all the work
        metric_for(name, [""] * len(kept), wanted)
    if classifies and decode:
        raise DataError("a classifier does not write: it has no decoding settings")
    if classifies:
        answers = _classify(run, ensemble, sources, kept, batch_size, truncate=truncate)
    else:
        writer = run.writer(decode, ensemble=ensemble, batch_size=batch_size, truncate=truncate)
        answers = _write(writer, sources, {i: right[i][0] for i in kept})
    write_text(hypotheses, "".join(f"{text}\n" for text in answers.texts))
    written = read_lines(hypotheses)
    ours, theirs = ([lines[i] for i in kept] if lines else [] for lines in (written, against))
    return Evaluation(
        kind=run.config.model.kind,
        metrics=[measure(name, ours, wanted) for name in names],
        confusion=confusion(ours, wanted) if classifies else None,
        against=[compare(name, ours, theirs, wanted) for name in names] if theirs else [],
        **{name: value for name, value in vars(answers).items() if name != "texts"},
        n_lines=len(kept),
        n_left_out=len(sources) - len(kept),
        weights=[one.notes for one in (run, *ensemble)],
        hypotheses=str(hypotheses),
        versions=_versions(),
    )


def _measurable(
    sources: Sequence[str], references: Sequence[Sequence[str]], against: Sequence[str] | None
) -> tuple[list[list[str]], list[int]]:
    """Return the references that are not blank, and the lines that have a source and one of those."""
    for name, lines in (("references", references), ("lines of the other system", against)):
        if lines is not None and len(lines) != len(sources):
            raise DataError(f"there are {len(sources)} sources, but {len(lines)} {name}")
    right = [[text for text in row if text.strip()] for row in references]
    kept = [i for i, row in enumerate(right) if row and sources[i].strip()]
    if not kept:
        raise DataError("there is nothing to measure: no line has a source and a reference")
    return right, kept


@dataclass(frozen=True)
class _Answers:
    """What a run answered, a text for each line."""

    texts: list[str]
    seconds: float
    n_cut: int = 0
    n_truncated: int = 0
    n_unscored: int = 0
    decode: dict[str, Any] = field(default_factory=dict)
    perplexity: float | None = None
    n_tokens: int | None = None


def _write(writer: Writer, sources: Sequence[str], targets: Mapping[int, str]) -> _Answers:
    """Write from each source, and give the reference of those that have one its plain log-probability."""
    prompts, pairs = [], []
    for i, text in enumerate(sources):
        with _line(i + 1):
            prompts.append(writer.prompt(text, number=i + 1))
        if i in targets:
            with suppress(DataError):  # counted below
                pairs.append(writer.pair(text, targets[i]))
    started = time.perf_counter()
    results = [row[0] for row in writer.write(prompts)]
    seconds = time.perf_counter() - started
    before, ids = [prompt for prompt, _ in pairs], [ids for _, ids in pairs]
    forced = score(writer.models, before, ids, Rules(writer.tokenizer.end_id), batch_size=writer.batch_size)
    n_tokens = sum(map(len, forced))
    return _Answers(
        texts=[one_line(result.text) for result in results],
        seconds=seconds,
        n_cut=sum(results[i].stopped == "limit" for i in targets),
        n_truncated=sum(prompts[i].n_cut > 0 for i in targets),
        n_unscored=len(targets) - len(pairs),
        decode=writer.config.model_dump(exclude_none=True),
        perplexity=perplexity(sum(map(sum, forced)), n_tokens) if n_tokens else None,
        n_tokens=n_tokens,
    )


def _classify(
    run: Run,
    ensemble: Sequence[Run],
    sources: Sequence[str],
    kept: Sequence[int],
    batch_size: int,
    *,
    truncate: bool,
) -> _Answers:
    """Name the class of each source."""
    for number, text in enumerate(sources, start=1):  # each by itself first, so that a wrong one is named
        with _line(number):
            run.read(text, ensemble=ensemble, truncate=truncate)
    started = time.perf_counter()
    found = run.classify(list(sources), ensemble=ensemble, batch_size=batch_size, truncate=truncate)
    texts, seconds = [one_line(result.label or "") for result in found], time.perf_counter() - started
    return _Answers(texts, seconds, n_truncated=sum(found[i].n_cut > 0 for i in kept))


def _versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("glassformer", "torch", "sacrebleu")}
    return packages | {"python": platform.python_version()}


@contextmanager
def _line(number: int) -> Iterator[None]:
    """Say in errors which line it was."""
    try:
        yield
    except (DataError, DecodingError) as error:
        raise type(error)(f"line {number}: {error}") from None
