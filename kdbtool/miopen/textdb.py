"""Lines of MIOpen's text databases (find-db, text perf-db), plain or `.bz2`, read as a bounded stream.

The database is `KEY=ID:VALUES;ID:VALUES...`, one record a line. MIOpen (src/ramdb.cpp, src/readonlyramdb.cpp,
3.0 to 3.5) skips empty lines, takes everything before the first `=` as the key, and of two lines with one key
the first; a line without `=` or with nothing before it is logged and skipped.
"""

from __future__ import annotations

import bz2
import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from kdbtool.errors import KdbtoolError, from_oserror, printable
from kdbtool.kdb.identify import FileKind, identify

# AMD's largest file has 193,542 lines, the longest under 2,000 bytes.
MAX_LINES = 1_000_000
MAX_LINE = 1 << 20  # bytes
MAX_TEXT = 512 << 20  # bytes, decompressed
MAX_DAMAGE = 100_000  # places; with more of them it is another kind of file
MAX_STREAMS = 4096  # of one bz2 file; pbzip2 begins one every 900 kB
_CHUNK = 1 << 20
BZ2_MAGIC = b"BZh"
# Kinds of file of which no line can be a record, however damaged; SQLite ones are for its own reader.
_FOREIGN = frozenset(
    {
        *(FileKind.KDB, FileKind.UKDB, FileKind.OTHER_SQLITE, FileKind.TRUNCATED, FileKind.MALFORMED),
        *(FileKind.LFS_POINTER, FileKind.DVC_STUB, FileKind.MANIFEST, FileKind.TRACE, FileKind.LOG),
    }
)


class Damage(NamedTuple):
    """Something that cannot be read as what it should be: line or row number, reason, the text itself."""

    line: int
    reason: str
    text: str

    def describe(self) -> str:
        """`line 12: reason: text`, one printable line."""
        return f"line {self.line}: {self.reason}: {printable(self.text[:80])}"


Report = Callable[[Damage], None]


class Line(NamedTuple):
    """One line: number from 1, text without its end, the end itself (nothing where the file ends without)."""

    number: int
    text: str
    end: str


def ignore(damage: Damage) -> None:
    """A Report that drops what it is told."""


def bounded(path: Path, damaged: Report) -> Report:
    """`damaged`, but KdbtoolError at the MAX_DAMAGE-th place: no text of that size is worth its time."""
    left = MAX_DAMAGE

    def report(damage: Damage) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KdbtoolError(
                "not such a database",
                where=path,
                why=f"over {MAX_DAMAGE} places are damaged: {damage.reason}",
            )
        damaged(damage)

    return report


def open_regular(path: Path) -> int:
    """A descriptor of the regular file `path`; KdbtoolError for a folder, a FIFO, nothing there."""
    kind = identify(path)
    if kind.what.value in ("missing", "unreadable", "directory", "special"):
        raise KdbtoolError(kind.text, where=path)
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise from_oserror(error, where=path) from None


def refuse_foreign(path: Path, wanted: FileKind) -> None:
    """KdbtoolError, saying what it is, for a file that is plainly something else than a text of `wanted`.

    A find-db passes for a perf-db: old perf-dbs have the same keys.
    """
    kind = identify(path)
    what = kind.inner or kind.what
    if what in _FOREIGN or (what is FileKind.PERF_DB and wanted is FileKind.FIND_DB):
        hint = kind.hint or f"kdbtool info {shlex.quote(str(path))}"
        raise KdbtoolError(f"not a {wanted.value}", where=path, why=kind.text, hint=hint)


def chunks(path: Path) -> Iterator[bytes]:
    """The bytes of a file, decompressed if it is bzip2 (several streams too), at most MAX_TEXT."""
    total = 0
    with os.fdopen(open_regular(path), "rb") as file:
        head = file.read(_CHUNK)
        source = _unpacked(path, head, file.read) if head.startswith(BZ2_MAGIC) else _plain(head, file.read)
        for data in source:
            total += len(data)
            if total > MAX_TEXT:
                raise KdbtoolError("too large for a text database", where=path, why=f"over {MAX_TEXT} bytes")
            yield data


def lines(path: Path) -> Iterator[Line]:
    """The lines of a text database. Bytes that are no ASCII come as surrogates, so that nothing is lost."""
    rest = ""
    number = 0
    for data in chunks(path):
        parts = (rest + data.decode("ascii", "surrogateescape")).split("\n")
        rest = parts.pop()
        if len(rest) > MAX_LINE or number + len(parts) > MAX_LINES:
            raise _no_text(path, number)
        for part in parts:
            number += 1
            if len(part) > MAX_LINE:
                raise _no_text(path, number)
            yield Line(number, part, "\n")
    if rest:
        yield Line(number + 1, rest, "")


def encode(text: str) -> bytes:
    """The bytes that `lines` made `text` of."""
    return text.encode("ascii", "surrogateescape")


def _plain(head: bytes, read: Callable[[int], bytes]) -> Iterator[bytes]:
    while head:
        yield head
        head = read(_CHUNK)


def _unpacked(path: Path, data: bytes, read: Callable[[int], bytes]) -> Iterator[bytes]:
    stream = bz2.BZ2Decompressor()
    streams = 1
    while True:
        try:
            out = stream.decompress(data, max_length=_CHUNK)
        except (OSError, ValueError, EOFError) as error:
            raise KdbtoolError("damaged bzip2 file", where=path, why=str(error).lower()) from None
        data = b""
        if out:
            yield out
        if stream.eof:
            data = stream.unused_data or read(_CHUNK)
            if not data:
                return
            streams += 1
            if not data.startswith(BZ2_MAGIC) or streams > MAX_STREAMS:
                raise KdbtoolError("damaged bzip2 file", where=path, why="something follows its end")
            stream = bz2.BZ2Decompressor()
        elif stream.needs_input:
            data = read(_CHUNK)
            if not data:
                raise KdbtoolError("cut off bzip2 file", where=path, hint="get the file again")


def _no_text(path: Path, number: int) -> KdbtoolError:
    return KdbtoolError(
        "not a text database",
        where=path,
        why=f"line {number + 1} is over {MAX_LINE} bytes, or there are over {MAX_LINES} lines",
    )
