"""Examples from files, one after another: no file need fit into memory.

A line ends at a newline and at nothing else; files are UTF-8 and may be packed with gzip. Blank texts are examples too.
"""

import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.config.data import Format
from glassformer.data.catalogues import listed, po_messages, tmx_units
from glassformer.errors import DataError, nearest
from glassformer.text.lines import has_surrogate, text_lines, uneven, whole_text

_ENDINGS: dict[str, Format] = {
    ".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".po": "po", ".tmx": "tmx",
}  # fmt: skip
_NAMES = {"tsv": ("1", "2"), "csv": ("source", "target"), "jsonl": ("source", "target")}
_JSON_KINDS = {
    str: "a string", bool: "true or false", int: "a number", float: "a number", type(None): "null", list: "a list",
    dict: "an object",
}  # fmt: skip
_LONGEST_FIELD = 2**31 - 1  # the most that csv takes on every system
PIECE = 2**16  # characters of a text that are cut into tokens as one, or more
Row = tuple[str, str | None, int]


class Example(NamedTuple):
    """A pair of texts, or one text; and where it stands."""

    source: str
    target: str | None  # None: plain text
    path: Path  # of a pair of files, the source's
    number: int  # from 1
    counted: str = "line"  # what the number counts: lines, or units of a TMX file

    @property
    def where(self) -> str:
        """Where the example stands, for messages: `train.tsv, line 7`."""
        return f"{self.path}, {self.counted} {self.number}"


def format_of(paths: Sequence[Path], *, kind: str) -> Format:
    """Return the format of files by the ending of their names, `.gz` aside.

    Other endings are plain text for a decoder and parallel files for other models.

    Raises:
        DataError: The files have different formats, and which.

    """
    other: Format = "text" if kind == "decoder" else "parallel"
    formats = {path: _ENDINGS.get(Path(path.name.removesuffix(".gz")).suffix.lower(), other) for path in paths}
    first = next(iter(formats), None)
    for path, found in formats.items():
        if first is not None and found != formats[first]:
            raise DataError(
                f"{first} is read as {formats[first]}, but {path} as {found}: "
                "files that are read together need one format"
            )
    return other if first is None else formats[first]


def read_examples(
    paths: Sequence[Path],
    *,
    format: Format,
    source: str | None,
    target: str | None,
    skipped: Counter[str] | None = None,
) -> Iterator[Example]:
    """Yield the examples of files, in their order.

    `source` and `target` say where a pair stands: columns of tsv and csv (numbers from 1; or names in the first line),
    keys of jsonl, languages of tmx. What po and tmx leave out is counted in `skipped`, by reason.

    Raises:
        DataError: A file cannot be read or is not what its format says, and where; or `source` and `target` do not fit
            the format.

    """
    for path in paths:
        if path.is_dir():
            raise DataError(f"{path} is a directory; name the files in it")
    if format in ("parallel", "po", "text") and (source is not None or target is not None):
        raise DataError(f"the format {format!r} has no columns to choose from: leave source and target out")
    if format == "parallel":
        yield from _parallel(paths)
        return
    counted = "unit" if format == "tmx" else "line"
    skipped = Counter() if skipped is None else skipped
    for path in paths:
        for source_text, target_text, number in _rows(path, format, names=(source, target), skipped=skipped):
            yield Example(source_text, target_text, path, number, counted)


def whole_texts(paths: Sequence[Path], held_out: float | None, *, is_held_out: bool) -> Iterator[Iterator[str]]:
    """Yield the text of each file, in pieces.

    Args:
        paths: Of the files.
        held_out: The share at the end of all files together that is kept apart; None: everything is wanted.
        is_held_out: Whether that share is wanted, or the rest. A file that has no part in it is left out.

    """
    if held_out is None:
        yield from (pieces(whole_text(path)) for path in paths)
        return
    sizes = [sum(map(len, whole_text(path))) for path in paths]
    border = int(sum(sizes) * (1 - held_out))  # counted from where the next file begins
    for path, size in zip(paths, sizes, strict=True):
        start, end = (max(border, 0), size) if is_held_out else (0, min(border, size))
        if start < end:
            yield pieces(_part(whole_text(path), start, end))
        border -= size


def pieces(lines: Iterable[str]) -> Iterator[str]:
    """Join lines to long pieces that no token reaches across: white space is where tokenizers part a text.

    A piece ends after a newline that stands between two other characters. Some tokenizers take a full stop and the
    newlines after it as one token, others all white space but the last before a word, and this suits both. Where every
    line has a blank one beside it, or is indented, a piece ends before the newline.
    """
    held: list[str] = []
    size = 0
    for line in lines:
        if size >= PIECE and held[-1][-2:-1].strip():
            if line[0].strip():
                yield "".join(held)
                held, size = [], 0
            elif size >= 2 * PIECE:
                yield "".join(held)[:-1]
                held, size = ["\n"], 1
        held.append(line)
        size += len(line)
    if held:
        yield "".join(held)


def _part(texts: Iterable[str], start: int, end: int) -> Iterator[str]:
    """Yield the characters from `start` to `end` of a text that comes in several."""
    place = 0
    for text in texts:
        own = text[max(0, start - place) : max(0, end - place)]
        place += len(text)
        if own:
            yield own


