"""Field case 11 (MIOpen#2293, #5621), the part of verify: no -mcpu is legal for `.mlir` alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.amdgpu_elf import code_object
from support.kdb_files import make, row


def test_011(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    args = b" --operation conv2d --kernel_id 0 --num_cu 36 --arch amdgcn-amd-amdhsa:gfx1030"
    path = make(tmp_path / "gfx1030.kdb", [row(b"mlir_gen_igemm_conv2d.mlir.o", args)])
    assert run_cli("verify", path).code == 0
    assert "mlir 1" in run_cli("info", path).out
    path = make(tmp_path / "gfx1030_36.kdb", [row(b"naive_conv.cpp.o", args)])
    assert "unreachable-no-mcpu" in run_cli("verify", path).out


def test_011_its_object_is_for_the_files_architecture(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    """MIOpen asks with such a key on every device: an object for another one would throw."""
    foreign = row(b"mlir_gen_igemm_conv2d.mlir.o", b" --operation conv2d", code_object("gfx906"))
    done = run_cli("verify", make(tmp_path / "gfx1030.kdb", [foreign]))
    assert done.code == 1 and "elf-arch" in done.out
    assert run_cli("verify", "--arch", "gfx906", tmp_path / "gfx1030.kdb").code == 0
