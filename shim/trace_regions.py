"""Which ROCTx range a launch belongs to: the innermost one that was pushed and not yet popped on its thread
at its time; where there is none, the one started last in the process and not yet stopped.

Ranges that were never closed last to the end; a pop without a push, or a stop without a start, is passed
over.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from kdbtool.shim.trace_model import Range


class _Line:
    """What is open from which time on; times never fall."""

    def __init__(self) -> None:
        self.times: list[int] = []
        self.open: list[int | None] = []

    def add(self, time_ns: int, number: int | None) -> None:
        self.times.append(max(time_ns, self.times[-1]) if self.times else time_ns)
        self.open.append(number)

    def fill(self, times: Sequence[int]) -> list[tuple[int, int, int | None]]:
        """Pieces (begin, end, what is open) of a list of times that never fall."""
        found, at = [], 0
        while at < len(times):
            i = bisect_right(self.times, times[at])
            end = bisect_left(times, self.times[i], at) if i < len(self.times) else len(times)
            found.append((at, end, self.open[i - 1] if i else None))
            at = end
        return found


class Regions:
    """Of the ranges of one process; a range is named by its place in the list."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self.ends: dict[int, int] = {}  # of a push or start that was closed: when, ns
        self._threads: dict[int, _Line] = {}
        self._process = _Line()
        stacks: dict[int, list[int]] = {}
        started: dict[int, int] = {}  # by id, in the order of their begin
        for number in sorted(range(len(ranges)), key=lambda n: ranges[n].time_ns):  # stable
            one = ranges[number]
            stack = stacks.setdefault(one.thread, [])
            if one.op == "push":
                stack.append(number)
            elif one.op == "pop" and stack:
                self.ends[stack.pop()] = one.time_ns
            elif one.op == "start":
                started.pop(one.id, None)
                started[one.id] = number
            elif one.op == "stop" and one.id in started:
                self.ends[started.pop(one.id)] = one.time_ns
            else:
                continue
            if one.op in ("push", "pop"):
                line = self._threads.setdefault(one.thread, _Line())
                line.add(one.time_ns, stack[-1] if stack else None)
            else:
                self._process.add(one.time_ns, next(reversed(started.values()), None))

    def of(self, thread: int, times: Sequence[int]) -> list[int | None]:
        """The range of each of these times (ns, never falling) on a thread."""
        found: list[int | None] = []
        for begin, end, number in self._threads.get(thread, _Line()).fill(times):
            if number is not None:
                found += [number] * (end - begin)
                continue
            for first, last, other in self._process.fill(times[begin:end]):
                found += [other] * (last - first)
        return found
