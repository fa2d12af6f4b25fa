"""Opening somebody else's SQLite file: read-only, bounded, and without a lock that a writer can feel.

A file in WAL mode needs `-shm` and `-wal` beside it, which SQLite makes where it may. Where it may
not (a folder that is not writable) and no `-wal` exists, the file is opened with `immutable=1`:
SQLite then takes no locks and reads the main file alone.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from kdbtool.errors import KdbtoolError

HEADER_MAGIC = b"SQLite format 3\0"
HEADER_SIZE = 100
BUSY_SECONDS = 5.0
# Python cannot make the text of an error that repeats a name which is not UTF-8. MemoryError is SQLITE_NOMEM,
# the answer to a damaged row that claims a column of gigabytes.
SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError, MemoryError)
NO_MEMORY = "SQLite gets no memory for a row as large as it claims to be"
MAX_VALUE = 256 << 20  # bytes of one blob or text, and of one declared object


def side_files(path: Path) -> dict[str, int]:
    """{"-wal": size in bytes, ...} of the side files that exist and hold something."""
    found = {}
    path = Path(os.path.realpath(path))  # where SQLite looks for them
    for suffix in ("-wal", "-journal"):
        with contextlib.suppress(OSError):
            size = Path(f"{os.fspath(path)}{suffix}").stat().st_size
            if size:
                found[suffix] = size
    return found


def has_wal(path: Path) -> bool:
    """Whether a -wal is beside it, however small: somebody has it open, or was killed."""
    return os.path.lexists(f"{os.path.realpath(path)}-wal")


def tidy(path: Path) -> None:
    """Remove the -wal and -shm that our own read-only connection made of a file in WAL mode.

    Only for a file that had no -wal before we opened it. SQLite removes both when the last connection that
    may write closes, under its own locks: with another connection open they stay, and nobody is kept waiting.
    The database itself is not written to, since that -wal is empty. Where we may not write they stay, too.
    """
    real = os.path.realpath(path)
    try:
        if Path(f"{real}-wal").stat().st_size:
            return  # a writer came meanwhile
        db = sqlite3.connect(_uri(path, "rw"), uri=True, isolation_level=None, timeout=0)
        try:
            db.execute("SELECT 1 FROM sqlite_schema").fetchone()
        finally:
            db.close()
    except (OSError, *SQLITE_ERRORS):
        return


def needs_immutable(path: Path, header: bytes) -> bool:
    """Whether a plain read-only connection cannot work: WAL mode, folder not writable, no -wal."""
    wal = header[18:20] == b"\2\2"
    path = Path(os.path.realpath(path))
    return wal and not os.access(path.parent, os.W_OK) and not os.path.lexists(f"{os.fspath(path)}-wal")


def connect(path: Path, *, immutable: bool = False) -> sqlite3.Connection:
    """A read-only connection in autocommit mode that gives text as bytes and trusts no schema."""
    uri = _uri(path, "ro") + ("&immutable=1" if immutable else "")
    db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_SECONDS)
    db.text_factory = bytes
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE)
    db.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    db.execute("PRAGMA trusted_schema=OFF")
    db.execute("PRAGMA cell_size_check=ON")
    return db


def _uri(path: Path, mode: str) -> str:
    # Three slashes: two at the beginning of a path, which POSIX allows, would begin a host's name.
    return f"file:///{quote(os.fsencode(path.absolute()).lstrip(b'/'))}?mode={mode}"


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """SQLite's errors as one line."""
    try:
        yield
    except SQLITE_ERRORS as error:
        raise sqlite_error(path, error) from None


def sqlite_error(path: Path, error: Exception) -> KdbtoolError:
    """One line for an error of SQLite while reading `path`."""
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return KdbtoolError(
            "the database is locked", where=path, why="a writer holds it", hint="run it again", exit_code=1
        )
    if "-journal" in side_files(path) and name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")):
        return KdbtoolError(
            "a change of the database was cut off",
            where=path,
            why="its -journal has to be played back, which a reader must not do",
            hint="let the program that writes it open it once more, or: sqlite3 FILE .tables",
        )
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")):
        return KdbtoolError(
            "SQLite cannot open it here",
            where=path,
            why="it is in WAL mode and its folder is not writable",
            hint="copy it, with its -wal file, to a folder of yours",
        )
    text = str(error) or type(error).__name__
    if isinstance(error, UnicodeDecodeError):
        text = "a name in the schema is not UTF-8"
    if isinstance(error, MemoryError):
        text = NO_MEMORY
    hint = f"get the file again from where it came, or: kdbtool salvage {path.name} -o NEW.kdb"
    return KdbtoolError("damaged database", where=path, why=text, hint=hint)


def tables(db: sqlite3.Connection) -> dict[str, str]:
    """{name: CREATE statement} of the ordinary tables (no views, no virtual tables)."""
    found = {}
    for name, sql in db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'"):
        text = (sql or b"").decode("utf-8", "backslashreplace")
        if text.startswith("CREATE TABLE "):  # as SQLite writes it, whatever the user typed
            found[name.decode("utf-8", "backslashreplace")] = text
    return found
