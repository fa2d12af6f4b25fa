"""Make traces of logs of MIOpen.

`kdbtool trace import LOG -o FILE.kdbtrace` writes what a log (MIOPEN_LOG_LEVEL=6) tells as a trace that
every command takes; with several logs -o is a folder. A trace says that it came from a log. Lines that
are doubtful are printed with their number and are not in it. docs/logs.md says what is read.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from kdbtool.cli import options
from kdbtool.errors import EXIT_DONE, EXIT_PROBLEMS, KdbtoolError, printable
from kdbtool.files import check_output
from kdbtool.miopen.logs import read_log
from kdbtool.shim.trace import SUFFIX
from kdbtool.shim.trace_model import Trace
from kdbtool.shim.trace_write import write_trace

HELP = "make traces of MIOpen's logs"
SHOWN = 20  # doubtful lines, without -v


def prepare(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.add_argument("logs", nargs="+", type=Path, metavar="LOG", help="a log, plain or .gz .bz2 .xz")
    options.output(parser, "the trace to write; a folder for several logs", required=True)
    options.force(parser)
    options.json_output(parser)
    options.verbosity(parser)


def run(args: argparse.Namespace) -> int:
    """Exit code 1 where a log had doubtful lines."""
    outputs = _outputs(args.logs, args.output)
    for path in outputs:
        check_output(path, force=args.force)
    done: list[dict[str, Any]] = []
    failed: KdbtoolError | None = None
    try:
        for log, output in zip(args.logs, outputs, strict=True):
            trace = read_log(log)
            write_trace(output, trace, force=args.force)
            done.append(_told(log, output, trace))
            if not args.json:
                _print(done[-1], args)
    except KdbtoolError as error:
        failed = error
    if args.json:  # what is written is said, even where another log cannot be read
        print(json.dumps({"traces": done} | ({"error": failed.line()} if failed else {}), indent=2))
    if failed:
        failed.in_document = args.json
        raise failed
    return EXIT_PROBLEMS if any(one["doubtful"] for one in done) else EXIT_DONE


def _outputs(logs: list[Path], output: Path) -> list[Path]:
    """A file for one log; a folder (one that is there, or for several logs) has one for each."""
    if len(logs) == 1 and not output.is_dir():
        if output.suffix != SUFFIX:
            raise KdbtoolError("cannot write", where=output, why=f"a trace is named *{SUFFIX}")
        return [output]
    if not output.is_dir():
        raise KdbtoolError(
            "cannot write", where=output, why="several logs need a folder", hint=f"mkdir {output}"
        )
    found = [output / f"{log.name}{SUFFIX}" for log in logs]
    for path in found:
        if found.count(path) > 1:
            raise KdbtoolError("cannot write", where=path, why="two of the logs have one name")
    return found


def _told(log: Path, output: Path, trace: Trace) -> dict[str, Any]:
    doubts = [note for note in trace.notes if note.startswith("line ") or note.endswith("doubtful lines")]
    return {
        "log": str(log),
        "trace": str(output),
        "miopen": trace.facts.miopen_version,
        "device": trace.facts.device,
        "cu": trace.facts.cu,
        "lookups": len(trace.lookups),
        "keys": len({(lookup.name, lookup.args) for lookup in trace.lookups}),
        "hits": sum(lookup.hit is True for lookup in trace.lookups),
        "misses": sum(lookup.hit is False for lookup in trace.lookups),
        "problems": len({problem.key for problem in trace.problems}),
        "doubtful": doubts,
        "notes": [note for note in trace.notes if note not in doubts],
    }


def _print(told: dict[str, Any], args: argparse.Namespace) -> None:
    console = Console(soft_wrap=True, markup=False, highlight=False, emoji=False)
    if not args.quiet:
        unknown = "unknown"
        device = told["device"] or unknown
        units = f", {told['cu']} units" if told["cu"] else ""
        console.print(
            f"{printable(told['trace'])}: MIOpen {told['miopen'] or unknown}, device {device}{units}"
        )
        console.print(
            f"  {told['lookups']} look-ups of {told['keys']} keys "
            f"({told['hits']} hits, {told['misses']} misses), {told['problems']} problems"
        )
    shown = told["doubtful"] if args.verbose else told["doubtful"][:SHOWN]
    for note in [*shown, *told["notes"]]:
        print(f"{printable(told['log'])}: {note}", file=sys.stderr)
    if len(shown) < len(told["doubtful"]):
        print(f"{len(told['doubtful']) - len(shown)} more doubtful lines (-v shows them)", file=sys.stderr)
