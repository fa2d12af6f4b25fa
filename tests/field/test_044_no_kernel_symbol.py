"""Field case 44 (MIOpen, conv_direct_naive_conv.cpp): a valid ELF without a kernel, its hash right."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.amdgpu_elf import code_object
from support.kdb_files import make, row

from kdbtool.codeobject import check_object

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
