"""The SQLite form of a perf-db: tables `config` and `perf_db`, schema version 1.1.0 of ROCm 5.0 to 7.2.

Written with the schema of src/sqlite_db.cpp and src/include/miopen/sqlite_db.hpp, rows in the order of their
ids, so that the same rows give the same file (of one SQLite).
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kdbtool.errors import KdbtoolError
from kdbtool.kdb import sqlite as lite
from kdbtool.miopen import textdb
from kdbtool.miopen.perfdb_text import MAX_ROWS, Damaged
from kdbtool.miopen.perfkey import NUMBERS, TEXTS, Config, PerfRecord, parse_config
from kdbtool.miopen.textdb import Damage, Report, ignore

# MIOpen lists texts first here, numbers first in the text form.
COLUMNS = (*TEXTS, *NUMBERS)
_CREATE = (
    "CREATE TABLE `config` (`id` INTEGER PRIMARY KEY ASC"
    + "".join(f",`{name}` TEXT NOT NULL" for name in TEXTS)
    + "".join(f",`{name}` INT NOT NULL" for name in NUMBERS)
    + ")",
    f"CREATE UNIQUE INDEX `idx_config` ON config( {','.join(COLUMNS)} )",
    "CREATE TABLE `perf_db` (`id` INTEGER PRIMARY KEY ASC,`solver` TEXT NOT NULL,"
    "`config` INTEGER NOT NULL,`params` TEXT NOT NULL)",
    "CREATE UNIQUE INDEX `idx_perf_db` ON perf_db(solver, config)",
)
# The join of tools/sqlite2txt, in the order that SQLite takes it there.
_SELECT = (
    f"SELECT p.id, p.solver, p.params, c.id, {', '.join(f'c.{name}' for name in COLUMNS)}"
    " FROM perf_db AS p LEFT JOIN config AS c ON p.config = c.id ORDER BY p.id"
)
NO_CONFIG = "row without a problem"
BAD_ROW = "not the row of a perf-db"


def read(path: Path, damaged: Report = ignore) -> Iterator[PerfRecord]:
    """The rows of an SQLite perf-db, plain or `.bz2`, by id; of one solver and problem the last counts."""
    report = textdb.bounded(path, damaged)
    with opened(path) as db, lite.reading(path):
        records = list(_rows(db, report))
    latest = {(record.key, record.solver): at for at, record in enumerate(records)}
    for at, record in enumerate(records):
        if latest[record.key, record.solver] == at:
            yield record
        else:  # MIOpen's unique indexes do not let it happen
            report(Damage(record.line, Damaged.REPEATED, f"{record.key} {record.solver}"))


def _rows(db: sqlite3.Connection, report: Report) -> Iterator[PerfRecord]:
    for row in db.execute(_SELECT):
        number, solver, params, config_id, *columns = row
        if config_id is None:
            report(Damage(number, NO_CONFIG, _text(solver) or ""))
            continue
        record = _record(number, solver, params, columns)
        if record is None:
            report(Damage(number, BAD_ROW, repr(row[1:3])[:100]))
        else:
            yield record


def unused_configs(path: Path) -> int:
    """Problems in the table without any row: nothing is lost with them."""
    with opened(path) as db, lite.reading(path):
        (count,) = db.execute(
            "SELECT count(*) FROM config"
            " WHERE id NOT IN (SELECT config FROM perf_db WHERE config IS NOT NULL)"
        ).fetchone()
        return int(count)


def fill(path: Path, records: Iterable[PerfRecord]) -> None:
    """Make the empty file `path` an SQLite perf-db of these rows, all with a config and ASCII texts."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in ("PRAGMA journal_mode=OFF", "PRAGMA page_size=4096", "BEGIN", *_CREATE):
            db.execute(statement)
        ids: dict[Config, int] = {}
        places = ",".join("?" * (len(COLUMNS) + 1))
        for number, record in enumerate(records, 1):
            config = record.config
            if config is None:
                raise ValueError("a row under a find-db key")
            if config not in ids:
                ids[config] = len(ids) + 1
                row = (ids[config], config.layout, config.data_type, config.direction, *config.numbers)
                db.execute(f"INSERT INTO config VALUES({places})", row)
            values = (number, record.solver, ids[config], record.params)
            db.execute("INSERT INTO perf_db VALUES(?,?,?,?)", values)
        db.execute("COMMIT")
        db.execute("VACUUM")


@contextlib.contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """The database, its tables and columns checked; a `.bz2` one is unpacked to a temporary file."""
    with contextlib.ExitStack() as stack:
        plain = path
        head = next(textdb.chunks(path), b"")
        with path.open("rb") as file:
            packed = file.read(3) == textdb.BZ2_MAGIC
        if packed:
            copy = stack.enter_context(tempfile.NamedTemporaryFile(prefix="kdbtool-", suffix=".db"))
            for data in textdb.chunks(path):
                copy.write(data)
            copy.flush()
            plain = Path(copy.name)
        with lite.reading(path):
            immutable = packed or lite.needs_immutable(path, head[: lite.HEADER_SIZE])
            db = stack.enter_context(contextlib.closing(lite.connect(plain, immutable=immutable)))
            _check(path, db)
        yield db


def _check(path: Path, db: sqlite3.Connection) -> None:
    tables = lite.tables(db)
    for table, wanted in (("config", {"id", *COLUMNS}), ("perf_db", {"id", "solver", "config", "params"})):
        if table not in tables:
            raise KdbtoolError("not a perf-db", where=path, why=f"it has no table {table}")
        columns = {row[1].decode("utf-8", "replace") for row in db.execute(f"PRAGMA table_info({table})")}
        if wanted - columns:
            missing = ", ".join(sorted(wanted - columns))
            raise KdbtoolError("not a perf-db", where=path, why=f"table {table} has no column {missing}")
        if {"arch", "num_cu"} <= columns:
            raise KdbtoolError(
                "a perf-db of several devices",
                where=path,
                why="its rows name their arch, as before ROCm 4: no MIOpen of ROCm 5 or later reads it",
            )
    (rows,) = db.execute("SELECT count(*) FROM perf_db").fetchone()
    if rows > MAX_ROWS:
        raise KdbtoolError("too large for a perf-db", where=path, why=f"over {MAX_ROWS} rows")


def _record(number: int, solver: Any, params: Any, columns: list[Any]) -> PerfRecord | None:
    texts = [_text(value) for value in (solver, params, *columns[: len(TEXTS)])]
    numbers = columns[len(TEXTS) :]
    if None in texts or not all(isinstance(value, int) for value in numbers):
        return None
    name, values, layout, data_type, direction = (text or "" for text in texts)
    key = str(Config(tuple(numbers), layout, data_type, direction))
    config = parse_config(key)  # only what the text form can say, too
    return PerfRecord(number, key, config, name, values) if name and config else None


def _text(value: Any) -> str | None:
    """A TEXT as written by MIOpen, None for another type. Bytes that are no ASCII come as surrogates."""
    return value.decode("ascii", "surrogateescape") if isinstance(value, bytes) else None
