"""Find-db records that kill or mislead a MIOpen, taken out.

Seen with the real MIOpen 3.4.0 (`miopenConvolutionForwardGetSolution`), source src/ocl/convolutionocl.cpp
`GetSolutions` of 2.15 to 3.5: a name that is registered without code for immediate mode is a null pointer,
the process dies; damage can make the call throw (finddb.Damaged); a solver that is unknown or whose back end
was left out is passed over, but GetSolutionCount counts it and the time that it promises is never reached.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kdbtool.errors import KdbtoolError
from kdbtool.kdb.identify import FileKind
from kdbtool.miopen import finddb, textdb
from kdbtool.miopen.finddb import Damaged, FindRecord, FindSolution
from kdbtool.miopen.solvers import SolverSet, solver_set
from kdbtool.miopen.versions import MiopenBuild

_OLD = ("5.0", "5.1", "5.2", "5.3", "5.4", "5.5")  # src/db_record.cpp: converted and current from 5.6 on


class Why(enum.StrEnum):
    """Why a solver's entry is taken out of a record, beside finddb.Damaged."""

    WITHOUT_CODE = "no code for immediate mode (crashes)"
    LEFT_OUT = "its back end is not in this build"
    UNKNOWN = "unknown to this MIOpen"
    FORM = "in a form that this MIOpen does not read"


@dataclass
class Pruned:
    """What was done. `reasons` counts entries and lines by reason, `solvers` entries by (solver, reason)."""

    lines: int = 0  # records read
    kept: int = 0  # records written
    entries: int = 0  # solver entries written
    emptied: int = 0  # records that had solvers and have none left
    converted: int = 0  # legacy entries written in the current form
    reasons: Counter[str] = field(default_factory=Counter)
    solvers: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def taken_out(self) -> int:
        """Entries and unreadable lines that are gone."""
        return sum(self.reasons.values())


def reads_current_form(build: MiopenBuild) -> bool:
    """Whether the MIOpen reads the current form and converts the legacy one (ROCm 5.6 and later)."""
    return ".".join(build.rocm.split(".")[:2]) not in _OLD


def prune(path: Path, build: MiopenBuild, done: Pruned, *, convert: bool = False) -> Iterator[bytes]:
    """The lines of find-db `path` that `build` can use, ends included; `done` counts what was taken out.

    A line that needs no change comes byte for byte. `convert`: legacy entries in the current form.
    """
    current = reads_current_form(build)
    if convert and not current:
        raise KdbtoolError(
            "cannot convert", why=f"ROCm {build.rocm} reads the legacy form only", hint="leave out --convert"
        )
    solvers = solver_set(build)
    seen: set[str] = set()
    textdb.refuse_foreign(path, FileKind.FIND_DB)
    damaged = textdb.bounded(path, lambda damage: done.reasons.update((damage.reason,)))
    for line in textdb.lines(path):
        if not line.text:
            yield line.end.encode()
            continue
        done.lines += 1
        before = done.taken_out
        record = finddb.parse_line(line.number, line.text, damaged)
        if record is None:
            continue
        if record.key in seen:
            done.reasons[Damaged.REPEATED] += 1
            continue
        seen.add(record.key)
        left = _left(record, solvers, current, done)
        if convert:
            done.converted += sum(s.legacy for s in left)
            left = [finddb.to_current(s) for s in left]
        if not left:
            done.emptied += 1
            continue
        done.kept += 1
        done.entries += len(left)
        same = done.taken_out == before and not convert
        text = line.text if same else finddb.format_record(record._replace(solvers=tuple(left)))
        yield textdb.encode(text + line.end)
    if done.lines and not seen:  # else any text would be written as an empty find-db
        raise KdbtoolError("not a find-db", where=path, why=f"none of its {done.lines} lines is a record")


def _left(record: FindRecord, solvers: SolverSet, current: bool, done: Pruned) -> list[FindSolution]:
    left = []
    for solution in record.solvers:
        why = judge(solution, solvers, current)
        if why is None:
            left.append(solution)
        else:
            done.reasons[why] += 1
            done.solvers[solution.solver, why] += 1
    return left


def judge(solution: FindSolution, solvers: SolverSet, current: bool) -> Why | None:
    """Why the entry is no good for a MIOpen with these solvers, None where it is."""
    if solution.solver not in solvers.usable:
        if solution.solver in solvers.without_code:
            return Why.WITHOUT_CODE
        return Why.LEFT_OUT if solution.solver in solvers.left_out else Why.UNKNOWN
    return None if current or solution.legacy else Why.FORM
