"""Field case 22 (MIOpen#1204): `gfx900:sramecc-:xnack-`; gfx900 has no sramecc."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.amdgpu_elf import code_object
from support.kdb_files import make, row

TARGET = "gfx900:sramecc-:xnack-"


@pytest.mark.parametrize(
    "command", [["record", "--simulate", TARGET, "--", "true"], ["verify", "--arch", TARGET, "x.kdb"]]
)
def test_022_on_the_command_line(command: list[str], run_cli: Callable[..., Any]) -> None:
    done = run_cli(*command)
    assert done.code == 2 and done.err.count("\n") == 1
    assert "gfx900 has no sramecc" in done.err and "its features: xnack" in done.err


def test_022_in_a_key(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    data = code_object("gfx900", xnack="any")
    path = make(tmp_path / "gfx900.kdb", [row(args=f" -mcpu={TARGET}".encode(), data=data)])
    done = run_cli("verify", path)
    assert done.code == 1 and "unreachable-target-id" in done.out
    assert "gfx900 has no sramecc, its features: xnack" in done.out
    path = make(tmp_path / "gfx900_56.kdb", [row(args=b" -mcpu=gfx900:xnack-", data=data)])
    done = run_cli("verify", path)
    assert "unreachable-target-id" in done.out and "has no" not in done.out
