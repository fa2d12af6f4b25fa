"""Compare two inputs with kernel keys: kernel databases, manifests, traces, logs, each with any other.

  kdbtool diff old.kdb new.kdb
  kdbtool diff gfx1030.kdbmanifest traces/ --by key

By key: what stands on one side alone, and what the other has in another spelling. By code, for two
kernel databases: the same object; the same code in other bytes (compiler's comment, cuid, layout); other
code, with each kernel's registers and its bytes of LDS, scratch and code before and after. By source: keys of
one side alone per kernel source, and hashes of sources that two manifests name differently. Exit code: 0
equal in what was compared (other bytes of the same code are equal), 1 they differ, 2 cannot be read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from kdbtool.cli import options
from kdbtool.cli.archs import wanted_archs
from kdbtool.diff import (
    Change,
    Compared,
    Difference,
    Key,
    Side,
    Source,
    Twin,
    Verdict,
    diff,
    read_side,
)
from kdbtool.errors import EXIT_DONE, EXIT_PROBLEMS, KdbtoolError, printable
from kdbtool.inputs import open_input
from kdbtool.manifest.quote import quote
from kdbtool.miopen.keys import shown_source

HELP = "compare two inputs by key, by code and by source"
SHOWN = 10  # entries of a list without -v
ARGS_SHOWN = 100  # characters of arguments without -v
BY = ("key", "code", "source")
_COLUMNS = {
    "vgpr": "VGPR", "sgpr": "SGPR", "agpr": "AGPR", "lds": "LDS", "scratch": "scratch", "code_bytes": "code",
}  # fmt: skip


def prepare(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    what = "kdb, ukdb, manifest, trace, folder of traces, or log"
    parser.add_argument("one", type=Path, metavar="A", help=what)
    parser.add_argument("other", type=Path, metavar="B", help=what)
    parser.add_argument("--by", choices=BY, help="compare only this way (default: all that the inputs allow)")
    options.kernel(parser)
    options.arch(parser)
    options.json_output(parser)
    options.verbosity(parser)


def run(args: argparse.Namespace) -> int:
    """Read both, compare, print."""
    archs = wanted_archs(args.arch)
    with open_input(args.one) as one, open_input(args.other) as other:
        if args.by == "code" and (one.kdb is None or other.kdb is None):
            lacking = one if one.kdb is None else other
            raise KdbtoolError(
                "no code to compare",
                where=lacking.path,
                why=f"{lacking.kind.value}: only kernel databases hold objects",
                hint="leave out --by code",
            )
        found = diff(read_side(one, args.kernel, archs), read_side(other, args.kernel, archs))
        for side in found.sides:
            for note in side.source.notes:
                print(f"kdbtool diff: note: {printable(note)}", file=sys.stderr)
    if args.json:
        print(json.dumps(_document(found), indent=1))
    elif not args.quiet:
        _Printer(found, args.by, verbose=args.verbose > 0).all()
    return EXIT_PROBLEMS if found.differs(args.by) else EXIT_DONE


class _Printer:
    """The text, part by part."""

    def __init__(self, found: Difference, by: str | None, *, verbose: bool) -> None:
        self.found, self.by, self.verbose = found, by, verbose
        self.out = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)

    def all(self) -> None:
        """Summary, then details."""
        for letter, side in zip("AB", self.found.sides, strict=True):
            self.out.print(f"{letter}: {side.source.label}: {_kind(side)}")
        for name, (one, other) in self.found.provenance.items():
            self.out.print(f"  {printable(name)}: {printable(one)} -> {printable(other)}")
        self._summary()
        if self.by in (None, "key"):
            self._keys("only in A", self.found.only[0], self.found.twins[0])
            above = {twin.other for twin in self.found.twins[0].values()}
            rest = [key for key in self.found.only[1] if key not in above]
            self._keys(
                "only in B" + (", without the other spellings of those above" if above else ""),
                rest,
                self.found.twins[1],
            )
            self._keys("in another state", self.found.states, {})
        if self.found.code is not None and self.by in (None, "code"):
            self._code(self.found.code)
        if self.by in (None, "source"):
            self._sources()

    def _summary(self) -> None:
        found = self.found
        twins = [
            f"{len(t)} of {letter} alone are there in another spelling"
            for letter, t in zip("AB", found.twins, strict=True)
            if t
        ]
        one, other = (len(keys) for keys in found.only)
        line = f"by key: {len(found.both)} in both, {one} only in A, {other} only in B"
        self.out.print("; ".join([line, *twins]))
        for letter, side in zip("AB", found.sides, strict=True):
            if side.doubles:
                self.out.print(
                    f"  {letter} has {side.doubles} rows with the key of another, which are left out"
                )
        if found.code is not None:
            counts = {v: found.count(v) for v in Verdict}
            self.out.print(
                f"by code: {counts[Verdict.OBJECT]} same object, "
                f"{counts[Verdict.CODE]} same code in other bytes, "
                f"{counts[Verdict.OTHER]} other code, {counts[Verdict.DAMAGED]} damaged"
            )
        sources = found.sources.values()
        alone = [sum(not s.both and bool(s.only[n]) for s in sources) for n in (0, 1)]
        both = sum(bool(s.both) for s in sources)
        line = f"by source: {both} in both, {alone[0]} only in A, {alone[1]} only in B"
        hashed = sum(bool(s.hashes) for s in sources)
        self.out.print(line + (f"; {hashed} with other hashes" if hashed else ""))

    def _keys(self, title: str, keys: list[Key], twins: dict[Key, Twin]) -> None:
        """Those that the other side has in no spelling come first."""
        if keys:
            self.out.print(f"{title}:")
        for key in self._some(sorted(keys, key=lambda key: key in twins)):
            self.out.print(f"  {self._key(key)}")
            twin = twins.get(key)
            if twin is not None and twin.how == "doubled":
                self.out.print("    the other side has it with the data type list " + _times(key, twin))
            elif twin is not None:
                self.out.print(f"    equal after repair ({twin.how})")
                if self.verbose:
                    self.out.print(f"    the other side: {self._key(twin.other)}")

    def _code(self, code: dict[Key, Compared]) -> None:
        for verdict, title in ((Verdict.DAMAGED, "damaged"), (Verdict.OTHER, "other code")):
            keys = [key for key, compared in code.items() if compared.verdict is verdict]
            if keys:
                self.out.print(f"{title}:")
            seen: dict[Compared, int] = {}
            for number, key in enumerate(self._some(keys), 1):
                compared = code[key]
                self.out.print(f"  {self._key(key)}")
                if compared.why:
                    self.out.print(f"    {printable(compared.why)}")
                if compared in seen:
                    self.out.print(f"    as number {seen[compared]} of this list")
                    continue
                seen[compared] = number
                self._changes(compared)

    def _changes(self, compared: Compared) -> None:
        if compared.targets[0] != compared.targets[1]:
            self.out.print(f"    target {compared.targets[0]} -> {compared.targets[1]}")
        elif compared.shared:
            self.out.print("    functions or data that kernels share differ")
        rows = [_cells(change) for change in self._some(list(compared.changes))]
        if not rows:
            return
        rows.insert(0, ["kernel", *_COLUMNS.values()])
        widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
        for row in rows:
            self.out.print(
                "    " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
            )

    def _sources(self) -> None:
        def changed(s: Source) -> int:
            return sum(s.only) + s.code.get(Verdict.OTHER, 0) + s.code.get(Verdict.DAMAGED, 0)

        rows = sorted(
            (s for s in self.found.sources.values() if changed(s) or s.hashes),
            key=lambda s: (-changed(s), s.name),
        )
        if rows:
            self.out.print("sources:")
            self.out.print(f"  {'A alone':>7} {'B alone':>7} {'both':>7} {'other code':>10}  source")
        for s in self._some(rows):
            hashes = f"  ({' and '.join(s.hashes)} of other hashes)" if s.hashes else ""
            code = str(s.code.get(Verdict.OTHER, 0)) if self.found.code is not None else "-"
            self.out.print(
                f"  {s.only[0]:>7} {s.only[1]:>7} {s.both:>7} {code:>10}  {printable(s.name)}{hashes}"
            )

    def _some(self, items: list[Any]) -> Iterable[Any]:
        """All with -v, else the first, and how many are left out."""
        if self.verbose or len(items) <= SHOWN:
            yield from items
            return
        yield from items[:SHOWN]
        self.out.print(f"    and {len(items) - SHOWN} more (-v shows all)")

    def _key(self, key: Key) -> str:
        text = quote(key[1])
        if not self.verbose and len(text) > ARGS_SHOWN:
            text = text[: ARGS_SHOWN // 2] + " ... " + text[-ARGS_SHOWN // 2 :]
        return f"{printable(shown_source(key[0]))} {text}" + (f" for {key[2]}" if key[2] else "")


def _kind(side: Side) -> str:
    named = ", ".join(side.source.archs)
    return f"{side.source.kind.value}, {len(side.keys)} keys" + (f", {named}" if named else "")


def _times(key: Key, twin: Twin) -> str:
    return "once" if len(twin.other[1]) < len(key[1]) else "twice"


def _cells(change: Change) -> list[str]:
    name = printable(change.name)
    if change.before is None or change.after is None:
        present = change.after or change.before
        where = "only in B" if change.before is None else "only in A"
        return [f"{name} ({where})", *(_number(getattr(present, f)) for f in _COLUMNS)]
    cells = []
    for column in _COLUMNS:
        one, other = getattr(change.before, column), getattr(change.after, column)
        cells.append(_number(one) if one == other else f"{_number(one)}->{_number(other)}")
    return [name, *cells]


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _document(found: Difference) -> dict[str, Any]:
    document: dict[str, Any] = {
        "inputs": [
            {
                "path": side.source.label,
                "kind": side.source.kind.value,
                "keys": len(side.keys),
                "double_keys": side.doubles,
            }
            for side in found.sides
        ],
        "provenance": {name: list(pair) for name, pair in found.provenance.items()},
        "both": len(found.both),
        "only": [
            [_key_of(key) | _twin_of(twins.get(key)) for key in keys]
            for keys, twins in zip(found.only, found.twins, strict=True)
        ],
        "other_state": [_key_of(key) for key in found.states],
        "sources": [
            {"source": printable(s.name), "only": s.only, "both": s.both, "other_hashes": list(s.hashes),
             "code": {verdict.value: count for verdict, count in s.code.items()}}
            for s in sorted(found.sources.values(), key=lambda s: s.name)
        ],
    }  # fmt: skip
    if found.code is not None:
        document["code"] = {verdict.value: found.count(verdict) for verdict in Verdict}
        document["rows"] = [
            _key_of(key) | _compared_of(compared)
            for key, compared in found.code.items()
            if compared.verdict is not Verdict.OBJECT
        ]
    return document


def _key_of(key: Key) -> dict[str, Any]:
    return {"name": quote(key[0])[1:-1], "args": quote(key[1])[1:-1]}


def _twin_of(twin: Twin | None) -> dict[str, Any]:
    return {} if twin is None else {"elsewhere": {"how": twin.how, **_key_of(twin.other)}}


def _compared_of(compared: Compared) -> dict[str, Any]:
    if compared.verdict is Verdict.DAMAGED:
        return {"verdict": compared.verdict.value, "why": compared.why}
    return {
        "verdict": compared.verdict.value,
        "targets": list(compared.targets),
        "shared_parts_differ": compared.shared,
        "kernels": [
            {
                "kernel": change.name,
                "code_differs": change.code,
                "before": asdict(change.before) if change.before else None,
                "after": asdict(change.after) if change.after else None,
            }
            for change in compared.changes
        ],
    }
