"""Say what a file is and what is in it: kernel databases, manifests, traces, logs, find-dbs and perf-dbs.

  kdbtool info gfx1030.kdb traces/ miopen.log gfx1030_36.HIP.fdb.txt.bz2

Of a kernel database: name, architecture, rows and distinct objects, sizes, languages, sources, targets,
code object versions, doubled spellings, provenance. Of a trace: the process, what it asked for and got, and
what of the file could not be read; of a folder of traces the sum, and a line for each process. Of anything
else one line that says what it is, and exit code 2.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from kdbtool.cli import options
from kdbtool.cli.describe import show
from kdbtool.cli.progress import row_progress
from kdbtool.errors import EXIT_DONE, KdbtoolError, printable
from kdbtool.inputs import Input, each_input, holds_keys, is_merged, open_input
from kdbtool.kdb.checks import check
from kdbtool.kdb.identify import FileKind, Kind, identify
from kdbtool.kdb.names import KdbName, parse_name
from kdbtool.kdb.reader import KdbReader

HELP = "what a file is, and what is in it"


def prepare(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="any file, or a folder of traces")
    options.json_output(parser)
    options.verbosity(parser)


def run(args: argparse.Namespace) -> int:
    """Describe each file; the worst exit code counts."""
    worst = EXIT_DONE
    documents = []
    for path in args.files:
        kind = identify(path)
        try:
            document = describe(kind)
        except KdbtoolError as error:
            documents.append({"path": printable(str(path)), "kind": kind.what.value, "error": error.line()})
            print(f"kdbtool info: {error.line()}", file=sys.stderr)
            worst = max(worst, error.exit_code)
            continue
        documents.append(document)
        if not args.json:
            show(document, verbose=args.verbose > 0)
    if args.json:
        print(json.dumps({"files": documents}, indent=1))
    return worst


def describe(kind: Kind) -> dict[str, Any]:
    """The document of one file; KdbtoolError, exit code 2, for what kdbtool does not read."""
    what = kind.inner if kind.what is FileKind.BZ2 and kind.inner is not None else kind.what
    found: dict[str, Any] = {"path": printable(str(kind.path)), "kind": what.value, "size": kind.size}
    if kind.is_kdb:
        return found | _kdb(kind)
    if what is FileKind.FIND_DB:
        from kdbtool.miopen import finddb

        return found | {"text": kind.text.partition(",")[0], **finddb.summary(kind.path)}
    if what is FileKind.PERF_DB:
        from kdbtool.miopen import perfdb

        return found | {"text": kind.text.partition(",")[0], **perfdb.summary(kind.path)}
    if kind.what is FileKind.DIRECTORY:
        return found | {"text": "a folder of traces", **_folder(kind.path)}
    if is_merged(kind.path, kind):
        return found | {"kind": FileKind.DIRECTORY.value, "text": "a merged trace", **_folder(kind.path)}
    if not holds_keys(kind):
        raise kind.error()
    with open_input(kind.path) as source:
        return found | {"kind": source.kind.value, **_input(source)}


def _kdb(kind: Kind) -> dict[str, Any]:
    with KdbReader(kind) as reader:
        with row_progress(reader, "reading") as tick:
            report = check(reader, tick=tick)
        return {
            "text": kind.text,
            "journal": kind.journal,
            "name": _name(reader.name),
            "provenance": reader.provenance(),
            "problems": report.problems,
            **report.stats.json(),
        }


def _folder(path: Path) -> dict[str, Any]:
    from kdbtool.shim.trace_summary import Totals, mixed_devices, summary

    totals, traces, facts = Totals(), [], []
    for source in each_input(path):
        (trace,) = source.traces
        found = summary(trace)
        totals.add(trace, found)
        facts.append(trace.facts)
        traces.append({"path": source.label, **_named(found)})
    return {**totals.json(), "notes": list(mixed_devices(facts)), "traces": traces}


def _input(source: Input) -> dict[str, Any]:
    if source.manifest is not None:
        from kdbtool.manifest.summary import summary as of_manifest

        return {"text": "a manifest", **of_manifest(source.manifest)}
    from kdbtool.shim.trace_summary import summary as of_trace

    (trace,) = source.traces
    text = "a trace" if source.kind is FileKind.TRACE else "a log of MIOpen"
    return {"text": text, **_named(of_trace(trace))}


def _named(found: dict[str, Any]) -> dict[str, Any]:
    """A trace's summary with what the names of the databases say that were asked."""
    said = [{"path": file, "name": _name(parse_name(file))} for file in found["databases"]]
    return found | {"databases": said}


def _name(name: KdbName | None) -> dict[str, Any] | None:
    if name is None:
        return None
    return {"arch": name.arch, "cu": name.cu, "unit": name.unit, "xnack": name.xnack}
