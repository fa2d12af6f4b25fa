"""The real MIOpen on the simulated device: it compiles when cold, and loads what it compiled when warm."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kdbtool.shim.libs import lib_dir
from kdbtool.shim.simulate import simulated_environment
from kdbtool.targets import split_target

CONV = (
    *("MIOpenDriver", "conv", "-n", "2", "-c", "8", "-H", "16", "-W", "16", "-k", "8", "-y", "3", "-x", "3"),
    *("-p", "1", "-q", "1", "-t", "1", "-V", "0", "-i", "1", "-F"),
)
# What these devices need of this root (reference: no rocBLAS kernels for them, CK does not link).
NO_GEMM = {"MIOPEN_DEBUG_CONV_GEMM": "0", "MIOPEN_DEBUG_CONV_IMPLICIT_GEMM": "0"}


def rows(home: Path) -> dict[str, int]:
    """Rows of the user's kernel databases, by file name."""
    return {
        path.name: sqlite3.connect(path).execute("SELECT count(*) FROM kern_db").fetchone()[0]
        for path in home.rglob("*.ukdb")
    }


def compilers(folder: Path) -> int:
    """Compiler processes that left their statistics (CC_PRINT_PROC_STAT_FILE) so far."""
    path = folder / "stat"
    return len(path.read_text().splitlines()) if path.exists() else 0


class Device:
    """Runs MIOpenDriver on one simulated device, with a home of its own."""

    def __init__(self, run_in_root: Callable[..., Any], folder: Path, target: str) -> None:
        self.run_in_root, self.folder, self.home = run_in_root, folder, folder / "home"
        self.home.mkdir()
        self.env = {
            **simulated_environment(split_target(target), lib_dir(), log=folder / "log"),
            "HOME": str(self.home),
            "CC_PRINT_PROC_STAT": "1",
            "CC_PRINT_PROC_STAT_FILE": str(folder / "stat"),
        }

    def conv(self, direction: int, **env: str) -> str:
        """One convolution; its exit code is 0. What it printed."""
        done = self.run_in_root(
            *CONV, direction, env={**self.env, **env}, cwd=self.folder, binds=(self.folder, lib_dir())
        )
        assert done.code == 0, done.err[-2000:]
        return str(done.out)

    def log(self) -> list[str]:
        return (self.folder / "log").read_text().splitlines()


@pytest.fixture
def device(run_in_root: Callable[..., Any], tmp_path: Path) -> Callable[[str], Device]:
    return lambda target: Device(run_in_root, tmp_path, target)


def test_cold_compiles_and_warm_loads(device: Callable[[str], Device]) -> None:
    gpu = device("gfx1030:36")
    assert "Elapsed" in gpu.conv(1)
    cold = compilers(gpu.folder)
    assert cold > 0
    assert list(rows(gpu.home)) == ["gfx1030_36.ukdb"] and rows(gpu.home)["gfx1030_36.ukdb"] > 0
    gpu.conv(1)  # may compile one kernel more, under its doubled key
    settled, compiled, before = rows(gpu.home), compilers(gpu.folder), len(gpu.log())
    out = gpu.conv(1)
    assert (rows(gpu.home), compilers(gpu.folder)) == (settled, compiled)
    warm = gpu.log()[before:]
    assert any("module source=memory" in line and line.endswith("result=0") for line in warm)
    assert " launches=0 " not in warm[-1] and "modules_refused=0 unsupported_calls=0" in warm[-1]
    assert "Elapsed" in out


def test_same_run_same_choice(device: Callable[[str], Device]) -> None:
    """Find measures simulated time: two cold runs print the same solution and the same figure."""
    gpu = device("gfx1030")
    first = gpu.conv(2)
    for path in sorted(gpu.home.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert gpu.conv(2) == first
    assert "Solution" in first


def test_units_give_the_database_its_name(device: Callable[[str], Device]) -> None:
    gpu = device("gfx90a:110")
    gpu.conv(4, **NO_GEMM)
    assert list(rows(gpu.home)) == ["gfx90a6e.ukdb"]


@pytest.mark.parametrize("direction", [1, 4])
def test_gfx906(device: Callable[[str], Device], direction: int) -> None:
    """Objects for gfx906:xnack- load; MIOPEN_FIND_MODE=1, since its naive kernels are assembly."""
    gpu = device("gfx906")
    gpu.conv(direction, MIOPEN_FIND_MODE="1", **NO_GEMM)
    assert rows(gpu.home)["gfx906_60.ukdb"] > 0
    assert "modules_refused=0" in gpu.log()[-1]
