"""Pairs from what translators keep: catalogues of messages (PO) and translation memories (TMX)."""

import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element, ParseError

from glassformer.errors import DataError
from glassformer.text.lines import opened

if TYPE_CHECKING:
    import polib

# polib cuts off the first and last character of a text without looking whether they are quotes
_PO_LINE = re.compile(r'(msg[a-z_]+(\[\d+])?\s+)?"([^"\\]|\\.)*"')
_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
_CODES = {"bpt", "ept", "it", "ph", "ut"}  # TMX 1.4b, section 3.2.2: codes of the original format
_SHOWN = 10


def listed(names: Iterable[str], most: int = _SHOWN) -> str:
    """Return names for a message: the first ones, and whether there are more."""
    found = list(islice(names, most + 1))
    return ", ".join(found[:most]) + (", …" if len(found) > most else "") or "none"


def po_messages(path: Path, skipped: Counter[str]) -> Iterator[tuple[str, str, int]]:
    """Yield each message of a PO file with its translation and its line.

    A message with a plural gives two pairs: the singular with the first form, the plural with the last (the same one
    in a language that has but one form). Fuzzy, obsolete and untranslated messages are left out and counted.

    Raises:
        DataError: The file cannot be read, is not PO or not in the encoding that its header names; or polib is missing.

    """
    for entry in read_po(path):
        line = max(entry.linenum, 1)  # polib says 0 for the first
        reasons = {"obsolete": entry.obsolete, "fuzzy": entry.fuzzy, "untranslated": not entry.translated()}
        reason = next((reason for reason, holds in reasons.items() if holds), None)
        if reason is not None:
            skipped[reason] += 1
        elif entry.msgstr_plural:
            forms = entry.msgstr_plural
            yield entry.msgid, forms[min(forms)], line
            yield entry.msgid_plural, forms[max(forms)], line
        else:
            yield entry.msgid, entry.msgstr, line


def read_po(path: Path) -> "polib.POFile":
    """Read a PO file.

    Raises:
        DataError: It cannot be read, is not PO or not in the encoding that its header names; or polib is missing.

    """
    try:
        import polib
    except ImportError as error:
        raise DataError("PO files need the package polib: pip install 'glassformer[po]'") from error
    with opened(path) as file:
        text = _po_text(path, file.read(), polib)
    try:
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder, "copy.po")
            copy.write_text(text, encoding="utf-8", newline="\n")
            entries = polib.pofile(str(copy), encoding="utf-8")
    except OSError as error:  # so polib says that it does not understand a line
        if (found := re.search(r"\(line (\d+)\)", str(error))) is None:
            raise DataError(f"cannot read {path}: {error}") from error
        raise _not_po(path, int(found[1])) from error
    return entries


def _po_text(path: Path, raw: bytes, polib: Any) -> str:
    """Decode a PO file as its header says, and check that polib will read it right."""
    charset = polib.detect_encoding(raw)
    try:
        text = raw.decode(charset).removeprefix("\ufeff")
        text.encode()  # some encodings can write halves of characters
    except UnicodeDecodeError as error:
        bad = raw.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}, line {bad} is not {charset}; convert the file or correct its header") from error
    except (LookupError, UnicodeError) as error:
        raise DataError(f"{path} cannot be read as {charset}; convert it to UTF-8") from error
    # a carriage return inside a text would end the line; written as an escape it is the same text
    text = text.replace("\r\n", "\n").replace("\r", r"\r")
    for number, line in enumerate(map(str.strip, text.split("\n")), start=1):
        if line and not line.startswith("#") and not _PO_LINE.fullmatch(line):
            raise _not_po(path, number)
    return text


def _not_po(path: Path, number: int) -> DataError:
    return DataError(
        f"{path}, line {number} is not PO: it must be a comment, or a keyword and a text in quotes, such as "
        'msgid "Open", each in its place; msgfmt -c says more'
    )


def tmx_units(path: Path, source: str, target: str, skipped: Counter[str]) -> Iterator[tuple[str, str, int]]:
    """Yield the texts that each unit of a TMX file has in two languages, and which unit it is, from 1.

    "en" takes a text marked en (in capitals or not), and where there is none the first that is marked en-US or the
    like, but for the one that the other language takes. Codes of the original format are left out of the texts. Units
    without one of the languages are counted.

    Raises:
        DataError: The file cannot be read, is not TMX, declares entities, or has no unit in both languages, and which
            it has; or defusedxml is missing.

    """
    number = pairs = 0
    known: dict[str, None] = {}  # languages, in their order
    for number, unit in enumerate(_units(path), start=1):
        texts = _texts(unit)
        first, second = _taken(texts, source, target)
        if first is None or second is None:
            missing = [language for language, own in ((source, first), (target, second)) if own is None]
            skipped[f"without {' and '.join(missing)}"] += 1
        else:
            pairs += 1
            yield texts[first], texts[second], number
        if len(known) <= _SHOWN:
            known.update(dict.fromkeys(texts))
    if number == 0:
        raise DataError(f"{path} has no translation unit (<tu>); is it TMX?")
    if pairs == 0:
        raise DataError(f"{path} has no unit in both {source!r} and {target!r}. Its languages: {listed(known)}")


def _units(path: Path) -> Iterator[Element]:
    """Yield each <tu>, and forget it afterwards: a memory may be larger than this machine's."""
    try:
        from defusedxml import DefusedXmlException
        from defusedxml.ElementTree import iterparse
    except ImportError as error:
        raise DataError("TMX files need the package defusedxml: pip install 'glassformer[tmx]'") from error
    parent: Element | None = None
    with opened(path) as file:
        try:
            for event, element in iterparse(file, events=("start", "end")):
                name = _local(element)
                if event == "start":
                    if parent is None or name == "body":
                        parent = element
                elif name == "tu" and parent is not None:
                    yield element
                    parent.clear()
        except DefusedXmlException as error:
            raise DataError(
                f"{path} declares entities, which could fill the memory or read other files; "
                "write out what they stand for"
            ) from error
        except (ParseError, LookupError, ValueError) as error:  # the last two: encodings that the parser does not know
            raise DataError(f"{path} is not well-formed XML: {error}") from error


def _local(element: Element) -> str:
    return element.tag.rpartition("}")[2]  # some files name a namespace


def _texts(unit: Element) -> dict[str, str]:
    """Return what a unit says in each language as the file spells it; of two texts in one language, the first."""
    texts: dict[str, str] = {}
    for variant in unit:
        if _local(variant) == "tuv" and (language := variant.get(_XML_LANG) or variant.get("lang")):
            for child in variant:
                if _local(child) == "seg":
                    texts.setdefault(language, _text(child))
    return texts


def _text(segment: Element) -> str:
    for element in list(segment.iter()):
        if _local(element) in _CODES:
            tail = element.tail
            element.clear()
            element.tail = tail
    return "".join(segment.itertext())


def _taken(texts: Iterable[str], source: str, target: str) -> tuple[str | None, str | None]:
    """Return which languages of a unit stand for the two that are wanted: never one for both, as a copy is no pair."""
    first = next((own for own in _varieties(texts, source) if _plain(own) != _plain(target)), None)
    return first, next((own for own in _varieties(texts, target) if own != first), None)


def _varieties(texts: Iterable[str], wanted: str) -> list[str]:
    """Return a language as a unit spells it, and then the varieties of it."""
    exact = [own for own in texts if _plain(own) == _plain(wanted)]
    return exact + [own for own in texts if _plain(own).startswith(f"{_plain(wanted)}-")]


def _plain(language: str) -> str:
    return language.lower().replace("_", "-")
