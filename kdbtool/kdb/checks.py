"""All that `verify` looks at: the file, then row by row key, blob, object and origin.

One pass, memory flat but for a few small digests per key; an object that many rows share is looked at
once. The laws of a key are kdbtool.miopen.liveness', those of an object kdbtool.codeobject's, what the file
is compared with kdbtool.kdb.against's.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import Future
from dataclasses import dataclass, field

from kdbtool import targets
from kdbtool.codeobject.check import device_target
from kdbtool.errors import KdbtoolError, printable
from kdbtool.kdb.against import Against, Said, short
from kdbtool.kdb.decode import WORTH, Decoded, Pool
from kdbtool.kdb.digest import digest_of
from kdbtool.kdb.filechecks import check_file
from kdbtool.kdb.findings import Code, Finding
from kdbtool.kdb.identify import FileKind
from kdbtool.kdb.reader import BATCH, BEFORE_ALL, COLUMNS, NEEDED, KdbReader, Row, RowGone
from kdbtool.kdb.rowcheck import row_arch
from kdbtool.kdb.sqlite import MAX_VALUE
from kdbtool.kdb.stats import Stats
from kdbtool.kdb.writer import ContentHash
from kdbtool.miopen.entrypoints import Entries
from kdbtool.miopen.history import absence, epoch_of
from kdbtool.miopen.keys import language, source_of, split_mcpu
from kdbtool.miopen.liveness import judge, repair
from kdbtool.miopen.versions import MiopenBuild
from kdbtool.reasons import Reason

__all__ = ["Report", "check", "check_file"]

KEY_CODES = {
    Reason.QUOTE: Code.QUOTE,
    Reason.NO_DOT_O: Code.NO_DOT_O,
    Reason.NO_MCPU: Code.NO_MCPU,
    Reason.FOREIGN_MCPU: Code.FOREIGN_MCPU,
    Reason.TARGET_ID: Code.TARGET_ID,
    Reason.NO_SOURCE: Code.NO_SOURCE,
    Reason.EPOCH: Code.EPOCH,
}


@dataclass
class Report:
    """What was found in one file, and its numbers.

    `unreachable`: rows that MIOpen can never ask for, each under its first finding in the order of the
    closed list. `told`, `untold`: rows whose kernels were compared with their source, and those for which
    the source does not tell.
    """

    findings: list[Finding] = field(default_factory=list)
    stats: Stats = field(default_factory=Stats)
    unreachable: Counter[Code] = field(default_factory=Counter)
    told: int = 0
    untold: int = 0

    @property
    def problems(self) -> int:
        """Findings that make the file unfit."""
        return sum(f.is_problem for f in self.findings)


def check(
    reader: KdbReader,
    archs: Set[str] | None = None,
    *,
    tick: Callable[[], None] | None = None,
    build: MiopenBuild | None = None,
    entries: Entries | None = None,
    against: Sequence[Against] = (),
    jobs: int = 1,
) -> Report:
    """Everything about an open database. `archs`: the architectures that rows may be for; by default
    that of the file's name, else any. `tick` is called once per row.

    `build`: the MIOpen that has to ask for the rows. `entries`: the kernel sources whose entry points the
    objects must have. `against`: what the file is compared with. The findings do not depend on `jobs`.
    """
    report = Report()
    report.findings += check_file(reader)
    if archs is None and reader.name is not None:
        archs = {reader.name.arch}
    if all(column in reader.columns for column in NEEDED):
        _Rows(reader, archs, report, tick, build, entries, against).run(jobs)
    return report


@dataclass(frozen=True)
class _Item:
    """A row that waits for its object: all that is said of it when that is known."""

    row: Row
    identity: bytes | None
    found: list[Finding]
    compared: list[Finding]


@dataclass(frozen=True)
class _Known:
    """What is kept of an object that was seen."""

    findings: tuple[Finding, ...]
    kernels: frozenset[str] | None
    bundle: bool


_NOTHING = _Known((), None, False)


class _Rows:
    """The pass over the rows."""

    def __init__(
        self,
        reader: KdbReader,
        archs: Set[str] | None,
        report: Report,
        tick: Callable[[], None] | None,
        build: MiopenBuild | None,
        entries: Entries | None,
        against: Sequence[Against],
    ) -> None:
        self.reader, self.archs, self.report, self.tick = reader, archs, report, tick
        self.build, self.entries, self.against = build, entries, against
        self.has_blob_columns = all(c in reader.columns for c in COLUMNS[1:])
        self.has_doubles = not reader.has_index  # a live database shows a replaced row twice
        self.keys: dict[bytes, int] = {}  # digest -> rowid
        self.repaired: dict[bytes, list[tuple[int, bytes]]] = {}
        self.objects: dict[bytes, _Known | Decoded | Future[Decoded]] = {}
        self.kernels: dict[frozenset[str], frozenset[str]] = {}  # each set of names once
        self.content = ContentHash()
        self.devices: dict[str, str | None] = {}
        self.whole = True

    def run(self, jobs: int) -> None:
        """Read every row that SQLite can; what it cannot is a finding."""
        if jobs > 1:
            with contextlib.suppress(KdbtoolError):
                jobs = jobs if len(self.reader) >= WORTH else 1
        said = Said.of(self.reader)
        for other in self.against:
            self.report.findings += other.begin(said)
        with Pool[_Item](jobs) as pool:
            self.read(pool)
            for item, decoded in pool.done(everything=True):
                self.emit(item, decoded)
        self.twins()
        for other in self.against:
            self.report.findings += other.end()
        self.provenance(said)

    def read(self, pool: Pool[_Item]) -> None:
        """All rows, those behind a damaged page too."""
        last, batch = BEFORE_ALL, BATCH
        while True:
            try:
                for row in self.reader.rows(last, batch=batch):
                    last = row.rowid
                    with contextlib.suppress(RowGone):  # replaced meanwhile: it comes again under a new id
                        self.row(row, pool)
                    for item, decoded in pool.done():
                        self.emit(item, decoded)
                    if self.tick:
                        self.tick()
                return
            except KdbtoolError as error:
                if error.exit_code == 1:
                    raise
                why = error.why or error.what
            if batch > 1:
                batch, self.whole = 1, False  # from here on row by row, up to the damage
                continue
            behind = self.reader.next_readable(last)
            if behind == last + 1:
                behind = self.reader.next_readable(last + 1)  # its number can be read, the row cannot
            first = f"row {last + 1}" if last > BEFORE_ALL else "the first row"
            until = f"row {behind - 1}" if behind is not None else "the last row"
            self.report.findings.append(Finding(Code.UNREADABLE, f"{first} to {until}: {why}"))
            if behind is None:
                return
            last = behind - 1

    def row(self, row: Row, pool: Pool[_Item]) -> None:
        """A row's key now, its object when its turn comes."""
        digest = digest_of(row.name, row.args)
        found = list(self.key(row, digest))
        identity: bytes | None = None
        answer: Decoded | Future[Decoded] = Decoded(())
        if self.has_blob_columns:
            identity, answer = self.blob(row, pool, found)
        compared = [f for other in self.against for f in other.row(row, digest)]
        self.content.add(row.name, row.args, row.hash)
        self.keys.setdefault(digest, row.rowid)
        self.report.stats.add_key(row)
        pool.put(_Item(row, identity, found, compared), answer)

    def emit(self, item: _Item, decoded: Decoded) -> None:
        """The findings of one row, in the order key, blob, object, source, comparison."""
        known = self.known(item.identity, decoded)
        found = [*item.found, *known.findings, *self.of_source(item.row, known), *item.compared]
        self.report.findings += [f.at(item.row.rowid, item.row.name) for f in found]

    def known(self, identity: bytes | None, decoded: Decoded) -> _Known:
        """What is kept of the object, which is described the first time that it comes."""
        if identity is None:
            return _NOTHING
        known = self.objects[identity]
        if not isinstance(known, _Known):
            kernels, bundle = None, False
            if decoded.found is not None:
                self.report.stats.describe(decoded.found, decoded.size)
                names = frozenset(decoded.found.kernels)
                kernels = self.kernels.setdefault(names, names)
                bundle = decoded.found.container == "bundle"
            known = self.objects[identity] = _Known(decoded.findings, kernels, bundle)
        return known

    def key(self, row: Row, digest: bytes) -> Iterator[Finding]:
        """The laws of a key."""
        if self.has_doubles and digest in self.keys:
            yield Finding(Code.DUPLICATE_KEY, f"row {self.keys[digest]} too: {short(row.args)}")
        arch = self.expected_arch(row)
        reasons = judge(row.name, row.args, arch, self.build)
        codes = [KEY_CODES[reason] for reason in reasons]
        if not row.key_is_text:
            codes.append(Code.NOT_TEXT)
        if codes:
            self.report.unreachable[codes[0]] += 1
        yield from (Finding(code, self.detail(code, row)) for code in codes)
        if any(code not in (Code.NO_SOURCE, Code.EPOCH, Code.NOT_TEXT) for code in codes):
            name, args = repair(row.name, row.args, arch)
            if (name, args) != (row.name, row.args):
                self.repaired.setdefault(digest_of(name, args), []).append((row.rowid, row.name))
        repeated = _repeated_define(row.args)
        if repeated is not None:
            yield Finding(Code.REPEATED_DEFINES, short(repeated))

    def detail(self, code: Code, row: Row) -> str:
        """What exactly makes the key unreachable."""
        split = split_mcpu(row.args)
        if code is Code.NO_DOT_O:
            return short(row.name)
        if code in (Code.FOREIGN_MCPU, Code.TARGET_ID) and split is not None:
            return f"-mcpu={printable(split[1])}{_illegal(split[1])}"
        if code is Code.NO_SOURCE:
            source = source_of(row.name)
            return absence(source, self.build) if source is not None else short(row.name)
        if code is Code.EPOCH:
            epoch = epoch_of(row.args)
            return f"those of {epoch}" if epoch is not None else "of no one MIOpen"
        return short(row.args)

    def expected_arch(self, row: Row) -> str | None:
        """The architecture that this row's key has to name, None for any."""
        if not self.archs:
            return None
        arch = self.row_arch(row)
        return arch if arch in self.archs else min(self.archs)

    def row_arch(self, row: Row) -> str | None:
        """The bare architecture that the key names; of a `.mlir` row that of the file, where it has one."""
        only = next(iter(self.archs)) if self.archs and len(self.archs) == 1 else None
        return row_arch(row.name, row.args, only)

    def blob(
        self, row: Row, pool: Pool[_Item], found: list[Finding]
    ) -> tuple[bytes | None, Decoded | Future[Decoded]]:
        """(the object's identity, the answer about it); None where there is no blob to look at."""
        if row.blob_size > MAX_VALUE:
            found.append(Finding(Code.BAD_SIZE, f"a blob of {row.blob_size} bytes"))
            return None, Decoded(())
        try:
            blob = row.blob()
        except RowGone:
            raise
        except KdbtoolError as error:
            if error.exit_code == 1:
                raise
            self.whole = False
            found.append(Finding(Code.UNREADABLE, f"the blob: {error.why or error.what}"))
            return None, Decoded(())
        arch = self.row_arch(row)
        # All that the answer depends on; two spellings of one key share their object.
        identity = digest_of(blob, f"{row.hash} {row.uncompressed_size} {arch}".encode())
        self.report.stats.add_object(row, len(blob), identity)
        known = self.objects.get(identity)
        if isinstance(known, _Known):
            return identity, Decoded(())
        if known is None:
            known = self.objects[identity] = pool.submit(
                (blob, row.hash, row.uncompressed_size, arch, self.target(arch))
            )
        return identity, known

    def target(self, arch: str | None) -> str | None:
        """The target id of the devices that the file is for."""
        if arch is None:
            return None
        if arch not in self.devices:
            target = device_target(arch)
            if target is not None and self.reader.name is not None and self.reader.name.xnack:
                target = target.replace(":xnack-", ":xnack+")
            self.devices[arch] = target
        return self.devices[arch]

    def of_source(self, row: Row, known: _Known) -> Iterator[Finding]:
        """What the kernel source says of an object: its language, and the kernels that it defines."""
        source = source_of(row.name)
        if known.kernels is None or source is None:
            return
        if known.bundle and language(source) in ("opencl", "asm"):
            yield Finding(Code.BUNDLE_LANGUAGE)
        entries = self.entries.of(source, row.args) if self.entries is not None else None
        if entries is None or not known.kernels:
            return  # of an object without any kernel that is the finding
        if not entries.told:
            self.report.untold += 1
            return
        self.report.told += 1
        missing = sorted(entries.certain - known.kernels)
        if missing:
            yield Finding(Code.SYMBOL_MISSING, _names(missing))
        extra = sorted(known.kernels - entries.possible) if entries.complete else []
        if extra:
            yield Finding(Code.SYMBOL_EXTRA, _names(extra))

    def twins(self) -> None:
        """Rows whose repaired key another row has, or another repaired row."""
        for digest, rows in self.repaired.items():
            first = self.keys.get(digest)
            for number, (rowid, name) in enumerate(rows):
                if first is not None or number:
                    of = f"row {first}" if first is not None else f"row {rows[0][0]}, once that is repaired"
                    self.report.findings.append(Finding(Code.TWIN, f"of {of}").at(rowid, name))

    def provenance(self, said: Said | None) -> None:
        """Whether the table that says where the rows come from was written for these rows."""
        if said is None:
            if self.reader.kind.what is FileKind.KDB:
                self.report.findings.append(Finding(Code.NO_PROVENANCE))
            return
        if not self.whole:
            return  # not all rows could be counted
        facts = {"rows": str(self.report.stats.rows), "content_sha256": self.content.hexdigest()}
        for key, value in facts.items():
            if said.record.get(key) != value:
                detail = f"{key}: {said.record.get(key, 'nothing')[:64]} there, {value} counted"
                self.report.findings.append(Finding(Code.BAD_PROVENANCE, detail))
                return


def _illegal(target: str) -> str:
    """What makes a target id none that exists."""
    try:
        if ":" in target:
            targets.split_target(target)
    except KdbtoolError as error:
        return f": {error.what}, {error.why}" if error.why else f": {error.what}"
    return ""


def _repeated_define(args: bytes) -> bytes | None:
    """The first -D that stands twice, None where none does."""
    seen = set()
    for token in args.split(b" "):
        if token.startswith(b"-D"):
            name = token.partition(b"=")[0]
            if name in seen:
                return token
            seen.add(name)
    return None


def _names(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return printable(", ".join(names[:5])) + more
