"""Reading: exact keys, blobs on demand, flat memory, no lock, and any damage is one line."""

from __future__ import annotations

import itertools
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.amdgpu_elf import code_object
from support.kdb_files import ARGS, NAME, make, row
from support.memory import peak_of

from kdbtool.errors import KdbtoolError
from kdbtool.kdb import identify
from kdbtool.kdb.checks import check
from kdbtool.kdb.names import parse_name
from kdbtool.kdb.reader import BATCH, KdbReader, open_kdb
from kdbtool.kdb.writer import TABLE_SQL

COLUMN_LIST = "kernel_name, kernel_args, kernel_blob, kernel_hash, uncompressed_size"


def test_keys_are_exact_bytes(tmp_path: Path) -> None:
    keys = [
        (b"a.cl.o", b"  -DX=1  -DX=1 -mcpu=gfx1030"),
        (b"a.cl.o", b" -DX=\xc3\xa4 -mcpu=gfx1030"),
        (b"a.cl.o", b""),
        (b"B.cl.o", b" -mcpu=gfx1030 "),
    ]
    path = make(tmp_path / "gfx1030.kdb", [row(*k) for k in keys])
    with open_kdb(path) as reader:
        assert [(r.name, r.args) for r in reader] == keys
        assert sorted(reader.keys()) == sorted(keys)
        assert len(reader) == 4


def test_keys_that_are_not_utf8(tmp_path: Path) -> None:
    path = make(tmp_path / "gfx1030.kdb", [])
    with sqlite3.connect(path) as db:
        db.execute(
            "INSERT INTO kern_db VALUES (1, CAST(x'ff2e6f' AS TEXT), CAST(x'20fe' AS TEXT), x'', '', 0)"
        )
    with open_kdb(path) as reader:
        assert [(r.name, r.args) for r in reader] == [(b"\xff.o", b" \xfe")] == list(reader.keys())


@pytest.mark.parametrize("index", [True, False])
def test_more_rows_than_a_batch(tmp_path: Path, index: bool) -> None:
    count = 2 * BATCH + 1
    rows = [row(b"k%d.cl.o" % n, blob=b"", digest="", size=0) for n in range(count)]
    path = make(tmp_path / "gfx1030.kdb", rows, **({} if index else {"index": None}))
    with open_kdb(path) as reader:
        assert [r.rowid for r in reader] == list(range(1, count + 1))
        assert len(set(reader.keys())) == count


def test_objects_raw_and_compressed(tmp_path: Path) -> None:
    data = code_object()
    rows = [row(b"a.cl.o", data=data), row(b"b.cl.o", data=data, blob=data, size=0)]
    with open_kdb(make(tmp_path / "gfx1030.kdb", rows)) as reader:
        assert [r.object() for r in reader] == [data, data]


def test_a_damaged_row_names_itself(tmp_path: Path) -> None:
    path = make(tmp_path / "gfx1030.kdb", [row(digest="0" * 32)])
    with (
        open_kdb(path) as reader,
        pytest.raises(KdbtoolError, match=r"row 1 MIOpenSoftmax.cl.o: damaged row"),
    ):
        next(iter(reader)).object()


@pytest.mark.parametrize("value", [None, 5, 1.5, b"blob"])
def test_values_of_a_wrong_type(tmp_path: Path, value: object) -> None:
    loose = f"CREATE TABLE kern_db (id INTEGER PRIMARY KEY, {COLUMN_LIST})"
    path = make(tmp_path / "gfx1030.kdb", [(value,) * 5], table=loose)
    with open_kdb(path) as reader:
        assert not next(iter(reader)).key_is_text
        assert len(list(reader.keys())) == 1
        assert check(reader).problems


def test_a_missing_key_column_is_one_line(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "a.kdb") as db:
        db.execute("CREATE TABLE kern_db (kernel_name)")
    with open_kdb(tmp_path / "a.kdb") as reader, pytest.raises(KdbtoolError, match="no column kernel_args"):
        list(reader)


def test_a_table_without_rowid_is_one_line(tmp_path: Path) -> None:
    table = f"CREATE TABLE kern_db ({COLUMN_LIST}, PRIMARY KEY (kernel_name)) WITHOUT ROWID"
    with open_kdb(make(tmp_path / "a.kdb", table=table)) as reader, pytest.raises(KdbtoolError):
        list(reader)


