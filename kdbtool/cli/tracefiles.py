"""The traces that a command was given: files, merged files, folders; one at a time in memory."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from kdbtool.errors import KdbtoolError, counted
from kdbtool.shim.selection import Selection
from kdbtool.shim.trace import each_trace, find_traces
from kdbtool.shim.trace_model import Trace


def inputs(parser: argparse.ArgumentParser) -> None:
    """`TRACE`, repeatable."""
    parser.add_argument(
        "traces", nargs="+", type=Path, metavar="TRACE", help="a trace, a merged one, or a folder of them"
    )


def files(paths: Iterable[Path]) -> list[Path]:
    """The files, sorted, each once; KdbtoolError where there is none."""
    paths = list(paths)
    found = find_traces(paths)
    if not found:
        raise KdbtoolError(
            "no trace in the folder",
            where=paths[0],
            why="no *.kdbtrace file",
            hint="record one: kdbtool record -o DIR -- CMD",
        )
    return found


def traces(paths: Iterable[Path], selection: Selection | None = None) -> Iterator[Trace]:
    """Each process' trace, in the order of the files; of `selection`'s ranks, with what it keeps. One that
    keeps no launch is told on standard error: it may be misspelt."""
    launches = left_out = 0
    for path in files(paths):
        for trace in each_trace(path):
            if not selection:
                yield trace
                continue
            kept = selection.trace(trace)
            launches += len(kept.launches)
            left_out += kept.facts.unselected - trace.facts.unselected
            if selection.takes(trace.facts):
                yield kept
    if left_out and not launches:
        told = f"the selection keeps no launch, {counted(left_out, 'event')} left out"
        print(f"kdbtool trace: {told}", file=sys.stderr)
