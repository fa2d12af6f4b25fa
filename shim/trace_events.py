"""The events of a trace that need nothing but their own record and a name: calls, compiles, graphs,
ranges, samples, gates.
"""

from __future__ import annotations

from kdbtool.shim._trace import ffi, lib
from kdbtool.shim.trace_assemble import Assembler
from kdbtool.shim.trace_file import Raw
from kdbtool.shim.trace_model import Call, Compile, Gate, GraphLaunch, Range, Sample

_COMPILERS = {lib.KDBT_BY_PROCESS: "process", lib.KDBT_BY_HIPRTC: "hiprtc", lib.KDBT_BY_COMGR: "comgr"}
_RANGE_OPS = {
    lib.KDBT_RANGE_PUSH: "push",
    lib.KDBT_RANGE_POP: "pop",
    lib.KDBT_RANGE_MARK: "mark",
    lib.KDBT_RANGE_START: "start",
    lib.KDBT_RANGE_STOP: "stop",
}
_CAUSES = {lib.KDBT_GATE_START: "start", lib.KDBT_GATE_SIGNAL: "signal", lib.KDBT_GATE_REGION: "region"}
_OPTION_BYTES = 1 << 16  # the recorder keeps half of it


class Events:
    """Of one process, each list by thread and in the order of the trace."""

    def __init__(self, made: Assembler) -> None:
        self.made, self.reader, self.clock = made, made.reader, made.clock

    def calls(self) -> list[Call]:
        found = []
        for r in self.made.all(lib.KDBT_CALL):
            c = self.reader.view("call", r.at)
            names = self.made.named(c.api), self.made.named(c.detail)
            when = self.clock.unix_ns(r.ticks), self.clock.span(c.duration)
            found.append(Call(*names, int(c.result), r.thread, *when, bool(c.nested)))
        return found

    def compiles(self) -> list[Compile]:
        """A process has one compile at most, and one exit."""
        ended = [self.reader.view("exit", r.at) for r in self.made.all(lib.KDBT_EXIT)]
        sizes: dict[int, int] = {}
        for r in self.made.all(lib.KDBT_OUTPUT):
            output = self.reader.view("output", r.at)
            sizes[output.compile] = max(sizes.get(output.compile, 0), int(output.bytes))
        found = [one for r in self.made.all(lib.KDBT_COMPILE) if (one := self._compile(r, ended, sizes))]
        self.made.unresolved += len(sizes.keys() - {r.id for r in self.made.all(lib.KDBT_COMPILE)})
        return found

    def _compile(self, r: Raw, ended: list[ffi.CData], sizes: dict[int, int]) -> Compile | None:
        c = self.reader.view("compile", r.at)
        at = r.at + ffi.sizeof("struct kdbt_compile")
        name, options = int(c.name_bytes), int(c.option_bytes)
        if name + options != r.bytes - ffi.sizeof("struct kdbt_compile") or options > _OPTION_BYTES:
            self.reader.damaged += 1
            return None
        texts = self.reader.take(at + name, options).decode("utf-8", "surrogateescape")
        if texts.startswith("\0") or "\0\0" in texts:  # no option is empty: a tuple of millions would be
            self.reader.damaged += 1
            return None
        process = c.by == lib.KDBT_BY_PROCESS
        end = ended[0] if process and ended else None
        return Compile(
            by=_COMPILERS.get(c.by, "unknown"),
            name=self.reader.take(at, name).decode("utf-8", "surrogateescape"),
            options=tuple(texts.removesuffix("\0").split("\0")) if texts else (),
            left_out=int(c.left_out),
            result=None if process else int(c.result),
            action=int(c.action),
            nested=bool(c.nested),
            size=int(c.bytes) or (sizes.get(r.id, 0) if r.id else 0),
            starter=int(c.starter) or None,
            exit_code=int(end.code) if end is not None else None,
            thread=r.thread,
            time_ns=self.clock.unix_ns(r.ticks),
            duration_ns=self.clock.span(end.duration if end is not None else c.duration),
        )

    def graphs(self) -> list[GraphLaunch]:
        found = []
        for r in self.made.all(lib.KDBT_GRAPH):
            g = self.reader.view("graph", r.at)
            kernels = int(g.kernels) if g.kernels >= 0 else None
            where = int(g.graph), int(g.stream), int(g.device)
            found.append(GraphLaunch(*where, kernels, r.thread, self.clock.unix_ns(r.ticks)))
        return found

    def ranges(self) -> list[Range]:
        found = []
        for r in self.made.all(lib.KDBT_RANGE):
            x = self.reader.view("range", r.at)
            op, name = _RANGE_OPS.get(x.op, "unknown"), self.made.named(x.name)
            found.append(Range(op, name, int(x.id), r.thread, self.clock.unix_ns(r.ticks)))
        return found

    def samples(self) -> list[Sample]:
        found = []
        for r in self.made.all(lib.KDBT_SAMPLE):
            s = self.reader.view("sample", r.at)
            values = (
                s.sclk_khz / 1e3 if s.valid & lib.KDBT_SAMPLED_SCLK else None,
                s.mclk_khz / 1e3 if s.valid & lib.KDBT_SAMPLED_MCLK else None,
                s.power_uw / 1e6 if s.valid & lib.KDBT_SAMPLED_POWER else None,
                s.temperature_mc / 1e3 if s.valid & lib.KDBT_SAMPLED_TEMPERATURE else None,
            )
            found.append(Sample(int(s.device), *values, self.clock.unix_ns(r.ticks)))
        return found

    def gates(self) -> list[Gate]:
        found = []
        for r in self.made.all(lib.KDBT_GATE):
            g = self.reader.view("gate", r.at)
            cause = _CAUSES.get(g.cause, "unknown")
            found.append(Gate(bool(g.open), cause, r.thread, self.clock.unix_ns(r.ticks)))
        return found
