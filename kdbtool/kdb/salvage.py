"""The rows of a damaged kernel database that can be proven, page by page and without SQLite.

salvage(path) finds every row that is whole in some page: those of the pages that the table's tree still
leads to, and, where a part of the tree is lost, those of any other page that looks like a leaf of kern_db. A
row is carried only when its object passes verify's checks (its MD5 proves it) and nothing speaks against its
key: the index holds each key with its row number, and a row that it contradicts is none; nor is one of a page
that nothing leads to, where the index is whole and does not know it. Keys without a row are the lost ones.
"""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from kdbtool.errors import printable
from kdbtool.kdb.blob import Packed
from kdbtool.kdb.leafrows import COLUMNS, MAX_KEY, columns, is_key_index, is_row, layout, plausible, utf8
from kdbtool.kdb.names import parse_name
from kdbtool.kdb.pages import (
    INDEX_INNER,
    INDEX_LEAF,
    TABLE_LEAF,
    BadPage,
    Cell,
    Pages,
    Tree,
    Value,
    record,
)
from kdbtool.kdb.reader import PROVENANCE_TABLE
from kdbtool.kdb.rowcheck import Judge, Verdict, row_arch
from kdbtool.kdb.sqlite import SQLITE_ERRORS, side_files
from kdbtool.kdb.writer import OWN_KEYS, ContentHash

# Why a row that was found is left out, beside the codes of verify's findings.
CONFLICT = "conflict"  # two objects for one key, and nothing says which is right
KEY_DAMAGED = "key-damaged"  # the index has another key for this row, or it is no key at all
CELL_DAMAGED = "cell-damaged"  # a cell, its record or its overflow pages do not hold together
LOST = "lost"  # the index knows the key, no page has the row

_MAX_PROVENANCE = 1000


@dataclass(frozen=True)
class Left:
    """A row that is not carried. `row`: its number where known."""

    row: int | None
    name: bytes
    reason: str
    detail: str = ""

    def json(self) -> dict[str, Any]:
        """As `--json` shows it."""
        return {
            "row": self.row,
            "name": printable(self.name),
            "reason": self.reason,
            "detail": printable(self.detail),
        }


@dataclass
class _Row:
    """A row that passed its checks, by where it stands (its cell without the `local` part)."""

    cell: Cell
    key: bytes  # digest
    verdict: Verdict
    linked: bool
    confirmed: bool


@dataclass
class Salvage:
    """What was found in one file.

    `known`: rows that index or provenance speak of, None where neither is whole; `unconfirmed`: rows that
    no index entry confirms; `unlinked`: rows of pages that the table's tree no longer leads to.
    """

    pages: Pages
    layout: tuple[int, ...] = COLUMNS
    rows: list[_Row] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    known: int | None = None
    bad_pages: int = 0
    tree_complete: bool = False
    index_complete: bool = False
    provenance: dict[str, str] | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def unconfirmed(self) -> int:
        """Rows that no index entry confirms."""
        return sum(not r.confirmed for r in self.rows)

    @property
    def unlinked(self) -> int:
        """Rows from pages that nothing leads to any more."""
        return sum(not r.linked for r in self.rows)

    def reasons(self) -> dict[str, int]:
        """{reason: rows} of those that are not carried."""
        return dict(sorted(Counter(x.reason for x in self.left).items()))

    @property
    def repaired(self) -> int:
        """Rows whose blob columns were put right, as fix does."""
        return sum(bool(r.verdict.repairs) for r in self.rows)

    @property
    def whole(self) -> bool:
        """Whether it is sure that nothing was lost, and no key damaged."""
        enough = self.known is None or len(self.rows) >= self.known
        sure = self.proved or (not self.unconfirmed and (self.tree_complete or self.index_complete))
        return enough and not self.left and sure

    @cached_property
    def proved(self) -> bool:
        """Whether these are the rows that the provenance was written for."""
        said = self.provenance
        if said is None or said.get("rows") != str(len(self.rows)):
            return False
        content = ContentHash()
        for row in sorted(self.rows, key=lambda r: r.cell.rowid):
            name, args, _, digest, _ = columns(self.pages, self.pages.again(row.cell), self.layout)
            content.add(name, args, digest)
        return said.get("content_sha256") == content.hexdigest()

    def items(self, tick: Callable[[], None] | None = None) -> Iterator[tuple[bytes, bytes, Packed]]:
        """The rows to write, each read once more."""
        for row in self.rows:
            name, args, blob, _, _ = columns(self.pages, self.pages.again(row.cell), self.layout)
            yield name, args, row.verdict.packed(blob)
            if tick:
                tick()

    def written(self) -> dict[str, str]:
        """The provenance of the new file: the old one's where these are all its rows, else the count."""
        if self.provenance is not None and self.proved:
            return {k: v for k, v in self.provenance.items() if k not in OWN_KEYS}
        of = f" of {self.known}" if self.known is not None else ""
        unsure = f", {self.unconfirmed} keys unconfirmed" if self.unconfirmed else ""
        return {"salvage": f"{len(self.rows)}{of} rows{unsure}"}


