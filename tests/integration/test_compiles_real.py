"""Compiles of the real MIOpen, hipRTC and COMGR: what they were told themselves is the oracle."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.standins import compile_standin

from kdbtool.shim.compiles import action_name, children, compiled
from kdbtool.shim.trace import Trace, find_traces, read_trace

SUPPORT = Path(__file__).resolve().parent.parent / "support"
# A HIP kernel and, through GEMM, an OpenCL one.
DRIVER = (
    "MIOpenDriver",
    "conv",
    *"-n 2 -c 8 -H 16 -W 16 -k 8 -y 3 -x 3 -p 1 -q 1 -t 1 -V 0 -i 1 -F 1".split(),
)
Record = Callable[..., Any]


def read(folder: Path) -> list[Trace]:
    return [read_trace(path) for path in find_traces([folder])]


def host(traces: list[Trace]) -> Trace:
    (trace,) = (t for t in traces if t.facts.role == "host" and (t.compiles or t.lookups))
    return trace


def commands(log: Path) -> list[list[str]]:
    """What each compiler that MIOpen started was given."""
    return [text.split("\n") for text in log.read_text().removesuffix("\n\n").split("\n\n")]


def test_every_compiler_of_miopen(record: Record, tmp_path: Path) -> None:
    """The compilers themselves write their arguments down (log-compilers.sh)."""
    script = tmp_path / "log-compilers.sh"
    shutil.copy(SUPPORT / "log-compilers.sh", script)
    log, folder = tmp_path / "argv", tmp_path / "traces"
    stats = tmp_path / "stats"
    env = {"CC_PRINT_PROC_STAT": "1", "CC_PRINT_PROC_STAT_FILE": str(stats)}
    done = record(folder, "sh", script, log, tmp_path / "cache", *DRIVER, env=env, cwd=tmp_path)
    assert done.code == 0, done.err
    traces, asked = read(folder), commands(log)
    (path,) = (t.path for t in traces if t.lookups)
    mine = children(traces)[path]
    assert len(mine) == len(asked) >= 2
    assert sum(map(compiled, traces)) == len(asked)
    for trace, words in zip(mine, asked, strict=True):
        (one,) = trace.compiles
        sources = [Path(word).name for word in words if word.endswith((".cpp", ".cl"))]
        assert [one.name] == sources
        # "ULL" and the like are kept; a path is not
        assert Counter(o for o in one.options if o.startswith("-D")) == Counter(
            word for word in words if word.startswith("-D") and "/" not in word
        )
        assert [
            o for o in one.options if o.startswith(("-mcpu=", "--offload-arch=", "--cuda-gpu-arch="))
        ] == [word for word in words if word.startswith(("-mcpu=", "--offload-arch=", "--cuda-gpu-arch="))]
        assert Counter(one.options) <= Counter(words)
        assert not any("/" in option for option in one.options)
        assert (one.starter, one.exit_code) == (host(traces).facts.pid, 0)
        assert one.duration_ns > 0
        assert one.time_ns >= host(traces).facts.start_ns
        assert trace.notes == []
    # Clang's own statistics: a line for each process that a driver started.
    helpers = [t for t in traces if t.facts.role in ("frontend", "linker", "bundler")]
    assert len(stats.read_text().splitlines()) == len(helpers)
    assert all(t.compiles[0].starter == host(traces).facts.pid for t in helpers)
    assert {t.compiles[0].exit_code for t in helpers if t.facts.role == "frontend"} == {0}
    assert {t.compiles[0].exit_code for t in helpers if t.facts.role == "linker"} <= {
        0,
        None,
    }  # it calls _exit


def test_a_compile_that_fails(record: Record, tmp_path: Path) -> None:
    """A compiler whose headers are not there: the driver's exit code is in its trace."""
    folder = tmp_path / "traces"
    env = {"CCC_OVERRIDE_OPTIONS": "# +-DNO_SUCH +-include +nothing-here.h"}
    record(folder, *DRIVER, env=env, cwd=tmp_path)
    traces = read(folder)
    failed = children(traces)[host(traces).path]
    assert failed
    assert {one.exit_code for t in failed for one in t.compiles} == {1}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "rtcreal"
    compile_standin(path, "rtcreal.c", "-ldl")
    return path


