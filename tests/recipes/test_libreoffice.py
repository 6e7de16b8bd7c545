"""The pairs of the recipe: aligned by id, split so that nothing held out is like a line of training."""

import importlib.util
from pathlib import Path
from types import ModuleType

import polib
import pytest

PATH = Path(__file__).parents[2] / "recipes" / "libreoffice" / "prepare.py"


@pytest.fixture(scope="module")
def prepare() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prepare_libreoffice", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_paragraphs_of_a_page(prepare: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        '<title>no text</title><h1 id="hd_id1">Find &amp; <b>replace</b></h1>\n<p>no id</p>'
        '<p id="par_id2">Press <span class="switchinline"><span hidden id="MAC1" class="MAC"><span>Command</span></span>'
        '<span hidden="true" id="default1"><span class="keycode">Ctrl</span></span></span><span>+F</span>\n  twice<br>'
        "now.</p>"
        '<p id="par_id3">In <span class="switchinline"><span hidden id="WRITER1">texts</span><span hidden id="CALC1">'
        "sheets</span></span></p>",
        encoding="utf-8",
    )
    assert prepare.paragraphs(page) == {
        "hd_id1": "Find & replace",
        "par_id2": "Press Ctrl+F twice now.",
        "par_id3": "In texts",
    }


@pytest.mark.parametrize(
    ("pair", "right"),
    [
        (("Open a file", "Eine Datei öffnen"), True),
        (("Unicode", "Unicode"), False),  # not translated
        (("1", "2"), False),
        (("a", "b"), False),
        (("word " * 101, "Wort " * 101), False),
        (("one two", "eins " * 12), False),
        (("one two", "eins " * 11), True),
    ],
)
def test_what_is_left_out(prepare: ModuleType, pair: tuple[str, str], right: bool) -> None:
    assert prepare.is_good(pair) is right


def test_equal_but_for_case_and_digits_stay_together(prepare: ModuleType) -> None:
    pairs = [(f"{sign}{number} {word}s and {word}", f"{i}") for i, word in enumerate("abcdefghijklmnopqrst" * 20)
             for number, sign in ((1, ""), (22, "~"))]  # fmt: skip
    pairs += [(text.upper(), other) for text, other in pairs]
    parts = prepare.split(pairs)
    assert sorted(pair for part in parts.values() for pair in part) == sorted(pairs)
    cores = [{prepare.core(text) for text, _ in part} for part in parts.values()]
    assert sum(map(len, cores)) == len(set.union(*cores)) == 20


def test_how_many_are_held_out(prepare: ModuleType) -> None:
    letters = "abcdefghij"
    texts = [f"{a}{b}{c}{d}" for a in letters for b in letters for c in letters for d in letters]
    sizes = {name: len(part) for name, part in prepare.split((text, "") for text in texts).items()}
    assert sizes == {
        "validation": pytest.approx(400, abs=60),
        "test": pytest.approx(500, abs=70),
        "train": pytest.approx(9100, abs=90),
    }


def test_what_is_like_a_training_line(prepare: ModuleType) -> None:
    train = [("To open a file, press Enter.", "Drücken Sie Enter."), ("Close", "Schließen")]
    held_out = [
        ("To open a file, press Escape.", "x"),  # three of its four runs
        ("Please open the file, press Enter.", "x"),  # one of four
        ("CLOSE 5", "x"),
        ("Close it", "x"),
    ]
    assert prepare.unlike(held_out, train, 0) == [held_out[1], held_out[3]]
    assert prepare.unlike([("x", "Drücken Sie Enter!"), ("x", "Enter")], train, 1) == [("x", "Enter")]


def test_from_packages_to_files(prepare: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unpacked, data = tmp_path / "unpacked", tmp_path / "data"
    for language, texts in (("en-US", ["Open number {} now", "only here"]), ("de", ["Öffne nun Nummer {}"])):
        folder = unpacked / prepare.HELP / language / "text" / "shared"
        folder.mkdir(parents=True)
        for i in range(30):
            name = "".join("abcdefghij"[int(digit)] for digit in f"{i:02}")
            paragraphs = [f'<p id="par_{k}">{text.format(name)}</p>' for k, text in enumerate(texts)]
            (folder / f"{i}.html").write_text("".join(paragraphs), encoding="utf-8")
    (unpacked / prepare.CATALOGUES).mkdir(parents=True)
    for name, message in (("sw", "Text"), ("sd", "Slide")):
        catalogue = polib.POFile()
        catalogue.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
        catalogue.append(polib.POEntry(msgctxt="menu|1", msgid=f"~{message} %1", msgstr=f"~{message}e %1"))
        catalogue.save_as_mofile(str(unpacked / prepare.CATALOGUES / f"{name}.mo"))
    prepare.main(unpacked, data)
    lines = {part: (data / f"{part}.tsv").read_text("utf-8").splitlines() for part in ("train", "validation", "test")}
    assert "~Text %1\t~Texte %1" in lines["train"]
    assert any(line == "Open number ab now\tÖffne nun Nummer ab" for part in lines.values() for line in part)
    assert not any("only here" in line for part in lines.values() for line in part)
    (entry,) = polib.pofile(str(data / "impress.po"))
    assert (entry.msgctxt, entry.msgid, entry.msgstr) == ("menu|1", "~Slide %1", "")
    assert "impress.po: 1 messages" in capsys.readouterr().out
