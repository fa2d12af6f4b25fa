"""What a trace says, as Python sees it. Times are nanoseconds of Unix time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Lookup:
    """MIOpen asked for a kernel. `hit`: a database gave a row; None: it was never answered."""

    name: bytes
    args: bytes
    hit: bool | None
    databases: tuple[str, ...]  # files, in the order they were asked
    thread: int
    time_ns: int


@dataclass(frozen=True)
class Problem:
    """A call with a convolution. `key` is MIOpen's find-db key, `direction` its letter (F, B, W)."""

    key: str
    api: str
    direction: str
    algorithm: int | None
    solution: int | None
    workspace: int
    result: int  # miopenStatus_t
    thread: int
    time_ns: int
    duration_ns: int


@dataclass(frozen=True)
class Module:
    """A code object that HIP loaded. `md5` is "" where it could not be read (or a fat binary)."""

    md5: str
    size: int
    source: str  # "memory", "file", "fatbin"
    target: str | None  # "gfx906:sramecc+:xnack-"
    result: int  # hipError_t
    thread: int
    time_ns: int
    duration_ns: int


@dataclass(frozen=True)
class Launch:
    """One launch. `grid` is in work-groups, `block` in work-items; `form` says by which call."""

    kernel: str
    module: Module | None
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    lds: int
    device: int
    stream: int
    form: str  # "module", "ext", "cooperative", "host"
    thread: int
    time_ns: int


Triple = tuple[int, int, int]
Shape = tuple[str, Module | None, Triple, Triple, int, int, int, str]


class Clock:
    """Ticks to Unix time, by the two points (ticks, monotonic ns) of the widest span in the trace.

    `shift`: a launch's delta counts 1 << shift ticks. `unix`: Unix time minus monotonic time, ns.
    """

    def __init__(self, shift: int, unix: int, points: list[tuple[int, int]]) -> None:
        self.shift, self._unix = min(shift, 32), unix
        first, last = min(points), max(points)
        ticks, ns = last[0] - first[0], last[1] - first[1]
        self._from, self._ticks, self._ns = first, ticks or 1, ns if ticks and ns > 0 else 1

    def span(self, ticks: int) -> int:
        """Nanoseconds of so many ticks."""
        return int(ticks * self._ns // self._ticks)

    def unix_ns(self, ticks: int) -> int:
        """Unix time of a tick count."""
        return int(self._unix + self._from[1] + self.span(ticks - self._from[0]))


class Launches:
    """All launches of a trace: `len`, iteration (by thread, in time order), counts per kernel.

    Kept as the trace has them, 8 bytes each; a `Launch` is made when it is asked for.
    """

    def __init__(
        self, shapes: dict[int, Shape], runs: list[tuple[int, int, memoryview]], clock: Clock
    ) -> None:
        self._shapes, self._runs, self._clock = shapes, runs, clock

    def __len__(self) -> int:
        return sum(len(run) // 2 for _, _, run in self._runs)

    def __iter__(self) -> Iterator[Launch]:
        unknown: Shape = ("", None, (0, 0, 0), (0, 0, 0), 0, 0, 0, "")
        for thread, ticks, run in self._runs:
            for i in range(0, len(run), 2):
                ticks += run[i + 1] << self._clock.shift
                yield Launch(*self._shapes.get(run[i], unknown), thread, self._clock.unix_ns(ticks))

    def by_kernel(self) -> dict[str, int]:
        """Launches per kernel name."""
        counts: dict[str, int] = {}
        for _, _, run in self._runs:
            for shape in run[::2].tolist():
                name = self._shapes[shape][0] if shape in self._shapes else ""
                counts[name] = counts.get(name, 0) + 1
        return counts


@dataclass(frozen=True)
class Facts:
    """What is known of the process. Empty or None: not seen."""

    pid: int
    ppid: int
    host: str
    exe: str  # base name
    role: str  # "host", "compiler", "frontend", "linker", "bundler", "wrapper"
    start_ns: int
    miopen_version: str | None
    miopen_path: str | None
    miopen_build_id: str | None
    hip_version: str | None
    hip_path: str | None
    device: str | None  # gcnArchName of the first device asked about
    cu: int | None
    simulated: bool
    overrides: dict[str, str]  # environment switches of the published list
    rank: int | None
    all: dict[str, str]  # every fact as it stands in the trace


@dataclass
class Trace:
    """One process, as read."""

    path: Path
    facts: Facts
    lookups: list[Lookup] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    modules: list[Module] = field(default_factory=list)
    launches: Launches = field(default_factory=lambda: Launches({}, [], Clock(0, 0, [(0, 0)])))
    notes: list[str] = field(default_factory=list)
