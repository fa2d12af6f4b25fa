"""What can be put right in a kernel database, and the rows of the right one.

plan(reader, ...) reads every row once and decides; rows(reader, plan) gives those to write. The new file's
form (journal mode, index, page size, encoding, free pages, extra tables, file mode) is the writer's.

Repaired is only what has one right answer: the spelling of a key (`.o`, a bare `-mcpu` at the end, text),
and blob columns whose object its MD5 proves. A row that MIOpen would throw on, or that is code for other
devices, is left out: what kernel_hash does not prove cannot be repaired, and MIOpen compiles what is missing.
A row that is only never asked for (another architecture, a quote) stays as it is, counted as unfixed.

Rows that come to one key: one object is one row; of several objects the one whose key was right already stays
and the others are left out, and where there is no such one, or several, all are left out. Each is reported.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from typing import Any

from kdbtool.errors import EXIT_PROBLEMS, KdbtoolError, printable
from kdbtool.kdb.blob import Packed
from kdbtool.kdb.checks import check_file
from kdbtool.kdb.digest import digest_of
from kdbtool.kdb.findings import Code, Finding
from kdbtool.kdb.identify import FileKind
from kdbtool.kdb.reader import KdbReader, Row
from kdbtool.kdb.rowcheck import BlobRepair, Judge, Verdict, row_arch
from kdbtool.kdb.sqlite import MAX_VALUE
from kdbtool.kdb.writer import OWN_KEYS, ContentHash
from kdbtool.miopen.keys import SUFFIX
from kdbtool.miopen.liveness import judge, repair
from kdbtool.reasons import Reason


class KeyRepair(enum.Enum):
    """What can be put right in a key: name for `--only`, and the text."""

    DOT_O = ("dot-o", ".o added to the kernel name")
    MCPU = ("mcpu", "-mcpu=<arch> added to the arguments")
    TARGET_ID = ("target-id", "the target id's features taken out of -mcpu")
    KEY_TYPE = ("key-type", "the key stored as text")

    def __init__(self, code: str, text: str) -> None:
        self.code = code
        self.text = text


Repair = KeyRepair | BlobRepair
REPAIRS: dict[str, Repair] = {r.code: r for r in (*KeyRepair, *BlobRepair)}
CONFLICT = "conflict"  # left out: two objects for one key
DUPLICATE = "duplicate-key"
# Findings of the file that a new file does not have.
_FORM = frozenset(
    {
        Code.JOURNAL, Code.SIDE_FILES, Code.NO_INDEX, Code.EXTRA_COLUMN, Code.EXTRA_TABLE, Code.USER_VERSION,
        Code.ENCODING, Code.PAGE_SIZE, Code.FREE_PAGES, Code.FILE_MODE,
    }
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What becomes of one row. `reason`: of a row that is left out, or unfixed; `other`: the row it met."""

    row: int
    name: bytes
    what: str  # "kept" | "repaired" | "merged" | "left-out" | "unfixed"
    repairs: tuple[Repair, ...] = ()
    reason: str = ""
    detail: str = ""
    other: int | None = None

    def json(self) -> dict[str, Any]:
        """As `--json` shows it."""
        return {
            "row": self.row,
            "name": printable(self.name),
            "what": self.what,
            "repairs": [r.code for r in self.repairs],
            "reason": self.reason or None,
            "detail": printable(self.detail),
            "other": self.other,
        }


@dataclass(frozen=True)
class _Write:
    """A row that is written. Its key is made again then: 200,000 of them take much room."""

    seen: bytes  # digest of the row as it was judged
    verdict: Verdict


