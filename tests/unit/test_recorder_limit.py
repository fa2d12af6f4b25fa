"""A trace's size limit, and what becomes of the events beyond it: none is lost uncounted."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.standins import Standins, python, same, standins, traces

from kdbtool.shim.trace import Trace

__all__ = ["standins", "traces"]  # fixtures

BLOCK = 4096  # what an event in flight may still take of a part that is full


def limit(policy: str, size: int) -> dict[str, str]:
    return {"KDBTOOL_TRACE_LIMIT": f"{size}:{policy}"}


def number(trace: Trace, what: str) -> int:
    """The number at the begin of the note that says `what`."""
    (found,) = [int(n.split()[0]) for n in trace.notes if what in n] or [0]
    return found


def sizes(traces: Path) -> list[int]:
    assert {p.suffix for p in traces.iterdir()} == {".kdbtrace"}
    return [p.stat().st_size for p in traces.iterdir()]


def in_order(found: list[Trace]) -> list[Trace]:
    return sorted(found, key=lambda t: t.facts.part)


@pytest.mark.parametrize(("threads", "size"), [(1, 300_000), (8, 1 << 20), (64, 1 << 20), (3, 20_000)])
def test_stop_keeps_the_begin(standins: Standins, traces: Path, threads: int, size: int) -> None:
    each = 400_000 // threads
    ran = same(standins, traces, "linked", "threads", threads, each, env=limit("stop", size))
    assert sizes(traces)[0] <= size
    assert "recording stopped: size limit" in ran.trace.notes
    kept, lost = len(ran.trace.launches), number(ran.trace, "could not be recorded")
    assert lost > 100_000
    # A thread whose module or function was no more written counts these two as well.
    assert threads * each <= kept + lost <= threads * (each + 2)
    assert set(ran.trace.launches.by_kernel()) <= {"thread_kernel"}
    assert not [n for n in ran.trace.notes if "damaged" in n or "truncated" in n or "cut" in n]


def test_below_the_limit_all_is_kept(standins: Standins, traces: Path) -> None:
    for policy in ("stop", "rotate"):
        ran = standins.run(traces, "linked", "threads", 4, 1000, env=limit(policy, 1 << 20))
        assert (len(ran.traces[-1].launches), ran.traces[-1].notes) == (4000, [])


@pytest.mark.parametrize(("threads", "size"), [(1, 1 << 20), (8, 1 << 20), (40, 1 << 20), (4, 3_000_001)])
def test_rotate_keeps_the_end(standins: Standins, traces: Path, threads: int, size: int) -> None:
    each = 1_200_000 // threads
    ran = same(standins, traces, "linked", "threads", threads, each, env=limit("rotate", size))
    parts = in_order(ran.traces)
    assert [t.facts.part for t in parts] == list(range(parts[0].facts.part, parts[0].facts.part + 4))
    assert parts[0].facts.part > 0
    assert sum(sizes(traces)) <= size + threads * BLOCK
    assert max(sizes(traces)) <= size // 4 + threads * BLOCK
    kept = sum(len(t.launches) for t in parts)
    lost = sum(number(t, "could not be recorded") for t in parts)
    # In flight while the part that they began in was removed; they may be loads of the module, too.
    assert lost < 2 * threads
    assert 0 <= kept + lost + number(parts[-1], "parts that were removed") - threads * each <= lost
    assert kept > size // 4 // 8  # at least two whole parts, mostly launches
    for trace in parts:
        assert trace.launches.by_kernel().keys() == {"thread_kernel"}
        assert not [n for n in trace.notes if "removed" not in n and "could not" not in n]
        assert all(x.module and x.module.size == 64 for x in trace.launches)
        assert trace.facts.all["hip.path"].endswith("libamdhip64.so.6")


def test_part_says_what_was_said_before(standins: Standins, traces: Path) -> None:
    """Modules, kernels, problems, functions and facts of the first part are in the last one, too."""
    code = f"""
import ctypes
lib = ctypes.CDLL({str(standins.folder / "libMIOpen.so.1")!r})
x, w, y, conv = (ctypes.create_string_buffer(8) for _ in range(4))
lib.miopenSet4dTensorDescriptor(x, 1, 2, 8, 16, 16)
lib.miopenSet4dTensorDescriptor(w, 1, 4, 8, 3, 3)
lib.miopenSet4dTensorDescriptor(y, 1, 2, 4, 16, 16)
lib.miopenInitConvolutionDescriptor(conv, 0, 1, 1, 1, 1, 1, 1)
none, zero = None, ctypes.c_size_t(0)
for _ in range(12000):
    lib.miopenConvolutionForward(none, none, x, none, w, none, conv, 2, none, y, none, none, zero)
