"""Merged traces: nothing lost, the same bytes in any order, and a trace for every command."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import traces as make
from support.whole_trace import whole

from kdbtool.errors import KdbtoolError
from kdbtool.shim._trace import ffi
from kdbtool.shim.trace import Trace, read_trace, read_traces
from kdbtool.shim.trace_merge import merge


def content(trace: Trace) -> dict[str, Any]:
    found = {
        f.name: getattr(trace, f.name)
        for f in dataclasses.fields(trace)
        if f.name not in ("path", "launches")
    }
    return found | {"launches": list(trace.launches)}


@pytest.fixture
def four(tmp_path: Path) -> list[Path]:
    """Rank 2, rank 0, one that was cut within a block, one of a crash before its first block."""
    made = [whole(2, 4), whole(0, 4), whole(1, 4)[:-4000], make.header(pid=7)[:400]]
    paths = [tmp_path / f"{n}.kdbtrace" for n in "dcba"]
    for path, data in zip(paths, made, strict=True):
        path.write_bytes(data)
    return paths


def test_nothing_is_lost(four: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "run.kdbtrace"
    assert merge(four, out).repeated == 0
    got = read_traces(out)
    assert [t.facts.rank for t in got] == [0, 1, 2, None]
    assert [content(t) for t in got] == [content(read_trace(four[i])) for i in (1, 2, 0, 3)]
    assert got[1].notes and got[3].notes == ["1 truncated record"]
    assert str(got[1].path) == f"{out}[1]"
    with pytest.raises(KdbtoolError, match="4 processes, not one"):
        read_trace(out)


def test_any_order_and_twice_give_the_same_bytes(four: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "run.kdbtrace"
    merge(four, out)
    first = out.read_bytes()
    for order in itertools.permutations(four):
        merge(order, out, force=True)
        assert out.read_bytes() == first
    one, two, all_ = tmp_path / "one.kdbtrace", tmp_path / "two.kdbtrace", tmp_path / "all.kdbtrace"
    merge(four[:2], one)
    merge(four[1:], two)
    assert merge([two, one, out], all_).repeated == 5
    assert all_.read_bytes() == first


def test_one_alone_is_itself(four: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "run.kdbtrace"
    merge([four[0], four[0]], out)
    assert out.read_bytes() == four[0].read_bytes()


def test_second_header_that_is_none(tmp_path: Path) -> None:
    """Of another version, byte order, or damaged: named, and what stands before it is read."""
    at = ffi.offsetof("struct kdbt_header", "section_bytes")
    for changes, why in (
        ({"version": 2}, "trace of version 2"),
        ({"byte_order": 0x04030201}, "trace in the other byte order"),
        ({"header_check": 1}, "damaged trace header"),
    ):
        first = bytearray(whole())
        first[at : at + 8] = len(first).to_bytes(8, "little")
        path = tmp_path / "x.kdbtrace"
        path.write_bytes(bytes(first) + make.header(**changes))
        (trace,) = read_traces(path)
        assert trace.notes == [f"byte {len(first)} of the merged file: {why}: the rest is not read"]
        done = merge([path], tmp_path / "y.kdbtrace", force=True)
        assert len(done.facts) == 1 and why in done.notes[0]


@pytest.mark.parametrize("size", [1, 100, 4095, 1 << 40, (1 << 64) - 1])
def test_section_that_lies_about_its_length(tmp_path: Path, size: int) -> None:
    path = tmp_path / "x.kdbtrace"
    path.write_bytes(whole(section_bytes=size) + whole(1))
    assert len(read_traces(path)) == 1


def test_commands_take_a_merged_file(four: list[Path], tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    out = tmp_path / "m" / "run.kdbtrace"
    out.parent.mkdir()
    ended = run_cli("trace", "merge", tmp_path, "-o", out)
    assert (ended.code, ended.err) == (0, "kdbtool trace: no trace of rank 3 of 4\n")
    assert run_cli("trace", "merge", tmp_path, "-o", out).code == 2
    info = json.loads(run_cli("info", out, "--json").out)["files"][0]
    assert (info["text"], info["processes"], info["lookups"]["total"]) == ("a merged trace", 4, 3)
    assert run_cli("info", out).code == 0
    keys = run_cli("list", out, "--keys").out
    assert keys == run_cli("list", tmp_path, "--keys").out and keys.count("\n") == 1
    assert run_cli("manifest", out).out == run_cli("manifest", tmp_path).out