@dataclass
class Plan:
    """Decisions about one file. Every row has one Outcome; `form`: what the new file no longer has.

    `arch`: what the database is for; `only`: the repairs that are wanted.
    """

    arch: str | None = None
    only: Set[Repair] = frozenset()
    outcomes: list[Outcome] = field(default_factory=list)
    form: list[Finding] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)
    provenance: dict[str, str] = field(default_factory=dict)
    provenance_lost: bool = False
    _write: dict[int, _Write] = field(default_factory=dict)

    def count(self, what: str) -> int:
        """Rows of one outcome."""
        return sum(o.what == what for o in self.outcomes)

    def reasons(self, what: str) -> dict[str, int]:
        """{reason: rows} of those that are left out or unfixed, in order of the reason."""
        return dict(sorted(Counter(o.reason for o in self.outcomes if o.what == what).items()))

    @property
    def repairs(self) -> dict[str, int]:
        """{repair: rows}, in the order of the list."""
        kept = (o for o in self.outcomes if o.what in ("repaired", "unfixed"))
        found = Counter(r.code for o in kept for r in o.repairs)
        return {code: found[code] for code in REPAIRS if found[code]}

    @property
    def changes_nothing(self) -> bool:
        """Whether each row is written as it is and none left out."""
        same = all(o.what in ("kept", "unfixed") and not o.repairs for o in self.outcomes)
        return same and not self.provenance_lost

    @property
    def all_right(self) -> bool:
        """Whether nothing was left that could not be fixed."""
        return not any(o.what in ("left-out", "unfixed") for o in self.outcomes)

    def written(self) -> dict[str, str]:
        """The provenance of the new file: that of the old one where it was true, and what fix did."""
        if self.changes_nothing:
            return self.provenance
        done = [f"{code} {n}" for code, n in self.repairs.items()]
        done += [f"merged {self.count('merged')}"] if self.count("merged") else []
        done += [f"left out {code} {n}" for code, n in self.reasons("left-out").items()]
        done += ["provenance of other rows dropped"] if self.provenance_lost else []
        earlier = [self.provenance["fix"]] if "fix" in self.provenance else []
        return {**self.provenance, "fix": "; then ".join([*earlier, ", ".join(done)])}


def plan(
    reader: KdbReader,
    arch: str | None = None,
    *,
    only: Set[Repair] | None = None,
    tick: Callable[[], None] | None = None,
) -> Plan:
    """Read every row and decide. `arch`: what the database is for, by default what its name says.

    `only`: the repairs to make, None for all. KdbtoolError (exit 1) for a file that SQLite finds damaged or
    that lacks a column.
    """
    if arch is None and reader.name is not None:
        arch = reader.name.arch
    found = Plan(arch, set(REPAIRS.values()) if only is None else only)
    for finding in check_file(reader):
        if finding.code is Code.MALFORMED:
            raise KdbtoolError(
                "damaged database",
                where=reader.path,
                why=finding.detail,
                hint="kdbtool salvage FILE -o NEW reads what is left of it",
                exit_code=EXIT_PROBLEMS,
            )
        if finding.code is Code.NO_COLUMN:
            raise KdbtoolError(
                f"the table kern_db has no column {finding.detail}",
                where=reader.path,
                why="nothing could prove its rows",
                exit_code=EXIT_PROBLEMS,
            )
        live = reader.kind.what is FileKind.UKDB and finding.code in (Code.SIDE_FILES, Code.FREE_PAGES)
        if finding.code in _FORM and not live:
            found.form.append(finding)
    _Planner(reader, found).run(tick)
    return found


def rows(
    reader: KdbReader, decided: Plan, tick: Callable[[], None] | None = None
) -> Iterator[tuple[bytes, bytes, Packed]]:
    """The rows to write. KdbtoolError (exit 1) when a writer changed one since it was judged."""
    written = 0
    for row in reader:
        item = decided._write.get(row.rowid)
        if item is None:
            continue
        blob = row.blob()
        if (
            digest_of(row.name, row.args, row.hash.encode(), str(row.uncompressed_size).encode(), blob)
            != item.seen
        ):
            break
        written += 1
        name, args, _ = repaired_key(row, decided.arch, decided.only)
        yield name, args, item.verdict.packed(blob)
        if tick:
            tick()
    if written != len(decided._write):
        raise KdbtoolError(
            "the database changed while it was read",
            where=reader.path,
            hint="run it again",
            exit_code=EXIT_PROBLEMS,
        )


def repaired_key(row: Row, arch: str | None, only: Set[Repair]) -> tuple[bytes, bytes, list[Repair]]:
    """(name, arguments, repairs) of a row's key, as far as repairs are wanted."""
    name, args = row.name, row.args
    repairs: list[Repair] = []
    if not row.key_is_text:
        repairs.append(KeyRepair.KEY_TYPE)  # whatever is wanted: the writer stores text
    new_name, new_args = repair(name, args, arch)
    if new_name != name and new_name == name + SUFFIX and KeyRepair.DOT_O in only:
        name = new_name
        repairs.append(KeyRepair.DOT_O)
    if new_args != args:
        kind = KeyRepair.TARGET_ID if Reason.TARGET_ID in judge(name, args, None, None) else KeyRepair.MCPU
        if kind in only:
            args = new_args
            repairs.append(kind)
    return name, args, repairs


@dataclass
class _Candidate:
    """A row that may be written under `name`, `args`. `right`: its key needed no repair."""

    rowid: int
    name: bytes
    args: str  # shortened
    write: _Write
    repairs: tuple[Repair, ...]
    reason: str
    right: bool


