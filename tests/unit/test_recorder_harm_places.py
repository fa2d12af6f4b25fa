"""Folders, files and descriptors that are missing, refused, planted or taken away."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.harming import Harm, harm, standins, traces
from support.standins import Ran, Standins, python

from kdbtool.shim.trace import find_traces, read_trace

__all__ = ["harm", "standins", "traces"]  # fixtures


def shell(harm: Harm, traces: Path | None, script: str) -> Ran:
    return harm.standins.run(traces, "/bin/sh", "-c", script, harm.program, env=harm.env(None))


@pytest.mark.parametrize(("script", "kept"), [
    ('exec "$0" launch 500 <&- >&- 2>&-', 500),
    ('ulimit -n 16; exec "$0" threads 8 2500', 20_000),
    ('export HOME=/nonexistent TMPDIR=/nonexistent; exec "$0" launch 500', 500),
    ('unset HOME TMPDIR; exec "$0" launch 500', 500),
    ('d=$(mktemp -d); cd "$d"; rmdir "$d"; exec "$0" launch 500', 500),
    ('ulimit -s 64; exec "$0" launch 500', 500),
])  # fmt: skip
def test_poor_world(harm: Harm, traces: Path, script: str, kept: int) -> None:
    plain, ran = shell(harm, None, script), shell(harm, traces, script)
    assert (ran.code, ran.out, ran.err) == (plain.code, plain.out, plain.err)
    assert (ran.code, len(ran.trace.launches), ran.trace.notes) == (0, kept, [])


@pytest.mark.parametrize("folder", ["/nonexistent", "/proc", "/dev/null", "/proc/self/mem", "x" * 5000, "."])
def test_no_trace_can_be_made(harm: Harm, tmp_path: Path, folder: str) -> None:
    command = (harm.program, "launch", 100)
    if folder == ".":
        folder = str(tmp_path / "file")
        Path(folder).write_text("")
    ran = harm.standins.run(None, *command, env=harm.env(None))
    env = {"KDBTOOL_TRACE_DIR": folder, "LD_PRELOAD": str(harm.standins.recorder)}
    other = harm.standins.run(None, *command, env=harm.env(env))
    assert (other.code, other.out, other.err) == (ran.code, ran.out, ran.err)


def in_between(standins: Standins, traces: Path, act: str, **env: str) -> Ran:
    """A Python host that does `act` to `folder` and `first`, its trace, between two sets of launches."""
    code = f"""
import ctypes, os, pathlib, shutil
folder = pathlib.Path({str(traces)!r})
user = ctypes.CDLL({str(standins.folder / "libuser1.so")!r})
user.g(10)
(first,) = folder.iterdir()
{act}
print(user.g(400_000))
"""
    ran = standins.run(traces, *python(code), env=env)
    assert (ran.code, ran.out, ran.err) == (0, "401010\n", "")
    return ran


def test_folder_vanishes(standins: Standins, traces: Path) -> None:
    in_between(standins, traces, "shutil.rmtree(folder)")
    assert not traces.exists()


def test_folder_is_moved(standins: Standins, traces: Path, tmp_path: Path) -> None:
    in_between(standins, traces, f"folder.rename({str(tmp_path / 'moved')!r})")
    (trace,) = [read_trace(p) for p in find_traces([tmp_path / "moved"])]
    assert len(trace.launches) > 1000
    assert "recording stopped: no such file or directory" in trace.notes


@pytest.mark.parametrize("suffix", [".kdbtrace", ".kdbtrace.part"])
def test_symlink_at_the_next_part_s_name(
    standins: Standins, traces: Path, tmp_path: Path, suffix: str
) -> None:
    """Nothing is written through it."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    act = f"(folder / (first.stem + '.1{suffix}')).symlink_to({str(victim)!r})"
    ran = in_between(standins, traces, act, KDBTOOL_TRACE_LIMIT=f"{1 << 20}:rotate")
    assert victim.read_text() == "mine"
    planted = suffix == ".kdbtrace.part"
    assert planted == any("recording stopped: file exists" in n for t in ran.traces for n in t.notes)
    assert sum(len(t.launches) for t in ran.traces) > 10_000


