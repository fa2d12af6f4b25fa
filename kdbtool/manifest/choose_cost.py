"""What it costs that rows are not in a manifest: compiling that returns, problems that lose their best
kernel.

All of it is data, nothing is run: seconds are those that the traces saw, solvers and their times are a
find-db's, who needs which kernel is what a harvest wrote into the manifest, and which solvers a MIOpen has is
its list. A problem is *lost* where no solver of its record is left, *slower* where one is, behind the
fastest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kdbtool.manifest.choose_usage import Usage, of_key
from kdbtool.manifest.collect import Collected
from kdbtool.manifest.model import Key, Solution
from kdbtool.miopen import finddb
from kdbtool.miopen.classes import asm_class_of_solver
from kdbtool.miopen.solvers import SolverSet


@dataclass
class Loss:
    """Problems whose fastest solver cannot be had; `slower`: time of the next one by that of the fastest."""

    problems: int = 0  # looked at
    unknown: int = 0  # of the traces or manifests, with no record
    best: Counter[str] = field(default_factory=Counter)  # problems by the solver that they lose
    slower: list[float] = field(default_factory=list)
    without: list[str] = field(default_factory=list)  # problems that no solver of their record is left for

    def add(self, problem: str, solutions: Iterable[Solution], lost: Collection[str]) -> None:
        """One problem, of whose solvers these are lost."""
        self.problems += 1
        ranked = sorted(solutions, key=lambda one: (float(one.time), one.solver))
        if not ranked or ranked[0].solver not in lost:
            return
        self.best[ranked[0].solver] += 1
        left = [one for one in ranked if one.solver not in lost]
        if not left:
            self.without.append(problem)
        elif float(ranked[0].time) > 0:
            self.slower.append(float(left[0].time) / float(ranked[0].time))

    @property
    def median(self) -> float | None:
        """The middle one of `slower`."""
        return sorted(self.slower)[len(self.slower) // 2] if self.slower else None

    def as_json(self) -> dict[str, object]:
        """The same as one JSON object."""
        return {
            "problems": self.problems,
            "without_record": self.unknown,
            "lose_their_best": self.best.total(),
            "by_solver": dict(sorted(self.best.items(), key=lambda item: (-item[1], item[0]))),
            "next_best_times_as_long": None if self.median is None else round(self.median, 3),
            "without_a_solver": sorted(self.without),
            "basis": "find-db, manifest and solver list; not run",
        }


@dataclass
class Cost:
    """`kernels`: compilations that went; `timed` of them with a known compile time, `ns` in all."""

    kernels: int = 0
    timed: int = 0
    ns: int = 0
    launches: int = 0
    asked: Loss | None = None  # where the manifest says who asked
    assembly: Loss | None = None  # where assembly was dropped and solutions are known


def cost_of(gone: Iterable[Key], kept: Iterable[Key], usage: Usage) -> Cost:
    """Of the kernels that went with all their spellings."""
    there = {of_key(key) for key in kept}
    out = Cost()
    for kernel in {of_key(key) for key in gone} - there:
        use = usage.kernels.get(kernel)
        out.kernels += 1
        if use is not None:
            out.launches += use.launches
            out.timed += use.timed > 0
            out.ns += use.ns // max(use.timed, 1)  # once: the next run finds it in its cache
    return out


def read_solutions(path: Path, notes: list[str]) -> dict[str, list[Solution]]:
    """The records of a find-db by problem; damaged lines and items are counted in a note."""
    damaged = 0

    def count(damage: object) -> None:
        nonlocal damaged
        damaged += 1

    found = {record.key: list(record.solvers) for record in finddb.read(path, count)}
    if damaged:
        notes.append(f"{path}: {damaged} damaged lines or items of the find-db are not taken")
    return found


def known_solutions(
    collected: Collected, find_db: Mapping[str, list[Solution]]
) -> tuple[dict[str, list[Solution]], int]:
    """Solutions of the input's problems, or, if it has none, of all; and how many have no record."""
    if not collected.problems:
        return dict(find_db), 0
    found = {key: find_db.get(key) or problem.solutions for key, problem in collected.problems.items()}
    known = {key: solutions for key, solutions in found.items() if solutions}
    return known, len(found) - len(known)


def assembly_loss(
    solutions: Mapping[str, list[Solution]], classes: Collection[str] | None, has: SolverSet | None
) -> Loss:
    """What problems lose without assembly of these classes (None: any), among the solvers that it `has`."""
    out = Loss()
    for problem, some in solutions.items():
        real = [one for one in some if has is None or one.solver in has.usable]
        lost = {
            one.solver
            for one in real
            if (of := asm_class_of_solver(one.solver)) and (classes is None or of in classes)
        }
        out.add(problem, real, lost)
    return out


def asked_loss(
    collected: Collected, solutions: Mapping[str, list[Solution]], gone: Iterable[Key], kept: Iterable[Key]
) -> Loss | None:
    """What problems lose by the rows that went, where manifests say who asked; None where none does."""
    there = {of_key(key) for key in kept}
    lost: dict[str, set[str]] = {}
    asked = False
    went = {of_key(key) for key in gone} - there
    for manifest in collected.manifests:
        for key, askers in manifest.asked_by.items():
            asked = asked or bool(askers)
            if of_key(key) in went:
                for asker in askers:
                    lost.setdefault(asker.problem, set()).add(asker.solver)
    if not asked:
        return None
    out = Loss()
    for problem, solvers in sorted(lost.items()):
        if problem in solutions:
            out.add(problem, solutions[problem], solvers)
        else:
            out.problems += 1
            out.unknown += 1
    return out
