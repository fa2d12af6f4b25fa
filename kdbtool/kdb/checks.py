"""All that `verify` looks at: the file, then row by row key, blob and object.

One pass, memory flat but for one small digest per key; an object that many rows share is looked at
once. The laws of a key are kdbtool.miopen.liveness', those of an object kdbtool.codeobject's.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field

from kdbtool.codeobject import CodeObjectError, parse
from kdbtool.codeobject.check import check_parsed, damage_finding, device_target
from kdbtool.errors import KdbtoolError, printable
from kdbtool.kdb.blob import unpack
from kdbtool.kdb.findings import Code, Finding
from kdbtool.kdb.identify import FileKind
from kdbtool.kdb.reader import COLUMNS, NEEDED, PROVENANCE_TABLE, KdbReader, Row, RowGone
from kdbtool.kdb.sqlite import MAX_VALUE, side_files
from kdbtool.kdb.stats import Stats
from kdbtool.kdb.writer import ContentHash
from kdbtool.miopen.keys import is_arch, split_mcpu
from kdbtool.miopen.liveness import judge, repair
from kdbtool.reasons import Reason

KEY_CODES = {
    Reason.QUOTE: Code.QUOTE,
    Reason.NO_DOT_O: Code.NO_DOT_O,
    Reason.NO_MCPU: Code.NO_MCPU,
    Reason.FOREIGN_MCPU: Code.FOREIGN_MCPU,
    Reason.TARGET_ID: Code.TARGET_ID,
}
DETAIL = 120  # characters of a key or message that a finding repeats


@dataclass
class Report:
    """What was found in one file, and its numbers."""

    findings: list[Finding] = field(default_factory=list)
    stats: Stats = field(default_factory=Stats)

    @property
    def problems(self) -> int:
        """Findings that make the file unfit."""
        return sum(f.is_problem for f in self.findings)


def check(
    reader: KdbReader, archs: Set[str] | None = None, *, tick: Callable[[], None] | None = None
) -> Report:
    """Everything about an open database. `archs`: the architectures that rows may be for; by default
    that of the file's name, else any. `tick` is called once per row."""
    report = Report()
    report.findings += check_file(reader)
    if archs is None and reader.name is not None:
        archs = {reader.name.arch}
    if all(column in reader.columns for column in NEEDED):
        _Rows(reader, archs, report, tick).run()
    return report


def check_file(reader: KdbReader) -> list[Finding]:
    """Findings about the file itself: integrity, schema, journal, name, mode."""
    return [*_integrity(reader), *_schema(reader), *_form(reader), *_surroundings(reader)]


def _integrity(reader: KdbReader) -> Iterator[Finding]:
    if reader.kind.what is FileKind.UKDB and reader.kind.journal != "wal":
        return  # it would hold a lock for as long as it reads, and a running MIOpen would feel it
    try:
        lines = [_line(row[0]) for row in reader.db.execute("PRAGMA integrity_check(20)")]
    except sqlite3.Error as error:
        lines = [str(error)]
    if lines != ["ok"]:
        more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
        yield Finding(Code.MALFORMED, lines[0].removeprefix("*** in database main ***\n")[:DETAIL] + more)


def _line(value: object) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _schema(reader: KdbReader) -> Iterator[Finding]:
    for column in COLUMNS[1:]:
        if column not in reader.columns:
            yield Finding(Code.NO_COLUMN, column)
    for column in reader.columns:
        if column not in COLUMNS:
            yield Finding(Code.EXTRA_COLUMN, column)
    for table in sorted(reader.tables):
        if table not in ("kern_db", PROVENANCE_TABLE) and not table.startswith("sqlite_"):
            yield Finding(Code.EXTRA_TABLE, table)
    if not reader.has_index:
        yield Finding(Code.NO_INDEX)


def _form(reader: KdbReader) -> Iterator[Finding]:
    for pragma in ("user_version", "application_id"):
        if (value := reader.pragma(pragma)) != "0":
            yield Finding(Code.USER_VERSION, f"{pragma} {value}")
    if (encoding := reader.pragma("encoding")) != "UTF-8":
        yield Finding(Code.ENCODING, encoding)
    if (size := reader.pragma("page_size")) != "4096":
        yield Finding(Code.PAGE_SIZE, size)
    if (free := reader.pragma("freelist_count")) != "0" and reader.kind.what is FileKind.KDB:
        yield Finding(Code.FREE_PAGES, f"{free} of {reader.pragma('page_count')} pages")


def _surroundings(reader: KdbReader) -> Iterator[Finding]:
    name = reader.name
    if name is None or name.kind not in ("kdb", "ukdb") or name.compressed:
        yield Finding(Code.FILE_NAME, reader.path.name)
    if reader.kind.what is not FileKind.KDB:
        return
    if reader.kind.journal == "wal":
        how = "; read with immutable=1, since its folder is not writable" if reader.kind.immutable else ""
        yield Finding(Code.JOURNAL, f"journal=wal{how}")
    for suffix, size in side_files(reader.path).items():
        yield Finding(Code.SIDE_FILES, f"{reader.path.name}{suffix}, {size} bytes")
    if name is not None and name.cu is not None:
        yield Finding(Code.SHADOWS, f"{name.arch} with {name.cu} {name.unit}")
    mode = reader.path.stat().st_mode & 0o777
    if mode & 0o044 != 0o044:
        yield Finding(Code.FILE_MODE, f"{mode:04o}")


