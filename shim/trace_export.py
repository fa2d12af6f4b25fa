"""Writes the tables of traces: one SQLite file (standard library), or Parquet files (polars, the extra
`columns`).

Rows go by in pieces; the same traces give the same bytes.
"""

from __future__ import annotations

import contextlib
import importlib
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from kdbtool.errors import EXIT_PROBLEMS, EXIT_USAGE, KdbtoolError, from_oserror
from kdbtool.files import atomic_path
from kdbtool.shim.trace_model import Trace
from kdbtool.shim.trace_tables import INTEGER, REAL, TABLES, Row, Tables

_PIECE = 100_000  # rows
_TEXT_PIECE = 1 << 24  # characters of text in a piece of rows, about
_PART = 2_000_000  # rows after which a Parquet file goes on in another part, until they are joined


def to_sqlite(traces: Iterable[Trace], path: Path, *, force: bool = False) -> Counter[str]:
    """All tables, and for each that names texts a view TABLE_named with them in place. Rows by table."""
    counts: Counter[str] = Counter()
    with atomic_path(path, force=force) as temp, contextlib.closing(sqlite3.connect(temp)) as db:
        try:
            db.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;" + _schema())
            for table, rows in _pieces(traces):
                marks = ",".join("?" * len(TABLES[table]))
                db.executemany(f'INSERT INTO "{table}" VALUES ({marks})', rows)
                counts[table] += len(rows)
            db.commit()
        except sqlite3.Error as error:
            code = EXIT_PROBLEMS if "full" in str(error) else EXIT_USAGE
            raise KdbtoolError("cannot write", where=path, why=str(error), exit_code=code) from None
    return counts


def to_parquet(
    traces: Iterable[Trace], folder: Path, table: str | None = None, *, force: bool = False
) -> Counter[str]:
    """Each table as FOLDER/TABLE.parquet; or the one named as the file `folder`. Rows by table."""
    polars = _polars()
    parent = Path(folder).resolve().parent
    if table is None and folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not force)):
        raise KdbtoolError("output exists", where=folder, hint="--force replaces the tables in it")
    try:
        temp = Path(tempfile.mkdtemp(prefix=f".{folder.name[:80]}.", suffix=".tmp", dir=parent))
    except OSError as error:
        raise from_oserror(error, where=folder) from error
    try:
        counts = _parquet(polars, traces, temp)
        if table is not None:
            with atomic_path(folder, force=force) as file:
                shutil.copyfile(temp / f"{table}.parquet", file)
            return counts
        folder.mkdir(exist_ok=True)
        for name in TABLES:
            (temp / f"{name}.parquet").replace(folder / f"{name}.parquet")
        return counts
    except OSError as error:
        raise from_oserror(error, where=folder) from error
    finally:
        shutil.rmtree(temp, ignore_errors=True)


def _polars() -> Any:
    try:
        return importlib.import_module("polars")
    except ImportError:
        raise KdbtoolError(
            "no Parquet here",
            why="polars is not installed",
            hint="pip install 'kdbtool[columns]', or name a file *.sqlite",
        ) from None


def _pieces(traces: Iterable[Trace]) -> Iterator[tuple[str, list[Row]]]:
    tables = Tables()
    for trace in traces:
        for table, rows in tables.rows(trace):
            left = iter(rows)
            has_text = any(column.kind not in (INTEGER, REAL) for column in TABLES[table])
            while piece := _bounded(left) if has_text else list(islice(left, _PIECE)):
                yield table, piece


def _bounded(rows: Iterator[Row]) -> list[Row]:
    """Some rows: not too many, and not too long."""
    found: list[Row] = []
    size = 0
    while len(found) < _PIECE and size < _TEXT_PIECE and (row := next(rows, None)) is not None:
        found.append(row)
        size += sum(len(value) for value in row if isinstance(value, str))
    return found


def _schema() -> str:
    lines = []
    for table, columns in TABLES.items():
        body = ", ".join(f'"{column.name}" {column.kind.upper()}' for column in columns)
        lines.append(f'CREATE TABLE "{table}" ({body});')
        if not any(column.refers for column in columns):
            continue
        chosen, joins = [], []
        for column in columns:
            name = f'"{column.name}"'
            if column.refers:
                chosen.append(f"t_{column.name}.value AS {name}")
                joins.append(f"LEFT JOIN texts t_{column.name} ON t_{column.name}.text = x.{name}")
            else:
                chosen.append(f"x.{name} AS {name}")
        view = f'SELECT {", ".join(chosen)} FROM "{table}" x {" ".join(joins)}'
        lines.append(f'CREATE VIEW "{table}_named" AS {view};')
    return "\n".join(lines).replace('"text" INTEGER,', '"text" INTEGER PRIMARY KEY,')


def _parquet(polars: Any, traces: Iterable[Trace], folder: Path) -> Counter[str]:
    types = {INTEGER: polars.Int64, REAL: polars.Float64}
    schemas = {
        name: {column.name: types.get(column.kind, polars.String) for column in columns}
        for name, columns in TABLES.items()
    }
    held: dict[str, list[Any]] = {name: [] for name in TABLES}
    parts: dict[str, list[Path]] = {name: [] for name in TABLES}
    counts: Counter[str] = Counter()

    def flush(table: str) -> None:
        frames = held[table] or [polars.DataFrame(schema=schemas[table])]
        parts[table].append(folder / f"{table}.{len(parts[table])}.part")
        polars.concat(frames, rechunk=True).write_parquet(parts[table][-1])
        held[table] = []

    rows_held: Counter[str] = Counter()
    bytes_held: Counter[str] = Counter()
    for table, rows in _pieces(traces):
        schema = schemas[table]
        columns = {
            name: polars.Series(name, list(values), dtype=kind)
            for (name, kind), values in zip(schema.items(), zip(*rows, strict=True), strict=True)
        }
        frame = polars.DataFrame(columns)
        held[table].append(frame)
        counts[table] += len(rows)
        rows_held[table] += len(rows)
        bytes_held[table] += int(frame.estimated_size())
        if rows_held[table] >= _PART or bytes_held[table] > _TEXT_PIECE * 4:
            flush(table)
            rows_held[table] = bytes_held[table] = 0
    for table in TABLES:
        if held[table] or not parts[table]:
            flush(table)
        if len(parts[table]) == 1:
            parts[table][0].replace(folder / f"{table}.parquet")
        else:
            polars.scan_parquet(parts[table]).sink_parquet(folder / f"{table}.parquet")
    return counts
