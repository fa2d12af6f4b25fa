"""What a file is, in one line, before anybody reads it as a kernel database.

Git LFS pointers, DVC stubs, compressed files, performance and find databases all turn up under the
name of a kdb. Only the first 64 KiB are looked at, then SQLite's schema, or some megabytes for a line
of a log; nothing blocks (a FIFO is named, not read) and nothing raises.
"""

from __future__ import annotations

import bz2
import codecs
import enum
import errno
import os
import re
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from kdbtool.errors import EXIT_USAGE, KdbtoolError, printable
from kdbtool.kdb import sqlite as lite
from kdbtool.miopen.logs_text import is_log

HEAD = 65536
MIN_SIZE = 512  # MIOpen takes a smaller file for no database (src/sqlite_db.cpp)
_LFS = b"version https://git-lfs.github.com/spec/v1"
_FIND_LINE = re.compile(
    rb"\d+(?:-\d+){2,3}-\d+(?:x\d+){1,2}-[-0-9x]+-[A-Za-z0-9-]+-[A-Z0-9]+-[FBW][_a-zA-Z0-9]*="
)
_PERF_LINE = re.compile(rb"\d+(?:x\d+){15,}(?:x[A-Z][A-Z0-9a-wyz]*){3}=")
_OTHER = (
    (b"\x7fELF", "an ELF file (a code object or a library), not a database"),
    (b"__CLANG_OFFLOAD_BUNDLE__", "an offload bundle (a code object), not a database"),
    (b"\x1f\x8b", "a gzip file, not a database"),
    (b"\xfd7zXZ", "an xz file, not a database"),
    (b"\x28\xb5\x2f\xfd", "a zstd file, not a database"),
    (b"PK\3\4", "a zip file, not a database"),
    (b"<!DOCTYPE", "an HTML page (a failed download?), not a database"),
    (b"<html", "an HTML page (a failed download?), not a database"),
)


_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_BZ2_END = 0x177245385090  # 48 bits before the checksum at the end of a stream, at any bit
_LOG = ("a log of MIOpen, not a database", "run: kdbtool trace import")


class FileKind(enum.Enum):
    """What a file can be."""

    KDB = "kdb"
    UKDB = "ukdb"
    PERF_DB = "perf-db"
    FIND_DB = "find-db"
    OTHER_SQLITE = "other-sqlite"
    LFS_POINTER = "lfs-pointer"
    DVC_STUB = "dvc-stub"
    BZ2 = "bz2"
    MANIFEST = "manifest"
    TRACE = "trace"
    LOG = "log"
    OTHER = "other"
    EMPTY = "empty"
    SHORT = "short"
    TRUNCATED = "truncated"
    MALFORMED = "malformed"
    DIRECTORY = "directory"
    SPECIAL = "special"
    UNREADABLE = "unreadable"
    MISSING = "missing"


@dataclass(frozen=True)
class Kind:
    """What `path` is: a line of text, the next command if there is one, and how to open it."""

    path: Path
    what: FileKind
    text: str
    hint: str | None = None
    size: int = 0
    journal: str | None = None  # "wal" or "delete", of SQLite files
    immutable: bool = False
    inner: FileKind | None = None  # of a bz2 file
    exit_code: int = EXIT_USAGE  # of `error`: 1 for a database that a writer keeps locked

    @property
    def is_kdb(self) -> bool:
        """Whether it can be read as a kernel database."""
        return self.what in (FileKind.KDB, FileKind.UKDB)

    def error(self) -> KdbtoolError:
        """The one-line error for a command that needs a kernel database."""
        return KdbtoolError(self.text, where=self.path, hint=self.hint, exit_code=self.exit_code)


def identify(path: str | Path) -> Kind:
    """What the file `path` is. Never raises, never blocks."""
    path = Path(path)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return Kind(path, FileKind.MISSING, "no such file")
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENXIO:  # a socket
            return Kind(path, FileKind.SPECIAL, "not a regular file")
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return Kind(path, FileKind.UNREADABLE, f"cannot be read: {why.lower()}")
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            return Kind(path, FileKind.DIRECTORY, "a folder, not a database")
        if not stat.S_ISREG(status.st_mode):
            return Kind(path, FileKind.SPECIAL, "not a regular file")
        head = os.pread(handle, HEAD, 0)
    except OSError as error:
        return Kind(path, FileKind.UNREADABLE, f"cannot be read: {(error.strerror or str(error)).lower()}")
    finally:
        os.close(handle)
    return _of_head(path, head, status.st_size)


