"""A run directory, and what one does with a trained model.

config.toml              the whole configuration
tokenizer.json           the vocabulary, of both sides or of what is written
source_tokenizer.json    the vocabulary of what is read, where it is another one
classes.json             a classifier's classes: a list of their names, in the order of its output
metrics.jsonl            one line an evaluation
snapshots/000100.safetensors   the weights along the way
state.safetensors        all that training needs to go on, while it is not finished
model.safetensors        the weights of the finished run; written last, so a directory without it is no run yet
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor

from glassformer.checkpoint import load_weights, save_tensors
from glassformer.config.files import dump, load_config, with_decode
from glassformer.config.run import Config
from glassformer.data.batch import pad
from glassformer.errors import CheckpointError, ConfigError, DataError, DecodingError
from glassformer.files import write_text
from glassformer.inspect.trace import Trace, trace
from glassformer.model.transformer import Transformer
from glassformer.text.tokenizer import Tokenizer
from glassformer.text.vocabularies import CLASSES, SOURCE, TARGET, Vocabularies
from glassformer.writer import Writer, WrittenToken, longest_source, read

EXPORTED = "glassformer.toml"  # in a directory that another engine reads: what it does not know of the model


class RunFiles:
    """Where the parts of a run lie."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self.config = self.directory / "config.toml"
        self.metrics = self.directory / "metrics.jsonl"
        self.weights = self.directory / "model.safetensors"
        self.state = self.directory / "state.safetensors"
        self.snapshots = self.directory / "snapshots"

    def own(self) -> list[Path]:
        """Return the files that make the run what it is."""
        vocabularies = [self.directory / name for name in (TARGET, SOURCE, CLASSES)]
        return [self.config, *vocabularies, self.metrics, self.state, self.weights]

    def snapshot(self, step: int) -> Path:
        """Return where the weights after a step are kept."""
        return self.snapshots / f"{step:06d}.safetensors"

    def snapshot_steps(self) -> list[int]:
        """Return the steps of all snapshots, in order."""
        return sorted(int(path.stem) for path in self.snapshots.glob("*.safetensors") if path.stem.isdigit())


@dataclass(frozen=True)
class Classified:
    """What an encoder-only model makes of one text."""

    label: str | None  # the most likely class; None: less likely than the threshold; "" for a blank text
    probabilities: dict[str, float]  # of each class, the most likely first; none for a blank text
    n_cut: int  # tokens that were cut off


