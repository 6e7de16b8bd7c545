"""Make sentence pairs from LibreOffice's help and interface, English and German, and a catalogue to translate.

    python recipes/libreoffice/prepare.py unpacked/ data/

Pairs of the help: paragraphs of one page with one id. Pairs of the interface: the messages of all its catalogues but
Impress's, which is written as impress.po, without its translations, for the trained model to translate.

Validation and test are paragraphs of the help. What is like one of them stays out of training: first, equal texts
(letter case, digits and signs aside) go to one side by a hash; then each that shares more than half of its runs of
three words with a training line, in either language, is left out of both.
"""

import gettext
import hashlib
import html.parser
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import polib

HELP = "usr/share/libreoffice/help"
CATALOGUES = "usr/lib/libreoffice/program/resource/de/LC_MESSAGES"
LEFT_OUT = "sd"  # the catalogue that is translated: of Impress, the presentations
SHARES = (("validation", 0.04), ("test", 0.09), ("train", 1.0))  # where each part ends
MOST_ALIKE = 0.5  # share of a held-out text's runs of three words that one training line may have
MOST_WORDS = 100

Pair = tuple[str, str]


class Paragraphs(html.parser.HTMLParser):
    """Collects the texts of a page's headings and paragraphs by their ids.

    Where a page has a text for each system or program (a "switchinline" of hidden spans), it takes the default one, or
    the first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.texts: dict[str, str] = {}
        self._id, self._tag, self._parts = "", "", [""]
        self._spans: list[str] = []  # that are open: "switch", the id of one of its texts, or ""
        self._choice: dict[str, list[str]] = {}  # the texts of a switch

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = dict(attrs)
        own = has.get("id") or ""
        if own.startswith(("par_", "hd_")):
            self._id, self._tag, self._parts, self._spans = own, tag, [], []
        elif tag == "br":
            self.handle_data(" ")
        elif tag == "span":
            is_switch = has.get("class") == "switchinline"
            self._spans.append("switch" if is_switch else own if "hidden" in has else "")
            if is_switch:
                self._choice = {}

    def handle_endtag(self, tag: str) -> None:
        if self._id and tag == self._tag:
            self.texts.setdefault(self._id, " ".join("".join(self._parts).split()))
            self._id = ""
        elif tag == "span" and self._spans and self._spans.pop() == "switch" and self._choice:
            default = next((name for name in self._choice if name.startswith("default")), next(iter(self._choice)))
            self._parts += self._choice[default]

    def handle_data(self, data: str) -> None:
        inside = next((name for name in reversed(self._spans) if name and name != "switch"), None)
        if inside is None:
            self._parts.append(data)
        else:
            self._choice.setdefault(inside, []).append(data)


def paragraphs(page: Path) -> dict[str, str]:
    parser = Paragraphs()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser.texts


def help_pairs(folder: Path) -> Iterator[Pair]:
    """Yield what stands in both languages under one id of one page."""
    for page in sorted((folder / "en-US/text").rglob("*.html")):
        other = folder / "de/text" / page.relative_to(folder / "en-US/text")
        if other.is_file():
            english, german = paragraphs(page), paragraphs(other)
            yield from ((text, german[name]) for name, text in english.items() if name in german)


def catalogue(path: Path) -> list[tuple[str | None, str, str]]:
    """Return the messages of a catalogue: context, text, translation; of plurals, none."""
    with path.open("rb") as file:
        messages = gettext.GNUTranslations(file)._catalog  # it has no public way to list them
    found = []
    for key, translation in messages.items():
        if isinstance(key, str) and key:
            context, mark, text = key.rpartition("\x04")
            found.append((context if mark else None, text, translation))
    return found


def is_good(pair: Pair) -> bool:
    """Leave out what is no text, what was not translated, and what is very long or uneven."""
    n, m = (len(text.split()) for text in pair)
    letters = sum(character.isalpha() for character in pair[0])
    return pair[0] != pair[1] and letters > 1 and max(n, m) <= MOST_WORDS and max(n, m) <= 3 * min(n, m) + 5


def core(text: str) -> str:
    """Return what two texts that only differ in case, digits and signs have in common."""
    return re.sub(r"[\W\d_]+", " ", text.lower()).strip()


def split(pairs: Iterable[Pair]) -> dict[str, list[Pair]]:
    """Deal out pairs by a hash of the English text's core, so that like ones stay together, now and for ever."""
    parts: dict[str, list[Pair]] = {part: [] for part, _ in SHARES}
    for pair in pairs:
        digest = hashlib.blake2b(core(pair[0]).encode(), digest_size=8).digest()
        place = int.from_bytes(digest, "big") / 2**64
        parts[next(part for part, end in SHARES if place < end)].append(pair)
    return parts


def runs(text: str) -> set[str]:
    """Return the runs of three words of a text; of a shorter one, the text."""
    words = core(text).split()
    return {" ".join(words[i : i + 3]) for i in range(max(1, len(words) - 2))}


def unlike(held_out: list[Pair], train: list[Pair], side: int) -> list[Pair]:
    """Return the held-out pairs that no training pair is like, on one side."""
    where: dict[str, list[int]] = defaultdict(list)
    for i, pair in enumerate(train):
        for run in runs(pair[side]):
            where[run].append(i)
    kept = []
    for pair in held_out:
        own = runs(pair[side])
        shared = Counter(i for run in own for i in where.get(run, ()))
        if max(shared.values(), default=0) <= MOST_ALIKE * len(own):
            kept.append(pair)
    return kept


def main(unpacked: Path, folder: Path) -> None:
    of_help = list(dict.fromkeys(pair for pair in help_pairs(unpacked / HELP) if is_good(pair)))
    parts = split(of_help)
    of_interface: dict[Pair, None] = {}
    for path in sorted((unpacked / CATALOGUES).glob("*.mo")):
        if path.stem != LEFT_OUT:
            pairs = ((" ".join(text.split()), " ".join(other.split())) for _, text, other in catalogue(path))
            of_interface.update(dict.fromkeys(filter(is_good, pairs)))
    parts["train"] = list({**dict.fromkeys(parts["train"]), **of_interface})
    folder.mkdir(parents=True, exist_ok=True)
    for part, pairs in parts.items():
        if part != "train":
            pairs = unlike(unlike(pairs, parts["train"], 0), parts["train"], 1)
        (folder / f"{part}.tsv").write_text("".join(f"{en}\t{de}\n" for en, de in pairs), encoding="utf-8")
        print(f"{part}: {len(pairs):,} of {len(parts[part]):,} pairs")

    todo = polib.POFile(wrapwidth=0)
    todo.metadata = {"Content-Type": "text/plain; charset=utf-8", "Language": "de"}
    for context, text, _ in catalogue(unpacked / CATALOGUES / f"{LEFT_OUT}.mo"):
        todo.append(polib.POEntry(msgctxt=context, msgid=text))
    todo.save(str(folder / "impress.po"))
    print(f"impress.po: {len(todo):,} messages")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
