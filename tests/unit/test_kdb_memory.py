"""Memory: flat for a large file, bounded by the declared size for a blob that unpacks to more."""

from __future__ import annotations

import bz2
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.kdb_files import make, row
from support.memory import peak_of_kdbtool

from kdbtool.kdb.blob import md5, unpack
from kdbtool.kdb.findings import Code

BLOBS, BLOB = 50, 4 << 20


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 MB of blobs that do not compress, each of its own."""
    path = make(tmp_path_factory.mktemp("large") / "gfx1030.kdb", [])
    noise = os.urandom(BLOB)
    with sqlite3.connect(path) as db:
        for n in range(BLOBS):
            blob = n.to_bytes(4, "big") + noise[4:]
            db.execute("INSERT INTO kern_db VALUES (NULL, ?, 'x', ?, ?, 0)", (f"k{n}.cl.o", blob, md5(blob)))
    db.close()
    return path


@pytest.mark.parametrize("command", ["info", "list", "verify", "fix", "salvage"])
def test_a_large_file_takes_little_memory(command: str, large: Path, tmp_path: Path) -> None:
    """Far less than the file, and no more than for a file five times as large: one blob at a time."""
    words = {"fix": ["--dry-run"], "salvage": ["-o", str(tmp_path / "new.kdb")]}.get(command, [])
    peak, code, said = peak_of_kdbtool(command, large, *words)
    assert code in (0, 1), said
    assert peak < 150_000  # KiB; the interpreter and its libraries alone are some 50,000


@pytest.mark.parametrize("command", ["verify", "fix", "salvage"])
def test_many_long_keys_are_not_kept(command: str, tmp_path: Path) -> None:
    """60 MB of keys, each to be repaired, with one object."""
    columns = row()[2:]
    keys = ((f"k{n % 9}.cl.o", f" -DN={n}{' -DLONG=1' * 330} -mcpu=gfx1030:xnack-") for n in range(20_000))
    path = make(tmp_path / "gfx1030.kdb", ((*key, *columns) for key in keys), index=None)
    words = {"fix": ["--dry-run"], "salvage": ["-o", str(tmp_path / "new.kdb")]}.get(command, [])
    peak, code, said = peak_of_kdbtool(command, path, *words)
    assert code in (0, 1), said
    assert peak < 120_000  # KiB


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """300 MB of zeros in under a kilobyte: more than any object may have, and no less endless than 1 GB."""
    return bz2.compress(bytes(300 << 20), 9)


@pytest.mark.parametrize(
    ("size", "code"),
    [(1, Code.SIZE_SMALL), (1 << 20, Code.SIZE_SMALL), (1 << 40, Code.BAD_SIZE), (-1, Code.BAD_SIZE)],
)
def test_a_blob_that_unpacks_to_more_than_any_object(size: int, code: Code, bomb: bytes) -> None:
    assert len(bomb) < 10_000
    data, found = unpack(bomb, "0" * 32, size)
    assert data is None and [f.code for f in found] == [code]


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (256 << 20) - 1, 1 << 40])
def test_memory_for_it_is_bounded_by_the_declared_size(
    size: int, bomb: bytes, tmp_path: Path, run_cli: Callable[..., Any]
) -> None:
    path = make(tmp_path / "gfx1030.kdb", [row(blob=bomb, size=size)])
    for command in (["verify"], ["fix", "--dry-run"]):
        peak, code, _ = peak_of_kdbtool(command[0], path, *command[1:])
        declared = size if 0 < size <= 256 << 20 else 0
        assert code == 1 and peak < 150_000 + 1.2 * (declared >> 10)
