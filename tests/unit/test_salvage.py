"""kdbtool salvage: every row whose pages are whole is recovered, and never a wrong one."""

from __future__ import annotations

import bz2
import json
import random
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.amdgpu_elf import code_object
from support.kdb_files import Columns, make, row
from support.mutate import mutations, survives

from kdbtool.kdb.blob import md5
from kdbtool.kdb.checks import check
from kdbtool.kdb.leafrows import columns as columns_of
from kdbtool.kdb.reader import open_kdb
from kdbtool.kdb.salvage import salvage
from kdbtool.kdb.writer import write_kdb

Cli = Callable[..., Any]
Rows = dict[tuple[bytes, bytes], bytes]


def an_object(number: int, size: int = 40) -> bytes:
    """A code object of its own; its text does not compress."""
    return code_object(text=random.Random(number).randbytes(size))


def some_rows(count: int, *, seed: int = 0) -> Rows:
    """Small ones, some over many pages, one with a key over several pages."""
    chance = random.Random(seed)
    found = {}
    for n in range(count):
        args = b" -DN=%d" % n + b" -DLONG=1" * (900 if n == 7 else chance.randrange(3)) + b" -mcpu=gfx1030"
        found[b"k%d.cl.o" % (n % 9), args] = an_object(n, chance.choice((40, 40, 40, 40, 1500, 6000)))
    return found


def columns(rows: Rows) -> list[Columns]:
    return [row(*key, data) for key, data in rows.items()]


def recovered(path: Path) -> tuple[Rows, Any]:
    """What is salvaged, through a new file that has to pass verify."""
    new = path.with_name("new.kdb")
    with salvage(path) as found:
        write_kdb(new, found.items(), found.written(), force=True)
        facts = (found.whole, found.known, found.reasons(), found.unlinked, found.unconfirmed)
    with open_kdb(new) as reader:
        rows = {(r.name, r.args): r.object() for r in reader}
        assert not [f for f in check(reader, {"gfx1030"}).findings if f.is_problem]
    return rows, facts


def quick(path: Path) -> tuple[Rows, Any]:
    """The same without the new file; the objects are those of the blobs."""
    with salvage(path) as found:
        rows = {
            (n, a): bz2.decompress(p.blob) if p.uncompressed_size else p.blob for n, a, p in found.items()
        }
        return rows, (found.whole, found.known, found.reasons(), found.unlinked, found.unconfirmed)


def pages_of(path: Path) -> tuple[dict[tuple[bytes, bytes], set[int]], int]:
    """The pages of each row, and how many the file has."""
    found: dict[tuple[bytes, bytes], set[int]] = {}
    with salvage(path) as whole:
        for one in whole.rows:
            used, next_ = {one.cell.page}, one.cell.overflow
            while next_:
                used.add(next_)
                next_ = int.from_bytes(whole.pages.page(next_)[:4], "big")
            found[columns_of(whole.pages, whole.pages.again(one.cell), whole.layout)[:2]] = used
        return found, whole.pages.count


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Rows]:
    """A database of 25 rows, its table and index with inner pages."""
    rows = some_rows(25)
    path = make(
        tmp_path_factory.mktemp("salvage") / "gfx1030.kdb", columns(rows), before=["PRAGMA page_size=1024"]
    )
    return path, rows


def test_an_undamaged_file_gives_all_rows(database: tuple[Path, Rows]) -> None:
    path, rows = database
    found, facts = recovered(path)
    assert found == rows and facts == (True, 25, {}, 0, 0)


FILLS: dict[str, Callable[[int], bytes]] = {
    "zeros": lambda size: bytes(size),
    "ones": lambda size: b"\xff" * size,
    "noise": lambda size: random.Random(5).randbytes(size),
    "text": lambda size: (b"Lorem ipsum " * size)[:size],
}


