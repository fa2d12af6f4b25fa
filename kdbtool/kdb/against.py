"""What a kernel database is compared with while its rows go by: a MIOpen, a manifest, another database.

Each says, at the beginning, whether the file was made for it, of each row whether it is the same there,
and at the end which rows are there and not here. What the file says of itself is in `Said`.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass

from kdbtool.codeobject import CodeObjectError, parse
from kdbtool.codeobject.compare import code_identity
from kdbtool.errors import KdbtoolError, printable
from kdbtool.kdb import provenance
from kdbtool.kdb.blob import unpack
from kdbtool.kdb.digest import digest_of
from kdbtool.kdb.findings import Code, Finding
from kdbtool.kdb.reader import KdbReader, Row
from kdbtool.manifest.model import BUILD, Manifest
from kdbtool.miopen.keys import source_of
from kdbtool.miopen.sources import SourceSet

DETAIL = 120


@dataclass(frozen=True)
class Said:
    """The provenance table of a file: the ROCm release, and the hashes of each kernel source."""

    record: dict[str, str]
    miopen: str | None
    sources: dict[str, provenance.Hashes]
    set_hash: str | None

    @classmethod
    def of(cls, reader: KdbReader) -> Said | None:
        """What `reader`'s file says; None where it has no such table."""
        record = None
        with contextlib.suppress(KdbtoolError):  # a damaged page: the file's own finding
            record = reader.provenance()
        if record is None:
            return None
        sources = provenance.source_hashes(record)
        return cls(record, record.get("miopen"), sources, provenance.set_hash(record))


class Against(ABC):
    """Something that a database is compared with."""

    @abstractmethod
    def begin(self, said: Said | None) -> Iterator[Finding]:
        """Findings about the file as a whole."""

    @abstractmethod
    def row(self, row: Row, digest: bytes) -> Iterator[Finding]:
        """Findings about a row; `digest` stands for its key."""

    @abstractmethod
    def end(self) -> Iterator[Finding]:
        """What the rows together lack."""


class Origins(Against):
    """Whether each row was built from the very text that `hashes` gives for its source.

    `miopen`: the ROCm release that is compared with, None for unknown. `set_hash`: of the whole source set.
    """

    def __init__(
        self,
        miopen: str | None,
        hashes: Callable[[str], provenance.Hashes | None] | None,
        set_hash: str | None = None,
    ) -> None:
        self.miopen, self.hashes, self.set_hash = miopen, hashes, set_hash
        self.said: Said | None = None
        self.same_set = False
        self.known: dict[str, str | None] = {}  # source -> what differs
        self.unproved = 0

    def begin(self, said: Said | None) -> Iterator[Finding]:
        self.said = said
        if said is None:
            return
        self.same_set = said.set_hash is not None and said.set_hash == self.set_hash
        yield from _releases(said.miopen, self.miopen)

    def row(self, row: Row, digest: bytes) -> Iterator[Finding]:
        source = source_of(row.name)
        if self.hashes is None or source is None or self.same_set:
            return
        if source not in self.known:
            there = self.hashes(source)
            here = self.said.sources.get(source) if self.said else None
            if there is None:
                self.known[source] = None  # not there at all: unreachable, or not of the manifest
            elif here is None:
                self.known[source] = ""
            else:
                self.known[source] = provenance.differs(here, there)
        differs = self.known[source]
        if differs:
            yield Finding(Code.STALE, f"{differs} of {source}")
        elif differs == "":
            self.unproved += 1

    def end(self) -> Iterator[Finding]:
        if not self.unproved or self.said is None:
            return  # that there is no provenance at all is a finding already
        rows = f"{self.unproved} rows"
        if self.said.set_hash and self.set_hash:
            yield Finding(Code.STALE, f"the source set differs; it is not said for which of {rows}")
        else:
            yield Finding(Code.UNPROVED, rows)