def test_symlink_in_the_trace_s_place(standins: Standins, traces: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    act = f"first.rename(folder.parent / 'kept.kdbtrace'); first.symlink_to({str(victim)!r})"
    ran = in_between(standins, traces, act + "; import atexit; atexit.register(first.unlink)")
    assert (victim.read_text(), ran.traces) == ("mine", [])
    assert len(read_trace(tmp_path / "kept.kdbtrace").launches) > 1000


def preload(tmp_path: Path, code: str) -> str:
    source, target = tmp_path / "refuse.c", tmp_path / "refuse.so"
    source.write_text("#include <errno.h>\n#include <sys/types.h>\n" + code)
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", target], check=True)
    return str(target)


def test_rename_fails(harm: Harm, traces: Path, tmp_path: Path) -> None:
    refuse = preload(tmp_path, "int rename(const char *a, const char *b) { errno = EIO; return -1; }")
    ran = harm.standins.run(traces, harm.program, "launch", 10, env=harm.env(None), after=refuse)
    assert (ran.code, ran.out, ran.err, list(traces.iterdir())) == (0, "0\n10 launches\n", "", [])


@pytest.mark.parametrize("error", ["EOPNOTSUPP", "ENOSYS", "EPERM", "EINVAL"])
def test_file_system_without_fallocate(harm: Harm, traces: Path, tmp_path: Path, error: str) -> None:
    refuse = preload(tmp_path, f"int posix_fallocate(int f, off_t a, off_t b) {{ return {error}; }}")
    command = (harm.program, "threads", 8, 5000)
    ran = harm.standins.run(traces, *command, env=harm.env(None), after=refuse)
    assert (ran.code, len(ran.trace.launches), ran.trace.notes) == (0, 40_000, [])


def test_clock_that_is_set_back(harm: Harm, traces: Path, tmp_path: Path) -> None:
    """Each process starts earlier than the one before: no name is used twice."""
    for second in (3000, 2000, 2000, 1000):
        code = f"""#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>
int clock_gettime(clockid_t clock, struct timespec *t) {{
    if (clock != CLOCK_REALTIME) return (int)syscall(SYS_clock_gettime, clock, t);
    t->tv_sec = {second}; t->tv_nsec = 0; return 0;
}}"""
        harm.standins.run(
            traces, harm.program, "launch", 3, env=harm.env(None), after=preload(tmp_path, code)
        )
    found = [read_trace(p) for p in find_traces([traces])]
    assert sorted(t.facts.start_ns // 10**9 for t in found) == [1000, 2000, 2000, 3000]
    assert {len(t.launches) for t in found} == {3}


@pytest.mark.skipif(os.getuid() != 0, reason="mounts a small tmpfs")
def test_room_of_a_removed_part_is_given_back(standins: Standins, traces: Path) -> None:
    """A thread at rest keeps a block of it mapped: the other blocks are free, and the disk is not full."""
    code = f"""
import ctypes, os, subprocess, threading
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1400k", "tmpfs", {str(traces)!r}], check=True)
user = ctypes.CDLL({str(standins.folder / "libuser1.so")!r})
def rest():
    user.g(5)
    threading.Event().wait()
for i in range(12):
    threading.Thread(target=rest, daemon=True).start()
    user.g(60_000)
import pathlib, shutil
for path in pathlib.Path({str(traces)!r}).glob("*.kdbtrace"):
    shutil.copy(path, {str(traces.parent)!r})
print("done", flush=True); os._exit(0)
"""
    env = {"KDBTOOL_TRACE_DIR": str(traces), "KDBTOOL_TRACE_LIMIT": f"{1 << 20}:rotate"}
    ran = standins.run(traces.parent, "/usr/bin/unshare", "--mount", *python(code), env=env)
    assert ran.out == "done\n", ran.err
    assert not [n for t in ran.traces for n in t.notes if "stopped" in n]
    removed = [int(n.split()[0]) for t in ran.traces for n in t.notes if "removed" in n]
    assert max(removed) + sum(len(t.launches) for t in ran.traces) == 12 * 60_005