@pytest.mark.parametrize("fill", FILLS)
def test_each_page_in_turn_destroyed(fill: str, database: tuple[Path, Rows], tmp_path: Path) -> None:
    path, rows = database
    where, count = pages_of(path)
    assert set(where) == set(rows)
    whole = path.read_bytes()
    size = len(whole) // count
    bad = tmp_path / "gfx1030.kdb"
    losses = 0
    for number in range(1, count + 1):
        at = (number - 1) * size
        bad.write_bytes(whole[:at] + FILLS[fill](size) + whole[at + size :])
        found, facts = quick(bad)
        # Exactly those that stand on other pages: none is lost, none is wrong.
        assert found == {k: v for k, v in rows.items() if number not in where[k]}, number
        lost = len(rows) - len(found)
        losses += bool(lost)
        if number > 1 and lost:
            assert not facts[0] and sum(facts[2].values()) >= lost, number
    assert losses > 10


def test_two_and_more_pages_destroyed(database: tuple[Path, Rows], tmp_path: Path) -> None:
    path, rows = database
    where, count = pages_of(path)
    whole = path.read_bytes()
    size = len(whole) // count
    bad = tmp_path / "gfx1030.kdb"
    chance = random.Random(8)
    for _ in range(40):
        gone = set(chance.sample(range(1, count + 1), chance.choice((2, 3, 10))))
        raw = bytearray(whole)
        for number in gone:
            raw[(number - 1) * size : number * size] = chance.randbytes(size)
        bad.write_bytes(raw)
        found, _ = quick(bad)
        assert found == {k: v for k, v in rows.items() if not gone & where[k]}


def test_cut_off_anywhere(database: tuple[Path, Rows], tmp_path: Path) -> None:
    path, rows = database
    where, count = pages_of(path)
    whole = path.read_bytes()
    size = len(whole) // count
    bad = tmp_path / "gfx1030.kdb"
    for end in range(size, len(whole), size * 7 + 100):
        bad.write_bytes(whole[:end])
        found, facts = quick(bad)
        assert found == {k: v for k, v in rows.items() if max(where[k]) * size <= end}
        assert not facts[0]


def test_only_the_header_destroyed(database: tuple[Path, Rows], tmp_path: Path) -> None:
    path, rows = database
    bad = tmp_path / "gfx1030.kdb"
    for fill in (bytes(100), b"\xff" * 100, b"SQLite format 3\0" + b"\x10\0" + b"\xee" * 82):
        bad.write_bytes(fill + path.read_bytes()[100:])
        assert recovered(bad)[0] == rows


@pytest.mark.parametrize("size", [512, 4096, 8192, 65536])
def test_the_page_size_is_found_without_a_header(size: int, tmp_path: Path) -> None:
    rows = some_rows(80)
    path = make(tmp_path / "gfx1030.kdb", columns(rows), before=[f"PRAGMA page_size={size}"])
    path.write_bytes(bytes(size) + path.read_bytes()[size:])
    assert recovered(path)[0] == rows


def damage(path: Path, statements: Iterable[str]) -> Path:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA writable_schema = ON")
    for statement in statements:
        db.execute(statement)
    db.close()
    return path


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM sqlite_schema",
        "DELETE FROM sqlite_schema WHERE type = 'index'",
        "UPDATE sqlite_schema SET rootpage = 1",
        "UPDATE sqlite_schema SET rootpage = 999999",
        "UPDATE sqlite_schema SET rootpage = rootpage + 1",
        "UPDATE sqlite_schema SET sql = 'CREATE TABLE kern_db AS SELECT zeroblob(1000000000)'",
        "UPDATE sqlite_schema SET sql = CAST(x'ff' AS TEXT)",
    ],
)
def test_a_broken_schema(statement: str, database: tuple[Path, Rows], tmp_path: Path) -> None:
    path, rows = database
    bad = tmp_path / "gfx1030.kdb"
    bad.write_bytes(path.read_bytes())
    assert recovered(damage(bad, [statement]))[0] == rows


def test_a_deleted_row_does_not_come_back(tmp_path: Path) -> None:
    rows = some_rows(60)
    path = make(
        tmp_path / "gfx1030.kdb", columns(rows), after=["DELETE FROM kern_db WHERE id BETWEEN 11 AND 50"]
    )
    left = dict([*rows.items()][:10] + [*rows.items()][50:])
    assert recovered(path)[0] == left
    raw = path.read_bytes()
    path.write_bytes(raw[:4096][:32] + bytes(8) + raw[40:])  # the free list is forgotten
    assert recovered(path)[0] == left