def human(size: int) -> str:
    """`400 MB`: decimal, as file sizes are announced."""
    for unit, width in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= width:
            return f"{size / width:.3g} {unit}"
    return f"{size} bytes"


def _of_head(path: Path, head: bytes, size: int) -> Kind:
    if not head:
        return Kind(path, FileKind.EMPTY, "an empty file, not a database")
    if head.startswith((b"\x1f\x8b", b"\xfd7zXZ")) and is_log(path):
        return Kind(path, FileKind.LOG, *_LOG, size)
    plain = _plain(path, head, size)
    if plain is not None and plain.what is FileKind.OTHER and head.startswith(tuple(_MARKS)) and is_log(path):
        return Kind(path, FileKind.LOG, *_LOG, size)
    if plain is not None:
        return plain
    if head.startswith(b"BZh"):
        return _bz2(path, head, size)
    if not head.startswith(lite.HEADER_MAGIC) and is_log(path):
        return Kind(path, FileKind.LOG, *_LOG, size)
    if head.startswith(lite.HEADER_MAGIC):
        return _sqlite(path, head, size)
    if lite.HEADER_MAGIC.startswith(head[:16]):
        return Kind(path, FileKind.TRUNCATED, f"a database cut off after {size} bytes", _again(), size)
    if size < MIN_SIZE:
        text = f"only {size} bytes, not a database (MIOpen ignores files under {MIN_SIZE} bytes)"
        return Kind(path, FileKind.SHORT, text, _again(), size)
    return Kind(path, FileKind.OTHER, f"not an SQLite file (starts with {printable(head[:12])!r})", size=size)


def _plain(path: Path, head: bytes, size: int) -> Kind | None:
    """Texts and other formats that their first bytes tell; a text in UTF-16 or with a mark before it, too."""
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            decoded = head[len(mark) :].decode(encoding, "replace").encode()
            found = _plain(path, decoded, size) if decoded[:1] not in (b"\xef", b"\xff", b"\xfe") else None
            how = "a byte order mark before it" if encoding == "utf-8" else "in UTF-16"
            plain = Kind(path, FileKind.OTHER, "a text, not a database", size=size)
            found = found or plain
            return replace(found, text=f"{found.text} ({how})")
    if head.startswith(_LFS):
        promised = re.search(rb"^size (\d{1,18})\r?$", head[:1024], re.MULTILINE)
        what = f"a {human(int(promised[1]))} file" if promised else "a file"
        return Kind(
            path, FileKind.LFS_POINTER, f"Git LFS pointer for {what}, not a database", "git lfs pull", size
        )
    first = head[:4096]
    if re.search(rb"^outs:[ \r]*$", first, re.MULTILINE) and re.search(rb"^[- ]*md5: ", first, re.MULTILINE):
        promised = re.search(rb"^[- ]*size: (\d{1,18})[ \r]*$", first, re.MULTILINE)
        what = f"a {human(int(promised[1]))} file" if promised else "a file"
        return Kind(path, FileKind.DVC_STUB, f"DVC stub for {what}, not a database", "dvc pull", size)
    if head.startswith(b"kdbtool-manifest format"):
        return Kind(
            path, FileKind.MANIFEST, "a kdbtool manifest, not a database", "run: kdbtool rebuild", size
        )
    if path.suffix == ".kdbtrace" or head.startswith(b"KDBTRACE"):
        return Kind(path, FileKind.TRACE, "a kdbtool trace, not a database", "run: kdbtool manifest", size)
    if _FIND_LINE.match(head[:512]):
        return Kind(path, FileKind.FIND_DB, "find database, not a kernel database", size=size)
    if _PERF_LINE.match(head[:512]):
        return Kind(path, FileKind.PERF_DB, "performance database (text), not a kernel database", size=size)
    for magic, text in _OTHER:
        if head[: len(magic)].lower() == magic.lower():
            return Kind(path, FileKind.OTHER, text, size=size)
    return None


