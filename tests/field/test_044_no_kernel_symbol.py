"""Field case 44 (MIOpen, conv_direct_naive_conv.cpp): a valid ELF without a kernel, its hash right."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.amdgpu_elf import code_object
from support.kdb_files import make, row
from support.rebuild_bench import GOOD, Bench, bench

from kdbtool.codeobject import check_object
from kdbtool.kdb.reader import open_kdb

__all__ = ["bench"]  # a fixture
EMPTY = code_object("gfx906", kernels=(), xnack="off", sramecc="any")


def test_044(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    path = make(tmp_path / "gfx906.kdb", [row(b"naive_conv_gcn.s.o", b" -mcpu=gfx906", EMPTY)])
    done = run_cli("verify", path)
    assert done.code == 1 and "problem no-kernels" in done.out and "row 1 naive_conv_gcn.s.o" in done.out


def test_044_a_builder_is_told() -> None:
    """What rebuild asks before it publishes a row."""
    assert "no-kernels" in [
        f.code.code for f in check_object(EMPTY, "gfx906", "gfx906:xnack-") if f.is_problem
    ]


def test_044_fix_leaves_the_row_out(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    rows = [
        row(b"naive_conv_gcn.s.o", b" -mcpu=gfx906", EMPTY),
        row(args=b" -mcpu=gfx906", data=code_object("gfx906", xnack="any", sramecc="any")),
    ]
    (tmp_path / "new").mkdir()
    done = run_cli("fix", make(tmp_path / "gfx906.kdb", rows), "-o", tmp_path / "new" / "gfx906.kdb")
    assert done.code in (0, 1) and "no-kernels" in done.out + done.err
    with open_kdb(tmp_path / "new" / "gfx906.kdb") as reader:
        assert [r.name for r in reader] == [b"MIOpenSoftmax.cl.o"]


def test_044_a_compiler_that_makes_such_an_object_fails_the_row(bench: Bench) -> None:
    (bench.compiler.parent / "object").write_bytes(code_object("gfx942", kernels=(), xnack="off"))
    done = bench.rebuild([GOOD])
    assert done.code == 1 and "bad-object" in done.out + done.err
    assert "no-kernels" in done.err and not bench.output.exists()
