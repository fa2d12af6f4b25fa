"""Pieces of AMD's find-dbs and perf-dbs, small enough to be changed a thousand times."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from kdbtool.miopen import perfdb, perfdb_sqlite, perfdb_text, textdb

FIND = "gfx1030_36.HIP.fdb.txt.bz2"  # legacy lines
FIND_CURRENT = "gfx942130.HIP.fdb.txt.bz2"
PERF = "gfx1030_36.db.bz2"


def find_lines(shared: Path, name: str, step: int, count: int) -> bytes:
    """Every `step`-th line of a find-db, `count` of them."""
    lines = islice(textdb.lines(shared / "data" / name), 0, step * count, step)
    return b"".join(textdb.encode(line.text) + b"\n" for line in lines)


def perf_text(shared: Path, count: int) -> bytes:
    """`count` rows of AMD's perf-db as text."""
    return b"".join(perfdb_text.render(islice(perfdb.read(shared / "data" / PERF), count)))


def perf_sqlite(shared: Path, folder: Path, count: int) -> bytes:
    """`count` rows of AMD's perf-db as SQLite."""
    path = folder / "few.db"
    path.unlink(missing_ok=True)
    perfdb_sqlite.fill(path, islice(perfdb.read(shared / "data" / PERF), count))
    return path.read_bytes()
