"""Performance databases: the parameters that tuning found, by problem and solver.

Two forms of one content: SQLite (`<base>.db`, user `<base>_1.1.0.udb`) and text (`<base>.db.txt`, user
`<base>.<suffix>.udb.txt`), either `.bz2`. A build of MIOpen reads one of them (MIOPEN_USE_SQLITE_PERFDB;
text by default since ROCm 6.2). Text of ROCm 6.1 and older has find-db keys, which later ones never ask for.
"""

from __future__ import annotations

import bz2
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kdbtool.errors import KdbtoolError
from kdbtool.files import atomic_path, atomic_write
from kdbtool.kdb.sqlite import HEADER_MAGIC
from kdbtool.miopen import perfdb_sqlite, perfdb_text, textdb
from kdbtool.miopen.perfdb_text import Damaged
from kdbtool.miopen.perfkey import Config, PerfRecord, config_of, is_possible
from kdbtool.miopen.problems import parse_problem
from kdbtool.miopen.textdb import Damage, Report, ignore

SQLITE, TEXT = "sqlite", "text"


@dataclass
class Converted:
    """What a conversion did: rows and problems written, problems that no row used, rows lost, by reason."""

    form: str
    rows: int = 0
    problems: int = 0
    rekeyed: int = 0  # rows under find-db keys, which got perf-db keys
    unused: int = 0
    lost: list[Damage] = field(default_factory=list)


def is_sqlite(path: Path) -> bool:
    """Whether the perf-db `path`, compressed or not, is an SQLite file. KdbtoolError for what is no file."""
    return next(textdb.chunks(path), b"").startswith(HEADER_MAGIC)


def read(path: Path, damaged: Report = ignore) -> Iterator[PerfRecord]:
    """The rows of a perf-db of either form; what cannot be read goes to `damaged`.

    SQLite rows come by id, as tools/sqlite2txt reads them. KdbtoolError for what is neither form.
    """
    return perfdb_sqlite.read(path, damaged) if is_sqlite(path) else perfdb_text.read(path, damaged)


def form_of(output: Path) -> tuple[str, bool]:
    """The form that an output's name asks for, and whether compressed; KdbtoolError for another name."""
    packed = output.suffix == ".bz2"
    suffix = Path(output.stem).suffix if packed else output.suffix
    forms = {".txt": TEXT, ".db": SQLITE, ".udb": SQLITE}
    if suffix not in forms:
        raise KdbtoolError(
            "which form is wanted?",
            where=output,
            why="the output's name tells it: .db.txt and .udb.txt are text, .db and .udb SQLite",
        )
    return forms[suffix], packed


def convert(path: Path, output: Path, *, force: bool = False) -> Converted:
    """Write the rows of a perf-db in the form that the name of `output` asks for. Same rows, same bytes."""
    form, packed = form_of(output)
    done = Converted(form)
    if is_sqlite(path):
        done.unused = perfdb_sqlite.unused_configs(path)
    records = _counted(path, done)
    if form == TEXT:
        with atomic_write(output, force=force) as file:
            data = b"".join(perfdb_text.render(records))
            file.write(bz2.compress(data) if packed else data)
    elif packed:
        with atomic_path(output, force=force) as temp:
            perfdb_sqlite.fill(temp, records)
            temp.write_bytes(bz2.compress(temp.read_bytes()))
    else:
        with atomic_path(output, force=force) as temp:
            perfdb_sqlite.fill(temp, records)
    return done


def _counted(path: Path, done: Converted) -> Iterator[PerfRecord]:
    """The rows that either form can hold, under perf-db keys."""
    keys: set[str] = set()
    rekeyed: set[tuple[str, str]] = set()
    for record in read(path, done.lost.append):
        if not perfdb_text.is_writable(record):
            done.lost.append(Damage(record.line, Damaged.UNWRITABLE, record.solver))
            continue
        if record.config is None:
            config = config_of(parse_problem(record.key))
            record = record._replace(key=str(config), config=config)
            if (record.key, record.solver) in rekeyed:
                done.lost.append(Damage(record.line, Damaged.REPEATED, record.key))
                continue
            rekeyed.add((record.key, record.solver))
            done.rekeyed += 1
        keys.add(record.key)
        done.rows += 1
        yield record
    done.problems = len(keys)
    if not keys and done.lost and all(d.reason in (Damaged.NO_KEY, Damaged.BAD_KEY) for d in done.lost):
        raise KdbtoolError("not a perf-db", where=path, why=f"none of its {len(done.lost)} lines is a record")


def summary(path: Path) -> dict[str, Any]:
    """What a perf-db holds, counted; for `kdbtool info`. Plain values only, so that JSON takes it."""
    solvers: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    keys: dict[str, Config | None] = {}
    for record in read(path, lambda damage: wrong.update((damage.reason,))):
        solvers[record.solver] += 1
        keys[record.key] = record.config
    known = [config for config in keys.values() if config is not None]
    return {
        "kind": "perf-db",
        "format": SQLITE if is_sqlite(path) else TEXT,
        "problems": len(keys),
        "rows": sum(solvers.values()),
        "find_db_keys": len(keys) - len(known),
        "impossible": sum(not is_possible(config) for config in known),
        "directions": dict(Counter(c.direction for c in known).most_common()),
        "dimensions": dict(Counter(f"{c.numbers[0]}-D" for c in known).most_common()),
        "data_types": dict(Counter(c.data_type for c in known).most_common()),
        "solvers": dict(solvers.most_common()),
        "damaged": dict(wrong.most_common()),
    }
