"""Damaged pages that SQLite does not simply refuse: they lead it in circles, or to gigabytes."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from pathlib import Path

import pytest
from support.kdb_files import NAME, make, row

from kdbtool.errors import KdbtoolError
from kdbtool.kdb.checks import check
from kdbtool.kdb.identify import identify
from kdbtool.kdb.reader import KdbReader
from kdbtool.kdb.sqlite import reading

ROWS = 600


def circle(path: Path, name: str) -> Path:
    """A database whose b-tree `name` has its first page a second time, as its last."""
    rows = (row(f"k{n:04}.s.o".encode(), b"x" * 100, blob=b"", size=0) for n in range(ROWS))
    make(path, rows, before=["PRAGMA page_size=512"])
    db = sqlite3.connect(path)
    (page,) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)).fetchone()
    db.close()
    data = bytearray(path.read_bytes())
    at = (page - 1) * 512
    assert data[at] in (2, 5)  # an interior page: cell pointers begin at 12, a cell with its left child
    cell = int.from_bytes(data[at + 12 : at + 14], "big")
    data[at + 8 : at + 12] = data[at + cell : at + cell + 4]
    path.write_bytes(data)
    return path


def test_rows_end_where_they_turn_back(tmp_path: Path) -> None:
    with KdbReader(identify(circle(tmp_path / "gfx1030.kdb", "kern_db"))) as reader:
        seen: list[int] = []
        with pytest.raises(KdbtoolError, match="out of order"):
            seen += (found.rowid for found in itertools.islice(reader.rows(batch=1), 10 * ROWS))
        assert seen == sorted(set(seen)) and ROWS // 2 < len(seen) < ROWS
        with pytest.raises(KdbtoolError, match="out of order"):
            list(itertools.islice(reader, 10 * ROWS))
        report = check(reader)
    assert {f.code.code for f in report.findings} >= {"malformed", "unreadable-rows"}
    assert report.stats.rows == len(seen)


def test_keys_end_where_the_index_turns_back(tmp_path: Path) -> None:
    """SQLite looks for what comes after the last key and finds nothing, or finds it twice."""
    with KdbReader(identify(circle(tmp_path / "gfx1030.kdb", "idx_kern_db"))) as reader:
        count = 0
        with contextlib.suppress(KdbtoolError):
            for _ in itertools.islice(reader.keys(), 10 * ROWS):
                count += 1
        assert 0 < count < 2 * ROWS


def test_the_same_database_undamaged_is_read_whole(tmp_path: Path) -> None:
    rows = (row(f"k{n:04}.s.o".encode(), b"x" * 100, blob=b"", size=0) for n in range(ROWS))
    path = make(tmp_path / "gfx1030.kdb", rows, before=["PRAGMA page_size=512"])
    with KdbReader(identify(path)) as reader:
        assert len(list(reader)) == len(list(reader.rows(batch=1))) == len(list(reader.keys())) == ROWS


def test_a_row_that_claims_gigabytes_is_damage(tmp_path: Path) -> None:
    """SQLite answers SQLITE_NOMEM, which Python raises as MemoryError."""
    path = make(tmp_path / "gfx1030.kdb")
    data = bytearray(path.read_bytes())
    at = data.index(NAME) - 8  # the types of the columns stand before the first one
    data[at : at + 8] = b"\xff" * 7 + b"\x7f"
    path.write_bytes(data)
    with KdbReader(identify(path)) as reader:
        with pytest.raises(KdbtoolError) as caught:
            list(reader)
        assert "\n" not in caught.value.line()
        assert {f.code.code for f in check(reader).findings} >= {"malformed", "unreadable-rows"}


def test_no_memory_is_one_line() -> None:
    with pytest.raises(KdbtoolError, match="SQLite gets no memory"), reading(Path("x.kdb")):
        raise MemoryError
