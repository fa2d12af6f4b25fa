"""$KDBTOOL_SELECT in the recorder: what is kept is exact, what is left out is counted."""

from __future__ import annotations

import itertools
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.hip_calls import hip_program
from support.standins import Ran, Standins, standins, traces

from kdbtool.shim.selection import Selection
from kdbtool.shim.trace import find_traces, read_trace
from kdbtool.shim.trace_model import Trace

__all__ = ["standins", "traces"]  # fixtures

USR2 = int(signal.SIGUSR2)


def run(standins: Standins, traces: Path, select: str, *argv: object) -> Ran:
    ran = standins.run(traces, *argv, env={"KDBTOOL_SELECT": select})
    assert (ran.code, ran.err) == (0, "")
    return ran


def kept(trace: Trace) -> tuple[dict[str, int], int]:
    """Launches by kernel, and how many events were left out."""
    return trace.launches.by_kernel(), trace.facts.unselected


EACH = 250_000  # launches by each of four threads, of five kernels in turn


@pytest.mark.parametrize(
    ("select", "kernels", "count"),
    [
        ("", "01234", 200_000),
        ("every=100", "01234", 2_000),
        ("kernel=^[13]_", "13", 200_000),
        ("kernel=^_|nothing", "", 0),
        ("first=12345", "01234", 12_345),
        ("iterations=10:1000", "01234", 990),
        ("iterations=199990:", "01234", 10),
        ("iterations=100:1100\nfirst=300\nevery=7", "01234", 43),
        ("device=0", "01234", 200_000),
        ("device=1-63", "", 0),
        ("kernel=[[:digit:]]_kernel$\ndevice=0\nevery=1000000", "01234", 1),
        ("region=never", "", 0),
    ],
)
def test_a_million_launches_of_four_threads(
    standins: Standins, traces: Path, select: str, kernels: str, count: int
) -> None:
    trace = run(standins, traces, select, "linked", "several", 4, EACH).trace
    expected = {f"{i}_kernel": count for i in kernels}
    assert kept(trace) == (expected, 1_000_000 - sum(expected.values()))
    assert trace.facts.all.get("select", "") == select
    assert not any("could not be recorded" in note for note in trace.notes)


def test_one_kernel_of_four_threads(standins: Standins, traces: Path) -> None:
    trace = run(standins, traces, "every=100", "linked", "threads", 4, EACH).trace
    assert kept(trace) == ({"thread_kernel": 10_000}, 990_000)


def test_threads_keep_as_many_as_reading_does(standins: Standins, traces: Path, tmp_path: Path) -> None:
    whole = run(standins, traces, "", "linked", "several", 4, 5_000).trace
    for number, text in enumerate(("every=7", "iterations=5:\nfirst=100\nevery=3\nkernel=^[02]", "first=1")):
        folder = tmp_path / str(number)
        folder.mkdir()
        recorded = run(standins, folder, text, "linked", "several", 4, 5_000).trace
        assert kept(recorded) == kept(Selection.parse(text).trace(whole))


# Each launch is told apart by its grid. Devices, ranges, handles and forms of all kinds.
PROGRAM = """
f, g = function("conv_a"), function("gemm_b")
register(b"host_kernel")
n = 0
def one(how):
    global n
    n += 1
    if how == 2:
        call("hipLaunchKernel", HOST, dim3(n, 1, 1), B, None, c.c_size_t(0), None)
    else:
        launch((f, g)[how], grid=n)
for i in range(60):
    hip.hipSetDevice(i // 7 % 2)
    if i % 10 == 2: roctx.roctxRangePushA(b"train")
    if i % 10 == 3: roctx.roctxRangePushA(b"inner")
    if i % 10 == 5: roctx.roctxRangePop()
    if i % 10 == 8: roctx.roctxRangePop(); roctx.roctxRangePop()
    if i == 20: started = roctx.roctxRangeStartA(b"whole")
    if i == 41: roctx.roctxRangeStop(started)
    one(i % 3); one(i % 2)
"""


