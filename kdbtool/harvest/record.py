"""The harvest's own record: what was asked for, by whom, what failed and why; and how far it has come.

One SQLite file (docs/harvest.md has its tables). A chunk of problems is written in one transaction, so a
harvest that was killed goes on behind the last one. Key texts, hundreds of megabytes of which few bytes
differ, lie compressed in the chunk that saw them first.
"""

from __future__ import annotations

import hashlib
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import msgpack

from kdbtool.errors import EXIT_PROBLEMS, KdbtoolError, from_oserror
from kdbtool.harvest.steps import Found, Key
from kdbtool.harvest.wanted import Failure, Why

SCHEMA = 1
APPLICATION_ID = 0x6B644856  # "kdHV"
_MAX_TEXT = 1 << 30  # of one chunk's keys, uncompressed
_TABLES = """
CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE problem(id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE);
CREATE TABLE solver(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE chunk(id INTEGER PRIMARY KEY, keys BLOB NOT NULL);
CREATE TABLE key(id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, chunk INTEGER NOT NULL,
    place INTEGER NOT NULL);
CREATE TABLE asked(key INTEGER NOT NULL, problem INTEGER NOT NULL, solver INTEGER NOT NULL,
    PRIMARY KEY(key, problem, solver)) WITHOUT ROWID;
CREATE TABLE failure(problem INTEGER NOT NULL, solver INTEGER NOT NULL, why TEXT NOT NULL,
    detail TEXT NOT NULL, PRIMARY KEY(problem, solver, why, detail)) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Packed:
    """A walk's result as it goes from a worker to the record."""

    found: Found  # without its keys
    digests: list[bytes]  # of the keys, by number
    keys: bytes  # compressed


def pack(found: Found) -> Packed:
    """Compress the keys where there is a core for each."""
    text = msgpack.packb(found.keys)
    digests = [_digest(key) for key in found.keys]
    found.keys = []
    return Packed(found, digests, zlib.compress(text, 6))


def _digest(key: Key) -> bytes:
    name, args = key
    return hashlib.blake2b(b"%d %b%b" % (len(name), name, args), digest_size=16).digest()


