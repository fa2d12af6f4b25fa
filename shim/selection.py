"""What of a recording is kept (docs/selection.md): the text that the recorder reads, applied to a trace.

Grammar, pattern and numbers are decided by csrc/selection.c, the code that the recorder has. Only what it
cannot know while the program runs is worked out here: the order of the launches of several threads, and
when a range was open.
"""

from __future__ import annotations

import os
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from heapq import merge
from typing import Any, TypeVar

from kdbtool.errors import KdbtoolError, printable
from kdbtool.shim._trace import ffi, lib
from kdbtool.shim.trace_model import UNKNOWN_SHAPE, Clock, Facts, Launches, Range, Run, Shape, Trace

_HINT = "docs/selection.md says what each filter takes"
_NEVER = -1  # instead of a counter: no launch of this shape is kept
_MOST = 2**32 - 1  # of a launch's delta
_Event = TypeVar("_Event")
Span = tuple[int, int]  # begin and end, ns of Unix time, both belong to it


@dataclass(frozen=True)
class Selection:
    """A selection that the recorder would take. Make one with `parse` or `of`."""

    text: str = ""
    _c: Any = field(default=None, compare=False, repr=False)
    _pattern: Any = field(default=None, compare=False, repr=False)

    @classmethod
    def parse(cls, text: str) -> Selection:
        """Lines of name=value; KdbtoolError names the line that is wrong."""
        c, why = ffi.new("struct kdbt_selection *"), ffi.new("char[]", 240)
        raw = os.fsencode(text)
        if b"\0" in raw:
            raise _wrong("a zero byte")
        if lib.kdbt_select_parse(c, raw, why, len(why)) != 0:
            raise _wrong(_said(why))
        pattern = None
        if c.kernel:
            made = lib.kdbt_pattern_new(c.text + c.kernel, why, len(why))
            if made == ffi.NULL:
                raise _wrong(f"kernel: {_said(why)}")
            pattern = ffi.gc(made, lib.kdbt_pattern_free)
        return cls(text, c, pattern)

    @classmethod
    def of(
        cls,
        *,
        kernel: str | None = None,
        every: str | None = None,
        first: str | None = None,
        iterations: str | None = None,
        device: str | None = None,
        rank: str | None = None,
        regions: tuple[str, ...] = (),
        paused: bool = False,
        signal: int | None = None,
    ) -> Selection:
        """Of the options' values."""
        lines = [
            ("kernel", kernel),
            ("every", every),
            ("first", first),
            ("iterations", iterations),
            ("device", device),
            ("rank", rank),
            *(("region", name) for name in regions),
            ("paused", "1" if paused else None),
            ("signal", None if signal is None else str(signal)),
        ]
        for name, value in lines:
            if value and "\n" in value:
                raise _wrong(f"{name}: a line break")
        return cls.parse("".join(f"{name}={value}\n" for name, value in lines if value is not None))

    def __bool__(self) -> bool:
        """Whether anything is selected at all."""
        return bool(self.text)

    @property
    def has_rank(self) -> bool:
        """Whether some ranks are to leave no trace."""
        return bool(self._c and self._c.ranks)

    def matches(self, kernel: str) -> bool:
        """Whether the raw name of a kernel passes."""
        if self._pattern is None:
            return True
        raw = os.fsencode(kernel).split(b"\0")[0]
        return bool(lib.kdbt_pattern_matches(self._pattern, raw))

    def trace(self, trace: Trace) -> Trace:
        """What the trace would hold, had this been given to the recorder. `facts.unselected` counts what
        is left out, too. A pause has no meaning here: no signal comes. A compiler's own trace stays whole."""
        if not self or trace.facts.role not in ("host", "unknown"):
            return trace
        spans = self._spans(trace.ranges) if self.takes(trace.facts) else []
        at: Callable[[Any], int] = lambda event: event.time_ns  # noqa: E731
        end: Callable[[Any], int] = lambda event: event.time_ns + event.duration_ns  # noqa: E731
        kept = replace(
            trace,
            launches=self._launches(trace.launches, spans),
            lookups=_within(trace.lookups, spans, at),
            problems=_within(trace.problems, spans, end),
            calls=_within(trace.calls, spans, end),
            compiles=_within(trace.compiles, spans, end),
            graphs=_within(trace.graphs, spans, at),
        )
        left_out = _events(trace) - _events(kept)
        return replace(kept, facts=replace(kept.facts, unselected=trace.facts.unselected + left_out))

    def takes(self, facts: Facts) -> bool:
        """Whether such a process leaves a trace at all. A compiler's does not tell its rank."""
        if not self or facts.role not in ("host", "unknown"):
            return True
        return bool(lib.kdbt_select_rank(self._c, -1 if facts.rank is None else facts.rank))

    def launches(self, trace: Trace) -> Launches:
        """The launches that are kept."""
        return self.trace(trace).launches

    # ---- the gate ----

    def _spans(self, ranges: list[Range]) -> list[Span] | None:
        """When a range of a selected name was open in any thread; None: no region was asked for."""
        if not self._c.regions:
            return None
        spans: list[Span] = []
        stacks: dict[int, list[bool]] = {}
        started: dict[int, int] = {}  # open starts by id
        count = begin = 0
        for one in sorted(ranges, key=lambda one: one.time_ns):
            change = 0
            stack = stacks.setdefault(one.thread, [])
            if one.op == "push":
                stack.append(self._region(one.name))
                change = int(stack[-1])
            elif one.op == "pop" and stack:
                change = -int(stack.pop())
            elif one.op == "start" and self._region(one.name):
                started[one.id] = started.get(one.id, 0) + 1
                change = 1
            elif one.op == "stop" and started.get(one.id):
                started[one.id] -= 1
                change = -1
            if change > 0 and count == 0:
                begin = one.time_ns
            if change < 0 and count == 1:
                spans.append((begin, one.time_ns))
            count += change
        if count:
            spans.append((begin, 2**80))  # never closed
        return spans

    def _region(self, name: str) -> bool:
        return bool(lib.kdbt_select_region(self._c, os.fsencode(name).split(b"\0")[0]))

    # ---- launches ----

    def _launches(self, launches: Launches, spans: list[Span] | None) -> Launches:
        shapes, runs, clock = launches.parts
        counters = self._counters(shapes, runs)
        kept = [bytearray(len(run) // 2) for _, _, run in runs]
        numbers: dict[int, int] = {}
        numbered, nth, c = bool(lib.kdbt_select_numbers(self._c)), lib.kdbt_select_nth, self._c
        for _, number, i, counter in _in_order(runs, counters, spans, clock, sort=numbered):
            if numbered:
                n = numbers.get(counter, 0)
                numbers[counter] = n + 1
                kept[number][i] = nth(c, n)
            else:
                kept[number][i] = 1
        found = [part for run, keep in zip(runs, kept, strict=True) for part in _only(run, keep, clock.shift)]
        return Launches(shapes, found, clock)

    def _counters(self, shapes: dict[int, Shape], runs: list[Run]) -> dict[int, int]:
        """By shape: a number for each kernel (its name and its module's code) and device, or _NEVER."""
        numbers: dict[tuple[str, str, int, int], int] = {}
        judged: dict[str, bool] = {}
        counters: dict[int, int] = {}
        for _, _, run in runs:
            for shape in set(run[::2].tolist()) - counters.keys():
                name, module, _, _, _, device, *_ = shapes.get(shape, UNKNOWN_SHAPE)
                if name not in judged:
                    judged[name] = self.matches(name)
                counters[shape] = _NEVER
                if judged[name] and lib.kdbt_select_device(self._c, device):
                    key = (name, module.md5 if module else "", module.size if module else 0, device)
                    counters[shape] = numbers.setdefault(key, len(numbers))
        return counters


def _in_order(
    runs: list[Run], counters: dict[int, int], spans: list[Span] | None, clock: Clock, *, sort: bool
) -> Iterator[tuple[int, int, int, int]]:
    """(ticks, number of the run, place in it, counter) of the launches that may be kept; with `sort` those
    of all threads in the order of time."""

    def of(thread: int) -> Iterator[tuple[int, int, int, int]]:
        for number, (owner, ticks, run) in enumerate(runs):
            if owner != thread:
                continue
            pairs = run.tolist()
            for i, (shape, delta) in enumerate(zip(pairs[::2], pairs[1::2], strict=False)):
                ticks += delta << clock.shift
                counter = counters[shape]
                if counter != _NEVER and (spans is None or _inside(spans, clock.unix_ns(ticks))):
                    yield ticks, number, i, counter

    threads = [of(thread) for thread in dict.fromkeys(thread for thread, _, _ in runs)]
    if sort and len(threads) > 1:
        yield from merge(*threads)
    else:
        for one in threads:
            yield from one


def _only(run: Run, keep: bytearray, shift: int) -> Iterator[Run]:
    """The launches of a run that are kept, their times unchanged."""
    thread, ticks, pairs = run
    count = keep.count(1)
    if count in (0, len(keep)):
        yield from [run][: bool(count)]
        return
    made, begin = array("I"), ticks
    at = held = 0  # of this launch and of the one that was kept last, from `ticks` on
    for i, kept in enumerate(keep):
        at += pairs[2 * i + 1]
        if not kept:
            continue
        if at - held > _MOST:  # no delta can say it: a run of its own
            if made:
                yield thread, begin, memoryview(made)
            made, begin, held = array("I"), ticks + (at << shift), at
        made.extend((pairs[2 * i], at - held))
        held = at
    yield thread, begin, memoryview(made)


def _inside(spans: list[Span], time_ns: int) -> bool:
    i = bisect_right(spans, (time_ns, 2**80 + 1)) - 1
    return i >= 0 and spans[i][0] <= time_ns <= spans[i][1]


def _within(events: list[_Event], spans: list[Span] | None, time: Callable[[Any], int]) -> list[_Event]:
    return events if spans is None else [event for event in events if _inside(spans, time(event))]


def _events(trace: Trace) -> int:
    others = sum(max(1, len(lookup.databases)) for lookup in trace.lookups)  # a statement each
    others += len(trace.problems) + len(trace.calls)
    return len(trace.launches) + others + len(trace.compiles) + len(trace.graphs)


# Outside of brackets, counts and GNU's \< and \>, no symbol has one of these.
_ASIDE = re.compile(r"\[\^?\]?(?:\[[:.=][^]]*\]|[^]])*\]|\{[0-9,]*\}|\\[<>]")


def raw_name_only(pattern: str) -> str:
    """The pattern; KdbtoolError for one that was meant for demangled names, which matches nothing while
    recording: symbols have no blanks, ':', '<', '>', ',' or '&'."""
    found = re.search(r"[ :<>,&]", _ASIDE.sub("", pattern))
    if found:
        raise KdbtoolError(
            "no kernel has such a name",
            where=f"--kernel {printable(pattern)}",
            why=f"the names are symbols, not demangled ones: there is no {found[0]!r} in them",
            hint="c++filt -n shows what a symbol of a trace stands for",
        )
    return pattern


def _said(why: Any) -> str:
    return printable(ffi.string(why).decode("utf-8", "replace"))


def _wrong(why: str) -> KdbtoolError:
    return KdbtoolError("no such selection", why=why, hint=_HINT)