"""
    env = {**limit("rotate", 1 << 20), "MIOPEN_DEBUG_X": "1", "OMPI_COMM_WORLD_RANK": "3"}
    parts = in_order(standins.run(traces, *python(code), env=env).traces)
    assert len(parts) == 4
    for trace in parts:
        assert {p.key for p in trace.problems} == {"8-16-16-3x3-4-16-16-2-1x1-1x1-1x1-0-NCHW-FP32-F"}
        assert {p.api for p in trace.problems} == {"miopenConvolutionForward"}
        assert {(x.name, x.args) for x in trace.lookups} == {
            (b"a.cl.o", b" -DHIT=1  -mcpu=gfx1030"),
            (b"b.cl.o", b"-DMISS=1 -mcpu=gfx1030"),
        }
        assert {d for x in trace.lookups for d in x.databases} == {"/user.ukdb", "/system.kdb"}
        assert trace.launches.by_kernel().keys() == {"kernel_a"}
        assert all(x.module and x.module.size == 64 for x in trace.launches)
        assert trace.facts.miopen_version == "3.4.0"
        assert (trace.facts.rank, trace.facts.overrides) == (3, {"MIOPEN_DEBUG_X": "1"})
        assert [n for n in trace.notes if "parts that were removed" not in n] == []
    assert sum(m.before for m in parts[-1].modules) <= 1
    assert len(parts[1].problems) > 400


def test_launches_of_a_thread_that_rests_are_counted(standins: Standins, traces: Path) -> None:
    """Its block is in a part that was removed, and stays mapped."""
    code = f"""
import ctypes, threading
user = ctypes.CDLL({str(standins.folder / "libuser1.so")!r})
first, wake = threading.Event(), threading.Event()
def rest():
    user.g(77)
    first.set(); wake.wait()
    user.g(1)
sleeper = threading.Thread(target=rest); sleeper.start(); first.wait()
def idle():
    user.g(5)
    threading.Event().wait()
threading.Thread(target=idle, daemon=True).start()
user.g(600_000)
wake.set(); sleeper.join()
print("done", flush=True)
import os; os._exit(0)
"""
    parts = in_order(standins.run(traces, *python(code), env=limit("rotate", 1 << 20)).traces)
    kept = sum(len(t.launches) for t in parts)
    assert kept + number(parts[-1], "parts that were removed") == 77 + 1 + 5 + 600_000


@pytest.mark.parametrize("text", ["x", "100", "1048576:", "1048576:keep", "-1:stop", "10:stop", "1000:rotate",
                                  "99999999999999999999:stop", " 1048576:stop", "1048576:stop "])  # fmt: skip
def test_limit_that_is_not_understood_records_nothing(standins: Standins, traces: Path, text: str) -> None:
    ran = same(standins, traces, "linked", "linked", env={"KDBTOOL_TRACE_LIMIT": text})
    assert ran.traces == []
    env = {"KDBTOOL_TRACE_LIMIT": text, "KDBTOOL_VERBOSE": "1"}
    assert "KDBTOOL_TRACE_LIMIT" in standins.run(traces, "linked", "linked", env=env).err


def test_another_file_in_the_place_of_an_old_part_stays(standins: Standins, traces: Path) -> None:
    """Its name is ours, it is not."""
    code = f"""
import ctypes, pathlib
folder = pathlib.Path({str(traces)!r})
user = ctypes.CDLL({str(standins.folder / "libuser1.so")!r})
user.g(1)
(first,) = folder.iterdir()
first.rename(folder / "kept")
first.write_text("mine")
user.g(400_000)
print(first.read_text())
first.unlink()
(folder / "kept").unlink()
"""
    ran = standins.run(traces, *python(code), env=limit("rotate", 1 << 20))
    assert ran.out == "mine\n"


@pytest.mark.parametrize("every", [2, 3])
def test_what_was_left_out_outlives_the_part_that_counted_it(
    standins: Standins, traces: Path, every: int
) -> None:
    env = {**limit("rotate", 1 << 20), "KDBTOOL_SELECT": f"every={every}"}
    parts = in_order(standins.run(traces, "linked", "several", 4, 300_000, env=env).traces)
    assert parts[0].facts.part > 0
    kept = sum(len(t.launches) for t in parts) + number(parts[-1], "parts that were removed")
    left_out = sum(t.facts.unselected for t in parts)
    lost = sum(number(t, "could not be recorded") for t in parts)
    # In flight while a part was removed: an event counts as lost, or not at all.
    assert lost <= 8
    assert 1_200_000 // every - 8 <= kept <= 1_200_000 // every
    assert 1_200_000 - 8 <= kept + left_out + lost <= 1_200_000
