"""What MIOpen tuned for its user is copied beside a trace: the trace's rows alone, and nothing is touched."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.tuned_traces import FIND_DB, OTHER, PERF_DB, A, B, databases, found, perf_key, recorded

from kdbtool import tuned
from kdbtool.errors import KdbtoolError
from kdbtool.miopen import finddb, perfdb, perfdb_sqlite, userdbs
from kdbtool.miopen.perfkey import PerfRecord, parse_config
from kdbtool.miopen.userdbs import Library

LINE_A = found(A, "ConvAsm1x1U:0.25,0,Direct", "GemmFwdRest:0.5,100,GEMM")
LINE_B = found(B, "ConvDirectNaiveConvFwd:7.5,0,Direct")
LINE_OTHER = found(OTHER, "ConvDirectNaiveConvFwd:1,0,Direct")
TUNED_A = f"{perf_key(A)}=ConvAsm1x1U:4,8,4;ConvOclDirectFwd1x1:1,2\n"
TUNED_OTHER = f"{perf_key(OTHER)}=ConvOclDirectFwd:9\n"


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """User databases: A and another in the find-db, A and another in the perf-db."""
    return databases(tmp_path / "user", LINE_OTHER + LINE_A, TUNED_OTHER + TUNED_A)


def copy(trace: Path, user: Path) -> tuned.Copied | None:
    return tuned.copy_beside(trace, {"MIOPEN_USER_DB_PATH": str(user), "HOME": "/nonexistent"})


def state(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    return {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino)
        for path in folder.iterdir()
    }


def test_the_rows_of_the_traces_problems_alone(tmp_path: Path, user: Path) -> None:
    trace = recorded(tmp_path / "node-1-2.1.kdbtrace", B, A, "damaged")
    before = state(user)
    done = copy(trace, user)
    assert done == tuned.Copied(tmp_path / "node-1-2.1.ufdb.txt", tmp_path / "node-1-2.1.udb.txt", 1, 2)
    assert str(done) == "1 record of the user find-db and 2 rows of the user perf-db copied beside the trace"
    assert done.find_db is not None and done.perf_db is not None
    assert (done.find_db.read_text(), done.perf_db.read_text()) == (LINE_A, TUNED_A)
    assert done.find_db.stat().st_mode & 0o777 == 0o600
    assert state(user) == before
    assert [r.key for r in finddb.read(done.find_db)] == [A]
    assert [r.solver for r in perfdb.read(done.perf_db)] == ["ConvAsm1x1U", "ConvOclDirectFwd1x1"]
    assert tuned.beside(trace) == tuned.Copied(done.find_db, done.perf_db)


def test_the_same_rows_in_any_order_are_the_same_bytes(tmp_path: Path) -> None:
    texts = set()
    for at, lines in enumerate(([LINE_A, LINE_B], [LINE_B, LINE_A, LINE_A.replace("0.25", "9")])):
        user = databases(tmp_path / f"user{at}", "".join(lines))
        done = copy(recorded(tmp_path / f"{at}.kdbtrace", A, B), user)
        assert done is not None and done.find_db is not None and done.perf_db is None
        texts.add(done.find_db.read_bytes())
    assert texts == {(LINE_B + LINE_A).encode()}  # of two lines with one key the first, as MIOpen does


@pytest.mark.parametrize("facts", [{"simulated": "1"}, {"source": "log"}, {"miopen_version": None}])
def test_what_was_not_measured_gets_no_copy(tmp_path: Path, user: Path, facts: dict[str, Any]) -> None:
    assert copy(recorded(tmp_path / "a.kdbtrace", A, **facts), user) is None
    assert not list(tmp_path.glob("*.txt"))


def test_no_problem_no_database_no_row(tmp_path: Path, user: Path) -> None:
    assert copy(recorded(tmp_path / "a.kdbtrace"), user) is None
    assert copy(recorded(tmp_path / "b.kdbtrace", B), user) is None
    assert copy(recorded(tmp_path / "c.kdbtrace", A), tmp_path / "nowhere") is None
    assert copy(recorded(tmp_path / "d.kdbtrace", A), databases(tmp_path / "empty")) is None
    assert tuned.copy_beside(recorded(tmp_path / "e.kdbtrace", A), {}) is None  # no home
    assert not list(tmp_path.glob("*.txt"))


def test_files_of_another_device_or_miopen_are_not_taken(tmp_path: Path) -> None:
    user = databases(tmp_path / "user")
    for name in ("gfx1030_30.HIP.3_4_0_", "gfx1031_36.HIP.3_4_0_", "gfx1030_36.HIP.3_5_0_"):
        (user / f"{name}.ufdb.txt").write_text(LINE_A)
        (user / f"{name}.udb.txt").write_text(TUNED_A)
    assert copy(recorded(tmp_path / "a.kdbtrace", A), user) is None


def test_a_git_hash_in_the_name(tmp_path: Path) -> None:
    user = databases(tmp_path / "user")
    (user / "gfx1030_36.HIP.3_4_0_a85ca8a-dirty.ufdb.txt").write_text(LINE_A)
    done = copy(recorded(tmp_path / "a.kdbtrace", A), user)
    assert done is not None and done.problems == 1
    (user / FIND_DB).write_text(LINE_A)
    with pytest.raises(KdbtoolError, match=r"several user find-dbs: .*cannot be told"):
        copy(recorded(tmp_path / "b.kdbtrace", A), user)


@pytest.mark.parametrize("wal", [False, True])
def test_an_sqlite_perf_db_is_read_without_a_trace_of_it(tmp_path: Path, wal: bool) -> None:
    user = databases(tmp_path / "user")
    path = user / "gfx1030_36_1.1.0.udb"
    perfdb_sqlite.fill(path, [PerfRecord(1, perf_key(A), parse_config(perf_key(A)), "ConvAsm1x1U", "4,8")])
    db = sqlite3.connect(path)
    if wal:  # MIOpen's own mode; a writer that has it open has the newest rows in the -wal
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("UPDATE perf_db SET params = '5,6'")
        db.commit()
    before = state(user)
    done = copy(recorded(tmp_path / "a.kdbtrace", A), user)
    assert state(user) == before
    db.close()
    assert done is not None and done.perf_db is not None
    assert done.perf_db.read_text() == f"{perf_key(A)}=ConvAsm1x1U:{'5,6' if wal else '4,8'}\n"
    (user / PERF_DB).write_text(TUNED_A)
    with pytest.raises(KdbtoolError, match="several user perf-dbs"):
        copy(recorded(tmp_path / "b.kdbtrace", A), user)


def test_a_text_of_before_rocm_6_2_has_find_db_keys(tmp_path: Path) -> None:
    user = databases(tmp_path / "user", perf_db=f"{A}=ConvAsm1x1U:1\n{perf_key(A)}=ConvAsm1x1U:2\n")
    done = copy(recorded(tmp_path / "a.kdbtrace", A), user)
    assert done is not None and done.perf_db is not None
    assert done.perf_db.read_text() == f"{perf_key(A)}=ConvAsm1x1U:1\n"


def fifo(path: Path) -> None:
    os.mkfifo(path)


def lite(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + bytes(200))


HOSTILE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "fifo": (FIND_DB, fifo),
    "folder": (FIND_DB, Path.mkdir),
    "loop": (FIND_DB, lambda path: path.symlink_to(path)),
    "an SQLite file": (FIND_DB, lite),
    "another's text": (FIND_DB, lambda path: path.write_text("kdbtool-manifest format 0\n")),
    "damaged SQLite": ("gfx1030_36_1.1.0.udb", lite),
    "a find-db as perf-db": (PERF_DB, lambda path: path.write_text(LINE_A)),
    "one endless line": (PERF_DB, lambda path: path.write_bytes(b"x" * (3 << 20))),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_run_never_fails_of_it(kdbtool: Callable[..., Any], tmp_path: Path, name: str) -> None:
    """One line at -v, none without; the program's exit code; no half copy."""
    made = recorded(tmp_path / "made.kdbtrace", A)
    user = databases(tmp_path / "user")
    file, make = HOSTILE[name]
    make(user / file)
    for at, option in enumerate([(), ("-v",)]):
        ended = record(kdbtool, tmp_path, made, *option, name=f"{at}.kdbtrace", user=user)
        assert (ended.code, ended.out) == (7, "")
        lines = [line for line in ended.err.splitlines() if "tuned" in line]
        assert len(lines) == at, ended.err
    assert not list((tmp_path / "traces").glob("*.txt")) and "Traceback" not in ended.err


