"""Ids on disk are the ids that were made: once, whole or not at all, and read a row at a time."""

import json
import os
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glassformer.data import store
from glassformer.data.store import BLOCK, Rows, Sources, cache_directory, stored
from glassformer.errors import DataError

Some = list[list[list[int]]]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Making:
    """Makes rows of one side, and counts how often it is asked to."""

    def __init__(self, rows: Sequence[Sequence[int]] = ((1, 2), (), (3,)), *, chunk: int = 2) -> None:
        self.rows, self.chunk, self.calls = [list(row) for row in rows], chunk, 0

    def __call__(self, counts: Counter[str]) -> Iterator[Some]:
        self.calls += 1
        for i in range(0, len(self.rows), self.chunk):
            some = self.rows[i : i + self.chunk]
            counts["read"] += len(some)
            yield [some]


def listed(rows: Rows) -> list[list[int]]:
    return [rows[i].tolist() for i in range(len(rows))]


def keep(make: Making, name: str = "name", largest: int = 100) -> list[list[int]]:
    return listed(stored(name, ("side",), largest, make)[0]["side"])


def hidden(cache: Path) -> list[str]:
    """Everything in the cache but finished folders."""
    return [path.name for path in cache.iterdir() if not (path / "about.json").exists()]


class TestRows:
    @given(st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=4), max_size=20))
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_in_memory_they_are_plain_lists(self, rows: list[list[int]]) -> None:
        kept = Rows.of(rows)
        flat = [i for row in rows for i in row]
        assert listed(kept) == rows
        assert kept.lengths.tolist() == [len(row) for row in rows]
        assert (len(kept), kept.size) == (len(rows), len(flat))
        assert kept.flat(0, kept.size).tolist() == flat
        assert kept.flat(1, 3).tolist() == flat[1:3]

    @given(st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=4), max_size=20), st.integers(1, 5), st.booleans())
    @settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
    def test_on_disk_they_are_plain_lists(
        self, tmp_path_factory: pytest.TempPathFactory, rows: list[list[int]], chunk: int, wide: bool
    ) -> None:
        rows = rows if wide else [[i % 2**16 for i in row] for row in rows]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("GLASSFORMER_CACHE", str(tmp_path_factory.mktemp("cache")))
            kept = stored("x", ("side",), 2**32 - 1 if wide else 2**16 - 1, Making(rows, chunk=chunk))[0]["side"]
        flat = [i for row in rows for i in row]
        assert listed(kept) == rows
        assert kept.lengths.tolist() == [len(row) for row in rows]
        assert (len(kept), kept.size) == (len(rows), len(flat))
        assert kept.flat(0, kept.size).tolist() == flat
        assert kept.flat(1, 3).tolist() == flat[1:3]

    @pytest.mark.parametrize("n", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 1])
    def test_the_borders_of_blocks(self, n: int) -> None:
        """Every row, in any order, lies where the rows before it end."""
        rows = [[i] * (i % 4) for i in range(n)]
        on_disk = stored(str(n), ("side",), n, Making(rows, chunk=100))[0]["side"]
        for kept in (Rows.of(rows), on_disk):
            assert listed(kept) == rows
            for i in (n - 1, n // 2, 0, BLOCK - 2):
                assert kept[i].tolist() == rows[i]
            assert kept.size == sum(map(len, rows))
            with pytest.raises(IndexError):
                kept[n]

    def test_places_of_any_integer_kind(self) -> None:
        kept = Rows.of([[i] for i in range(300)])
        for kind in (np.int64, np.uint32, np.int32):
            assert kept[kind(299)].tolist() == [299]

    def test_none_at_all(self) -> None:
        for kept in (Rows.of([]), stored("none", ("side",), 5, Making([]))[0]["side"]):
            assert (len(kept), kept.size, kept.flat(0, 5).tolist()) == (0, 0, [])

    def test_a_file_is_not_loaded_to_read_a_row(self, tmp_path: Path) -> None:
        """A file of 16 GB, nearly all holes: past the place where four bytes count, a row costs what it holds."""
        n, length = 4000, 2**21
        file = tmp_path / "large.ids"
        with file.open("wb") as out:
            out.truncate(n * length * 2)
            for row in (0, 2500, n - 1):
                out.seek(row * length * 2)
                out.write(np.array([row + 1, 7], np.uint16).tobytes())
        tracemalloc.start()
        try:
            kept = Rows(np.full(n, length, np.uint32), file, "uint16")
            assert kept.size == n * length > 2**32
            for row in (0, 2500, n - 1):
                assert kept[row][:3].tolist() == [row + 1, 7, 0]
            assert kept.flat(2500 * length, 2500 * length + 2).tolist() == [2501, 7]
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert most < 4 * length * 2


class TestStored:
    def test_it_is_made_once(self) -> None:
        make = Making()
        for _ in range(3):
            rows, counts = stored("name", ("side",), 100, make)
            assert listed(rows["side"]) == [[1, 2], [], [3]]
            assert counts == {"read": 3}
            assert counts["else"] == 0
        assert make.calls == 1
        assert keep(Making([[9]]), "other") == [[9]]
        assert make.calls == 1

    def test_counts_are_the_callers_own(self) -> None:
        for _ in range(2):
            counts = stored("name", ("side",), 100, Making())[1]
            counts["read"] += 100
        assert stored("name", ("side",), 100, Making())[1] == {"read": 3}

    def test_sides_stay_apart(self) -> None:
        def make(counts: Counter[str]) -> Iterator[Some]:
            yield [[[1], [2, 3]], [[4, 5, 6], []]]
            yield [[[]], [[7]]]

        for _ in range(2):
            rows, _ = stored("name", ("source", "target"), 100, make)
            assert listed(rows["source"]) == [[1], [2, 3], []]
            assert listed(rows["target"]) == [[4, 5, 6], [], [7]]

    @pytest.mark.parametrize(("largest", "width"), [(2**16 - 1, 2), (2**16, 4)])
    def test_two_or_four_bytes_an_id(self, cache: Path, largest: int, width: int) -> None:
        assert keep(Making([[0, largest], [largest]]), largest=largest) == [[0, largest], [largest]]
        assert (cache / "name/side.ids").stat().st_size == 3 * width

    def test_a_crash_in_the_middle_leaves_nothing(self, cache: Path) -> None:
        def make(counts: Counter[str]) -> Iterator[Some]:
            yield [[[1], [2]]]
            raise DataError("line 3 is not UTF-8")

        with pytest.raises(DataError, match=r"^line 3 is not UTF-8$"):
            stored("name", ("side",), 100, make)
        assert list(cache.iterdir()) == []
        assert keep(Making()) == [[1, 2], [], [3]]

    def test_so_does_a_ctrl_c(self, cache: Path) -> None:
        def make(counts: Counter[str]) -> Iterator[Some]:
            yield [[[1], [2]]]
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            stored("name", ("side",), 100, make)
        assert list(cache.iterdir()) == []

    @pytest.mark.parametrize("error", [ValueError("not a number"), OSError(5, "Input/output error")])
    @pytest.mark.parametrize("late", [False, True])
    def test_what_fails_while_it_is_made_is_no_fault_of_the_cache(
        self, cache: Path, error: Exception, late: bool
    ) -> None:
        def make(counts: Counter[str]) -> Iterator[Some]:
            if late:
                yield [[[1], [2]]]
            raise error

        with pytest.raises(type(error)) as caught:
            stored("name", ("side",), 100, make)
        assert caught.value is error
        assert list(cache.iterdir()) == []

    def test_a_disk_that_fills_up(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """While rows are written: that is the cache's."""
        real = Path.open

        def full(path: Path, *mode: str) -> Any:
            if path.suffix == ".lengths" and path.exists():
                raise OSError(28, "No space left on device")
            return real(path, *mode)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "open", full)
            with pytest.raises(DataError, match=r"cannot keep token ids in .*name: No space left on device; remove"):
                keep(Making())
        assert list(cache.iterdir()) == []

    def test_what_a_crash_left_behind_is_in_nobodys_way(self, cache: Path) -> None:
        """Neither a folder that is not whole nor one that was moved aside, under its former name or another."""
        for name in ("name", ".name.old", ".name.abc/old", ".name.abc/new"):
            (cache / name).mkdir(parents=True)
            (cache / name / "side.ids").write_bytes(b"\1\0")
        assert keep(Making()) == keep(Making([[9]])) == [[1, 2], [], [3]]
        assert sorted(hidden(cache)) == [".name.abc", ".name.old"]

    def test_a_folder_that_is_not_whole_is_replaced(self, cache: Path) -> None:
        (cache / "name").mkdir(parents=True)
        (cache / "name/side.ids").write_bytes(b"\1\0\2\0")
        (cache / "name/rest").write_bytes(b"")
        make = Making()
        assert keep(make) == keep(make) == [[1, 2], [], [3]]
        assert make.calls == 1
        assert sorted(path.name for path in (cache / "name").iterdir()) == ["about.json", "side.ids", "side.lengths"]
        assert hidden(cache) == []

    @pytest.mark.parametrize("file", ["side.ids", "side.lengths", "about.json"])
    @pytest.mark.parametrize("damage", ["shorter", "longer", "gone"])
    def test_damage_is_refused(self, cache: Path, file: str, damage: str) -> None:
        keep(Making())
        path = cache / "name" / file
        if damage == "gone":
            path.unlink()
        else:
            content = path.read_bytes()
            path.write_bytes(content[:-4] if damage == "shorter" else content + b"\1\0\0\0")
        if (file, damage) == ("about.json", "gone"):
            assert keep(Making()) == [[1, 2], [], [3]]  # not whole: made again
            return
        with pytest.raises(DataError) as error:
            keep(Making())
        assert "\n" not in str(error.value)
        assert str(cache / "name") in str(error.value)
        assert "remove that folder" in str(error.value)

    def test_a_place_that_cannot_be_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A file where the folder should be: even the administrator may not write into it."""
        (tmp_path / "file").write_text("")
        for place in (tmp_path / "file", tmp_path / "file/below"):
            monkeypatch.setenv("GLASSFORMER_CACHE", str(place))
            with pytest.raises(DataError) as error:
                keep(Making())
            assert "\n" not in str(error.value)
            assert "GLASSFORMER_CACHE" in str(error.value)
            assert str(place) in str(error.value)
            assert "Errno" not in str(error.value)

    def test_a_full_disk(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", full)
            with pytest.raises(DataError, match=r"No space left on device; .* GLASSFORMER_CACHE"):
                keep(Making())
        assert list(cache.iterdir()) == []

    def test_no_file_stays_open(self) -> None:
        """And pytest turns the warning of one that Python itself had to close into an error."""
        before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
        for _ in range(20):
            assert keep(Making()) == [[1, 2], [], [3]]
        after = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
        assert after <= before + 1


class TestTwoProcesses:
    def test_another_was_faster(self, cache: Path) -> None:
        """What the other made stays: it may be reading it."""

        def make(counts: Counter[str]) -> Iterator[Some]:
            assert keep(Making([[1], [2, 3]])) == [[1], [2, 3]]
            (cache / "name/mark").write_text("the other's")
            yield [[[1], [2, 3]]]

        rows, _ = stored("name", ("side",), 100, make)
        assert listed(rows["side"]) == [[1], [2, 3]]
        assert (cache / "name/mark").exists()
        assert hidden(cache) == []

    def test_both_at_once(self, cache: Path) -> None:
        """Threads here: all have begun before the first one ends."""
        n = 4
        barrier, found, errors = threading.Barrier(n), [], []
        rows = [[i] * (i % 3) for i in range(500)]

        def make(counts: Counter[str]) -> Iterator[Some]:
            yield from Making(rows, chunk=100)(counts)
            barrier.wait(30)

        def work() -> None:
            try:
                found.append(listed(stored("name", ("side",), 500, make)[0]["side"]))
            except BaseException as error:
                errors.append(error)
                barrier.abort()

        threads = [threading.Thread(target=work) for _ in range(n)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert found == [rows] * n
        assert hidden(cache) == []


def name_of(paths: list[Path], *others: str) -> str:
    return Sources().name(paths, *others)


class TestSources:
    @pytest.fixture
    def files(self, tmp_path: Path) -> list[Path]:
        paths = [tmp_path / "a", tmp_path / "b"]
        for path, content in zip(paths, (b"ab", b"c"), strict=True):
            path.write_bytes(content)
        return paths

    def test_it_is_that_of_the_content(self, files: list[Path], tmp_path: Path) -> None:
        name = name_of(files, "settings")
        assert name == name_of(files, "settings")
        moved = tmp_path / "elsewhere"
        files[0].rename(moved)
        os.utime(moved, (1, 1))
        assert name_of([moved, files[1]], "settings") == name

    def test_all_else_changes_it(self, files: list[Path]) -> None:
        names = [
            name_of(files, "settings"),
            name_of(files, "setting"),
            name_of(files, "settings", ""),
            name_of(files, "set", "tings"),
            name_of(files[::-1], "settings"),
            name_of(files[:1], "settings"),
            name_of([], "settings"),
        ]
        for first, second in ((b"a", b"bc"), (b"ab", b"d"), (b"abc", b"")):
            files[0].write_bytes(first)
            files[1].write_bytes(second)
            names.append(name_of(files, "settings"))
        assert len(set(names)) == len(names)
        assert all(name.isalnum() and len(name) == 32 for name in names)

    def test_so_does_the_layout_on_disk(self, files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
        before = name_of(files)
        monkeypatch.setattr("glassformer.data.store.VERSION", -1)
        assert name_of(files) != before

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"cannot read .*missing: No such file"):
            name_of([tmp_path / "missing"])

    def test_each_file_is_read_once(self, files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
        read: list[Path] = []
        real = Path.open

        def noted(path: Path, *mode: str) -> Any:
            read.append(path)
            return real(path, *mode)

        monkeypatch.setattr(Path, "open", noted)
        sources = Sources()
        names = {sources.name(files, "a"), sources.name(files, "b"), sources.name(files[:1])}
        assert len(names) == 3
        assert read == files

    def test_a_file_that_has_changed(self, files: list[Path]) -> None:
        """By its size or its time: reading it anew would cost as much as what was made."""
        sources = Sources()
        sources.name(files)
        sources.check(files)
        os.utime(files[0], ns=(1, 1))
        for path in (files[0], files[1]):
            with pytest.raises(DataError, match=f"^{path} changed while it was read; run the same command again$"):
                sources.check([path])
            files[1].write_bytes(b"longer")
        files[1].unlink()
        with pytest.raises(DataError, match=f"{files[1]} changed while it was read"):
            sources.check(files[1:])
        Sources().name(files[:1])

    def test_a_change_before_all_is_read_is_one_too(self, files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
        real = Path.open

        def changing(path: Path, *mode: str) -> Any:
            os.utime(path, ns=(1, 1))
            return real(path, *mode)

        sources = Sources()
        with monkeypatch.context() as patch:
            patch.setattr(Path, "open", changing)
            sources.name(files)
        with pytest.raises(DataError, match="changed while it was read"):
            sources.check(files)


class TestKept:
    def test_it_is_made_once(self, cache: Path) -> None:
        for text in ("first", "second"):
            assert store.kept("words.json", lambda text=text: text).read_text() == "first"
        assert [path.name for path in cache.iterdir()] == ["words.json"]

    def test_what_fails_while_it_is_made_is_no_fault_of_the_cache(self, cache: Path) -> None:
        def make() -> str:
            raise OSError(5, "Input/output error")

        with pytest.raises(OSError, match=r"^\[Errno 5\] Input/output error$"):
            store.kept("words.json", make)
        assert not (cache / "words.json").exists()

    def test_a_place_that_cannot_be_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "file"))
        with pytest.raises(DataError, match=r"cannot keep a vocabulary: .*file.* GLASSFORMER_CACHE"):
            store.kept("words.json", lambda: "text")


class TestPlace:
    def test_the_variable_then_the_users_own(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert cache_directory() == cache
        keep(Making())
        assert json.loads((cache / "name/about.json").read_text()) == {"read": 3}
        monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
        monkeypatch.setenv("GLASSFORMER_CACHE", "")
        assert cache_directory() == Path("/xdg/glassformer")
        monkeypatch.delenv("GLASSFORMER_CACHE")
        assert cache_directory() == Path("/xdg/glassformer")
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", "/home/someone")
        assert cache_directory() == Path("/home/someone/.cache/glassformer")
