"""Find-dbs (`<base>.HIP.fdb.txt`, user `<base>.<suffix>.ufdb.txt`, either `.bz2`), read and written exactly.

Current line, from ROCm 5.6: `KEY=SOLVER:TIME,WORKSPACE,ALGORITHM;...`; milliseconds and bytes.
Legacy, all that 5.5 and older read and what later ones convert: `KEY=ALGORITHM:SOLVER,TIME,WORKSPACE,X,Y;...`
(src/db_record.cpp `TransformFindDbItem10to20`: legacy is an item whose id is a convolution algorithm).
Every item keeps its own form, and `format_record` gives back the bytes that were read.

What MIOpen makes of damage is in `Damaged`, seen with 3.4.0; a damaged item does not touch the others.
"""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kdbtool.kdb.identify import FileKind
from kdbtool.miopen import textdb
from kdbtool.miopen.problems import Problem, problem_or_none
from kdbtool.miopen.textdb import Damage, Report, ignore

# src/conv_algo_name.cpp, 2.15 to 3.5: any other name in a record of that direction throws when it is read.
_ALGORITHMS = {
    "F": ("Fwd", ("GEMM", "Direct", "FFT", "Winograd", "ImplicitGEMM")),
    "B": ("BwdData", ("GEMM", "Direct", "FFT", "Winograd", "ImplicitGEMM")),
    "W": ("BwdWeights", ("GEMM", "Direct", "Winograd", "ImplicitGEMM")),
}
ALGORITHMS: dict[str, frozenset[str]] = {
    way: frozenset(f"miopenConvolution{name}Algo{kind}" for kind in kinds)
    | (frozenset({"miopenTransposeBwdDataAlgoGEMM"}) if way == "B" else frozenset())
    for way, (name, kinds) in _ALGORITHMS.items()
}
_ANY_ALGORITHM = frozenset().union(*ALGORITHMS.values())

CURRENT, LEGACY, MIXED = "current", "legacy", "mixed"

_TIME = r"[0-9]{1,12}(?:\.[0-9]{1,20})?(?:[eE][-+]?[0-9]{1,2})?"
_BYTES = r"[0-9]{1,19}"
# Good lines are taken apart by one call each: 106,105 of them in seconds hang on it. As many matches as items
# means that every item matched.
_LEGACY_ITEMS = {
    way: re.compile(rf"(?:\A|;)({'|'.join(sorted(names))}):([^:;,]+),({_TIME}),({_BYTES})(,[^;]*)(?=;|\Z)")
    for way, names in ALGORITHMS.items()
}
_CURRENT_ITEMS = {
    way: re.compile(
        rf"(?:\A|;)(?!(?:{'|'.join(sorted(_ANY_ALGORITHM))}):)([^:;,]+)"
        rf":({_TIME}),({_BYTES}),({'|'.join(sorted(names))})(\r?|,[^;]*)(?=;|\Z)"
    )
    for way, names in ALGORITHMS.items()
}
_NUMBERS = re.compile(rf"{_TIME},{_BYTES}\Z")


class Damaged(enum.StrEnum):
    """What can be wrong with a line or an item, and what MIOpen does with it."""

    NO_KEY = "no key"  # logs an error and goes on
    BAD_KEY = "not a problem key"  # never asks for it
    NO_ITEMS = "no solver"  # logs errors, takes the fallback
    NO_ID = "item without a solver"  # logs an error, skips the item
    FIELDS = "fields missing"  # throws, the call fails; a legacy item: logs an error, skips it
    NUMBER = "not a number"  # reads the time or workspace as 0: the solver wins
    ALGORITHM = "not an algorithm of this direction"  # throws, the call fails
    REPEATED = "repeated"  # logs an error, takes the first


class FindSolution(NamedTuple):
    """One solver of a record, as texts; `tail` is what follows the known fields, verbatim."""

    solver: str
    time: str
    workspace: str
    algorithm: str
    legacy: bool
    tail: str = ""

    @property
    def milliseconds(self) -> float:
        """The time that was measured."""
        return float(self.time)

    @property
    def workspace_bytes(self) -> int:
        """The workspace that the solver wants."""
        return int(self.workspace)


class FindRecord(NamedTuple):
    """One line: the problem, its key as it stands, and its solvers in the order of the line."""

    line: int
    key: str
    problem: Problem
    solvers: tuple[FindSolution, ...]

    @property
    def form(self) -> str:
        """`current`, `legacy` or `mixed`."""
        legacy = sum(s.legacy for s in self.solvers)
        return CURRENT if not legacy else LEGACY if legacy == len(self.solvers) else MIXED


