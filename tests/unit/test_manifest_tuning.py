"""Find-db solutions and perf-db values, joined with a manifest's problems by key: by the model."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.tuned_traces import OTHER, WAY, A, B, databases, found, perf_key, recorded

from kdbtool import tuned
from kdbtool.errors import KdbtoolError
from kdbtool.manifest import Manifest, Note, Problem, Solution
from kdbtool.manifest.tuning import Tuning
from kdbtool.miopen.perfdb import convert
from kdbtool.shim.trace import read_trace

LEGACY = f"{A}={WAY}Direct:ConvAsm1x1U,0.25,0,{WAY}Direct,<unused>\n"


def solution(solver: str, time: str, workspace: str = "0", algorithm: str = "Direct") -> Solution:
    return Solution(solver, time, workspace, WAY + algorithm, False)


def joined(*texts: str, folder: Path) -> tuple[dict[str, Problem], Tuning, list[str]]:
    """A's and B's rows out of find-dbs of these texts, in this order."""
    tuning = Tuning()
    for number, text in enumerate(texts):
        path = folder / f"{number}.fdb.txt"
        path.write_text(text)
        tuning.add_find_db(path)
    problems = {A: Problem(), B: Problem()}
    return problems, tuning, list(map(str, tuning.into(problems)))


def test_rows_join_by_problem_key(tmp_path: Path) -> None:
    text = found(A, "GemmFwdRest:0.5,100,GEMM", "ConvAsm1x1U:0.75,0,Direct") + found(OTHER, "X:1,0,Direct")
    problems, tuning, conflicts = joined(text, folder=tmp_path)
    assert problems[A].solutions == [
        solution("GemmFwdRest", "0.5", "100", "GEMM"),
        solution("ConvAsm1x1U", "0.75"),
    ]
    assert problems[B] == Problem() and list(problems) == [A, B]
    assert (conflicts, tuning.notes) == ([], [])


def test_the_line_keeps_its_order_where_all_have_the_same(tmp_path: Path) -> None:
    text = found(A, "Slow:9,0,Direct", "Quick:1,0,Direct")
    problems, _, conflicts = joined(text, text, folder=tmp_path)
    assert [s.solver for s in problems[A].solutions] == ["Slow", "Quick"] and not conflicts


def test_the_shortest_time_is_taken_and_the_others_are_told(tmp_path: Path) -> None:
    texts = [
        found(A, "S:0.5,8,Direct", "T:0.7,0,Direct"),
        found(A, "S:0.25,8,Direct"),
        found(A, "S:0.250,4,Direct", "U:0.1,0,Direct"),
    ]
    for order in itertools.permutations(texts):
        problems, _, conflicts = joined(*order, folder=tmp_path)
        assert [(s.solver, s.time, s.workspace) for s in problems[A].solutions] == [
            ("U", "0.1", "0"), ("S", "0.250", "4"), ("T", "0.7", "0"),
        ]  # fmt: skip
        (told,) = conflicts
        assert told.startswith(f"problem {A}: solution S: {tmp_path}/0.fdb.txt line 1: ")
        assert told.count(" ms, ") == 4 and told.endswith(f"; took 0.250 ms, 4 bytes, {WAY}Direct")


def test_legacy_and_current_lines_are_one(tmp_path: Path) -> None:
    problems, _, conflicts = joined(LEGACY, found(A, "ConvAsm1x1U:0.25,0,Direct"), folder=tmp_path)
    assert problems[A].solutions == [solution("ConvAsm1x1U", "0.25")] and not conflicts


def test_damage_is_counted_and_the_rest_is_taken(tmp_path: Path) -> None:
    text = found(A, "S:0.5,8,Direct").strip() + f";S:1,8,{WAY}Direct;T:x,0,{WAY}Direct\nnoise\n"
    problems, tuning, _ = joined(text, folder=tmp_path)
    assert [s.solver for s in problems[A].solutions] == ["S"]
    assert tuning.notes == [f"{tmp_path}/0.fdb.txt: 2 damaged places passed over: 1 not a number, 1 repeated"]


def perf(folder: Path, *rows: str) -> tuple[dict[str, Problem], list[str]]:
    tuning = Tuning()
    for number, row in enumerate(rows):
        path = folder / f"{number}.db.txt"
        path.write_text(row)
        tuning.add_perf_db(path)
    problems = {A: Problem(), B: Problem()}
    return problems, list(map(str, tuning.into(problems)))


def test_values_that_most_inputs_have(tmp_path: Path) -> None:
    rows = [f"{perf_key(A)}=S:{values};T:9\n" for values in ("4,8", "2,2", "4,8", "1,1")]
    for order in itertools.permutations(rows):
        problems, conflicts = perf(tmp_path, *order)
        assert problems[A].tuned == {"S": "4,8", "T": "9"} and not problems[B].tuned
        assert len(conflicts) == 1 and conflicts[0].endswith("; took 4,8")
        assert conflicts[0].startswith(f"problem {A}: tuned S: {tmp_path}/0.db.txt line 1: ")
    problems, _ = perf(tmp_path, rows[0], rows[3])
    assert problems[A].tuned["S"] == "1,1"  # a draw: by the text


def test_both_forms_of_a_perf_db(tmp_path: Path) -> None:
    (tmp_path / "a.db.txt").write_text(f"{perf_key(A)}=S:1,2\n")
    convert(tmp_path / "a.db.txt", tmp_path / "a.db")
    for name in ("a.db.txt", "a.db"):
        tuning = Tuning()
        tuning.add_perf_db(tmp_path / name)
        problems = {A: Problem()}
        assert not tuning.into(problems) and problems[A].tuned == {"S": "1,2"}


def test_problems_that_share_a_perf_db_key_share_its_rows(tmp_path: Path) -> None:
    """The key has no sizes of the output, nor the layouts of the other tensors."""
    other = A.replace("NCHW", "NCHW-NCHW-NHWC")
    assert perf_key(other) == perf_key(A)
    (tmp_path / "a.db.txt").write_text(f"{perf_key(A)}=S:1,2\n")
    tuning = Tuning()
    tuning.add_perf_db(tmp_path / "a.db.txt")
    problems = {A: Problem(), other: Problem()}
    assert not tuning.into(problems)
    assert problems[A].tuned == problems[other].tuned == {"S": "1,2"}


def test_manifests_and_files_together(tmp_path: Path) -> None:
    (tmp_path / "a.fdb.txt").write_text(found(A, "S:0.5,0,Direct"))
    tuning = Tuning()
    tuning.add_find_db(tmp_path / "a.fdb.txt")
    slow = Problem(Note(12), [solution("S", "0.75")], {"S": "1"})
    tuning.add_manifest(Manifest(problems={A: slow, B: Problem(tuned={"T": "2"})}, path="m"))
    problems = {A: Problem(), B: Problem()}
    (told,) = map(str, tuning.into(problems))
    assert f"m line 12: 0.75 ms, 0 bytes, {WAY}Direct; {tmp_path}/a.fdb.txt line 1: 0.5 ms" in told
    assert problems[A].solutions == [solution("S", "0.5")]
    assert (problems[A].tuned, problems[B].tuned) == ({"S": "1"}, {"T": "2"})
    assert slow.solutions == [solution("S", "0.75")]  # the input is as it was


@pytest.fixture
def copied(tmp_path: Path) -> Callable[..., Path]:
    """A trace with its copies beside it; `simulated` is said of it only afterwards."""

    def make(name: str, **facts: str) -> Path:
        user = databases(tmp_path / "user", found(A, "S:0.5,0,Direct"), f"{perf_key(A)}=S:1,2\n")
        trace = recorded(tmp_path / f"{name}.kdbtrace", A)
        assert tuned.copy_beside(trace, {"MIOPEN_USER_DB_PATH": str(user)}) is not None
        return recorded(trace, A, **facts)

    return make


def test_what_lies_beside_a_trace(copied: Callable[..., Path], tmp_path: Path) -> None:
    tuning = Tuning()
    for path in (copied("a"), copied("b"), recorded(tmp_path / "bare.kdbtrace", A)):
        tuning.add_beside(path, read_trace(path).facts)
    problems = {A: Problem()}
    assert not tuning.into(problems) and not tuning.notes
    assert (problems[A].solutions, problems[A].tuned) == ([solution("S", "0.5")], {"S": "1,2"})


@pytest.mark.parametrize("facts", [{"simulated": "1"}, {"source": "log"}])
def test_simulated_times_never_enter(copied: Callable[..., Path], facts: dict[str, str]) -> None:
    path = copied("a", **facts)
    tuning = Tuning()
    tuning.add_beside(path, read_trace(path).facts)
    problems = {A: Problem()}
    assert not tuning.into(problems) and problems[A] == Problem()
    assert tuning.notes == [f"{path}: what lies beside it is left out: the run was not on a real device"]


def test_named_files_of_two_devices_are_refused(tmp_path: Path) -> None:
    tuning = Tuning()
    tuning.add_find_db(tmp_path / "gfx1030_36.HIP.fdb.txt")
    tuning.add_perf_db(tmp_path / "gfx1030_36.HIP.3_4_0_.udb.txt")  # the same one
    tuning.add_perf_db(tmp_path / "any.db.txt")  # says nothing
    for name in ("gfx1030_30.HIP.fdb.txt", "gfx90878.HIP.fdb.txt.bz2", "gfx1030_xnack_36.HIP.fdb.txt"):
        with pytest.raises(KdbtoolError, match="is of gfx1030_36, and what is best on one device") as error:
            tuning.add_find_db(tmp_path / name)
        assert error.value.exit_code == 2
    with pytest.raises(KdbtoolError, match="tuned on gfx1030_30"):
        tuning.add_perf_db(tmp_path / "gfx1030_30.db.txt")


def test_copies_of_two_devices_are_left_out(copied: Callable[..., Path]) -> None:
    one, two = copied("a"), copied("b", device_0_cu="30")
    for order in ((one, two), (two, one)):
        tuning = Tuning()
        for path in order:
            tuning.add_beside(path, read_trace(path).facts)
        problems = {A: Problem()}
        assert not tuning.into(problems) and problems[A] == Problem()
        (told,) = tuning.notes
        assert "it is of gfx1030_30 and gfx1030_36" in told
    # a file that is named says which device it is about
    (one.parent / "gfx1030_30.HIP.fdb.txt").write_text(found(A, "T:9,0,Direct"))
    tuning.add_find_db(one.parent / "gfx1030_30.HIP.fdb.txt")
    tuning.notes.clear()
    tuning.into(problems)
    assert [s.solver for s in problems[A].solutions] == ["S", "T"]
    assert tuning.notes == [f"{one}: what lies beside it is left out: it is of gfx1030_36"]


@pytest.mark.parametrize("text", ["kdbtool-manifest format 0\n", "SQLite format 3\0" + "x" * 200])
def test_files_of_another_kind(tmp_path: Path, text: str) -> None:
    (tmp_path / "x").write_text(text)
    for add in (Tuning.add_find_db, Tuning.add_perf_db):
        tuning = Tuning()
        add(tuning, tmp_path / "x")
        with pytest.raises(KdbtoolError) as error:
            tuning.into({A: Problem()})
        assert "\n" not in error.value.line() and error.value.exit_code == 2
    tuning = Tuning()
    tuning.add_find_db(tmp_path / "nowhere")
    with pytest.raises(KdbtoolError, match="nowhere"):
        tuning.into({A: Problem()})


def test_the_command_joins_what_lies_beside_traces(
    copied: Callable[..., Path], run_cli: Callable[..., Any]
) -> None:
    """Into the text; times that differ are told with their files and lines."""
    one, two = copied("a"), copied("b")
    second = two.with_suffix(".ufdb.txt")
    second.write_text(second.read_text().replace("0.5", "0.75"))
    ended = run_cli(
        "manifest", one.parent, "--problems", "--miopen", "6.4.3", "--json", "-o", one.parent / "m"
    )
    assert ended.code == 0, ended.err
    notes = json.loads(ended.out)["notes"]
    text = (one.parent / "m").read_text()
    assert f"problem {A}\n  find S 0.5 0 {WAY}Direct\n" in text
    assert "\n  tuned " in text
    first = one.with_suffix(".ufdb.txt")
    times = f"{first} line 1: 0.5 ms, 0 bytes, {WAY}Direct; {second} line 1: 0.75 ms, 0 bytes, {WAY}Direct"
    assert f"conflict: problem {A}: solution S: {times}; took 0.5 ms, 0 bytes, {WAY}Direct" in notes
    second.unlink()
    second.mkdir()
    first.write_bytes(b"SQLite format 3\0" + bytes(100))
    ended = run_cli("manifest", one.parent, "--problems", "--miopen", "6.4.3")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1) and str(first) in ended.err


def test_without_copies_the_command_says_nothing_of_them(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    recorded(tmp_path / "a.kdbtrace", A)
    ended = run_cli("manifest", tmp_path, "--problems", "--miopen", "6.4.3")
    assert ended.code == 0 and "tuned" not in ended.err and f"problem {A}" in ended.out
