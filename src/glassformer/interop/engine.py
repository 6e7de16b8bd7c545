"""Texts written by another engine, from a directory that `convert` has made: the same in and out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

import torch

from glassformer.config.files import dump, load_config, with_decode
from glassformer.config.model import ModelConfig
from glassformer.config.run import Config
from glassformer.decode.hypothesis import BLANK, Hypothesis, Prompt, scored
from glassformer.errors import CheckpointError, DecodingError
from glassformer.files import write_text
from glassformer.interop.ctranslate2 import FILE, framed_there, tokens_of
from glassformer.interop.ctranslate2_write import LONGEST
from glassformer.interop.onnx import DECODER, ENCODER
from glassformer.interop.onnx_model import OnnxModel
from glassformer.run import EXPORTED, RunFiles, load_vocabularies
from glassformer.text.vocabularies import Vocabularies
from glassformer.writer import Writer, Written, longest_source

Engine = Literal["ctranslate2", "onnx"]
FILES = {"ctranslate2": (FILE,), "onnx": (DECODER, ENCODER)}  # one of which an engine needs
PATIENCE = 2.0  # CTranslate2's own, 1, ends a beam at the first finished hypothesis that is best at that moment


def save_beside(config: Config, vocabularies: Vocabularies, out: Path) -> None:
    """Write what an engine's own files lack: how texts are cut, and how the model reads and writes.

    Of the data only the names of files are told, and not where they were.
    """
    vocabularies.save(out)
    changes: dict[str, Any] = {"train": None}
    if config.data is not None:
        names = {part: tuple(map(_name, getattr(config.data, part))) for part in ("train", "validation", "test")}
        changes["data"] = config.data.model_copy(update={"folder": "", **names})
    for table in ("text", "target_text"):
        text = getattr(config, table)
        if text is not None and text.file is not None:
            changes[table] = text.model_copy(update={"file": _name(text.file)})
    write_text(out / EXPORTED, dump(config.model_copy(update=changes)))


def _name(file: str) -> str:
    return Path(file).name


def open_writer(
    engine: Engine,
    directory: str | Path,
    decode: Mapping[str, Any] | None = None,
    *,
    batch_size: int = 64,
    chat: bool = False,
) -> Writer:
    """Open a directory to write with an engine.

    Args:
        engine: "ctranslate2", or "onnx" for onnxruntime.
        directory: What `convert` has made for it.
        decode: Fields of [decode] that differ from those of the run that was converted.
        batch_size: How many texts are written at once.
        chat: Each text is a message to a model that answers, by its chat template.

    Raises:
        CheckpointError: `convert` has not made it, it is damaged, or the package is not installed.
        ConfigError: No such field of [decode], or a value that it cannot have.
        DecodingError: Something is asked for that this engine does not do.

    """
    path = Path(directory)
    _check_made(engine, path)
    config = with_decode(load_config(path / EXPORTED), decode or {})
    if not config.model.has_decoder:
        raise DecodingError(f"{directory} holds an encoder alone, which does not write")
    data, (longest, cuts) = config.data, longest_source([config])
    ways: dict[str, Any] = {
        "batch_size": batch_size,
        "truncate": cuts,
        "longest_source": longest,
        "with_start": data is None or data.window is None,  # as a run has it
        "chat": chat,
    }
    vocabularies = load_vocabularies(RunFiles(path), config)
    if engine == "ctranslate2":
        return CTranslate2Writer(path, config, vocabularies, **ways)
    return Writer([OnnxModel(path, config.model)], vocabularies, config.decode, **ways)


def _check_made(engine: str, path: Path) -> None:
    """Refuse what `convert` has not made for this engine, and say what to do."""
    if engine not in FILES:
        raise DecodingError(f"there is no engine {engine!r}; there are {', '.join(FILES)}")
    if not path.exists():
        raise CheckpointError(f"there is nothing at {path}; make it: glassformer convert RUN {path} --to {engine}")
    if not (path / EXPORTED).is_file() or not any((path / file).is_file() for file in FILES[engine]):
        source = path if RunFiles(path).config.is_file() else "RUN"
        raise CheckpointError(
            f"{path} was not made for {engine}; make something that is: glassformer convert {source} OUT --to {engine}"
        )


@dataclass(frozen=True)
class _Shape:
    """What a writer asks of a model that it does not run."""

    config: ModelConfig


class CTranslate2Writer(Writer):
    """Writes with CTranslate2.

    Its beam ranks by n^α. Where the settings have another length penalty, its hypotheses are scored by that afterwards.
    """

    def __init__(self, path: Path, config: Config, vocabularies: Vocabularies, **ways: Any) -> None:
        """Open a directory; see `open_writer`."""
        if config.decode.sample:
            raise DecodingError("the engine ctranslate2 searches here, and does not sample: leave sample out")
        try:
            from ctranslate2 import Generator, Translator
        except ImportError as error:
            raise CheckpointError("the engine needs its package: pip install 'glassformer[ctranslate2]'") from error
        shape: Any = _Shape(config.model)
        super().__init__([shape], vocabularies, config.decode, **ways)
        if config.model.positions.kind == "sinusoidal":
            self._longest = LONGEST
            self._longest_source = min(LONGEST, self._longest_source or LONGEST)
        names = self.tokenizer.tokens(range(config.model.target_vocabulary or 0))
        self._id_of = {name: i for i, name in enumerate(names)}
        self._framed_there = framed_there(path)
        if names != tokens_of(path, "target"):
            raise CheckpointError(f"the vocabulary of {path} is not that of the model beside it")
        try:
            self._engine = (Translator if self.has_source else Generator)(
                str(path), device="cpu", intra_threads=torch.get_num_threads()
            )
        except RuntimeError as error:
            raise CheckpointError(f"CTranslate2 cannot open {path}: {error}") from error

    def write(self, prompts: Sequence[Prompt]) -> list[list[Written]]:
        """Write from each prompt; for each, its results in order, the best score first."""
        results: list[list[Written]] = [[self._written(BLANK)] for _ in prompts]
        if any(prompt.prefix for prompt in prompts):
            raise DecodingError(
                "the engine ctranslate2 gives a prefix no score: leave the prefix out, or use the run itself"
            )
        alike: dict[tuple[int, int], list[int]] = {}  # what is read at once has one length: the rest would be searched
        for i, prompt in enumerate(prompts):
            if not prompt.is_blank:
                alike.setdefault((prompt.limit, len(prompt.read)), []).append(i)
        for (limit, _), places in alike.items():
            for i, found in zip(places, self._search([prompts[i] for i in places], limit), strict=True):
                results[i] = [self._written(hypothesis) for hypothesis in found]
        return results

    def _search(self, prompts: Sequence[Prompt], limit: int) -> list[list[Hypothesis]]:
        config, names = self.config, self.tokenizer.tokens
        alpha = {"none": 0.0, "average": 1.0}.get(config.length_penalty, config.penalty_exponent)
        ways = {
            "max_batch_size": self.batch_size,
            "beam_size": config.beam_size,
            "num_hypotheses": config.beam_size,  # it ranks those that a limit has cut among the others; we do not
            "patience": PATIENCE if config.beam_size > 1 else 1.0,
            "length_penalty": alpha,
            "no_repeat_ngram_size": config.no_repeat_ngram,
            "suppress_sequences": [names([i]) for i in self.rules.forbidden] or None,
            "return_scores": True,
            "return_end_token": True,
        }
        shortest = max(0, config.min_length - 1)
        try:
            if self.has_source:
                cut = slice(self._framed_there[0], -1 if self._framed_there[1] else None)
                sources = [self.source_tokenizer.tokens((prompt.source or ())[cut]) for prompt in prompts]
                ways |= {"min_decoding_length": shortest, "max_decoding_length": limit, "max_input_length": 0}
                found = [(one.hypotheses, one.scores) for one in self._engine.translate_batch(sources, **ways)]
            else:
                ways |= {"min_length": shortest, "max_length": limit, "include_prompt_in_result": False}
                read = [names(prompt.read) for prompt in prompts]
                found = [(one.sequences, one.scores) for one in self._engine.generate_batch(read, **ways)]
        except RuntimeError as error:
            raise DecodingError(f"CTranslate2 gave up: {error}") from error
        return [
            sorted(
                (
                    scored(ids, score * len(ids) ** alpha, end_id=self.tokenizer.end_id, config=config)
                    for ids, score in zip(map(self._ids, texts), scores, strict=True)
                ),
                key=lambda hypothesis: (hypothesis.stopped != "end", -hypothesis.score),
            )[: config.n_best]
            for texts, scores in found
        ]

    def _ids(self, names: Sequence[str]) -> list[int]:
        return [self._id_of[name] for name in names] or [self.tokenizer.end_id]

    def stream(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: this engine gives whole texts."""
        self._refuse()

    def steps(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: this engine shows no steps."""
        self._refuse()

    def record(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: this engine keeps no record."""
        self._refuse()

    def score(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: this engine scores what it writes, and no other text."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise DecodingError("the engine ctranslate2 gives texts and scores only: for this, use the run itself")