class _Rows:
    """The pass over the rows."""

    def __init__(
        self, reader: KdbReader, archs: Set[str] | None, report: Report, tick: Callable[[], None] | None
    ) -> None:
        self.reader, self.archs, self.report, self.tick = reader, archs, report, tick
        self.has_blob_columns = all(c in reader.columns for c in COLUMNS[1:])
        self.has_doubles = not reader.has_index  # a live database shows a replaced row twice
        self.keys: set[bytes] = set()
        self.repaired: dict[bytes, list[tuple[int, bytes]]] = {}
        self.objects: dict[bytes, tuple[Finding, ...]] = {}
        self.content = ContentHash()
        self.devices: dict[str, str | None] = {}

    def run(self) -> None:
        """Read every row; what SQLite cannot read any more is a finding of the file."""
        try:
            for row in self.reader:
                with contextlib.suppress(RowGone):  # replaced meanwhile: it comes again under a new id
                    self.row(row)
                if self.tick:
                    self.tick()
        except KdbtoolError as error:
            if error.exit_code == 1:
                raise
            if not any(f.code is Code.MALFORMED for f in self.report.findings):
                self.report.findings.append(Finding(Code.MALFORMED, error.why or error.what))
            return
        self.twins()
        self.provenance()

    def row(self, row: Row) -> None:
        """Findings of one row, in the order key, blob, object."""
        blob = self.blob(row) if self.has_blob_columns else ()
        self.content.add(row.name, row.args, row.hash)
        digest = _digest(row.name, row.args)
        found = [*self.key(row, digest), *blob]
        self.keys.add(digest)
        self.report.findings += [f.at(row.rowid, row.name) for f in found]
        self.report.stats.add_key(row)

    def key(self, row: Row, digest: bytes) -> Iterator[Finding]:
        """The laws of a key."""
        if self.has_doubles and digest in self.keys:
            yield Finding(Code.DUPLICATE_KEY, _short(row.args))
        if not row.key_is_text:
            yield Finding(Code.NOT_TEXT, _short(row.args))
        arch = self.expected_arch(row)
        reasons = judge(row.name, row.args, arch, None)
        split = split_mcpu(row.args)
        for reason in reasons:
            detail = f"-mcpu={split[1]}" if split and "mcpu" in reason.text else _short(row.args)
            yield Finding(KEY_CODES[reason], _short(row.name) if reason is Reason.NO_DOT_O else detail)
        if reasons:
            name, args = repair(row.name, row.args, arch)
            if (name, args) != (row.name, row.args):
                self.repaired.setdefault(_digest(name, args), []).append((row.rowid, row.name))
        repeated = _repeated_define(row.args)
        if repeated is not None:
            yield Finding(Code.REPEATED_DEFINES, _short(repeated))

    def expected_arch(self, row: Row) -> str | None:
        """The architecture that this row's key has to name, None for any."""
        if not self.archs:
            return None
        arch = self.row_arch(row)
        return arch if arch in self.archs else min(self.archs)

    @staticmethod
    def row_arch(row: Row) -> str | None:
        """The bare architecture that the key names."""
        split = split_mcpu(row.args)
        bare = split[1].partition(":")[0] if split else ""
        return bare if is_arch(bare) else None

    def blob(self, row: Row) -> tuple[Finding, ...]:
        """Blob, hash, size and object of one row."""
        if row.blob_size > MAX_VALUE:
            return (Finding(Code.BAD_SIZE, f"a blob of {row.blob_size} bytes"),)
        blob = row.blob()
        arch = self.row_arch(row)
        # All that the answer depends on; two spellings of one key share their object.
        identity = _digest(blob, f"{row.hash} {row.uncompressed_size} {arch}".encode())
        known = self.objects.get(identity)
        if known is None:
            known = self.objects[identity] = tuple(self.decode(row, blob, arch))
        self.report.stats.add_object(row, len(blob), identity)
        return known

    def decode(self, row: Row, blob: bytes, arch: str | None) -> Iterator[Finding]:
        """Findings of a blob that was not seen before."""
        data, findings = unpack(blob, row.hash, row.uncompressed_size)
        yield from findings
        if data is None:
            return
        if not data:
            yield Finding(Code.NOT_ELF, "empty")
            return
        try:
            parsed = parse(data, arch)
        except CodeObjectError as error:
            yield damage_finding(error)
            return
        self.report.stats.describe(parsed, len(data))
        yield from check_parsed(parsed, arch, self.target(arch))

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

    def twins(self) -> None:
        """Rows whose repaired key another row has, or another repaired row."""
        for digest, rows in self.repaired.items():
            others = digest in self.keys
            for number, (rowid, name) in enumerate(rows):
                if others or number:
                    self.report.findings.append(Finding(Code.TWIN).at(rowid, name))

    def provenance(self) -> None:
        """Whether the table that says where the rows come from was written for these rows."""
        said = self.reader.provenance()
        if said is None:
            if self.reader.kind.what is FileKind.KDB:
                self.report.findings.append(Finding(Code.NO_PROVENANCE))
            return
        facts = {"rows": str(self.report.stats.rows), "content_sha256": self.content.hexdigest()}
        for key, value in facts.items():
            if said.get(key) != value:
                detail = f"{key}: {said.get(key, 'nothing')[:64]} there, {value} counted"
                self.report.findings.append(Finding(Code.BAD_PROVENANCE, detail))
                return


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


def _digest(*parts: bytes) -> bytes:
    """16 bytes for the parts: two keys get the same with a chance of 2**-128."""
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.digest()


def _short(text: bytes) -> str:
    shown = printable(text)
    return shown if len(shown) <= DETAIL else f"{shown[: DETAIL // 2]}...{shown[-DETAIL // 2 :]}"
