"""What traces know of a kernel beside its key: launches, seconds of compiling, the size of its object.

A look-up and the object that it led to are joined by thread and time: MIOpen loads the object on the thread
that asked, before that thread asks again (src/hip/handlehip.cpp `LoadProgram`, src/hipoc/hipoc_program.cpp;
seen with 3.4.0). Behind a hit that is the next load; behind a miss the next load after a compile of that
source. What is loaded otherwise (rocBLAS; a process whose look-ups cannot be seen; a later part of a trace)
is known by its MD5 alone, and takes the keys that another load or a kernel database has for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kdbtool.inputs import Input, arch_of, bare_arch
from kdbtool.manifest.model import Key
from kdbtool.miopen.keys import collapse, source_of, split_arch
from kdbtool.shim.trace_model import Compile, Lookup, Module

if TYPE_CHECKING:
    from kdbtool.shim.trace_model import Trace

Kernel = tuple[bytes, bytes, str]  # name, arguments with the data type list once, arch
Object = tuple[str, str]  # arch ("" not known), MD5


def kernel_of(name: bytes, args: bytes, arch: str) -> Kernel:
    """What the spellings of one key have in common: they are one compilation."""
    split = split_arch(args)
    options = split[0] if split else args
    return name, collapse(options) + args[len(options) :], arch or arch_of(args)


def of_key(key: Key) -> Kernel:
    """`kernel_of` a key."""
    return kernel_of(key.name, key.args, key.arch)


@dataclass
class Use:
    """`size`: bytes of the largest object that was loaded, 0 for none seen. `timed`: compiles in `ns`."""

    launches: int = 0
    ns: int = 0
    timed: int = 0
    size: int = 0

    def add(self, other: Use) -> None:
        """Sum, and the larger size."""
        self.launches += other.launches
        self.ns += other.ns
        self.timed += other.timed
        self.size = max(self.size, other.size)


@dataclass
class _Ask:
    """A look-up that missed, and the load behind it, which a compiler's process may have made."""

    kernel: Kernel
    source: str
    words: frozenset[str]
    begin_ns: int
    end_ns: int
    object: Object
    use: Use
    compiler: Compile | None = None


