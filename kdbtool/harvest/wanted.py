"""What a harvest is to ask for: problems, and of each which solvers, by tier.

Tiers: `default` (what MIOpen asks for out of the box, by Find in its default mode), `full-find` (what Find
tries in MIOPEN_FIND_MODE=1), `best`, `all` (the first solution, and all, that the find-db has of a problem)
and `offered` (what GetSolution offers by the find-db). The last three need a find-db.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kdbtool.harvest.lines import MAX_IDS, Unspeakable, check
from kdbtool.miopen import finddb, prune
from kdbtool.miopen.finddb import FindRecord, FindSolution
from kdbtool.miopen.problems import Problem, parse_problem
from kdbtool.miopen.solvers import SolverSet, solver_ids
from kdbtool.miopen.textdb import Damage

DEFAULT, BEST, OFFERED, ALL, FULL_FIND = "default", "best", "offered", "all", "full-find"
TIERS = (DEFAULT, BEST, OFFERED, ALL)
OF_FIND_DB = (BEST, OFFERED, ALL)

FIND, ASK_OFFERED, IDS = "find", "offered", "ids"  # actions of the driver


class Why(enum.StrEnum):
    """Why a solver of a problem, or the whole problem, gave no key. The order is that of reports."""

    CRASHED = "MIOpen died of it"
    HUNG = "over the time limit"
    FAILED = "MIOpen refused it with an error"
    MEMORY = "needs more memory than the device has"
    UNSPEAKABLE = "cannot be put to MIOpen through its API"
    WITHOUT_CODE = str(prune.Why.WITHOUT_CODE)
    LEFT_OUT = str(prune.Why.LEFT_OUT)
    UNKNOWN = str(prune.Why.UNKNOWN)
    FORM = str(prune.Why.FORM)
    NOT_APPLICABLE = "not applicable to the problem, says this MIOpen"
    NO_KERNEL = "asks for no kernel of a database (a GEMM alone, or CK inside the library)"
    NO_SOLUTION = "no solver is left to be asked for"


PROBLEMS = frozenset({Why.CRASHED, Why.HUNG, Why.FAILED})  # what nobody expects: exit code 1


class Wanted(NamedTuple):
    """One problem, and what the driver does with it. `action`: of IDS the `solvers` are asked for by name.

    `record`: the find-db's line for it, current form, for ASK_OFFERED. `company`: problems of one process
    have the same one (`company_of`).
    """

    key: str
    action: str
    solvers: tuple[str, ...] = ()
    record: str = ""
    company: int = 0


class Failure(NamedTuple):
    """`solver` "": the whole problem."""

    key: str
    solver: str
    why: Why
    detail: str = ""


@dataclass
class Plan:
    """All that is wanted, in the order of the input, and what cannot be had or read, known beforehand."""

    tier: str
    wanted: list[Wanted] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    damaged: Counter[str] = field(default_factory=Counter)
    entries: int = 0  # solver entries of the find-db that were read
    read: int = 0  # problems read

    def report(self, damage: Damage) -> None:
        """A finddb Report."""
        self.damaged[str(damage.reason)] += 1
        if len(self.damage) < 1000:
            self.damage.append(damage)


def from_find_db(path: Path, tier: str, solvers: SolverSet, only: Collection[str] | None = None) -> Plan:
    """The plan for the problems of a find-db; `only`: for those of them.

    KdbtoolError where it is none. What the MIOpen with these solvers would crash on is left out, said.
    """
    plan = Plan(tier)
    seen: set[str] = set()
    for record in finddb.read(path, plan.report):
        if record.key in seen or (only is not None and record.key not in only):
            continue
        seen.add(record.key)
        plan.read += 1
        _add_record(plan, record, solvers)
    for key in only or ():
        if key not in seen:
            plan.failures.append(Failure(key, "", Why.NO_SOLUTION, "not in the find-db"))
    return plan


def from_problems(keys: Iterable[str], tier: str) -> Plan:
    """The plan for problems by their keys, each once; of the tiers that need no find-db."""
    plan = Plan(tier)
    for key in dict.fromkeys(keys):
        plan.read += 1
        _add(plan, Wanted(key, FIND), parse_problem(key))
    return plan


def _add_record(plan: Plan, record: FindRecord, solvers: SolverSet) -> None:
    if plan.tier not in OF_FIND_DB:
        _add(plan, Wanted(record.key, FIND), record.problem)
        return
    left: list[FindSolution] = []
    for solution in record.solvers:
        plan.entries += 1
        why = prune.judge(solution, solvers, True)
        if why is None and solution.solver not in solver_ids():
            why = prune.Why.UNKNOWN
        if why is None:
            left.append(solution)
        else:
            plan.failures.append(Failure(record.key, solution.solver, Why(why)))
    if not left:
        plan.failures.append(Failure(record.key, "", Why.NO_SOLUTION))
        return
    if plan.tier == OFFERED:
        text = ";".join(finddb.format_item(finddb.to_current(s)) for s in left)
        _add(plan, Wanted(record.key, ASK_OFFERED, record=f"{record.key}={text}"), record.problem)
        return
    if plan.tier == BEST:
        # MIOpen sorts by time and takes the first (src/ocl/convolutionocl.cpp GetSolutions).
        left = [min(left, key=lambda s: s.milliseconds)]
    _add(plan, Wanted(record.key, IDS, tuple(s.solver for s in left)[:MAX_IDS]), record.problem)


def company_of(problem: Problem) -> int:
    """Which problems may share a process, so that each asks for what it would ask for as the first one.

    ConvOclBwdWrW53 keeps the read unit of the first problem that a process puts to it in a static variable,
    and uses it for all others (src/solver/conv_ocl_dir2D_bwdWrW_53.cpp GetSolution, MIOpen 2.15 to 3.5: by
    the width of x, whether 4, 3 or 2 divide it). So what a network asks for depends on its order; seen with
    3.4.0.
    """
    if problem.direction != "W" or problem.dimensions != 2:
        return 0
    width = problem.out_size[-1]
    return next((unit for unit in (4, 3, 2) if width % unit == 0), 1)


def _add(plan: Plan, wanted: Wanted, problem: Problem) -> None:
    try:
        check(problem)
    except Unspeakable as reason:
        plan.failures.append(Failure(wanted.key, "", Why.UNSPEAKABLE, str(reason)))
        return
    plan.wanted.append(wanted._replace(company=company_of(problem)))
