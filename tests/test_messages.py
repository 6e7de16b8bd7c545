"""Catalogues: what is missing is translated, what stands there stays, and what lost a placeholder is marked."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polib
import pytest

from glassformer.errors import DataError, DecodingError
from glassformer.messages import Tally, placeholders, translate_catalogue
from glassformer.writer import Writer, Written
from tests.conftest import Cli

HEADER = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n"Language: de\\n"\n'
WORDS = {
    "Open": "Öffnen",
    "~Open": "Ö~ffnen",
    "Open %s": "%s öffnen",
    "%d file": "%d Datei",
    "%d files": "%d Dateien",
    "Save <b>all</b>": "<b>Alles</b> sichern",
    "Lost %1": "Verloren",
    "Cut": "Abgeschnitten",
    "5 ₤": "5 <unk>",
}


class Dictionary:
    """Writes what a list of words says: in place of a model."""

    has_source = True

    def __init__(self, words: Mapping[str, str]) -> None:
        self.words, self.asked = words, list[str]()

    def prompt(self, text: str) -> SimpleNamespace:
        if "€" in text:
            raise DataError("the vocabulary has no '€'")
        self.asked.append(text)
        return SimpleNamespace(text=text, n_unknown=text.count("₤"))

    def write(self, prompts: list[SimpleNamespace]) -> list[list[Written]]:
        stopped: Any = {"": "empty", "Cut": "limit"}
        texts = [prompt.text for prompt in prompts]
        return [[Written(self.words.get(text, ""), [], [], 0.0, 0.0, stopped.get(text, "end"))] for text in texts]


def translated(path: Path, text: str, words: Mapping[str, str] = WORDS) -> tuple[polib.POFile, Tally]:
    path.write_text(HEADER + text, encoding="utf-8")
    found, tally = translate_catalogue(cast("Writer", Dictionary(words)), path)
    return polib.pofile(found), tally


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "messages.po"


def one(path: Path, message: str) -> tuple[str, bool]:
    """Return the translation of one message, and whether it is marked."""
    (entry,) = translated(path, f"\n{polib.POEntry(msgid=message)}")[0]
    return entry.msgstr, entry.fuzzy


@pytest.mark.parametrize(
    ("message", "right"),
    [
        ("Open", ("Öffnen", False)),
        ("~Open", ("Ö~ffnen", False)),
        ("Open %s", ("%s öffnen", False)),
        ("Save <b>all</b>", ("<b>Alles</b> sichern", False)),
        ("Lost %1", ("Verloren", True)),
        ("Cut", ("Abgeschnitten", True)),  # at the limit of the length
        ("Nobody knows", ("", False)),  # still without a translation
        ("5 €", ("", False)),  # the vocabulary cannot read it
        ("  Open \n\nOpen %s\n", ("  Öffnen \n\n%s öffnen\n", False)),  # line by line, with the blanks around them
        ("Open\n5 €", ("Öffnen\n", True)),
        ("5 ₤", ("5 <unk>", True)),  # and this it reads in part
    ],
)
def test_one_message(path: Path, message: str, right: tuple[str, bool]) -> None:
    assert one(path, message) == right


def test_what_stands_there_stays(path: Path) -> None:
    """Translated, fuzzy and obsolete messages, comments, places, contexts and the header."""
    text = (
        '\n#. of the menu\n#: main.c:7\nmsgctxt "menu"\nmsgid "Open"\nmsgstr ""\n'
        '\nmsgid "Done"\nmsgstr "Fertig"\n\n#, fuzzy\nmsgid "Perhaps"\nmsgstr "Vielleicht"\n'
        '\n#~ msgid "Old"\n#~ msgstr "Alt"\n'
    )
    found, tally = translated(path, text)
    new, done, perhaps = (entry for entry in found if not entry.obsolete)
    assert (new.msgstr, new.msgctxt, new.comment, new.occurrences) == (
        "Öffnen",
        "menu",
        "of the menu",
        [("main.c", "7")],
    )
    assert (done.msgstr, perhaps.msgstr, perhaps.fuzzy) == ("Fertig", "Vielleicht", True)
    assert [entry.msgid for entry in found.obsolete_entries()] == ["Old"]
    assert found.metadata["Language"] == "de"
    assert tally == Tally(translated=1, fuzzy=0, empty=0, kept=3)


@pytest.mark.parametrize(("rule", "n"), [("", 2), ("nplurals=1; plural=0;", 1), ("nplurals=3; plural=n>1;", 3)])
def test_plurals(path: Path, rule: str, n: int) -> None:
    header = f'"Plural-Forms: {rule}\\n"\n' if rule else ""
    text = f'{header}\nmsgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    (entry,), tally = translated(path, text)
    assert entry.msgstr_plural == dict(enumerate(["%d Datei", "%d Dateien", "%d Dateien"][:n]))
    assert tally == Tally(translated=1, fuzzy=0, kept=0)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("100 % sure, 5%", []),
        ("%s of %d, %2$s, %.2f, %5d, %lu, %%", ["%s", "%d", "%2$s", "%.2f", "%5d", "%lu", "%%"]),
        ("%(name)s has %(n)d", ["%(name)s", "%(n)d"]),
        ("%1 of %2 in %L3, %PRODUCTNAME %PRODUCTVERSION", ["%1", "%2", "%L3", "%PRODUCTNAME", "%PRODUCTVERSION"]),
        ("$(ARG1) ${x} $name$ costs 5 $", ["$(ARG1)", "${x}", "$name$"]),
        ("{} {0} {name:>8} {a b", ["{}", "{0}", "{name:>8}"]),
        ("<b>bold</b> <br/> 3 < 4 > 2", ["<b>", "</b>", "<br/>"]),
        ("a &amp; b &#39; R&D", ["&amp;", "&#39;", "&"]),
        ("~File _Edit &View Sa~ve", ["~", "_", "&", "~"]),
        ("snake_case ~ _ &", []),
    ],
)
def test_placeholders(text: str, right: list[str]) -> None:
    assert placeholders(text) == Counter(right)


class TestCommandLine:
    def test_a_catalogue(self, run_directory: Path, path: Path, here: Cli) -> None:
        path.write_text(f'{HEADER}\nmsgid "c a b"\nmsgstr ""\n\nmsgid "Open"\nmsgstr ""\n\nmsgid "d"\nmsgstr "e"\n')
        done = here("translate", run_directory, "--po", path)
        first, second, third = polib.pofile(done.stdout)
        assert (first.msgstr, first.fuzzy) == ("b a c", False)
        assert (second.msgstr, second.fuzzy, third.msgstr) == ("", False, "e")
        assert done.stderr == (
            "1 message translated, 0 of them marked fuzzy (a placeholder is missing, or a part of the text); "
            "1 without a result, 1 left as they were\n"
        )

    @pytest.mark.parametrize("more", [["a b"], ["--scores"], ["--json"], ["--beam-size", "2", "--n-best", "2"]])
    def test_not_with_what_is_for_lines(self, run_directory: Path, path: Path, here: Cli, more: list[str]) -> None:
        path.write_text(HEADER)
        done = here("translate", run_directory, *more, "--po", path)
        assert done.returncode == 2
        told = " ".join(done.stderr.replace("│", " ").split())
        assert "a catalogue is read and printed as a whole: leave the other options out" in told

    def test_no_catalogue(self, run_directory: Path, path: Path, here: Cli) -> None:
        path.write_text("hello\n")
        done = here("translate", run_directory, "--po", path)
        assert (done.returncode, done.stdout) == (1, "")
        assert "line 1 is not PO" in done.stderr


def test_another_encoding(path: Path) -> None:
    """What comes out is UTF-8, and its header says so."""
    path.write_bytes(HEADER.replace("UTF-8", "ISO-8859-1").encode() + b'\nmsgid "caf\xe9"\nmsgstr ""\n')
    found, _ = translate_catalogue(cast("Writer", Dictionary({"café": "Café"})), path)
    assert polib.pofile(found).metadata["Content-Type"] == "text/plain; charset=UTF-8"
    assert 'msgstr "Café"' in found


def test_a_decoder_alone(path: Path) -> None:
    writer = Dictionary({})
    writer.has_source = False
    with pytest.raises(DecodingError, match="needs an encoder–decoder"):
        translate_catalogue(cast("Writer", writer), path)
