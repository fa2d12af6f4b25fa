"""`--arch`: named, native by the real hip-python on the simulated device, and what goes wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from kdbtool.cli.archs import wanted_archs
from kdbtool.errors import KdbtoolError
from kdbtool.shim.libs import lib_dir, simgpu_dir
from kdbtool.shim.simulate import simulated_environment
from kdbtool.targets import split_target

ASK = """
import sys
from kdbtool.cli.archs import wanted_archs
from kdbtool.errors import KdbtoolError
try:
    print(sorted(wanted_archs(["native"])))
except KdbtoolError as error:
    print(error.line())
"""


def ask(**env: str) -> str:
    """What `native` is for a process with this environment."""
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env={**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path)), **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.mark.parametrize("arch", ["gfx906", "gfx1030"])
def test_native_is_the_device_that_hip_python_finds(arch: str) -> None:
    assert ask(**simulated_environment(split_target(arch), lib_dir())) == f"['{arch}']"


def test_no_device_is_one_line() -> None:
    assert "no AMD GPU is present" in ask(LD_LIBRARY_PATH=str(simgpu_dir()), KDBTOOL_SIMGPU="")


def test_no_hip_python_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hip", None)
    with pytest.raises(KdbtoolError, match=r"hip-python is not installed; pip install 'kdbtool\[gpu\]'"):
        wanted_archs(["native"])


@pytest.mark.parametrize("error", [RuntimeError("failed to dlopen 'libamdhip64.so'"), TypeError("2 given")])
def test_whatever_hip_python_raises_is_one_line(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """It opens the runtime at the first call, outside any import."""

    def devices() -> list[tuple[str, int]]:
        raise error

    monkeypatch.setattr("kdbtool.cli.archs._devices", devices)
    with pytest.raises(KdbtoolError) as raised:
        wanted_archs(["native"])
    assert str(error) in raised.value.line()
    assert raised.value.exit_code == 2


def test_named_archs_lose_their_unit_count() -> None:
    assert wanted_archs(["gfx1030:36", "gfx906"]) == {"gfx1030", "gfx906"}
    assert wanted_archs(["gfx1030", "all"]) is None
    assert wanted_archs(None) is None


@pytest.mark.parametrize(
    "text", ["", "gfx", "gfx1030:", "gfx1030:0", "gfx1030:x", "gfx90a:xnack-", "../gfx900"]
)
def test_what_is_no_arch_is_one_line(text: str, run_cli: Callable[..., Any]) -> None:
    done = run_cli("manifest", "absent.kdb", "--arch", text)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "--arch" in done.err
