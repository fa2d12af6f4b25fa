"""Whose look-up is whose; what a process that died, hung or refused costs: one solver, named."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support import traces

from kdbtool.errors import KdbtoolError
from kdbtool.harvest.steps import FOUND_BY_FIND, Collector, Found, Steps
from kdbtool.harvest.wanted import Failure, Wanted, Why
from kdbtool.miopen.solvers import solver_ids

DIRECT, NAIVE, GEMM = "ConvOclDirectFwd", "ConvDirectNaiveConvFwd", "GemmFwd1x1_0_1"
ID = solver_ids()
A, B = "problem a", "problem b"


def trace(folder: Path, *names: bytes, name: str = "one") -> Path:
    """A process that asked for these keys, one look-up each."""
    folder.mkdir(exist_ok=True)
    known = sorted(set(names))
    parts = [traces.key(10 + i, key, b"") for i, key in enumerate(known)]
    parts += [traces.statement(100 + i, 10 + known.index(key), 0, 3000 + i) for i, key in enumerate(names)]
    (folder / f"{name}.kdbtrace").write_bytes(traces.header() + traces.block(*parts))
    return folder


def joined(tmp_path: Path, wanted: list[Wanted], text: str, *names: bytes) -> Found:
    collector = Collector(wanted)
    collector.take(Steps(text), trace(tmp_path / "traces", *names))
    return collector.done()


def named(found: Found) -> set[tuple[int, str, bytes]]:
    return {(place, solver, found.keys[key][0]) for place, solver, key in found.asked}


def test_a_look_up_belongs_to_the_step_whose_count_it_falls_under(tmp_path: Path) -> None:
    text = (
        f"p 0\ns 0 c {ID[DIRECT]} 0 2\ns 0 x {ID[DIRECT]} 0 3\ns 0 c {ID[NAIVE]} 0 3\ns 0 x {ID[NAIVE]} 0 4\n"
        f"e 0 0 4\np 1\ns 1 c {ID[DIRECT]} 0 5\ns 1 x {ID[DIRECT]} 0 5\ne 1 0 5\n"
    )
    wanted = [Wanted(A, "ids", (DIRECT, NAIVE)), Wanted(B, "ids", (DIRECT,))]
    found = joined(tmp_path, wanted, text, b"k2", b"k1", b"k3", b"k4", b"k1")
    assert named(found) == {
        (0, DIRECT, b"k1"), (0, DIRECT, b"k2"), (0, DIRECT, b"k3"), (0, NAIVE, b"k4"), (1, DIRECT, b"k1"),
    }  # fmt: skip
    assert [name for name, _ in found.keys] == [b"k1", b"k2", b"k3", b"k4"]  # sorted, whoever came first
    assert found.failures == []


def test_no_key_not_applicable_refused_and_out_of_memory_are_told_apart(tmp_path: Path) -> None:
    solvers = (GEMM, DIRECT, NAIVE, "GemmFwdRest", "fft")
    outcomes = [(0, 0), (0, 3), (5, 0), (0, -2), (0, 0)]
    lines = ["p 0"]
    for solver, (compiled, executed) in zip(solvers, outcomes, strict=True):
        count = 0 if solver != "fft" else 1
        lines += [f"s 0 c {ID[solver]} {compiled} 0", f"s 0 x {ID[solver]} {executed} {count}"]
    found = joined(tmp_path, [Wanted(A, "ids", solvers)], "\n".join([*lines, "e 0 0 1\n"]), b"k")
    assert sorted(found.failures) == sorted([
        Failure(A, GEMM, Why.NO_KERNEL),
        Failure(A, DIRECT, Why.NOT_APPLICABLE),
        Failure(A, NAIVE, Why.FAILED, "CompileSolution: internal error"),
        Failure(A, "GemmFwdRest", Why.MEMORY),
    ])  # fmt: skip


def test_descriptors_that_are_refused_cost_the_problem(tmp_path: Path) -> None:
    found = joined(tmp_path, [Wanted(A, "ids", (DIRECT,))], "p 0\ne 0 3 0\n")
    assert found.failures == [Failure(A, "", Why.FAILED, "its descriptors: bad parameter")]


def test_a_crash_costs_one_solver_and_the_rest_goes_on(tmp_path: Path) -> None:
    wanted = [Wanted(A, "ids", (DIRECT, NAIVE, GEMM)), Wanted(B, "ids", (DIRECT,))]
    collector = Collector(wanted)
    first = Steps(f"p 0\ns 0 c {ID[DIRECT]} 0 1\ns 0 x {ID[DIRECT]} 0 1\ns 0 c {ID[NAIVE]} 0 2\ns 0 x 8")
    collector.take(first, trace(tmp_path / "1", b"k1", b"k2", b"k3"))
    left = collector.blame(first, -signal.SIGSEGV, "last words", list(enumerate(wanted)))
    assert left == [(0, Wanted(A, "ids", (GEMM,))), (1, wanted[1])]
    second = Steps(f"p 0\ns 0 c {ID[GEMM]} 0 0\n")
    collector.take(second, trace(tmp_path / "2"))
    assert collector.blame(second, -signal.SIGALRM, "", left) == [(1, wanted[1])]
    found = collector.done()
    assert found.failures == [
        Failure(A, NAIVE, Why.CRASHED, "ended by SIGSEGV: last words"),
        Failure(A, GEMM, Why.HUNG, "ended by SIGALRM"),
    ]
    # what the step had asked for before it died is kept: MIOpen will ask for it
    assert named(found) == {(0, DIRECT, b"k1"), (0, NAIVE, b"k2"), (0, NAIVE, b"k3")}


@pytest.mark.parametrize("action", ["find", "offered"])
def test_a_crash_without_a_known_solver_costs_the_problem(action: str, tmp_path: Path) -> None:
    wanted = [Wanted(A, action), Wanted(B, action)]
    collector = Collector(wanted)
    steps = Steps("p 0\n")
    collector.take(steps, trace(tmp_path / "t", b"k"))
    assert collector.blame(steps, -signal.SIGABRT, "", list(enumerate(wanted))) == [(1, wanted[1])]
    assert collector.done().failures == [Failure(A, "", Why.CRASHED, "ended by SIGABRT")]


def test_a_process_that_dies_between_two_problems_goes_on_behind(tmp_path: Path) -> None:
    wanted = [Wanted(A, "find"), Wanted(B, "find")]
    collector = Collector(wanted)
    steps = Steps("p 0\ns 0 f 0 0 1\ne 0 0 1\n")
    collector.take(steps, trace(tmp_path / "t", b"k"))
    assert collector.blame(steps, 1, "", list(enumerate(wanted))) == [(1, wanted[1])]
    assert named(collector.done()) == {(0, FOUND_BY_FIND, b"k")}


def test_a_trace_that_lost_look_ups_is_an_error_not_a_smaller_harvest(tmp_path: Path) -> None:
    with pytest.raises(KdbtoolError, match="look-ups are missing"):
        joined(tmp_path, [Wanted(A, "ids", (DIRECT,))], f"p 0\ns 0 c {ID[DIRECT]} 0 2\ne 0 0 2\n", b"k")


def test_a_compiler_that_ran_is_counted(tmp_path: Path) -> None:
    from kdbtool.shim._trace import lib

    folder = trace(tmp_path / "traces", b"k")
    (folder / "clang.kdbtrace").write_bytes(traces.header(role=lib.KDBT_ROLE_COMPILER))
    collector = Collector([Wanted(A, "find")])
    collector.take(Steps("p 0\ns 0 f 0 0 1\ne 0 0 1\n"), folder)
    assert collector.done().compilers == 1