@contextmanager
def salvage(path: Path, *, tick: Callable[[], None] | None = None) -> Iterator[Salvage]:
    """What is whole in `path`, readable while the context lasts; `tick` is called once per row found.

    A -wal or -journal beside the file is applied to a copy first, where SQLite can.
    """
    name = parse_name(path)
    with _applied(path) as (real, notes), Pages(real) as pages:
        found = Salvage(pages, notes=notes)
        judge = Judge(xnack=name is not None and name.xnack)
        _Reader(found, judge, name.arch if name is not None else None, tick).run()
        yield found


@contextmanager
def _applied(path: Path) -> Iterator[tuple[Path, list[str]]]:
    """The file, or a copy that holds what stood in its -wal or -journal."""
    beside = side_files(path)
    if not beside:
        yield path, []
        return
    with tempfile.TemporaryDirectory(prefix="kdbtool-salvage-") as folder:
        copy = Path(folder) / "copy.kdb"
        real = path.resolve()
        shutil.copyfile(real, copy)
        for suffix in beside:
            shutil.copyfile(f"{real}{suffix}", f"{copy}{suffix}")
        try:
            db = sqlite3.connect(copy, isolation_level=None)
            try:
                db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                db.close()
            notes: list[str] = []
        except SQLITE_ERRORS:
            notes = [f"{' and '.join(beside)} could not be applied: rows that only stand there are not read"]
        yield copy, notes