def test_a_generated_column_is_none_and_never_computed(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "a.kdb") as db:
        db.execute("CREATE TABLE kern_db (kernel_args, kernel_blob, kernel_hash, uncompressed_size)")
        db.execute("INSERT INTO kern_db VALUES ('', x'', '', 0)")
        db.execute("ALTER TABLE kern_db ADD COLUMN kernel_name TEXT AS (hex(zeroblob(900000000)))")
    with open_kdb(tmp_path / "a.kdb") as reader, pytest.raises(KdbtoolError, match="no column kernel_name"):
        list(reader)


def test_a_writer_is_never_kept_waiting(tmp_path: Path) -> None:
    rows = [row(b"k%d.cl.o" % n) for n in range(BATCH + 10)]
    path = make(tmp_path / "gfx1030_36.ukdb", rows)
    with open_kdb(path) as reader:
        seen = 0
        for _ in reader:
            seen += 1
            if seen in (1, BATCH + 1):  # in the middle of reading, journal mode delete
                with sqlite3.connect(path, timeout=0) as db:
                    db.execute(
                        "INSERT OR REPLACE INTO kern_db VALUES (NULL, ?, 'x', x'', '', 0)", (f"new{seen}",)
                    )
                db.close()
    assert seen == BATCH + 11  # the second one came after the last batch was read


def test_a_row_replaced_meanwhile_is_no_duplicate(tmp_path: Path) -> None:
    path = make(tmp_path / "gfx1030_36.ukdb", [row(), row(b"b.cl.o")])
    with open_kdb(path) as reader:

        def replace() -> None:
            with sqlite3.connect(path) as db:
                db.execute(
                    f"INSERT OR REPLACE INTO kern_db SELECT NULL, {COLUMN_LIST} FROM kern_db"
                    " WHERE kernel_name = 'b.cl.o'"
                )
            db.close()

        assert [f for f in check(reader, tick=replace).findings if f.is_problem] == []


def test_live_wal_rows_are_seen(tmp_path: Path) -> None:
    path = make(tmp_path / "gfx1030_36.ukdb", [], before=["PRAGMA journal_mode=wal"])
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA wal_autocheckpoint=0")
    writer.execute("INSERT INTO kern_db VALUES (1, ?, ?, x'', '', 0)", (NAME.decode(), ARGS.decode()))
    writer.commit()
    with open_kdb(path) as reader:
        assert [r.name for r in reader] == [NAME]
    writer.close()


def test_the_file_is_not_changed_by_reading(tmp_path: Path) -> None:
    path = make(tmp_path / "gfx1030.kdb")
    before = path.read_bytes()
    with open_kdb(path) as reader:
        check(reader)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["gfx1030.kdb"]


def test_every_row_of_amds_kdb_decodes(shared: Path) -> None:
    with open_kdb(shared / "data" / "gfx942.kdb") as reader:
        objects = [r.object() for r in reader]
        assert len(objects) == 321 == len(set(reader.keys()))
        assert all(o.startswith((b"\x7fELF", b"__CLANG_OFFLOAD_BUNDLE__")) for o in objects)


@pytest.mark.parametrize("number", [-(1 << 63), -1, 0, (1 << 63) - 1])
def test_row_numbers_at_the_ends_were_passed_over(tmp_path: Path, number: int) -> None:
    path = make(tmp_path / "gfx1030.kdb", [row(b"a.cl.o"), row(b"b.cl.o")])
    with sqlite3.connect(path) as db:
        db.execute("UPDATE kern_db SET id = ? WHERE kernel_name = 'b.cl.o'", (number,))
    db.close()
    with open_kdb(path) as reader:
        assert {r.rowid for r in reader} == {1, number} == {r.rowid for r in reader.rows(batch=1)}
        assert check(reader).stats.rows == 2


def test_memory_stays_flat(tmp_path: Path) -> None:
    """160 MB of blobs are read with far less than that: the rows' keys and one blob."""
    blob = os.urandom(4 << 20)
    path = make(tmp_path / "gfx1030.kdb", [row(b"k%d.cl.o" % n, blob=blob, size=0) for n in range(40)])
    program = (
        "import sys\nfrom kdbtool.kdb.checks import check\nfrom kdbtool.kdb.reader import open_kdb\n"
        "if len(sys.argv) > 1:\n    with open_kdb(sys.argv[1]) as reader:\n        check(reader)\n"
    )
    assert peak_of(program, path)[0] - peak_of(program)[0] < 60_000  # KiB


