"""What a host may do under the recorder, and what the recorder may not: each run is compared with one
without it."""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path

import pytest
from support.standins import NO_DESCRIPTORS, Standins, python, same, standins, traces

from kdbtool.shim import libs
from kdbtool.shim.trace import find_traces, read_trace

__all__ = ["standins", "traces"]  # fixtures


# -- processes


def test_closed_descriptors_are_not_ours_to_write(standins: Standins, traces: Path, tmp_path: Path) -> None:
    ran = same(standins, traces, "linked", "close-all", tmp_path / "mine")
    assert (tmp_path / "mine").read_text() == "mine alone\n"
    assert len(ran.trace.launches) == 80003


def test_compiler_child_says_only_that_it_ran(standins: Standins, traces: Path, tmp_path: Path) -> None:
    roles = {
        "clang++-21": "compiler", "clang": "compiler", "amdclang++": "compiler", "clang-21": "compiler",
        "ld.lld": "linker", "lld": "linker", "hipcc": "wrapper", "clang-offload-bundler": "bundler",
    }  # fmt: skip
    for name in [*roles, "clang-format", "clangd", "ld", "python3"]:
        (tmp_path / name).symlink_to(standins.folder / "linked")
        standins.run(traces, str(tmp_path / name), "nothing")
    standins.run(traces, str(tmp_path / "clang"), "-cc1", "-secret")
    found = standins.run(traces, "linked", "nothing").traces
    assert {t.facts.exe: t.facts.role for t in found if t.facts.role != "frontend"} == roles
    assert sum(t.facts.role == "frontend" for t in found) == 1
    for trace in found:
        assert trace.path.stat().st_size == 4096
        assert b"secret" not in trace.path.read_bytes() and b"nothing" not in trace.path.read_bytes()


# -- places


def test_traces_are_private(standins: Standins, traces: Path) -> None:
    ran = standins.run(traces, "linked", "linked")
    assert ran.trace.path.stat().st_mode & 0o7777 == 0o600


def test_relative_folder_and_a_host_that_moves(standins: Standins, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    user = str(standins.folder / "libuser1.so")
    code = f"import os, ctypes; os.chdir('/'); print(ctypes.CDLL({user!r}).g(1))"
    env = {"LD_PRELOAD": str(libs.recorder()), "KDBTOOL_TRACE_DIR": "here", "PATH": os.environ["PATH"]}
    subprocess.run(python(code), env=env, cwd=tmp_path, check=True, capture_output=True)
    assert len(list((tmp_path / "here").iterdir())) == 1


@pytest.mark.skipif(os.getuid() != 0, reason="mounts a small tmpfs")
def test_full_disk(standins: Standins, traces: Path) -> None:
    """Recording stops and the program goes on; what was recorded is there."""
    code = f"""
import ctypes, subprocess
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", {str(traces)!r}], check=True)
user = ctypes.CDLL({str(standins.folder / "libuser1.so")!r})
print(user.g(200000))
import pathlib, shutil
for path in pathlib.Path({str(traces)!r}).glob("*.kdbtrace"):
    shutil.copy(path, {str(traces.parent)!r})
"""
    env = {"KDBTOOL_TRACE_DIR": str(traces)}
    ran = standins.run(traces.parent, "/usr/bin/unshare", "--mount", *python(code), env=env)
    assert ran.out == "201000\n", ran.err
    assert 1000 < len(ran.trace.launches) < 200000
    assert "recording stopped: no space left on device" in ran.trace.notes


@pytest.mark.parametrize(("limit", "recorded"), [(1000, 0), (40_000, 1)])
def test_file_size_limit_is_no_signal(standins: Standins, traces: Path, limit: int, recorded: int) -> None:
    """RLIMIT_FSIZE: growing past it would be SIGXFSZ."""
    code = f"""
import ctypes, resource
user = ctypes.CDLL({str(standins.folder / "libuser1.so")!r})
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
import signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
print(user.g(100000))
"""
    ran = same(standins, traces, *python(code))
    assert ran.out == "101000\n"
    assert len(ran.traces) == recorded
    assert not list(traces.glob("*.part"))
    assert not recorded or "recording stopped: file too large" in ran.trace.notes


def test_dlclose_of_everything(standins: Standins, traces: Path) -> None:
    """Libraries that come and go, at the same address or at another."""
    code = f"""
import ctypes, _ctypes
total = 0
for i in range(20):
    for path in {[str(standins.folder / p) for p in ("libuser1.so", "other/libuser2.so")]!r}:
        user = ctypes.CDLL(path)
        total += user.g(i)
        _ctypes.dlclose(user._handle)
print(total)
"""
    ran = same(standins, traces, *python(code), env={"LD_LIBRARY_PATH": "-"})
    assert len(ran.trace.launches) == 2 * sum(range(20))
    assert ran.trace.launches.by_kernel() == {"user_kernel": 380}


def test_descriptors_run_out(standins: Standins, traces: Path) -> None:
    code = f"""
import ctypes, os, resource
user = ctypes.CDLL({str(standins.folder / "libuser1.so")!r})
{NO_DESCRIPTORS}
print(user.g(10))
for fd in held: os.close(fd)
print(user.g(10))
"""
    ran = same(standins, traces, *python(code))
    assert ran.out == "1010\n1020\n"
    assert len(ran.trace.launches) == 10


def test_errno_is_the_hosts(standins: Standins, traces: Path) -> None:
    code = f"""
import ctypes
user = ctypes.CDLL({str(standins.folder / "libuser1.so")!r}, use_errno=True)
ctypes.set_errno(77)
print(user.g(1), ctypes.get_errno())
"""
    assert same(standins, traces, *python(code)).out == "1001 77\n"


def test_signal_inside_a_hook(standins: Standins, traces: Path) -> None:
    """A handler that launches while a launch is being recorded: none lost uncounted, none damaged."""
    ran = standins.run(traces, "linked", "interrupted", 2_000_000)
    assert ran.code == 0
    (dropped,) = [int(n.split()[0]) for n in ran.trace.notes if "could not be recorded" in n] or [0]
    assert len(ran.trace.launches) + dropped == int(ran.out)
    assert [n for n in ran.trace.notes if "could not be recorded" not in n] == []
    counts = ran.trace.launches.by_kernel()
    assert counts["thread_kernel"] == 2_000_000
    assert counts["signal_kernel"] > 10


def test_killed_at_any_moment(standins: Standins, traces: Path) -> None:
    """What is in the trace is whole, in order, and complete but for the event in flight."""
    random.seed(5)
    env = {"LD_LIBRARY_PATH": str(standins.folder), "LD_PRELOAD": str(standins.recorder)}
    for _ in range(30):
        command = [str(standins.folder / "linked"), "forever"]
        with subprocess.Popen(
            command, env={**env, "KDBTOOL_TRACE_DIR": str(traces)}, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None and process.stdout.readline() == b"begun\n"
            time.sleep(random.uniform(0, 0.02))
            process.kill()
    found = [read_trace(p) for p in find_traces([traces])]
    assert len(found) >= 20
    for trace in found:
        assert trace.notes == []
        rounds = len(trace.problems)
        assert len(trace.launches) in range(3 * rounds, 3 * rounds + 4)
        assert len(trace.lookups) in range(2 * rounds, 2 * rounds + 3)
        assert [x.hit for x in trace.lookups[: 2 * rounds]] == [True, False] * rounds
    assert max(len(t.launches) for t in found) > 100
