"""Whatever a file is, each command says it in one line: one table of kinds for verify, fix and salvage."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import socket
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.kdb_files import make

from kdbtool.kdb.identify import FileKind, identify

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:2c4484c6\nsize 400027325\n"
DVC = b"outs:\n- md5: 4a1f5d0e\n  size: 3346112\n  hash: md5\n  path: gfx942.kdb.bz2\n"
FIND = b"64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP32-F=ConvDirectNaiveConvFwd:0.1,0,x\n"
PERF = b"2x1000x13x13x1x1x1x1x512x1024x0x0x0x1x1x0x1x1x0x0x1xNCHWxBF16xB=ConvAsm1x1U:1,2\n"
MANIFEST = b"kdbtool-manifest format 0\n"
LOG = b'MIOpen(HIP): Info2 [LoadBinary] Loading binary for: "naive_conv.cpp.o"; args:  -DA=1 -mcpu=gfx1030\n'


def _database(*statements: str) -> bytes:
    db = sqlite3.connect(":memory:")
    for statement in statements:
        db.execute(statement)
    db.commit()
    return db.serialize()


def _zip(data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("gfx1030.kdb", data)
    return out.getvalue()


KDB = _database("CREATE TABLE kern_db (kernel_name, kernel_args, kernel_blob)")
PERF_DB = _database("CREATE TABLE config (id)", "CREATE TABLE perf_db (id)")
OTHER = _database("CREATE TABLE places (x)")
TABLE: list[tuple[str, bytes, FileKind, str]] = [
    ("kdb", KDB, FileKind.KDB, "kernel database"),
    ("perf-db", PERF_DB, FileKind.PERF_DB, "performance database"),
    ("another SQLite file", OTHER, FileKind.OTHER_SQLITE, "without the table kern_db (places)"),
    ("empty", b"", FileKind.EMPTY, "an empty file"),
    ("short", b"x" * 100, FileKind.SHORT, "only 100 bytes"),
    ("LFS pointer", LFS, FileKind.LFS_POINTER, "Git LFS pointer for a 400 MB file"),
    ("LFS pointer of Windows", LFS.replace(b"\n", b"\r\n"), FileKind.LFS_POINTER, "a 400 MB file"),
    ("DVC stub", DVC, FileKind.DVC_STUB, "DVC stub for a 3.35 MB file"),
    ("find-db", FIND, FileKind.FIND_DB, "find database"),
    ("perf-db as text", PERF, FileKind.PERF_DB, "performance database (text)"),
    ("manifest", MANIFEST, FileKind.MANIFEST, "a kdbtool manifest"),
    ("manifest with a mark", b"\xef\xbb\xbf" + MANIFEST, FileKind.MANIFEST, "byte order mark"),
    ("LFS pointer in UTF-16", LFS.decode().encode("utf-16"), FileKind.LFS_POINTER, "in UTF-16"),
    ("text in UTF-16", "some text\n".encode("utf-16") * 99, FileKind.OTHER, "database (in UTF-16)"),
    ("log", LOG * 20, FileKind.LOG, "a log of MIOpen"),
    ("log, bz2", bz2.compress(LOG * 20), FileKind.LOG, "a log of MIOpen"),
    ("cut in the first page", KDB[:600], FileKind.TRUNCATED, "cut off"),
    ("cut in the header", KDB[:50], FileKind.TRUNCATED, "cut off after 50 bytes"),
    ("cut by one byte", KDB[:-1], FileKind.TRUNCATED, "cut off"),
    ("malformed", KDB[:100] + b"\xff" * (len(KDB) - 100), FileKind.MALFORMED, "damaged"),
    ("noise", bytes(range(1, 256)) * 20, FileKind.OTHER, "not an SQLite file"),
    ("zeros", bytes(9000), FileKind.OTHER, "not an SQLite file"),
    ("kdb, bz2", bz2.compress(KDB), FileKind.BZ2, "a compressed kernel database"),
    ("perf-db, bz2", bz2.compress(PERF_DB), FileKind.BZ2, "a compressed performance database"),
    ("find-db, bz2", bz2.compress(FIND), FileKind.BZ2, "compressed: find database"),
    ("LFS pointer, bz2", bz2.compress(LFS), FileKind.BZ2, "compressed: Git LFS pointer"),
    ("bz2, bz2", bz2.compress(bz2.compress(KDB)), FileKind.BZ2, "bzip2 in bzip2"),
    ("noise, bz2", bz2.compress(os.urandom(3000)), FileKind.BZ2, "without a database"),
    ("two streams", bz2.compress(KDB[:4096]) + bz2.compress(KDB[4096:]), FileKind.BZ2, "kernel database"),
    ("bz2 without its end", bz2.compress(os.urandom(950_000))[:-20], FileKind.BZ2, "cut off"),
    ("bz2 and more", bz2.compress(KDB) + b"more than that", FileKind.BZ2, "something follows"),
    ("damaged bz2", b"BZh9" + b"x" * 600, FileKind.BZ2, "a damaged bzip2 file"),
    ("gzip", gzip.compress(KDB), FileKind.OTHER, "a gzip file"),
    ("xz", lzma.compress(KDB), FileKind.OTHER, "an xz file"),
    ("zip", _zip(KDB), FileKind.OTHER, "a zip file"),
    ("zstd", b"\x28\xb5\x2f\xfd" + bytes(600), FileKind.OTHER, "a zstd file"),
    ("ELF", b"\x7fELF" + bytes(600), FileKind.OTHER, "an ELF file"),
    ("offload bundle", b"__CLANG_OFFLOAD_BUNDLE__" + bytes(600), FileKind.OTHER, "an offload bundle"),
    ("HTML", b"<!doctype html>" + b" " * 600, FileKind.OTHER, "an HTML page"),
]  # fmt: skip
IDS = [name for name, *_ in TABLE]
Cli = Callable[..., Any]


@pytest.mark.parametrize(("name", "data", "kind", "text"), TABLE, ids=IDS)
def test_a_file(name: str, data: bytes, kind: FileKind, text: str, tmp_path: Path, run_cli: Cli) -> None:
    path = tmp_path / "gfx1030.kdb"
    path.write_bytes(data)
    found = identify(path)
    assert (found.what, "\n" in found.error().line()) == (kind, False)
    assert text in found.text
    if found.is_kdb:
        return
    for command in (("verify",), ("fix", "--dry-run"), ("salvage", "-o", tmp_path / "new.kdb")):
        done = run_cli(command[0], path, *command[1:])
        assert done.code in (1, 2) and done.err.count("\n") == 1 and done.out == "", command
        assert command[0] == "salvage" or (done.code == 2 and text in done.err)
    assert [p.name for p in tmp_path.iterdir()] == ["gfx1030.kdb"]


def test_what_is_no_file(tmp_path: Path, run_cli: Cli) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        expected = {
            tmp_path: FileKind.DIRECTORY,
            tmp_path / "fifo": FileKind.SPECIAL,
            tmp_path / "socket": FileKind.SPECIAL,
            Path("/dev/zero"): FileKind.SPECIAL,
            tmp_path / "none": FileKind.MISSING,
            tmp_path / "loop": FileKind.UNREADABLE,
            tmp_path / ("x" * 300): FileKind.UNREADABLE,
            make(tmp_path / "gfx1030.kdb") / "below": FileKind.UNREADABLE,
        }
        for path, kind in expected.items():
            assert identify(path).what is kind, path
            done = run_cli("verify", path)
            assert done.code == 2 and done.err.count("\n") == 1


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = make(tmp_path / "gfx1030.kdb")
    path.chmod(0)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
            kind = identify(path)
            code = 0 if kind.what is FileKind.UNREADABLE and "denied" in kind.text else 1
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_a_live_user_database_and_one_in_wal_mode(tmp_path: Path) -> None:
    live = make(tmp_path / "gfx1030_36.ukdb", before=["PRAGMA journal_mode=wal"])
    found = identify(live)
    assert (found.what, found.journal, found.immutable) == (FileKind.UKDB, "wal", False)
    assert [p.name for p in tmp_path.iterdir()] == ["gfx1030_36.ukdb"]
