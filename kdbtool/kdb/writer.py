"""Writing a kernel database: the same rows give the same bytes, whatever order they come in.

Schema and index are MIOpen's own (src/include/miopen/kern_db.hpp), journal mode delete, ids 1, 2, ...
in the order of the key's bytes, no free page. Rows are collected in a temporary database beside the
output, each object once, then copied in order; memory stays flat. `kdbtool_provenance` is an extra
table that MIOpen 6.4.3 and 7.2.4 accept without a word.

SQLite writes its own version number, two change counters and a schema cookie into the file header;
they say nothing about the content and are set to fixed values, so that another release of SQLite or
another number of transactions does not change the file. The b-tree pages themselves are laid out the
same by every SQLite 3 that appends rows in order.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from kdbtool.errors import EXIT_PROBLEMS, KdbtoolError, printable
from kdbtool.files import atomic_path
from kdbtool.kdb.blob import Packed, pack
from kdbtool.kdb.reader import PROVENANCE_TABLE
from kdbtool.kdb.sqlite import side_files

# Text for text what MIOpen creates, so that `.schema` of both is the same.
TABLE_SQL = (
    "CREATE TABLE `kern_db` (`id` INTEGER PRIMARY KEY ASC,`kernel_name` TEXT NOT NULL,"
    "`kernel_args` TEXT NOT NULL,`kernel_blob` BLOB NOT NULL,`kernel_hash` TEXT NOT NULL,"
    "`uncompressed_size` INT NOT NULL)"
)
INDEX_SQL = "CREATE UNIQUE INDEX `idx_kern_db` ON kern_db(kernel_name, kernel_args)"
PROVENANCE_SQL = f"CREATE TABLE {PROVENANCE_TABLE} (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"
# Written by the writer itself, over what the caller gives.
FORMAT = "1"
OWN_KEYS = ("format", "rows", "objects", "content_sha256")

# One object packed in two ways: the smaller one, whichever comes first.
_ADD_OBJECT = (
    "INSERT INTO object VALUES (?, ?, ?) ON CONFLICT (md5)"
    " DO UPDATE SET size = excluded.size, blob = excluded.blob"
    " WHERE (length(excluded.blob), excluded.blob, excluded.size) < (length(blob), blob, size)"
)
_CHANGE_COUNTER, _SCHEMA_COOKIE, _VALID_FOR, _VERSION = 24, 40, 92, 96
_FIXED = {_CHANGE_COUNTER: 1, _SCHEMA_COOKIE: 1, _VALID_FOR: 1, _VERSION: 3040001}


class ContentHash:
    """SHA-256 over the rows in key order: each of name, args and kernel_hash with its length in front."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, name: bytes, args: bytes, md5: str) -> None:
        """One row more."""
        for part in (name, args, md5.encode()):
            self._hash.update(len(part).to_bytes(8, "little"))
            self._hash.update(part)

    def hexdigest(self) -> str:
        """The hash so far."""
        return self._hash.hexdigest()


def write_kdb(
    path: Path,
    rows: Iterable[tuple[bytes, bytes, bytes | Packed]],
    provenance: Mapping[str, str],
    *,
    force: bool = False,
) -> None:
    """Write the kernel database `path` from (kernel_name, kernel_args, object) in any order.

    An object is its bytes, or what `blob.pack` made of them in another process. A key that comes
    twice with one object is one row; with two objects it is an error. KdbtoolError (exit 1) for
    that, for an empty object, a key with a NUL and a full disk; then there is no output. Mode 0644.
    An output that exists is refused unless `force`, one that has a -wal or -journal always: SQLite would
    apply those of the old file to the new one.
    """
    reserved = sorted(set(provenance) & set(OWN_KEYS))
    if reserved:
        raise ValueError(f"reserved provenance keys: {reserved}")
    if stale := side_files(path):
        raise KdbtoolError(
            "cannot write",
            where=path,
            why=f"{path.name}{min(stale)} of another database is there, and would be applied to the new one",
            hint="name another output",
        )
    with atomic_path(path, force=force) as temp:
        try:
            with _staging(temp) as staging:
                _collect(staging, rows, path)
                _write(temp, staging, provenance)
        except sqlite3.Error as error:
            full = getattr(error, "sqlite_errorname", "") == "SQLITE_FULL"
            raise KdbtoolError(
                "no space left" if full else "cannot write the database",
                where=path,
                why=None if full else str(error),
                hint="free some space and run the same command again" if full else None,
                exit_code=EXIT_PROBLEMS,
            ) from None
        _normalise(temp)