def test_a_replaced_object_does_not_come_back(tmp_path: Path) -> None:
    """INSERT OR REPLACE, as MIOpen writes, leaves old rows in free pages: the index speaks."""
    rows = some_rows(60)
    path = make(tmp_path / "gfx1030.kdb", columns(rows))
    new = {key: an_object(n + 1000, 500) for n, key in enumerate(rows)}
    with sqlite3.connect(path) as db:
        db.executemany(
            "INSERT OR REPLACE INTO kern_db"
            " (kernel_name, kernel_args, kernel_blob, kernel_hash, uncompressed_size) VALUES (?, ?, ?, ?, ?)",
            columns(new),
        )
    db.close()
    raw = path.read_bytes()
    path.write_bytes(bytes(100) + raw[100:])
    found, _ = recovered(path)
    assert found == new


def test_a_key_that_the_index_contradicts_is_not_carried(tmp_path: Path) -> None:
    rows = some_rows(20)
    path = make(tmp_path / "gfx1030.kdb", columns(rows))
    raw = path.read_bytes()
    at = raw.index(b"k3.cl.o -DN=3") if b"k3.cl.o -DN=3" in raw else raw.index(b" -DN=3 ")
    changed = bytearray(raw)
    changed[raw.index(b"-DN=3", at)] ^= 2
    path.write_bytes(changed)
    found, facts = recovered(path)
    assert facts[2] == {"key-damaged": 1} and len(found) == 19 and found.items() <= rows.items()
    assert not facts[0]


def test_a_damaged_blob_is_not_carried(tmp_path: Path) -> None:
    rows = columns(some_rows(5))
    rows[2] = row(b"bad.cl.o", digest="0" * 32)
    _, facts = recovered(make(tmp_path / "gfx1030.kdb", rows))
    assert facts[:3] == (False, 5, {"hash-wrong": 1})


def test_without_an_index_and_with_other_columns(tmp_path: Path) -> None:
    rows = some_rows(20)
    table = (
        "CREATE TABLE kern_db (uncompressed_size INT, extra, kernel_hash TEXT, kernel_args TEXT,"
        " kernel_blob BLOB, kernel_name TEXT, id INTEGER PRIMARY KEY)"
    )
    path = make(tmp_path / "gfx1030.kdb", columns(rows), table=table, index=None)
    found, facts = recovered(path)
    assert found == rows and facts == (False, None, {}, 0, 20)  # nothing confirms a key


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
def test_other_encodings(encoding: str, tmp_path: Path) -> None:
    rows = some_rows(20)
    path = make(tmp_path / "gfx1030.kdb", columns(rows), before=[f"PRAGMA encoding = '{encoding}'"])
    assert recovered(path)[0] == rows


def test_rows_of_the_wal_are_read(tmp_path: Path) -> None:
    rows = some_rows(20)
    path = make(tmp_path / "gfx1030_36.ukdb", [], before=["PRAGMA journal_mode=wal"])
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA wal_autocheckpoint=0")
    writer.executemany("INSERT INTO kern_db VALUES (NULL, ?, ?, ?, ?, ?)", columns(rows))
    copy = tmp_path / "c" / "gfx1030_36.ukdb"
    copy.parent.mkdir()
    for suffix in ("", "-wal"):
        (copy.parent / f"{copy.name}{suffix}").write_bytes((tmp_path / f"{path.name}{suffix}").read_bytes())
    writer.close()
    assert recovered(copy)[0] == rows
    copy.write_bytes(b"x" * copy.stat().st_size)
    assert recovered(copy)[0] == rows  # every page stands in the -wal
    copy.with_name(f"{copy.name}-wal").write_bytes(b"x" * 9000)
    copy.write_bytes(b"x" * copy.stat().st_size)
    with salvage(copy) as found:
        assert found.rows == [] and "could not be applied" in found.notes[0]


def test_provenance_comes_along_only_with_all_its_rows(tmp_path: Path) -> None:
    path, new = tmp_path / "gfx1030.kdb", tmp_path / "new.kdb"
    rows = some_rows(30)
    write_kdb(path, [(*k, v) for k, v in rows.items()], {"miopen": "6.4.3"})
    assert recovered(path)[0] == rows
    assert new.read_bytes() == path.read_bytes()
    raw = bytearray(path.read_bytes())
    raw[-3 * 4096 : -2 * 4096] = bytes(4096)
    path.write_bytes(raw)
    found, _ = recovered(path)
    with open_kdb(new) as reader:
        said = reader.provenance()
    assert said is not None and ("miopen" in said) == (len(found) == 30)


