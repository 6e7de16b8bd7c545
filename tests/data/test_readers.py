"""Readers: what was written is read, whatever Unicode it holds; what is malformed is refused in one sentence."""

import csv
import gzip
import io
import json
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import get_args
from xml.sax.saxutils import escape

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glassformer.config.data import Format
from glassformer.data.readers import Example, format_of, pieces, read_examples, whole_texts
from glassformer.errors import DataError

Pairs = list[tuple[str, str]]
NASTY: Pairs = [
    ("plain", "schlicht"),
    ("line\u2028separator", "paragraph\u2029separator"),
    ("next\u0085line", "lone\rreturn"),
    ("flag 🇩🇪 and 👩‍👩‍👧", "e\u0301 \ufeff ñ"),
    ("  blanks  ", "\u00a0"),
    ('some "quotes", a \\ and <&>', "'"),
    ("empty", ""),
]  # none with what XML cannot hold
CONTROLS: Pairs = [("vertical\vtab", "form\ffeed"), ("unit\x1fseparator", "file\x1cseparator")]


def as_tsv(pairs: Pairs) -> str:
    return "".join(f"{source}\t{target}\n" for source, target in pairs)


def as_csv(pairs: Pairs) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows([("source", "target"), *pairs])
    return file.getvalue()


def as_jsonl(pairs: Pairs) -> str:
    lines = [json.dumps({"source": s, "target": t}, ensure_ascii=i % 2 == 0) for i, (s, t) in enumerate(pairs)]
    return "".join(f"{line}\n" for line in lines)


def po_string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def as_po(pairs: Pairs) -> str:
    header = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
    return header + "".join(f"#: a.c\nmsgid {po_string(s)}\nmsgstr {po_string(t)}\n\n" for s, t in pairs)


def as_tmx(pairs: Pairs, head: str = "") -> str:
    def text(value: str) -> str:
        return f"<seg>{escape(value, {chr(13): '&#13;'})}</seg>"

    units = "".join(f'<tu><tuv xml:lang="EN-us">{text(s)}</tuv><tuv lang="de">{text(t)}</tuv></tu>\n' for s, t in pairs)
    return f'{head}<tmx version="1.4">\n<header srclang="en"/>\n<body>\n{units}</body></tmx>\n'


WRITERS: dict[Format, Callable[[Pairs], str]] = {
    "tsv": as_tsv,
    "csv": as_csv,
    "jsonl": as_jsonl,
    "po": as_po,
    "tmx": as_tmx,
}


def written(path: Path, text: str | bytes) -> Path:
    raw = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


def read(
    *paths: Path,
    format: Format | None = None,
    source: str | None = None,
    target: str | None = None,
    skipped: Counter[str] | None = None,
) -> list[Example]:
    found = format or format_of(paths, kind="encoder-decoder")
    if found == "tmx" and source is None:
        source, target = "en", "de"
    return list(read_examples(paths, format=found, source=source, target=target, skipped=skipped))


def pairs_of(examples: list[Example]) -> list[tuple[str, str | None]]:
    return [(example.source, example.target) for example in examples]


@pytest.mark.parametrize("variant", ["LF", "CRLF", "BOM"])
@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("format", WRITERS)
def test_round_trip(tmp_path: Path, format: Format, ending: str, variant: str) -> None:
    pairs = NASTY if format == "tmx" else NASTY + CONTROLS
    raw = WRITERS[format](pairs).encode()
    if variant == "CRLF":
        raw = raw.replace(b"\n", b"\r\n")
    if variant == "BOM":
        raw = b"\xef\xbb\xbf" + raw
    path = written(tmp_path / f"a.{format}{ending}", raw)
    skipped: Counter[str] = Counter()
    # gettext has no empty translations
    assert pairs_of(read(path, skipped=skipped)) == [pair for pair in pairs if pair[1] or format != "po"]
    assert skipped == ({"untranslated": 1} if format == "po" else {})


def test_without_a_last_newline(tmp_path: Path) -> None:
    for format, writer in WRITERS.items():
        assert pairs_of(read(written(tmp_path / f"a.{format}", writer(NASTY[:3]).rstrip("\n")))) == NASTY[:3]


TEXTS = st.lists(st.tuples(*[st.text(st.characters(exclude_categories=["Cs"]))] * 2), min_size=1)


