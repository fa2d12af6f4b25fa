"""5,000 corrupted find-dbs and perf-dbs of each form: read, refused in one line, never more.

What a reader accepts it must also print back; what prune and convert write is good for the next reader.
"""

from __future__ import annotations

import bz2
from pathlib import Path

from support.mutate import mutations, survives
from support.real_dbs import FIND, FIND_CURRENT, find_lines, perf_sqlite, perf_text

from kdbtool.miopen import finddb, perfdb
from kdbtool.miopen.problems import format_problem
from kdbtool.miopen.prune import Pruned, prune
from kdbtool.miopen.textdb import encode
from kdbtool.miopen.versions import resolve

BUILD = resolve("6.4")


def find_db(path: Path) -> None:
    finddb.summary(path)
    for record in finddb.read(path):
        assert format_problem(record.problem) == record.key
        assert [
            finddb.parse_item(finddb.format_item(s), record.problem.direction) for s in record.solvers
        ] == [*record.solvers]
    done = Pruned()
    left = path.with_name("pruned.HIP.fdb.txt")
    left.write_bytes(b"".join(prune(path, BUILD, done, convert=True)))
    assert [encode(finddb.format_record(r)) for r in finddb.read(left, _none)] == [
        line for line in left.read_bytes().removesuffix(b"\n").split(b"\n") if line
    ]


def perf_db(path: Path) -> None:
    perfdb.summary(path)
    if not perfdb.is_sqlite(path) and path.stat().st_size % 32:
        return  # writing SQLite is slow: some will do
    output = path.with_name("converted" + (".db.txt" if perfdb.is_sqlite(path) else ".db"))
    done = perfdb.convert(path, output, force=True)
    assert sum(1 for _ in perfdb.read(output, _none)) == done.rows


def _none(damage: object) -> None:
    raise AssertionError(f"written by us, damaged: {damage}")


def test_find_db_text(shared: Path, tmp_path: Path) -> None:
    good = find_lines(shared, FIND, 9000, 4) + find_lines(shared, FIND_CURRENT, 1900, 3)
    tally = survives(find_db, mutations(good, 5000, 61), tmp_path, ".HIP.fdb.txt")
    assert tally.accepted > 3000


def test_find_db_bz2(shared: Path, tmp_path: Path) -> None:
    good = bz2.compress(find_lines(shared, FIND, 5000, 5))
    tally = survives(find_db, mutations(good, 5000, 62), tmp_path, ".HIP.fdb.txt.bz2")
    assert tally.refused > 3000


def test_perf_db_text(shared: Path, tmp_path: Path) -> None:
    tally = survives(perf_db, mutations(perf_text(shared, 25), 5000, 63), tmp_path, ".db.txt")
    assert tally.accepted > 3000


def test_perf_db_sqlite(shared: Path, tmp_path: Path) -> None:
    good = perf_sqlite(shared, tmp_path, 25)
    tally = survives(perf_db, mutations(good, 5000, 64), tmp_path, ".db")
    assert tally.accepted > 500 and tally.refused > 500


def test_the_undamaged_ones_pass(shared: Path, tmp_path: Path) -> None:
    for name, data, check in (
        ("a.HIP.fdb.txt", find_lines(shared, FIND, 3000, 10), find_db),
        ("a.HIP.fdb.txt.bz2", bz2.compress(find_lines(shared, FIND_CURRENT, 900, 8)), find_db),
        ("a.db.txt", perf_text(shared, 25), perf_db),
        ("a.db", perf_sqlite(shared, tmp_path, 25), perf_db),
        ("a.db.bz2", bz2.compress(perf_sqlite(shared, tmp_path, 25)), perf_db),
    ):
        (tmp_path / name).write_bytes(data)
        check(tmp_path / name)
