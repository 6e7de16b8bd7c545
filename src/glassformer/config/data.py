"""Where the examples come from, and how their text becomes tokens. No torch."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from glassformer.config.model import Count, Frozen

Format = Literal["parallel", "tsv", "csv", "jsonl", "po", "tmx", "text"]
Files = Annotated[tuple[str, ...], Field(strict=False)]


class TextConfig(Frozen):
    """A vocabulary: learnt from the training files, or read from a file."""

    # letters: every character is a token, blanks too; words: what stands between white space;
    # bytes: the 256 bytes of UTF-8; bpe: pairs of bytes merged by how often they occur (GPT-2's), `size` tokens
    kind: Literal["letters", "words", "bytes", "bpe"] = "bpe"
    size: Annotated[int, Field(ge=8, le=2**31 - 1)] | None = None  # bpe: tokens; letters, words: at most so many
    min_count: Count = 1  # letters, words: rarer ones are unknown; bpe: rarer pairs are not merged
    # what is done to a text before it is cut, in this order; nothing: the text comes back exactly
    normalise: Annotated[tuple[Literal["nfc", "nfkc", "lowercase", "strip-accents"], ...], Field(strict=False)] = ()
    file: str | None = None  # a tokenizer.json, or a SentencePiece model (.model), instead of learning one

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.file is not None and (self.kind, self.size, self.min_count, self.normalise) != ("bpe", None, 1, ()):
            raise ValueError(f"file={self.file!r} holds a whole vocabulary: leave the other fields out")
        if self.file is None and self.kind == "bpe" and self.size is None:
            raise ValueError("byte pairs need a size: how many tokens to learn, such as size=8000")
        if self.file is None and self.kind == "bpe" and self.size is not None and self.size < 264:
            raise ValueError(
                f"size={self.size} is too small for byte pairs: the 256 bytes and special tokens stand first"
            )
        if self.kind == "bytes" and (self.size is not None or self.min_count != 1):
            raise ValueError("bytes are always the same 256 tokens: leave size and min_count out")
        return self


class DataConfig(Frozen):
    """The examples: of files, or of a task that makes its own.

    Files hold pairs (a source and its target, a text and its class, a prompt and its answer) or plain text.
    """

    task: Literal["reversal", "number-words"] | None = None  # makes its own examples; unset: files
    folder: str = ""  # where the files are; unset: where one works
    train: Files = ()  # parallel: a source file, its target file, the next source file, …
    validation: Files = ()
    test: Files = ()
    # without validation files: the share of the training examples that is kept for validation instead: those whose
    # source a hash picks, so that equal ones stay on one side; of windows the end of the text
    held_out: Annotated[float, Field(gt=0.0, lt=1.0)] | None = None
    # how the files are read; unset: by the ending of their names (.gz aside): .tsv .csv .jsonl .po .tmx, and of any
    # others as plain text for a decoder, as parallel for the other models
    format: Format | None = None
    # where a pair stands: tsv and csv: names of columns in the first line, or numbers from 1 where no line names them
    # (unset: tsv 1 and 2, csv source and target); jsonl: keys (source and target); tmx: languages (needed)
    source: str | None = None
    target: str | None = None
    window: Count | None = None  # plain text: cut it into windows of so many tokens; unset: each line is an example
    max_length: Count | None = None  # tokens of a source or target, special ones aside; unset: all that the model takes
    truncate: bool = False  # cut sources that are longer; otherwise such examples are left out (and counted)
    shortest: Count = 3  # reversal: letters in a sequence
    longest: Count = 8
    test_size: Count | None = None  # of a task: examples to test on (reversal 500, number-words 100), always the same

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.shortest > self.longest:
            raise ValueError(f"data.shortest={self.shortest} is more than data.longest={self.longest}")
        of_files = self.model_fields_set & {
            "folder", "train", "validation", "test", "held_out", "format", "source", "target", "window", "max_length",
            "truncate",
        }  # fmt: skip
        if self.task is not None and any(getattr(self, name) for name in of_files):
            raise ValueError(f"the task {self.task!r} makes its own examples: leave out {', '.join(sorted(of_files))}")
        if self.task is None and not self.train:
            raise ValueError('name the files to train on: train = ["train.tsv"], or a task')
        if self.task is None and self.test_size is not None:
            raise ValueError("test_size belongs to tasks; of files, test names those to test on")
        if (
            self.task != "reversal"
            and self.model_fields_set & {"shortest", "longest"}
            and (self.shortest, self.longest) != (3, 8)
        ):
            raise ValueError("shortest and longest belong to the task 'reversal'")
        if self.window is not None and (self.source is not None or self.target is not None):
            raise ValueError("windows are cut from plain text, which has no columns: leave source and target out")
        if self.held_out is not None and self.validation:
            raise ValueError("validation names files, so that held_out has nothing to do: leave one of them out")
        if self.window is not None and (self.max_length is not None or self.truncate):
            raise ValueError("windows have one length: leave max_length and truncate out")
        return self
