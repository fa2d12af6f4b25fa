"""Join traces to one file, which every command takes for a trace:

  kdbtool trace merge DIR... -o run.kdbtrace

Nothing is lost: traces that were cut or damaged are kept with what their notes say. The same trace given
twice is taken once, and the same set gives the same bytes in any order. Merged files can be merged again.
Ranks that left no trace are named on standard error; that alone is no failure.
"""

from __future__ import annotations

import argparse
import json
import sys

from kdbtool.cli import options, tracefiles
from kdbtool.errors import EXIT_DONE, EXIT_PROBLEMS, KdbtoolError, counted, printable
from kdbtool.files import check_output
from kdbtool.shim import ranks
from kdbtool.shim.trace import SUFFIX
from kdbtool.shim.trace_merge import merge

HELP = "join traces to one file"


def prepare(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    tracefiles.inputs(parser)
    options.output(parser, f"the file to write, *{SUFFIX}", required=True)
    options.force(parser)
    options.json_output(parser)
    options.verbosity(parser)


def run(args: argparse.Namespace) -> int:
    """Exit code 1 where a part of a merged input could not be taken."""
    if args.output.suffix != SUFFIX:
        raise KdbtoolError("cannot write", where=args.output, why=f"a trace is named *{SUFFIX}")
    real = check_output(args.output, force=args.force)
    # In a folder that is merged into itself, the file of the last time is no input.
    found = [path for path in tracefiles.files(args.traces) if not args.force or path.resolve() != real]
    done = merge(found, args.output, force=args.force)
    gaps = ranks.missing(done.facts)
    if args.json:
        told = {
            "output": str(args.output),
            "traces": len(done.facts),
            "repeated": done.repeated,
            "missing_ranks": [{"ranks": n, "missing": some} for n, some in gaps.items()],
            "notes": done.notes,
        }
        print(json.dumps(told, indent=2))
    elif not args.quiet:
        again = f", {done.repeated} given again" if done.repeated else ""
        print(f"{printable(args.output)}: {counted(len(done.facts), 'trace')}{again}")
    for note in [*ranks.told(gaps), *done.notes]:
        print(f"kdbtool trace: {printable(note)}", file=sys.stderr)
    return EXIT_PROBLEMS if done.notes else EXIT_DONE
