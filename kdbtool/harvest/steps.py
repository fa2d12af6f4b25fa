"""What the driver wrote and the recorder saw, joined: which solver of which problem asked for which key.

The driver (csrc/harvest/driver.c) notes each step with the number of look-ups that were answered by then;
the trace has the look-ups in the same order.
"""

from __future__ import annotations

import functools
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kdbtool.errors import EXIT_PROBLEMS, KdbtoolError
from kdbtool.harvest.wanted import FIND, IDS, Failure, Wanted, Why
from kdbtool.miopen.solvers import solver_ids
from kdbtool.shim.trace import each_key, find_traces

FOUND_BY_FIND = "(Find)"  # the asker where MIOpen chose the solvers itself
_NOT_APPLICABLE = 3  # miopenStatusBadParm of "is not applicable to the current problem"
_NO_CASTS, _NO_MEMORY = -1, -2  # the driver's own
_STATUS = (
    "success",
    "not initialized",
    "invalid value",
    "bad parameter",
    "allocation failed",
    "internal error",
    "not implemented",
    "unknown error",
    "unsupported operation",
    "GPU operations skipped",
    "version mismatch",
)  # fmt: skip  miopenStatus_t of include/miopen/miopen.h

_KINDS = {"c": "CompileSolution", "x": "Immediate", "f": "Find", "g": "the call after Find"}

Key = tuple[bytes, bytes]  # name, arguments