class _Reader:
    """One pass over the file's pages."""

    def __init__(
        self, found: Salvage, judge: Judge, arch: str | None, tick: Callable[[], None] | None
    ) -> None:
        self.found, self.pages, self.judge, self.arch, self.tick = found, found.pages, judge, arch, tick
        self.rows_of: dict[bytes, set[int]] = {}  # by digest of the key, as the index says
        self.keys_of: dict[int, dict[bytes, bytes]] = {}  # by row: digest of the key, name
        self.strange = False  # the table's tree leads to something else
        self.last = -1 << 63  # row number in the tree

    def run(self) -> None:
        """Index, then the table's pages, then the decisions."""
        pages, found = self.pages, self.found
        schema = self.schema()
        free = pages.free_pages()
        table = self.tree(schema.get("table"))
        index = self.tree(schema.get("index"), index=True)
        found.bad_pages = len({*table.bad, *index.bad} - {0})
        found.provenance = self.provenance(schema.get("provenance"))
        known = {*free, *table.leaves, *table.inner, *index.leaves, *index.inner}
        proper = [self.entries(n) for n in (*index.leaves, *index.inner)]
        found.index_complete = index.complete and all(proper)
        rest: dict[int, int] = {}
        if not found.index_complete:
            rest = self.kinds(known)
            for n, kind in rest.items():
                if kind in (INDEX_LEAF, INDEX_INNER):
                    self.entries(n)
        for n in table.leaves:
            self.leaf(n, linked=True)
        found.tree_complete = table.complete and not self.strange
        missing = self.keys_of.keys() - {r.cell.rowid for r in found.rows}
        if not found.tree_complete or missing:
            for n, kind in (rest or self.kinds(known)).items():
                if kind == TABLE_LEAF:
                    self.leaf(n, linked=False)
        self.resolve()
        self.lost()

    def kinds(self, known: set[int]) -> dict[int, int]:
        """{page: type} of the pages that nothing leads to, nor a part of the freelist that is lost itself."""
        found, free = {}, set()
        for n in range(1, self.pages.count + 1):
            if n not in known:
                found[n] = self.pages.kind(n)
                free |= self.pages.trunk_leaves(n) if not found[n] else set()
        return {n: kind for n, kind in found.items() if kind and n not in free}

    def tree(self, root: int | None, *, index: bool = False) -> Tree:
        """The b-tree at a root of the schema; nothing and not complete where there is none."""
        return self.pages.tree(root, index=index) if root else Tree(bad=[0])

    def schema(self) -> dict[str, int]:
        """Root pages of table, index and provenance, as far as the schema tells."""
        roots: dict[str, int] = {}
        for values in self.records(self.pages.tree(1).leaves):
            if values is None or len(values) != 5 or not isinstance(values[3], int):
                continue
            kind, name, table, sql = (self.text(values[n]) for n in (0, 1, 2, 4))
            if kind == b"table" and name == b"kern_db":
                roots["table"] = values[3]
                self.found.layout = layout(sql)
            elif kind == b"index" and table == b"kern_db" and is_key_index(sql):
                roots["index"] = values[3]
            elif kind == b"table" and name == PROVENANCE_TABLE.encode():
                roots["provenance"] = values[3]
        return roots

    def records(self, numbers: list[int]) -> Iterator[list[Value] | None]:
        """The records of some pages, None for each that is broken."""
        for number in numbers:
            with suppress(BadPage):
                for cell in self.pages.cells(number):
                    values = None
                    with suppress(BadPage):
                        if cell is not None and cell.size <= MAX_KEY:
                            values = record(self.pages.payload(cell))[1]
                    yield values

    def text(self, value: Value) -> bytes:
        """A text as UTF-8; what is none is empty."""
        return utf8(value, self.pages.encoding) if isinstance(value, bytes) else b""

    def provenance(self, root: int | None) -> dict[str, str] | None:
        """What the file says of itself, where all of it can be read."""
        tree = self.tree(root, index=True)
        if not tree.complete:
            return None
        found: dict[str, str] = {}
        for values in self.records([*tree.leaves, *tree.inner]):
            if values is not None and len(values) == 2 and len(found) < _MAX_PROVENANCE:
                key, value = (self.text(v).decode("utf-8", "backslashreplace") for v in values)
                found[key] = value
        return found

    def entries(self, number: int) -> bool:
        """Take the index entries of one page, key and row number; whether there is nothing else in it."""
        proper = True
        for values in self.records([number]):
            if values is None or len(values) != 3 or not isinstance(values[2], int):
                proper = False
                continue
            name, args = self.text(values[0]), self.text(values[1])
            digest = _digest(name, args)
            self.rows_of.setdefault(digest, set()).add(values[2])
            self.keys_of.setdefault(values[2], {})[digest] = name
        return proper

    def leaf(self, number: int, *, linked: bool) -> None:
        """The rows of one leaf page."""
        with suppress(BadPage):
            for cell in self.pages.cells(number):
                if cell is None:
                    if linked:
                        self.leave(None, b"", CELL_DAMAGED, f"page {number}")
                elif is_row(cell, self.found.layout):
                    if linked:  # row numbers rise from leaf to leaf, else one stands in the place of another
                        self.strange |= cell.rowid <= self.last
                        self.last = cell.rowid
                    self.row(cell, linked=linked)
                elif linked:
                    self.strange = True
                    if not self.keys_of:  # else the index says whether a row stood there
                        self.leave(cell.rowid, b"", CELL_DAMAGED, f"page {number}: no row of kern_db")

    def row(self, cell: Cell, *, linked: bool) -> None:
        """One row that has the shape of one."""
        if self.tick:
            self.tick()
        try:
            name, args, blob, digest, size = columns(self.pages, cell, self.found.layout)
        except BadPage as error:
            self.leave(cell.rowid, b"", CELL_DAMAGED, f"page {cell.page}: {error}")
            return
        key = _digest(name, args)
        confirmed = key in self.keys_of.get(cell.rowid, ())
        if not confirmed:
            if cell.rowid in self.keys_of or key in self.rows_of or not plausible(name, args):
                # Of a page that nothing leads to: an old copy of a row, not the row.
                if linked:
                    self.leave(cell.rowid, name, KEY_DAMAGED, f"page {cell.page}")
                return
            if not linked and (self.found.index_complete or self.found.tree_complete):
                return
        verdict = self.judge(blob, digest, size, row_arch(name, args, self.arch))
        if verdict.problems:
            self.leave(cell.rowid, name, verdict.problems[0].code.code, verdict.problems[0].detail)
        elif b"\0" in name + args or not name:
            self.leave(cell.rowid, name, KEY_DAMAGED, "a NUL in the key, or no name")
        else:
            slim = replace(cell, local=b"")  # 200,000 of them stay
            self.found.rows.append(_Row(slim, key, verdict, linked, confirmed))

    def leave(self, row: int | None, name: bytes, reason: str, detail: str) -> None:
        """Leave a row out."""
        self.found.left.append(Left(row, name, reason, detail))

    def resolve(self) -> None:
        """One row per number and key; of several objects the one that index and tree speak for."""
        linked = {r.cell.rowid for r in self.found.rows if r.linked}
        groups: dict[bytes, list[_Row]] = {}
        for row in self.numbered([r for r in self.found.rows if r.linked or r.cell.rowid not in linked]):
            groups.setdefault(row.key, []).append(row)
        kept = []
        for group in groups.values():
            group.sort(key=lambda r: (not r.confirmed, not r.linked, r.cell.rowid, r.cell.page))
            first = group[0]
            best = {
                r.verdict.md5 for r in group if (r.confirmed, r.linked) == (first.confirmed, first.linked)
            }
            if len(best) == 1:
                kept.append(first)
                group = group[1:]
            for row in group:
                if row.verdict.md5 != first.verdict.md5 or len(best) > 1:
                    self.leave(row.cell.rowid, b"", CONFLICT, f"object {row.verdict.md5}")
                elif row.cell.rowid != first.cell.rowid:
                    self.leave(row.cell.rowid, b"", CONFLICT, f"the same as row {first.cell.rowid}")
        self.found.rows = sorted(kept, key=lambda r: r.cell.rowid)

    def numbered(self, rows: list[_Row]) -> Iterator[_Row]:
        """Those that can have their number: of two keys under one, all but one are of another time."""
        groups: dict[int, list[_Row]] = {}
        for row in rows:
            groups.setdefault(row.cell.rowid, []).append(row)
        for number, group in groups.items():
            rank = max((r.confirmed, r.linked) for r in group)
            keys = {r.key for r in group if (r.confirmed, r.linked) == rank}
            for row in group:
                if len(keys) == 1 and row.key in keys:
                    yield row
                else:
                    self.leave(
                        number, b"", CONFLICT, f"one of two keys of the number, object {row.verdict.md5}"
                    )

    def lost(self) -> None:
        """What the index knows and no page has, and how many rows there were."""
        found = self.found
        met = {r.cell.rowid for r in found.rows} | {x.row for x in found.left}
        for number, keys in self.keys_of.items():
            if number not in met:
                self.leave(number, next(iter(keys.values())), LOST, "")
        found.left.sort(key=lambda x: (x.row is None, x.row or 0, x.reason, x.detail))
        known = []
        if found.index_complete:
            known.append(len(self.keys_of))
        said = (found.provenance or {}).get("rows", "")
        if said.isdecimal() and len(said) < 10:
            known.append(int(said))
        found.known = max(known) if known else None


def _digest(name: bytes, args: bytes) -> bytes:
    found = hashlib.blake2b(len(name).to_bytes(8, "little"), digest_size=16)
    found.update(name)
    found.update(args)
    return found.digest()
