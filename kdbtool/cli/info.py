"""Say what a file is, and for a kernel database what is in it.

Kind, architecture and compute units by name and by rows, rows and distinct objects, sizes,
languages, kernel sources, targets and code object versions, doubled spellings, provenance.
Exit code 2 for a file that holds no kernel database; the line says what it is instead.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from kdbtool.cli import options
from kdbtool.cli.verify import checked
from kdbtool.errors import EXIT_DONE, KdbtoolError, printable
from kdbtool.kdb.identify import Kind, human, identify
from kdbtool.kdb.names import KdbName
from kdbtool.kdb.reader import KdbReader

HELP = "what a file is, and what a kernel database holds"
SHOWN = 20  # sources without -v


def prepare(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="any file; a .kdb or .ukdb is read"
    )
    options.json_output(parser)
    options.verbosity(parser)


def run(args: argparse.Namespace) -> int:
    """Describe each file; the worst exit code counts."""
    worst = EXIT_DONE
    documents = []
    for path in args.files:
        kind = identify(path)
        try:
            if not kind.is_kdb:
                raise kind.error()
            document = _kdb(kind)
        except KdbtoolError as error:
            documents.append({"path": printable(str(path)), "kind": kind.what.value, "error": error.line()})
            print(f"kdbtool info: {error.line()}", file=sys.stderr)
            worst = max(worst, error.exit_code)
            continue
        documents.append(document)
        if not args.json:
            _print(document, verbose=args.verbose > 0)
    if args.json:
        print(json.dumps({"files": documents}, indent=1))
    return worst


def _kdb(kind: Kind) -> dict[str, Any]:
    with KdbReader(kind) as reader:
        report = checked(reader, None)
        return {
            "path": printable(str(kind.path)),
            "kind": kind.what.value,
            "text": kind.text,
            "size": kind.size,
            "journal": kind.journal,
            "name": _name(reader.name),
            "provenance": reader.provenance(),
            "problems": report.problems,
            **report.stats.json(),
        }


def _name(name: KdbName | None) -> dict[str, Any] | None:
    if name is None:
        return None
    return {"arch": name.arch, "cu": name.cu, "unit": name.unit, "xnack": name.xnack}


def _print(document: Mapping[str, Any], *, verbose: bool) -> None:
    terminal = sys.stdout.isatty()
    out = Console(highlight=False, soft_wrap=not terminal, markup=False, emoji=False)
    out.print(f"{document['path']}: {document['text']}, {human(document['size'])}")
    lines = _lines(document)
    width = max(len(label) for label, _ in lines) + 2
    for label, text in lines:
        out.print(f"  {label + ':':<{width}}{text}".rstrip())
    sources = document["sources"]
    shown = sources if verbose else sources[:SHOWN]
    head = ("rows", "objects", "stored", "language", "source")
    cells = [
        (str(s["rows"]), str(s["objects"]), human(s["stored_bytes"]), s["language"], s["name"]) for s in shown
    ]
    if terminal:
        table = Table()
        for title in head:
            table.add_column(title, justify="left" if title in head[3:] else "right", overflow="fold")
        for row in cells:
            table.add_row(*row)
        out.print(table)
    elif cells:
        for row in (head, *cells):
            out.print(f"  {row[0]:>7} {row[1]:>7} {row[2]:>11}  {row[3]:<8} {row[4]}")
    if len(sources) > len(shown):
        out.print(f"  and {len(sources) - len(shown)} more sources (-v shows all)")


def _lines(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    name = document["name"]
    by_name = "not a name that MIOpen opens"
    if name is not None:
        by_name = name["arch"] + (f", {name['cu']} {name['unit']}" if name["cu"] else ", any count of units")
        by_name += ", xnack+" if name["xnack"] else ""
    provenance = document["provenance"]
    lines = [
        ("by name", by_name),
        ("by rows", _counter(document["archs"])),
        ("rows", f"{document['rows']}, {document['objects']} distinct objects"),
        ("sizes", f"{human(document['stored_bytes'])} stored, {human(document['object_bytes'])} unpacked"),
        ("languages", _counter(document["languages"])),
        ("targets", _counter(document["targets"])),
        ("code objects", f"{_counter(document['code_object_versions'])}; {_counter(document['containers'])}"),
        (
            "doubled",
            f"{document['doubled_rows']} rows, {document['doubled_pairs']} with their single spelling",
        ),
        ("journal", document["journal"]),
        ("provenance", "none" if provenance is None else ""),
    ]
    lines += [(f"  {printable(k)}", printable(v)) for k, v in sorted((provenance or {}).items())]
    verdict = "none" if not document["problems"] else f"{document['problems']}: kdbtool verify lists them"
    return [*lines, ("problems", verdict)]


def _counter(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{key} {number}" for key, number in counts.items()) or "none"