@contextlib.contextmanager
def _staging(temp: Path) -> Iterator[sqlite3.Connection]:
    with tempfile.NamedTemporaryFile(prefix=f"{temp.name}.", dir=temp.parent) as file:
        db = sqlite3.connect(file.name, isolation_level=None)
        try:
            db.text_factory = bytes
            _quick(db)
            db.execute("CREATE TABLE object (md5 TEXT PRIMARY KEY, size INT, blob BLOB)")
            db.execute(
                "CREATE TABLE row (name BLOB, args BLOB, md5 TEXT, PRIMARY KEY (name, args)) WITHOUT ROWID"
            )
            yield db
        finally:
            db.close()


def _quick(db: sqlite3.Connection) -> None:
    """No journal and no syncing: a half-written file is thrown away, and the whole one synced at the end."""
    db.execute("PRAGMA page_size=4096")
    db.execute("PRAGMA encoding='UTF-8'")
    db.execute("PRAGMA auto_vacuum=NONE")
    db.execute("PRAGMA journal_mode=OFF")
    db.execute("PRAGMA synchronous=OFF")
    db.execute("PRAGMA locking_mode=EXCLUSIVE")


def _collect(
    staging: sqlite3.Connection, rows: Iterable[tuple[bytes, bytes, bytes | Packed]], path: Path
) -> None:
    staging.execute("BEGIN")
    for name, args, item in rows:
        if b"\0" in name + args or not name or item == b"":
            raise KdbtoolError(
                "a row that no database can hold",
                where=path,
                why=f"a NUL or nothing in {printable(name)} {printable(args[:100])}",
                exit_code=EXIT_PROBLEMS,
            )
        packed = pack(item) if isinstance(item, bytes) else item
        old = staging.execute("SELECT md5 FROM row WHERE name = ? AND args = ?", (name, args)).fetchone()
        if old is not None and old[0].decode() != packed.md5:
            raise KdbtoolError(
                "two objects for one key",
                where=path,
                why=f"{printable(name)} {printable(args[:100])}: {old[0].decode()} and {packed.md5}",
                exit_code=EXIT_PROBLEMS,
            )
        staging.execute(_ADD_OBJECT, (packed.md5, packed.uncompressed_size, packed.blob))
        staging.execute("INSERT OR IGNORE INTO row VALUES (?, ?, ?)", (name, args, packed.md5))
    staging.execute("COMMIT")


def _write(temp: Path, staging: sqlite3.Connection, provenance: Mapping[str, str]) -> None:
    """Append everything in order: table, then index, then provenance, so that no page is ever free."""
    db = sqlite3.connect(temp, isolation_level=None)
    try:
        _quick(db)
        db.execute("BEGIN")
        db.execute(TABLE_SQL)
        content = ContentHash()
        count = 0
        ordered = staging.execute(
            "SELECT name, args, row.md5, size, blob FROM row JOIN object USING (md5) ORDER BY name, args"
        )
        for count, (name, args, digest, size, blob) in enumerate(ordered, 1):
            db.execute(
                "INSERT INTO kern_db VALUES (?, CAST(? AS TEXT), CAST(? AS TEXT), ?, ?, ?)",
                (count, name, args, blob, digest.decode(), size),
            )
            content.add(name, args, digest.decode())
        db.execute(INDEX_SQL)
        objects = staging.execute("SELECT count(*) FROM object").fetchone()[0]
        own = dict(zip(OWN_KEYS, (FORMAT, str(count), str(objects), content.hexdigest()), strict=True))
        db.execute(PROVENANCE_SQL)
        db.executemany(
            f"INSERT INTO {PROVENANCE_TABLE} VALUES (?, ?)",
            sorted({**provenance, **own}.items()),
        )
        db.execute("COMMIT")
    finally:
        db.close()


def _normalise(temp: Path) -> None:
    with temp.open("r+b") as file:
        for offset, value in _FIXED.items():
            file.seek(offset)
            file.write(value.to_bytes(4, "big"))
