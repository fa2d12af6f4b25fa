"""What differs between two inputs with kernel keys: by key, by code, by source.

By key: which keys stand on one side alone, and whether the other side has them under another spelling
(the data type list once for twice, or what `fix` would make of them). By code, for two kernel databases: same
object, same code in other bytes (kdbtool.codeobject.compare says what that means), other code with what each
kernel takes before and after, or damaged. By source: keys per kernel source, hashes that two manifests name.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from kdbtool.codeobject import CodeObjectError, parse
from kdbtool.codeobject.compare import SHARED, Resources, Summary, summary
from kdbtool.errors import KdbtoolError
from kdbtool.inputs import Entry, Input
from kdbtool.kdb.blob import unpack
from kdbtool.kdb.reader import Row
from kdbtool.miopen.keys import shown_source, split_arch
from kdbtool.miopen.liveness import judge, repair
from kdbtool.miopen.spelling import other_spelling

Key = tuple[bytes, bytes, str]  # name, args, and the architecture where the arguments do not say it
_CACHED = 16  # objects; rows of one kernel stand together


class Verdict(enum.Enum):
    """How the objects of two rows are related."""

    OBJECT = "same-object"
    CODE = "same-code"
    OTHER = "other-code"
    DAMAGED = "damaged"


@dataclass(frozen=True)
class Twin:
    """A key of one side that the other has in another spelling. `how`: `doubled`, or a reason of `judge`."""

    other: Key
    how: str


@dataclass(frozen=True)
class Change:
    """One kernel of two objects; None where one lacks it. `code`: its code differs, not only numbers."""

    name: str
    before: Resources | None
    after: Resources | None
    code: bool


@dataclass(frozen=True)
class Compared:
    """Two rows. `changes` are sorted; `shared`: functions, data or the target differ; `why`: the damage."""

    verdict: Verdict
    targets: tuple[str, str] = ("", "")
    changes: tuple[Change, ...] = ()
    shared: bool = False
    why: str = ""


@dataclass
class Source:
    """Keys of one kernel source, and hashes (manifests) that differ: `source`, `headers`."""

    name: str
    only: list[int] = field(default_factory=lambda: [0, 0])
    both: int = 0
    code: dict[Verdict, int] = field(default_factory=dict)
    hashes: tuple[str, ...] = ()


@dataclass
class Side:
    """The chosen keys of one input. `doubles`: rows whose key another row had before them."""

    source: Input
    keys: dict[Key, Entry] = field(default_factory=dict)
    doubles: int = 0


@dataclass
class Difference:
    """All of it. `code` is None unless both sides are kernel databases."""

    sides: tuple[Side, Side]
    only: tuple[list[Key], list[Key]]
    both: list[Key]
    twins: tuple[dict[Key, Twin], dict[Key, Twin]]
    states: list[Key]  # of two manifests: the same key in another state
    code: dict[Key, Compared] | None
    sources: dict[str, Source]
    provenance: dict[str, tuple[str, str]]

    def count(self, verdict: Verdict) -> int:
        """Rows in both with this verdict."""
        return sum(found.verdict is verdict for found in (self.code or {}).values())

    def differs(self, by: str | None) -> bool:
        """Whether something is not equal; `by`: key, code or source alone. Other bytes of equal code are."""
        key = bool(self.only[0] or self.only[1] or self.states)
        code = self.count(Verdict.OTHER) + self.count(Verdict.DAMAGED) > 0
        source = any(s.hashes or (not s.both and any(s.only)) for s in self.sources.values())
        return {"key": key, "code": key or code, "source": source}.get(by or "", key or code or source)


def read_side(source: Input, kernel: re.Pattern[str] | None, archs: set[str] | None) -> Side:
    """The keys of an open input that the filters take."""
    side = Side(source)
    for entry in source.entries():
        if archs is not None and entry.arch not in archs:
            continue
        if kernel is not None and kernel.search(shown_source(entry.name)) is None:
            continue
        key = _key(entry.name, entry.args, entry.arch)
        if key in side.keys:
            side.doubles += 1
        else:
            side.keys[key] = entry
    return side


def _key(name: bytes, args: bytes, arch: str) -> Key:
    return name, args, "" if split_arch(args) else arch


def diff(one: Side, other: Side) -> Difference:
    """Compare. KdbtoolError for a file that cannot be read any further; a damaged row is a verdict."""
    only = (
        sorted(one.keys.keys() - other.keys.keys()),
        sorted(other.keys.keys() - one.keys.keys()),
    )
    both = sorted(one.keys.keys() & other.keys.keys())
    found = Difference(
        (one, other),
        only,
        both,
        (_twins(only[0], one, other), _twins(only[1], other, one)),
        _states(one, other, both),
        None,
        {},
        _provenance(one.source, other.source),
    )
    if one.source.kdb is not None and other.source.kdb is not None:
        found.code = {key: _compare(one.keys[key].row, other.keys[key].row) for key in both}
        for key, twin in found.twins[0].items():
            found.code[key] = _compare(one.keys[key].row, other.keys[twin.other].row)
    _sources(found)
    return found


def _twins(only: list[Key], here: Side, there: Side) -> dict[Key, Twin]:
    """Keys of `only` that the other side has after a repair of either, or in the other spelling."""
    if not only:
        return {}
    repaired: dict[Key, Key] = {}
    for key, entry in there.keys.items():
        name, args = repair(entry.name, entry.args, entry.arch or None)
        if (name, args) != key[:2]:
            repaired.setdefault(_key(name, args, entry.arch), key)
    out = {}
    for key in only:
        entry = here.keys[key]
        mended = _key(*repair(entry.name, entry.args, entry.arch or None), entry.arch)
        doubled = other_spelling(entry.name, entry.args)
        if mended != key and mended in there.keys:
            out[key] = Twin(mended, _why(entry))
        elif key in repaired:
            out[key] = Twin(repaired[key], _why(there.keys[repaired[key]]))
        elif doubled is not None and (found := _key(entry.name, doubled, entry.arch)) in there.keys:
            out[key] = Twin(found, "doubled")
    return out


def _why(entry: Entry) -> str:
    reasons = judge(entry.name, entry.args, entry.arch or None, None)
    return reasons[0].code if reasons else "repair"


def _states(one: Side, other: Side, both: list[Key]) -> list[Key]:
    if one.source.manifest is None or other.source.manifest is None:
        return []
    return [key for key in both if one.keys[key].state != other.keys[key].state]


def _provenance(one: Input, other: Input) -> dict[str, tuple[str, str]]:
    """Fields that the writers of two databases, or two manifests' headers, fill with other values."""
    pairs = []
    for found in (one, other):
        if found.kdb is not None:
            pairs.append(found.kdb.provenance() or {})
        elif found.manifest is not None:
            fields = {"miopen": found.manifest.miopen, "sources": found.manifest.sources}
            pairs.append({name: value for name, value in fields.items() if value})
        else:
            pairs.append({})
    first, second = pairs
    return {
        name: (first.get(name, ""), second.get(name, ""))
        for name in sorted(first.keys() & second.keys())
        if first[name] != second[name] and name != "content_sha256"  # it differs wherever anything does
    }


