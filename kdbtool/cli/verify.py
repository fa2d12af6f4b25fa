"""Check kernel databases before they are shipped or installed.

  kdbtool verify gfx1030.kdb
  kdbtool verify gfx1030.kdb --miopen 6.4.3
  kdbtool verify gfx1030.kdb --against /usr/lib/x86_64-linux-gnu/libMIOpen.so.1
  kdbtool verify gfx1030.kdb --against all.kdbmanifest

MIOpen compiles what a database lacks, but throws on a row that is damaged and may run one that is
stale. Every finding names its row, what is wrong, what MIOpen does about it and the next command;
docs/kdb-format.md lists them all. With --miopen each row has to be one that this MIOpen asks for; with
its library, or --sources, also one that was built from its kernel sources. Exit code: 0 nothing but notes,
1 problems, 2 not a kernel database.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from kdbtool.cli import options
from kdbtool.cli.archs import wanted_archs
from kdbtool.cli.progress import row_progress
from kdbtool.errors import EXIT_DONE, EXIT_PROBLEMS, EXIT_USAGE, KdbtoolError, counted, printable
from kdbtool.kdb.against import Against, AgainstKdb, AgainstManifest, of_sources
from kdbtool.kdb.checks import Report, check
from kdbtool.kdb.findings import Code, Finding
from kdbtool.kdb.identify import FileKind, Kind, identify
from kdbtool.kdb.reader import KdbReader
from kdbtool.manifest import Manifest, read_manifest
from kdbtool.miopen.entrypoints import Entries
from kdbtool.miopen.sources import SourceSet, from_directory, from_library
from kdbtool.miopen.versions import MiopenBuild, resolve
from kdbtool.rebuild.cores import usable

HELP = "check a kernel database: every row, and what MIOpen would do with it"
SHOWN, SHOWN_NOTES = 10, 2  # rows per finding without -v


def prepare(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a .kdb or .ukdb")
    options.miopen(parser)
    parser.add_argument(
        "--against",
        action="append",
        default=[],
        type=Path,
        metavar="PATH",
        help="a manifest, another database or a libMIOpen.so that the rows have to agree with (repeatable)",
    )
    parser.add_argument(
        "--symbols",
        action="store_true",
        help="compare each object's kernels with those that its source defines (needs the sources)",
    )
    options.sources(parser)
    options.arch(
        parser,
        "an architecture that the database is for (repeatable); native: the devices present; "
        "default and all: that of its name, else any",
    )
    options.jobs(parser)
    options.json_output(parser)
    options.verbosity(parser)


@dataclass
class Judged:
    """What the command line compares the files with, read once."""

    build: MiopenBuild | None = None
    miopen: str | None = None  # as it was named, for the next command
    sources: SourceSet | None = None
    entries: Entries | None = None
    manifests: list[Manifest] = field(default_factory=list)
    databases: list[Kind] = field(default_factory=list)

    def against(self, archs: set[str] | None, open_files: ExitStack) -> list[Against]:
        """Fresh comparisons for one file."""
        found: list[Against] = []
        if self.build is not None or self.sources is not None:
            found.append(of_sources(self.build.rocm if self.build else None, self.sources))
        found += [AgainstManifest(manifest, archs) for manifest in self.manifests]
        found += [AgainstKdb(open_files.enter_context(KdbReader(kind))) for kind in self.databases]
        return found


def run(args: argparse.Namespace) -> int:
    """Check each file; the worst exit code counts."""
    archs = wanted_archs(args.arch)
    judged = _judged(args)
    jobs = usable(args.jobs)
    worst = EXIT_DONE
    documents = []
    for path in args.files:
        kind = identify(path)
        document: dict[str, Any] = {"path": printable(str(path)), "kind": kind.what.value}
        documents.append(document)
        try:
            if not kind.is_kdb:
                raise kind.error()
            with KdbReader(kind) as reader, ExitStack() as open_files:
                report = checked(reader, archs, judged, open_files, jobs)
        except KdbtoolError as error:
            document["error"] = error.line()
            print(f"kdbtool verify: {error.line()}", file=sys.stderr)
            worst = max(worst, error.exit_code)
            continue
        document |= _document(path, report, judged)
        if not args.json:
            _print(kind, report, judged, verbose=args.verbose > 0, quiet=args.quiet)
        worst = max(worst, EXIT_PROBLEMS if report.problems else EXIT_DONE)
    if args.json:
        print(json.dumps({"files": documents}, indent=1))
    return min(worst, EXIT_USAGE)


def checked(
    reader: KdbReader,
    archs: set[str] | None,
    judged: Judged | None = None,
    open_files: ExitStack | None = None,
    jobs: int = 1,
) -> Report:
    """`check`, with a progress line on a terminal."""
    named = archs if archs is not None else {reader.name.arch} if reader.name is not None else None
    judged = judged or Judged()
    against = judged.against(named, open_files or ExitStack())
    with row_progress(reader, "checking") as tick:
        return check(
            reader,
            archs,
            tick=tick,
            build=judged.build,
            entries=judged.entries,
            against=against,
            jobs=jobs,
        )


def _judged(args: argparse.Namespace) -> Judged:
    """Read what --miopen, --sources and --against name; KdbtoolError for what is none of them."""
    judged = Judged(miopen=args.miopen)
    symbols = args.symbols
    if args.miopen is not None:
        judged.build = resolve(args.miopen)
    for path in args.against:
        kind = identify(path)
        if kind.what is FileKind.MANIFEST:
            judged.manifests.append(read_manifest(path))
        elif kind.is_kdb:
            judged.databases.append(kind)
        elif kind.what is FileKind.OTHER and _is_elf(path):
            if judged.build is not None:
                raise KdbtoolError("two MIOpens to judge against", where=path, hint="name one of them")
            judged.build, judged.miopen, symbols = resolve(str(path.absolute())), str(path), True
        else:
            hint = "name a manifest, a kernel database or a libMIOpen.so"
            where = f"--against {printable(str(path))}"
            raise KdbtoolError(kind.text, where=where, hint=kind.hint or hint, exit_code=kind.exit_code)
    if args.sources is not None:
        judged.sources = from_directory(args.sources)
    elif judged.build is not None and judged.build.path is not None:
        judged.sources = from_library(judged.build.path)
    if symbols:
        if judged.sources is None:
            raise KdbtoolError(
                "--symbols needs the kernel sources", hint="add --miopen LIBRARY or --sources DIR"
            )
        judged.entries = Entries(judged.sources)
    return judged


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _document(path: Path, report: Report, judged: Judged) -> dict[str, Any]:
    """One file as `--json` shows it."""
    document: dict[str, Any] = {
        "rows": report.stats.rows,
        "problems": report.problems,
        "notes": len(report.findings) - report.problems,
        "unreachable": {
            "rows": report.unreachable.total(),
            "by_reason": {code.code: report.unreachable[code] for code in Code if report.unreachable[code]},
        },
    }
    if judged.build is not None:
        document["miopen"] = printable(judged.build.label)
    if judged.entries is not None:
        document["symbols"] = {"compared": report.told, "cannot_tell": report.untold}
    return document | {"findings": [f.json(path, judged.miopen) for f in report.findings]}


def _print(kind: Kind, report: Report, judged: Judged, *, verbose: bool, quiet: bool) -> None:
    out = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
    problems, notes = report.problems, len(report.findings) - report.problems
    verdict = f"{counted(problems, 'problem')}, {counted(notes, 'note')}"
    head = f"{printable(str(kind.path))}: {kind.text}, {counted(report.stats.rows, 'row')}: {verdict}"
    out.print(Text(head, style="bold red" if problems else "bold green"))
    for line in _summary(report, judged) if not quiet else ():
        out.print(f"  {line}")
    groups: dict[Code, list[Finding]] = {}
    for finding in report.findings:
        groups.setdefault(finding.code, []).append(finding)
    for code in sorted(groups, key=lambda c: (c.severity.value != "problem", list(Code).index(c))):
        found = groups[code]
        if quiet and not found[0].is_problem:
            continue
        style = "red" if found[0].is_problem else "yellow"
        out.print(
            Text(f"{code.severity.value} {code.code} ({counted(len(found), 'time')}): {code.reason}", style)
        )
        out.print(f"  MIOpen: {code.consequence.value}; next: {code.next_command(kind.path, judged.miopen)}")
        limit = len(found) if verbose else SHOWN if found[0].is_problem else SHOWN_NOTES
        for finding in found[:limit]:
            out.print(f"  {_where(finding)}")
        if len(found) > limit:
            out.print(f"  and {len(found) - limit} more (-v shows all)")


def _summary(report: Report, judged: Judged) -> Iterator[str]:
    """Lines under the head: what was judged against, and numbers of rows."""
    if judged.build is not None:
        yield f"judged against {printable(judged.build.label)}"
    if unreachable := report.unreachable.total():
        parts = ", ".join(f"{report.unreachable[c]} {c.code}" for c in Code if report.unreachable[c])
        yield f"{counted(unreachable, 'row')} that MIOpen can never ask for, by first reason: {parts}"
    if judged.entries is not None:
        untold = f", of {report.untold} the source does not tell" if report.untold else ""
        yield f"kernels of {counted(report.told, 'row')} compared with their source{untold}"


def _where(finding: Finding) -> str:
    detail = printable(finding.detail)
    if finding.row is None:
        named = f"{printable(finding.name)}: " if finding.name else ""
        return named + detail or "the file"
    return f"row {finding.row} {printable(finding.name)}" + (f": {detail}" if detail else "")