@dataclass
class Usage:
    """Sums over traces; `finish` once all are in."""

    kernels: dict[Kernel, Use] = field(default_factory=dict)
    asked: set[Kernel] = field(default_factory=set)
    launches: int = 0  # all that the traces hold, of whatever kernel
    traces: int = 0
    packed: dict[Kernel, int] = field(default_factory=dict)  # bytes as a kernel database stores the object
    _loose: dict[Object, Use] = field(default_factory=dict)
    _named: dict[Object, set[Kernel]] = field(default_factory=dict)
    _misses: dict[tuple[str, int], list[_Ask]] = field(default_factory=dict)
    _drivers: list[tuple[str, Compile]] = field(default_factory=list)

    @property
    def used(self) -> set[Kernel]:
        """Kernels that were looked up, or whose object was loaded."""
        return self.asked | set(self.kernels)

    @property
    def timed(self) -> bool:
        """Whether the time of any compile is known."""
        return any(use.timed for use in self.kernels.values())

    def add(self, trace: Trace) -> None:
        """One more trace, of a program or of a compiler that one started."""
        self.traces += 1
        if trace.facts.role == "compiler":
            self._drivers += [(trace.facts.host, one) for one in trace.compiles[:1]]
            return
        self.launches += len(trace.launches)
        arch = bare_arch(trace.facts.device or "")
        self.asked |= {kernel_of(one.name, one.args, arch) for one in trace.lookups}
        counts: dict[Module, int] = {}
        for shape, count in trace.launches.by_shape().items():
            module = trace.launches.shapes[shape][1] if shape in trace.launches.shapes else None
            if module is not None:
                counts[module] = counts.get(module, 0) + count
        for module, lookup, compiles in _loads(trace):
            of = bare_arch(module.target or "") or arch, module.md5
            use = Use(counts.get(module, 0), size=module.size)
            if lookup is None:
                self._loose.setdefault(of, Use()).add(use)
                continue
            kernel = kernel_of(lookup.name, lookup.args, arch)
            if lookup.hit:
                self._give(kernel, of, use)
                continue
            source = source_of(lookup.name) or ""
            words = frozenset(lookup.args.decode("latin-1").split())
            ask = _Ask(kernel, source, words, lookup.time_ns, module.time_ns, of, use)
            if any(one.name == source for one in compiles):
                self._compiled(ask, compiles)
            else:
                self._misses.setdefault((trace.facts.host, trace.facts.pid), []).append(ask)

    def add_input(self, source: Input) -> None:
        """Traces, and of a kernel database the sizes and hashes of its rows; no blob is read."""
        for trace in source.traces:
            self.add(trace)
        for row in source.kdb or ():
            kernel = kernel_of(row.name, row.args, source.archs[0] if source.archs else arch_of(row.args))
            self.packed[kernel] = max(row.blob_size, self.packed.get(kernel, 0))
            for arch in (kernel[2], ""):
                self._named.setdefault((arch, row.hash), set()).add(kernel)

    def learn(self, other: Usage) -> None:
        """Whose objects are known from `other`."""
        for of, kernels in other._named.items():
            self._named.setdefault(of, set()).update(kernels)

    def finish(self) -> None:
        """Join compilers with those who started them, and loads without a look-up with keys."""
        for host, driver in self._drivers:
            asks = self._misses.get((host, driver.starter or 0), [])
            at = [ask for ask in asks if ask.begin_ns <= driver.time_ns <= ask.end_ns]
            of = [ask for ask in at if ask.source == driver.name and ask.compiler is None]
            if len(of) > 1:  # several threads compile this source at a time
                of = [ask for ask in of if _defines(ask.words) <= set(driver.options)]
            if len(of) == 1:
                of[0].compiler = driver
        for ask in (ask for asks in self._misses.values() for ask in asks):
            if ask.compiler is not None:
                self._compiled(ask, [ask.compiler])
            else:
                self._loose.setdefault(ask.object, Use()).add(ask.use)
        for loose, use in self._loose.items():
            for kernel in self._named.get(loose, ()) if loose[1] else ():
                self.kernels.setdefault(kernel, Use()).add(use)
        self._drivers, self._misses, self._loose = [], {}, {}

    def _compiled(self, ask: _Ask, compiles: Iterable[Compile]) -> None:
        ns = sum(one.duration_ns for one in compiles if not one.nested)
        ask.use.add(Use(ns=ns, timed=int(ns > 0)))
        self._give(ask.kernel, ask.object, ask.use)

    def _give(self, kernel: Kernel, of: Object, use: Use) -> None:
        self.kernels.setdefault(kernel, Use()).add(use)
        if of[1]:
            self._named.setdefault(of, set()).add(kernel)


def _loads(trace: Trace) -> Iterator[tuple[Module, Lookup | None, list[Compile]]]:
    """Each object that was loaded, the look-up on its thread that it follows, and the compiles between."""
    events: list[tuple[int, int, int, Lookup | Compile | Module]] = []
    events += [(one.thread, one.time_ns, 0, one) for one in trace.lookups]
    events += [(one.thread, one.time_ns, 1, one) for one in trace.compiles]
    events += [(one.thread, one.time_ns, 2, one) for one in trace.modules]
    thread = -1
    lookup: Lookup | None = None
    compiles: list[Compile] = []
    for of, _, _, event in sorted(events, key=lambda one: one[:3]):
        if of != thread:
            thread, lookup, compiles = of, None, []
        if isinstance(event, Lookup):
            lookup, compiles = event, []
        elif isinstance(event, Compile):
            compiles.append(event)
        elif event.before:
            yield event, None, []
        elif event.result == 0 and event.source != "fatbin":
            yield event, lookup, compiles
            lookup, compiles = None, []


def _defines(words: Iterable[str]) -> set[str]:
    return {word for word in words if word.startswith("-D")}
