"""The text form of a perf-db, `KEY=SOLVER:PARAMS;SOLVER:PARAMS...`, one line per problem, byte for byte.

`render` gives lines as tools/sqlite2txt (ROCm 6.2 on) does: the items of a line in the order of the rows. The
tool writes its lines in the order of a hash table; here they are sorted, so that the same rows give the same
file. MIOpen does not care (src/readonlyramdb.cpp).
"""

from __future__ import annotations

import enum
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

from kdbtool.errors import KdbtoolError
from kdbtool.kdb.identify import FileKind
from kdbtool.miopen import textdb
from kdbtool.miopen.finddb import FindSolution, parse_item
from kdbtool.miopen.perfkey import PerfRecord, parse_config
from kdbtool.miopen.problems import problem_or_none
from kdbtool.miopen.textdb import Damage, Report, ignore

MAX_ROWS = 500_000  # AMD's largest file has 21,058; of SQLite files, too


class Damaged(enum.StrEnum):
    """What can be wrong with a line, an item or a row, and what MIOpen does with it."""

    NO_KEY = "no key"  # logs an error and goes on
    BAD_KEY = "not a key of a perf-db"  # never asks for it
    NO_ITEMS = "no solver"  # logs an error, takes the default parameters
    NO_SOLVER = "item without a solver"  # logs an error, skips the item
    REPEATED = "repeated"  # text: takes the first; SQLite: the last
    UNWRITABLE = "not to be written as text"  # `;`, a line's end, no ASCII in solver or parameters


def read(path: Path, damaged: Report = ignore) -> Iterator[PerfRecord]:
    """The rows of a text perf-db, plain or `.bz2`, in their order; of two lines with one key the first."""
    textdb.refuse_foreign(path, FileKind.PERF_DB)
    report = textdb.bounded(path, damaged)
    seen: set[str] = set()
    rows = 0
    for line in textdb.lines(path):
        if not line.text:
            continue
        key, equals, rest = line.text.partition("=")
        if not key or not equals:
            report(Damage(line.number, Damaged.NO_KEY, line.text))
            continue
        config = parse_config(key)
        if config is None:
            problem = problem_or_none(key)
            if problem is None:
                report(Damage(line.number, Damaged.BAD_KEY, key))
                continue
            if isinstance(parse_item(rest.partition(";")[0], problem.direction), FindSolution):
                raise KdbtoolError(
                    "a find-db, not a perf-db",
                    where=path,
                    hint=f"kdbtool finddb list {shlex.quote(str(path))}",
                )
        if key in seen:
            report(Damage(line.number, Damaged.REPEATED, key))
            continue
        seen.add(key)
        if not rest:
            report(Damage(line.number, Damaged.NO_ITEMS, key))
            continue
        solvers: set[str] = set()
        for item in rest.split(";"):
            solver, colon, params = item.partition(":")
            if not solver or not colon:
                report(Damage(line.number, Damaged.NO_SOLVER, item))
            elif solver in solvers:
                report(Damage(line.number, Damaged.REPEATED, item))
            else:
                solvers.add(solver)
                rows += 1
                if rows > MAX_ROWS:
                    raise KdbtoolError("too large for a perf-db", where=path, why=f"over {MAX_ROWS} rows")
                yield PerfRecord(line.number, key, config, solver, params)


def render(records: Iterable[PerfRecord]) -> Iterator[bytes]:
    """The lines of a text perf-db with these rows, sorted by key."""
    lines: dict[str, list[str]] = {}
    for record in records:
        lines.setdefault(record.key, []).append(f"{record.solver}:{record.params}")
    for key in sorted(lines):
        yield textdb.encode(f"{key}={';'.join(lines[key])}\n")


def is_writable(record: PerfRecord) -> bool:
    """Whether the row survives as text: MIOpen cuts at `;` and line ends, and at the first `:` of an item."""
    text = record.solver + record.params
    return text.isascii() and not any(c in text for c in ";\n\0") and ":" not in record.solver
