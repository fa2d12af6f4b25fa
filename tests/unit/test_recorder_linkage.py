"""Every way into HIP, MIOpen and SQLite: seen, unchanged, forwarded to the right library."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from support.standins import Ran, Standins, python, same, standins, traces

__all__ = ["standins", "traces"]  # fixtures

IMAGE = bytes([0x7F, 0x45, 0x4C, 0x46, 2, 1, 1]) + bytes(57)
KEY = "8-16-16-3x3-4-16-16-2-1x1-1x1-1x1-0-NCHW-FP32-F_g2"
HIT, MISS = (b"a.cl.o", b" -DHIT=1  -mcpu=gfx1030"), (b"b.cl.o", b"-DMISS=1 -mcpu=gfx1030")


def check_whole(ran: Ran) -> None:
    """What one convolution of the stand-in MIOpen leaves in a trace."""
    trace = ran.trace
    assert trace.notes == []
    assert [(x.name, x.args, x.hit) for x in trace.lookups] == [(*HIT, True), (*MISS, False)]
    assert [x.databases for x in trace.lookups] == [("/user.ukdb", "/system.kdb")] * 2
    (problem,) = trace.problems
    assert (problem.key, problem.api, problem.direction) == (KEY, "miopenConvolutionForward", "F")
    assert (problem.algorithm, problem.result) == (2, 42)
    (module,) = trace.modules
    assert (module.md5, module.size, module.source) == (hashlib.md5(IMAGE).hexdigest(), 64, "memory")
    launches = list(trace.launches)
    assert [(x.kernel, x.grid, x.block, x.lds, x.form) for x in launches] == [
        ("kernel_a", (2, 2, 1), (256, 1, 1), 64, "ext")
    ] * 3
    assert launches[0].module == module
    assert launches[0].time_ns <= launches[1].time_ns <= launches[2].time_ns
    assert trace.facts.miopen_version == "3.4.0"
    assert trace.facts.miopen_build_id == "0123456789abcdef"
    assert trace.facts.miopen_path is not None and trace.facts.miopen_path.endswith("libMIOpen.so.1")


def test_linked(standins: Standins, traces: Path) -> None:
    ran = same(standins, traces, "linked", "linked")
    assert ran.out == "42 3\n"
    check_whole(ran)


@pytest.mark.parametrize("how", ["dlsym", "dlvsym"])
def test_dlopen_local(standins: Standins, traces: Path, how: str) -> None:
    ran = same(standins, traces, "loader", how)
    assert ran.out == "42 3 - no no\n"
    check_whole(ran)


def test_hip_get_proc_address(standins: Standins, traces: Path) -> None:
    ran = same(standins, traces, "loader", "proc-address")
    assert ran.out == "0 0 1\n"
    assert len(ran.trace.launches) == 1


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
@pytest.mark.parametrize("first_mode", ["RTLD_LOCAL", "RTLD_GLOBAL"])
def test_two_hip_runtimes_each_get_their_own(
    standins: Standins, traces: Path, order: tuple[int, int], first_mode: str
) -> None:
    paths = {1: standins.folder / "libuser1.so", 2: standins.folder / "other" / "libuser2.so"}
    a, b = (str(paths[n]) for n in order)
    code = f"""
import ctypes
first = ctypes.CDLL({a!r}, ctypes.{first_mode})
second = ctypes.CDLL({b!r})
print(second.g(2), first.g(3), second.g(5))
"""
    # The stand-ins share a soname: without LD_LIBRARY_PATH each user finds the one beside it.
    ran = standins.run(traces, *python(code), env={"LD_LIBRARY_PATH": "-"})
    plain = standins.run(None, *python(code), env={"LD_LIBRARY_PATH": "-"})
    assert ran.out == plain.out
    assert len(ran.trace.launches) == 10


def test_two_hip_runtimes_by_dlsym(standins: Standins, traces: Path) -> None:
    code = f"""
import ctypes, os
hips = [ctypes.CDLL(p) for p in ({str(standins.folder / "libamdhip64.so.6")!r}, {str(standins.folder)!r}
        + "/renamed.so")]
f = ctypes.c_void_p(64)
for hip, n in zip(hips, (2, 3)):
    for _ in range(n):
        hip.hipModuleLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, None, None, None)
