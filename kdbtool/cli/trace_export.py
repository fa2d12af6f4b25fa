"""Write traces as tables: `kdbtool trace export traces/ -o run.sqlite`, or `-o FOLDER` for Parquet files.

A name that ends in .sqlite, .sqlite3 or .db is one SQLite file; one that ends in .parquet the table that
--table names; any other a folder with a Parquet file for each table. Parquet needs polars: pip install
'kdbtool[columns]'. docs/trace-tables.md says what the columns mean.
"""

from __future__ import annotations

import argparse
import json

from kdbtool.cli import options, tracefiles
from kdbtool.errors import EXIT_DONE, KdbtoolError, counted, printable
from kdbtool.files import check_output
from kdbtool.shim.trace_export import to_parquet, to_sqlite
from kdbtool.shim.trace_tables import TABLES

HELP = "write traces as tables: SQLite or Parquet"
_SQLITE = (".sqlite", ".sqlite3", ".db")


def prepare(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    tracefiles.inputs(parser)
    options.selection(parser)
    options.output(parser, "FILE.sqlite, FILE.parquet, or a folder", required=True)
    parser.add_argument("--table", choices=tuple(TABLES), help="the table that FILE.parquet is to hold")
    options.force(parser)
    options.json_output(parser)
    options.verbosity(parser)


def run(args: argparse.Namespace) -> int:
    """Say how many rows each table has."""
    single = args.output.suffix == ".parquet"
    if single != bool(args.table):
        why = "a Parquet file holds one table" if single else "--table is for a FILE.parquet"
        hint = "add --table launches, or name a folder" if single else "leave it out"
        raise KdbtoolError("cannot write", where=args.output, why=why, hint=hint)
    traces = tracefiles.traces(args.traces, options.selected(args))
    if args.output.suffix in _SQLITE or single:
        check_output(args.output, force=args.force)
    if args.output.suffix in _SQLITE:
        counts = to_sqlite(traces, args.output, force=args.force)
    else:
        counts = to_parquet(traces, args.output, args.table, force=args.force)
    tables = {name: counts[name] for name in TABLES if not args.table or name == args.table}
    if args.json:
        print(json.dumps({"output": str(args.output), "rows": tables}, indent=2))
    elif not args.quiet:
        told = ", ".join(f"{n} {name}" for name, n in tables.items() if n)
        print(f"{printable(args.output)}: {told or counted(0, 'row')}")
    return EXIT_DONE
