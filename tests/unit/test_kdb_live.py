"""Reading beside a writer that waits 10 ms for a lock, as MIOpen does: it never has to, nor have we.

That is WAL mode. In journal mode delete (MIOPEN_DEBUG_DISABLE_SQL_WAL) SQLite's readers and writers do keep
each other out for the moment of a statement; MIOpen tries again for 30 s.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.kdb_files import make, row

from kdbtool.kdb.reader import BATCH, RowGone, open_kdb

# MIOpen's own PRAGMAs and statement (src/sqlite_db.cpp, src/include/miopen/kern_db.hpp), without its retries.
WRITER = """
import sqlite3, sys
path, blob = sys.argv[1], bytes(20_000)
number = 0
while True:
    db = sqlite3.connect(path, isolation_level=None, timeout=0.01)
    db.execute("PRAGMA journal_mode=wal")
    for _ in range(20):
        number += 1
        db.execute("INSERT OR REPLACE INTO kern_db (kernel_name, kernel_args, kernel_blob, kernel_hash,"
                   " uncompressed_size) VALUES (?, 'x', ?, '', 0)", (f"w{number % 300}.cl.o", blob))
    db.execute("PRAGMA wal_checkpoint(PASSIVE)")
    db.close()
    print(number, flush=True)
"""


def test_no_writer_is_ever_busy(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    path = make(
        tmp_path / "gfx1030_36.ukdb",
        [row(b"k%d.cl.o" % n) for n in range(700)],
        before=["PRAGMA journal_mode=wal"],
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None and writer.stderr is not None
    writer.stdout.readline()
    try:
        for turn in range(4):
            assert run_cli("info", path).code in (0, 1)
            assert run_cli("list", path).code in (0, 1)
            assert run_cli("verify", path).code in (0, 1)
            # Its input may change between the two passes, which is an error of its own.
            assert run_cli("fix", path, "-o", tmp_path / f"new{turn}.kdb").code == 1
            with open_kdb(path) as reader:
                assert len(list(reader.keys())) >= 700
                for found in reader:
                    try:
                        found.blob()
                    except RowGone:
                        continue
        assert writer.poll() is None, writer.stderr.read()  # any SQLITE_BUSY ended it
    finally:
        writer.kill()
        writer.communicate()


@pytest.mark.parametrize("command", ["info", "verify", "list", "fix"])
def test_a_file_in_wal_mode_that_nobody_has_open_is_left_as_it_was(
    command: str, tmp_path: Path, run_cli: Callable[..., Any]
) -> None:
    path = make(tmp_path / "gfx1030_36.ukdb", before=["PRAGMA journal_mode=wal"])
    before, status = path.read_bytes(), path.stat()
    assert run_cli(command, path, *(["--dry-run"] if command == "fix" else [])).code in (0, 1)
    assert [p.name for p in tmp_path.iterdir()] == ["gfx1030_36.ukdb"]
    assert path.read_bytes() == before and path.stat().st_mtime_ns == status.st_mtime_ns


def test_the_side_files_of_somebody_else_stay(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    path = make(tmp_path / "gfx1030_36.ukdb", before=["PRAGMA journal_mode=wal"])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA wal_autocheckpoint=0")
    other.execute("INSERT INTO kern_db VALUES (9, 'a.cl.o', '', x'', '', 0)")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    run_cli("verify", path)
    after = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert set(after) == set(before) == {path.name, f"{path.name}-wal", f"{path.name}-shm"}
    assert after[f"{path.name}-wal"] == before[f"{path.name}-wal"] and after[path.name] == before[path.name]
    other.close()


@pytest.mark.timeout(60)
def test_a_writer_that_is_faster_than_the_reader_does_not_keep_it_for_ever(tmp_path: Path) -> None:
    path = make(tmp_path / "gfx1030_36.ukdb", [row(b"k%d.cl.o" % n) for n in range(BATCH)])
    writer = sqlite3.connect(path, isolation_level=None)
    with open_kdb(path) as reader:
        seen = set()
        for found in reader:
            seen.add(found.rowid)
            if len(seen) % BATCH == 1:
                writer.execute(
                    "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 600)"
                    " INSERT INTO kern_db SELECT NULL, i || '.cl.o', ?, x'', '', 0 FROM n",
                    (len(seen),),
                )
    writer.close()
    assert set(range(1, BATCH + 1)) <= seen and len(seen) <= 6 * BATCH


@pytest.mark.parametrize("command", ["list", "info", "verify"])
def test_a_locked_database_is_no_unreadable_one(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_cli: Callable[..., Any]
) -> None:
    """Exit code 1, try again: nothing is wrong with the file."""
    monkeypatch.setattr("kdbtool.kdb.sqlite.BUSY_SECONDS", 0.1)
    path = make(tmp_path / "gfx1030.kdb", [row()])
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    done = run_cli(command, path)
    writer.close()
    assert done.code == 1 and "locked" in done.err and "run it again" in done.err