def test_the_command(database: tuple[Path, Rows], tmp_path: Path, run_cli: Cli) -> None:
    path, _ = database
    new = tmp_path / "new.kdb"
    done = run_cli("salvage", path, "-o", new)
    assert done.code == 0 and "25 of 25 rows recovered" in done.out
    assert run_cli("salvage", path, "-o", new).code == 2
    assert run_cli("salvage", path, "-o", path, "--force").code == 2
    bad = tmp_path / "gfx1030.kdb"
    bad.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    done = run_cli("salvage", bad, "-o", new, "--force", "--json")
    found = json.loads(done.out)
    assert done.code == 1 and 0 < found["rows_recovered"] < 25
    assert found["rows_known"] is None and "cut off" in found["text"]  # the index stood behind the cut
    assert "nothing tells how many there were" in run_cli("salvage", bad, "-o", new, "--force").out
    raw = bytearray(path.read_bytes())
    where, _ = pages_of(path)
    gone = sorted(set().union(*where.values()))[:12]
    for number in gone:
        raw[(number - 1) * 1024 : number * 1024] = bytes(1024)
    bad.write_bytes(raw)
    done = run_cli("salvage", bad, "-o", new, "--force", "--json")
    found = json.loads(done.out)
    assert done.code == 1 and 0 < found["rows_recovered"] < found["rows_known"] == 25
    assert found["rows_recovered"] + sum(found["not_carried"].values()) == 25
    shown = run_cli("salvage", bad, "-o", new, "--force", "-v").out
    assert shown.count("    row ") == 25 - found["rows_recovered"]


@pytest.mark.parametrize(
    ("data", "code", "text"),
    [
        (b"version https://git-lfs.github.com/spec/v1\nsize 5\n", 2, "Git LFS pointer"),
        (b"", 2, "empty"),
        (b"no database at all\n" * 100, 2, "not an SQLite file"),
        (b"SQLite format 3\0" + b"\x10\0\1\1" + b"\0" * 5000, 1, "no row of it is whole"),
    ],
)
def test_nothing_to_recover(data: bytes, code: int, text: str, tmp_path: Path, run_cli: Cli) -> None:
    path = tmp_path / "gfx1030.kdb"
    path.write_bytes(data)
    done = run_cli("salvage", path, "-o", tmp_path / "new.kdb")
    assert done.code == code and text in done.err and done.err.count("\n") == 1
    assert not (tmp_path / "new.kdb").exists()


def test_no_rows_at_all_is_no_loss(tmp_path: Path, run_cli: Cli) -> None:
    path = make(tmp_path / "gfx1030.kdb", [])
    assert run_cli("salvage", path, "-o", tmp_path / "new.kdb").code == 0


keys = st.tuples(
    st.from_regex(r"[A-Za-z0-9_]{1,20}\.(cl|cpp|s)\.o", fullmatch=True).map(str.encode),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3000).map(str.encode),
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(keys, st.integers(0, 5), max_size=30), st.sampled_from([512, 1024, 4096]))
def test_what_was_written_is_read_and_salvaged(tmp_path: Path, made: dict[Any, int], size: int) -> None:
    rows = {key: an_object(n, 10 ** (n % 5)) for key, n in made.items()}
    first, second = tmp_path / "gfx1030.kdb", tmp_path / "second.kdb"
    write_kdb(first, [(*k, v) for k, v in rows.items()], {}, force=True)
    with open_kdb(first) as reader:
        assert {(r.name, r.args): r.object() for r in reader} == rows
        assert sorted(reader.keys()) == sorted(rows)
    second.unlink(missing_ok=True)
    make(second, columns(rows), before=[f"PRAGMA page_size={size}"])
    for path in (first, second):
        with salvage(path) as found:
            assert found.whole
            assert {(n, a): p.md5 for n, a, p in found.items()} == {k: md5(v) for k, v in rows.items()}