class Record:
    """An open record; a context manager. Errors of SQLite come as one KdbtoolError."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self.connection = path, connection

    @classmethod
    def begin(cls, path: Path, meta: dict[str, str], problems: Iterable[str], *, force: bool) -> Record:
        """A new record at `path`, or the one that is there if it is of the same harvest (`meta` equal).

        KdbtoolError for a file that is something else; with `force` it is replaced.
        """
        if path.exists():
            try:
                have = cls.open(path)
            except KdbtoolError:
                if not force:
                    raise
            else:
                if have.meta() == meta:
                    return have
                have.close()
                if not force:
                    raise _other(path, meta, have_meta(path))
            _remove(path)
        made = path.with_name(f".{path.name}.new")
        _remove(made)
        try:
            record = cls(path, _connect(made))
            with record.connection as c:
                c.executescript(_TABLES)
                c.execute(f"PRAGMA application_id={APPLICATION_ID}")
                c.execute(f"PRAGMA user_version={SCHEMA}")
                c.executemany("INSERT INTO meta VALUES(?, ?)", sorted(meta.items()))
                c.executemany("INSERT INTO problem(id, key) VALUES(?, ?)", enumerate(problems))
            record.close()
            made.rename(path)
        except sqlite3.Error as error:
            raise _broken(path, error) from None
        except OSError as error:
            raise from_oserror(error, where=path) from None
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> Record:
        """The record at `path`; KdbtoolError, exit code 2, where it is none or of another version."""
        if not path.is_file():
            raise KdbtoolError("no such record", where=path, hint="run: kdbtool harvest")
        try:
            connection = _connect(path)
            kind = connection.execute("PRAGMA application_id").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.Error as error:
            raise _broken(path, error) from None
        if kind != APPLICATION_ID or version != SCHEMA:
            connection.close()
            what = "not a record of a harvest" if kind != APPLICATION_ID else f"a record of version {version}"
            why = None if kind != APPLICATION_ID else f"this kdbtool reads version {SCHEMA}"
            raise KdbtoolError(what, where=path, why=why, hint="name another file with --record")
        return cls(path, connection)

    def __enter__(self) -> Record:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is lost by not calling it."""
        self.connection.close()

    def _rows(self, statement: str, *values: object) -> Iterator[tuple[object, ...]]:
        rows: list[tuple[object, ...]] = []
        cursor = None
        while cursor is None or rows:
            try:
                cursor = cursor or self.connection.execute(statement, values)
                rows = cursor.fetchmany(1000)
            except sqlite3.Error as error:
                raise _broken(self.path, error) from None
            yield from rows

    def meta(self) -> dict[str, str]:
        """What the harvest was of."""
        return {str(name): str(value) for name, value in self._rows("SELECT name, value FROM meta")}

    def chunks(self) -> set[int]:
        """Chunks that are done."""
        return {_int(row[0]) for row in self._rows("SELECT id FROM chunk")}

    def problem_numbers(self) -> dict[str, int]:
        """The number of each problem by its key."""
        return {str(key): _int(number) for number, key in self._rows("SELECT id, key FROM problem")}

    def fail(self, failures: Iterable[Failure], numbers: dict[str, int]) -> None:
        """Write failures that are known before the walk; again changes nothing."""
        try:
            with self.connection as c:
                self._fail(c, failures, numbers)
        except sqlite3.Error as error:
            raise _broken(self.path, error) from None

    def add(self, chunk: int, problems: list[int], packed: Packed, numbers: dict[str, int]) -> None:
        """Write a chunk, all of it or nothing. `problems`: the number of each place of the walk."""
        found = packed.found
        try:
            with self.connection as c:
                c.execute("INSERT INTO chunk VALUES(?, ?)", (chunk, packed.keys))
                c.executemany(
                    "INSERT OR IGNORE INTO key(digest, chunk, place) VALUES(?, ?, ?)",
                    ((digest, chunk, place) for place, digest in enumerate(packed.digests)),
                )
                ids = [
                    c.execute("SELECT id FROM key WHERE digest=?", (digest,)).fetchone()[0]
                    for digest in packed.digests
                ]
                solvers = self._solvers(c, {solver for _, solver, _ in found.asked})
                c.executemany(
                    "INSERT OR IGNORE INTO asked VALUES(?, ?, ?)",
                    sorted(
                        (ids[key], problems[place], solvers[solver]) for place, solver, key in found.asked
                    ),
                )
                self._fail(c, found.failures, numbers)
        except sqlite3.Error as error:
            raise _broken(self.path, error) from None

    def _fail(self, c: sqlite3.Connection, failures: Iterable[Failure], numbers: dict[str, int]) -> None:
        failures = list(failures)
        solvers = self._solvers(c, {failure.solver for failure in failures})
        c.executemany(
            "INSERT OR IGNORE INTO failure VALUES(?, ?, ?, ?)",
            ((numbers[f.key], solvers[f.solver], f.why.name, f.detail) for f in failures),
        )

    def _solvers(self, c: sqlite3.Connection, names: set[str]) -> dict[str, int]:
        c.executemany("INSERT OR IGNORE INTO solver(name) VALUES(?)", ((name,) for name in sorted(names)))
        return {name: number for number, name in c.execute("SELECT id, name FROM solver")}

    def each_key(self) -> Iterator[tuple[int, Key]]:
        """(number, key) of every key, each once, chunk by chunk."""
        rows = self._rows("SELECT chunk, place, id FROM key ORDER BY chunk, place")
        for chunk, places in groupby(rows, key=lambda row: row[0]):
            (blob,) = next(self._rows("SELECT keys FROM chunk WHERE id=?", chunk), (None,))
            texts = self._unpacked(blob)
            for _, place, number in places:
                if not 0 <= _int(place) < len(texts):
                    raise _broken(self.path, "a key that its chunk does not hold")
                yield _int(number), texts[_int(place)]

    def _unpacked(self, blob: object) -> list[Key]:
        try:
            assert isinstance(blob, bytes)
            pull = zlib.decompressobj()
            text = pull.decompress(blob, _MAX_TEXT)
            if not pull.eof:
                raise ValueError("keys of more than a gigabyte")
            return [(name, args) for name, args in msgpack.unpackb(text, raw=True)]
        except (AssertionError, ValueError, TypeError, zlib.error, msgpack.UnpackException) as error:
            raise _broken(self.path, error) from None

    def askers(self, key: int) -> list[tuple[str, str]]:
        """(solver, problem) of everybody who asked for a key, sorted."""
        return sorted(
            (str(solver), str(problem))
            for solver, problem in self._rows(
                "SELECT solver.name, problem.key FROM asked JOIN solver ON solver.id=asked.solver "
                "JOIN problem ON problem.id=asked.problem WHERE asked.key=?",
                key,
            )
        )

    def failures(self) -> Iterator[Failure]:
        """Everything that gave no key, by problem and solver."""
        for key, solver, why, detail in self._rows(
            "SELECT problem.key, solver.name, why, detail FROM failure "
            "JOIN solver ON solver.id=failure.solver "
            "JOIN problem ON problem.id=failure.problem "
            "ORDER BY failure.problem, solver.name, why"
        ):
            if str(why) not in Why.__members__:
                raise _broken(self.path, f"a failure for an unknown reason: {why}")
            yield Failure(str(key), str(solver), Why[str(why)], str(detail))

    def counts(self) -> dict[str, int]:
        """How many problems, keys and askings there are."""
        return {
            table: _int(next(self._rows(f"SELECT count(*) FROM {table}"))[0])
            for table in ("problem", "key", "asked")
        }


def have_meta(path: Path) -> dict[str, str]:
    """`meta` of the record at `path`."""
    with Record.open(path) as record:
        return record.meta()


def _connect(path: Path) -> sqlite3.Connection:
    c = sqlite3.connect(path, timeout=10)
    c.execute("PRAGMA journal_mode=DELETE")
    c.execute("PRAGMA synchronous=NORMAL")
    c.execute("PRAGMA trusted_schema=OFF")
    return c


def _remove(path: Path) -> None:
    for ending in ("", "-journal", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


def _int(value: object) -> int:
    if not isinstance(value, int):
        raise KdbtoolError("the record is damaged", why=f"a number is wanted, not {str(value)[:40]!r}")
    return value


def _other(path: Path, wanted: dict[str, str], have: dict[str, str]) -> KdbtoolError:
    names = sorted(name for name in wanted.keys() | have.keys() if wanted.get(name) != have.get(name))
    return KdbtoolError(
        "the record of another harvest",
        where=path,
        why=f"other {', '.join(names)}",
        hint="name another file with --record, or begin anew with --force",
    )


def _broken(path: Path, error: object) -> KdbtoolError:
    full = "full" in str(error)
    return KdbtoolError(
        "no space left" if full else "the record cannot be used",
        where=path,
        why=None if full else str(error),
        hint="free some space and run the same command again" if full else "name another file with --record",
        exit_code=EXIT_PROBLEMS if full else 2,
    )
