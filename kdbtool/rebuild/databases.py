"""A manifest's problems as MIOpen's other two databases: the find-db and the perf-db of one device.

Nothing but the problems that the manifest has solutions or tuned values of, in the order of AMD's own files:
lines by key, solutions of a line by time. The same manifest gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kdbtool import targets
from kdbtool.errors import KdbtoolError
from kdbtool.files import atomic_path, write_bytes
from kdbtool.manifest.conflicts import UNITS, Conflict, Said, differing
from kdbtool.manifest.model import Manifest, Problem, Solution
from kdbtool.miopen import finddb, perfdb, perfdb_sqlite, perfdb_text
from kdbtool.miopen.finddb import FindRecord, FindSolution
from kdbtool.miopen.perfkey import PerfRecord, config_of
from kdbtool.miopen.problemrows import find_text, perf_keys
from kdbtool.miopen.problems import parse_problem
from kdbtool.miopen.prune import reads_current_form
from kdbtool.miopen.versions import MiopenBuild
from kdbtool.targets import Target

FIND_DB = "HIP.fdb.txt"
PERF_DB = {perfdb.TEXT: "db.txt", perfdb.SQLITE: "db"}


@dataclass(frozen=True)
class Written:
    """One database: problems in it, and solutions or rows. `conflicts`: values that could not all be kept."""

    path: Path
    problems: int
    rows: int
    conflicts: list[Conflict] = field(default_factory=list)


def device_of(manifest: Manifest, asked: Target | None = None) -> Target:
    """The device that the databases are named after: `asked`, else the manifest's one arch with its units.

    KdbtoolError where the manifest is for several, or does not say how many units. What was tuned for other
    units is refused: MIOpen would take it for this device's own.
    """
    archs = manifest.archs
    arch = asked.arch if asked is not None else archs[0] if len(archs) == 1 else None
    if arch is None:
        why = f"it has {', '.join(archs)}" if archs else "it names no architecture"
        raise KdbtoolError("for which device?", where=manifest.path, why=why, hint="add --arch A:CU")
    if archs and arch not in archs:
        raise KdbtoolError(f"nothing for {arch}", where=manifest.path, why=f"it has {', '.join(archs)}")
    said = manifest.profile.get(f"{UNITS}.{arch}") or manifest.profile.get(UNITS)
    if said is None:
        if asked is None:
            why = "the manifest does not say how many units the device has"
            raise KdbtoolError(
                "for which device?", where=manifest.path, why=why, hint=f"add --arch {arch}:CU"
            )
        return asked
    if not (said.isascii() and said.isdecimal() and len(said) < 5):
        raise KdbtoolError(f"not a number of units: {said[:20]}", where=manifest.path)
    if asked is not None and asked.cu != int(said):
        raise KdbtoolError(
            f"for {arch} with {said} units, not {asked.cu}",
            where=manifest.path,
            why="its profile says so, and what is best on one device is not on another",
        )
    return asked if asked is not None else targets.with_cu(targets.load(arch), int(said), manifest.path)


def name_of(device: Target, kind: str) -> str:
    """`gfx1030_36.HIP.fdb.txt`; `kind`: FIND_DB or one of PERF_DB."""
    return f"{device.kdb_names[0]}.{kind}"


def perf_form(build: MiopenBuild) -> str:
    """`text` or `sqlite`: what a release reads unless it was built otherwise (text from ROCm 6.2 on)."""
    first = (*build.rocm.split("."), "0")[:2]
    if not all(part.isdecimal() for part in first):
        return perfdb.TEXT  # develop
    return perfdb.TEXT if tuple(map(int, first)) >= (6, 2) else perfdb.SQLITE


def write_find_db(path: Path, manifest: Manifest, build: MiopenBuild, *, force: bool = False) -> Written:
    """Write the find-db in the form that `build` reads, all or nothing."""
    current = reads_current_form(build)
    records = []
    for key, problem in sorted(manifest.problems.items()):
        if not problem.solutions:
            continue
        parsed = parse_problem(key)
        made = [
            _checked(manifest, key, problem, _formed(one, current), parsed.direction)
            for one in problem.solutions
        ]
        made.sort(key=lambda one: one.milliseconds)
        if len({one.solver for one in made}) < len(made):
            raise _bad(manifest, problem, f"{key}: a solver is named twice")
        records.append(FindRecord(0, key, parsed, tuple(made)))
    if not records:
        raise _nothing(manifest, "solutions")
    write_bytes(path, find_text(records), force=force)
    return Written(path, len(records), sum(len(record.solvers) for record in records))


def write_perf_db(path: Path, manifest: Manifest, form: str, *, force: bool = False) -> Written:
    """Write the perf-db as `form` (`text` or `sqlite`), all or nothing.

    Problems that share a perf-db key share its row; where their values differ, the first in C-locale order.
    """
    conflicts: list[Conflict] = []
    rows = list(_rows(manifest, conflicts))
    if not rows:
        raise _nothing(manifest, "tuned values")
    if form == perfdb.TEXT:
        write_bytes(path, b"".join(perfdb_text.render(rows)), force=force)
    else:
        with atomic_path(path, force=force) as temp:
            perfdb_sqlite.fill(temp, rows)
    return Written(path, len({row.key for row in rows}), len(rows), conflicts)


def _rows(manifest: Manifest, conflicts: list[Conflict]) -> Iterator[PerfRecord]:
    problems = manifest.problems
    for key, sharing in sorted(perf_keys(k for k, p in problems.items() if p.tuned).items()):
        config = config_of(parse_problem(sharing[0]))
        for solver in sorted({solver for name in sharing for solver in problems[name].tuned}):
            said = [
                Said(problems[name].tuned[solver], manifest.path, problems[name].note.line)
                for name in sharing
                if solver in problems[name].tuned
            ]
            values = min(one.value for one in said)
            conflict = differing(f"perf-db key {key}: tuned {solver}", said, f"took {values}")
            if conflict is not None:
                conflicts.append(conflict)
            row = PerfRecord(0, key, config, solver, values)
            if not solver or not perfdb_text.is_writable(row):
                raise _bad(manifest, problems[sharing[0]], f"{sharing[0]}: not a row of a perf-db")
            yield row


def _formed(one: Solution, current: bool) -> FindSolution:
    """In the form that is wanted. The two last fields of a legacy item are not used by any MIOpen."""
    if one.legacy is not current:
        return one
    if current:
        return finddb.to_current(one)
    return one._replace(legacy=True, tail=f",{one.algorithm},<unused>")


def _checked(manifest: Manifest, key: str, problem: Problem, one: FindSolution, way: str) -> FindSolution:
    """`one`, or KdbtoolError where a reader would take something else out of its text."""
    item = finddb.format_item(one)
    if "\n" in item or not item.isascii() or finddb.parse_item(item, way) != one:
        raise _bad(manifest, problem, f"{key}: not a solution: {item[:100]}")
    return one


def _bad(manifest: Manifest, problem: Problem, what: str) -> KdbtoolError:
    line = f" line {problem.note.line}" if problem.note.line else ""
    return KdbtoolError(what, where=f"{manifest.path}{line}")


def _nothing(manifest: Manifest, what: str) -> KdbtoolError:
    return KdbtoolError(
        f"no {what} in the manifest",
        where=manifest.path,
        why="none of its problems has any",
    )
