"""`kdbtool trace info` and `list` on traces that have everything, and on bad ones."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import traces as make
from support.whole_trace import whole

from kdbtool.shim._trace import lib


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "t"
    folder.mkdir()
    (folder / "a.kdbtrace").write_bytes(whole(0, 4, clean=False, unselected=9))
    (folder / "b.kdbtrace").write_bytes(whole(2, 4, part=0, start_ns=2000))
    (folder / "c.kdbtrace").write_bytes(whole(2, 4, part=1, start_ns=3000))
    return folder


def test_info(folder: Path, run_cli: Callable[..., Any]) -> None:
    found = json.loads(run_cli("trace", "info", folder, "--json").out)
    one = found["traces"][0]
    assert one["launches"] == {"total": 5, "kernels": 2, "top": [["first", 4], ["k\\xff\\", 1]]}
    assert one["calls"] == {"total": 1, "failed": 1, "top": [["miopenConvolutionForward", 1]]}
    assert one["compiles"]["sources"] == 1 and one["graphs"] == {"launches": 1, "kernels": 4, "uncounted": 0}
    assert (one["ranges"]["total"], one["ranges"]["open"], one["ranges"]["marks"]) == (3, 1, 1)
    assert (one["unselected"], one["gates"], one["samples"]["total"]) == (9, 1, 1)
    assert "1 record of an unknown type" in one["notes"]
    assert (found["launches"], found["graphs"], found["unselected"]) == (15, 3, 9)
    assert found["missing_ranks"] == [{"ranks": 4, "missing": [[1, 1], [3, 3]]}]
    assert [len(some["paths"]) for some in found["parts"]] == [2]
    text = run_cli("trace", "info", folder)
    assert text.code == 0 and "no trace of ranks 1, 3 of 4" in text.out
    assert "their kernels are not seen" in text.out and "Traceback" not in text.err


def test_list(folder: Path, run_cli: Callable[..., Any]) -> None:
    lines = [line.split("\t") for line in run_cli("trace", "list", folder / "a.kdbtrace").out.splitlines()]
    assert Counter(line[3] for line in lines) == {
        "fact": 6, "lookup": 1, "problem": 1, "call": 1, "compile": 1, "module": 1, "launch": 5, "graph": 1,
        "range": 6, "sample": 1, "gate": 1,
    }  # fmt: skip
    times = [int(line[0]) for line in lines if line[3] != "fact"]
    assert times == sorted(times)
    launches = run_cli(
        "trace", "list", folder / "a.kdbtrace", "--what", "launches", "--json"
    ).out.splitlines()
    assert [json.loads(line)["thread"] for line in launches] == [1, 1, 1, 2, 2]
    assert json.loads(launches[2])["kernel"] == "k\\xff\\\\"


def test_no_trace(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    (tmp_path / "x.kdbtrace").write_bytes(b"no trace")
    for action in ("info", "list"):
        for where in (tmp_path, tmp_path / "none"):
            ended = run_cli("trace", action, where)
            assert ended.code == 2 and ended.err.count("\n") == 1


def test_time_of_a_frontend_was_told_beside_its_drivers(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    """A driver waits for the frontend that it starts: its own time has all."""
    for name, role in (("driver", lib.KDBT_ROLE_COMPILER), ("frontend", lib.KDBT_ROLE_FRONTEND)):
        begun = make.record(lib.KDBT_COMPILE, make.struct("compile", by=lib.KDBT_BY_PROCESS))
        ended = make.record(lib.KDBT_EXIT, make.struct("exit", duration=2_000_000_000))
        trace = make.header(role=role) + make.block(begun, ended)
        (tmp_path / f"{name}.kdbtrace").write_bytes(trace)
    found = json.loads(run_cli("trace", "info", tmp_path, "--json").out)
    assert [one["compiles"]["seconds"] for one in found["traces"]] == [2, 2]
    assert found["compiles"] == {"sources": 1, "seconds": 2}


def test_a_kernel_name_that_is_no_utf8_was_shown_as_a_surrogate(
    tmp_path: Path, run_cli: Callable[..., Any]
) -> None:
    (tmp_path / "a.kdbtrace").write_bytes(whole())
    shown = run_cli("trace", "info", tmp_path).out
    assert "1 k\\xff\\" in shown and "udcff" not in shown
    document = run_cli("trace", "info", tmp_path, "--json").out
    assert "udcff" not in document and "k\\xff\\" in [name for name, _ in json.loads(document)["kernels"]]
