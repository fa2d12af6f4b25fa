"""What traces know of kernels: launches, compile times, objects, joined with the keys that they are of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support import kdb_files
from support.amdgpu_elf import code_object
from support.kernel_traces import asked, compiled, driver, loaded, program

from kdbtool.inputs import each_input
from kdbtool.manifest.choose_usage import Usage, Use, kernel_of

CPU = b" -mcpu=gfx1030"
ONCE = b" -DX=1 -DMIOPEN_USE_FP16=0 -DMIOPEN_USE_RNE_BFLOAT16=1"
A, B, GEMM = code_object(kernels=["a"]), code_object(kernels=["b"]), code_object(kernels=["gemm"])
KEY_A = kernel_of(b"a.cl.o", CPU, "gfx1030")
KEY_B = kernel_of(b"b.cl.o", b" -DX=1" + CPU, "gfx1030")


def usage(*paths: Path) -> Usage:
    out = Usage()
    for path in paths:
        for source in each_input(path):
            out.add_input(source)
    out.finish()
    return out


def test_a_hit_is_the_next_load_of_its_thread_and_rocblas_is_nobodys(tmp_path: Path) -> None:
    trace = program(
        tmp_path / "a.kdbtrace",
        [*asked(10, b"a.cl.o", CPU, hit=True, at=3000), *loaded(20, A, 3, at=3100),
         *loaded(30, GEMM, 9, at=3200)],
        [*asked(40, b"b.cl.o", b" -DX=1" + CPU, hit=True, at=3050), *loaded(50, B, 5, at=3060)],
    )  # fmt: skip
    found = usage(trace)
    assert found.kernels == {KEY_A: Use(3, size=len(A)), KEY_B: Use(5, size=len(B))}
    assert (found.launches, found.traces, found.used) == (17, 1, {KEY_A, KEY_B})


def test_a_miss_is_joined_only_over_a_compile_of_its_source(tmp_path: Path) -> None:
    unbuilt = asked(10, b"c.s.o", CPU, hit=False, at=3000)
    other = compiled(b"other.cl", at=3050, duration=7)
    rest = loaded(20, GEMM, 9, at=3100)
    mine = [
        *asked(40, b"a.cl.o", CPU, hit=False, at=4000),
        compiled(b"a.cl", at=4010, duration=500),
        compiled(b"a.cl", at=4020, duration=300, nested=1),
    ]
    found = usage(
        program(tmp_path / "a.kdbtrace", [*unbuilt, other, *rest, *mine, *loaded(50, A, 2, at=5000)])
    )
    assert found.kernels == {KEY_A: Use(2, 500, 1, len(A))}
    assert kernel_of(b"c.s.o", CPU, "gfx1030") in found.asked and found.timed


def test_compilers_processes_are_told_apart_by_their_options(tmp_path: Path) -> None:
    def thread(number: int, args: bytes, data: bytes, launches: int) -> list[bytes]:
        return [
            *asked(number, b"a.cl.o", args + CPU, hit=False, at=3000),
            *loaded(number + 10, data, launches, at=9000),
        ]

    program(tmp_path / "p.kdbtrace", thread(10, b" -DX=1", A, 1), thread(40, b" -DX=2", B, 2))
    driver(tmp_path / "c1.kdbtrace", b"a.cl", b"-DX=2\0", at=4000, took=20)
    driver(tmp_path / "c2.kdbtrace", b"a.cl", b"-DX=1\0", at=4000, took=10)
    driver(tmp_path / "late.kdbtrace", b"a.cl", b"-DX=1\0", at=9500, took=999)
    driver(tmp_path / "foreign.kdbtrace", b"a.cl", b"-DX=1\0", at=4000, took=999, starter=55)
    found = usage(tmp_path)
    assert found.kernels == {
        kernel_of(b"a.cl.o", b" -DX=1" + CPU, "gfx1030"): Use(1, 10, 1, len(A)),
        kernel_of(b"a.cl.o", b" -DX=2" + CPU, "gfx1030"): Use(2, 20, 1, len(B)),
    }


def test_both_spellings_are_one_kernel(tmp_path: Path) -> None:
    list_ = b" -DMIOPEN_USE_FP16=0 -DMIOPEN_USE_RNE_BFLOAT16=1"
    found = usage(
        program(
            tmp_path / "a.kdbtrace",
            [*asked(10, b"n.cpp.o", ONCE + CPU, hit=True, at=3000), *loaded(20, A, 3, at=3100),
             *asked(40, b"n.cpp.o", ONCE + list_ + CPU, hit=True, at=4000), *loaded(50, A, 4, at=4100)],
        )
    )  # fmt: skip
    assert found.kernels == {kernel_of(b"n.cpp.o", ONCE + CPU, "gfx1030"): Use(7, size=len(A))}


def test_what_was_loaded_before_is_known_by_another_part_or_a_database(tmp_path: Path) -> None:
    program(
        tmp_path / "0.kdbtrace", [*asked(10, b"a.cl.o", CPU, hit=True, at=3000), *loaded(20, A, 3, at=3100)]
    )
    program(tmp_path / "1.kdbtrace", loaded(20, A, 4, at=9100, before=True), part=1)
    assert usage(tmp_path).kernels == {KEY_A: Use(7, size=len(A))}
    program(tmp_path / "static.kdbtrace", loaded(20, B, 6, at=3100), pid=5)
    kdb = kdb_files.make(tmp_path / "gfx1030.kdb", [kdb_files.row(b"b.cl.o", b" -DX=1" + CPU, B)])
    found = usage(tmp_path, kdb)
    assert found.kernels[KEY_B] == Use(6, size=len(B)) and KEY_B in found.used
    assert KEY_B in found.packed and KEY_A not in found.packed


def test_used_by_takes_traces_alone(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    kdb = kdb_files.make(tmp_path / "gfx1030.kdb")
    for bad, text in ((kdb, "not a trace"), (tmp_path / "none", "no such file"), (tmp_path, "no trace")):
        ended = run_cli("manifest", kdb, "--used-by", bad)
        assert ended.code == 2 and text in ended.err.lower() and ended.err.count("\n") == 1
        assert ended.out == ""
