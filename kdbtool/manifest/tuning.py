"""Solutions and tuned values out of several inputs, joined with a manifest's problems by problem key.

They come from find-dbs and perf-dbs of a device that was measured, and from other manifests. The result does
not depend on the order of the inputs. Where they differ:

- the time of a solver: the shortest, then the smaller workspace (times of one card vary from run to run);
- the order of solutions: that of the line where all inputs have the same, else by time;
- tuned values of a solver: those that most inputs have, then the first in C-locale order.

Rows of two devices do not stand in one manifest: MIOpen's own files are for one. Files that are named are
refused then; what lies beside traces is left out, since nobody asked for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kdbtool import tuned
from kdbtool.errors import KdbtoolError, counted
from kdbtool.kdb.names import base_name, parse_name
from kdbtool.manifest.conflicts import Conflict, Said, differing
from kdbtool.manifest.model import Manifest, Problem, Solution
from kdbtool.miopen.finddb import to_current
from kdbtool.miopen.problemrows import find_rows, perf_keys, perf_rows
from kdbtool.miopen.problems import is_problem
from kdbtool.tuned import Copied

if TYPE_CHECKING:
    from kdbtool.shim.trace_model import Facts

Place = tuple[str, int]  # path, line


@dataclass
class Tuning:
    """What the inputs hold; `into` joins it."""

    solutions: dict[str, list[tuple[tuple[Solution, ...], Place]]] = field(default_factory=dict)
    tuned: dict[str, dict[str, list[Said]]] = field(default_factory=dict)  # by problem, by solver
    find_dbs: dict[Path, None] = field(default_factory=dict)
    perf_dbs: dict[Path, None] = field(default_factory=dict)
    copies: dict[Path, tuple[str | None, Copied]] = field(default_factory=dict)  # by trace, with its device
    devices: dict[str, Path] = field(default_factory=dict)  # gfx1030_36, and a file that says so
    notes: list[str] = field(default_factory=list)

    def add_manifest(self, manifest: Manifest) -> None:
        """Take what the manifest's problems have."""
        for key, problem in manifest.problems.items():
            self.add(key, problem, (manifest.path, problem.note.line))

    def add(self, key: str, problem: Problem, place: Place) -> None:
        """Take what an input says of one problem."""
        if problem.solutions:
            current = tuple(map(to_current, problem.solutions))
            self.solutions.setdefault(key, []).append((current, place))
        for solver, values in problem.tuned.items():
            self.tuned.setdefault(key, {}).setdefault(solver, []).append(Said(values, *place))

    def add_beside(self, trace: Path, facts: Facts) -> None:
        """Take the files that lie beside a trace. Of a simulated run none: its times are no measurements."""
        copies = tuned.beside(trace)
        if copies.find_db is None and copies.perf_db is None:
            return
        if tuned.is_measured(facts):
            self.copies[trace] = (tuned.device_of(facts), copies)
        else:
            self.notes.append(f"{trace}: what lies beside it is left out: the run was not on a real device")

    def add_find_db(self, path: Path) -> None:
        """Take a find-db; its name says whose it is, if any."""
        self._of_device(_device(path), path)
        self.find_dbs[path] = None

    def add_perf_db(self, path: Path) -> None:
        """Take a perf-db of either form; its name says whose it is, if any."""
        self._of_device(_device(path), path)
        self.perf_dbs[path] = None

    def _of_device(self, device: str | None, path: Path) -> None:
        """KdbtoolError for a second device."""
        if device is None or device in self.devices:
            return
        if self.devices:
            other, first = next(iter(self.devices.items()))
            raise KdbtoolError(
                f"tuned on {device}",
                where=path,
                why=f"{first} is of {other}, and what is best on one device is not on another",
                hint="make a manifest for each",
            )
        self.devices[device] = path

    def into(self, problems: Mapping[str, Problem]) -> list[Conflict]:
        """Read the files, and give each problem its solutions and tuned values; the conflicts, by problem.

        KdbtoolError for a file that is none of its kind. What is damaged in one is counted in `notes`.
        """
        keys = {key for key in problems if is_problem(key)}
        self._take_copies()
        for path in sorted(self.find_dbs):
            damaged: Counter[str] = Counter()
            for record in find_rows(path, keys, lambda d, to=damaged: to.update((d.reason,))):  # type: ignore[misc]
                self.add(record.key, Problem(solutions=list(record.solvers)), (str(path), record.line))
            self._count(path, damaged)
        shared = perf_keys(keys) if self.perf_dbs else {}
        for path in sorted(self.perf_dbs):
            damaged = Counter()
            for row in perf_rows(path, keys, lambda d, to=damaged: to.update((d.reason,))):  # type: ignore[misc]
                for key in shared[row.key]:
                    self.add(key, Problem(tuned={row.solver: row.params}), (str(path), row.line))
            self._count(path, damaged)
        found: list[Conflict] = []
        for key in sorted(problems):
            problem = problems[key]
            problem.solutions, times = _solutions(key, self.solutions.get(key, []))
            problem.tuned, values = _tuned(key, self.tuned.get(key, {}))
            found += times + values
        return found

    def _take_copies(self) -> None:
        devices = set(self.devices) or {device for device, _ in self.copies.values() if device is not None}
        if len(devices) > 1:
            several = " and ".join(sorted(devices))
            why = "what is best on one device is not on another"
            self.notes.append(f"what lies beside the traces is left out: it is of {several}, and {why}")
            return
        for trace, (device, copies) in sorted(self.copies.items()):
            if device not in devices:
                self.notes.append(
                    f"{trace}: what lies beside it is left out: it is of {device or 'no known device'}"
                )
                continue
            if copies.find_db is not None:
                self.find_dbs[copies.find_db] = None
            if copies.perf_db is not None:
                self.perf_dbs[copies.perf_db] = None

    def _count(self, path: Path, damaged: Counter[str]) -> None:
        if damaged:
            why = ", ".join(f"{count} {reason}" for reason, count in sorted(damaged.items()))
            self.notes.append(f"{path}: {counted(damaged.total(), 'damaged place')} passed over: {why}")