def record(
    kdbtool: Callable[..., Any], folder: Path, made: Path, *options: str, name: str, user: Path | None
) -> Any:
    """`kdbtool record` of a program that leaves `made` as its trace and ends with 7."""
    script = f"cp {made} {folder}/traces/{name}; exit 7"
    env = {"MIOPEN_USER_DB_PATH": str(user)} if user else {}
    command = ("record", "--root", "none", "-o", folder / "traces", *options, "--", "sh", "-c", script)
    return kdbtool(*command, env=env)


def test_record_copies_after_the_program(kdbtool: Callable[..., Any], tmp_path: Path, user: Path) -> None:
    made = recorded(tmp_path / "made.kdbtrace", A)
    ended = record(kdbtool, tmp_path, made, "-v", name="x.kdbtrace", user=user)
    assert ended.code == 7 and ended.err.count("copied beside the trace") == 1
    traces = tmp_path / "traces"
    assert sorted(p.name for p in traces.iterdir()) == ["x.kdbtrace", "x.udb.txt", "x.ufdb.txt"]
    assert (traces / "x.ufdb.txt").read_text() == LINE_A
    # a second run copies for its own traces alone
    (traces / "x.ufdb.txt").unlink()
    assert record(kdbtool, tmp_path, made, name="y.kdbtrace", user=user).err == ""
    assert sorted(p.name for p in traces.glob("*.ufdb.txt")) == ["y.ufdb.txt"]


