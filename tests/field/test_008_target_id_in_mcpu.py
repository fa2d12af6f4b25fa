"""Field case 8 (MIOpen#2309), the part of verify: `-mcpu=gfx90a:sramecc+:xnack-` is never asked for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.amdgpu_elf import code_object
from support.kdb_files import make, row


def test_008(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    data = code_object("gfx90a", xnack="off", sramecc="on")
    other = code_object("gfx90a", kernels=("other",), xnack="any", sramecc="any")
    rows = [
        row(b"naive_conv.cpp.o", b" -DA=1 -mcpu=gfx90a:sramecc+:xnack-", data),
        row(b"naive_conv.cpp.o", b" -DA=1 -mcpu=gfx90a", other),
    ]
    done = run_cli("verify", make(tmp_path / "gfx90a.kdb", rows))
    assert done.code == 1
    assert "unreachable-target-id" in done.out and "twin" in done.out
