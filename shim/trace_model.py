"""What a trace says, as Python sees it. Times are nanoseconds of Unix time."""

from __future__ import annotations

from collections import Counter
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
    before: bool = False  # no load of its own: it was loaded before this part of the trace began


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
    captured: bool  # into a graph that is being captured: not run then
    thread: int
    time_ns: int


@dataclass(frozen=True)
class Call:
    """A call of a library's function that is no convolution with a find-db key."""

    api: str
    detail: str  # its descriptors, "name=value" by blanks; "" none
    result: int
    thread: int
    time_ns: int
    duration_ns: int
    nested: bool = False  # the library called it itself, inside another call


@dataclass(frozen=True)
class Compile:
    """A compile: by "process" (the trace is that process' own), "hiprtc" or "comgr"."""

    by: str
    name: str  # base name of the source
    options: tuple[str, ...]  # of the published list alone
    left_out: int  # options that are not on it
    result: int | None  # the library's; None: a process, see exit_code
    action: int  # COMGR's kind of action; 0 else
    nested: bool  # within another compile of this thread: hipRTC calls COMGR
    size: int  # bytes of what came out; 0 not known
    starter: int | None  # pid of the program with MIOpen that started the process
    exit_code: int | None  # None: no process, or it ended without a word
    thread: int
    time_ns: int
    duration_ns: int  # 0 not known


@dataclass(frozen=True)
class GraphLaunch:
    """A graph was launched; its kernels are not among the launches. `kernels` None: not known."""

    graph: int
    stream: int
    device: int
    kernels: int | None
    thread: int
    time_ns: int


@dataclass(frozen=True)
class Range:
    """ROCTx. `id` joins a start with its stop; a pop and a stop have no name."""

    op: str  # "push", "pop", "mark", "start", "stop"
    name: str
    id: int
    thread: int
    time_ns: int


@dataclass(frozen=True)
class Sample:
    """Clocks of a device at a moment; None: the driver did not say."""

    device: int
    sclk_mhz: float | None
    mclk_mhz: float | None
    power_w: float | None
    temperature_c: float | None
    time_ns: int


@dataclass(frozen=True)
class Gate:
    """Recording was paused (`open` False) or went on."""

    open: bool
    cause: str  # "start", "signal", "region"
    thread: int
    time_ns: int


Triple = tuple[int, int, int]
# kernel, module, grid, block, lds, device, stream, form, captured
Shape = tuple[str, Module | None, Triple, Triple, int, int, int, str, bool]
UNKNOWN_SHAPE: Shape = ("", None, (0, 0, 0), (0, 0, 0), 0, 0, 0, "", False)
Run = tuple[int, int, memoryview]  # thread, ticks, then shape and delta in turn
CHUNK = 65536  # launches that are unpacked at a time


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

    def __init__(self, shapes: dict[int, Shape], runs: list[Run], clock: Clock) -> None:
        self._shapes, self._runs, self._clock = shapes, runs, clock
        self._counts: Counter[int] | None = None

    @property
    def parts(self) -> tuple[dict[int, Shape], list[Run], Clock]:
        """Shapes by id; runs: thread, ticks, then shape and delta in turn; what the ticks are."""
        return self._shapes, self._runs, self._clock

    @property
    def shapes(self) -> dict[int, Shape]:
        """By id; a trace may lack some that its launches name."""
        return self._shapes

    def __len__(self) -> int:
        return sum(len(run) // 2 for _, _, run in self._runs)

    def __iter__(self) -> Iterator[Launch]:
        for thread, shapes, times in self.columns():
            for shape, time_ns in zip(shapes, times, strict=True):
                yield Launch(*self._shapes.get(shape, UNKNOWN_SHAPE), thread, time_ns)

    def columns(self) -> Iterator[tuple[int, list[int], list[int]]]:
        """The launches as pieces of columns: a thread, ids of shapes, times (ns, never falling in a piece).

        In the order of iteration, no more than CHUNK at a time: some 150 ns a launch.
        """
        for run in self._runs:
            yield from self._columns(run, CHUNK)

    def by_thread(self) -> dict[int, Iterator[tuple[int, int]]]:
        """The shape and time of each launch, by thread; all iterators may be open at once."""
        runs: dict[int, list[Run]] = {}
        for run in self._runs:
            runs.setdefault(run[0], []).append(run)
        return {thread: self._pairs(some) for thread, some in runs.items()}

    def _pairs(self, runs: list[Run]) -> Iterator[tuple[int, int]]:
        for run in runs:
            for _, shapes, times in self._columns(run, 1024):
                yield from zip(shapes, times, strict=True)

    def _columns(self, run: Run, chunk: int) -> Iterator[tuple[int, list[int], list[int]]]:
        shift, at_ns = self._clock.shift, self._clock.unix_ns
        thread, ticks, pairs = run
        for begin in range(0, len(pairs), 2 * chunk):
            piece = pairs[begin : begin + 2 * chunk].tolist()
            times = []
            for delta in piece[1::2]:
                ticks += delta << shift
                times.append(at_ns(ticks))
            yield thread, piece[::2], times

    def last_ns(self) -> int | None:
        """Time of the last launch of all."""
        ends = []
        for _, ticks, run in self._runs:
            for begin in range(0, len(run), 2 * CHUNK):
                ticks += sum(run[begin + 1 : begin + 2 * CHUNK : 2].tolist()) << self._clock.shift
            ends.append(ticks)
        return self._clock.unix_ns(max(ends)) if ends else None

    def by_shape(self) -> Counter[int]:
        """Launches per id of a shape."""
        if self._counts is None:
            counts: Counter[int] = Counter()
            for _, _, run in self._runs:
                for begin in range(0, len(run), 2 * CHUNK):
                    counts.update(run[begin : begin + 2 * CHUNK : 2].tolist())
            self._counts = counts
        return self._counts

    def by_kernel(self) -> dict[str, int]:
        """Launches per kernel name."""
        counts: dict[str, int] = {}
        for shape, count in self.by_shape().items():
            name = self._shapes.get(shape, UNKNOWN_SHAPE)[0]
            counts[name] = counts.get(name, 0) + count
        return counts


@dataclass(frozen=True)
class Facts:
    """What is known of the process. Empty or None: not seen."""

    pid: int
    ppid: int
    host: str
    exe: str  # base name
    role: str  # "host", "compiler", "frontend", "linker", "bundler", "wrapper", "sampler"
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
    ranks: int | None = None  # how many there are, as the launcher said
    rank_local: int | None = None  # the rank within its node
    part: int = 0  # of a trace that was rotated: 0, 1, ...
    unselected: int = 0  # events that the selection left out


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
    calls: list[Call] = field(default_factory=list)
    compiles: list[Compile] = field(default_factory=list)
    graphs: list[GraphLaunch] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    gates: list[Gate] = field(default_factory=list)