print([(hip.standin_tag(), hip.standin_launches()) for hip in hips])
"""
    shutil.copy(standins.folder / "other" / "libamdhip64.so.6", standins.folder / "renamed.so")
    ran = same(standins, traces, *python(code))
    assert ran.out == "[(1, 2), (2, 3)]\n"
    assert len(ran.trace.launches) == 5


@pytest.mark.parametrize("place", ["before", "after"])
def test_another_preload(standins: Standins, traces: Path, place: str) -> None:
    """It doubles every launch through RTLD_NEXT, and goes on doing so."""
    wrap = str(standins.folder / "libwrap.so")
    plain = standins.run(None, "linked", "threads", 1, 10, before=wrap)
    ran = standins.run(traces, "linked", "threads", 1, 10, **{place: wrap})  # type: ignore[arg-type]
    assert (ran.code, ran.out) == (plain.code, plain.out) == (0, "20\n")
    assert len(ran.trace.launches) == (20 if place == "before" else 10)


def test_another_preload_is_asked_by_a_library_too(standins: Standins, traces: Path) -> None:
    user, wrap = standins.folder / "libuser1.so", str(standins.folder / "libwrap.so")
    code = python(f"import ctypes; print(ctypes.CDLL({str(user)!r}, ctypes.RTLD_GLOBAL).g(1))")
    ran, plain = standins.run(traces, *code, after=wrap), standins.run(None, *code, after=wrap)
    assert ran.out == plain.out


def test_nothing_used_leaves_no_file(standins: Standins, traces: Path) -> None:
    assert same(standins, traces, "linked", "nothing").traces == []


def test_inert_without_trace_dir(standins: Standins, traces: Path) -> None:
    ran = standins.run(traces, "linked", "linked", env={"KDBTOOL_TRACE_DIR": "-"})
    assert (ran.code, ran.out, ran.traces) == (0, "42 3\n", [])


# -- lookups


def ask(standins: Standins, traces: Path, *keys: str) -> Ran:
    return same(standins, traces, "linked", "ask", *keys)


def test_key_bytes_are_exact(standins: Standins, traces: Path) -> None:
    long = " -DX=1  " + "y" * 30000 + " -mcpu=gfx1030"
    args = ["", " ", "'", "it's", "') AND (kernel_name = 'x", "tab\tü\n;", "a');", long]
    ran = ask(standins, traces, *(word for a in args for word in ("k'ern.o", a)))
    assert [(x.name, x.args) for x in ran.trace.lookups] == [(b"k'ern.o", os.fsencode(a)) for a in args]


def test_outcomes(standins: Standins, traces: Path) -> None:
    ran = ask(
        standins, traces, *(w for a in ("HIT", "BUSY", "BUSY HIT", "WRONG", "NOPREPARE") for w in ("k.o", a))
    )
    assert [(x.args, x.hit, len(x.databases)) for x in ran.trace.lookups] == [
        (b"HIT", True, 2),
        (b"BUSY", False, 2),
        (b"BUSY HIT", True, 2),
        (b"WRONG", None, 1),
        (b"NOPREPARE", None, 1),
    ]


def test_the_same_key_asked_twice_is_two_lookups(standins: Standins, traces: Path) -> None:
    ran = ask(standins, traces, "k.o", "MISS", "k.o", "MISS", "k.o", "HIT", "k.o", "HIT")
    assert [x.hit for x in ran.trace.lookups] == [False, False, True, True]


def test_killed_before_the_step(standins: Standins, traces: Path) -> None:
    ran = standins.run(traces, "linked", "die-unstepped")
    assert ran.code == -signal.SIGKILL
    assert [(x.name, x.hit, x.databases) for x in ran.trace.lookups] == [
        (b"last.cl.o", None, ("/user.ukdb",))
    ]


# -- descriptors


def test_getter_for_a_descriptor_not_seen(standins: Standins, traces: Path) -> None:
    plain = standins.run(None, "linked", "getters")
    ran = standins.run(traces, "linked", "getters")
    assert (plain.out, ran.out) == ("42 0\n", "42 3\n")
    assert [p.key for p in ran.trace.problems] == ["8-16-16-16x16-8-16-16-2-0x0-1x1-1x1-0-NCHW-FP32-F"]


@pytest.mark.parametrize("switch", ["MIOPEN_ENABLE_LOGGING", "MIOPEN_ENABLE_LOGGING_CMD", "MIOPEN_LOG_LEVEL"])
def test_no_getter_while_they_log(standins: Standins, traces: Path, switch: str) -> None:
    ran = same(standins, traces, "linked", "getters", env={switch: "1"})
    assert ran.out == "42 0\n"
    assert ran.trace.problems == []
    assert "1 call of a convolution whose descriptors were set out of sight" in ran.trace.notes


# -- launches


def test_threads(standins: Standins, traces: Path) -> None:
    ran = same(standins, traces, "linked", "threads", 4, 50000)
    assert ran.out == "200000\n"
    assert ran.trace.launches.by_kernel() == {"thread_kernel": 200000}
    per_thread: dict[int, int] = {}
    grids: dict[tuple[int, int, int], int] = {}
    for x in ran.trace.launches:
        per_thread[x.thread] = per_thread.get(x.thread, 0) + 1
        grids[x.grid] = grids.get(x.grid, 0) + 1
    assert sorted(per_thread.values()) == [50000] * 4
    assert grids == {(1, 1, 1): 66668, (2, 1, 1): 66668, (3, 1, 1): 66664}
    assert ran.trace.path.stat().st_size < 200000 * 10 + (4 << 20)  # the last block of each may be empty


def test_a_thousand_threads(standins: Standins, traces: Path) -> None:
    ran = same(standins, traces, "linked", "threads", 1000, 3)
    assert (ran.out, len(ran.trace.launches), ran.trace.notes) == ("3000\n", 3000, [])


def test_one_handle_for_two_kernels(standins: Standins, traces: Path) -> None:
    ran = same(standins, traces, "linked", "reused")
    assert [x.kernel for x in ran.trace.launches] == ["kernel_even", "kernel_odd"] * 2


# -- the list


def test_every_hook_is_documented_and_exported(standins: Standins) -> None:
    """docs/recorder-hooks.md is what scripts/update-hooks writes; the library exports those alone."""
    repo = Path(__file__).resolve().parents[2]
    checked = subprocess.run(
        [sys.executable, str(repo / "scripts/update-hooks"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stderr) == (0, "")
    page = (repo / "docs/recorder-hooks.md").read_text()
    hooks = re.findall(r"^- \[?`(\w+)`\]?$", page, re.M)
    assert len(hooks) > 40
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", standins.recorder], capture_output=True, text=True, check=True
    )
    exported = {line.split()[-1] for line in listed.stdout.splitlines()}
    assert exported == {*hooks, "kdb_audit_anchor"}
    lists = [p.name for p in (repo / "csrc/recorder").glob("hooks_*.def")]
    included = re.findall(r'#include "(\w+\.def)"', (repo / "csrc/recorder/hooks.def").read_text())
    assert sorted(lists) == sorted(included)


def test_what_the_audit_library_reads_is_the_list(standins: Standins) -> None:
    """Assembly counts hooks and names them: no compiler may reorder it (setup.py: -fno-lto)."""
    page = (Path(__file__).resolve().parents[2] / "docs/recorder-hooks.md").read_text()
    hooks = set(re.findall(r"^- \[?`(\w+)`\]?$", page, re.M)) - {
        "dlsym",
        "dlvsym",
        "dlclose",
        "dlopen",
        "dlmopen",
    }
    with standins.recorder.open("rb") as file:
        elf = ELFFile(file)
        (anchor,) = elf.get_section_by_name(".dynsym").get_symbol_by_name("kdb_audit_anchor")
        at, offset = anchor["st_value"], next(iter(elf.address_offsets(anchor["st_value"])))
        file.seek(offset)
        thunks, slots, kept, names, *numbers = struct.unpack("<4q4I", file.read(48))
        assert numbers == [1, len(hooks), 4, 32]
        file.seek(offset + 24 + names)
        listed = file.read(1 << 16).split(b"\0")[: len(hooks)]
        assert {name.decode() for name in listed} == hooks
        symtab = elf.get_section_by_name(".symtab")
        if symtab is None:
            pytest.skip("the recorder is stripped: no symbol says where the tables are")
        symbols = {s.name: s["st_value"] for s in symtab.iter_symbols()}
    assert at + thunks == symbols["kdb_thunks"] and at + 8 + slots == symbols["kdb_slot_real"]
    assert at + 16 + kept == symbols["kdb_slot_kept"]


def test_recorder_needs_libc_alone(standins: Standins) -> None:
    """No C++, no Python, nothing of ROCm; and room for its TLS in any program."""
    listed = subprocess.run(["readelf", "-d", standins.recorder], capture_output=True, text=True, check=True)
    needed = set(re.findall(r"NEEDED.*\[(.+?)\]", listed.stdout))
    assert needed <= {"libc.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2"}
    assert "STATIC_TLS" in listed.stdout