def test_five_thousand_corrupted_databases(tmp_path: Path) -> None:
    """Beside surviving: a row that the index confirms is a row of the good file, whatever was damaged."""
    rows = some_rows(3)
    good = make(tmp_path / "good.kdb", columns(rows), before=["PRAGMA page_size=512"])
    right = {(*key, md5(data)) for key, data in rows.items()}

    def one(path: Path) -> None:
        with salvage(path) as found:
            for item, (name, args, packed) in zip(found.rows, found.items(), strict=True):
                assert not item.confirmed or (name, args, packed.md5) in right

    survives(one, mutations(good.read_bytes(), 5000, seed=4), tmp_path / "m", ".kdb")


NEW_ROW = "INSERT INTO kern_db VALUES (NULL, ?, ?, ?, ?, ?)"


def refilled(path: Path, old: Rows, new: Rows) -> bytes:
    """A database whose rows were all deleted and others written; the old ones' pages are free, and whole."""
    make(path, columns(old))
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA secure_delete = OFF")  # distributions build SQLite with ON, others do not
    db.execute("DELETE FROM kern_db")
    db.executemany(NEW_ROW, columns(new))
    db.close()
    return path.read_bytes()


@pytest.mark.parametrize("same_keys", [True, False])
def test_rows_of_free_pages_stay_away_without_the_first_page(same_keys: bool, tmp_path: Path) -> None:
    """The freelist's head is lost with page 1; its trunk pages still name the free ones."""
    old = some_rows(120)
    keys = [*old][:10] if same_keys else [*some_rows(140)][130:]
    new = {key: an_object(n + 5000, 100) for n, key in enumerate(keys)}
    path = tmp_path / "gfx1030.kdb"
    raw = refilled(path, old, new)
    path.write_bytes(bytes(4096) + raw[4096:])
    found, facts = recovered(path)
    assert found == new and not facts[0]


def test_two_keys_of_one_row_number_are_of_two_times(tmp_path: Path) -> None:
    """Nothing leads to either, nothing tells which was there last: a number has one row."""
    path = tmp_path / "gfx1030.kdb"
    old, new = some_rows(120), dict([*some_rows(140).items()][120:])
    raw = bytearray(refilled(path, old, new))
    trunk = (int.from_bytes(raw[32:36], "big") - 1) * 4096
    raw[:4096] = raw[trunk : trunk + 4096] = bytes(4096)
    path.write_bytes(raw)
    with salvage(path) as found:
        numbers = [r.cell.rowid for r in found.rows]
    assert len(set(numbers)) == len(numbers)


def test_an_emptied_table_gives_no_rows_back(tmp_path: Path) -> None:
    """The tree is whole: what no page leads to was deleted, with or without an index."""
    path = tmp_path / "gfx1030.kdb"
    raw = bytearray(refilled(path, some_rows(60), {}))
    raw[32:40] = bytes(8)  # the free list is forgotten
    path.write_bytes(raw)
    assert recovered(damage(path, ["DELETE FROM sqlite_schema WHERE type = 'index'"]))[0] == {}


def test_a_leaf_in_the_place_of_another_is_a_loss(tmp_path: Path) -> None:
    """A misdirected write: the tree leads twice to the same rows."""
    rows = some_rows(60)
    path = make(tmp_path / "gfx1030.kdb", columns(rows), index=None)
    assert recovered(path)[0] == rows
    with salvage(path) as found:
        one, other = found.pages.tree(2).leaves[3:5]
    raw = bytearray(path.read_bytes())
    raw[(one - 1) * 4096 : one * 4096] = raw[(other - 1) * 4096 : other * 4096]
    path.write_bytes(raw)
    with salvage(path) as found:
        assert not found.tree_complete and not found.whole


