"""A progress line on a terminal while the rows of a database go by; nothing in a log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from kdbtool.errors import printable
from kdbtool.kdb.reader import KdbReader


@contextmanager
def row_progress(reader: KdbReader, what: str) -> Iterator[Callable[[], None] | None]:
    """What to call once per row; `what` is being done to them (checking). None where nobody looks."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"{what} {printable(reader.path.name)}", total=len(reader))
        yield lambda: progress.advance(task)