def test_a_cut_trace_and_one_of_an_unknown_device(
    kdbtool: Callable[..., Any], tmp_path: Path, user: Path
) -> None:
    made = recorded(tmp_path / "made.kdbtrace", A, ended=False)
    assert record(kdbtool, tmp_path, made, name="x.kdbtrace", user=user).code == 7
    assert (tmp_path / "traces" / "x.ufdb.txt").read_text() == LINE_A
    made = recorded(tmp_path / "made.kdbtrace", A, device_0="Radeon")
    ended = record(kdbtool, tmp_path, made, "-v", name="y.kdbtrace", user=user)
    assert ended.code == 7 and "its device is not known" in ended.err
    made.write_bytes(b"no trace")
    ended = record(kdbtool, tmp_path, made, name="z.kdbtrace", user=user)
    assert (ended.code, ended.err) == (7, "")


@pytest.mark.parametrize(
    ("device", "units", "overrides", "base"),
    [
        ("gfx1030", 36, {}, "gfx1030_36"),
        ("gfx90a:sramecc+:xnack-", 104, {}, "gfx90a68"),
        ("gfx90a:sramecc+:xnack+", 104, {}, "gfx90a_xnack68"),
        ("gfx1031", 20, {"MIOPEN_DEVICE_ARCH": "gfx1030", "MIOPEN_DEVICE_CU": "36"}, "gfx1030_36"),
        ("gfx1030", 36, {"MIOPEN_DEVICE_CU": "x"}, "gfx1030_36"),
        ("gfx1030", 0, {}, None),
        ("../../etc", 36, {}, None),
        ("", 36, {}, None),
    ],
)
def test_names_of_a_device(device: str, units: int, overrides: dict[str, str], base: str | None) -> None:
    assert userdbs.base_of(device, units, overrides) == base


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"HOME": "/home/u"}, "/home/u/.config/miopen"),
        ({"HOME": "/home/u", "MIOPEN_USER_DB_PATH": "~/db"}, "/home/u/db"),
        ({"HOME": "/home/u", "MIOPEN_USER_DB_PATH": "~"}, "/home/u"),
        ({"HOME": "/home/u", "MIOPEN_USER_DB_PATH": ""}, "/home/u/.config/miopen"),
        ({"HOME": "/home/u", "MIOPEN_USER_DB_PATH": "/x"}, "/x"),
        ({"HOME": "/home/u", "MIOPEN_USER_DB_PATH": "~other/db"}, None),
        ({"HOME": "/home/u", "MIOPEN_USER_DB_PATH": "relative"}, None),
        ({"HOME": ""}, None),
        ({}, None),
    ],
)
def test_the_folder(environment: dict[str, str], folder: str | None) -> None:
    got = userdbs.folder_of(environment, Library("3.4.0"))
    assert got == (Path(folder) if folder else None)


@pytest.mark.parametrize("version", ["", "3.4", "3.4.0/../..", "3.4.0.*"])
def test_a_version_that_is_none(tmp_path: Path, version: str) -> None:
    with pytest.raises(KdbtoolError, match="which MIOpen wrote them"):
        userdbs.find(tmp_path, "gfx1030_36", Library(version))