def _rows(path: Path, format: Format, *, names: tuple[str | None, str | None], skipped: Counter[str]) -> Iterator[Row]:
    if format == "text":
        return ((line, None, number) for number, line in enumerate(text_lines(path), start=1))
    if format == "po":
        return po_messages(path, skipped)
    if format == "tmx":
        if names[0] is None or names[1] is None:
            raise DataError('TMX files hold many languages: say which two, such as source="en" and target="de"')
        return tmx_units(path, names[0], names[1], skipped)
    source, target = (default if name is None else name for name, default in zip(names, _NAMES[format], strict=True))
    return {"tsv": _tsv, "csv": _csv, "jsonl": _jsonl}[format](path, source, target)


def _parallel(paths: Sequence[Path]) -> Iterator[Example]:
    if len(paths) % 2:
        raise DataError(
            f"parallel files come in pairs, a source file and its target file, but there are {len(paths)}; "
            f"{paths[-1]} has no partner"
        )
    for source, target in zip(paths[::2], paths[1::2], strict=True):
        lines = zip_longest(text_lines(source), text_lines(target))
        for number, (source_line, target_line) in enumerate(lines, start=1):
            if source_line is None or target_line is None:
                shorter, longer = number - 1, number + sum(1 for _ in lines)
                counts = (shorter, longer) if source_line is None else (longer, shorter)
                raise uneven(source, counts[0], target, counts[1])
            yield Example(source_line, target_line, source, number)


def _tsv(path: Path, source: str, target: str) -> Iterator[Row]:
    rows = ((number, line.split("\t")) for number, line in enumerate(text_lines(path), start=1))
    columns = _numbers(source, target) or _header(path, next(rows, None), source, target)
    needed = max(columns) + 1
    for number, row in rows:
        if len(row) >= needed:
            yield row[columns[0]], row[columns[1]], number
        elif any(field.strip() for field in row):
            raise DataError(
                f"{path}, line {number} has {len(row)} columns, but {needed} are needed: a tab stands between columns"
            )
        else:
            yield "", "", number


def _csv(path: Path, source: str, target: str) -> Iterator[Row]:
    rows = _csv_rows(path)
    first = next(rows, None)
    numbers = _numbers(source, target)
    columns = numbers or _header(path, first, source, target)
    if first is None:
        return
    width = len(first[1])
    if width <= max(columns):
        raise DataError(f"{path}, line {first[0]} has {width} columns, but {max(columns) + 1} are needed")
    for number, row in chain([first] if numbers else [], rows):
        if len(row) != width:
            raise DataError(
                f"{path}, line {number} has {len(row)} columns, but the first row has {width}: "
                "a text that holds a comma must stand in double quotes"
            )
        yield row[columns[0]], row[columns[1]], number


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not empty, each with the line that it begins on."""
    reader = csv.reader((f"{line}\n" for line in text_lines(path)), strict=True)
    while True:
        number = reader.line_num + 1
        limit = csv.field_size_limit(_LONGEST_FIELD)  # one for the whole process: so for this row only
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise DataError(
                f"{path}, line {number} begins a row that is not CSV ({str(error).partition(' - ')[0]}): a text that "
                "holds a comma, double quote or end of line must stand in double quotes, and its own be doubled"
            ) from error
        finally:
            csv.field_size_limit(limit)
        if row is None:
            return
        if row:
            yield number, row


def _numbers(source: str, target: str) -> tuple[int, int] | None:
    """Return two numbers of columns, from 0; or None, if they are names."""
    if not source.isdecimal() and not target.isdecimal():
        return None
    if not source.isdecimal() or not target.isdecimal():
        raise DataError(
            f"source={source!r} and target={target!r} are a number and a name: give two numbers of columns, or two "
            "names from the first line"
        )
    if int(source) == 0 or int(target) == 0:
        raise DataError(f"source={source!r} and target={target!r}: columns are counted from 1")
    return int(source) - 1, int(target) - 1


def _header(path: Path, first: tuple[int, list[str]] | None, source: str, target: str) -> tuple[int, int]:
    """Return where the first line has two names."""
    if first is None:
        raise DataError(f"{path} is empty: its first line must name the columns, {source!r} and {target!r} among them")
    header = first[1]
    for name in (source, target):
        if name not in header:
            raise DataError(f"{path} has no column {name!r}{nearest(name, header)} Columns: {listed(header)}")
        if header.count(name) > 1:
            raise DataError(f"{path} has {header.count(name)} columns {name!r}; give each another name")
    return header.index(source), header.index(target)


def _jsonl(path: Path, source: str, target: str) -> Iterator[Row]:
    for number, line in enumerate(text_lines(path), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{path}, line {number} is not JSON: {error.msg} at column {error.colno}") from error
        except (ValueError, RecursionError) as error:  # digits without end, lists in lists without end
            raise DataError(f"{path}, line {number} cannot be read as JSON: {error}") from error
        if not isinstance(value, dict):
            raise DataError(
                f"{path}, line {number} is {_JSON_KINDS[type(value)]}, but must be an object, such as "
                f'{{"{source}": "…", "{target}": "…"}}'
            )
        where = f"{path}, line {number}"
        yield _string(value, source, where), _string(value, target, where), number


def _string(value: dict[str, Any], key: str, where: str) -> str:
    if key not in value:
        raise DataError(f"{where} has no key {key!r}{nearest(key, value)} Keys: {listed(value)}")
    text = value[key]
    if not isinstance(text, str):
        raise DataError(f"{where}: {key!r} must be a string, but is {_JSON_KINDS[type(text)]}")
    if has_surrogate(text):
        raise DataError(f"{where}: {key!r} holds half a character, such as \\ud800; write both halves, or neither")
    return text