def test_an_index_entry_that_is_cut_off_still_counts(tmp_path: Path) -> None:
    """Row and index entry of a long key are lost together, and the tree: exit code 0 would be a lie."""
    long = {(b"long.cl.o", b" -DLONG=1" * 2000 + b" -mcpu=gfx1030"): an_object(99)}
    path = make(tmp_path / "gfx1030.kdb", columns({**some_rows(6), **long}))
    assert recovered(path)[1][:2] == (True, 7)
    raw = bytearray(path.read_bytes())
    for number in range(2, len(raw) // 4096):  # the pages where the key goes on
        if raw[number * 4096 + 100 : number * 4096 + 1000].count(b" -DLONG=1") > 50:
            raw[number * 4096 : (number + 1) * 4096] = bytes(4096)
    raw[:100] = bytes(100)
    path.write_bytes(raw)
    found, facts = recovered(path)
    assert len(found) == 6 and not facts[0] and facts[1] is None


def test_a_damaged_key_without_an_index_is_not_called_whole(tmp_path: Path, run_cli: Cli) -> None:
    """No index, no provenance: one flipped bit in a key cannot be told from a right key."""
    path = make(tmp_path / "gfx1030.kdb", columns(some_rows(6)), index=None)
    path.write_bytes(path.read_bytes().replace(b"-DN=3", b"-DN=7"))
    done = run_cli("salvage", path, "-o", tmp_path / "new.kdb")
    assert done.code == 1 and "6 whose key no index entry confirms" in done.out
    with open_kdb(tmp_path / "new.kdb") as reader:
        assert (reader.provenance() or {})["salvage"] == "6 rows, 6 keys unconfirmed"


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE kern_db ADD COLUMN other TEXT",
        "ALTER TABLE kern_db ADD COLUMN made TEXT AS (kernel_name || 'x')",
    ],
)
def test_rows_from_before_and_after_a_new_column(statement: str, tmp_path: Path) -> None:
    rows = some_rows(20)
    path = make(tmp_path / "gfx1030.kdb", columns(rows)[:10], after=[statement])
    names = "kernel_name, kernel_args, kernel_blob, kernel_hash, uncompressed_size"
    with sqlite3.connect(path) as db:
        db.executemany(f"INSERT INTO kern_db ({names}) VALUES (?, ?, ?, ?, ?)", columns(rows)[10:])
    db.close()
    assert recovered(path) == (rows, (True, 20, {}, 0, 0))


@pytest.mark.parametrize("kind", ["VIRTUAL", "STORED"])
def test_computed_columns_before_the_others(kind: str, tmp_path: Path) -> None:
    rows = some_rows(20)
    table = (
        f"CREATE TABLE kern_db (id INTEGER PRIMARY KEY, made TEXT AS (kernel_name) {kind}, kernel_hash TEXT,"
        " kernel_args TEXT, kernel_name TEXT, kernel_blob BLOB, uncompressed_size INT)"
    )
    path = make(tmp_path / "gfx1030.kdb", columns(rows), table=table)
    assert recovered(path) == (rows, (True, 20, {}, 0, 0))


@pytest.mark.parametrize("size", [512, 4096])
def test_pages_with_reserved_bytes(size: int, tmp_path: Path) -> None:
    """As Apple's SQLite and checksums in pages have them."""
    rows = some_rows(20)
    path = tmp_path / "gfx1030.kdb"
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA page_size = {size}")
    db.execute("CREATE TABLE x (x)")
    db.close()
    raw = bytearray(path.read_bytes())
    raw[20] = 12
    for at in range(0, len(raw), size):  # its two pages hold one cell, which moves up
        first = at or 100
        content = int.from_bytes(raw[first + 5 : first + 7], "big")
        if content < size:
            raw[at + content - 12 : at + size - 12] = raw[at + content : at + size]
            raw[at + size - 12 : at + size] = bytes(12)
            raw[first + 5 : first + 7] = (content - 12).to_bytes(2, "big")
            raw[first + 8 : first + 10] = (content - 12).to_bytes(2, "big")
        else:
            raw[first + 5 : first + 7] = (size - 12).to_bytes(2, "big")
    path.write_bytes(raw)
    make(path, columns(rows), before=["DROP TABLE x", "VACUUM"])
    assert path.read_bytes()[20] == 12
    assert recovered(path) == (rows, (True, 20, {}, 0, 0))


def test_an_mlir_row_with_an_object_for_another_architecture_is_not_carried(tmp_path: Path) -> None:
    rows = [
        row(b"conv_a.mlir.o", b" --operation conv2d"),
        row(b"conv_b.mlir.o", b" --operation conv2d", code_object("gfx906")),
    ]
    found, facts = recovered(make(tmp_path / "gfx1030.kdb", rows))
    assert [*found] == [(b"conv_a.mlir.o", b" --operation conv2d")] and facts[2] == {"elf-arch": 1}