@given(TEXTS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text(tmp_path: Path, pairs: Pairs) -> None:
    assert pairs_of(read(written(tmp_path / "a.jsonl", as_jsonl(pairs)))) == pairs
    # a line may end in CRLF, one inside quotes too
    unified = [(source.replace("\r\n", "\n"), target.replace("\r\n", "\n")) for source, target in pairs]
    assert pairs_of(read(written(tmp_path / "a.csv", as_csv(pairs)))) == unified
    flat = [(s.translate({9: " ", 10: " "}), t.translate({9: " ", 10: " "}).rstrip("\r")) for s, t in pairs]
    assert pairs_of(read(written(tmp_path / "a.tsv", "\ufeff" + as_tsv(flat)))) == flat


def test_parallel_and_plain_text(tmp_path: Path) -> None:
    sides = [[pair[side] for pair in NASTY + CONTROLS] for side in (0, 1)]
    en = written(tmp_path / "a.en", "\n".join(sides[0]))
    de = written(tmp_path / "a.de.gz", "\r\n".join(sides[1]) + "\r\n")
    examples = read(en, de, en, en)
    assert pairs_of(examples) == NASTY + CONTROLS + list(zip(sides[0], sides[0], strict=True))
    assert [example.where for example in examples[-2:]] == [f"{en}, line 8", f"{en}, line 9"]
    plain = read(en, de, format="text")
    assert pairs_of(plain) == [(line, None) for line in sides[0] + sides[1]]
    assert plain[9].where == f"{de}, line 1"


def test_blank_sides_stay(tmp_path: Path) -> None:
    en, de = written(tmp_path / "en", "x1\n\nx3\n"), written(tmp_path / "de", "y1\ny2\n\n")
    assert pairs_of(read(en, de)) == [("x1", "y1"), ("", "y2"), ("x3", "")]
    assert pairs_of(read(written(tmp_path / "a.tsv", "x1\ty1\n\n \ny2\t\n"))) == [
        ("x1", "y1"),
        ("", ""),
        ("", ""),
        ("y2", ""),
    ]
    assert pairs_of(read(written(tmp_path / "a.csv", "source,target\n\nx1,\n"))) == [
        ("x1", "")
    ]  # an empty line is no row
    assert pairs_of(read(written(tmp_path / "a.jsonl", '\n \n{"source": "x1", "target": ""}\n'))) == [("x1", "")]


def test_columns(tmp_path: Path) -> None:
    tsv = written(tmp_path / "a.tsv", 'id\tde\ten\n1\t"ja\tyes"\textra\n')
    assert pairs_of(read(tsv, source="en", target="de")) == [('yes"', '"ja')]  # quotes are text
    assert pairs_of(read(tsv, source="3", target="2")) == [("en", "de"), ('yes"', '"ja')]
    assert pairs_of(read(tsv)) == [("id", "de"), ("1", '"ja')]
    table = written(tmp_path / "a.csv", 'id,de,en\n1,"ja, ""so""","two\nlines"\n\n2,nein,no\n')
    examples = read(table, source="en", target="de")
    assert pairs_of(examples) == [("two\nlines", 'ja, "so"'), ("no", "nein")]
    assert [example.where for example in examples] == [f"{table}, line 2", f"{table}, line 5"]
    assert pairs_of(read(table, source="1", target="3"))[0] == ("id", "en")
    keys = written(tmp_path / "a.jsonl", '{"en": "a", "de": "b", "n": 1}')
    assert pairs_of(read(keys, source="en", target="de")) == [("a", "b")]
    assert read(written(tmp_path / "none.tsv", "")) == read(tmp_path / "none.tsv", format="jsonl") == []
    assert read(tmp_path / "none.tsv", format="csv", source="1", target="2") == []


def test_a_long_field_and_the_limit_of_others(tmp_path: Path) -> None:
    before = csv.field_size_limit(1000)
    path = written(tmp_path / "a.csv", f"source,target\n{'x' * 200_000},y\nx,{'y' * 200_000}\n")
    examples = read_examples([path], format="csv", source=None, target=None)
    assert len(next(examples).source) == 200_000
    assert csv.field_size_limit(before) == 1000
    assert len(next(examples).target or "") == 200_000


@pytest.mark.parametrize(
    ("format", "text", "message"),
    [
        ("tsv", "a\tb\nc\n", r"a\.tsv, line 2 has 1 columns, but 2 are needed: a tab stands between columns"),
        ("tsv", b"a\tb\n\xe4\tb\n", r"a\.tsv, line 2 is not UTF-8; convert the file first"),
        ("csv", "", r"a\.csv is empty: its first line must name the columns, 'source' and 'target' among them"),
        ("csv", "source,targte\n", r"a\.csv has no column 'target'; did you mean 'targte'\? Columns: source, targte$"),
        ("csv", "source,target,target\n", r"a\.csv has 2 columns 'target'; give each another name"),
        ("csv", "source,target\na,b\na,b,c\n", r"a\.csv, line 3 has 3 columns, but the first row has 2: a text that holds a comma must"),
        ("csv", 'source,target\na,b\n"a\n,b\n', r"a\.csv, line 3 begins a row that is not CSV \(unexpected end of data\): a text that holds"),
        ("csv", 'source,target\n"a"b,c\n', r"a\.csv, line 2 begins a row that is not CSV \(',' expected after '\"'\)"),
        ("csv", "source,target\na\rb,c\n", r"a\.csv, line 2 begins a row that is not CSV \(new-line character seen in unquoted field\): .* end of line must stand in"),
        ("csv", b"source,target\n\xff,b\n", r"a\.csv, line 2 is not UTF-8"),
        ("jsonl", '{"source": "a", "target": "b"}\n{"source": \n', r"a\.jsonl, line 2 is not JSON: Expecting value at column 12"),
        ("jsonl", '["a", "b"]\n', r'a\.jsonl, line 1 is a list, but must be an object, such as \{"source": "…", "target": "…"\}'),
        ("jsonl", '{"source": "a", "tgt": "b"}', r"a\.jsonl, line 1 has no key 'target'; did you mean 'tgt'\? Keys: source, tgt"),
        ("jsonl", "{}", r"a\.jsonl, line 1 has no key 'source'\. Keys: none"),
        ("jsonl", '{"source": "a", "target": 3}', r"a\.jsonl, line 1: 'target' must be a string, but is a number"),
        ("jsonl", '{"source": true, "target": ""}', r"a\.jsonl, line 1: 'source' must be a string, but is true or false"),
        ("jsonl", '{"source": null, "target": ""}', r"a\.jsonl, line 1: 'source' must be a string, but is null"),
        ("jsonl", '{"source": "a\\ud83d", "target": ""}', r"a\.jsonl, line 1: 'source' holds half a character, such as \\ud800"),
        ("jsonl", "[" * 100_000, r"a\.jsonl, line 1 cannot be read as JSON: maximum recursion depth"),
        ("jsonl", "9" * 5000, r"a\.jsonl, line 1 cannot be read as JSON: Exceeds the limit"),
        ("po", 'msgid "a"\nmsgstr "b\n', r"a\.po, line 2 is not PO: it must be a comment, or a keyword and a text in quotes"),
        ("po", 'msgid "a"\nmsgstr "b" c"\n', r"a\.po, line 2 is not PO"),
        ("po", 'msgstr "a"\n', r"a\.po, line 1 is not PO: .* each in its place; msgfmt -c says more"),
        ("po", '\n\nmsgid "a"\nmsgid "b"\n', r"a\.po, line 4 is not PO"),
        ("po", "source\ttarget\n", r"a\.po, line 1 is not PO"),
        ("po", b'msgid "a"\nmsgstr "\xe4"\n', r"a\.po, line 2 is not utf-8; convert the file or correct its header"),
        ("po", 'msgid ""\nmsgstr "Content-Type: text/plain; charset=rot13\\n"\n', r"a\.po cannot be read as rot13; convert it to UTF-8"),
        ("tmx", "<tmx><body></tmx>", r"a\.tmx is not well-formed XML: mismatched tag: line 1, column 13"),
        ("tmx", as_tmx(NASTY)[:-20], r"a\.tmx is not well-formed XML: no element found"),
        ("tmx", "", r"a\.tmx is not well-formed XML: no element found"),
        ("tmx", "<?xml version='1.0' encoding='klingon'?><tmx/>", r"a\.tmx is not well-formed XML: unknown encoding"),
        ("tmx", as_tmx(NASTY, '<!DOCTYPE t [<!ENTITY a "b"><!ENTITY c "&a;&a;">]>'), r"a\.tmx declares entities, which could fill the memory"),
        ("tmx", as_tmx([]), r"a\.tmx has no translation unit \(<tu>\); is it TMX\?"),
        ("tmx", as_tmx(NASTY).replace('"de"', '"fr"'), r"a\.tmx has no unit in both 'en' and 'de'\. Its languages: EN-us, fr$"),
        ("tmx", "<tmx><tu>" + "".join(f'<tuv lang="x{i}"><seg/></tuv>' for i in range(12)) + "</tu></tmx>", r"Its languages: x0, .*x9, …$"),
    ],
)  # fmt: skip
def test_malformed(tmp_path: Path, format: Format, text: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(written(tmp_path / f"a.{format}", text))


def test_columns_that_do_not_fit(tmp_path: Path) -> None:
    tsv, table = written(tmp_path / "a.tsv", "en\tde\n"), written(tmp_path / "a.csv", "en,de\n")
    for path in (tsv, table):
        with pytest.raises(DataError, match=r"source='1' and target='de' are a number and a name: give two numbers"):
            read(path, source="1", target="de")
        with pytest.raises(DataError, match=r"source='0' and target='2': columns are counted from 1"):
            read(path, source="0", target="2")
        with pytest.raises(DataError, match=r"has no column 'fr'\. Columns: en, de"):
            read(path, source="en", target="fr")
        with pytest.raises(DataError, match=r"line 1 has 2 columns, but 3 are needed"):
            read(path, source="1", target="3")
    with pytest.raises(DataError, match="TMX files hold many languages: say which two, such as"):
        list(read_examples([written(tmp_path / "a.tmx", as_tmx(NASTY))], format="tmx", source="en", target=None))
    for format in ("po", "parallel", "text"):
        with pytest.raises(
            DataError, match=f"the format '{format}' has no columns to choose from: leave source and target out"
        ):
            list(read_examples([tsv, tsv], format=format, source=None, target="de"))


def test_files_that_do_not_fit_or_cannot_be_read(tmp_path: Path) -> None:
    for n in (8, 9, 10):
        written(tmp_path / str(n), "a\n" * n)
    with pytest.raises(DataError, match=r"10 has 10 lines, but .*8 has 8: line i of the one must belong to line i"):
        read(tmp_path / "10", tmp_path / "8")
    with pytest.raises(DataError, match=r"8 has 8 lines, but .*10 has 10"):
        read(tmp_path / "9", tmp_path / "9", tmp_path / "8", tmp_path / "10")
    with pytest.raises(DataError, match=r"come in pairs, .*, but there are 3; .*10 has no partner"):
        read(tmp_path / "8", tmp_path / "9", tmp_path / "10")
    for format in get_args(Format):
        with pytest.raises(DataError, match=r"is a directory; name the files in it"):
            read(tmp_path, tmp_path, format=format)
        none = tmp_path / "none"
        with pytest.raises(DataError, match=r"cannot read .*none: No such file or directory"):
            read(none, none, format=format)
        damaged = tmp_path / "a.gz"
        damaged.write_bytes(gzip.compress(b"\n" * 99999)[:-9])
        with pytest.raises(DataError, match=r"a\.gz is damaged: Compressed file ended"):
            read(
                damaged, damaged, format=format, **({"source": "1", "target": "1"} if format in ("tsv", "csv") else {})
            )


PO = r"""
# the header's own comment
msgid ""
msgstr ""
"Content-Type: text/plain; charset=ISO-8859-1\n"

#: a.c:1
msgid "Open"
msgstr "Öffnen"

msgid ""
"two\n"
"lines\t\"here\"\n"
msgstr "zwei\nZeilen\t\"hier\"\n"

#, c-format
msgctxt "menu"
msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] "%d Dateien"

#, fuzzy
msgid "Close"
msgstr "Schluss"

msgid "Later"
msgstr ""

msgid "%d day"
msgid_plural "%d days"
msgstr[0] "%d Tag"
msgstr[1] ""

#, c-format
msgid "%d page"
msgid_plural "%d pages"
msgstr[0] "%d S."

#~ msgid "Gone"
#~ msgstr "Weg"
"""


def test_messages(tmp_path: Path) -> None:
    skipped: Counter[str] = Counter()
    path = written(tmp_path / "a.po", PO.encode("latin-1"))
    examples = read(path, skipped=skipped)
    assert pairs_of(examples) == [
        ("Open", "Öffnen"),
        ('two\nlines\t"here"\n', 'zwei\nZeilen\t"hier"\n'),
        ("%d file", "%d Datei"),
        ("%d files", "%d Dateien"),
        ("%d page", "%d S."),
        ("%d pages", "%d S."),
    ]
    assert skipped == {"fuzzy": 1, "untranslated": 2, "obsolete": 1}
    assert [example.where for example in examples[:2]] == [f"{path}, line 7", f"{path}, line 11"]
    headless = written(tmp_path / "b.po", 'msgid "a"\nmsgstr "b"\n')
    assert read(headless) == [Example("a", "b", headless, 1)]
    with pytest.raises(DataError, match=r"a\.po, line 9 is not UTF-8; convert the file or correct its header"):
        read(written(path, PO.encode("latin-1").replace(b"ISO-8859-1", b"UTF-8")))


UNITS = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4" xmlns="http://www.lisa.org/tmx14"><header><note>no unit</note></header><body>
<tu><note>x</note><tuv xml:lang="en-GB"><seg>colour</seg></tuv><tuv xml:lang="EN"><seg>color</seg></tuv>
  <tuv xml:lang="de"><seg>Farbe</seg></tuv><tuv xml:lang="de"><seg>second</seg></tuv><tuv xml:lang="DE"><seg>third</seg></tuv></tu>
<tu><tuv xml:lang="en_GB"><prop type="p">p</prop><seg>a <bpt i="1">&lt;b></bpt>bold <hi>and <hi>high</hi>er</hi><ept i="1">&lt;/b></ept>
 <it>i</it>text<ph x="1">{<sub>sub</sub>}</ph><ut>u</ut>.</seg></tuv><tuv xml:lang="de_AT"><seg/></tuv><tuv><seg>none</seg></tuv></tu>
<tu><tuv xml:lang="eng"><seg>no</seg></tuv><tuv xml:lang="de"><seg>nein</seg></tuv></tu>
<tu><tuv xml:lang="en"></tuv><tuv xml:lang="fr"><seg>non</seg></tuv></tu>
</body></tmx>"""


def test_units(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tmx", UNITS)
    skipped: Counter[str] = Counter()
    examples = read(path, skipped=skipped)
    assert pairs_of(examples) == [("color", "Farbe"), ("a bold and higher\n text.", "")]
    assert [example.where for example in examples] == [f"{path}, unit 1", f"{path}, unit 2"]
    assert skipped == {"without en": 1, "without en and de": 1}
    assert pairs_of(read(path, source="de-at", target="EN-GB")) == [("", "a bold and higher\n text.")]
    latin = written(
        tmp_path / "b.tmx", UNITS.replace("UTF-8", "ISO-8859-1").replace("Farbe", "Täfelung").encode("latin-1")
    )
    assert read(latin)[0].target == "Täfelung"


@pytest.mark.parametrize(
    ("languages", "source", "target", "expected"),
    [
        ("en-GB en-US", "en", "en-GB", "en-US en-GB"),
        ("en-GB en-US", "en-GB", "en", "en-GB en-US"),
        ("en-GB en-US", "en-US", "en", "en-US en-GB"),
        ("en-GB en", "en", "en-gb", "en en-GB"),
        ("en_GB en", "en-GB", "en", "en_GB en"),
        ("en-GB", "en", "en-GB", "en"),
        ("en-GB", "en-GB", "en", "en"),
        ("pt-BR pt-PT", "pt-PT", "pt-BR", "pt-PT pt-BR"),
    ],
)
def test_two_varieties_of_one_language(tmp_path: Path, languages: str, source: str, target: str, expected: str) -> None:
    """A text is not its own translation: each takes another one, or the unit is left out."""
    units = [
        "".join(f'<tuv xml:lang="{one}"><seg>{one}</seg></tuv>' for one in unit)
        for unit in (languages.split(), (source, target))
    ]
    path = written(tmp_path / "a.tmx", f"<tmx><body><tu>{'</tu><tu>'.join(units)}</tu></body></tmx>")
    skipped: Counter[str] = Counter()
    found = read(path, source=source, target=target, skipped=skipped)
    if " " in expected:
        assert pairs_of(found) == [tuple(expected.split()), (source, target)]
    else:
        assert (pairs_of(found), skipped) == ([(source, target)], {f"without {expected}": 1})


def pieces_of(text: str) -> list[str]:
    return list(pieces(io.StringIO(text)))


class TestPieces:
    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("glassformer.data.readers.PIECE", 6)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("", []),
            ("a", ["a"]),
            ("aaaaaaaaaa\nb", ["aaaaaaaaaa\n", "b"]),
            ("aa\nbb\ncc\ndd", ["aa\nbb\n", "cc\ndd"]),
            ("aa\nbb\n\ncc\ndd\ne", ["aa\nbb\n\ncc\n", "dd\ne"]),  # neither beside the blank line
            ("aa\nbb \ncc\n dd\ne", ["aa\nbb \ncc\n dd\n", "e"]),
            ("aaaaa\n\nb", ["aaaaa\n\nb"]),
            ("aaaaa\n\nbbbbb\n\nc", ["aaaaa\n\nbbbbb", "\n\nc"]),  # there is no better place
            (" aaaaa\n bbbbb\n c", [" aaaaa\n bbbbb", "\n c"]),
            ("\n\n\n\n\n\n\n\n\n\n\n\n\na\nb", ["\n\n\n\n\n\n\n\n\n\n\n\n\na\n", "b"]),
        ],
    )
    def test_where_they_end(self, text: str, expected: list[str]) -> None:
        assert pieces_of(text) == expected

    @given(st.text("ab \n.\u2028\x85", max_size=60))
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_together_they_are_the_text(self, text: str) -> None:
        found = pieces_of(text)
        assert "".join(found) == text
        assert all(found)
        for before, after in pairwise(found):
            assert len(before) >= 6
            assert before[-1] == "\n" or after[0] == "\n"
            assert before[-1].isspace() != after[0].isspace()

    def test_a_large_file_is_not_held(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("glassformer.data.readers.PIECE", 2**10)
        for line in ("a line of text.\n", "a line of text.\n\n", "  a line of text.\n"):
            path = written(tmp_path / "a.txt", line * 100_000)
            tracemalloc.start()
            longest = max(len(piece) for (text,) in [whole_texts([path], None, is_held_out=False)] for piece in text)
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert longest < 2**11 + 50
            assert most < 2**19


class TestWholeTexts:
    @pytest.mark.parametrize(
        ("held_out", "train", "held"),
        [
            (0.5, ["ab\n", "c"], ["d\n", "ef"]),
            (0.25, ["ab\n", "cd\n"], ["ef"]),  # a border between two files
            (0.6, ["ab\n"], ["cd\n", "ef"]),
            (0.99, [], ["ab\n", "cd\n", "ef"]),
            (0.1, ["ab\n", "cd\n", "e"], ["f"]),
        ],
    )
    def test_each_file_has_two_sides(self, tmp_path: Path, held_out: float, train: list[str], held: list[str]) -> None:
        paths = [written(tmp_path / str(i), text) for i, text in enumerate(["ab\n", "", "cd\n", "ef"])]
        for is_held_out, expected in ((False, train), (True, held)):
            texts = whole_texts(paths, held_out, is_held_out=is_held_out)
            assert ["".join(text) for text in texts] == expected
        everything = whole_texts(paths, None, is_held_out=False)
        assert ["".join(text) for text in everything] == ["ab\n", "", "cd\n", "ef"]


def test_units_are_forgotten(tmp_path: Path) -> None:
    def peak(units: int) -> int:
        path = written(tmp_path / "a.tmx", as_tmx([("source", "target")] * units))
        tracemalloc.start()
        assert sum(1 for _ in read_examples([path], format="tmx", source="en", target="de")) == units
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(1)  # imports
    assert peak(8000) < 1.5 * peak(2000)


@pytest.mark.parametrize(
    ("format", "module"), [("po", "polib"), ("tmx", "defusedxml"), ("tmx", "defusedxml.ElementTree")]
)
def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Format, module: str) -> None:
    path = written(tmp_path / f"a.{format}", WRITERS[format](NASTY))
    monkeypatch.setitem(sys.modules, module, None)
    package = module.partition(".")[0]
    with pytest.raises(
        DataError, match=rf"{format.upper()} files need the package {package}: pip install 'glassformer\[{format}\]'"
    ):
        read(path)


def test_formats() -> None:
    def found(*names: str, kind: str = "encoder-decoder") -> str:
        return format_of([Path(name) for name in names], kind=kind)

    for format in WRITERS:
        assert found(f"a.b.{format}", f"b.{format}.gz", f"c.{format.upper()}", kind="decoder") == format
    assert found("a.en", "a.de.gz") == found("a", "b", kind="encoder") == found() == "parallel"
    assert found("a.txt.gz", "tsv", kind="decoder") == "text"
    with pytest.raises(
        DataError, match=r"a\.tsv\.gz is read as tsv, but b\.csv as csv: files that are read together need one format"
    ):
        found("a.tsv.gz", "b.csv")
    with pytest.raises(DataError, match=r"a\.en is read as parallel, but b\.po as po"):
        found("a.en", "a.de", "b.po")
