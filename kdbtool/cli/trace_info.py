"""What is in traces: each process, then the sum: `kdbtool trace info traces/`.

Programs, ranks, devices; look-ups, problems, other calls; compiles and their seconds; modules, launches and
the kernels that are launched most; graphs, whose kernels are not seen; ranges, samples; what a selection
left out; what is damaged. Of several traces also: ranks that left none, parts of one process, who started
compilers.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from kdbtool.cli import options, tracefiles
from kdbtool.errors import EXIT_DONE, counted, printable
from kdbtool.shim.trace_details import Run, named
from kdbtool.shim.trace_model import Facts

HELP = "say what is in traces"


def prepare(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    tracefiles.inputs(parser)
    options.selection(parser)
    parser.add_argument(
        "--top", type=options.count, default=10, metavar="N", help="kernels, functions, ranges told (10)"
    )
    options.json_output(parser)
    options.verbosity(parser)


def run(args: argparse.Namespace) -> int:
    """Text as the traces are read; a JSON document at the end."""
    total, each = Run(args.top), []
    for trace in tracefiles.traces(args.traces, options.selected(args)):
        found = total.add(trace)
        if args.json:
            each.append(found)
        elif not args.quiet:
            print("\n".join(map(_shown, _process(trace.facts, found))))
    if args.json:
        print(json.dumps(_readable({"traces": each, **total.json()}), indent=2))
        return EXIT_DONE
    lines = list(_sum(total.json()))
    print("\n".join(map(_shown, lines)))
    return EXIT_DONE


def _readable(value: Any) -> Any:
    """A document that any JSON reader takes: a byte that is no UTF-8 would be half of a character."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {_readable(k): _readable(v) for k, v in value.items()}
    return [_readable(one) for one in value] if isinstance(value, list | tuple) else value


def _shown(line: str) -> str:
    """One line that any terminal takes; a name of 16 MB is cut."""
    return printable(line if len(line) <= 2000 else line[:2000] + "...")


def _process(facts: Facts, found: dict[str, Any]) -> Iterator[str]:
    process = found["process"]
    yield f"{found['path']}: {named(facts)}"
    took = "" if process["seconds"] is None else f", {process['seconds']:.3f} s"
    yield f"  begin {process['start'] or 'unknown'}{took}"
    units = f", {found['cu']} units" if found["cu"] else ""
    flags = "".join(f", {flag}" for flag in found["flags"])
    if facts.role == "host":
        device = f"device {found['device'] or 'unknown'}{units}{flags}"
        yield f"  MIOpen {facts.miopen_version or 'unknown'}, {device}"
    yield from _events(found)
    if found["selection"]:
        yield f"  selection: {' '.join(found['selection'].split())}"
    for note in found["notes"]:
        yield f"  note: {note}"


def _events(found: dict[str, Any]) -> Iterator[str]:
    lookups, problems, calls, compiles = (found[k] for k in ("lookups", "problems", "calls", "compiles"))
    modules, launches, graphs, ranges = (found[k] for k in ("modules", "launches", "graphs", "ranges"))
    if lookups["total"]:
        yield (
            f"  {counted(lookups['total'], 'look-up')} of {counted(found['keys']['distinct'], 'key')}: "
            f"{lookups['hit']} hit, {lookups['missed']} missed, {lookups['unanswered']} unanswered"
        )
    if problems["calls"]:
        yield f"  {counted(problems['calls'], 'call')} of {counted(problems['distinct'], 'problem')}"
    if calls["total"]:
        yield f"  {counted(calls['total'], 'other call')}, {calls['failed']} not successful"
        yield from (f"    {n:>10} {api}" for api, n in calls["top"])
    if compiles["total"] or compiles["sources"]:
        yield (
            f"  {counted(compiles['sources'], 'source')} compiled, "
            f"{counted(compiles['total'], 'compiler call')}, "
            f"{compiles['failed']} failed, {compiles['seconds']:.3f} s"
        )
    if modules["loaded"] or modules["failed"]:
        loaded = f"{counted(modules['loaded'], 'module')} loaded, {modules['failed']} failed"
        yield f"  {loaded}, {modules['bytes']} bytes"
    if launches["total"]:
        yield f"  launches: {launches['total']} of {counted(launches['kernels'], 'kernel')}"
        yield from (f"    {n:>10} {name or '(unknown)'}" for name, n in launches["top"])
    if graphs["launches"]:
        more = f", {graphs['uncounted']} times not known how many" if graphs["uncounted"] else ""
        unseen = f"their kernels are not seen ({graphs['kernels']}{more})"
        yield f"  launches of graphs: {graphs['launches']}, {unseen}"
    if ranges["total"] or ranges["marks"]:
        marks = counted(ranges["marks"], "mark")
        yield f"  {counted(ranges['total'], 'range')}, {ranges['open']} never closed, {marks}"
        yield from (f"    {n:>10} {name}" for name, n in ranges["top"])
    samples = found["samples"]
    if samples["total"]:
        yield f"  {counted(samples['total'], 'sample')} of {counted(samples['devices'], 'card')}"


def _sum(total: dict[str, Any]) -> Iterator[str]:
    roles = ", ".join(f"{n} {role}" for role, n in total["roles"].items())
    yield f"total: {total['processes']} traces ({roles})"
    for device, n in total["devices"].items():
        yield f"  device {device}: {n}"
    lookups, keys, problems = total["lookups"], total["keys"], total["problems"]
    yield (
        f"  look-ups: {lookups['total']} of {keys['distinct']} keys ({lookups['hit']} hit, "
        f"{lookups['missed']} missed, {lookups['unanswered']} unanswered)"
    )
    yield f"  problems: {problems['distinct']} in {problems['calls']} calls; other calls: {total['calls']}"
    compiles = total["compiles"]
    yield (
        f"  compiled: {compiles['sources']} sources in {compiles['seconds']:.3f} s; "
        f"compilers started: {total['compilers_started']}"
    )
    yield f"  modules: {total['modules']}; launches: {total['launches']}; left out: {total['unselected']}"
    yield from (f"    {n:>10} {name or '(unknown)'}" for name, n in total["kernels"])
    for one in total["compilers"]:
        yield f"  {counted(one['compilers'], 'compiler')} of {one['path']}"
    if total["compilers_of_nobody"]:
        yield f"  {counted(total['compilers_of_nobody'], 'compiler')} of programs without a trace"
    for one in total["parts"]:
        yield f"  {one['pid']} on {one['host']} has {len(one['paths'])} parts: {', '.join(one['paths'][:5])}"
    for note in total["notes"]:
        yield f"  note: {note}"
