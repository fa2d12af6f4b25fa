"""Faults that a review of the recorder found; each test is named for one."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from support.standins import NO_DESCRIPTORS, C, Standins, compile_standin, python, same, standins, traces

from kdbtool.shim._trace import ffi, lib
from kdbtool.shim.trace_file import Reader

__all__ = ["standins", "traces"]  # fixtures


def test_another_preloads_dlsym_was_passed_over(standins: Standins, traces: Path) -> None:
    code = python("import ctypes; print(ctypes.CDLL(None).no_such_symbol())")
    after = str(standins.folder / "libdlsym.so")
    plain = standins.run(None, *code, after=after)
    ran = standins.run(traces, *code, after=after)
    assert (ran.code, ran.out, ran.err) == (plain.code, plain.out, plain.err) == (0, "4711\n", "")
    recorded = standins.run(traces, "loader", "dlopen", after=after)
    assert (recorded.out, len(recorded.trace.launches)) == (same(standins, traces, "loader", "dlopen").out, 3)


def test_blocks_could_not_be_mapped_on_64k_pages(standins: Standins, traces: Path) -> None:
    ran = standins.run(traces, "linked", "threads", 5, 20_000, after=str(standins.folder / "libpages.so"))
    assert (ran.code, ran.out) == (0, "100000\n")
    assert (len(ran.trace.launches), ran.trace.notes) == (100_000, [])
    assert ran.trace.launches.by_kernel() == {"thread_kernel": 100_000}


def test_events_before_the_file_were_not_counted(standins: Standins, traces: Path) -> None:
    """No descriptor is left when the first event comes."""
    code = f"""
import ctypes, os, resource
user = ctypes.CDLL({str(standins.folder / "libuser1.so")!r})
{NO_DESCRIPTORS}
user.g(10)
for fd in held: os.close(fd)
user.g(10)
"""
    trace = standins.run(traces, *python(code)).trace
    assert len(trace.launches) == 10
    assert trace.notes == ["12 events that could not be recorded"]  # a module, a function, ten launches


@pytest.mark.skipif(os.getuid() != 0, reason="hides /proc")
def test_errno_of_a_program_without_proc(standins: Standins, traces: Path) -> None:
    program = str(standins.folder / "linked")
    script = ("-c", f"mount -t tmpfs none /proc && exec {program} errno")
    ran = standins.run(traces, "/usr/bin/unshare", "--mount", "/bin/sh", *script)
    assert (ran.out, ran.err) == ("0\n", "")


def test_two_copies_of_the_recorder(standins: Standins, traces: Path, tmp_path: Path) -> None:
    """As when a wheel and a package are both preloaded: two traces, and the program as it was."""
    copy = tmp_path / "copy.so"
    shutil.copy(standins.recorder, copy)
    for how in (("linked", "linked"), ("loader", "dlopen")):
        ran = standins.run(traces, *how, after=str(copy))
        assert (ran.code, ran.out, ran.err) == (0, standins.run(None, *how).out, "")
        assert all(len(t.launches) == 3 for t in ran.traces)


def test_recorder_stays_where_its_thread_ends(standins: Standins, traces: Path) -> None:
    """Opened and closed again, it left a destructor for threads in memory that was gone."""
    code = f"""
import _ctypes, ctypes, threading
recorder = ctypes.CDLL({str(standins.recorder)!r})
def work(): recorder.hipModuleLaunchKernel(None, 1, 1, 1, 1, 1, 1, 0, None, None, None)
thread = threading.Thread(target=work)
_ctypes.dlclose(recorder._handle)
thread.start(); thread.join()
print("here")
"""
    ran = standins.run(None, *python(code), env={"KDBTOOL_TRACE_DIR": str(traces)})
    assert (ran.code, ran.out) == (0, "here\n")


def test_target_cut_where_the_image_is_read_in_pieces(standins: Standins, traces: Path) -> None:
    """The name of a target may lie across two reads of 64 KiB."""
    for at in (65536 - 12, 65536 - 24, 65536, 1000):
        text = b"\0amdgcn-amd-amdhsa--gfx1030\0"
        image = bytearray(70_000)
        image[:7] = b"\x7fELF\x02\x01\x01"
        image[at : at + len(text)] = text
        image[40:48] = struct.pack("<Q", len(image))  # e_shoff: the end, with no sections
        image[58:62] = struct.pack("<HH", 64, 0)
        image[32:40] = struct.pack("<Q", 64)
        image[54:58] = struct.pack("<HH", 56, 1)
        image[64:120] = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, len(image), len(image), 4096)
        file = traces / f"{at}.hsaco"
        file.write_bytes(image)
        code = f"""