def of_sources(miopen: str | None, sources: SourceSet | None) -> Origins:
    """Compared with an installed MIOpen or a source tree."""
    if sources is None:
        return Origins(miopen, None)

    def hashes(source: str) -> provenance.Hashes | None:
        return sources.hash_of(source) if source in sources.kernels else None

    return Origins(miopen, hashes, sources.set_hash)


class AgainstManifest(Origins):
    """The keys of a manifest, those of `archs` alone, and the sources that it names."""

    def __init__(self, manifest: Manifest, archs: Set[str] | None) -> None:
        def hashes(source: str) -> provenance.Hashes | None:
            found = manifest.hashes.get(source)
            return (found.source, found.headers) if found and found.source and found.headers else None

        super().__init__(manifest.miopen, hashes, manifest.sources)
        self.wanted = {
            (key.name, key.args)
            for key in manifest.keys
            if key.state == BUILD and (not archs or not key.arch or key.arch in archs)
        }
        self.label = printable(manifest.path)

    def row(self, row: Row, digest: bytes) -> Iterator[Finding]:
        yield from super().row(row, digest)
        key = (row.name, row.args)
        if key in self.wanted:
            self.wanted.discard(key)
        else:
            yield Finding(Code.EXTRA_ROW, self.label)

    def end(self) -> Iterator[Finding]:
        yield from super().end()
        for name, args in sorted(self.wanted):
            yield Finding(Code.MISSING_ROW, short(args), name=name)


class AgainstKdb(Against):
    """The rows of another database."""

    def __init__(self, other: KdbReader) -> None:
        self.other = other
        # Digest of the key -> rowid, kernel_hash, uncompressed_size.
        self.rows: dict[bytes, tuple[int, str, int]] = {}
        for row in other:
            self.rows[digest_of(row.name, row.args)] = (row.rowid, row.hash, row.uncompressed_size)
        self.seen: set[bytes] = set()
        self.compared: dict[tuple[str, str], Finding] = {}

    def begin(self, said: Said | None) -> Iterator[Finding]:
        there = Said.of(self.other)
        yield from _releases(said.miopen if said else None, there.miopen if there else None)

    def row(self, row: Row, digest: bytes) -> Iterator[Finding]:
        there = self.rows.get(digest)
        if there is None:
            yield Finding(Code.EXTRA_ROW, printable(self.other.path.name))
            return
        self.seen.add(digest)
        rowid, md5, size = there
        if md5 == row.hash:
            return
        found = self.compared.get((row.hash, md5))
        if found is None:
            same = _same_code(row, self.other.blob(rowid), md5, size)
            code = Code.OTHER_BYTES if same else Code.OTHER_CODE
            found = Finding(code, f"row {rowid} there, MD5 {printable(md5[:32])}")
            self.compared[row.hash, md5] = found
        yield found

    def end(self) -> Iterator[Finding]:
        for row in self.other:
            if digest_of(row.name, row.args) not in self.seen:
                yield Finding(Code.MISSING_ROW, f"row {row.rowid} there: {short(row.args)}", name=row.name)


def _releases(here: str | None, there: str | None) -> Iterator[Finding]:
    if here and there and not provenance.same_release(here, there):
        yield Finding(Code.OTHER_MIOPEN, f"built for {printable(here[:60])}, compared with {there}")


def _same_code(row: Row, blob: bytes, md5: str, size: int) -> bool:
    """Whether two objects hold the same kernels, whatever else; False where one is damaged."""
    here = unpack(row.blob(), row.hash, row.uncompressed_size)[0]
    there = unpack(blob, md5, size)[0]
    if here is None or there is None:
        return False
    try:
        return here == there or code_identity(parse(here)) == code_identity(parse(there))
    except CodeObjectError:
        return False


def short(text: bytes) -> str:
    """A key or a message as a finding repeats it."""
    shown = printable(text)
    return shown if len(shown) <= DETAIL else f"{shown[: DETAIL // 2]}...{shown[-DETAIL // 2 :]}"