class Run:
    """A trained model with its vocabulary, ready to use."""

    def __init__(
        self, config: Config, model: Transformer, vocabularies: Vocabularies, notes: Mapping[str, str]
    ) -> None:
        """Put the parts of a run together; the notes say where its weights come from."""
        self.config, self.model, self.vocabularies, self.notes = config, model.eval(), vocabularies, dict(notes)

    @property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary of what the model writes; of a classifier, of what it reads."""
        return self.vocabularies.target

    @property
    def classes(self) -> tuple[str, ...]:
        """What a classifier chooses from."""
        return self.vocabularies.classes

    def writer(
        self,
        decode: Mapping[str, Any] | None = None,
        *,
        ensemble: Sequence["Run"] = (),
        batch_size: int = 64,
        truncate: bool = False,
        chat: bool = False,
    ) -> Writer:
        """Return what writes texts with this run.

        Args:
            decode: Fields of the configuration's [decode] to change: `{"beam_size": 8}`.
            ensemble: Other runs that vote with this one, each with the same weight; of the same kind and vocabulary.
            batch_size: How many texts are written at once.
            truncate: Cut sources that are longer than learned positions, instead of refusing them.
            chat: Each text is a message to a model that answers, by its chat template.

        Raises:
            ConfigError: No such field, or a value that it cannot have.
            DecodingError: A setting makes no sense for this model, or the runs do not go together.

        """
        self._check_fit(ensemble)
        config = with_decode(self.config, decode or {}).decode
        models = [self.model, *(other.model for other in ensemble)]
        longest, cuts = longest_source([run.config for run in (self, *ensemble)], truncate=truncate)
        data = self.config.data
        return Writer(
            models,
            self.vocabularies,
            config,
            batch_size=batch_size,
            truncate=cuts,
            longest_source=longest,
            with_start=data is None or data.window is None,  # windows of a text are learnt without
            chat=chat,
        )

    @overload
    def translate(self, text: str, decode: Mapping[str, Any] | None = None) -> str: ...
    @overload
    def translate(self, text: list[str], decode: Mapping[str, Any] | None = None) -> list[str]: ...
    def translate(self, text: str | list[str], decode: Mapping[str, Any] | None = None) -> str | list[str]:
        """Translate one text, or several; a blank one stays blank.

        Raises:
            DataError: A text holds something that the vocabulary does not have; the message names it.
            DecodingError: The model has no encoder, or no decoder.

        """
        if self.config.model.kind == "decoder":
            raise DecodingError("a decoder alone has nothing to translate: generate is what it does")
        return self._write(text, decode)

    @overload
    def generate(self, text: str, decode: Mapping[str, Any] | None = None) -> str: ...
    @overload
    def generate(self, text: list[str], decode: Mapping[str, Any] | None = None) -> list[str]: ...
    def generate(self, text: str | list[str], decode: Mapping[str, Any] | None = None) -> str | list[str]:
        """Go on from one text, or several, and return what comes after it; nothing after a blank one.

        Raises:
            DataError: A text holds something that the vocabulary does not have; the message names it.
            DecodingError: The model is no decoder alone.

        """
        if self.config.model.kind == "encoder-decoder":
            raise DecodingError("an encoder–decoder has no text to go on from: translate is what it does")
        return self._write(text, decode)

    def steps(self, text: str, *, top: int = 3, decode: Mapping[str, Any] | None = None) -> list[WrittenToken]:
        """Write greedily from one text and show each step: what was read, what was chosen, the most likely tokens."""
        writer = self.writer({"beam_size": 1, **(decode or {})})
        return writer.steps(writer.prompt(text), top=top)

    @overload
    def classify(
        self,
        text: str,
        *,
        threshold: float = 0.0,
        ensemble: Sequence["Run"] = (),
        batch_size: int = 64,
        truncate: bool = False,
    ) -> Classified: ...
    @overload
    def classify(
        self,
        text: list[str],
        *,
        threshold: float = 0.0,
        ensemble: Sequence["Run"] = (),
        batch_size: int = 64,
        truncate: bool = False,
    ) -> list[Classified]: ...
    @torch.inference_mode()
    def classify(
        self,
        text: str | list[str],
        *,
        threshold: float = 0.0,
        ensemble: Sequence["Run"] = (),
        batch_size: int = 64,
        truncate: bool = False,
    ) -> Classified | list[Classified]:
        """Name the class of one text, or of several.

        Args:
            text: A blank one has no class.
            threshold: The smallest probability with which a class is named.
            ensemble: Other runs of the same classes and vocabulary; the mean of the probabilities counts.
            batch_size: How many texts are read at once.
            truncate: Cut texts that are longer than learned positions, instead of refusing them.

        Raises:
            DataError: A text cannot be read.
            DecodingError: The model is no classifier of whole texts, or the runs do not go together.

        """
        model = self.config.model
        if model.classifier is None or model.classifier.pooling == "none":
            raise DecodingError(f"this model does not classify texts: it is of kind {model.kind!r}")
        if batch_size < 1:
            raise DecodingError(f"batch_size={batch_size} is not right: the smallest is 1")
        self._check_fit(ensemble)
        texts = [text] if isinstance(text, str) else text
        read_texts = [self.read(one, ensemble=ensemble, truncate=truncate) for one in texts]
        results = [Classified("", {}, 0) for _ in texts]
        order = sorted((i for i, (ids, _) in enumerate(read_texts) if ids), key=lambda i: len(read_texts[i][0]))
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            ids = [read_texts[i][0] for i in rows]
            mean = torch.stack([run._class_probabilities(ids) for run in (self, *ensemble)]).mean(dim=0)  # (B, C)
            for i, row in zip(rows, mean.tolist(), strict=True):
                ranked = sorted(zip(self.classes, row, strict=True), key=lambda pair: -pair[1])
                best, probability = ranked[0]
                results[i] = Classified(best if probability >= threshold else None, dict(ranked), read_texts[i][1])
        return results[0] if isinstance(text, str) else results

    def read(self, text: str, *, ensemble: Sequence["Run"] = (), truncate: bool = False) -> tuple[list[int], int]:
        """Return the ids of a text that is to be classified, and how many were cut off.

        A model that learnt from cut texts (data.truncate) reads them cut at the same length.

        Raises:
            DataError: The vocabulary cannot read it; or it is too long, and may not be cut.

        """
        longest, cuts = longest_source([run.config for run in (self, *ensemble)], truncate=truncate)
        return read(text, self.tokenizer, longest, truncate=cuts)

    def _class_probabilities(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Return the probabilities (B, C) of texts given as ids, in float64, which not every device has."""
        device = self.model.device
        ids, is_real = pad(rows)
        logits = self.model(ids.to(device), source_is_real=None if is_real is None else is_real.to(device))
        return logits.cpu().double().softmax(dim=-1)  # type: ignore[no-any-return]

    def _check_fit(self, ensemble: Sequence["Run"]) -> None:
        for other in ensemble:
            if other.config.model.kind != self.config.model.kind or other.vocabularies != self.vocabularies:
                raise DecodingError("runs that vote together have one kind, vocabulary and classes, but these differ")

    def trace(self, text: str, target: str | None = None, *, only: str | Sequence[str] = "*") -> Trace:
        """Run the model once on a text and return its tensors by name, with the tokens of both sides.

        Args:
            text: The source.
            target: What the decoder reads after its start token; None: what the model itself writes, greedily.
            only: Names, or patterns such as "decoder.*.weights".

        """
        writer = self.writer({"beam_size": 1})
        prompt = writer.prompt(text)
        if prompt.is_blank:
            raise DataError("the text is blank: there is nothing to read")
        written = writer.write([prompt])[0][0].ids if target is None else self.tokenizer.encode(target)
        if target is None and self.config.model.longest is not None:  # the last token that is written is not read
            written = written[: self.config.model.longest - len(prompt.read)]
        target_ids = [*prompt.read, *written]
        tensors = trace(self.model, None if prompt.source is None else [prompt.source], [target_ids], only=only)
        source_tokens = self.vocabularies.source.tokens(prompt.source or ())
        return Trace(tensors, source_tokens=source_tokens, target_tokens=self.tokenizer.tokens(target_ids))

    def _write(self, text: str | list[str], decode: Mapping[str, Any] | None) -> str | list[str]:
        writer = self.writer(decode)
        prompts = [
            writer.prompt(one, number=i) for i, one in enumerate([text] if isinstance(text, str) else text, start=1)
        ]
        texts = [results[0].text for results in writer.write(prompts)]
        return texts[0] if isinstance(text, str) else texts


