"""What a comparison found, as data and as text."""

from collections.abc import Sequence
from dataclasses import dataclass, field

WORDS = {
    "embedding": "embedding",
    "self_attention": "self-attention",
    "cross_attention": "cross-attention",
    "memory": "the memory that cross-attention reads",
    "ffn": "feed-forward network",
    "norm": "last norm",
    "output": "output",
    "padding": "padded batches",
}


@dataclass(frozen=True)
class Cause:
    """One way in which theirs differs."""

    name: str
    says: str  # the end of "your model …"
    section: str  # of the paper, or another source; "" where there is none
    fix: str
    same: tuple[str, ...] = ()  # other causes that would have the same effect
    settings: tuple[str, ...] = ()  # of a configuration that does the same: "model.norm.placement=pre"


@dataclass(frozen=True)
class FirstDifference:
    """Where a forward pass first differs, in our terms and in theirs."""

    part: str  # "decoder.layers.0.cross_attention"
    tensor: str  # path of the first of our tensors that theirs does not have
    theirs: str  # the submodule and the line of the nearest tensor of theirs; "" where there is none
    largest: float | None  # difference to that one, at most; None: they cannot be laid side by side

    @property
    def words(self) -> str:
        """The place as people say it: layers are counted from 1."""
        return said(self.part)


@dataclass(frozen=True)
class Mapped:
    """Where one of our parameters stands in theirs."""

    ours: str
    theirs: str  # "" where theirs has none
    how: str  # "as it is", "transposed", "rows 0 to 63"


@dataclass
class Report:
    """The outcome of a comparison."""

    equal: bool
    causes: tuple[Cause, ...] = ()
    explained: bool = True  # with the causes ours computes what theirs does
    first: FirstDifference | None = None  # without the causes, or where none explains it, with those that are known
    differences: dict[str, float] = field(default_factory=dict)  # of the logits, as a share of the largest, by batch
    left: dict[str, float] = field(default_factory=dict)  # the same, with the causes
    mapping: tuple[Mapped, ...] = ()
    unused: tuple[str, ...] = ()  # their parameters that no call reads
    notes: tuple[str, ...] = ()  # what makes no difference in the logits, but may surprise

    @property
    def verdict(self) -> str:
        """The outcome in one sentence."""
        if self.equal:
            return "Equal: your model computes what this configuration says."
        causes = (" and " if len(self.causes) <= 2 else "; ").join(cause.says for cause in self.causes)
        if self.explained:
            return f"Your model {causes}."
        place = "" if self.first is None else f"; first seen at {self.first.words} ({self.first.tensor})"
        return f"Unknown{place}." if not self.causes else f"Your model {causes}, and something unknown{place}."

    def __str__(self) -> str:
        lines = [self.verdict]
        for cause in self.causes:
            lines += ["", *_rows(("Cause", cause.name), ("Paper", cause.section), ("Fix", cause.fix))]
            lines += _rows(("Ours", f"does so with {', '.join(cause.settings)}")) if cause.settings else []
            lines += _rows(("Or", f"{', '.join(cause.same)}: the effect is the same")) if cause.same else []
        if self.first is not None:
            by = "" if self.first.largest is None else f", by up to {self.first.largest:.3g}"
            lines += ["", *_rows(("Seen", f"first at {self.first.words}, {self.first.tensor}{by}"))]
            lines += _rows(("Yours", self.first.theirs))
        if self.differences:
            lines += ["", *_rows(("Logits", f"{_shares(self.differences)}, as a share of the largest"))]
            lines += (
                _rows(("Then", f"{_shares(self.left)}, with the causes in ours"))
                if self.causes and self.explained
                else []
            )
        return "\n".join([*lines, *_rows(*(("Note", note) for note in self.notes))])


def _rows(*rows: tuple[str, str]) -> list[str]:
    """Return lines with a word in a column of its own, without those that have nothing to say."""
    return [f"{word:8} {text}" for word, text in rows if text]


def said(part: str) -> str:
    """Return a part of the machine as people say it: "decoder layer 1, cross-attention"."""
    words = part.split(".")
    leaf = WORDS.get(words[-1], words[-1])
    if "layers" in words:
        return f"{words[0]} layer {int(words[words.index('layers') + 1]) + 1}, {leaf}"
    return f"{words[0]} {leaf}" if len(words) > 1 else leaf


def _shares(differences: dict[str, float]) -> str:
    return ", ".join(f"{value:.1e} ({name})" for name, value in differences.items())


def mapping_rows(mapping: Sequence[Mapped]) -> list[tuple[str, str, str]]:
    """Return the mapping as a table."""
    return [(row.ours, row.theirs or "—", row.how) for row in mapping]
