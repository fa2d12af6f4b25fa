"""Every hook of the lists passes on what it is given, each bit, and returns what it got."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.forwarding import driver, hooks, library
from support.standins import Standins, same, standins, traces

__all__ = ["standins", "traces"]  # fixtures

LISTS = {"libamdhip64.so.6": ("hooks_hip.def",), "libroctx64.so.4": ("hooks_roctx.def",)}


def build(folder: Path, soname: str, *files: str) -> Path:
    """The library and the program; the program's path."""
    functions = hooks(*files)
    (folder / "forward.c").write_text(library(functions))
    (folder / "driver.c").write_text(driver(functions))
    compiler = ["gcc", "-std=gnu11", "-O1", "-w"]
    made = folder / soname
    subprocess.run(
        [*compiler, "-shared", "-fPIC", "-o", made, folder / "forward.c", f"-Wl,-soname,{soname}"], check=True
    )
    program = folder / "driver"
    subprocess.run([*compiler, "-o", program, folder / "driver.c", made, f"-Wl,-rpath,{folder}"], check=True)
    return program


HOW = {"recording": {}, "inert": {"KDBTOOL_TRACE_DIR": "-"}, "no trace": {"KDBTOOL_TRACE_DIR": "/nowhere"}}


@pytest.mark.parametrize("soname", LISTS)
def test_every_hook_forwards(standins: Standins, traces: Path, tmp_path: Path, soname: str) -> None:
    """Refused, taken, and with NULLs."""
    program = build(tmp_path, soname, *LISTS[soname])
    # While HIP logs, the recorder asks for no version: one call less.
    quiet = {"LD_LIBRARY_PATH": str(tmp_path), "AMD_LOG_LEVEL": "0"}
    for env in HOW.values():
        ran = same(standins, traces, program, env=quiet | env)
        assert ran.out == f"{len(hooks(*LISTS[soname]))} functions, 0 wrong\n"
        assert ran.code == 0


def test_a_wrong_argument_is_noticed(standins: Standins, traces: Path, tmp_path: Path) -> None:
    """The check itself: a preload that loses one bit of one argument."""
    program = build(tmp_path, "libroctx64.so.4", "hooks_roctx.def")
    (tmp_path / "wrong.c").write_text(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdint.h>\n"
        "void roctxRangeStop(uint64_t id) {\n"
        '    ((void (*)(uint64_t))dlsym(RTLD_NEXT, "roctxRangeStop"))(id & UINT32_MAX);\n}\n'
    )
    wrong = tmp_path / "wrong.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", wrong, tmp_path / "wrong.c"], check=True)
    ran = standins.run(None, program, before=str(wrong), env={"LD_LIBRARY_PATH": str(tmp_path)})
    assert "roctxRangeStop refused: arguments 0, calls 1" in ran.out
    assert ran.code == 1
