"""Check kernel databases before they are shipped or installed.

MIOpen compiles what a database lacks, but throws on a row that is damaged and may run one that is
stale. Every finding names its row, what is wrong, what MIOpen does about it and the next command;
docs/kdb-format.md lists them all. Exit code: 0 nothing but notes, 1 problems, 2 not a kernel
database.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from kdbtool.cli import options
from kdbtool.cli.archs import wanted_archs
from kdbtool.errors import EXIT_DONE, EXIT_PROBLEMS, EXIT_USAGE, KdbtoolError, printable
from kdbtool.kdb.checks import Report, check
from kdbtool.kdb.findings import Code, Finding
from kdbtool.kdb.identify import Kind, identify
from kdbtool.kdb.reader import KdbReader

HELP = "check a kernel database: every row, and what MIOpen would do with it"
SHOWN, SHOWN_NOTES = 10, 2  # rows per finding without -v


def prepare(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a .kdb or .ukdb")
    options.arch(
        parser,
        "an architecture that the database is for (repeatable); native: the devices present; "
        "default and all: that of its name, else any",
    )
    options.json_output(parser)
    options.verbosity(parser)


def run(args: argparse.Namespace) -> int:
    """Check each file; the worst exit code counts."""
    archs = wanted_archs(args.arch)
    worst = EXIT_DONE
    documents = []
    for path in args.files:
        kind = identify(path)
        document: dict[str, Any] = {"path": printable(str(path)), "kind": kind.what.value}
        documents.append(document)
        try:
            if not kind.is_kdb:
                raise kind.error()
            with KdbReader(kind) as reader:
                report = checked(reader, archs)
        except KdbtoolError as error:
            document["error"] = error.line()
            print(f"kdbtool verify: {error.line()}", file=sys.stderr)
            worst = max(worst, error.exit_code)
            continue
        document |= {
            "rows": report.stats.rows,
            "problems": report.problems,
            "notes": len(report.findings) - report.problems,
            "findings": [f.json(path) for f in report.findings],
        }
        if not args.json:
            _print(kind, report, verbose=args.verbose > 0, quiet=args.quiet)
        worst = max(worst, EXIT_PROBLEMS if report.problems else EXIT_DONE)
    if args.json:
        print(json.dumps({"files": documents}, indent=1))
    return min(worst, EXIT_USAGE)


def checked(reader: KdbReader, archs: set[str] | None) -> Report:
    """`check`, with a progress line on a terminal."""
    with _progress(reader) as tick:
        return check(reader, archs, tick=tick)


@contextmanager
def _progress(reader: KdbReader) -> Iterator[Callable[[], None] | None]:
    if not sys.stderr.isatty():
        yield None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(printable(reader.path.name), total=len(reader))
        yield lambda: progress.advance(task)


def _print(kind: Kind, report: Report, *, verbose: bool, quiet: bool) -> None:
    out = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
    problems, notes = report.problems, len(report.findings) - report.problems
    verdict = f"{_count(problems, 'problem')}, {_count(notes, 'note')}"
    head = f"{printable(str(kind.path))}: {kind.text}, {_count(report.stats.rows, 'row')}: {verdict}"
    out.print(Text(head, style="bold red" if problems else "bold green"))
    groups: dict[Code, list[Finding]] = {}
    for finding in report.findings:
        groups.setdefault(finding.code, []).append(finding)
    for code in sorted(groups, key=lambda c: (c.severity.value != "problem", list(Code).index(c))):
        found = groups[code]
        if quiet and not found[0].is_problem:
            continue
        style = "red" if found[0].is_problem else "yellow"
        out.print(
            Text(f"{code.severity.value} {code.code} ({_count(len(found), 'time')}): {code.reason}", style)
        )
        out.print(f"  MIOpen: {code.consequence.value}; next: {code.next_command(kind.path)}")
        limit = len(found) if verbose else SHOWN if found[0].is_problem else SHOWN_NOTES
        for finding in found[:limit]:
            out.print(f"  {_where(finding)}")
        if len(found) > limit:
            out.print(f"  and {len(found) - limit} more (-v shows all)")


def _where(finding: Finding) -> str:
    detail = printable(finding.detail)
    if finding.row is None:
        return detail or "the file"
    return f"row {finding.row} {printable(finding.name)}" + (f": {detail}" if detail else "")


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
