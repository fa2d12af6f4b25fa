"""Read what is left of a damaged kernel database, row by row, into a new one.

Pages are read without SQLite, so that a broken schema, index, free list or header hides no row that is
whole. A row is carried only when its object is proven by its MD5 and passes all that verify checks, and
when nothing speaks against its key. What was lost is counted by the index and listed. A -wal or -journal
beside the file is applied to a copy first. Exit code: 0 nothing was lost, 1 something was (it is listed)
or that cannot be told, 2 the file is no damaged kernel database.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from kdbtool.cli import options
from kdbtool.errors import EXIT_DONE, EXIT_PROBLEMS, KdbtoolError, printable
from kdbtool.files import check_output
from kdbtool.kdb.identify import FileKind, Kind, identify
from kdbtool.kdb.salvage import Salvage, salvage
from kdbtool.kdb.writer import write_kdb

HELP = "read what is left of a damaged kernel database"
SHOWN = 20  # rows without -v
# What a damaged kernel database can look like; anything else is another file.
_DAMAGED = frozenset(
    {
        FileKind.KDB,
        FileKind.UKDB,
        FileKind.MALFORMED,
        FileKind.TRUNCATED,
        FileKind.OTHER_SQLITE,
        FileKind.OTHER,
    }
)


def prepare(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a damaged .kdb or .ukdb")
    options.output(parser, "the database to write", required=True)
    options.force(parser)
    options.json_output(parser)
    options.verbosity(parser)


def run(args: argparse.Namespace) -> int:
    """Read, write, report."""
    kind = identify(args.file)
    if kind.what not in _DAMAGED:
        raise kind.error()
    check_output(args.output, force=args.force)
    with contextlib.suppress(OSError):
        if args.output.samefile(args.file):
            raise KdbtoolError("the output is the input", where=args.output, hint="name another output")
    with salvage(args.file) as found:
        if not found.rows and not (found.whole and found.tree_complete):
            raise _nothing(kind, found)
        write_kdb(args.output, found.items(), found.written(), force=args.force)
        document = _document(kind, args.output, found)
    if args.json:
        print(json.dumps(document, indent=1))
    else:
        _print(found, document, verbose=args.verbose > 0, quiet=args.quiet)
    return EXIT_DONE if found.whole else EXIT_PROBLEMS


def _nothing(kind: Kind, found: Salvage) -> KdbtoolError:
    reasons = ", ".join(f"{code} {n}" for code, n in found.reasons().items())
    if kind.what in (FileKind.OTHER, FileKind.OTHER_SQLITE) and not found.left:
        return kind.error()
    return KdbtoolError(
        "no row of it is whole",
        where=kind.path,
        why=reasons or kind.text,
        hint="get the file again from where it came",
        exit_code=EXIT_PROBLEMS,
    )


def _document(kind: Kind, output: Path, found: Salvage) -> dict[str, Any]:
    return {
        "input": printable(str(kind.path)),
        "kind": kind.what.value,
        "text": printable(kind.text),
        "output": printable(str(output)),
        "pages": found.pages.count,
        "page_size": found.pages.size,
        "pages_bad": found.bad_pages,
        "rows_known": found.known,
        "rows_recovered": len(found.rows),
        "unconfirmed": found.unconfirmed,
        "unlinked": found.unlinked,
        "repaired": found.repaired,
        "not_carried": found.reasons(),
        "whole": found.whole,
        "notes": found.notes,
        "details": [x.json() for x in found.left],
    }


def _print(found: Salvage, document: dict[str, Any], *, verbose: bool, quiet: bool) -> None:
    out = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
    if quiet and found.whole:
        return
    known = found.known
    of = f" of {known}" if known is not None else ", and nothing tells how many there were"
    out.print(f"{document['input']}: {document['text']}")
    out.print(f"{document['output']}: {len(found.rows)}{of} rows recovered")
    out.print(
        f"  {found.pages.count} pages of {found.pages.size} bytes, {found.bad_pages} of the trees' lost"
    )
    if found.unlinked:
        out.print(f"  {found.unlinked} from pages that nothing leads to any more")
    if found.unconfirmed:
        out.print(f"  {found.unconfirmed} whose key no index entry confirms")
    if found.repaired:
        out.print(f"  {found.repaired} whose kernel_hash or uncompressed_size was put right")
    for note in found.notes:
        out.print(f"  {note}")
    for reason, count in found.reasons().items():
        out.print(f"  not carried: {reason} ({count} {'row' if count == 1 else 'rows'})")
        group = [x for x in found.left if x.reason == reason]
        limit = len(group) if verbose else SHOWN
        for one in group[:limit]:
            number = f"row {one.row}" if one.row is not None else "a row"
            text = " ".join(filter(None, (number, printable(one.name))))
            out.print(f"    {text}{f': {printable(one.detail)}' if one.detail else ''}")
        if len(group) > limit:
            out.print(f"    and {len(group) - limit} more (-v shows all)")
    if not found.whole and not found.left and (known is None or len(found.rows) >= known):
        out.print("  whether more rows were there, or a key is damaged, cannot be told")
