"""A selection of the real MIOpen's launches, while recording and while reading."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kdbtool.root import Root
from kdbtool.shim.selection import Selection
from kdbtool.shim.trace import find_traces, read_trace
from kdbtool.shim.trace_model import Trace

DRIVER = "MIOpenDriver conv -n 2 -c 8 -H 16 -W 16 -k 8 -y 3 -x 3 -p 1 -q 1 -t 1 -V 0 -i 1 -F 1 -G 1".split()
# The one range of MIOpen 6.4.3 around launches whose name has no address in it: its GEMM's.
GEMM = 's_api = operator() | name + ", non 1x1" = convolution, non 1x1 | '


def run(kdbtool: Callable[..., Any], root: Root, folder: Path, *options: str) -> Trace:
    ended = kdbtool(
        *("record", "--simulate", "gfx1030:36", "--root", root.path, "-o", folder, *options, "--", *DRIVER),
        env={"MIOPEN_ENABLE_LOGGING_ROCTX": "1"},
    )
    assert ended.code == 0, ended.err
    (trace,) = (t for t in map(read_trace, find_traces([folder])) if t.facts.role == "host")
    return trace


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trace]:
    return {}


@pytest.mark.parametrize(
    ("options", "text", "among"),
    [
        (("--kernel", "^Cijk_"), "kernel=^Cijk_", "Cijk_"),
        (("--region", GEMM), f"region={GEMM}", "Im2d2Col"),
        (("--region", GEMM, "--kernel", "Im2d", "--iterations", "1:9", "--every", "2"),
         f"region={GEMM}\nkernel=Im2d\niterations=1:9\nevery=2", "Im2d2Col"),
    ],
)  # fmt: skip
def test_recording_keeps_what_reading_keeps(
    kdbtool: Callable[..., Any],
    opened_root: Root,
    tmp_path: Path,
    whole: dict[str, Trace],
    options: tuple[str, ...],
    text: str,
    among: str,
) -> None:
    """The simulated device makes the same choices each time."""
    if not whole:
        whole["trace"] = run(kdbtool, opened_root, tmp_path / "whole")
    recorded = run(kdbtool, opened_root, tmp_path / "selected", *options)
    read = Selection.parse(text).trace(whole["trace"])
    counts = recorded.launches.by_kernel()
    assert counts == read.launches.by_kernel()
    assert 0 < sum(counts.values()) < len(whole["trace"].launches)
    assert any(among in name for name in counts) and recorded.facts.unselected
    assert len(recorded.lookups) == len(read.lookups)
