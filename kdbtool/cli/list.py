"""Keys, one to a line: of kernel databases, manifests, traces, folders of them, logs.

  kdbtool list gfx1030.kdb --kernel naive_conv --args FP16=1
  kdbtool list traces/ --state miss --class winograd --keys

A line has the source, the architecture, the state, for a kernel database the size and MD5 of the object,
for a trace or log the number of look-ups, then the arguments, quoted as a manifest quotes them: leading and
double spaces show. With several inputs each line begins with the input's path, as grep does. --keys prints
the exact key alone: kernel_name, a tab, kernel_args, both quoted. A database in use is read a few hundred
rows at a time and never kept locked.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kdbtool.cli import options
from kdbtool.cli.archs import wanted_archs
from kdbtool.errors import EXIT_DONE, KdbtoolError, printable
from kdbtool.inputs import STATES, STORED, Entry, Input, open_input
from kdbtool.kdb.identify import human
from kdbtool.manifest.quote import quote
from kdbtool.miopen.classes import classes_of
from kdbtool.miopen.keys import language, shown_source

HELP = "print keys: of kernel databases, manifests, traces, logs"


def prepare(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.add_argument(
        "inputs", nargs="+", type=Path, metavar="INPUT", help="kdb, ukdb, manifest, trace, folder, or log"
    )
    options.kernel(parser)
    options.key_args(parser)
    options.arch(parser)
    options.language(parser)
    options.kernel_class(parser)
    parser.add_argument(
        "--state",
        action="append",
        choices=STATES,
        help="only keys of this state (repeatable): stored in a database, build or asked-unbuilt of a "
        "manifest, hit, miss or unanswered in a trace or log",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--sources", action="store_true", help="count the keys by kernel source instead")
    form.add_argument("--keys", action="store_true", help="exact keys for scripts: NAME tab ARGS, quoted")
    options.json_output(parser)
    options.verbosity(parser)


@dataclass(frozen=True)
class Filter:
    """Which keys are shown; None: all."""

    kernel: re.Pattern[str] | None = None
    args: re.Pattern[str] | None = None
    archs: set[str] | None = None
    languages: list[str] | None = None
    classes: list[str] | None = None
    states: list[str] | None = None

    def __call__(self, entry: Entry) -> bool:
        source = shown_source(entry.name)
        return (
            (self.states is None or entry.state in self.states)
            and (self.archs is None or entry.arch in self.archs)
            and (self.languages is None or language(source) in self.languages)
            and (self.classes is None or not set(self.classes).isdisjoint(classes_of(source)))
            and (self.kernel is None or self.kernel.search(source) is not None)
            and (self.args is None or self.args.search(_text(entry.args)) is not None)
        )


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def run(args: argparse.Namespace) -> int:
    """Print as the keys come."""
    if args.keys and args.json:
        raise KdbtoolError("--keys and --json", why="one is text, the other a document", hint="choose one")
    wanted = Filter(
        args.kernel, args.key_args, wanted_archs(args.arch), args.language, args.kernel_class, args.state
    )
    counts = _Counts()
    if args.sources:
        _sources(args.inputs, wanted, counts, as_json=args.json)
    elif args.json:
        _json(args.inputs, wanted, counts)
    else:
        for path in args.inputs:
            with open_input(path) as source:
                prefix = f"{source.label}: " if len(args.inputs) > 1 and not args.keys else ""
                for entry in counts.chosen(source, wanted, rows=not args.keys):
                    sys.stdout.write(prefix + (key_line(entry) if args.keys else _line(entry)) + "\n")
    if not counts.shown and not args.quiet:
        print(f"kdbtool list: none of {counts.read} keys to show", file=sys.stderr)
    return EXIT_DONE


@dataclass
class _Counts:
    """How many keys were read and shown, of all inputs."""

    read: int = 0
    shown: int = 0

    def chosen(self, source: Input, wanted: Filter, *, rows: bool = True) -> Iterator[Entry]:
        for entry in source.entries(rows=rows):
            self.read += 1
            if wanted(entry):
                self.shown += 1
                yield entry


def key_line(entry: Entry) -> str:
    """The exact key: name, tab, arguments, quoted."""
    return f"{quote(entry.name)}\t{quote(entry.args)}"


def _line(entry: Entry) -> str:
    extra = ""
    if entry.row is not None:
        size = entry.row.uncompressed_size or entry.row.blob_size
        extra = f"{human(size) if size >= 0 else '?':>10} {printable(entry.row.hash)[:32]:<32} "
    elif entry.state not in ("build", "asked-unbuilt"):
        extra = f"{entry.count:>6}x "
    shown = printable(shown_source(entry.name))
    return f"{shown:<40} {entry.arch or '-':<8} {entry.state:<13} {extra}{quote(entry.args)}"


def _document(entry: Entry, number: int) -> dict[str, Any]:
    source = shown_source(entry.name)
    first, *more = classes_of(source)
    found: dict[str, Any] = {
        "input": number,
        "name": _text(entry.name),
        "args": _text(entry.args),
        "source": source,
        "arch": entry.arch or None,
        "state": entry.state,
        "language": language(source),
        "class": first,
        "winograd": bool(more),
    }
    for part, data in (("name", entry.name), ("args", entry.args)):
        if found[part].encode() != data:  # not UTF-8: the exact bytes beside the readable text
            found[f"{part}_hex"] = data.hex()
    if entry.row is not None:
        found |= {
            "row": entry.row.rowid,
            "hash": entry.row.hash,
            "size": entry.row.uncompressed_size or entry.row.blob_size,
            "stored_bytes": entry.row.blob_size,
        }
    elif entry.line:
        found["line"] = entry.line
    if entry.state in ("hit", "miss", "unanswered"):
        found["lookups"] = entry.count
    return found


def _json(paths: list[Path], wanted: Filter, counts: _Counts) -> None:
    """One document, a key to a line, written as it comes; it ends well even where the reading does not."""
    failed: KdbtoolError | None = None
    write = sys.stdout.write
    write(f'{{"inputs": {json.dumps([printable(str(p)) for p in paths])},\n"keys": [')
    try:
        for number, path in enumerate(paths):
            with open_input(path) as source:
                for entry in counts.chosen(source, wanted):
                    write(("\n" if counts.shown == 1 else ",\n") + json.dumps(_document(entry, number)))
    except KdbtoolError as error:
        failed = error
    write(f'\n],\n"read": {counts.read}, "shown": {counts.shown}')
    write(f',\n"error": {json.dumps(failed.line())}}}\n' if failed else "}\n")
    if failed:
        failed.in_document = True
        raise failed


@dataclass
class _Source:
    keys: int = 0
    lookups: int = 0
    stored: int = 0
    archs: set[str] = field(default_factory=set)
    states: Counter[str] = field(default_factory=Counter)


def _sources(paths: list[Path], wanted: Filter, counts: _Counts, *, as_json: bool) -> None:
    found: dict[str, _Source] = {}
    failed: KdbtoolError | None = None
    try:
        for path in paths:
            with open_input(path) as source:
                for entry in counts.chosen(source, wanted):
                    one = found.setdefault(shown_source(entry.name), _Source())
                    one.keys += 1
                    one.lookups += entry.count if entry.state in ("hit", "miss", "unanswered") else 0
                    one.stored += entry.row.blob_size if entry.row is not None else 0
                    one.archs.add(entry.arch or "-")
                    one.states[entry.state] += 1
    except KdbtoolError as error:
        failed = error
    ordered = sorted(found.items(), key=lambda item: (-item[1].keys, item[0]))
    if as_json:
        documents = [_source_document(name, one) for name, one in ordered]
        names = [printable(str(path)) for path in paths]
        whole = {"inputs": names, "sources": documents, "read": counts.read, "shown": counts.shown}
        print(json.dumps(whole | ({"error": failed.line()} if failed else {}), indent=1))
    elif not failed:
        _source_lines(ordered)
    if failed:
        failed.in_document = as_json
        raise failed


def _source_lines(found: list[tuple[str, _Source]]) -> None:
    if not found:
        return
    asked, stored = any(s.lookups for _, s in found), any(s.states[STORED] for _, s in found)
    head = f"{'keys':>7} " + (f"{'look-ups':>9} " if asked else "") + (f"{'stored':>10} " if stored else "")
    print(f"{head}{'class':<25} {'arch':<8} source")
    for name, one in found:
        line = f"{one.keys:>7} " + (f"{one.lookups:>9} " if asked else "")
        line += f"{human(one.stored):>10} " if stored else ""
        kinds = " ".join(classes_of(name))
        print(f"{line}{kinds:<25} {','.join(sorted(one.archs)):<8} {printable(name)}{_states(one.states)}")


def _source_document(name: str, one: _Source) -> dict[str, Any]:
    first, *more = classes_of(name)
    return {
        "source": name,
        "keys": one.keys,
        "lookups": one.lookups,
        "stored_bytes": one.stored,
        "language": language(name),
        "class": first,
        "winograd": bool(more),
        "archs": sorted(arch for arch in one.archs if arch != "-"),
        "states": {state: one.states[state] for state in STATES if one.states[state]},
    }


def _states(states: Mapping[str, int]) -> str:
    """Behind a source: how many keys of each state, where there are several."""
    if len(states) < 2:
        return ""
    return f" ({', '.join(f'{states[s]} {s}' for s in STATES if states.get(s))})"
