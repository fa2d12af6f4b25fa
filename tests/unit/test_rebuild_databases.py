"""The find-db and the perf-db of a manifest's problems: by the model."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import real_dbs
from support.tuned_traces import OTHER, WAY, A, B, perf_key

from kdbtool import targets
from kdbtool.errors import KdbtoolError
from kdbtool.manifest import Key, Manifest, Note, Problem, Solution
from kdbtool.manifest.tuning import Tuning
from kdbtool.miopen import finddb, perfdb
from kdbtool.miopen.finddb import to_current
from kdbtool.miopen.perfkey import problem_of
from kdbtool.miopen.problems import format_problem
from kdbtool.miopen.versions import resolve
from kdbtool.rebuild.databases import device_of, name_of, perf_form, write_find_db, write_perf_db

NEW, OLD = resolve("6.4.3"), resolve("5.4")
GEMM = Solution("GemmFwdRest", "0.5", "100", f"{WAY}GEMM", False)
SLOW = Solution("ConvDirectNaiveConvFwd", "10.25", "0", f"{WAY}Direct", False)
SHARES = A.replace("NCHW", "NCHW-NCHW-NHWC")  # A's perf-db key


def manifest(**changes: object) -> Manifest:
    keys = {Key(b"x.cpp.o", f" -mcpu={arch}".encode(), arch): Note() for arch in ("gfx1030",)}
    made = Manifest(miopen="6.4.3", keys=keys, profile={"cu": "36"}, path="m.kdbmanifest")
    made.problems = {
        B: Problem(Note(9), [SLOW], {}),
        A: Problem(Note(8), [SLOW, GEMM], {"Z": "4,8", "C": "1"}),
        OTHER: Problem(Note(10)),
    }
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def test_the_find_db_has_the_problems_that_have_solutions(tmp_path: Path) -> None:
    path = tmp_path / "gfx1030_36.HIP.fdb.txt"
    done = write_find_db(path, manifest(), NEW)
    assert (done.path, done.problems, done.rows) == (path, 2, 3)
    naive = f"ConvDirectNaiveConvFwd:10.25,0,{WAY}Direct"
    assert path.read_text() == f"{B}={naive}\n{A}=GemmFwdRest:0.5,100,{WAY}GEMM;{naive}\n"
    assert [list(r.solvers) for r in finddb.read(path)] == [[SLOW], [GEMM, SLOW]]


def test_the_form_that_the_release_reads(tmp_path: Path) -> None:
    path = tmp_path / "old"
    write_find_db(path, manifest(), OLD)
    first = path.read_text().splitlines()[0]
    assert first == f"{B}={WAY}Direct:ConvDirectNaiveConvFwd,10.25,0,{WAY}Direct,<unused>"
    (record, _) = finddb.read(path)
    legacy = manifest(problems={B: Problem(solutions=list(record.solvers))})
    write_find_db(tmp_path / "again", legacy, OLD)
    assert (tmp_path / "again").read_text() == first + "\n"
    write_find_db(tmp_path / "new", legacy, NEW)
    assert [list(r.solvers) for r in finddb.read(tmp_path / "new")] == [[SLOW]]


@pytest.mark.parametrize("form", ["text", "sqlite"])
def test_the_perf_db_in_both_forms(tmp_path: Path, form: str) -> None:
    done = write_perf_db(tmp_path / "x", manifest(), form)
    assert (done.problems, done.rows, done.conflicts) == (1, 2, [])
    assert perfdb.is_sqlite(tmp_path / "x") == (form == "sqlite")
    rows = [(r.key, r.solver, r.params) for r in perfdb.read(tmp_path / "x")]
    assert rows == [(perf_key(A), "C", "1"), (perf_key(A), "Z", "4,8")]


def test_the_same_manifest_gives_the_same_bytes(tmp_path: Path) -> None:
    one, two = manifest(), manifest()
    two.problems = dict(sorted(two.problems.items(), reverse=True))
    two.problems[A].tuned = {"C": "1", "Z": "4,8"}
    two.problems[A].solutions.reverse()
    for form in ("text", "sqlite"):
        data = [
            write_perf_db(tmp_path / f"{form}{n}", m, form).path.read_bytes()
            for n, m in enumerate([one, two])
        ]
        assert data[0] == data[1]
    data = [write_find_db(tmp_path / str(n), m, NEW).path.read_bytes() for n, m in enumerate([one, two])]
    assert data[0] == data[1]


def test_problems_that_share_a_key_and_differ(tmp_path: Path) -> None:
    problems = {SHARES: Problem(Note(4), tuned={"S": "9", "T": "1"}), A: Problem(Note(5), tuned={"S": "10"})}
    done = write_perf_db(tmp_path / "x.db.txt", manifest(problems=problems), "text")
    assert done.path.read_text() == f"{perf_key(A)}=S:10;T:1\n"
    (told,) = map(str, done.conflicts)
    assert told.startswith(f"perf-db key {perf_key(A)}: tuned S: m.kdbmanifest line ")
    assert "line 4: 9" in told and "line 5: 10" in told and told.endswith("; took 10")


def test_nothing_to_write_is_said_and_nothing_written(tmp_path: Path) -> None:
    for problems in ({}, {A: Problem()}):
        for write, what in (
            (lambda m: write_find_db(tmp_path / "x", m, NEW), "no solutions in the manifest"),
            (lambda m: write_perf_db(tmp_path / "x", m, "text"), "no tuned values in the manifest"),
        ):
            with pytest.raises(KdbtoolError, match=what):
                write(manifest(problems=problems))
    assert not list(tmp_path.iterdir())


def test_an_output_that_exists_stays(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("mine")
    for write in (lambda: write_find_db(tmp_path / "x", manifest(), NEW),
                  lambda: write_perf_db(tmp_path / "x", manifest(), "sqlite")):  # fmt: skip
        with pytest.raises(KdbtoolError, match="output exists"):
            write()
    assert (tmp_path / "x").read_text() == "mine"
    write_find_db(tmp_path / "x", manifest(), NEW, force=True)
    assert (tmp_path / "x").read_text() != "mine"


@pytest.mark.parametrize(
    "solution",
    [
        GEMM._replace(solver="a;b"),
        GEMM._replace(solver="a:b"),
        GEMM._replace(solver=""),
        GEMM._replace(time="nan"),
        GEMM._replace(time="x"),
        GEMM._replace(workspace="1\nx"),
        GEMM._replace(tail=",\n1-1=x"),
        GEMM._replace(tail=";x"),
        GEMM._replace(solver="é"),
        GEMM._replace(algorithm="miopenConvolutionBwdDataAlgoFFT"),
    ],
)
def test_solutions_that_would_read_as_something_else(tmp_path: Path, solution: Solution) -> None:
    made = manifest(problems={A: Problem(Note(7), [solution])})
    with pytest.raises(KdbtoolError, match=r"m.kdbmanifest line 7: .*not a solution") as error:
        write_find_db(tmp_path / "x", made, NEW)
    assert "\n" not in error.value.line() and not list(tmp_path.iterdir())


def test_a_solver_twice(tmp_path: Path) -> None:
    made = manifest(problems={A: Problem(Note(7), [GEMM, GEMM._replace(time="1")])})
    with pytest.raises(KdbtoolError, match="named twice"):
        write_find_db(tmp_path / "x", made, NEW)


@pytest.mark.parametrize(
    "pair", [("a;b", "1"), ("a:b", "1"), ("", "1"), ("S", "1;2"), ("S", "1\n2"), ("S", "é")]
)
@pytest.mark.parametrize("form", ["text", "sqlite"])
def test_values_that_would_read_as_something_else(tmp_path: Path, form: str, pair: tuple[str, str]) -> None:
    made = manifest(problems={A: Problem(Note(7), tuned=dict([pair]))})
    with pytest.raises(KdbtoolError, match=r"line 7: .*not a row of a perf-db"):
        write_perf_db(tmp_path / "x", made, form)
    assert not list(tmp_path.iterdir())


def test_the_device() -> None:
    assert name_of(device_of(manifest()), "HIP.fdb.txt") == "gfx1030_36.HIP.fdb.txt"
    assert name_of(device_of(manifest(profile={"cu.gfx1030": "72"})), "db.txt") == "gfx103048.db.txt"
    asked = targets.split_target("gfx1030:30")
    assert name_of(device_of(manifest(profile={}), asked), "db") == "gfx1030_30.db"
    assert device_of(manifest(), targets.split_target("gfx1030:36")).cu == 36


@pytest.mark.parametrize(
    ("changes", "asked", "words"),
    [
        ({"profile": {}}, None, "how many units"),
        ({"profile": {"cu": "x"}}, None, "not a number of units"),
        ({"profile": {"cu": "0"}}, None, "not a number of compute units"),
        ({"keys": {}}, None, "names no architecture"),
        ({}, "gfx1030:30", "for gfx1030 with 36 units, not 30"),
        ({}, "gfx906:60", "nothing for gfx906"),
    ],
)
def test_no_device(changes: dict[str, object], asked: str | None, words: str) -> None:
    with pytest.raises(KdbtoolError, match=words):
        device_of(manifest(**changes), targets.split_target(asked) if asked else None)


def test_several_archs_want_one_to_be_named() -> None:
    keys = {Key(b"x.cpp.o", b"", arch): Note() for arch in ("gfx1030", "gfx906")}
    with pytest.raises(KdbtoolError, match="it has gfx1030, gfx906"):
        device_of(manifest(keys=keys))
    profile = {"cu.gfx1030": "36", "cu.gfx906": "60"}
    asked = targets.split_target("gfx906:60")
    assert name_of(device_of(manifest(keys=keys, profile=profile), asked), "db") == "gfx906_60.db"


FORMS = {"5.0": "sqlite", "6.1": "sqlite", "6.2": "text", "7.2": "text", "develop": "text"}


@pytest.mark.parametrize("release", FORMS)
def test_the_form_of_a_release(release: str) -> None:
    assert perf_form(resolve(release)) == FORMS[release]


@pytest.mark.parametrize(("name", "release"), [(real_dbs.FIND, "5.4"), (real_dbs.FIND_CURRENT, "6.4.3")])
def test_amds_lines_through_a_manifest_and_back(
    shared: Path, tmp_path: Path, name: str, release: str
) -> None:
    """In AMD's own order; only what no MIOpen reads differs (two fields of a legacy item)."""
    source = tmp_path / "source"
    source.write_bytes(real_dbs.find_lines(shared, name, 20, 400))
    perf = tmp_path / "source.db.txt"
    perf.write_bytes(real_dbs.perf_text(shared, 2000))
    keys = [line.partition("=")[0] for line in source.read_text().splitlines()]
    tuning, problems = Tuning(), {key: Problem() for key in reversed(keys)}
    tuning.add_find_db(source)
    tuning.add_perf_db(perf)
    assert not tuning.into(problems) and not tuning.notes
    done = write_find_db(tmp_path / "back", manifest(problems=problems), resolve(release))
    before, after = list(finddb.read(source)), list(finddb.read(done.path))
    assert [record.key for record in after] == keys and len(keys) == 400
    assert [[*map(to_current, r.solvers)] for r in after] == [[*map(to_current, r.solvers)] for r in before]
    if release == "6.4.3":
        assert done.path.read_bytes() == source.read_bytes()


def test_amds_tuned_values_through_a_manifest_and_back(shared: Path, tmp_path: Path) -> None:
    """Of the problems that have a find-db key of their own: rows of one key come back together."""
    perf = tmp_path / "source.db.txt"
    perf.write_bytes(real_dbs.perf_text(shared, 2000))
    rows = list(perfdb.read(perf))
    asked = {format_problem(p) for row in rows if row.config and (p := problem_of(row.config)) is not None}
    tuning, problems = Tuning(), {key: Problem() for key in asked}
    tuning.add_perf_db(perf)
    assert not tuning.into(problems) and len(asked) > 100
    write_perf_db(tmp_path / "back.db.txt", manifest(problems=problems), "text")
    known = {perf_key(key) for key in asked}
    back = {(row.key, row.solver, row.params) for row in perfdb.read(tmp_path / "back.db.txt")}
    assert back == {(row.key, row.solver, row.params) for row in rows if row.key in known}
