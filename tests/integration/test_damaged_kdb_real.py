"""What verify says MIOpen does with a bad row is what the real MIOpen does.

One convolution on a simulated gfx1030; its kernel comes from a system kdb that kdbtool wrote, then
damaged one way at a time. Loaded, thrown or never found: MIOpen's own log and exit code say it.
"""

from __future__ import annotations

import bz2
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.amdgpu_elf import code_object

from kdbtool.kdb.blob import md5, pack
from kdbtool.kdb.checks import check
from kdbtool.kdb.reader import open_kdb
from kdbtool.kdb.writer import write_kdb

DRIVER = "/usr/libexec/rocm/libmiopen1-tests/MIOpenDriver"
CONV = "conv -n 2 -c 8 -H 16 -W 16 -k 8 -y 3 -x 3 -p 1 -q 1 -t 1 -V 0 -i 1 -F 1".split()
Blob = Callable[[bytes, str, int], tuple[bytes, str, int]]


def _object(change: Callable[[bytes], bytes]) -> Blob:
    def blob(raw: bytes, _digest: str, _size: int) -> tuple[bytes, str, int]:
        packed = pack(change(bz2.decompress(raw)))
        return packed.blob, packed.md5, packed.uncompressed_size

    return blob


def _elf_byte(offset: int, value: int) -> Blob:
    def change(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[data.index(b"\x7fELF") + offset] = value
        return bytes(changed)

    return _object(change)


# What is done to the blob columns of every row, and the code that verify has for it; None: nothing wrong.
BLOBS: dict[str, tuple[Blob, str | None]] = {
    "as written": (lambda b, h, s: (b, h, s), None),
    "stored raw": (lambda b, h, s: (bz2.decompress(b), h, 0), None),
    "size too large": (lambda b, h, s: (b, h, s + 1), "size-large"),
    "size too small": (lambda b, h, s: (b, h, s - 1), "size-small"),
    "bytes after the stream": (lambda b, h, s: (b + b"tail", h, s), "bz2-tail"),
    "stream cut": (lambda b, h, s: (b[:-9], h, s), "bad-bz2"),
    "hash in capitals": (lambda b, h, s: (b, h.upper(), s), "hash-case"),
    "hash of the compressed": (lambda b, h, s: (b, md5(b), s), "hash-of-compressed"),
    "no object": (_object(lambda _: b"int main() {}" * 30), "not-elf"),
    "no kernel": (_object(lambda _: code_object(kernels=())), "no-kernels"),
    "of gfx1100": (_elf_byte(48, 0x41), "elf-arch"),
    "of x86-64": (_elf_byte(18, 62), "elf-machine"),
    "ABI version 9": (_elf_byte(8, 9), "object-version"),
}
STATEMENTS: dict[str, tuple[str, str]] = {
    "quote in the arguments": ("UPDATE kern_db SET kernel_args = '''' || kernel_args", "unreachable-quote"),
    "no .o": ("UPDATE kern_db SET kernel_name = rtrim(kernel_name, '.o')", "unreachable-no-dot-o"),
    "key is a blob": ("UPDATE kern_db SET kernel_name = CAST(kernel_name AS BLOB)", "unreachable-type"),
    "no index": ("DROP INDEX idx_kern_db", "no-index"),
    "another table": ("CREATE TABLE other (x)", "extra-table"),
    "a column less": ("ALTER TABLE kern_db DROP COLUMN uncompressed_size", "no-column"),
    "user version": ("PRAGMA user_version = 5", "user-version"),
}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory, root: Path) -> list[tuple[bytes, bytes, bytes]]:
    """The rows that MIOpen itself compiles for the convolution."""
    return []


def _run(kdbtool: Callable[..., Any], root: Path, tmp: Path, system: Path, *more: str) -> Any:
    return kdbtool(
        *(
            "record",
            "--simulate",
            "gfx1030",
            "--root",
            root,
            "-o",
            tmp / "traces",
            *more,
            "--",
            DRIVER,
            *CONV,
        ),
        env={"MIOPEN_LOG_LEVEL": "6", "MIOPEN_SYSTEM_DB_PATH": str(system)},
    )


@pytest.fixture
def database(
    tmp_path: Path, root: Path, kdbtool: Callable[..., Any], rows: list[tuple[bytes, bytes, bytes]]
) -> Path:
    """`system/gfx1030.kdb` with those rows; compiled once for all tests."""
    system = tmp_path / "system"
    system.mkdir()
    if not rows:
        done = _run(kdbtool, root, tmp_path, system, "--keep")
        kept = re.search(r"private folders kept: (.+)$", done.err, re.MULTILINE)
        assert done.code == 0 and kept, done.err
        (cache,) = Path(kept[1]).rglob("gfx1030_36.ukdb")
        with open_kdb(cache) as reader:
            rows += [(r.name, r.args, r.object()) for r in reader]
        shutil.rmtree(kept[1])
    path = system / "gfx1030.kdb"
    write_kdb(path, rows, {"miopen": "6.4.3"})
    return path


def _compare(kdbtool: Callable[..., Any], root: Path, tmp: Path, path: Path, code: str | None) -> None:
    with open_kdb(path) as reader:
        found = {f.code.code: f.code.consequence.value for f in check(reader).findings}
    assert code is None or code in found
    said = found[code] if code else "harmless"
    done = _run(kdbtool, root, tmp, path.parent)
    text = done.out + done.err
    loaded = 'Successfully loaded binary for: "naive_conv.cpp.o"' in text
    if said == "harmless":
        assert done.code == 0 and loaded
    elif said == "never hit":
        assert done.code == 0 and not loaded
    else:
        assert said == "throws" and done.code != 0, text[-2000:]


@pytest.mark.parametrize("name", BLOBS)
def test_blobs(name: str, database: Path, root: Path, kdbtool: Callable[..., Any], tmp_path: Path) -> None:
    change, code = BLOBS[name]
    with sqlite3.connect(database) as db:
        for number, *columns in db.execute(
            "SELECT id, kernel_blob, kernel_hash, uncompressed_size FROM kern_db"
        ).fetchall():
            db.execute(
                "UPDATE kern_db SET kernel_blob = ?, kernel_hash = ?, uncompressed_size = ? WHERE id = ?",
                (*change(*columns), number),
            )
    db.close()
    _compare(kdbtool, root, tmp_path, database, code)


@pytest.mark.parametrize("name", STATEMENTS)
def test_statements(
    name: str, database: Path, root: Path, kdbtool: Callable[..., Any], tmp_path: Path
) -> None:
    statement, code = STATEMENTS[name]
    with sqlite3.connect(database) as db:
        db.execute(statement)
    db.close()
    _compare(kdbtool, root, tmp_path, database, code)
