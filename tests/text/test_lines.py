"""Lines: a newline ends one, and nothing else; files, packed and damaged ones."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.errors import DataError
from glassformer.text.lines import decoded, file_lines, one_line, read_lines, read_parallel


@given(st.lists(st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"])), min_size=1))
def test_round_trip(lines: list[str]) -> None:
    raw = [line.encode() + b"\n" for line in lines]
    lines[0] = lines[0].removeprefix("\ufeff")
    assert list(decoded(raw)) == lines


def test_ends(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"\xef\xbb\xbfa\r\nb\rc\n\xef\xbb\xbfd")
    assert list(file_lines(path)) == ["a", "b\rc", "\ufeffd"]  # in the middle of a file it is a character
    path.write_bytes(b"")
    assert read_lines(path) == []
    path.write_bytes(b"\n")
    assert read_lines(path) == [""]


def test_packed(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress("ä\nb\n".encode()))
    assert read_lines(path) == ["ä", "b"]
    path.write_bytes(gzip.compress(b"a\n" * 9999)[:-9])
    with pytest.raises(DataError, match=r"a\.gz is damaged"):
        read_lines(path)


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read .*: No such file or directory"):
        read_lines(tmp_path / "none")
    with pytest.raises(DataError, match=r"cannot read .*: Is a directory"):
        read_lines(tmp_path)
    (tmp_path / "latin").write_bytes(b"ok\n" * 6 + b"\xe4\n")
    with pytest.raises(DataError, match="latin, line 7 is not UTF-8; convert the file first"):
        read_lines(tmp_path / "latin")


def test_files_of_different_lengths(tmp_path: Path) -> None:
    for n in (10, 9):
        (tmp_path / str(n)).write_text("a\n" * n)
    with pytest.raises(DataError, match=r"10 has 10 lines, but .*9 has 9"):
        read_parallel([tmp_path / "10", tmp_path / "9"])
    assert read_parallel([tmp_path / "9", tmp_path / "9"]) == [["a"] * 9] * 2


def test_one_result_is_one_line() -> None:
    assert one_line("a\nb\r\nc\u2028d") == "a b  c\u2028d"
