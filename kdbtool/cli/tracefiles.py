"""The traces that a command was given: files, merged files, folders; one at a time in memory."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

from kdbtool.errors import KdbtoolError
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


def traces(paths: Iterable[Path]) -> Iterator[Trace]:
    """Each process' trace, in the order of the files."""
    for path in files(paths):
        yield from each_trace(path)
