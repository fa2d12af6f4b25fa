"""The real ROCTx, as the real MIOpen and a program of its own call it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kdbtool.root import Root, enter
from kdbtool.shim import launcher, libs
from kdbtool.shim.trace import Trace, find_traces, read_trace

SMALL = "conv -n 2 -c 8 -H 16 -W 16 -k 8 -y 3 -x 3 -p 1 -q 1 -t 1 -V 0 -i 1 -F 1 -G 1".split()


def host(traces: Path) -> Trace:
    (trace,) = (t for t in map(read_trace, find_traces([traces])) if t.facts.role == "host")
    return trace


def test_miopen_logs_its_calls_as_ranges(record: Callable[..., Any], tmp_path: Path) -> None:
    result = record(tmp_path, "MIOpenDriver", *SMALL, env={"MIOPEN_ENABLE_LOGGING_ROCTX": "1"})
    assert result.code == 0, result.err
    trace = host(tmp_path)
    assert trace.notes == []
    ops = [x.op for x in trace.ranges]
    assert ops.count("push") == ops.count("pop") > 10
    (found,) = (x for x in trace.ranges if "miopenFindConvolutionForwardAlgorithm" in x.name)
    assert len(found.name) > 300 and found.name.startswith("s_api = ")
    assert len(trace.launches) > 10


PROGRAM = """
import ctypes
roctx = ctypes.CDLL("libroctx64.so.4")
roctx.roctxRangeStartA.restype = ctypes.c_uint64
print(roctx.roctxRangePushA(b"outer"), roctx.roctxRangePushA(b"inner"), roctx.roctxRangeStartA(b"started"))
if {hip}:
    module = ctypes.c_void_p()
    ctypes.CDLL("libamdhip64.so.6").hipModuleLoad(ctypes.byref(module), b"/nowhere")
roctx.roctxMarkA(b"mark")
print(roctx.roctxRangePop(), roctx.roctxRangePop(), roctx.roctxRangePop())
"""


def run(root: Root, folder: Path, *, hip: bool) -> str:
    env = launcher.recorded_environment(root.environment(), library_dir=libs.lib_dir(), trace_dir=folder)
    process = enter.popen(
        ["python3", "-c", PROGRAM.format(hip=hip)],
        root=root.path,
        env=env,
        binds=(libs.lib_dir(), folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")
    return out.decode()


def test_ranges_of_a_program(opened_root: Root, tmp_path: Path) -> None:
    """Unchanged results; no trace of ranges alone; those that are open when HIP is first used."""
    for hip in (False, True):
        assert run(opened_root, tmp_path, hip=hip) == "0 1 1\n1 0 -1\n"
        if not hip:
            assert find_traces([tmp_path]) == []
    assert [(x.op, x.name) for x in host(tmp_path).ranges] == [
        *(("start", "started"), ("push", "outer"), ("push", "inner"), ("mark", "mark")),
        *(("pop", ""),) * 2,
    ]
