"""`info`'s documents as text: labels and values, then a table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from kdbtool.errors import printable
from kdbtool.kdb.identify import human
from kdbtool.kdb.provenance import without_sources

SHOWN = 20  # sources, processes, or entries of a counter without -v

Cells = tuple[str, ...]
Lines = list[tuple[str, str]]
Document = Mapping[str, Any]


def show(document: Document, *, verbose: bool) -> None:
    """Print one document of `info`."""
    terminal = sys.stdout.isatty()
    out = Console(highlight=False, soft_wrap=not terminal, markup=False, emoji=False)
    size = f", {human(document['size'])}" if document["kind"] != "directory" else ""
    out.print(f"{document['path']}: {document['text']}{size}")
    lines = _LINES.get(document["kind"], _counted)(document)
    width = max(len(label) for label, _ in lines) + 2
    for label, text in lines:
        out.print(f"  {label + ':' if label else '':<{width}}{printable(text)}".rstrip())
    for word, head, rows, left in _tables(document):
        shown = rows if verbose else rows[:SHOWN]
        _table(out, head, shown, left, terminal=terminal)
        if len(rows) > len(shown):
            out.print(f"  and {len(rows) - len(shown)} more {word} (-v shows all)")


def _table(out: Console, head: Cells, rows: list[Cells], left: int, *, terminal: bool) -> None:
    """`left`: the number of columns that are numbers, and so stand on the right of theirs."""
    if not rows:
        return
    if terminal:
        table = Table()
        for number, title in enumerate(head):
            table.add_column(title, justify="right" if number < left else "left", overflow="fold")
        for row in rows:
            table.add_row(*row)
        out.print(table)
        return
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    for row in (head, *rows):
        cells = [
            f"{c:>{w}}" if i < left else f"{c:<{w}}" for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        out.print(f"  {' '.join(cells)}".rstrip())


def _tables(document: Document) -> list[tuple[str, Cells, list[Cells], int]]:
    kind = document["kind"]
    rows: list[Cells]
    if kind in ("kdb", "ukdb"):
        rows = [
            (str(s["rows"]), str(s["objects"]), human(s["stored_bytes"]), s["language"], s["name"])
            for s in document["sources"]
        ]
        return [("sources", ("rows", "objects", "stored", "language", "source"), rows, 3)]
    if kind == "manifest":
        rows = [(str(s["rows"]), s["class"], printable(s["name"])) for s in document["sources"]]
        return [("sources", ("rows", "class", "source"), rows, 1)]
    if kind == "directory":
        rows = [
            (
                str(t["lookups"]["total"]),
                str(t["lookups"]["missed"]),
                str(t["launches"]["total"]),
                str(t["process"]["pid"]),
                t["process"]["role"],
                printable(t["process"]["exe"]),
                printable(", ".join([*t["flags"], *t["notes"]])),
            )
            for t in document["traces"]
        ]
        head = ("look-ups", "missed", "launches", "pid", "role", "program", "notes")
        return [("processes", head, rows, 4)]
    return []


def _of_kdb(document: Document) -> Lines:
    provenance = document["provenance"]
    lines = [
        ("by name", _name(document["name"]) or "not a name that MIOpen opens"),
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
    lines += [(f"  {printable(k)}", v) for k, v in sorted(without_sources(provenance or {}))]
    verdict = "none" if not document["problems"] else f"{document['problems']}: kdbtool verify lists them"
    return [*lines, ("problems", verdict)]


def _of_manifest(document: Document) -> Lines:
    lines = [
        ("format", str(document["format"])),
        ("MIOpen", document["miopen"] or "unknown"),
        ("sources", f"sha256:{document['sources_sha256']}" if document["sources_sha256"] else "unknown"),
        ("architectures", _counter(document["archs"])),
        ("rows", f"{document['rows']}: {_counter(document['states'])}"),
        ("languages", _counter(document["languages"])),
        ("classes", _counter(document["classes"])),
        ("compilations", str(document["variants"])),
        (
            "doubled",
            f"{document['doubled_rows']} rows, {document['doubled_pairs']} with their single spelling",
        ),
        (
            "hashes",
            f"of {document['hashed_sources']} sources; {document['sources_to_build']} have rows to build",
        ),
        ("problems", str(document["problems"])),
    ]
    return lines + [("origin" if not n else "", text) for n, text in enumerate(document["origins"])]


def _of_trace(document: Document) -> Lines:
    process, miopen, hip = document["process"], document["miopen"], document["hip"]
    device = document["device"] or "not asked for"
    device += f", {document['cu']} units" if document["cu"] else ""
    lines = [
        ("process", _process(process) if document["log"] is None else f"of the log {document['log']}"),
        ("MIOpen", _said(miopen)),
        ("HIP", _said(hip)),
        ("device", device),
    ]
    if document["flags"]:
        lines.append(("flags", ", ".join(document["flags"])))
    lines += _column("switches", [f"{name}={value}" for name, value in document["overrides"].items()])
    databases = []
    for one in document["databases"]:
        named = _name(one["name"])
        databases.append(one["path"] + (f" ({named})" if named else ""))
    lines += _column("databases", databases)
    lines += _activity(document)
    modules, launches = document["modules"], document["launches"]
    failed = f", {modules['failed']} refused" if modules["failed"] else ""
    lines += [
        (
            "modules",
            f"{modules['loaded']} loaded ({modules['distinct']} distinct, {human(modules['bytes'])}){failed}",
        ),
        ("launches", f"{launches['total']} of {launches['kernels']} kernels"),
    ]
    return lines + _column("notes", document["notes"] or ["none"])


def _of_folder(document: Document) -> Lines:
    noted = document["traces_with_notes"]
    return [
        ("processes", f"{document['processes']}: {_counter(document['roles'])}"),
        ("compilers started", str(document["compilers_started"])),
        ("devices", _counter(document["devices"])),
        ("flags", _counter(document["flags"])),
        *_activity(document),
        ("modules", f"{document['modules']} loaded"),
        ("launches", str(document["launches"])),
        *_column(
            "notes", [*document["notes"], *([f"{noted} traces have notes"] if noted else [])] or ["none"]
        ),
    ]


def _counted(document: Document) -> Lines:
    """Of a find-db or perf-db: its counts, and of each counter the largest."""
    skipped = ("path", "kind", "size", "text")
    lines = []
    for label, value in document.items():
        if label not in skipped:
            text = _counter(value, SHOWN) if isinstance(value, Mapping) else str(value)
            lines.append((label.replace("_", " "), text))
    return lines or [("rows", "none")]


def _activity(document: Document) -> Lines:
    asked, keys, problems = document["lookups"], document["keys"], document["problems"]
    directions = {name: problems[name] for name in ("forward", "backward", "weights")}
    return [
        ("look-ups", f"{asked['total']}: {_answers(asked)}"),
        ("keys", f"{keys['distinct']}: {_answers(keys)}"),
        ("problems", f"{problems['distinct']} in {problems['calls']} calls: {_counter(directions)}"),
    ]


def _answers(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{counts[answer]} {answer}" for answer in ("hit", "missed", "unanswered"))


def _process(process: Mapping[str, Any]) -> str:
    rank = f", rank {process['rank']}" if process["rank"] is not None else ""
    start = f", {process['start']}" if process["start"] else ""
    where = f"pid {process['pid']} on {process['host'] or '?'}"
    return f"{process['exe'] or '?'} ({process['role']}), {where}{rank}{start}"


def _said(library: Mapping[str, Any]) -> str:
    found = [
        library["version"],
        library["path"],
        library.get("build_id") and f"build id {library['build_id']}",
    ]
    return ", ".join(part for part in found if part) or "not seen"


def _name(name: Mapping[str, Any] | None) -> str | None:
    if name is None:
        return None
    units = f", {name['cu']} {name['unit']}" if name["cu"] else ", any count of units"
    return str(name["arch"]) + units + (", xnack+" if name["xnack"] else "")


def _column(label: str, texts: list[str]) -> Lines:
    """One label, a line for each text."""
    return [(label if not number else "", text) for number, text in enumerate(texts)]


def _counter(counts: Mapping[str, int], limit: int | None = None) -> str:
    pairs = list(counts.items())
    shown = ", ".join(f"{key} {number}" for key, number in pairs[:limit])
    left = len(pairs) - limit if limit is not None else 0
    return (shown + (f" and {left} more" if left > 0 else "")) or "none"


_LINES: dict[str, Callable[[Document], Lines]] = {
    "kdb": _of_kdb,
    "ukdb": _of_kdb,
    "manifest": _of_manifest,
    "trace": _of_trace,
    "log": _of_trace,
    "directory": _of_folder,
}
