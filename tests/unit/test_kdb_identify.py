"""identify: one line for any file, without blocking and without an exception."""

from __future__ import annotations

import bz2
import os
import sqlite3
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.kdb_files import make

from kdbtool.errors import KdbtoolError
from kdbtool.kdb import FileKind, identify
from kdbtool.kdb.reader import open_kdb
from kdbtool.kdb.sqlite import HEADER_MAGIC

DVC = b"outs:\n- md5: 4a1f5d0e\n  size: 3346112\n  hash: md5\n  path: gfx942.kdb.bz2\n"
FIND = b"64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP32-F=ConvDirectNaiveConvFwd:0.1,0,x\n"
PERF = b"2x1000x13x13x1x1x1x1x512x1024x0x0x0x1x1x0x1x1x0x0x1xNCHWxBF16xB=ConvAsm1x1U:1,2\n"


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (b"", FileKind.EMPTY, "empty"),
        (b"x" * 100, FileKind.SHORT, "only 100 bytes"),
        (b"x" * 600, FileKind.OTHER, "not an SQLite file"),
        (DVC, FileKind.DVC_STUB, "DVC stub for a 3.35 MB file"),
        (FIND, FileKind.FIND_DB, "find database, not a kernel database"),
        (PERF, FileKind.PERF_DB, "performance database (text)"),
        (HEADER_MAGIC[:9], FileKind.TRUNCATED, "cut off after 9 bytes"),
        (HEADER_MAGIC + b"\x10\0\1\1" + b"\0" * 30, FileKind.TRUNCATED, "cut off"),
        (HEADER_MAGIC + b"\xff" * 1000, FileKind.MALFORMED, "damaged"),
        (b"\x7fELF" + b"\0" * 600, FileKind.OTHER, "ELF"),
        (b"\x1f\x8b" + b"\0" * 600, FileKind.OTHER, "gzip"),
        (b"<!doctype html>" + b" " * 600, FileKind.OTHER, "HTML"),
        (b"kdbtool-manifest format 0\n", FileKind.MANIFEST, "manifest"),
        (bz2.compress(b"x" * 1000), FileKind.BZ2, "without a database"),
        (bz2.compress(FIND), FileKind.BZ2, "compressed: find database"),
        (bz2.compress(bz2.compress(FIND)), FileKind.BZ2, "bzip2 in bzip2"),
        (bz2.compress(FIND)[:30], FileKind.BZ2, "cut off or empty"),
        (b"BZh9" + b"x" * 600, FileKind.BZ2, "damaged bzip2"),
    ],
)
def test_by_content_whatever_the_name(tmp_path: Path, data: bytes, kind: FileKind, text: str) -> None:
    path = tmp_path / "gfx1030.kdb"
    path.write_bytes(data)
    found = identify(path)
    assert found.what is kind and text in found.text and not found.is_kdb
    with pytest.raises(KdbtoolError) as caught:
        open_kdb(path)
    assert caught.value.exit_code == 2 and "\n" not in caught.value.line()


def test_compressed_kdb_says_how_to_unpack(tmp_path: Path) -> None:
    packed = tmp_path / "gfx1030.kdb.bz2"
    packed.write_bytes(bz2.compress(make(tmp_path / "a.kdb").read_bytes()))
    found = identify(packed)
    assert (found.what, found.inner) == (FileKind.BZ2, FileKind.KDB)
    assert found.hint == "bunzip2 -k gfx1030.kdb.bz2"


def test_a_large_first_block_of_bz2(tmp_path: Path) -> None:
    path = tmp_path / "a.bz2"
    path.write_bytes(bz2.compress(os.urandom(900_000)))
    assert "without a database" in identify(path).text


def test_folder_fifo_device_missing_unreadable(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert identify(tmp_path).what is FileKind.DIRECTORY
    assert identify(tmp_path / "fifo").what is FileKind.SPECIAL
    assert identify("/dev/zero").what is FileKind.SPECIAL
    assert identify(tmp_path / "no").what is FileKind.MISSING
    assert identify(tmp_path / ("x" * 300)).what is FileKind.UNREADABLE
    assert identify("a\0b").what is FileKind.UNREADABLE
    (tmp_path / "loop").symlink_to("loop")
    assert identify(tmp_path / "loop").what is FileKind.UNREADABLE


def test_kdb_and_ukdb_by_name(tmp_path: Path) -> None:
    assert identify(make(tmp_path / "gfx1030.kdb")).what is FileKind.KDB
    assert identify(make(tmp_path / "gfx1030_36.ukdb")).what is FileKind.UKDB


def test_another_sqlite_file_names_its_tables(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "a.kdb") as db:
        db.execute("CREATE TABLE places (x)")
    assert "without the table kern_db (places)" in identify(tmp_path / "a.kdb").text


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW kern_db AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i FROM n",
        "CREATE VIRTUAL TABLE kern_db USING fts4(kernel_name)",
    ],
)
def test_a_view_or_virtual_table_named_kern_db_is_none(tmp_path: Path, statement: str) -> None:
    with sqlite3.connect(tmp_path / "a.kdb") as db:
        db.execute(statement)
    assert identify(tmp_path / "a.kdb").what is FileKind.OTHER_SQLITE


def test_cut_off_at_any_page(tmp_path: Path) -> None:
    whole = make(tmp_path / "a.kdb").read_bytes()
    cut = tmp_path / "gfx1030.kdb"
    for end in (99, 100, 511, 512, 4095, 4096, len(whole) - 1):
        cut.write_bytes(whole[:end])
        assert identify(cut).what is FileKind.TRUNCATED, end


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    prefix=st.sampled_from([b"", HEADER_MAGIC, b"BZh9", b"version https://git-lfs", FIND, PERF]),
    tail=st.binary(max_size=2000),
)
def test_any_bytes_are_named(tmp_path: Path, prefix: bytes, tail: bytes) -> None:
    path = tmp_path / "x.kdb"
    path.write_bytes(prefix + tail)
    assert identify(path).text


@pytest.mark.parametrize(
    "data",
    [b"\n" * 60000, b"1" * 60000, b"1x" * 30000, b"1-" * 30000, b"- " * 30000, b"1x1" + b"xAxB" * 15000],
)
@pytest.mark.timeout(10)
def test_no_text_makes_a_pattern_search_for_long(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.kdb"
    path.write_bytes(data)
    assert identify(path).what is FileKind.OTHER
