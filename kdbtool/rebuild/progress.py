"""How far a rebuild is: a bar on a terminal, a line every ten seconds in a build log, nothing with -q."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from kdbtool.errors import printable
from kdbtool.rebuild.backend import Outcome, Task

EVERY = 10.0  # seconds between two lines of a log


class Silent:
    """Says nothing but failures, and those only if there is a stream for them."""

    def __init__(self, stream: TextIO | None = None, verbose: bool = False) -> None:
        self.stream, self.verbose = stream, verbose
        self.total = self.finished = self.failed = 0

    def start(self, total: int, reused: int) -> None:
        self.total, self.finished, self.reused = total, reused, reused
        self.began = self.last = time.monotonic()

    def done(self, task: Task, outcome: Outcome) -> None:
        self.finished += 1
        if outcome.reason is not None:
            self.failed += 1
            self.say(f"{task.source} for {task.target}: {outcome.reason.code}: {outcome.detail}")
        elif self.verbose:
            self.say(f"{task.source} for {task.target}: {outcome.seconds:.2f} s")

    def stop(self) -> None:
        """Nothing to close."""

    def say(self, text: str) -> None:
        """One line."""
        if self.stream is not None:
            print(printable(text), file=self.stream, flush=True)


class Lines(Silent):
    """For a build log."""

    def start(self, total: int, reused: int) -> None:
        super().start(total, reused)
        self.say(f"{total} objects to build, {reused} of them built before")

    def done(self, task: Task, outcome: Outcome) -> None:
        super().done(task, outcome)
        now = time.monotonic()
        if now - self.last >= EVERY:
            self.last = now
            self.say(f"{self.finished} of {self.total} objects, {self.failed} failed, {self._left(now)} left")

    def _left(self, now: float) -> str:
        compiled = self.finished - self.reused
        seconds = (now - self.began) / compiled * (self.total - self.finished) if compiled else 0
        return f"about {seconds:.0f} s" if seconds < 120 else f"about {seconds / 60:.0f} min"


class Bar(Silent):
    """For a terminal. It is redrawn when something happens: no thread, since workers are forked."""

    def start(self, total: int, reused: int) -> None:
        super().start(total, reused)
        self.bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(file=self.stream),
            auto_refresh=False,
        )
        self.id = self.bar.add_task("objects", total=total, completed=reused)
        self.bar.start()

    def done(self, task: Task, outcome: Outcome) -> None:
        super().done(task, outcome)
        failed = f", {self.failed} failed" if self.failed else ""
        self.bar.update(self.id, completed=self.finished, description=f"objects{failed}", refresh=True)

    def say(self, text: str) -> None:
        """Above the bar."""
        self.bar.console.print(printable(text), markup=False, highlight=False)

    def stop(self) -> None:
        self.bar.stop()


def choose(quiet: bool, verbose: bool, stream: TextIO | None = None) -> Silent:
    """By what the user asked for and what `stream` (default: standard error) is."""
    stream = sys.stderr if stream is None else stream
    if quiet:
        return Silent(stream)
    return Bar(stream, verbose) if stream.isatty() else Lines(stream, verbose)
