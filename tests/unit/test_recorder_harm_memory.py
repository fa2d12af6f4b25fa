"""Other mallocs, sanitizers, valgrind, and a kernel that refuses what the recorder asks for."""

from __future__ import annotations

import errno
import os
import platform
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import absent
from support.harming import Harm, harm, number, standins, traces

__all__ = ["harm", "standins", "traces"]  # fixtures

LIBRARIES = Path("/usr/lib") / f"{platform.machine()}-linux-gnu"
MALLOCS = {"jemalloc": "libjemalloc.so.2", "tcmalloc": "libtcmalloc_minimal.so.4"}


def malloc_of(name: str) -> str:
    path = LIBRARIES / MALLOCS[name]
    if not path.exists():
        absent(f"no {path}")
    return str(path)


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("name", MALLOCS)
def test_another_malloc_is_preloaded(harm: Harm, traces: Path, name: str, place: str) -> None:
    command, other = (harm.program, "threads", 20, 500), {place: malloc_of(name)}
    plain = harm.standins.run(None, *command, env=harm.env(None), **other)  # type: ignore[arg-type]
    ran = harm.standins.run(traces, *command, env=harm.env(None), **other)  # type: ignore[arg-type]
    assert (ran.code, ran.out, ran.err) == (plain.code, plain.out, plain.err)
    assert (ran.code, len(ran.trace.launches), ran.trace.notes) == (0, 10_000, [])


@pytest.mark.parametrize("name", MALLOCS)
def test_another_malloc_is_linked(harm: Harm, traces: Path, tmp_path: Path, name: str) -> None:
    program = tmp_path / "harm"
    harm.compile(program, "-Wl,--no-as-needed", malloc_of(name))
    ran = harm.same(traces, "threads", 20, 500, program=program)
    assert (ran.code, len(ran.trace.launches), ran.trace.notes) == (0, 10_000, [])


def test_malloc_that_launches(harm: Harm, traces: Path, tmp_path: Path) -> None:
    """A pool allocator that fills memory on the device: our hooks call no malloc, or this would not end."""
    source, target = tmp_path / "m.c", tmp_path / "m.so"
    source.write_text("""
#include <stddef.h>
extern void *__libc_malloc(size_t);
int hipModuleLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                          void *, void **, void **) __attribute__((weak));
static int here;
void *malloc(size_t n) {
    if (hipModuleLaunchKernel)
        hipModuleLaunchKernel(&here, 77, 1, 1, 1, 1, 1, 0, 0, 0, 0);
    return __libc_malloc(n);
}
""")
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", source, "-o", target], check=True)
    command = (harm.program, "threads", 5, 100)
    plain = harm.standins.run(None, *command, env=harm.env(None), after=str(target))
    ran = harm.standins.run(traces, *command, env=harm.env(None), after=str(target))
    assert (ran.code, ran.out, ran.err) == (plain.code, plain.out, plain.err)
    assert sum(x.grid[0] < 77 for x in ran.trace.launches) == 500
    assert len(ran.trace.launches) + number(ran) >= int(plain.out.split()[0])


def test_malloc_that_asks_a_library_of_another_name(harm: Harm, traces: Path, tmp_path: Path) -> None:
    """hipRTC's functions are in libamdhip64, too: asked from malloc, while resolving, there were none."""
    (tmp_path / "hip.c").write_text("int hiprtcDestroyProgram(void **p) { return p ? 41 : 42; }")
    (tmp_path / "malloc.c").write_text("""
#include <stddef.h>
#include <stdio.h>
extern void *__libc_malloc(size_t);
int hiprtcDestroyProgram(void **);
static int calls, wrong;
void *malloc(size_t n) {
    void *program = 0;
    calls++;
    wrong += hiprtcDestroyProgram(&program) != 41;
    return __libc_malloc(n);
}
void tell(void) {
    printf("%d wrong, one call alone: %d\\n", wrong, calls == 1);
}
""")
    (tmp_path / "host.c").write_text("""
#include <stdlib.h>
void tell(void);
int main(void) {
    free(malloc(1));
    tell();
    return 0;
}
""")
    hip, lib, host = (tmp_path / name for name in ("libamdhip64.so.5", "libm.so", "host"))
    make = ["gcc", "-O1", "-fno-builtin", f"-Wl,-rpath,{tmp_path}"]
    for target, *sources in ((hip, "hip.c"), (lib, "malloc.c", hip)):
        words = [tmp_path / source for source in sources]
        subprocess.run(
            [*make, "-shared", "-fPIC", "-o", target, f"-Wl,-soname,{target.name}", *words], check=True
        )
    subprocess.run([*make, "-o", host, tmp_path / "host.c", lib], check=True)
    ran = harm.standins.run(traces, host, env=harm.env(None))
    assert (ran.code, ran.out, ran.err) == (0, "0 wrong, one call alone: 0\n", "")