import ctypes
hip = ctypes.CDLL({str(standins.folder / "libamdhip64.so.6")!r})
hip.hipModuleLoadData(ctypes.byref(ctypes.c_void_p()), open({str(file)!r}, "rb").read())
"""
        (module,) = standins.run(traces, *python(code)).traces[-1].modules
        assert module.size == 70_000
        assert module.target in ("gfx1030", None)
        for trace in traces.glob("*.kdbtrace"):
            trace.unlink()


@pytest.mark.parametrize(("size", "hashed"), [(4 << 20, True), ((4 << 20) + 1, False)])
def test_md5_of_a_librarys_own_collection_was_most_of_a_run(
    standins: Standins, traces: Path, size: int, hashed: bool
) -> None:
    """rocBLAS loads files of 20 MB; a row of a kdb has some 100 KB."""
    image = (b"\x7fELF\x02\x01\x01" + bytes(57) + b"amdgcn-amd-amdhsa--gfx1030\0").ljust(size, b"x")
    file = traces / "collection.co"
    file.write_bytes(image)
    code = f"""
import ctypes
hip = ctypes.CDLL({str(standins.folder / "libamdhip64.so.6")!r})
hip.hipModuleLoad(ctypes.byref(ctypes.c_void_p()), {str(file)!r}.encode())
"""
    modules = standins.run(traces, *python(code)).trace.modules
    (module,) = [one for one in modules if one.source == "file"]
    assert (module.size, module.target) == (size, "gfx1030")
    assert module.md5 == (hashlib.md5(image).hexdigest() if hashed else "")


def test_header_says_how_long_the_file_is(standins: Standins, traces: Path) -> None:
    """A trace cut between two blocks lacked whole threads, and nothing said so."""
    ran = standins.run(traces, "linked", "threads", 3, 5000)
    path = ran.trace.path
    assert ran.trace.notes == []
    assert (
        path.stat().st_size == ffi.cast("struct kdbt_header *", ffi.from_buffer(path.read_bytes())).file_bytes
    )


def test_sanitized_program_fell_over_its_first_dlsym(
    standins: Standins, traces: Path, tmp_path: Path
) -> None:
    """AddressSanitizer looks for its functions before its own strcmp works."""
    libraries = [str(standins.folder / f"lib{n}") for n in ("MIOpen.so.1", "amdhip64.so.6", "sqlite3.so.0")]
    compiler = shlex.split(os.environ.get("CC", "gcc"))
    options = ["-fsanitize=address", "-D_GNU_SOURCE", "-DLINKED", "-pthread", "-o", str(tmp_path / "host")]
    command = [*compiler, *options, str(C / "host.c"), *libraries]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("this compiler has no AddressSanitizer")
    env = {"ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}
    ran = same(standins, traces, tmp_path / "host", "threads", 3, 400, env=env)
    assert (ran.code, ran.out, len(ran.trace.launches)) == (0, "1200\n", 1200)


def test_shapes_of_one_slot_were_a_record_a_launch(standins: Standins, traces: Path) -> None:
    """Many shapes in turn, by two threads: each is written once, and a launch is eight bytes."""
    code = f"""
import ctypes, threading
hip = ctypes.CDLL({str(standins.folder / "libamdhip64.so.6")!r})
def work():
    for _ in range(20):
        for shape in range(1500):
            hip.hipModuleLaunchKernel(ctypes.c_void_p(64 + shape % 7), shape, *[1] * 5, 0, None, None, None)
threads = [threading.Thread(target=work) for _ in range(2)]
for t in threads: t.start(); t.join()
"""
    trace = standins.run(traces, *python(code)).trace
    assert (len(trace.launches), trace.notes) == (60_000, [])
    grids = [x.grid[0] for x in trace.launches]
    assert grids == list(range(1500)) * 40
    reader = Reader(trace.path, trace.path.read_bytes())
    reader.read()
    records = [r for blocks in reader.threads.values() for _, block in blocks for r in block]
    assert sum(r.type == lib.KDBT_SHAPE for r in records) == 1500


@pytest.mark.parametrize("early", [True, False])
def test_one_library_spoke_with_two_hips(
    standins: Standins, traces: Path, tmp_path: Path, early: bool
) -> None:
    """A HIP that is global before a library with another one is loaded gets all of its calls."""
    hip, user = tmp_path / "libamdhip64.so.7", tmp_path / "libuser7.so"
    names = ["-Wl,-soname,libamdhip64.so.7", f"-Wl,--version-script={C}/hip.map"]
    compile_standin(hip, "hip.c", "-DTAG=7", *names)
    compile_standin(user, "user.c", "-DTAG=7", str(hip))
    first = f"hip = ctypes.CDLL({str(standins.folder / 'libamdhip64.so.6')!r}, ctypes.RTLD_GLOBAL)"
    second = f"user = ctypes.CDLL({str(user)!r})"
    lines = ["import ctypes", *([first, second] if early else [second, first])]
    ran = same(standins, traces, *python("; ".join([*lines, "print(user.g(2), hip.standin_launches())"])))
    assert ran.out == ("1002 2\n" if early else "7002 0\n")
    assert len(ran.trace.launches) == 2
