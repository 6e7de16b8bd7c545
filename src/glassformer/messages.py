"""A program's messages: what a PO catalogue lacks is translated, and marked where the translation cannot be right."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from glassformer.data.catalogues import read_po
from glassformer.errors import DataError, DecodingError
from glassformer.writer import Writer, Written

if TYPE_CHECKING:
    import polib

# What a program fills in or a toolkit reads, and a translation must have too, as often:
_PLACEHOLDERS = re.compile(
    r"%%"
    r"|%\(\w+\)[-#0 +]*[\d.]*[a-zA-Z]"  # Python: %(name)s
    r"|%(?:\d+\$)?[-#0+]*[\d.*]*(?:hh|h|ll|l|j|z|t|L)?[diouxXeEfFgGcspn@](?![A-Za-z])"  # C: %s %1$d %.2f
    r"|%[A-Z][A-Z0-9_]*%?|%L?\d+|%n"  # %PRODUCTNAME; Qt: %1 %L1 %n
    r"|\$\([\w.]+\)|\$\{[^{}]*\}|\$[A-Za-z_]\w*\$?"  # $(ARG1) ${name} $name$
    r"|\{[^{}\n]*\}"  # Python, .NET: {} {0} {name:>8}
    r"|</?[A-Za-z][^<>]*>"  # tags
    r"|&(?:[A-Za-z]\w*|#\d+);"  # entities
    r"|(?<!\w)[~_&](?=\w)|(?<=\w)[~&](?=\w)"  # the letter after it is a menu's shortcut: another one may be it
)


@dataclass
class Tally:
    """What became of a catalogue's messages."""

    translated: int = 0
    fuzzy: int = 0  # of them: marked as they cannot be right
    empty: int = 0  # nothing was written for them: still without a translation
    kept: int = 0  # were translated before, or are obsolete


def translate_catalogue(writer: Writer, path: Path) -> tuple[str, Tally]:
    """Translate the messages of a PO file that have no translation; return the file's new text, and what was done.

    A message is translated line by line, and blanks around a line stay. Of a plural the first form is the translation
    of the singular, all others that of the plural. A message is marked fuzzy where the placeholders of the two texts
    differ, or a line was cut, is empty, or cannot be read by the vocabulary. The text that is returned is for UTF-8.

    Args:
        writer: Of an encoder–decoder.
        path: The catalogue.

    Raises:
        DataError: The file cannot be read, or polib is missing.
        DecodingError: The model does not translate.

    """
    if not writer.has_source:
        raise DecodingError("a decoder alone does not translate messages: that needs an encoder–decoder")
    entries = read_po(path)
    todo = [entry for entry in entries if not entry.obsolete and not entry.translated() and not entry.fuzzy]
    tally = Tally(kept=len(entries) - len(todo))
    texts = [text for entry in todo for text in _texts(entry)]
    answers = iter(_translated(writer, texts))
    n_forms = _n_forms(entries.metadata.get("Plural-Forms", ""))
    for entry in todo:
        singular, *plural = [next(answers) for _ in _texts(entry)]
        if not any(text.strip() for text, _ in (singular, *plural)):
            tally.empty += 1
            continue
        if plural:
            entry.msgstr_plural = {form: (plural[0] if form else singular)[0] for form in range(n_forms)}
        else:
            entry.msgstr = singular[0]
        tally.translated += 1
        if not all(is_good for _, is_good in (singular, *plural)):
            entry.flags.append("fuzzy")
            tally.fuzzy += 1
    if entries.metadata:  # as what is returned is text, and will be written as UTF-8
        entries.metadata["Content-Type"] = "text/plain; charset=UTF-8"
    return str(entries), tally


def placeholders(text: str) -> Counter[str]:
    """Count what a translation of the text must have as often: %s, {name}, tags, the sign of a shortcut."""
    return Counter(_PLACEHOLDERS.findall(text))


def _texts(entry: "polib.POEntry") -> Iterator[str]:
    yield entry.msgid
    if entry.msgid_plural:
        yield entry.msgid_plural


def _translated(writer: Writer, texts: list[str]) -> list[tuple[str, bool]]:
    """Return the translation of each text, and whether it can be right."""
    lines = [line for text in texts for line in text.split("\n")]
    prompts, is_read = [], []
    for line in lines:
        try:
            prompts.append(writer.prompt(line.strip()))
            is_read.append(not prompts[-1].n_unknown)
        except DataError:
            prompts.append(writer.prompt(""))
            is_read.append(False)
    written = iter(zip(lines, writer.write(prompts), is_read, strict=True))
    found = []
    for text in texts:
        parts, are_good = [], True
        for line, results, was_read in (next(written) for _ in text.split("\n")):
            parts.append(_with_blanks(line, results[0]))
            is_whole = results[0].stopped == "end" and bool(results[0].text.strip())
            are_good &= was_read and (is_whole or not line.strip())
        translation = "\n".join(parts)
        found.append((translation, are_good and placeholders(translation) == placeholders(text)))
    return found


def _with_blanks(line: str, written: Written) -> str:
    """Return what was written, with the blanks that stood around the line."""
    text = line.strip()
    before, after = line.split(text, 1) if text else (line, "")
    return before + " ".join(written.text.split()) + after


def _n_forms(rule: str) -> int:
    """Return how many plural forms the header of a catalogue names; without one, two."""
    found = re.search(r"nplurals\s*=\s*(\d+)", rule)
    return max(1, int(found[1])) if found else 2