def _sources(found: Difference) -> None:
    def of(key: Key) -> Source:
        name = shown_source(key[0])
        return found.sources.setdefault(name, Source(name))

    for number in (0, 1):
        for key in found.only[number]:
            of(key).only[number] += 1
    for key in found.both:
        of(key).both += 1
    for key, compared in (found.code or {}).items():
        counts = of(key).code
        counts[compared.verdict] = counts.get(compared.verdict, 0) + 1
    first, second = (side.source.manifest for side in found.sides)
    if first is None or second is None:
        return
    for name in first.hashes.keys() & second.hashes.keys() & found.sources.keys():
        one, other = first.hashes[name], second.hashes[name]
        found.sources[name].hashes = tuple(
            what
            for what in ("source", "headers")
            if getattr(one, what) and getattr(other, what) and getattr(one, what) != getattr(other, what)
        )


def _compare(one: Row | None, other: Row | None) -> Compared:
    assert one is not None and other is not None
    try:
        blobs = one.blob(), other.blob()
        if blobs[0] == blobs[1] and one.uncompressed_size == other.uncompressed_size:
            return Compared(Verdict.OBJECT)
        first, second = _unpacked(one, blobs[0]), _unpacked(other, blobs[1])
    except KdbtoolError as error:
        return Compared(Verdict.DAMAGED, why=error.line())
    if first == second:
        return Compared(Verdict.OBJECT)
    try:
        return _code(_summary(first), _summary(second))
    except CodeObjectError as error:
        return Compared(Verdict.DAMAGED, why=str(error))


def _unpacked(row: Row, blob: bytes) -> bytes:
    """The object; KdbtoolError for a blob that MIOpen would throw on."""
    data, findings = unpack(blob, row.hash, row.uncompressed_size)
    for found in findings:
        if data is None or found.is_problem:
            raise KdbtoolError("damaged row", where=f"row {row.rowid}", why=found.code.reason)
    assert data is not None
    return data


@functools.lru_cache(_CACHED)
def _summary(data: bytes) -> Summary:
    return summary(parse(data))


def _code(one: Summary, other: Summary) -> Compared:
    targets = one.target, other.target
    if one.identity == other.identity:
        return Compared(Verdict.CODE, targets)
    return Compared(
        Verdict.OTHER,
        targets,
        tuple(_changes(one, other)),
        one.digests[SHARED] != other.digests[SHARED],
    )


def _changes(one: Summary, other: Summary) -> Iterator[Change]:
    for name in sorted(one.kernels.keys() | other.kernels.keys()):
        before, after = one.kernels.get(name), other.kernels.get(name)
        code = one.digests.get(name) != other.digests.get(name)
        if code or before != after:
            yield Change(name, before, after, code)