def read(path: Path, damaged: Report = ignore) -> Iterator[FindRecord]:
    """The records of a find-db, plain or `.bz2`; what is damaged goes to `damaged` and the rest is given.

    A record may come with no solvers when all of them are damaged. KdbtoolError where there is no text.
    """
    textdb.refuse_foreign(path, FileKind.FIND_DB)
    report = textdb.bounded(path, damaged)
    for line in textdb.lines(path):
        if line.text:
            record = parse_line(line.number, line.text, report)
            if record is not None:
                yield record


def parse_line(number: int, text: str, damaged: Report = ignore) -> FindRecord | None:
    """The record of one line without its end, None where it has no key."""
    key, equals, rest = text.partition("=")
    if not key or not equals:
        damaged(Damage(number, Damaged.NO_KEY, text))
        return None
    problem = problem_or_none(key)
    if problem is None:
        damaged(Damage(number, Damaged.BAD_KEY, key))
        return None
    if not rest:
        damaged(Damage(number, Damaged.NO_ITEMS, key))
    solvers = _all_items(rest, problem.direction)
    if len({s.solver for s in solvers}) != rest.count(";") + 1:
        solvers = _good_items(number, rest, problem.direction, damaged)
    return FindRecord(number, key, problem, tuple(solvers))


def parse_item(item: str, direction: str) -> FindSolution | Damaged:
    """One item of a record of that direction, or what is wrong with it."""
    found = _all_items(item, direction)
    return found[0] if found and ";" not in item else _what_is_wrong(item)


def _all_items(rest: str, direction: str) -> list[FindSolution]:
    """Every item of a line in one form; fewer where one is damaged or the forms are mixed."""
    found = _LEGACY_ITEMS[direction].findall(rest)
    if found:
        return [FindSolution(s, t, w, a, True, tail) for a, s, t, w, tail in found]
    return [
        FindSolution(s, t, w, a, False, tail) for s, t, w, a, tail in _CURRENT_ITEMS[direction].findall(rest)
    ]


def _good_items(number: int, rest: str, direction: str, damaged: Report) -> list[FindSolution]:
    solvers: dict[str, FindSolution] = {}
    for item in rest.split(";") if rest else ():
        found = parse_item(item, direction)
        if not isinstance(found, FindSolution):
            damaged(Damage(number, found, item))
        elif found.solver in solvers:
            damaged(Damage(number, Damaged.REPEATED, item))
        else:
            solvers[found.solver] = found
    return list(solvers.values())


def _what_is_wrong(item: str) -> Damaged:
    name, colon, values = item.partition(":")
    if not name or not colon:
        return Damaged.NO_ID
    fields = values.split(",")
    legacy = name in _ANY_ALGORITHM
    if len(fields) < (4 if legacy else 3):
        return Damaged.FIELDS
    if legacy and not fields.pop(0):
        return Damaged.NO_ID
    return Damaged.ALGORITHM if _NUMBERS.match(",".join(fields[:2])) else Damaged.NUMBER


def format_item(solution: FindSolution) -> str:
    """The item as it was read."""
    s = solution
    if s.legacy:
        return f"{s.algorithm}:{s.solver},{s.time},{s.workspace}{s.tail}"
    return f"{s.solver}:{s.time},{s.workspace},{s.algorithm}{s.tail}"


def format_record(record: FindRecord) -> str:
    """The line, without its end: the bytes that were read, where nothing in them was damaged."""
    return f"{record.key}={';'.join(map(format_item, record.solvers))}"


def to_current(solution: FindSolution) -> FindSolution:
    """The solution in the current form, as MIOpen converts it: the rest of a legacy item is dropped."""
    return solution._replace(legacy=False, tail="") if solution.legacy else solution


def summary(path: Path) -> dict[str, Any]:
    """What a find-db holds, counted; for `kdbtool info`. Plain values only, so that JSON takes it."""
    forms: Counter[str] = Counter()
    solvers: Counter[str] = Counter()
    types: Counter[str] = Counter()
    directions: Counter[str] = Counter()
    dimensions: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    problems = 0
    for record in read(path, lambda damage: wrong.update((str(damage.reason),))):
        problems += 1
        forms.update(LEGACY if s.legacy else CURRENT for s in record.solvers)
        solvers.update(s.solver for s in record.solvers)
        types[record.problem.data_type] += 1
        directions[record.problem.direction] += 1
        dimensions[f"{record.problem.dimensions}-D"] += 1
    return {
        "kind": "find-db",
        "problems": problems,
        "solutions": sum(solvers.values()),
        "forms": dict(forms.most_common()),
        "directions": dict(directions.most_common()),
        "dimensions": dict(dimensions.most_common()),
        "data_types": dict(types.most_common()),
        "solvers": dict(solvers.most_common()),
        "damaged": dict(wrong.most_common()),
    }