def test_recording_keeps_what_reading_keeps(standins: Standins, traces: Path, tmp_path: Path) -> None:
    """Launch by launch, for one thread."""

    def seen(trace: Trace) -> list[object]:
        return [(x.kernel, x.grid, x.device, x.form) for x in trace.launches]

    whole = hip_program(standins, traces, PROGRAM).trace
    assert len(seen(whole)) == 120
    texts = (
        *("kernel=^conv", "kernel=_kernel$|gemm", "device=1", "every=4", "first=5", "iterations=3:9"),
        *("region=train", "region=inner", "region=whole", "region=inner\nregion=whole", "region=rain"),
        "kernel=o\ndevice=0\nregion=train\niterations=1:\nfirst=6\nevery=2",
    )
    for number, text in enumerate(texts):
        folder = tmp_path / str(number)
        folder.mkdir()
        recorded = selected(standins, folder, text)
        read = Selection.parse(text).trace(whole)
        assert seen(recorded) == seen(read), text
        assert recorded.facts.unselected == read.facts.unselected == 120 - len(seen(read))
        assert len(seen(read)) < 120 and (seen(read) or text == "region=rain")


def chosen(standins: Standins, folder: Path, text: str, code: str = PROGRAM) -> Ran:
    return hip_program(standins, folder, code, env={"KDBTOOL_SELECT": text}, notes="selection left out")


def selected(standins: Standins, folder: Path, text: str, code: str = PROGRAM) -> Trace:
    return chosen(standins, folder, text, code).trace


def test_each_kernel_is_numbered_by_itself(standins: Standins, traces: Path) -> None:
    """One handle for two kernels, in turn; modules of the same code are one."""
    trace = run(standins, traces, "iterations=1:2", "linked", "reused").trace
    assert kept(trace) == ({"kernel_even": 1, "kernel_odd": 1}, 2)


# ---- ranks, and what is not understood ----


@pytest.mark.parametrize(("rank", "recorded"), [("3", True), ("2", False), (None, False)])
def test_other_ranks_leave_no_trace(
    standins: Standins, traces: Path, rank: str | None, recorded: bool
) -> None:
    """And do not die of a signal that is meant for those that record."""
    env = {"KDBTOOL_SELECT": f"rank=0,3-4\nsignal={USR2}"} | ({"RANK": rank} if rank else {})
    assert standins.run(traces, "/bin/sh", "-c", "kill -USR2 $$; echo on", env=env).out == "on\n"
    ran = standins.run(traces, "linked", "linked", env=env)
    assert (ran.code, len(ran.traces)) == (0, int(recorded))


@pytest.mark.parametrize("select", ["kernel=(", "every=0", "nonsense", "rank=x", "x" * 5000, "paused=1"])
def test_a_selection_that_is_not_understood_records_nothing(
    standins: Standins, traces: Path, select: str
) -> None:
    ran = standins.run(traces, "linked", "linked", env={"KDBTOOL_SELECT": select})
    assert (ran.code, ran.err, ran.traces) == (0, "", [])


# ---- the gate ----


def test_closed_gate_leaves_out_all_but_what_others_refer_to(standins: Standins, traces: Path) -> None:
    whole = run(standins, traces, "", "linked", "linked").trace
    (path,) = find_traces([traces])
    path.unlink()
    trace = run(standins, traces, f"paused=1\nsignal={USR2}", "linked", "linked").trace
    assert (trace.lookups, trace.problems, trace.calls, len(trace.launches)) == ([], [], [], 0)
    assert [(g.open, g.cause) for g in trace.gates] == [(False, "start")]
    asked = sum(len(lookup.databases) for lookup in whole.lookups)
    lists = (whole.problems, whole.calls, whole.launches)
    assert trace.facts.unselected == asked + sum(map(len, lists)) > asked > 0