def _bz2(path: Path, head: bytes, size: int) -> Kind:
    """A bzip2 file: what is inside, by the first bytes of the stream."""
    try:
        inside = bz2.BZ2Decompressor().decompress(head, max_length=4096)
        # The first block may need more than 64 KiB of input.
        if not inside and size > len(head):
            with path.open("rb") as file:
                inside = bz2.BZ2Decompressor().decompress(file.read(1 << 20), max_length=4096)
    except (OSError, ValueError, EOFError) as error:
        return Kind(path, FileKind.BZ2, f"a damaged bzip2 file: {str(error).lower()}", _again(), size)
    if not inside:
        return Kind(path, FileKind.BZ2, "a bzip2 file that is cut off or empty", _again(), size)
    if inside.startswith(lite.HEADER_MAGIC):
        if b"kern_db" in inside:
            kind, text = FileKind.KDB, "a compressed kernel database"
        elif b"perf_db" in inside:
            kind, text = FileKind.PERF_DB, "a compressed performance database, not a kernel database"
        else:
            kind, text = FileKind.OTHER_SQLITE, "a compressed SQLite file without a kernel database's table"
    elif inside.startswith(b"BZh"):
        kind, text = FileKind.BZ2, "bzip2 in bzip2, not a database"
    else:
        found = _plain(path, inside, len(inside))
        if found is None and is_log(path):
            return Kind(path, FileKind.LOG, *_LOG, size)
        kind = found.what if found else FileKind.OTHER
        text = f"compressed: {found.text}" if found else "a bzip2 file without a database in it"
    hint = f"bunzip2 -k {path.name}" if kind is FileKind.KDB else None
    if not _bz2_ends(path, size):
        text, hint = f"{text}; it is cut off, or something follows its end", _again()
    return Kind(path, FileKind.BZ2, text, hint, size, inner=kind)


def _bz2_ends(path: Path, size: int) -> bool:
    """Whether a bzip2 stream's end mark stands where a whole file has it: before checksum and padding."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, size - 11))
            tail = int.from_bytes(file.read(11), "big")
    except OSError:
        return False
    return any(tail >> 32 + pad & (1 << 48) - 1 == _BZ2_END for pad in range(8))


def _sqlite(path: Path, head: bytes, size: int) -> Kind:
    journal = "wal" if head[18:20] == b"\2\2" else "delete"
    if len(head) < lite.HEADER_SIZE:
        return Kind(path, FileKind.TRUNCATED, f"a database cut off after {size} bytes", _again(), size)
    page = int.from_bytes(head[16:18], "big")
    page = 65536 if page == 1 else page
    pages = int.from_bytes(head[28:32], "big")
    # The page count counts only where the two change counters agree (SQLite file format, 1.3.7).
    counted = head[24:28] == head[92:96] and page >= 512 and page.bit_count() == 1
    if counted and pages * page > size and "-wal" not in lite.side_files(path):
        text = f"a database cut off: {size} of {pages * page} bytes are there"
        return Kind(path, FileKind.TRUNCATED, text, _what_is_left(path), size, journal)
    immutable = lite.needs_immutable(path, head)
    had_wal = journal != "wal" or immutable or lite.has_wal(path)
    try:
        db = lite.connect(path, immutable=immutable)
        try:
            names = lite.tables(db)
        finally:
            db.close()
            if not had_wal:
                lite.tidy(path)
    except lite.SQLITE_ERRORS as error:
        line = lite.sqlite_error(path, error)
        what = (
            FileKind.UNREADABLE
            if line.exit_code == 1 or not line.what.startswith("damaged")
            else FileKind.MALFORMED
        )
        text = f"{line.what}: {line.why}" if line.why else line.what
        return Kind(path, what, text, line.hint, size, journal, exit_code=line.exit_code)
    if "kern_db" in names:
        what = FileKind.UKDB if path.suffix == ".ukdb" else FileKind.KDB
        text = "user kernel database" if what is FileKind.UKDB else "kernel database"
        return Kind(path, what, text, None, size, journal, immutable)
    if "perf_db" in names or "config" in names:
        return Kind(
            path, FileKind.PERF_DB, "performance database, not a kernel database", None, size, journal
        )
    inside = ", ".join(sorted(names)[:5]) or "no table"
    text = f"an SQLite file without the table kern_db ({printable(inside)})"
    return Kind(path, FileKind.OTHER_SQLITE, text, None, size, journal)


def _again() -> str:
    return "get the file again from where it came"


def _what_is_left(path: Path) -> str:
    return f"{_again()}, or: kdbtool salvage {path.name} -o NEW.kdb"