@dataclass
class Found:
    """What a walk gave. `asked`: (place of the problem, solver, number of the key), sorted, each once."""

    keys: list[Key] = field(default_factory=list)
    asked: list[tuple[int, str, int]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    compilers: int = 0  # processes; none is expected
    miopen: str | None = None  # version of the library that answered
    build_id: str | None = None


def ended(code: int) -> str:
    """How a process ended, by subprocess's code."""
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


@dataclass(frozen=True)
class Step:
    place: int
    kind: str
    solver: int
    status: int
    before: int  # look-ups answered before it began
    count: int  # and when it had ended


class Steps:
    """What the driver wrote, line by line; a last line without its end was cut off by its death."""

    def __init__(self, text: str) -> None:
        self.steps: list[Step] = []
        self.ended: dict[int, int] = {}  # place -> status of its descriptors
        self.begun: list[int] = []
        self.count = 0
        for one in text.split("\n")[:-1]:
            match one.split(" "):
                case ["p", place]:
                    self.begun.append(int(place))
                case ["s", place, kind, solver, status, count]:
                    before, self.count = self.count, int(count)
                    self.steps.append(Step(int(place), kind, int(solver), int(status), before, self.count))
                case ["e", place, status, count]:
                    self.ended[int(place)], self.count = int(status), int(count)

    @property
    def broken(self) -> int | None:
        """The problem that was begun and did not end."""
        return self.begun[-1] if self.begun and self.begun[-1] not in self.ended else None


class Collector:
    """Joins steps with look-ups, over the processes of a walk."""

    def __init__(self, wanted: Sequence[Wanted]) -> None:
        self.wanted = wanted
        self.numbers: dict[Key, int] = {}
        self.asked: set[tuple[int, str, int]] = set()
        self.found = Found()
        self.status: dict[tuple[int, str], tuple[str, int]] = {}  # (place, solver) -> step and worst status
        self.left: dict[int, int] = {}  # solvers that are left of a problem which a process died of, by place

    def take(self, steps: Steps, traces: Path) -> None:
        """The look-ups of one process."""
        keys = self._keys(steps, traces)
        for step in steps.steps:
            solver = self._name(step)
            at = step.place, solver
            if step.kind != "o":
                before = self.status.get(at, (step.kind, 0))
                self.status[at] = before if before[1] else (step.kind, step.status)
            elif step.status:
                self._fail(step.place, "", Why.FAILED, f"GetSolution: {_status(step.status)}")
            for key in keys[step.before : step.count]:
                self._add(step.place, solver, key)
        if steps.broken is not None:  # what the step that never ended had asked for
            for key in keys[steps.count :]:
                self._add(steps.broken, self.culprit(steps, steps.broken)[0] or FOUND_BY_FIND, key)
        for place, status in steps.ended.items():
            if status:
                why = Why.MEMORY if status == _NO_MEMORY else Why.FAILED
                self._fail(place, "", why, f"its descriptors: {_status(status)}")

    def _keys(self, steps: Steps, traces: Path) -> list[Key]:
        keys: list[Key] = []
        for path in find_traces([traces]) if any(traces.iterdir()) else []:
            facts, asked = each_key(path)
            if facts.role == "compiler":
                self.found.compilers += 1
            elif asked:
                keys = asked
                self.found.miopen = facts.miopen_version or self.found.miopen
                self.found.build_id = facts.miopen_build_id or self.found.build_id
        if len(keys) < steps.count:
            raise KdbtoolError(
                "look-ups are missing from the recorder's trace",
                where=traces,
                why=f"{steps.count} were answered, {len(keys)} recorded",
                hint="is the disk or /dev/shm full?",
                exit_code=EXIT_PROBLEMS,
            )
        return keys

    def _add(self, place: int, solver: str, key: Key) -> None:
        self.asked.add((place, solver, self.numbers.setdefault(key, len(self.numbers))))

    def _name(self, step: Step) -> str:
        if self.wanted[step.place].action == FIND:
            return FOUND_BY_FIND
        return _names().get(step.solver, f"solver {step.solver}")

    def culprit(self, steps: Steps, place: int) -> tuple[str, int]:
        """(the solver that a broken problem was at, "" if that is not known; how many are done with it)."""
        one = self.wanted[place]
        if one.action != IDS:
            return "", 0
        done = sum(step.place == place for step in steps.steps)  # two steps a solver
        at = len(one.solvers) - self.left.get(place, len(one.solvers)) + done // 2
        return (one.solvers[at], at + 1) if at < len(one.solvers) else ("", at)

    def blame(
        self, steps: Steps, code: int, words: str, left: list[tuple[int, Wanted]]
    ) -> list[tuple[int, Wanted]]:
        """Name what the process died of; what is still to be done."""
        hung = code == -signal.SIGALRM
        detail = ended(code) if hung or not words else f"{ended(code)}: {words}"
        place = steps.broken
        again: list[tuple[int, Wanted]] = []
        if place is not None:
            solver, done = self.culprit(steps, place)
            self._fail(place, solver, Why.HUNG if hung else Why.CRASHED, detail)
            rest = self.wanted[place].solvers[done:] if solver else ()
            if rest:
                self.left[place] = len(rest)
                again.append((place, self.wanted[place]._replace(solvers=rest)))
        touched = set(steps.begun)
        return again + [(at, one) for at, one in left if at not in touched]

    def _fail(self, place: int, solver: str, why: Why, detail: str) -> None:
        self.found.failures.append(Failure(self.wanted[place].key, solver, why, detail))

    def done(self) -> Found:
        """Everything, in an order that depends on the problems alone."""
        dead = {(failure.key, failure.solver) for failure in self.found.failures}
        gave = {(place, solver) for place, solver, _ in self.asked}
        for (place, solver), (kind, status) in self.status.items():
            if (self.wanted[place].key, solver) in dead:
                continue
            if status == _NOT_APPLICABLE and self.wanted[place].action == IDS:
                self._fail(place, solver, Why.NOT_APPLICABLE, "")
            elif status == _NO_MEMORY:
                self._fail(place, solver, Why.MEMORY, "")
            elif status:
                self._fail(place, solver, Why.FAILED, f"{_KINDS.get(kind, kind)}: {_status(status)}")
            elif (place, solver) not in gave:
                self._fail(place, solver, Why.NO_KERNEL, "")
        self.found.failures.sort()
        order = sorted(self.numbers)
        new = {self.numbers[key]: number for number, key in enumerate(order)}
        self.found.keys = order
        self.found.asked = sorted((place, solver, new[number]) for place, solver, number in self.asked)
        return self.found


def _status(status: int) -> str:
    if status < 0:
        own = {_NO_CASTS: "this MIOpen has no cast types", _NO_MEMORY: "no device memory for it"}
        return own.get(status, str(status))
    return _STATUS[status] if status < len(_STATUS) else f"status {status}"


@functools.cache
def _names() -> dict[int, str]:
    return {number: name for name, number in solver_ids().items()}