def test_signal_goes_on_and_pauses(standins: Standins, traces: Path) -> None:
    """In the middle of anything: the gate's changes take turns, and both kinds of time are there."""
    env = {
        "LD_LIBRARY_PATH": str(standins.folder),
        "LD_PRELOAD": str(standins.recorder),
        "KDBTOOL_TRACE_DIR": str(traces),
        "KDBTOOL_SELECT": f"paused=1\nsignal={USR2}",
    }
    process = subprocess.Popen(
        [standins.folder / "linked", "forever"], env=env, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout and process.stdout.readline() == "begun\n"
    for _ in range(20):
        time.sleep(0.005)
        process.send_signal(USR2)
    process.kill()
    process.wait()
    (trace,) = [read_trace(path) for path in find_traces([traces])]
    states = [g.open for g in trace.gates]
    assert states[0] is False and trace.gates[0].cause == "start"
    assert all(a != b for a, b in itertools.pairwise(states))
    assert {g.cause for g in trace.gates[1:]} == {"signal"}
    assert trace.problems and trace.facts.unselected


# Without the recorder, too.
ALIVE = f"import os, signal; signal.getsignal({USR2}) is None or signal.signal({USR2}, signal.SIG_IGN)"


def test_a_thousand_signals_between_launches(standins: Standins, traces: Path) -> None:
    code = f"""
{ALIVE}
f = function("k")
for i in range(1000):
    os.kill(os.getpid(), {USR2})
    for j in range(i % 4): launch(f, grid=1 + i)
"""
    trace = selected(standins, traces, f"paused=1\nsignal={USR2}", code)
    expected = [i + 1 for i in range(1000) for _ in range(i % 4) if i % 2 == 0]  # the 1st, 3rd, ... goes on
    assert [x.grid[0] for x in trace.launches] == expected
    assert trace.facts.unselected == 1500 - len(expected)
    # i % 4 == 0: nothing happens before the next signal, so only 2 goes on and 3 pauses
    assert [g.open for g in trace.gates] == [False] + [True, False] * 250


def test_signals_while_four_threads_launch(standins: Standins, traces: Path) -> None:
    """Every launch is kept or counted."""
    code = f"""
{ALIVE}
f = function("k")
def work():
    for i in range(2000): launch(f)
all = [threading.Thread(target=work) for _ in range(4)]
for t in all: t.start()
for i in range(1000): os.kill(os.getpid(), {USR2})
for t in all: t.join()
launch(f)
"""
    ran = selected(standins, traces, f"paused=1\nsignal={USR2}", code)
    assert len(ran.launches) + ran.facts.unselected == 8001
    states = [g.open for g in sorted(ran.gates, key=lambda g: g.time_ns)]
    assert states[0] is states[-1] is False  # paused, and a thousand signals later again
    assert all(a != b for a, b in itertools.pairwise(states))


def test_the_programs_own_handler_has_the_signal(standins: Standins, traces: Path) -> None:
    code = f"""
import os, signal
got = []
signal.signal({USR2}, lambda *_: got.append(1))
f = function("k"); launch(f)
os.kill(os.getpid(), {USR2}); launch(f)
print(got)
"""
    ran = hip_program(standins, traces, code, env={"KDBTOOL_SELECT": f"signal={USR2}"})
    assert (ran.out, len(ran.trace.launches), ran.trace.gates) == ("[1]\n", 2, [])


def grids(trace: Trace) -> list[int]:
    return sorted(x.grid[0] for x in trace.launches)


def test_a_range_of_another_thread_opens_the_gate(standins: Standins, traces: Path) -> None:
    code = """
f = function("k")
begun, go = threading.Event(), threading.Event()
def other():
    roctx.roctxRangePushA(b"train"); begun.set(); go.wait(); roctx.roctxRangePop()
t = threading.Thread(target=other)
launch(f, grid=1); t.start(); begun.wait()
launch(f, grid=2)
roctx.roctxRangePushA(b"train"); roctx.roctxRangePop(); roctx.roctxRangePop()  # the last pops nothing
launch(f, grid=3); go.set(); t.join()
launch(f, grid=4)
"""
    trace = selected(standins, traces, "region=train", code)
    assert (grids(trace), trace.facts.unselected) == ([2, 3], 2)
    assert [(g.open, g.cause) for g in sorted(trace.gates, key=lambda g: g.time_ns)] == [
        *((False, "region"), (True, "region"), (False, "region"))
    ]


def test_a_thread_that_ends_inside_a_range_closes_it(standins: Standins, traces: Path) -> None:
    """The trace says so, too: reading it again keeps the same."""
    code = """
f = function("k")
def other():
    launch(f, grid=1)
    roctx.roctxRangePushA(b"x"); roctx.roctxRangePushA(b"train"); roctx.roctxRangePushA(b"train")
    launch(f, grid=2)
t = threading.Thread(target=other); t.start(); t.join()
import time
end = time.monotonic() + 20  # join may return before the thread is gone
while len(os.listdir("/proc/self/task")) > 1 and time.monotonic() < end: pass
launch(f, grid=3)
"""
    trace = selected(standins, traces, "region=train", "import os\n" + code)
    assert (grids(trace), trace.facts.unselected) == ([2], 2)
    assert [x.op for x in trace.ranges] == ["push"] * 3 + ["pop"] * 3
    assert grids(Selection.parse("region=train").trace(trace)) == [2]


def test_fork_inside_a_range(standins: Standins, traces: Path) -> None:
    """The child has what its thread pushed and what was started, not what another thread pushed."""
    code = """
import os
f = function("k")
begun, go = threading.Event(), threading.Event()
def other():
    roctx.roctxRangePushA(b"theirs"); begun.set(); go.wait(); roctx.roctxRangePop()
t = threading.Thread(target=other); t.start(); begun.wait()
roctx.roctxRangePushA(b"mine")
started = roctx.roctxRangeStartA(b"started")
child = os.fork()
if not child:
    launch(f, grid=1); roctx.roctxRangeStop(started)
    launch(f, grid=2); roctx.roctxRangePop()
    launch(f, grid=3); os._exit(0)
os.waitpid(child, 0)
roctx.roctxRangeStop(started); roctx.roctxRangePop(); launch(f, grid=4); go.set(); t.join()
launch(f, grid=5)
"""
    text = "region=theirs\nregion=mine\nregion=started"
    ran = chosen(standins, traces, text, code)
    parent, child = sorted(ran.traces, key=lambda trace: trace.facts.pid)
    assert (grids(child), child.facts.unselected) == ([1, 2], 1)
    assert (grids(parent), parent.facts.unselected) == ([4], 1)


def test_numbers_and_pattern_of_a_child_are_its_own(standins: Standins, traces: Path) -> None:
    code = """
import os
f, g = function("conv_a"), function("gemm_b")
for i in range(3): launch(f, grid=1 + i); launch(g, grid=9)
child = os.fork()
if not child:
    h = function("xconv_c")
    for i in range(3): launch(f, grid=11 + i); launch(h, grid=21 + i); launch(g, grid=9)
    os._exit(0)
os.waitpid(child, 0)
"""
    ran = chosen(standins, traces, "kernel=conv\nfirst=2", code)
    parent, child = sorted(ran.traces, key=lambda trace: trace.facts.pid)
    assert (grids(parent), parent.facts.unselected) == ([1, 2], 4)
    assert (grids(child), child.facts.unselected) == ([11, 12, 21, 22], 5)


@pytest.mark.parametrize(
    ("select", "count"), [("every=5", 2), ("first=2", 2), ("iterations=3:5", 2), ("kernel=nothing", 0)]
)
def test_a_launch_by_pointer_is_judged_once(
    standins: Standins, traces: Path, select: str, count: int
) -> None:
    """HIP 5 launches by its own exported function: left out there, it was judged and counted again."""
    code = """
register()
for i in range(10):
    call("hipConfigureCall", G, B, c.c_size_t(16), S)
    call("hipLaunchByPtr", HOST)
"""
    ran = hip_program(
        standins, traces, code, tag=2, env={"KDBTOOL_SELECT": select}, notes="the selection left out"
    )
    assert (len(ran.trace.launches), ran.trace.facts.unselected) == (count, 10 - count)


@pytest.mark.parametrize("select", ["", "first=1"])
def test_large_modules_without_an_md5_are_told_apart(
    standins: Standins, traces: Path, tmp_path: Path, select: str
) -> None:
    """The kernels of the second were said to be the first one's, and numbered with them."""
    for i in range(3):
        target = f"amdgcn-amd-amdhsa--gfx90{i};".encode()
        (tmp_path / str(i)).write_bytes(target + bytes((5 << 20) + i))
    code = f"""
for i in 0, 1, 2, 1:
    launch(function("k", new("hipModuleLoad", b"{tmp_path}/%d" % i)), grid=i + 1)
"""
    env = {"KDBTOOL_SELECT": select} if select else {}
    ran = hip_program(standins, traces, code, env=env, notes="the selection left out")
    seen = [(x.grid[0], x.module.target) for x in ran.trace.launches if x.module]
    each = [(1, "gfx900"), (2, "gfx901"), (3, "gfx902"), (2, "gfx901")]
    assert seen == (each[:3] if select else each)
    whole = Selection.parse("first=1").launches(ran.trace)
    assert [x.grid[0] for x in whole] == [1, 2, 3]
