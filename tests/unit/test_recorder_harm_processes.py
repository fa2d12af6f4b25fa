"""Processes that start others, end in any way, or give up their rights; many at once in one folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from support.harming import Harm, harm, standins, traces

from kdbtool.shim.trace import find_traces, read_trace

__all__ = ["harm", "standins", "traces"]  # fixtures

as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs the rights of root")


def test_fork_while_other_threads_are_inside_hooks(harm: Harm, traces: Path) -> None:
    """Each child has a trace of its own, with the kernel that its parent had asked for by name."""
    ran = harm.same(traces, "fork", 20)
    assert (ran.out, len(ran.traces)) == ("20 children\n", 21)
    children = [t for t in ran.traces if t.facts.ppid != os.getpid()]
    assert [t.launches.by_kernel() for t in children] == [{"kernel": 10, "child": 10}] * 20
    assert [t.notes for t in ran.traces] == [[]] * 21


@pytest.mark.parametrize(("how", "out", "found"), [
    ("vfork", "0\n4 launches\n0: 5 launches\n", [4, 5]),
    ("spawn", "0\n4 launches\n0: 5 launches\n", [4, 5]),
    ("exec", "0\n4 launches\n", [2, 4]),
    ("exec-bare", "0\n4 launches\n", [2]),
])  # fmt: skip
def test_another_program_is_started(harm: Harm, traces: Path, how: str, out: str, found: list[int]) -> None:
    ran = harm.same(traces, "start", how, harm.program, "launch", 4)
    assert (ran.code, ran.out) == (0, out)
    assert sorted(len(t.launches) for t in ran.traces) == found
    assert all(t.notes == [] for t in ran.traces)


@pytest.mark.parametrize(("how", "code"), [
    ("_exit", 5), ("exit", 6), ("thread-exit", 4), ("abort", -signal.SIGABRT), ("segv", -signal.SIGSEGV),
    ("kill", -signal.SIGKILL),
])  # fmt: skip
def test_end(harm: Harm, traces: Path, how: str, code: int) -> None:
    ran = harm.same(traces, "end", how)
    assert (ran.code, ran.out, len(ran.trace.launches), ran.trace.notes) == (code, "here\n", 10, [])


@pytest.mark.parametrize("how", [
    pytest.param("setuid", marks=as_root), pytest.param("chroot", marks=as_root), "fsize", "as", "nproc",
])  # fmt: skip
def test_rights_and_limits_that_go_while_it_records(harm: Harm, traces: Path, how: str) -> None:
    ran = harm.same(traces, "rights", how)
    assert (ran.code, ran.out) == (0, "0\n20010 launches\n")
    kept = len(ran.trace.launches)
    assert kept == 20010 if how == "nproc" else 1000 < kept < 20010
    lost = sum(int(n.split()[0]) for n in ran.trace.notes if "could not be recorded" in n)
    assert kept + lost == 20010
    assert how == "nproc" or any("recording stopped" in n for n in ran.trace.notes)


@as_root
def test_program_with_a_setuid_bit_is_left_alone(harm: Harm, traces: Path, tmp_path: Path) -> None:
    program = harm.folder / "setuid"
    shutil.copy(harm.program, program)
    program.chmod(0o4755)
    traces.chmod(0o777)
    for folder in traces.parents:
        if folder.stat().st_uid == 0 and folder.name.startswith(("pytest", "test")):
            folder.chmod(folder.stat().st_mode | 0o755)
    ran = [
        harm.standins.run(place, program, "launch", 5, env=harm.env(None), uid=65534)
        for place in (None, traces)
    ]
    assert (ran[1].code, ran[1].out) == (ran[0].code, ran[0].out)
    assert ran[1].traces == [] or ran[1].code == 0  # on a nosuid file system it is a program like others


def test_64_processes_in_one_folder(harm: Harm, traces: Path) -> None:
    env = {"LD_PRELOAD": str(harm.standins.recorder), "KDBTOOL_TRACE_DIR": str(traces)}
    command = [str(harm.program), "launch", "100"]
    running = [subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL) for _ in range(64)]
    assert [p.wait() for p in running] == [0] * 64
    found = [read_trace(p) for p in find_traces([traces])]
    assert sorted(t.facts.pid for t in found) == sorted(p.pid for p in running)
    assert {(len(t.launches), len(t.notes)) for t in found} == {(100, 0)}
    assert len(list(traces.iterdir())) == 64


@as_root
def test_one_pid_twice(harm: Harm, traces: Path) -> None:
    """Two pid namespaces of one host, in the same second: the names differ, and nothing is overwritten."""
    for _ in range(3):
        command = ["/usr/bin/unshare", "--pid", "--fork", str(harm.program), "launch", "7"]
        harm.standins.run(traces, *command, env=harm.env(None))
    found = [read_trace(p) for p in find_traces([traces])]
    assert [(t.facts.pid, len(t.launches)) for t in found] == [(1, 7)] * 3
