"""The rows of chosen problems out of find-dbs and perf-dbs, and text databases of such rows.

Problems have find-db keys; a perf-db row belongs to every problem whose perf-db key it has (output sizes and
the layouts of the other tensors are not in that). Of two lines with one key the first counts, as in MIOpen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from kdbtool.kdb.identify import FileKind
from kdbtool.miopen import finddb, perfdb, perfdb_text, textdb
from kdbtool.miopen.finddb import FindRecord
from kdbtool.miopen.perfkey import PerfRecord, config_of
from kdbtool.miopen.problems import parse_problem, problem_or_none
from kdbtool.miopen.textdb import Report, ignore


def find_rows(path: Path, problems: Collection[str], damaged: Report = ignore) -> Iterator[FindRecord]:
    """The records of a find-db that are of these problems, damaged items left out.

    Only their lines are taken apart. KdbtoolError where there is no find-db.
    """
    textdb.refuse_foreign(path, FileKind.FIND_DB)
    report = textdb.bounded(path, damaged)
    wanted, seen = frozenset(problems), set()
    for line in textdb.lines(path):
        key = line.text.partition("=")[0]
        if key in wanted and key not in seen:
            seen.add(key)
            record = finddb.parse_line(line.number, line.text, report)
            if record is not None and record.solvers:
                yield record


def perf_keys(problems: Iterable[str]) -> dict[str, list[str]]:
    """The perf-db key of each problem, and the problems that share it, sorted."""
    keys: dict[str, list[str]] = {}
    for problem in sorted(set(problems)):
        keys.setdefault(str(config_of(parse_problem(problem))), []).append(problem)
    return keys


def perf_rows(path: Path, problems: Collection[str], damaged: Report = ignore) -> Iterator[PerfRecord]:
    """The rows of a perf-db of either form that are of these problems, under perf-db keys.

    KdbtoolError where there is no perf-db.
    """
    wanted = perf_keys(problems)
    seen: set[tuple[str, str]] = set()
    for record in perfdb.read(path, damaged):
        if record.config is None:  # a text of ROCm 6.1 or older
            problem = problem_or_none(record.key)
            if problem is None:
                continue
            config = config_of(problem)
            record = record._replace(key=str(config), config=config)
        at = (record.key, record.solver)
        if record.key in wanted and at not in seen and perfdb_text.is_writable(record):
            seen.add(at)
            yield record


def find_text(records: Iterable[FindRecord]) -> bytes:
    """A find-db of these records, sorted by key."""
    lines = sorted(finddb.format_record(record) for record in records)
    return textdb.encode("".join(f"{line}\n" for line in lines))


def perf_text(records: Iterable[PerfRecord]) -> bytes:
    """A text perf-db of these rows, sorted by key and solver."""
    return b"".join(perfdb_text.render(sorted(records, key=lambda r: (r.key, r.solver))))
