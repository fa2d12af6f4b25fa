"""`kdbtool manifest` on traces, by the shape of the trace reader's records alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kdbtool.manifest import parse_manifest

CPU = b" -mcpu=gfx1030"
PROBLEM = "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP32-F"


def lookup(name: bytes, args: bytes, hit: bool | None) -> SimpleNamespace:
    return SimpleNamespace(name=name, args=args, hit=hit, databases=(), thread=1, time_ns=0)


def trace(*lookups: SimpleNamespace, **facts: Any) -> SimpleNamespace:
    known = {
        "device": "gfx1030", "cu": 36, "simulated": True, "overrides": {}, "miopen_version": "3.4.0",
        "miopen_path": "/nowhere/libMIOpen.so.1", "miopen_build_id": "00", "all": {},
    }  # fmt: skip
    problems = [SimpleNamespace(key=PROBLEM), SimpleNamespace(key="damaged")]
    return SimpleNamespace(
        path=Path("x.kdbtrace"),
        facts=SimpleNamespace(**{**known, **facts}),
        lookups=list(lookups),
        problems=problems,
        notes=[],
    )


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Path]:
    """`traces(one, two)`: a folder from which the reader reads these."""

    def make(*made: SimpleNamespace) -> Path:
        files = [tmp_path / "traces" / f"{i}.kdbtrace" for i in range(len(made))]
        reader = ModuleType("kdbtool.shim.trace")

        def find_traces(paths: Iterable[Path]) -> list[Path]:
            return files

        def read_traces(path: Path) -> list[SimpleNamespace]:
            return [made[files.index(path)]]

        reader.find_traces = find_traces  # type: ignore[attr-defined]
        reader.read_traces = read_traces  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "kdbtool.shim.trace", reader)
        monkeypatch.setenv("KDBTOOL_ROOT", str(tmp_path / "no-root"))
        (tmp_path / "traces").mkdir()
        return tmp_path / "traces"

    return make


CAT = lookup(b"MIOpenCat.cpp.o", CPU, False)
ASM = lookup(b"conv3x3.s.o", b"-Wa,-defsym,x=1" + CPU, False)


def test_misses_are_to_be_built_and_those_without_source_unbuilt(
    traces: Callable[..., Path], run_cli: Callable[..., Any]
) -> None:
    hit = lookup(b"MIOpenGLU.cpp.o", CPU, True)
    ended = run_cli(
        "manifest", traces(trace(CAT, ASM, hit, CAT), trace(), trace(CAT, device=None)), "--problems"
    )
    assert ended.code == 0
    back = parse_manifest(ended.out.encode(), "m")
    assert {key.name: key.state for key in back.keys} == {
        b"MIOpenCat.cpp.o": "build",
        b"MIOpenGLU.cpp.o": "build",
        b"conv3x3.s.o": "asked-unbuilt",
    }
    assert (back.miopen, back.archs, list(back.problems)) == ("6.4", ["gfx1030"], [PROBLEM])
    assert "recorded on simulated gfx1030:36 by kdbtool" in ended.out
    assert "1 listed as unbuilt" in ended.err and "--miopen PATH" in ended.err


def test_the_text_does_not_depend_on_the_order_of_traces(
    traces: Callable[..., Path], run_cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = traces(trace(CAT), trace(ASM, CAT, cu=40, simulated=False))
    first = run_cli("manifest", folder).out
    shutil.rmtree(folder)
    assert run_cli("manifest", traces(trace(ASM, CAT, cu=40, simulated=False), trace(CAT))).out == first


def test_traces_of_two_miopens_do_not_merge(traces: Callable[..., Path], run_cli: Callable[..., Any]) -> None:
    ended = run_cli("manifest", traces(trace(CAT), trace(CAT, miopen_version="3.5.1")))
    assert ended.code == 2 and "different MIOpen versions: 6.4 and 7.2" in ended.err


def test_an_unknown_miopen_is_one_line(traces: Callable[..., Path], run_cli: Callable[..., Any]) -> None:
    ended = run_cli("manifest", traces(trace(CAT, miopen_version="9.9.9")))
    assert ended.code == 2 and "unknown MIOpen version 9.9.9" in ended.err and ended.err.count("\n") == 1


def test_a_trace_without_miopens_version_makes_a_manifest_without(
    traces: Callable[..., Path], run_cli: Callable[..., Any]
) -> None:
    ended = run_cli("manifest", traces(trace(CAT, ASM, miopen_version=None, miopen_path=None)))
    back = parse_manifest(ended.out.encode(), "m")
    assert back.miopen is None and {key.state for key in back.keys} == {"build"}


def test_switches_that_change_keys_are_named(
    traces: Callable[..., Path], run_cli: Callable[..., Any]
) -> None:
    ended = run_cli("manifest", traces(trace(CAT, overrides={"HSA_OVERRIDE_GFX_VERSION": "10.3.0"})))
    assert "gfx1030:36 with HSA_OVERRIDE_GFX_VERSION set by" in ended.out


def test_the_recorded_library_is_used_only_if_it_is_that_very_build(
    traces: Callable[..., Path], run_cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cc = shutil.which("cc") or shutil.which("gcc")
    if cc is None:
        pytest.skip("no C compiler")
    root = tmp_path / "root"
    library = root / "usr/lib/libMIOpen.so.1"
    library.parent.mkdir(parents=True)
    source = tmp_path / "l.c"
    source.write_text(
        'const char b[] = ", HIP version 6.4.43484\\0, MIOpen version 3.4.0.";'
        'const char MIOPEN_KERNEL_MIOPENCAT[] = "x"; const unsigned long MIOPEN_KERNEL_MIOPENCAT_SIZE = 1;'
    )
    subprocess.run(
        [cc, "-shared", "-fPIC", "-Wl,--build-id=0xabcdef", "-o", library, source], check=True, timeout=60
    )
    folder = traces(
        trace(CAT, miopen_path="/usr/lib/libMIOpen.so.1", miopen_build_id="abcdef"),
    )
    monkeypatch.setenv("KDBTOOL_ROOT", str(root))
    back = parse_manifest(run_cli("manifest", folder).out.encode(), "m")
    assert back.sources and list(back.hashes) == ["MIOpenCat.cpp"]
    shutil.rmtree(folder)
    folder = traces(trace(CAT, miopen_path="/usr/lib/libMIOpen.so.1", miopen_build_id="abcde0"))
    monkeypatch.setenv("KDBTOOL_ROOT", str(root))
    assert parse_manifest(run_cli("manifest", folder).out.encode(), "m").sources is None


def test_a_folder_without_traces_says_how_to_record(
    traces: Callable[..., Path], run_cli: Callable[..., Any]
) -> None:
    ended = run_cli("manifest", traces())
    assert ended.code == 2 and "no trace in the folder" in ended.err and "kdbtool record" in ended.err
