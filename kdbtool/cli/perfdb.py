"""Convert a performance database between SQLite and text, as builds of MIOpen differ in which they read.

`convert IN -o OUT`: the name of OUT decides: .db.txt and .udb.txt are text, .db and .udb SQLite, each also
with .bz2. Every row comes over; rows that cannot be read or written are counted, and the exit code is 1.
`list` prints rows. docs/find-and-perf-db.md says which MIOpen reads which form.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from kdbtool.cli import options
from kdbtool.cli.rowjson import print_rows
from kdbtool.errors import EXIT_DONE, EXIT_PROBLEMS, printable
from kdbtool.miopen import perfdb
from kdbtool.miopen.textdb import Damage

HELP = "convert a perf-db between SQLite and text"
SHOWN = 20  # damaged places told without -v


def prepare(parser: argparse.ArgumentParser) -> None:
    """The actions and their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    text = "write the same rows in the other form"
    sub = actions.add_parser("convert", help=text, description=text)
    sub.add_argument("file", type=Path, metavar="IN", help="a perf-db: SQLite or text, also .bz2")
    options.output(sub, "what to write: NAME.db.txt is text, NAME.db SQLite, also .bz2", required=True)
    options.force(sub)
    options.json_output(sub)
    options.verbosity(sub)
    text = "print rows: problem, solver, parameters"
    sub = actions.add_parser("list", help=text, description=text)
    sub.add_argument("file", type=Path, metavar="FILE", help="a perf-db: SQLite or text, also .bz2")
    sub.add_argument("--problem", type=options.regex, metavar="REGEX", help="only keys that match (search)")
    sub.add_argument("--solver", type=options.regex, metavar="REGEX", help="only solvers that match (search)")
    options.json_output(sub)
    options.verbosity(sub)


def run(args: argparse.Namespace) -> int:
    """Do the action."""
    return _convert(args) if args.action == "convert" else _list(args)


def _convert(args: argparse.Namespace) -> int:
    done = perfdb.convert(args.file, args.output, force=args.force)
    if args.json:
        document = {
            "input": printable(args.file),
            "output": printable(args.output),
            "form": done.form,
            "problems": done.problems,
            "rows": done.rows,
            "rekeyed": done.rekeyed,
            "unused_problems": done.unused,
            "lost": [damage.describe() for damage in done.lost],
        }
        print(json.dumps(document, indent=1))
    elif not args.quiet:
        print(f"{printable(args.output)}: {done.form}, {done.rows} rows of {done.problems} problems")
        if done.unused:
            print(f"  {done.unused} problems without any row are left out")
        if done.rekeyed:
            print(f"  {done.rekeyed} rows had find-db keys, as ROCm 6.1 and older wrote them")
    _tell(args, done.lost)
    return EXIT_PROBLEMS if done.lost else EXIT_DONE


def _list(args: argparse.Namespace) -> int:
    wrong: list[Damage] = []
    rows = (
        {"problem": r.key, "solver": r.solver, "params": r.params}
        for r in perfdb.read(args.file, wrong.append)
        if (args.problem is None or args.problem.search(r.key))
        and (args.solver is None or args.solver.search(r.solver))
    )
    if args.json:
        print_rows(args.file, "rows", rows)
    else:
        for row in rows:
            print(*(printable(value) for value in row.values()), sep="\t")
    _tell(args, wrong)
    return EXIT_PROBLEMS if wrong else EXIT_DONE


def _tell(args: argparse.Namespace, wrong: list[Damage]) -> None:
    for damage in wrong if args.verbose else wrong[:SHOWN]:
        print(f"kdbtool perfdb: {printable(args.file)}: {damage.describe()}", file=sys.stderr)
    if len(wrong) > SHOWN and not args.verbose:
        print(f"kdbtool perfdb: and {len(wrong) - SHOWN} more (-v shows all)", file=sys.stderr)
