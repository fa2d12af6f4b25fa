"""Merging kernel databases: which object each key gets, and every row that stands in the way.

Two passes over the inputs, so that memory holds one digest for each key and no blob. The first judges every
row as verify does and finds the keys that have different objects; the second hands the chosen rows to the
writer. Equal is what has the same MD5; where that differs, objects of the same code (kdbtool.codeobject.
compare) are no conflict. Where there is none, the result does not depend on the order of the inputs.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kdbtool.codeobject import CodeObjectError, parse
from kdbtool.errors import EXIT_PROBLEMS, KdbtoolError
from kdbtool.kdb.blob import Packed, unpack
from kdbtool.kdb.findings import Code, Finding
from kdbtool.kdb.reader import KdbReader, Row, RowGone
from kdbtool.kdb.rowcheck import Judge, Verdict, row_arch
from kdbtool.kdb.sqlite import MAX_VALUE
from kdbtool.kdb.writer import ContentHash
from kdbtool.miopen.keys import SUFFIX

FIRST, LAST = "first", "last"


class Place(NamedTuple):
    """A row of an input, by the input's number."""

    source: int
    rowid: int
    md5: str
    size: int  # uncompressed_size


@dataclass(frozen=True)
class Damage:
    """A row that must not be copied, and what verify says of it."""

    source: int
    rowid: int
    name: bytes
    finding: Finding


@dataclass
class Difference:
    """A key with several objects. `chosen` is the MD5 of the one that is taken; None: nobody decided."""

    arch: str
    name: bytes
    args: bytes
    places: list[Place]
    same_code: bool = False
    chosen: str | None = None


@dataclass
class Account:
    """What the first pass saw. `sources` and `content` are by input."""

    rows: list[int]
    sources: list[set[str]]
    content: list[str]
    archs: Counter[str] = field(default_factory=Counter)  # "": rows that name none, in a file that names none
    equal: int = 0  # rows that another row says as well, object included
    damaged: list[Damage] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)

    @property
    def conflicts(self) -> list[Difference]:
        """Those that nobody decided."""
        return [d for d in self.differences if d.chosen is None]


class Merge:
    """A merge of open databases; `survey`, then `rows` of each architecture.

    `xnack`: the rows are for devices with xnack+.
    """

    def __init__(
        self, readers: Sequence[KdbReader], prefer: str | None = None, *, xnack: bool = False
    ) -> None:
        self.readers, self.prefer = readers, prefer
        self._judge = Judge(xnack=xnack, repairs=frozenset())
        self._unique = [reader.has_index for reader in readers]
        self._chosen: dict[str, dict[bytes, str]] = {}  # by arch: MD5 by digest of the key
        self._identities: dict[str, str | None] = {}  # of code, by MD5

    def survey(self) -> Account:
        """The first pass, and what is taken where objects differ."""
        out = Account([0] * len(self.readers), [set() for _ in self.readers], [])
        found: dict[tuple[str, bytes], Place | Difference] = {}
        for number in range(len(self.readers)):
            content = ContentHash()
            for row, arch, verdict in self._judged(number):
                out.rows[number] += 1
                content.add(row.name, row.args, row.hash)
                wrong = _damage(row, verdict)
                if wrong is not None:
                    out.damaged.append(Damage(number, row.rowid, row.name, wrong))
                    continue
                out.archs[arch] += 1
                out.sources[number].add(row.name.removesuffix(SUFFIX).decode("utf-8", "backslashreplace"))
                key = (arch, _digest(row))
                place = Place(number, row.rowid, verdict.md5, verdict.size)
                found[key] = self._joined(found.get(key), place, row, arch, out)
            out.content.append(content.hexdigest())
        for key in sorted(found):
            held = found[key]
            if isinstance(held, Difference):
                self._decide(held)
                out.differences.append(held)
            md5 = held.chosen if isinstance(held, Difference) else held.md5
            self._chosen.setdefault(key[0], {})[key[1]] = md5 or ""
        return out

    def _joined(
        self, held: Place | Difference | None, place: Place, row: Row, arch: str, out: Account
    ) -> Place | Difference:
        """What is known of a key once `place` has it, too."""
        if held is None:
            return place
        places = held.places if isinstance(held, Difference) else [held]
        if self._unique[place.source]:  # a live database shows a replaced row twice, the right one last
            places = [one for one in places if one.source != place.source]
        places = [*places, place]
        out.equal += any(one.md5 == place.md5 for one in places[:-1])
        if len({one.md5 for one in places}) > 1:
            return Difference(arch, row.name, row.args, places)
        return places[0]

    def keys(self, arch: str) -> int:
        """How many rows the database of `arch` gets."""
        return len(self._chosen.get(arch, {}))

    def rows(self, arch: str) -> Iterator[tuple[bytes, bytes, Packed]]:
        """The second pass: what `write_kdb` takes. KdbtoolError (exit 1) if an input changed meanwhile."""
        chosen = self._chosen.get(arch, {})
        given: set[bytes] = set()
        for number in range(len(self.readers)):
            for row, of, verdict in self._judged(number):
                digest = _digest(row)
                if of == arch and _damage(row, verdict) is None and chosen.get(digest) == verdict.md5:
                    given.add(digest)
                    # The same object may be packed in several ways: the writer takes the smallest.
                    yield row.name, row.args, verdict.packed(row.blob())
        if len(given) != len(chosen):
            raise KdbtoolError(
                "an input changed while it was read", hint="run it again", exit_code=EXIT_PROBLEMS
            )

    def _judged(self, number: int) -> Iterator[tuple[Row, str, Verdict]]:
        reader = self.readers[number]
        named = reader.name
        for row in reader:
            arch = row_arch(row.name, row.args, named.arch if named else None)
            try:
                blob = row.blob() if row.blob_size <= MAX_VALUE else b""
            except RowGone:
                continue  # replaced meanwhile: it comes again under a new id
            yield (
                row,
                arch or (named.arch if named else ""),
                self._judge(blob, row.hash, row.uncompressed_size, arch),
            )

    def _decide(self, difference: Difference) -> None:
        difference.same_code = self._same_code(difference.places)
        if self.prefer is not None:
            take = min if self.prefer == FIRST else max
            difference.chosen = take(difference.places, key=lambda place: place[:2]).md5
        elif difference.same_code:
            difference.chosen = min(place.md5 for place in difference.places)

    def _same_code(self, places: list[Place]) -> bool:
        found = set()
        for place in {place.md5: place for place in places}.values():
            identity = self._identity(place)
            if identity is None:
                return False
            found.add(identity)
        return len(found) == 1

    def _identity(self, place: Place) -> str | None:
        """What the object's code is; None where nothing can be said of it."""
        if place.md5 not in self._identities:
            from kdbtool.codeobject.compare import code_identity

            data, _ = unpack(self.readers[place.source].blob(place.rowid), place.md5, place.size)
            try:
                self._identities[place.md5] = code_identity(parse(data, None)) if data else None
            except CodeObjectError:
                self._identities[place.md5] = None
        return self._identities[place.md5]


def _damage(row: Row, verdict: Verdict) -> Finding | None:
    if not row.key_is_text or not row.name:
        return Finding(Code.NOT_TEXT)
    return verdict.problems[0] if verdict.problems else None


def _digest(row: Row) -> bytes:
    found = hashlib.blake2b(len(row.name).to_bytes(8, "little"), digest_size=16)
    found.update(row.name)
    found.update(row.args)
    return found.digest()
