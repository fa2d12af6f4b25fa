"""The real MIOpen takes a merged database: with each half alone it compiles, with both nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kdbtool.root import Root
from kdbtool.shim.trace import Trace, find_traces, read_trace

DRIVER = "/usr/libexec/rocm/libmiopen1-tests/MIOpenDriver"
CONV = (DRIVER, *"conv -n 2 -c 8 -H 16 -W 16 -k 8 -y 3 -x 3 -p 1 -q 1 -t 1 -V 0 -i 1 -F 1".split())
HALVES = {"one": "^naive_conv", "two": "^[^n]"}


def test_two_halves(
    tmp_path: Path, record: Callable[..., Any], kdbtool: Callable[..., Any], opened_root: Root
) -> None:
    def ran(name: str, system: Path | None) -> list[Trace]:
        env = {"MIOPEN_SYSTEM_DB_PATH": str(system)} if system else {}
        done = record(tmp_path / name, *CONV, env=env)
        assert done.code == 0, done.err
        return [read_trace(path) for path in find_traces([tmp_path / name])]

    def done(*words: object) -> None:
        ended = kdbtool(*words)
        assert ended.code == 0, ended.err

    assert _compilers(ran("cold", None)) > 1
    halves = []
    for name, regex in HALVES.items():
        manifest, folder = tmp_path / f"{name}.kdbmanifest", tmp_path / f"system-{name}"
        folder.mkdir()
        halves.append(folder / "gfx1030.kdb")
        done("manifest", tmp_path / "cold", "--miopen", opened_root.miopen, "--kernel", regex, "-o", manifest)
        more = ("--root", opened_root.path, "--miopen", opened_root.miopen, "--cache", tmp_path / "cache")
        done("rebuild", manifest, "-o", halves[-1], *more)
        assert _compilers(ran(f"with-{name}", folder)) > 0
    system = tmp_path / "system"
    system.mkdir()
    done("merge", *halves, "-o", system / "gfx1030.kdb")
    done("verify", system / "gfx1030.kdb")
    warm = ran("warm", system)
    assert _compilers(warm) == 0 and any(lookup.hit for trace in warm for lookup in trace.lookups)


def _compilers(traces: list[Trace]) -> int:
    return sum(trace.facts.role == "compiler" for trace in traces)
