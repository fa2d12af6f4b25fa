"""The events of traces, one to a line: `kdbtool trace list traces/ --what launches --what ranges`.

Process after process, in each by time across its threads (facts, which have no time, first). A line has, by
tabs: Unix time in ns, pid, thread, what it is, then name=value. --json prints a JSON object to a line. Texts
longer than 4096 characters are cut (...); `kdbtool trace export` has them whole.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from functools import lru_cache, partial
from heapq import merge
from typing import Any

from kdbtool.cli import options, tracefiles
from kdbtool.errors import EXIT_DONE, printable
from kdbtool.shim.compiles import action_name
from kdbtool.shim.trace_model import UNKNOWN_SHAPE, Shape, Trace
from kdbtool.shim.trace_tables import escaped

HELP = "print the events of traces"
_LONGEST = 4096
_KINDS = "facts lookups problems calls compiles modules launches graphs ranges samples gates".split()
_Event = tuple[int, int, str, Callable[[], str]]  # time, thread, what, the rest of its line
_Render = Callable[[dict[str, Any]], str]


def prepare(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    tracefiles.inputs(parser)
    options.selection(parser)
    parser.add_argument("--what", action="append", choices=_KINDS, help="only these events (repeatable)")
    options.json_output(parser, lines=True)
    options.verbosity(parser)


def run(args: argparse.Namespace) -> int:
    """Print as the events come."""
    wanted, shown = set(args.what or _KINDS), 0
    render = _json if args.json else _cells
    for trace in tracefiles.traces(args.traces, options.selected(args)):
        pid = trace.facts.pid
        for time_ns, thread, what, told in _events(trace, wanted, render):
            shown += 1
            if args.json:
                head = json.dumps({"time_ns": time_ns, "pid": pid, "thread": thread, "what": what})
                sys.stdout.write(f"{head[:-1]}, {told()}\n")
            else:
                sys.stdout.write(f"{time_ns}\t{pid}\t{thread}\t{what}\t{told()}\n")
    if not shown and not args.quiet:
        print("kdbtool trace: no such event", file=sys.stderr)
    return EXIT_DONE


def _json(values: dict[str, Any]) -> str:
    return json.dumps({name: _cut(value) for name, value in values.items()})[1:]


def _cells(values: dict[str, Any]) -> str:
    return "\t".join(f"{name}={_text(_cut(value))}" for name, value in values.items() if value is not None)


def _events(trace: Trace, wanted: set[str], render: _Render) -> Iterator[_Event]:
    if "facts" in wanted:
        for name, value in trace.facts.all.items():
            yield trace.facts.start_ns, 0, "fact", partial(render, {"name": name, "value": value})
    lists: list[tuple[str, Iterable[Any]]] = [
        ("lookup", trace.lookups), ("problem", trace.problems), ("call", trace.calls),
        ("compile", trace.compiles), ("module", trace.modules), ("graph", trace.graphs),
        ("range", trace.ranges), ("sample", trace.samples), ("gate", trace.gates),
    ]  # fmt: skip
    streams: list[Iterator[_Event]] = [
        _of(trace, what, events, render) for what, events in lists if f"{what}s" in wanted
    ]
    if "launches" in wanted:
        pairs = trace.launches.by_thread().items()
        cached: dict[int, str] = {}

        def launch(shape: int) -> str:
            if shape not in cached:
                cached[shape] = render(_launch(trace.launches.shapes.get(shape, UNKNOWN_SHAPE)))
            return cached[shape]

        streams += [_launches(thread, some, launch) for thread, some in pairs]
    yield from merge(*streams, key=lambda event: event[:2])


def _of(trace: Trace, what: str, events: Iterable[Any], render: _Render) -> Iterator[_Event]:
    def told(one: Any) -> str:
        return render(_values(trace, one))

    for one in sorted(events, key=lambda event: event.time_ns):
        yield one.time_ns, getattr(one, "thread", 0), what, partial(told, one)


def _values(trace: Trace, one: Any) -> dict[str, Any]:
    found = {f.name: getattr(one, f.name) for f in fields(one) if f.name not in ("time_ns", "thread")}
    if "action" in found:
        found["action"] = action_name(trace.facts, one) or found["action"]
    return found


def _launches(thread: int, pairs: Iterator[tuple[int, int]], told: Callable[[int], str]) -> Iterator[_Event]:
    for shape, time_ns in pairs:
        yield time_ns, thread, "launch", partial(told, shape)


def _launch(shape: Shape) -> dict[str, Any]:
    kernel, module, grid, block, lds, device, stream, form, captured = shape
    return {
        "kernel": kernel, "module": module.md5 or None if module else None, "grid": grid, "block": block,
        "lds": lds, "device": device, "stream": stream, "form": form, "captured": captured or None,
    }  # fmt: skip


def _cut(value: Any) -> Any:
    """Fit for JSON, and no longer than a line may be."""
    if isinstance(value, bytes):
        value = value[: _LONGEST + 1].decode("utf-8", "surrogateescape")
    if isinstance(value, str):
        return _safe(value) if len(value) <= _LONGEST else _safe(value[:_LONGEST]) + "..."
    if isinstance(value, tuple):
        found = [_cut(one) for one in value[:_LONGEST]]
        return [*found, "..."] if len(value) > _LONGEST else found
    return value


@lru_cache(maxsize=1024)
def _safe(text: str) -> str:
    return escaped(text)


@lru_cache(maxsize=1024)
def _line(text: str) -> str:
    return printable(text)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_text, value))
    if isinstance(value, bool):
        return str(int(value))
    return _line(value) if isinstance(value, str) else str(value)
