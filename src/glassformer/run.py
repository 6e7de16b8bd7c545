"""A run directory, and what one does with a trained model.

config.toml              the whole configuration
tokenizer.json           the vocabulary
metrics.jsonl            one line an evaluation
snapshots/000100.safetensors   the weights along the way
model.safetensors        the weights of the finished run; written last, so a directory without it is no run yet
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, overload

from glassformer.checkpoint import load_weights
from glassformer.config.files import load_config
from glassformer.config.run import Config
from glassformer.decode.search import Hypothesis, greedy, greedy_steps
from glassformer.errors import CheckpointError, ConfigError, DataError
from glassformer.inspect.trace import Trace, trace
from glassformer.model.transformer import Transformer
from glassformer.text.tokenizer import Tokenizer


class RunFiles:
    """Where the parts of a run lie."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self.config = self.directory / "config.toml"
        self.tokenizer = self.directory / "tokenizer.json"
        self.metrics = self.directory / "metrics.jsonl"
        self.weights = self.directory / "model.safetensors"
        self.snapshots = self.directory / "snapshots"

    def snapshot(self, step: int) -> Path:
        """Return where the weights after a step are kept."""
        return self.snapshots / f"{step:06d}.safetensors"

    def snapshot_steps(self) -> list[int]:
        """Return the steps of all snapshots, in order."""
        return sorted(int(path.stem) for path in self.snapshots.glob("*.safetensors") if path.stem.isdigit())


@dataclass(frozen=True)
class Candidate:
    """A token that could come next."""

    token: str
    probability: float


@dataclass(frozen=True)
class WrittenToken:
    """One step of decoding: what the decoder had, what it chose, and the most likely tokens."""

    so_far: list[str]  # tokens that the decoder read, the start token first
    chosen: Candidate
    candidates: list[Candidate]  # the most likely ones, the chosen one among them


@dataclass(frozen=True)
class Translation:
    """One line of output."""

    text: str
    tokens: list[str]
    log_probability: float
    stopped: Literal["end", "limit", "empty"]


class Run:
    """A trained model with its vocabulary, ready to use."""

    def __init__(self, config: Config, model: Transformer, tokenizer: Tokenizer, notes: dict[str, str]) -> None:
        self.config, self.model, self.tokenizer, self.notes = config, model.eval(), tokenizer, notes

    def translate_ids(self, sources: Sequence[Sequence[int]], *, max_length: int | None = None) -> list[Translation]:
        """Translate sources given as ids; an empty one gives an empty translation.

        Args:
            sources: Ids of each source.
            max_length: The most tokens to write, the end token included; None: the source's length and
                `decode.extra_length` more.

        """
        return [
            Translation(
                self.tokenizer.decode(found.ids),
                self.tokenizer.tokens(found.ids),
                found.log_probability,
                found.stopped,
            )
            for found in self._greedy(sources, max_length)
        ]

    def read(self, text: str) -> list[int]:
        """Return the ids of a source.

        Raises:
            DataError: The vocabulary cannot read it, or it is longer than the model's learned positions.

        """
        ids, longest = self.tokenizer.encode(text), self.config.model.longest
        if longest is not None and len(ids) > longest:
            raise DataError(f"the text has {len(ids)} tokens, but the model's learned positions end after {longest}")
        return ids

    @overload
    def translate(self, text: str, *, max_length: int | None = None) -> str: ...
    @overload
    def translate(self, text: list[str], *, max_length: int | None = None) -> list[str]: ...
    def translate(self, text: str | list[str], *, max_length: int | None = None) -> str | list[str]:
        """Translate one text, or several; a blank one stays blank.

        Raises:
            DataError: A text holds something that the vocabulary does not have; the message names it.

        """
        texts = [text] if isinstance(text, str) else text
        results = self.translate_ids([self.read(one) for one in texts], max_length=max_length)
        return results[0].text if isinstance(text, str) else [result.text for result in results]

    def steps(self, text: str, *, top: int = 3, max_length: int | None = None) -> list[WrittenToken]:
        """Translate one text and show each step: what was read, what was chosen, the `top` most likely tokens."""
        source = self.read(text)
        if not source:
            raise DataError("the text is blank: there is nothing to read")
        ids, written = [self.tokenizer.start_id], []
        n_steps = self._limit(source, max_length)
        for step in greedy_steps(self.model, [source], start_id=ids[0], n_steps=n_steps):
            probabilities = step.log_probabilities[0].exp()
            best, best_ids = probabilities.topk(min(top, len(probabilities)))
            tokens = self.tokenizer.tokens(best_ids.tolist())
            candidates = [Candidate(token, p) for token, p in zip(tokens, best.tolist(), strict=True)]
            chosen = int(step.chosen[0])
            token = Candidate(self.tokenizer.tokens([chosen])[0], float(probabilities[chosen]))
            written.append(WrittenToken(self.tokenizer.tokens(ids), token, candidates))
            if chosen == self.tokenizer.end_id:
                break
            ids.append(chosen)
        return written

    def trace(self, text: str, target: str | None = None, *, only: str | Sequence[str] = "*") -> Trace:
        """Run the model once on a text and return its tensors by name, with the tokens of both sides.

        Args:
            text: The source.
            target: What the decoder reads after its start token; None: what the model itself writes.
            only: Names, or patterns such as "decoder.*.weights".

        """
        source = self.read(text)
        if not source:
            raise DataError("the text is blank: there is nothing to read")
        written = self._greedy([source], None)[0].ids if target is None else self.tokenizer.encode(target)
        read = [self.tokenizer.start_id, *written]
        tensors = trace(self.model, [source], [read], only=only)
        names = self.tokenizer.tokens
        return Trace(tensors, source_tokens=names(source), target_tokens=names(read))

    def _greedy(self, sources: Sequence[Sequence[int]], max_length: int | None) -> list[Hypothesis]:
        limits = [self._limit(source, max_length) for source in sources]
        start_id, end_id = self.tokenizer.start_id, self.tokenizer.end_id
        return greedy(self.model, sources, start_id=start_id, end_id=end_id, limits=limits)

    def _limit(self, source: Sequence[int], max_length: int | None) -> int:
        limit = len(source) + self.config.decode.extra_length if max_length is None else max_length
        table = self.config.model.longest
        return limit if table is None else min(limit, table)


def load(directory: str | Path) -> Run:
    """Open a finished run.

    Raises:
        CheckpointError: There is no run, it is not finished, or one of its files is damaged.

    """
    files = RunFiles(directory)
    if files.directory.is_file():
        raise CheckpointError(f"{files.directory} is a file; a run is a directory")
    if not files.directory.is_dir():
        raise CheckpointError(f"there is no run at {files.directory}; train one: glassformer train reversal")
    if not files.config.is_file():
        raise CheckpointError(f"{files.directory} is not a run: it has no config.toml")
    if not files.weights.is_file():
        raise CheckpointError(
            f"the run {files.directory} is not finished: it has no model.safetensors; "
            "train it again in another directory, or use one of its snapshots as that file"
        )
    try:
        config = load_config(files.config)
    except ConfigError as error:
        raise CheckpointError(f"the run {files.directory} is damaged: {error}") from error
    tokenizer = Tokenizer.load(files.tokenizer)
    model = Transformer(config)
    notes = load_weights(model, files.weights)
    if tokenizer.size != config.model.target_vocabulary:
        raise CheckpointError(
            f"{files.tokenizer} has {tokenizer.size} tokens, but the model was built for "
            f"{config.model.target_vocabulary}"
        )
    return Run(config, model, tokenizer, notes)
