"""AMD's gfx942.kdb of 2024: MIOpen loads rows of the fixed file, and none of the original.

6.4.3 without COMGR asks for assembly kernels when it is told of an assembler; a database then serves them.
rocBLAS of this root has no kernels for gfx942, hence no GEMM.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kdbtool.shim.trace import read_trace

DRIVER = "/usr/libexec/rocm/libmiopen1-tests/MIOpenDriver"
CONV = "conv -n 16 -c 64 -H 28 -W 28 -k 64 -y 3 -x 3 -p 1 -q 1 -t 1 -V 0 -i 1 -F 1".split()


def loaded(record: Callable[..., Any], traces: Path, system: Path) -> tuple[int, set[str], set[str]]:
    """(exit code, kernels that MIOpen says it loaded, kernels that the trace calls hits)."""
    env = {
        "MIOPEN_LOG_LEVEL": "6",
        "MIOPEN_DEBUG_CONV_GEMM": "0",
        "MIOPEN_EXPERIMENTAL_GCN_ASM_PATH": "/usr/bin/clang-21",
        "MIOPEN_SYSTEM_DB_PATH": str(system),
    }
    done = record(traces, DRIVER, *CONV, arch="gfx942", env=env)
    said = set(re.findall(r'Successfully loaded binary for: "([^"]+)"', done.out + done.err))
    hits = {
        lookup.name.decode() for file in traces.iterdir() for lookup in read_trace(file).lookups if lookup.hit
    }
    return done.code, said, hits


def test_a_winograd_convolution_loads_rows_of_the_fixed_file_only(
    shared: Path, tmp_path: Path, kdbtool: Callable[..., Any], record: Callable[..., Any]
) -> None:
    original, fixed = tmp_path / "original", tmp_path / "fixed"
    original.mkdir()
    fixed.mkdir()
    shutil.copy(shared / "data" / "gfx942.kdb", original)
    done = kdbtool("fix", original / "gfx942.kdb", "-o", fixed / "gfx942.kdb")
    assert done.code == 0, done.err
    _, said, hits = loaded(record, tmp_path / "t1", original)
    assert said == hits == set()
    code, said, hits = loaded(record, tmp_path / "t2", fixed)
    assert code == 0
    assert said == hits and any(name.startswith("Conv_Winograd_v30_3_1_fp32_") for name in hits)
