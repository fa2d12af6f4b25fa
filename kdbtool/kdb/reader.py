"""Reading a kernel database row by row: memory stays flat, blobs come when asked for.

A live `.ukdb` is read in batches of a few hundred rows, each its own short transaction, so that a
writer is never kept waiting; a row that a writer replaced meanwhile is reported, not guessed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from kdbtool.errors import EXIT_PROBLEMS, KdbtoolError, printable
from kdbtool.kdb import sqlite as lite
from kdbtool.kdb.blob import unpack
from kdbtool.kdb.identify import Kind, identify
from kdbtool.kdb.names import KdbName, parse_name

BATCH = 256
_FIRST, _LAST = -(1 << 63), (1 << 63) - 1  # row numbers
BEFORE_ALL = _FIRST - 1
PROVENANCE_TABLE = "kdbtool_provenance"
MAX_RECORDS = 20_000  # of provenance: one for each of MIOpen's 5,000 sources
COLUMNS = ("id", "kernel_name", "kernel_args", "kernel_blob", "kernel_hash", "uncompressed_size")
PRAGMAS = ("page_size", "page_count", "freelist_count", "user_version", "application_id", "encoding")
NEEDED = ("kernel_name", "kernel_args", "kernel_blob")


class RowGone(KdbtoolError):
    """A writer replaced the row between its key and its blob."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row; `name` and `args` are the exact bytes of the key. Sizes in bytes.

    `uncompressed_size` is -1 where the column holds no number. `key_is_text` is False where SQLite
    would not find the row by the text of its key (stored as a blob, a number or NULL, or with a NUL in it).
    """

    rowid: int
    name: bytes
    args: bytes
    hash: str
    uncompressed_size: int
    blob_size: int
    key_is_text: bool
    _reader: KdbReader = field(repr=False, compare=False)

    def blob(self) -> bytes:
        """The blob as stored, read now."""
        return self._reader.blob(self.rowid)

    def object(self) -> bytes:
        """The code object, decompressed and compared with its hash; KdbtoolError when damaged."""
        data, findings = unpack(self.blob(), self.hash, self.uncompressed_size)
        for found in findings:
            if data is None or found.is_problem:
                where = f"{self._reader.path}: row {self.rowid} {printable(self.name)}"
                why = f"{found.code.reason} ({found.detail})"
                raise KdbtoolError("damaged row", where=where, why=why, hint="kdbtool verify", exit_code=1)
        assert data is not None
        return data


class KdbReader:
    """An open kernel database. A context manager; iterating gives Row after Row in the order of rowids."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.path: Path = kind.path
        self.name: KdbName | None = parse_name(kind.path)
        self._had_wal = kind.journal != "wal" or kind.immutable or lite.has_wal(self.path)
        with lite.reading(self.path):
            self.db: sqlite3.Connection = lite.connect(self.path, immutable=kind.immutable)
            try:
                self.tables = lite.tables(self.db)
                info = self.db.execute("PRAGMA table_info(kern_db)").fetchall()
                self.columns = tuple(row[1].decode("utf-8", "backslashreplace") for row in info)
                self._rowid = self._rowid_name()
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> KdbReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, and leave no -wal and -shm where there were none."""
        self.db.close()
        if not self._had_wal:
            lite.tidy(self.path)

    def _rowid_name(self) -> str | None:
        """What SQLite's row number is called here; None for a table that has none. A column hides a name."""
        hidden = {row[1].lower() for row in self.db.execute("PRAGMA table_xinfo(kern_db)")}
        for name in ("rowid", "_rowid_", "oid"):
            if name.encode() not in hidden:
                try:
                    self.db.execute(f"SELECT {name} FROM kern_db LIMIT 0")
                except sqlite3.OperationalError:
                    return None
                return name
        return None

    def _need_columns(self) -> None:
        for missing in NEEDED:
            if missing not in self.columns:
                raise KdbtoolError(
                    f"the table kern_db has no column {missing}", where=self.path, hint="kdbtool verify"
                )

    def __len__(self) -> int:
        with lite.reading(self.path):
            return int(self.db.execute("SELECT count(*) FROM kern_db").fetchone()[0])

    def __iter__(self) -> Iterator[Row]:
        return self.rows()

    def rows(self, after: int = BEFORE_ALL, *, batch: int = BATCH) -> Iterator[Row]:
        """Row after Row in the order of rowids, those above `after`; `batch` of them to a transaction."""
        self._need_columns()
        if self._rowid is None:
            raise KdbtoolError(
                "cannot read the rows",
                where=self.path,
                why="the table kern_db has no row numbers, as MIOpen's tables do",
                hint="copy its rows into a table with MIOpen's schema",
            )
        digest = "kernel_hash" if "kernel_hash" in self.columns else "NULL"
        size = "uncompressed_size" if "uncompressed_size" in self.columns else "NULL"
        # No value comes from outside: the names are ours.
        query = (
            f"SELECT {self._rowid}, kernel_name, kernel_args, length(kernel_blob), "
            f"{digest}, {size}, typeof(kernel_name), typeof(kernel_args) "
            f"FROM kern_db WHERE {self._rowid} {{}} ? ORDER BY {self._rowid} LIMIT ?"
        )
        last = after
        # A writer that is faster than we are must not keep us for ever: to the end of now, then to the end
        # of then, where the rows stand that it replaced meanwhile.
        ends, version = [self._last_rowid()], self._version()
        while True:
            beyond = (">", last) if last >= _FIRST else (">=", _FIRST)
            with lite.reading(self.path):
                found = self.db.execute(query.format(beyond[0]), (beyond[1], batch)).fetchall()
            for rowid, name, args, length, stated, declared, *types in found:
                if rowid <= last:  # a damaged page can lead SQLite round in circles
                    raise self._out_of_order()
                last = rowid
                name, args = _bytes(name), _bytes(args)
                yield Row(
                    rowid=rowid,
                    name=name,
                    args=args,
                    hash=_bytes(stated).decode("utf-8", "backslashreplace"),
                    uncompressed_size=declared if isinstance(declared, int) else -1,
                    blob_size=length if isinstance(length, int) else 0,
                    key_is_text=types == [b"text", b"text"] and b"\0" not in name and b"\0" not in args,
                    _reader=self,
                )
            if len(found) < batch:
                return
            if last >= ends[-1] and self._version() != version:
                if len(ends) == 2:
                    return
                ends.append(self._last_rowid())

    def _version(self) -> int:
        """A number that another one's change of the file changes."""
        with lite.reading(self.path):
            return int(self.db.execute("PRAGMA data_version").fetchone()[0])

    def _last_rowid(self) -> int:
        """The largest row number; none at all where a damaged page hides it."""
        try:
            return int(self.db.execute(f"SELECT max({self._rowid}) FROM kern_db").fetchone()[0] or 0)
        except lite.SQLITE_ERRORS:
            return _LAST

    def keys(self) -> Iterator[tuple[bytes, bytes]]:
        """(name, args) of every row, without touching a blob where there is an index on the key."""
        self._need_columns()
        if not self.has_index or not self._plain_keys():
            yield from ((row.name, row.args) for row in self)
            return
        # A page at a time along the index, each its own transaction.
        order = "kernel_name COLLATE BINARY, kernel_args COLLATE BINARY"
        after = ""
        values: tuple[bytes, ...] = ()
        while True:
            query = f"SELECT kernel_name, kernel_args FROM kern_db {after} ORDER BY {order} LIMIT {BATCH}"
            with lite.reading(self.path):
                batch = self.db.execute(query, values).fetchall()
            yield from batch
            if len(batch) < BATCH:
                return
            after = f"WHERE ({order}) > (CAST(? AS TEXT), CAST(? AS TEXT))"
            if values and tuple(batch[-1]) <= values:
                raise self._out_of_order()
            values = tuple(batch[-1])

    def _out_of_order(self) -> KdbtoolError:
        why = "its rows are out of order"
        return KdbtoolError("damaged database", where=self.path, why=why, hint="kdbtool salvage")

    def _plain_keys(self) -> bool:
        """Whether each key is a text of bytes as they are, so that one says where the next page begins."""
        other = "typeof(kernel_name) <> 'text' OR typeof(kernel_args) <> 'text'"
        query = f"SELECT 1 FROM kern_db WHERE {other} LIMIT 1"
        with lite.reading(self.path):
            return self.pragma("encoding") == "UTF-8" and self.db.execute(query).fetchone() is None

    @property
    def has_index(self) -> bool:
        """Whether some unique index covers exactly the key."""
        query = (
            "SELECT l.seq, i.name FROM pragma_index_list('kern_db') AS l, pragma_index_info(l.name) AS i "
            'WHERE l."unique" AND NOT l.partial ORDER BY l.seq, i.seqno'
        )
        indexes: dict[int, list[bytes | None]] = {}
        with lite.reading(self.path):
            for number, column in self.db.execute(query):
                indexes.setdefault(number, []).append(column)
        return [b"kernel_name", b"kernel_args"] in indexes.values()

    def blob(self, rowid: int) -> bytes:
        """The blob of one row as stored."""
        with lite.reading(self.path):
            query = f"SELECT kernel_blob FROM kern_db WHERE {self._rowid} = ?"
            found = self.db.execute(query, (rowid,)).fetchone()
        if found is None:
            raise RowGone(
                f"row {rowid} is gone",
                where=self.path,
                why="a writer replaced it meanwhile",
                hint="run it again",
                exit_code=EXIT_PROBLEMS,
            )
        return _bytes(found[0])

    def next_readable(self, after: int) -> int | None:
        """The first row that can be read behind a damaged page, above the rowid `after`; None for none.

        Found by halves: of several damaged pages one after the other, rows between them may be passed over.
        """
        query = f"SELECT {self._rowid} FROM kern_db WHERE {self._rowid} > ? ORDER BY {self._rowid} LIMIT 1"
        damaged, high, step, found = after, _LAST, 1, None
        while high - damaged > 1:
            middle = min(damaged + step, (damaged + high) // 2)
            step *= 2
            try:
                row = self.db.execute(query, (middle,)).fetchone()
            except lite.SQLITE_ERRORS:
                damaged = middle
                continue
            if row is not None and row[0] <= middle:  # led round in a circle
                damaged = middle
            else:
                high, found = middle, row
                step = 1 << 62  # from here on by halves
        return int(found[0]) if found is not None else None

    def pragma(self, name: str) -> str:
        """The value of a PRAGMA of the closed list PRAGMAS, as text."""
        if name not in PRAGMAS:
            raise ValueError(name)
        with lite.reading(self.path):
            value = self.db.execute(f"PRAGMA {name}").fetchone()[0]
        return value.decode() if isinstance(value, bytes) else str(value)

    def provenance(self) -> dict[str, str] | None:
        """What the writer said about the file (docs/kdb-format.md), None when there is no such table."""
        if PROVENANCE_TABLE not in self.tables:
            return None
        with lite.reading(self.path):
            info = self.db.execute(f"PRAGMA table_info({PROVENANCE_TABLE})").fetchall()
            if not {b"key", b"value"} <= {row[1] for row in info}:
                return {}  # a table of that name, but not ours
            query = f"SELECT key, value FROM {PROVENANCE_TABLE} LIMIT {MAX_RECORDS}"
            rows = self.db.execute(query).fetchall()
        return {_text(k): _text(v) for k, v in rows}


def open_kdb(path: str | Path) -> KdbReader:
    """The kernel database `path`, open for reading; KdbtoolError (exit 2) saying what it is instead."""
    kind = identify(path)
    if not kind.is_kdb:
        raise kind.error()
    return KdbReader(kind)


def _bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    return b"" if value is None else str(value).encode()


def _text(value: object) -> str:
    return _bytes(value).decode("utf-8", "backslashreplace")
