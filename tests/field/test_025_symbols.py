"""Field case 25 (MIOpen#67): the object lacks `Im2Col`, which the source defines; and the reverse."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.amdgpu_elf import code_object
from support.kdb_files import make, row

SOURCE = """
#if MLO_EXTRA
__kernel void Im2Extra(__global float* x) {}
#endif
__kernel void Im2Col(const int n, __global float* im) {}
"""
NAME = b"MIOpenUtilKernels.cl.o"


def test_025(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "MIOpenUtilKernels.cl").write_text(SOURCE)
    rows = [
        row(NAME, b" -DA=1 -mcpu=gfx1030", code_object(kernels=("Im2Col",))),
        row(NAME, b" -DA=2 -mcpu=gfx1030", code_object(kernels=("Col2Im",))),
        row(NAME, b" -DMLO_EXTRA=1 -mcpu=gfx1030", code_object(kernels=("Im2Col", "Im2Extra"))),
        row(NAME, b" -DMLO_EXTRA=0 -mcpu=gfx1030", code_object(kernels=("Im2Col", "Im2Extra"))),
        row(NAME, b" -DMLO_EXTRA=3 -mcpu=gfx1030", code_object(kernels=("Im2Col",))),
    ]
    path = make(tmp_path / "gfx1030.kdb", rows)
    done = run_cli("verify", path, "--symbols", "--sources", folder, "--json")
    document = json.loads(done.out)["files"][0]
    found = [(f["row"], f["code"], f["detail"]) for f in document["findings"] if f["row"]]
    assert done.code == 1 and found == [
        (2, "symbol-missing", "Im2Col"),
        (2, "symbol-extra", "Col2Im"),
        (4, "symbol-extra", "Im2Extra"),
        (5, "symbol-missing", "Im2Extra"),
    ]
    assert document["symbols"] == {"compared": 5, "cannot_tell": 0}
    assert run_cli("verify", path).code == 0  # nobody asked


def test_025_without_sources(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    done = run_cli("verify", make(tmp_path / "gfx1030.kdb"), "--symbols", "--miopen", "6.4.3")
    assert done.code == 2 and "--sources DIR" in done.err and done.err.count("\n") == 1
