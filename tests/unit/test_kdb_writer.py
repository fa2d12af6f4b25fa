"""Writing: MIOpen's own layout, the same bytes for the same rows, all or nothing."""

from __future__ import annotations

import os
import random
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.amdgpu_elf import code_object
from support.kdb_files import make

from kdbtool.errors import KdbtoolError
from kdbtool.kdb.blob import Packed, pack, unpack
from kdbtool.kdb.reader import open_kdb
from kdbtool.kdb.writer import INDEX_SQL, TABLE_SQL, write_kdb

ROWS = [
    (b"k%02d.cl.o" % n, b" -DN=%d -mcpu=gfx1030" % (n % 7), code_object(kernels=(f"k{n % 9}",)))
    for n in range(50)
]


def test_layout_is_miopens(tmp_path: Path) -> None:
    write_kdb(tmp_path / "gfx1030.kdb", ROWS, {"miopen": "6.4.3"})
    with sqlite3.connect(tmp_path / "gfx1030.kdb") as db:
        schema = dict(db.execute("SELECT name, sql FROM sqlite_schema").fetchall())
        facts = [
            db.execute(f"PRAGMA {p}").fetchone()[0]
            for p in (
                "journal_mode",
                "freelist_count",
                "user_version",
                "application_id",
                "page_size",
                "encoding",
                "auto_vacuum",
                "integrity_check",
            )
        ]
        before = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute("VACUUM")
        after = db.execute("PRAGMA page_count").fetchone()[0]
        keys = db.execute(
            "SELECT id, kernel_name, kernel_args, typeof(kernel_name), typeof(kernel_args)"
            " FROM kern_db ORDER BY id"
        ).fetchall()
    assert schema["kern_db"] == TABLE_SQL and schema["idx_kern_db"] == INDEX_SQL
    assert facts == ["delete", 0, 0, 0, 4096, "UTF-8", 0, "ok"]
    assert before == after
    assert [k[0] for k in keys] == list(range(1, 51)) and [k[1:3] for k in keys] == sorted(
        k[1:3] for k in keys
    )
    assert {k[3:] for k in keys} == {("text", "text")}
    assert (tmp_path / "gfx1030.kdb").stat().st_mode & 0o7777 == 0o644


def test_schema_is_amds(tmp_path: Path, shared: Path) -> None:
    write_kdb(tmp_path / "a.kdb", ROWS, {})

    def schema(path: Path) -> dict[str, str]:
        with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as db:
            return dict(db.execute("SELECT name, sql FROM sqlite_schema").fetchall())

    ours, theirs = schema(tmp_path / "a.kdb"), schema(shared / "data" / "gfx942.kdb")
    assert {k: ours[k] for k in theirs} == theirs
    assert set(ours) - set(theirs) == {"kdbtool_provenance"}


def test_amds_blobs_are_made_again_byte_for_byte(shared: Path) -> None:
    with open_kdb(shared / "data" / "gfx942.kdb") as reader:
        for row in reader:
            assert pack(row.object()) == Packed(row.blob(), row.hash, row.uncompressed_size)


def test_any_order_gives_the_same_bytes(tmp_path: Path) -> None:
    shuffled = list(ROWS)
    random.Random(3).shuffle(shuffled)
    write_kdb(tmp_path / "a.kdb", ROWS, {"x": "1", "y": "2"})
    write_kdb(tmp_path / "b.kdb", iter(shuffled), {"y": "2", "x": "1"})
    write_kdb(tmp_path / "c.kdb", ((n, a, pack(o)) for n, a, o in reversed(ROWS)), {"x": "1", "y": "2"})
    assert (
        (tmp_path / "a.kdb").read_bytes()
        == (tmp_path / "b.kdb").read_bytes()
        == (tmp_path / "c.kdb").read_bytes()
    )


def test_header_fields_that_depend_on_sqlite_are_fixed(tmp_path: Path) -> None:
    write_kdb(tmp_path / "a.kdb", ROWS, {})
    head = (tmp_path / "a.kdb").read_bytes()[:100]
    assert head[24:28] == head[92:96] == head[40:44] == b"\0\0\0\1"
    assert int.from_bytes(head[96:100], "big") == 3040001
    assert int.from_bytes(head[28:32], "big") * 4096 == (tmp_path / "a.kdb").stat().st_size


def test_no_rows_is_a_valid_database(tmp_path: Path) -> None:
    write_kdb(tmp_path / "gfx1030.kdb", [], {})
    with open_kdb(tmp_path / "gfx1030.kdb") as reader:
        assert list(reader) == [] == list(reader.keys())
        assert (reader.provenance() or {})["rows"] == "0"


def test_same_key_with_the_same_object_is_one_row(tmp_path: Path) -> None:
    write_kdb(tmp_path / "a.kdb", [ROWS[0], ROWS[0]], {})
    with open_kdb(tmp_path / "a.kdb") as reader:
        assert len(reader) == 1


def test_two_objects_for_one_key_are_never_merged(tmp_path: Path) -> None:
    with pytest.raises(KdbtoolError, match="two objects for one key") as caught:
        write_kdb(tmp_path / "a.kdb", [ROWS[0], (*ROWS[0][:2], b"other object")], {})
    assert caught.value.exit_code == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "bad", [(b"", b"x", b"o"), (b"a\0b.o", b"x", b"o"), (b"a.o", b"\0", b"o"), (b"a.o", b"x", b"")]
)
def test_rows_that_no_database_holds_are_refused(tmp_path: Path, bad: tuple[bytes, bytes, bytes]) -> None:
    with pytest.raises(KdbtoolError, match="no database can hold"):
        write_kdb(tmp_path / "a.kdb", [bad], {})
    assert list(tmp_path.iterdir()) == []


def test_provenance_keys_of_the_writer_are_its_own(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="reserved"):
        write_kdb(tmp_path / "a.kdb", [], {"rows": "9"})


def test_an_exception_of_the_rows_leaves_nothing(tmp_path: Path) -> None:
    def rows() -> object:
        yield ROWS[0]
        raise RuntimeError("worker died")

    with pytest.raises(RuntimeError):
        write_kdb(tmp_path / "a.kdb", rows(), {})  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_existing_output_needs_force(tmp_path: Path) -> None:
    make(tmp_path / "a.kdb")
    before = (tmp_path / "a.kdb").read_bytes()
    with pytest.raises(KdbtoolError, match="--force"):
        write_kdb(tmp_path / "a.kdb", ROWS, {})
    assert (tmp_path / "a.kdb").read_bytes() == before
    write_kdb(tmp_path / "a.kdb", ROWS, {}, force=True)
    with open_kdb(tmp_path / "a.kdb") as reader:
        assert len(reader) == 50


def test_what_does_not_shrink_is_stored_raw() -> None:
    noise = os.urandom(100)
    assert pack(noise).uncompressed_size == 0 and pack(noise).blob == noise
    zeros = bytes(1000)
    assert pack(zeros).uncompressed_size == 1000 and pack(zeros).blob.startswith(b"BZh9")


@given(st.binary(min_size=1, max_size=3000))
def test_pack_and_unpack(data: bytes) -> None:
    packed = pack(data)
    assert unpack(packed.blob, packed.md5, packed.uncompressed_size) == (data, [])
    assert packed.size == len(data) and len(packed.blob) <= len(data)
