"""ROCTx ranges and marks: what was open when, of which thread; and no trace of them alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.hip_calls import hip_program
from support.standins import Standins, standins, traces

from kdbtool.shim.trace import Trace

__all__ = ["standins", "traces"]  # fixtures


def ranges(trace: Trace) -> list[tuple[int, str, str, int]]:
    """(thread, op, name, id), by thread and in order."""
    return [(x.thread, x.op, x.name, x.id) for x in trace.ranges]


CALLS = """
f = function("k")
roctx.roctxRangePushA(b"a"); roctx.roctxRangePushA(b"b \\xc3\\xbc")
id = roctx.roctxRangeStartA(b"a")
roctx.roctxMarkA(b"now"); roctx.roctxMarkA(b"")
launch(f)
print(roctx.roctxRangePop(), roctx.roctxRangePop(), roctx.roctxRangePop(), id)
roctx.roctxRangeStop(id)
"""


def test_ranges_and_marks(standins: Standins, traces: Path) -> None:
    ran = hip_program(standins, traces, CALLS)
    assert ran.out == "1 0 -1 1\n"
    assert ranges(ran.trace) == [
        (1, "push", "a", 0),
        (1, "push", "b ü", 0),
        (1, "start", "a", 1),
        (1, "mark", "now", 0),
        (1, "mark", "", 0),
        (1, "pop", "", 0),
        (1, "pop", "", 0),  # the third was refused
        (1, "stop", "", 1),
    ]


def test_ranges_alone_leave_no_trace(standins: Standins, traces: Path) -> None:
    code = CALLS.replace('f = function("k")', "").replace("launch(f)", "")
    assert hip_program(standins, traces, code).traces == []


def test_what_is_open_when_the_trace_begins(standins: Standins, traces: Path) -> None:
    """With the time of its begin; what is over by then is not there."""
    code = """
push, pop = roctx.roctxRangePushA, roctx.roctxRangePop
push(b"over"); pop()
push(b"outer"); push(b"inner")
gone, started = roctx.roctxRangeStartA(b"gone"), roctx.roctxRangeStartA(b"started")
roctx.roctxRangeStop(gone); roctx.roctxMarkA(b"before")
launch(function("k"))
pop(); pop(); roctx.roctxRangeStop(started)
"""
    trace = hip_program(standins, traces, code).trace
    assert ranges(trace) == [
        (1, "start", "started", 2),
        (1, "push", "outer", 0),
        (1, "push", "inner", 0),
        (1, "pop", "", 0),
        (1, "pop", "", 0),
        (1, "stop", "", 2),
    ]
    start, outer, inner, *after = (x.time_ns for x in trace.ranges)
    (launched,) = (x.time_ns for x in trace.launches)
    assert outer < inner < start < launched < min(after)


def test_threads(standins: Standins, traces: Path) -> None:
    """Each has its own stack, also from before the trace; a start may be stopped by another."""
    code = """
begun, go = threading.Event(), threading.Event()
def other():
    roctx.roctxRangePushA(b"theirs"); ids.append(roctx.roctxRangeStartA(b"shared"))
    begun.set(); go.wait()
    roctx.roctxRangePop(); roctx.roctxRangePushA(b"after"); roctx.roctxRangePop()
ids = []
thread = threading.Thread(target=other)
roctx.roctxRangePushA(b"mine")
thread.start(); begun.wait()
launch(function("k"))
roctx.roctxRangeStop(ids[0]); roctx.roctxRangePop()
go.set(); thread.join()
"""
    assert ranges(hip_program(standins, traces, code).trace) == [
        (1, "start", "shared", 1),
        (1, "push", "mine", 0),
        (1, "stop", "", 1),
        (1, "pop", "", 0),
        (2, "push", "theirs", 0),
        (2, "pop", "", 0),
        (2, "push", "after", 0),
        (2, "pop", "", 0),
    ]


def test_fork(standins: Standins, traces: Path) -> None:
    """The child's trace begins with what was open when it was made."""
    code = """
import os
f = function("k"); launch(f)
roctx.roctxRangePushA(b"across"); roctx.roctxRangePushA(b"parent's end")
child = os.fork()
if not child:
    launch(f); roctx.roctxRangePop(); os._exit(0)
os.waitpid(child, 0); roctx.roctxRangePop(); roctx.roctxRangePop()
"""
    parent, child = sorted(hip_program(standins, traces, code).traces, key=lambda t: t.facts.pid)
    both = [(1, "push", "across", 0), (1, "push", "parent's end", 0)]
    assert ranges(parent) == [*both, *[(1, "pop", "", 0)] * 2]
    assert ranges(child) == [*both, (1, "pop", "", 0)]


def test_each_part_begins_with_what_is_open(standins: Standins, traces: Path) -> None:
    code = """
f = function("k")
roctx.roctxRangePushA(b"outer"); roctx.roctxRangePushA(b"closed"); roctx.roctxRangePop()
roctx.roctxRangeStartA(b"started")
for _ in range(60000): hip.hipModuleLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, None, None, None)
"""
    ran = hip_program(standins, traces, code, env={"KDBTOOL_TRACE_LIMIT": f"{1 << 20}:rotate"})
    first, *later = sorted(ran.traces, key=lambda t: t.facts.part)
    assert len(later) >= 1 and sum(len(t.launches) for t in ran.traces) == 60000
    assert [op for _, op, _, _ in ranges(first)] == ["push", "push", "pop", "start"]
    for part in later:
        assert [(op, name) for _, op, name, _ in ranges(part)] == [("start", "started"), ("push", "outer")]


@pytest.mark.parametrize("before", [True, False])
def test_more_than_there_is_room_for(standins: Standins, traces: Path, before: bool) -> None:
    """1,024 are kept for a trace that begins later; all pops match, and nothing is left open."""
    begin, end = ("", "launch(f)") if before else ("launch(f)", "")
    code = f"""
f = function("k") if {not before} else None
{begin.replace("f", "f", 1)}
for i in range(1500): roctx.roctxRangePushA(b"%d" % i)
{"f = function('k')" if before else ""}
{end}
for i in range(1500): roctx.roctxRangePop()
roctx.roctxRangePushA(b"last"); roctx.roctxRangePop()
"""
    found = ranges(hip_program(standins, traces, code).trace)
    ops = [op for _, op, _, _ in found]
    assert (ops.count("push"), ops.count("pop")) == ((1025, 1501) if before else (1501, 1501))
    assert found[-2:] == [(1, "push", "last", 0), (1, "pop", "", 0)]


def test_names_of_any_length(standins: Standins, traces: Path) -> None:
    """A NULL is an empty one; beyond 64 KiB they are cut."""
    code = """
f = function("k")
for name in (None, b"x" * 65536, b"y" * 100000): roctx.roctxRangePushA(name)
for _ in range(3): roctx.roctxRangePop()
"""
    names = [name for _, op, name, _ in ranges(hip_program(standins, traces, code).trace) if op == "push"]
    assert names == ["", "x" * 65536, "y" * 65536]