def test_mutated_databases_are_findings_or_one_line(tmp_path: Path) -> None:
    whole = make(tmp_path / "good.kdb", [row(b"k%d.cl.o" % n) for n in range(60)]).read_bytes()
    path = tmp_path / "gfx1030.kdb"
    chance = random.Random(1)
    for _ in range(400):
        raw = bytearray(whole)
        for _ in range(chance.randrange(1, 6)):
            at = min(len(raw) - 1, chance.choice([chance.randrange(len(raw)), chance.randrange(100)]))
            kind = chance.randrange(4)
            if kind == 0:
                raw[at] ^= 1 << chance.randrange(8)
            elif kind == 1:
                raw[at : at + 4] = chance.choice([b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff"])[
                    : len(raw) - at
                ]
            elif kind == 2:
                page = chance.randrange(max(1, len(raw) // 4096)) * 4096
                raw[page : page + 4096] = bytes(4096)
            elif chance.random() < 0.3:
                del raw[max(at, 1) :]
        path.write_bytes(bytes(raw))
        kind_of = identify(path)
        assert "\n" not in kind_of.error().line()
        if not kind_of.is_kdb:
            continue
        try:
            with KdbReader(kind_of) as reader:
                for finding in check(reader).findings:
                    assert finding.json(path)["reason"]
        except KdbtoolError as error:
            assert "\n" not in error.line()
    assert parse_name(path) is not None


@pytest.mark.parametrize(
    ("names", "nullable"),
    [
        (lambda n: sqlite3.Binary(b"k%d.cl.o" % n), False),
        (lambda n: None if n < BATCH + 9 else f"k{n}.cl.o", True),
        (lambda n: n if n < BATCH + 9 else f"k{n}.cl.o", False),
    ],
    ids=["blob", "null", "number"],
)
def test_keys_that_are_no_text_are_read_once_and_to_the_end(
    tmp_path: Path, names: Callable[[int], object], nullable: bool
) -> None:
    """A page of BLOB names was given again for ever; one that ended in NULL ended the reading."""
    table = TABLE_SQL.replace(" NOT NULL", "") if nullable else TABLE_SQL
    count = 2 * BATCH + 50
    path = make(tmp_path / "gfx1030.kdb", [row(names(n), f" -DN={n}") for n in range(count)], table=table)
    with open_kdb(path) as reader:
        assert len({args for _, args in itertools.islice(reader.keys(), 2 * count)}) == count
        assert len(list(itertools.islice(reader.keys(), 2 * count))) == count


def test_keys_that_only_their_case_tells_apart_at_the_end_of_a_page(tmp_path: Path) -> None:
    """A column that ignores case lost the second one."""
    table = TABLE_SQL.replace("TEXT NOT NULL", "TEXT COLLATE NOCASE NOT NULL")
    index = "CREATE UNIQUE INDEX i ON kern_db (kernel_name COLLATE BINARY, kernel_args COLLATE BINARY)"
    rows = [row(b"a%03d.cl.o" % n) for n in range(BATCH - 1)] + [row(b"b.cl.o"), row(b"B.cl.o")]
    path = make(tmp_path / "gfx1030.kdb", rows, table=table, index=index)
    with open_kdb(path) as reader:
        assert len(list(reader.keys())) == BATCH + 1


def test_keys_of_an_utf16_database(tmp_path: Path) -> None:
    rows = [row(b"k%d.cl.o" % n) for n in range(2 * BATCH)]
    path = make(tmp_path / "gfx1030.kdb", rows, before=["PRAGMA encoding = 'UTF-16le'"])
    with open_kdb(path) as reader:
        assert len(set(reader.keys())) == 2 * BATCH


def test_a_column_named_rowid_hides_no_row(tmp_path: Path) -> None:
    table = TABLE_SQL.replace("INT NOT NULL)", "INT NOT NULL, rowid TEXT DEFAULT 'zz')")
    count = 2 * BATCH
    path = make(tmp_path / "gfx1030.kdb", [row(b"k%d.cl.o" % n) for n in range(count)], table=table)
    with open_kdb(path) as reader:
        assert [r.rowid for r in reader] == list(range(1, count + 1))


def test_a_table_without_row_numbers_is_said_to_be_that(tmp_path: Path) -> None:
    table = f"{TABLE_SQL} WITHOUT ROWID"
    path = tmp_path / "gfx1030.kdb"
    with sqlite3.connect(path) as db:
        db.execute(table)
        db.execute("INSERT INTO kern_db VALUES (1, 'a.cl.o', '', x'', '', 0)")
    with open_kdb(path) as reader, pytest.raises(KdbtoolError, match="has no row numbers"):
        next(iter(reader))


def test_a_computed_key_is_not_computed(tmp_path: Path) -> None:
    """Each row could cost 256 MB; MIOpen makes no such column."""
    path = tmp_path / "gfx1030.kdb"
    computed = "`kernel_args` TEXT GENERATED ALWAYS AS (hex(zeroblob(1000)))"
    with sqlite3.connect(path) as db:
        db.execute(TABLE_SQL.replace("`kernel_args` TEXT NOT NULL", computed))
        db.execute("CREATE UNIQUE INDEX i ON kern_db (kernel_name, kernel_args)")
    with open_kdb(path) as reader, pytest.raises(KdbtoolError, match="has no column kernel_args"):
        list(reader.keys())


def _schema(path: Path, *statements: str) -> Path:
    make(path)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA writable_schema = ON")
    for statement in statements:
        db.execute(statement)
    db.close()
    return path


def test_a_schema_whose_damage_is_not_utf8_is_one_line(tmp_path: Path) -> None:
    bad = b"CREATE TABLE \xff\xff(".hex()
    path = _schema(
        tmp_path / "gfx1030.kdb",
        f"INSERT INTO sqlite_schema VALUES ('table', CAST(x'ff41' AS TEXT), 'a', 2, CAST(x'{bad}' AS TEXT))",
    )
    with pytest.raises(KdbtoolError, match="damaged database"):
        open_kdb(path)


def test_an_index_whose_name_is_not_utf8_is_an_index(tmp_path: Path) -> None:
    sql = b"CREATE UNIQUE INDEX \xff ON kern_db(kernel_name, kernel_args)".hex()
    path = _schema(
        tmp_path / "gfx1030.kdb",
        f"UPDATE sqlite_schema SET name = CAST(x'ff' AS TEXT), sql = CAST(x'{sql}' AS TEXT) "
        "WHERE type = 'index'",
    )
    with open_kdb(path) as reader:
        assert reader.has_index


def test_a_virtual_table_in_disguise_is_no_kernel_database(tmp_path: Path) -> None:
    path = tmp_path / "gfx1030.kdb"
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute("CREATE VIRTUAL TABLE kern_db USING fts5(kernel_name, kernel_args, kernel_blob)")
    except sqlite3.OperationalError:
        pytest.skip("this SQLite has no fts5")
    db.execute("PRAGMA writable_schema = ON")
    db.execute("UPDATE sqlite_schema SET sql = replace(sql, 'CREATE VIRTUAL', 'CREATE/**/VIRTUAL')")
    db.close()
    assert not identify(path).is_kdb


def test_a_provenance_table_of_other_columns_is_no_damage(tmp_path: Path) -> None:
    path = make(tmp_path / "gfx1030.kdb", after=["CREATE TABLE kdbtool_provenance (a)"])
    with open_kdb(path) as reader:
        assert reader.provenance() == {}


def test_a_path_that_begins_with_two_slashes(tmp_path: Path) -> None:
    path = make(tmp_path / "gfx1030.kdb")
    with open_kdb(f"/{path}") as reader:
        assert len(reader) == 1


def test_a_change_that_was_cut_off_is_not_called_wal_mode(tmp_path: Path) -> None:
    path = make(tmp_path / "gfx1030.kdb", [row(b"k%d.cl.o" % n) for n in range(50)])
    script = (
        "import os, sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "db.execute('PRAGMA cache_size = 1')\n"
        "db.execute('BEGIN')\n"
        "db.execute('UPDATE kern_db SET kernel_blob = zeroblob(9000)')\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)
    kind = identify(path)
    assert not kind.is_kdb
    assert "cut off" in kind.error().line()
    assert "WAL" not in kind.error().line()
