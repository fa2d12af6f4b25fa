"""A host leaves a real call, or the recorder itself, in the middle: by jumps, exceptions, signals, ends
of threads. Each run is compared with one without the recorder."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from support.harming import Harm, harm, number, standins, traces

__all__ = ["harm", "standins", "traces"]  # fixtures


def whole(notes: list[str]) -> bool:
    return all("could not be recorded" in n for n in notes)


def test_jump_out_of_the_real_call(harm: Harm, traces: Path) -> None:
    """The call never returned: it is no launch. Those that follow are."""
    ran = harm.same(traces, "jump-out")
    assert (ran.out, len(ran.trace.launches), ran.trace.notes) == ("200 launches\n", 200, [])


@pytest.mark.parametrize("how", ["exit-inside", "cancel-inside"])
def test_thread_ends_inside_the_real_call(harm: Harm, traces: Path, how: str) -> None:
    ran = harm.same(traces, how)
    assert (ran.out, len(ran.trace.launches), ran.trace.notes) == ("253 launches\n", 253, [])


def test_exception_through_the_real_call(harm: Harm, traces: Path, tmp_path: Path) -> None:
    source = tmp_path / "throw.cpp"
    source.write_text("""
#include <cstdio>
extern "C" int hipModuleLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                     unsigned, void *, void **, void **);
extern "C" int standin_launches();
extern "C" void (*standin_inside)();
static int caught, unwound, here;
struct Local { ~Local() { unwound++; } };
static int launch() { return hipModuleLaunchKernel(&here, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0); }
int main() {
    for (int i = 0; i < 100; i++) {
        standin_inside = [] { throw 42; };
        try { Local local; launch(); } catch (int e) { caught += e; }
        standin_inside = nullptr;
        launch();
    }
    std::printf("%d %d %d\\n", caught, unwound, standin_launches());
}
""")
    compiler = shlex.split(os.environ.get("CXX", "g++"))
    # a HIP of C++ has unwind tables with what an exception needs; C has them for -fexceptions
    hip = tmp_path / "libamdhip64.so.6"
    c = Path(__file__).resolve().parents[1] / "support/c/harm_hip.c"
    cc = shlex.split(os.environ.get("CC", "gcc"))
    options = ["-shared", "-fPIC", "-fexceptions", "-Wl,-soname,libamdhip64.so.6"]
    subprocess.run([*cc, *options, str(c), "-o", str(hip)], check=True)
    command = [*compiler, str(source), str(hip), "-o", str(tmp_path / "throw"), "-Wl,-rpath,$ORIGIN"]
    subprocess.run(command, check=True)
    ran = harm.same(traces, program=tmp_path / "throw", env={"LD_LIBRARY_PATH": str(tmp_path)})
    assert (ran.out, len(ran.trace.launches), ran.trace.notes) == ("4200 100 100\n", 100, [])


def test_handler_jumped_out_of_the_recorder(harm: Harm, traces: Path) -> None:
    """The event in flight is lost; the thread's later ones were, too, to its end."""
    ran = harm.same(traces, "jumping-handler", 5000)
    assert (ran.code, ran.out) == (0, "0\n")
    launches = list(ran.trace.launches)
    assert len(launches) > 5000
    # The last 1000 launches: at least these came after all jumps.
    assert [x.grid[0] for x in launches[-999:]] == [1 + i % 3 for i in range(1, 1000)]
    assert whole(ran.trace.notes)


def test_handler_with_a_stack_of_its_own(harm: Harm, traces: Path) -> None:
    """Its events interrupt one of ours, though its stack lies above."""
    ran = harm.standins.run(traces, harm.program, "own-stack", 2_000_000, env=harm.env(None))
    assert ran.code == 0
    assert len(ran.trace.launches) + number(ran) == int(ran.out.split()[0])
    assert whole(ran.trace.notes)


def test_stacks_of_16_KiB(harm: Harm, traces: Path) -> None:
    ran = harm.same(traces, "small-stacks")
    assert (ran.out, len(ran.trace.launches), ran.trace.notes) == ("2000 launches\n", 2000, [])


def test_destructors_of_threads(harm: Harm, traces: Path) -> None:
    """They come before and after ours, again and again."""
    ran = harm.same(traces, "destructors")
    assert ran.out == "40 launches\natexit: 41 launches\n"
    assert (len(ran.trace.launches), ran.trace.notes) == (41, [])


def test_before_our_constructor_and_after_main(harm: Harm, traces: Path) -> None:
    ran = harm.same(traces, "launch", 5, env={"HARM_EARLY": "1", "HARM_LATE": "1"})
    assert (ran.out, len(ran.trace.launches), ran.trace.notes) == ("0\n6 launches\n", 7, [])
    assert ran.trace.launches.by_kernel() == {"early": 1, "kernel": 6}


def test_a_thousand_threads_at_once(harm: Harm, traces: Path) -> None:
    ran = harm.same(traces, "threads", 1000, 50)
    assert (ran.out, len(ran.trace.launches), ran.trace.notes) == ("50000 launches\n", 50_000, [])