@pytest.mark.parametrize(("options", "env"), [
    (["-fsanitize=address"], {"ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}),
    (["-fsanitize=address", "-static-libasan"], {"ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"}),
    (["-fsanitize=undefined", "-fno-sanitize-recover"], {}),
    (["-fsanitize=thread"], {}),
], ids=["asan", "asan-static", "ubsan", "tsan"])  # fmt: skip
def test_sanitized_host(
    harm: Harm, traces: Path, tmp_path: Path, options: list[str], env: dict[str, str]
) -> None:
    program = tmp_path / "harm"
    try:
        harm.compile(program, *options)
    except subprocess.CalledProcessError:
        pytest.skip(f"{shlex.join([os.environ.get('CC', 'gcc'), *options])} does not link here")
    plain = harm.standins.run(None, program, "launch", 100, env=harm.env(env))
    if plain.code:
        pytest.skip(f"does not run here: {plain.err[:200]}")
    ran = harm.same(traces, "launch", 5000, env=env, program=program)
    assert (ran.code, len(ran.trace.launches), ran.trace.notes) == (0, 5000, [])
    ran = harm.same(traces, "destructors", env=env, program=program)
    assert (ran.code, ran.out.split()[-2]) == (0, "41")


def test_valgrind_finds_nothing_new(harm: Harm, traces: Path) -> None:
    if not shutil.which("valgrind"):
        absent("no valgrind")
    for argv in (("destructors",), ("launch", 3000), ("jump-out",)):
        command = ("/usr/bin/valgrind", "-q", "--error-exitcode=9", harm.program, *argv)
        plain = harm.standins.run(None, *command, env=harm.env(None))
        ran = harm.standins.run(traces, *command, env=harm.env(None))
        assert (ran.code, ran.out, ran.err) == (plain.code, plain.out, plain.err)
        assert ran.code == 0
    assert {len(t.launches) for t in ran.traces} == {41, 3000, 200}


CALLS = {"open": 2, "openat": 257, "mmap": 9, "fallocate": 285, "process_vm_readv": 310, "ftruncate": 77,
         "getrandom": 318, "rename": 82, "madvise": 28, "munmap": 11, "sigaltstack": 131, "fstat": 5,
         "newfstatat": 262, "gettid": 186, "pwrite64": 18, "sched_yield": 24}  # fmt: skip


@pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of x86-64's system calls")
@pytest.mark.parametrize("error", [errno.ENOMEM, errno.EPERM, errno.ENOSYS])
def test_system_call_that_seccomp_refuses(harm: Harm, traces: Path, error: int) -> None:
    """The program runs as it did; what is recorded is whole, and what is not is told where there is a place
    to tell it."""
    for name, call in CALLS.items():
        folder = traces / name
        folder.mkdir()
        ran = harm.same(folder, "refuse", call, error)
        assert (ran.code, ran.out) == (0, "0\n20000 launches\n"), name
        kept = sum(len(t.launches) for t in ran.traces)
        lost = number(ran)
        notes = [n for t in ran.traces for n in t.notes if "recorded" not in n and "stopped" not in n]
        assert notes == [], name
        if ran.traces and name not in ("open", "openat", "mmap", "fallocate"):
            assert (kept, lost) == (20_000, 0), name
        elif ran.traces:
            assert 20_000 <= kept + lost <= 20_003, (name, kept, lost)


def test_stack_that_a_hook_takes(harm: Harm, tmp_path: Path) -> None:
    """No function of the recorder has a frame that a thread of 16 KiB would feel."""
    repo = Path(__file__).resolve().parents[2]
    if shutil.which("gcc") is None or "clang" in os.environ.get("CC", ""):
        pytest.skip("gcc's -fstack-usage")
    # child.c runs in the constructor of a compiler's process alone, on its main stack
    sources = sorted(set((repo / "csrc/recorder").glob("*.c")) - {repo / "csrc/recorder/child.c"})
    command = ["gcc", "-O2", "-fPIC", "-std=c11", "-fstack-usage", "-I", repo / "csrc", "-c", *sources]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    frames = {}
    for report in tmp_path.glob("*.su"):
        for line in report.read_text().splitlines():
            place, size, _ = line.split("\t")
            frames[place.split(":", 1)[0] + ":" + place.rsplit(":", 1)[1]] = int(size)
    large = {k: n for k, n in frames.items() if n > 8192}
    assert large == {}