class _Planner:
    """The one pass over the rows, then the decisions by key."""

    def __init__(self, reader: KdbReader, found: Plan) -> None:
        self.reader, self.found = reader, found
        xnack = reader.name is not None and reader.name.xnack
        self.judge = Judge(xnack=xnack, repairs={r for r in found.only if isinstance(r, BlobRepair)})
        self.groups: dict[bytes, list[_Candidate]] = {}
        self.content = ContentHash()
        self.count = 0

    def run(self, tick: Callable[[], None] | None) -> None:
        """All rows."""
        for row in self.reader:
            self.count += 1
            self.content.add(row.name, row.args, row.hash)
            self.row(row)
            if tick:
                tick()
        for group in self.groups.values():
            self.decide(group)
        self.found.outcomes.sort(key=lambda o: o.row)
        self.keep_provenance()

    def row(self, row: Row) -> None:
        """Judge one row; it becomes a candidate for a key, or is left out at once."""
        name, args, repairs = repaired_key(row, self.found.arch, self.found.only)
        if b"\0" in name + args or not name:
            self.leave(row.rowid, row.name, Code.NOT_TEXT.code, "a NUL in the key, or no name")
            return
        if row.blob_size > MAX_VALUE:
            self.leave(row.rowid, row.name, Code.BAD_SIZE.code, f"a blob of {row.blob_size} bytes")
            return
        blob = row.blob()
        verdict = self.judge(blob, row.hash, row.uncompressed_size, row_arch(name, args, self.found.arch))
        if verdict.problems:
            first = verdict.problems[0]
            self.leave(row.rowid, row.name, first.code.code, first.detail)
            return
        self.found.notes.update(f.code.code for f in verdict.notes)
        reasons = [r.code for r in judge(name, args, self.found.arch, None)]
        seen = digest_of(row.name, row.args, row.hash.encode(), str(row.uncompressed_size).encode(), blob)
        candidate = _Candidate(
            row.rowid,
            row.name,
            _short(row.args),
            _Write(seen, verdict),
            (*repairs, *verdict.repairs),
            reasons[0] if reasons else "",
            not repairs,
        )
        self.groups.setdefault(digest_of(name, args), []).append(candidate)

    def decide(self, group: list[_Candidate]) -> None:
        """Rows that come to one key."""
        # By what was there, not by row number: the same rows in another order give the same file.
        group.sort(key=lambda c: (not c.right, len(c.repairs), c.name, c.write.seen, c.rowid))
        first = group[0]
        objects = {c.write.verdict.md5 for c in group}
        right = {c.write.verdict.md5 for c in group if c.right}
        if len(objects) > 1 and len(right) != 1:
            for one in group:
                other = next(c for c in group if c.write.verdict.md5 != one.write.verdict.md5)
                self.conflict(one, other, DUPLICATE if one.right else CONFLICT)
            return
        self.found._write[first.rowid] = first.write
        what = "unfixed" if first.reason else "repaired" if first.repairs else "kept"
        self.found.outcomes.append(
            Outcome(first.rowid, first.name, what, first.repairs, first.reason, first.args)
        )
        for one in group[1:]:
            if one.write.verdict.md5 == first.write.verdict.md5:
                self.found.outcomes.append(
                    Outcome(one.rowid, one.name, "merged", one.repairs, "", one.args, first.rowid)
                )
            else:
                self.conflict(one, first, CONFLICT)

    def conflict(self, one: _Candidate, other: _Candidate, reason: str) -> None:
        """Leave out a row whose key another object has."""
        detail = f"object {one.write.verdict.md5}, row {other.rowid} has {other.write.verdict.md5}"
        self.leave(one.rowid, one.name, reason, detail, other.rowid, one.repairs)

    def leave(
        self,
        row: int,
        name: bytes,
        reason: str,
        detail: str,
        other: int | None = None,
        repairs: tuple[Repair, ...] = (),
    ) -> None:
        """Leave a row out, with its reason."""
        self.found.outcomes.append(Outcome(row, name, "left-out", repairs, reason, detail, other))

    def keep_provenance(self) -> None:
        """Carry what the old file said of itself only where it was said of these rows."""
        said = self.reader.provenance()
        if said is None:
            return
        facts = {"rows": str(self.count), "content_sha256": self.content.hexdigest()}
        if any(said.get(key) != value for key, value in facts.items()):
            self.found.provenance_lost = True
            return
        self.found.provenance = {k: v for k, v in said.items() if k not in OWN_KEYS}


def _short(args: bytes) -> str:
    shown = printable(args)
    return shown if len(shown) <= 120 else f"{shown[:60]}...{shown[-60:]}"
