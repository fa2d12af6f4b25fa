"""Take out of a find database what kills or misleads the installed MIOpen; list what one holds.

`prune` writes a copy without the entries of solvers that the MIOpen named by --miopen does not have, or
knows without code (naming one of those crashes miopenConvolution*GetSolution), and without damaged ones;
it counts them by reason and solver. What is left stays byte for byte. `list` prints entries. Files may be
`.bz2`; an output named so is written so. docs/find-and-perf-db.md says more.
"""

from __future__ import annotations

import argparse
import bz2
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from kdbtool.cli import options
from kdbtool.cli.rowjson import print_rows
from kdbtool.errors import EXIT_DONE, EXIT_PROBLEMS, KdbtoolError, printable
from kdbtool.files import atomic_write, check_output
from kdbtool.miopen import finddb
from kdbtool.miopen.prune import Pruned, Why, prune
from kdbtool.miopen.textdb import Damage
from kdbtool.miopen.versions import resolve

HELP = "take out of a find-db what kills or misleads the installed MIOpen"
SHOWN = 20  # damaged places told without -v


def prepare(parser: argparse.ArgumentParser) -> None:
    """The actions and their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    text = "write a copy without the entries that kill or mislead a MIOpen"
    sub = actions.add_parser("prune", help=text, description=text)
    sub.add_argument("file", type=Path, metavar="FILE", help="a find-db, text or .bz2")
    options.miopen(sub)
    options.output(sub, "the find-db to write; a name ending in .bz2 is compressed", required=True)
    sub.add_argument("--convert", action="store_true", help="write legacy entries in the current form")
    options.force(sub)
    options.json_output(sub)
    options.verbosity(sub)
    text = "print entries: problem, solver, time in ms, workspace in bytes, algorithm"
    sub = actions.add_parser("list", help=text, description=text)
    sub.add_argument("file", type=Path, metavar="FILE", help="a find-db, text or .bz2")
    sub.add_argument(
        "--problem", type=options.regex, metavar="REGEX", help="only problems whose key matches (search)"
    )
    sub.add_argument(
        "--solver", type=options.regex, metavar="REGEX", help="only entries whose solver matches (search)"
    )
    sub.add_argument("--best", action="store_true", help="only each problem's fastest entry")
    options.json_output(sub)
    options.verbosity(sub)


def run(args: argparse.Namespace) -> int:
    """Do the action."""
    return _prune(args) if args.action == "prune" else _list(args)


def _prune(args: argparse.Namespace) -> int:
    if args.miopen is None:
        raise KdbtoolError(
            "no MIOpen named", why="what misleads one may serve another", hint="add --miopen VERSION|PATH"
        )
    build = resolve(args.miopen)
    check_output(args.output, force=args.force)
    done = Pruned()
    with atomic_write(args.output, force=args.force) as file:
        pack = bz2.BZ2Compressor(9) if args.output.suffix == ".bz2" else None
        for line in prune(args.file, build, done, convert=args.convert):
            file.write(pack.compress(line) if pack else line)
        if pack:
            file.write(pack.flush())
    if args.json:
        print(json.dumps(_document(args, build.label, done), indent=1))
    elif not args.quiet:
        _print(args, build.label, done)
    return EXIT_DONE


def _document(args: argparse.Namespace, label: str, done: Pruned) -> dict[str, Any]:
    return {
        "input": printable(args.file),
        "output": printable(args.output),
        "miopen": label,
        "records": {"read": done.lines, "written": done.kept, "emptied": done.emptied},
        "entries": {"written": done.entries, "taken_out": done.taken_out, "converted": done.converted},
        "reasons": dict(done.reasons.most_common()),
        "solvers": [
            {"solver": printable(solver), "reason": why, "entries": count}
            for (solver, why), count in done.solvers.most_common()
        ],
    }


def _print(args: argparse.Namespace, label: str, done: Pruned) -> None:
    out = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
    out.print(f"{printable(args.output)}: for {printable(label)}")
    out.print(f"  records:   {done.kept} of {done.lines} kept, {done.emptied} had no other solver")
    converted = f", {done.converted} converted" if args.convert else ""
    out.print(f"  entries:   {done.entries} kept, {done.taken_out} taken out{converted}")
    by_solver = {str(why) for why in Why}
    for reason, count in done.reasons.most_common():
        out.print(f"  {count:>9}  {reason}")
        named = [(s, n) for (s, why), n in done.solvers.most_common() if why == reason]
        for solver, number in named if args.verbose else named[:SHOWN]:
            out.print(f"  {number:>13}  {printable(solver)}")
        if reason in by_solver and len(named) > SHOWN and not args.verbose:
            out.print(f"                 and {len(named) - SHOWN} more solvers (-v shows all)")


def _list(args: argparse.Namespace) -> int:
    wrong: list[Damage] = []
    rows = _rows(args, wrong)
    if args.json:
        print_rows(args.file, "entries", rows)
    else:
        for row in rows:
            print(*(printable(value) for value in row.values()), sep="\t")
    for damage in wrong if args.verbose else wrong[:SHOWN]:
        print(f"kdbtool finddb: {printable(args.file)}: {damage.describe()}", file=sys.stderr)
    if len(wrong) > SHOWN and not args.verbose:
        print(f"kdbtool finddb: and {len(wrong) - SHOWN} more (-v shows all)", file=sys.stderr)
    return EXIT_PROBLEMS if wrong else EXIT_DONE


def _rows(args: argparse.Namespace, wrong: list[Damage]) -> Iterator[dict[str, Any]]:
    for record in finddb.read(args.file, wrong.append):
        if args.problem and not args.problem.search(record.key):
            continue
        solutions = list(record.solvers)
        if args.best and solutions:
            solutions = [min(solutions, key=lambda s: s.milliseconds)]
        for s in solutions:
            if args.solver is None or args.solver.search(s.solver):
                yield {
                    "problem": record.key,
                    "solver": s.solver,
                    "time": s.milliseconds,
                    "workspace": s.workspace_bytes,
                    "algorithm": s.algorithm,
                }