@pytest.mark.parametrize(("how", "result"), [("hiprtc", 0), ("bad", 6)])
def test_hiprtc(record: Record, program: Path, tmp_path: Path, how: str, result: int) -> None:
    """One compile, with COMGR's actions inside it, with and without a result."""
    done = record(tmp_path / "traces", program, how, cwd=tmp_path)
    size = int(done.out.split("size ")[1])
    assert f"hiprtcCompileProgram {result}\n" in done.out
    assert (size > 0) == (result == 0)
    trace = host(read(tmp_path / "traces"))
    (outer,) = (one for one in trace.compiles if one.by == "hiprtc")
    inner = [one for one in trace.compiles if one.by == "comgr"]
    assert (outer.name, outer.result, outer.nested, outer.size) == ("add.cpp", result, False, size)
    summand = "-DSUMMAND=1" if how == "hiprtc" else "-DSUMMAND=z"
    assert (outer.options, outer.left_out) == (("--offload-arch=gfx1030", summand, "-O3"), 1)
    assert inner
    assert all(one.nested for one in inner)
    assert inner[0].name == "add.cpp"
    assert summand in inner[0].options
    assert inner[0].options[0] == "isa=amdgcn-amd-amdhsa--gfx1030"
    assert "COMPILE_SOURCE_TO" in str(action_name(trace.facts, inner[0]))
    assert sum(one.duration_ns for one in inner) <= outer.duration_ns
    assert compiled(trace) == 1
    assert trace.facts.all["comgr.version"].startswith("3.")
    assert trace.notes == []


def test_comgr(record: Record, program: Path, tmp_path: Path) -> None:
    """OpenCL as MIOpen 7 compiles it: three actions, one of which compiles a source."""
    done = record(tmp_path / "traces", program, "comgr", cwd=tmp_path)
    assert "amd_comgr_do_action 0\n" in done.out, json.dumps(done.out)
    trace = host(read(tmp_path / "traces"))
    assert [action_name(trace.facts, one) for one in trace.compiles] == [
        "COMPILE_SOURCE_WITH_DEVICE_LIBS_TO_BC",
        "CODEGEN_BC_TO_RELOCATABLE",
        "LINK_RELOCATABLE_TO_EXECUTABLE",
    ]
    options = ("isa=amdgcn-amd-amdhsa--gfx1030", "language=2", "-DSUMMAND=2", "-O2")
    assert {(one.name, one.options, one.result) for one in trace.compiles} == {("add.cl", options, 0)}
    assert trace.compiles[-1].size == int(done.out.split("size ")[1]) > 0
    assert compiled(trace) == 1


@pytest.mark.parametrize("how", ["hiprtc", "bad", "comgr"])
def test_output_is_the_same(
    record: Record, run_in_root: Callable[..., Any], program: Path, tmp_path: Path, how: str
) -> None:
    """hipRTC asks no device for a target that it is told; its log is on."""
    env = {"AMD_LOG_LEVEL": "0", "AMD_COMGR_EMIT_VERBOSE_LOGS": "1", "AMD_COMGR_REDIRECT_LOGS": "stdout"}
    plain = run_in_root(program, how, env=env, cwd=tmp_path)
    ran = record(tmp_path / "traces", program, how, env=env, cwd=tmp_path)
    assert ran.code == plain.code
    assert [
        line for line in ran.out.splitlines() if " " in line and line.split()[0].startswith(("hip", "amd"))
    ] == [
        line for line in plain.out.splitlines() if " " in line and line.split()[0].startswith(("hip", "amd"))
    ]