def load(directory: str | Path, *, device: str = "cpu") -> Run:
    """Open a finished run. Its model has the precision of the weights on disk.

    Args:
        directory: Where it is.
        device: Where its model works: "cpu", "cuda", "cuda:1", "mps".

    Raises:
        CheckpointError: There is no run, it is not finished, or one of its files is damaged.
        DecodingError: There is no such device.

    """
    files = RunFiles(directory)
    if files.directory.is_file():
        raise CheckpointError(f"{files.directory} is a file; a run is a directory")
    if not files.directory.is_dir():
        raise CheckpointError(f"there is no run at {files.directory}; train one: glassformer train reversal")
    if not files.config.is_file():
        for_engine = (files.directory / EXPORTED).is_file()
        advice = "; it was made for another engine: write with --engine" if for_engine else ""
        raise CheckpointError(f"{files.directory} is not a run: it has no config.toml{advice}")
    if not files.weights.is_file():
        raise CheckpointError(
            f"the run {files.directory} is not finished: it has no model.safetensors; "
            f"go on with: glassformer train {files.directory} --resume"
        )
    try:
        config = load_config(files.config)
    except ConfigError as error:
        raise CheckpointError(f"the run {files.directory} is damaged: {error}") from error
    check_device(device)
    vocabularies = load_vocabularies(files, config)
    model = Transformer(config)
    notes = load_weights(model, files.weights)
    return Run(config, _laid_out(model.to(device)), vocabularies, notes)


def save(run: Run, directory: str | Path, *, dtype: torch.dtype | None = None) -> None:
    """Write a model that was not trained here as a run.

    Args:
        run: What to write.
        directory: Where to; there may be no run.
        dtype: Of the weights on disk, and of the model when it is loaded; None: as it is.

    Raises:
        CheckpointError: The directory is in use, or cannot be written.

    """
    files = RunFiles(directory)
    if any(path.exists() for path in files.own()):
        raise CheckpointError(f"{directory} holds a run, which is never written over; choose another name")
    try:
        files.directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(f"cannot make the directory {directory}: {error.strerror}") from error
    write_text(files.config, dump(run.config))
    run.vocabularies.save(files.directory)
    tensors = {name: p.detach() for name, p in run.model.named_parameters()}
    save_tensors({name: p if dtype is None else p.to(dtype) for name, p in tensors.items()}, files.weights, run.notes)


def load_vocabularies(files: RunFiles, config: Config) -> Vocabularies:
    """Read the vocabularies of a run.

    Raises:
        CheckpointError: One is missing or damaged, or has another size than the model.

    """
    classifier = config.model.classifier
    found = Vocabularies.load(files.directory, n_classes=None if classifier is None else classifier.classes)
    for size, tokenizer in (
        (config.model.source_vocabulary, found.source),
        (config.model.target_vocabulary, found.target),
    ):
        # of a model from elsewhere, the last rows may be no token's
        if size is not None and (tokenizer.size > size or (tokenizer.size < size and config.data is not None)):
            raise CheckpointError(
                f"the vocabulary of {files.directory} has {tokenizer.size} tokens, but its model was built for {size}"
            )
    return found


def check_device(device: str) -> None:
    """Refuse a device that is not there.

    Raises:
        DecodingError: It has another name than devices have, or cannot be used.

    """
    if device.partition(":")[0] not in ("cpu", "cuda", "mps"):
        raise DecodingError(f"there is no device {device!r}; there are cpu, cuda, cuda:1 and so on, and mps")
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise DecodingError(f"the device {device!r} cannot be used: {str(error).splitlines()[0]}") from error


def _laid_out(model: Transformer) -> Transformer:
    """Lay out the matrices of a model for writing.

    On a CPU, a matrix with more outputs than inputs is laid out by columns: PyTorch's product with one row is then up
    to three times faster, and with many rows no slower; only looking up rows of such a matrix, where it is tied to an
    embedding, takes longer. Names, shapes and values stay.
    """
    if model.device.type == "cpu":
        for module in model.modules():
            if isinstance(module, torch.nn.Linear) and module.out_features > module.in_features:
                module.weight.data = module.weight.data.t().contiguous().t()
    return model