def _device(path: Path) -> str | None:
    name = parse_name(path)
    if name is None or name.cu is None:
        return None
    return base_name(name.arch, name.cu, xnack=name.xnack)


def _solutions(
    key: str, inputs: list[tuple[tuple[Solution, ...], Place]]
) -> tuple[list[Solution], list[Conflict]]:
    if len({solutions for solutions, _ in inputs}) < 2:
        return [*inputs[0][0]] if inputs else [], []
    said: dict[str, list[tuple[Solution, Place]]] = {}
    for solutions, place in inputs:
        for one in solutions:
            said.setdefault(one.solver, []).append((one, place))
    out, found = [], []
    for solver in sorted(said):
        best = min((one for one, _ in said[solver]), key=_rank)
        out.append(best)
        conflict = differing(
            f"problem {key}: solution {solver}",
            (Said(_shown(one), *place) for one, place in said[solver]),
            f"took {_shown(best)}",
        )
        if conflict is not None:
            found.append(conflict)
    return sorted(out, key=lambda one: (one.milliseconds, one.solver)), found


def _rank(one: Solution) -> tuple[float, int, str, str, str]:
    return one.milliseconds, one.workspace_bytes, one.time, one.algorithm, one.tail


def _shown(one: Solution) -> str:
    return f"{one.time} ms, {one.workspace} bytes, {one.algorithm}{one.tail}"


def _tuned(key: str, inputs: dict[str, list[Said]]) -> tuple[dict[str, str], list[Conflict]]:
    out, found = {}, []
    for solver in sorted(inputs):
        counts = Counter(one.value for one in inputs[solver])
        out[solver] = min(counts, key=lambda value: (-counts[value], value))
        conflict = differing(f"problem {key}: tuned {solver}", inputs[solver], f"took {out[solver]}")
        if conflict is not None:
            found.append(conflict)
    return out, found
