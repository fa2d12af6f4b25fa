"""How far a harvest is: a bar on a terminal, a line every ten seconds in a build log, nothing with -q."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from kdbtool.rebuild.progress import EVERY


class Silent:
    """Says nothing."""

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def show(self, done: int, total: int, keys: int) -> None:
        """`done` of `total` problems, `keys` so far."""


class Lines(Silent):
    """For a build log."""

    def __init__(self) -> None:
        self.began = self.last = time.monotonic()
        self.first: int | None = None

    def show(self, done: int, total: int, keys: int) -> None:
        now = time.monotonic()
        if self.first is None:
            self.first = done
            print(
                f"{total} problems to ask for" + (f", {done} of them done before" if done else ""),
                file=sys.stderr,
            )
        elif now - self.last >= EVERY and done > self.first:
            self.last = now
            left = (now - self.began) / (done - self.first) * (total - done)
            print(
                f"{done} of {total} problems, {keys} keys, about {left:.0f} s left",
                file=sys.stderr,
                flush=True,
            )


class Bar(Silent):
    """For a terminal."""

    def __init__(self) -> None:
        # redrawn when something happens: no thread, since workers are forked
        self.bar = Progress(
            TextColumn("problems, {task.fields[keys]} keys"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(file=sys.stderr),
            auto_refresh=False,
        )
        self.task = self.bar.add_task("", keys=0, total=None)

    def __enter__(self) -> Bar:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def show(self, done: int, total: int, keys: int) -> None:
        self.bar.update(self.task, completed=done, total=total, keys=keys, refresh=True)


def choose(quiet: bool) -> Silent:
    """What fits standard error."""
    if quiet:
        return Silent()
    return Bar() if sys.stderr.isatty() else Lines()
