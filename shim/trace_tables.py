"""Traces as tables (docs/trace-tables.md): which columns there are, and the rows of a trace.

A text that many rows may name (a kernel, arguments, descriptors) stands once in `texts`, and the rows have
its number: a trace can name one text of 16 MB a million times. Integers are 64 bits, signed; times that
no such number can say are the nearest that one can; other numbers beyond it are as their bits are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from kdbtool.shim.compiles import action_name
from kdbtool.shim.trace_model import Module, Shape, Trace
from kdbtool.shim.trace_regions import Regions

INTEGER, REAL, TEXT = "integer", "real", "text"
_LOW, _HIGH = -(1 << 63), (1 << 63) - 1
_AT = "process thread time_ns"
# Names of columns; those that end in `_` are texts, `.` real numbers, `@` numbers of rows in `texts`.
_COLUMNS = {
    "processes": "process path_ host_ pid ppid exe_ role_ start_ns rank ranks rank_local part unselected "
    "miopen_version_ hip_version_ device_ cu simulated notes_",
    "facts": "process name_ value_",
    "texts": "text value_",
    "launches": f"{_AT} shape range",
    "shapes": "shape process kernel@ module grid_x grid_y grid_z block_x block_y block_z lds device stream "
    "form_ captured launches",
    "kernels": "process kernel@ launches",
    "modules": f"module {_AT} duration_ns md5_ size source_ target_ result before",
    "lookups": f"{_AT} name@ args@ hit databases@",
    "problems": f"{_AT} duration_ns key@ api@ direction_ algorithm solution workspace result",
    "calls": f"{_AT} duration_ns api@ detail@ result nested",
    "compiles": f"{_AT} duration_ns by_ name_ options_ left_out result action action_name_ nested size "
    "starter exit_code",
    "graphs": f"{_AT} graph stream device kernels",
    "ranges": f"range {_AT} end_ns op_ name@ id",
    "samples": "process time_ns device sclk_mhz. mclk_mhz. power_w. temperature_c.",
    "gates": f"{_AT} open cause_",
}


class Column(NamedTuple):
    """`refers`: the number is of a row in `texts`."""

    name: str
    kind: str
    refers: bool = False


def _column(word: str) -> Column:
    kind = {"_": TEXT, ".": REAL}.get(word[-1], INTEGER)
    return Column(word.rstrip("_.@"), kind, word.endswith("@"))


TABLES = {name: tuple(map(_column, words.split())) for name, words in _COLUMNS.items()}
Row = tuple[Any, ...]


def escaped(text: str) -> str:
    """Text that any program can read: a backslash doubled, a byte that is no UTF-8 as \\xNN."""
    if text.isascii():
        return text.replace("\\", "\\\\") if "\\" in text else text
    raw = text.replace("\\", "\\\\").encode("utf-8", "surrogateescape")
    return raw.decode("utf-8", "backslashreplace")


def _time(ns: int) -> int:
    return min(max(ns, _LOW), _HIGH)


def _whole(number: int | None) -> int | None:
    return number if number is None or _LOW <= number <= _HIGH else (number - _LOW) % (1 << 64) + _LOW


class Tables:
    """Rows of one trace after another; numbers of rows go on from trace to trace."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {}
        self._fresh: list[Row] = []  # of `texts`, not yet given out
        self._process = self._shape = self._module = self._range = 0

    def rows(self, trace: Trace) -> Iterator[tuple[str, Iterable[Row]]]:
        """Tables with more rows; each is to be taken before the next. `texts` may come several times."""
        process = self._process
        self._process += 1
        yield "processes", [self._of_process(process, trace)]
        yield "facts", ((process, escaped(k), escaped(v)) for k, v in trace.facts.all.items())
        modules = self._modules(trace)
        yield "modules", self._module_rows(process, trace, modules)
        regions, first = Regions(trace.ranges), self._range
        self._range += len(trace.ranges)
        yield "ranges", self._ranges(process, trace, regions, first)
        shapes = self._shapes(trace)
        yield "shapes", self._shape_rows(process, trace, shapes, modules)
        kernels = sorted(trace.launches.by_kernel().items())
        yield "kernels", ((process, self.text(name), count) for name, count in kernels)
        yield "launches", self._launches(process, trace, shapes, regions, first)
        for table, events, row in (
            ("lookups", trace.lookups, self._lookup),
            ("problems", trace.problems, self._problem),
            ("calls", trace.calls, self._call),
            ("compiles", trace.compiles, lambda one: self._compile(trace, one)),
            ("graphs", trace.graphs, self._graph),
            ("gates", trace.gates, lambda one: (int(one.open), one.cause)),
        ):
            yield table, self._events(process, events, row)
        yield (
            "samples",
            (
                (process, _time(s.time_ns), s.device, s.sclk_mhz, s.mclk_mhz, s.power_w, s.temperature_c)
                for s in trace.samples
            ),
        )
        fresh, self._fresh = self._fresh, []
        yield "texts", fresh

    def text(self, text: str | bytes) -> int:
        """The number of a text."""
        if isinstance(text, bytes):
            text = text.decode("utf-8", "surrogateescape")
        number = self._texts.get(text)
        if number is None:
            number = self._texts[text] = len(self._texts)
            self._fresh.append((number, escaped(text)))
        return number

    def _of_process(self, process: int, trace: Trace) -> Row:
        f = trace.facts
        return (
            process, escaped(str(trace.path)), escaped(f.host), f.pid, f.ppid, escaped(f.exe), f.role,
            _time(f.start_ns), f.rank, f.ranks, f.rank_local, f.part, _whole(f.unselected),
            *(None if x is None else escaped(x) for x in (f.miopen_version, f.hip_version, f.device)),
            f.cu, int(f.simulated), escaped("\n".join(trace.notes)),
        )  # fmt: skip

    def _modules(self, trace: Trace) -> dict[int, tuple[int, Module]]:
        """By identity: those that were loaded, then fat binaries and others that only launches name."""
        found: dict[int, tuple[int, Module]] = {}
        used = (shape[1] for shape in trace.launches.shapes.values())
        for module in [*trace.modules, *(one for one in used if one is not None)]:
            if id(module) not in found:
                found[id(module)] = self._module, module
                self._module += 1
        return found

    def _module_rows(
        self, process: int, trace: Trace, modules: dict[int, tuple[int, Module]]
    ) -> Iterator[Row]:
        for number, m in modules.values():
            where = number, process, m.thread, _time(m.time_ns), _time(m.duration_ns)
            target = None if m.target is None else escaped(m.target)
            yield *where, m.md5 or None, _whole(m.size), m.source, target, m.result, int(m.before)

    def _ranges(self, process: int, trace: Trace, regions: Regions, first: int) -> Iterator[Row]:
        for number, r in enumerate(trace.ranges):
            end, name = regions.ends.get(number), self.text(r.name) if r.name else None
            ended = None if end is None else _time(end)
            yield first + number, process, r.thread, _time(r.time_ns), ended, r.op, name, _whole(r.id)

    def _shapes(self, trace: Trace) -> dict[int, int]:
        """Numbers of the trace's shapes; those that launches name and that are lost have one, too."""
        found = {}
        for shape in dict.fromkeys([*trace.launches.shapes, *sorted(trace.launches.by_shape())]):
            found[shape] = self._shape
            self._shape += 1
        return found

    def _shape_rows(
        self, process: int, trace: Trace, shapes: dict[int, int], modules: dict[int, tuple[int, Module]]
    ) -> Iterator[Row]:
        nobody: Shape = ("", None, (0, 0, 0), (0, 0, 0), 0, 0, 0, "unknown", False)
        counts = trace.launches.by_shape()
        for shape, number in shapes.items():
            name, module, grid, block, lds, device, stream, form, captured = trace.launches.shapes.get(
                shape, nobody
            )
            of = modules[id(module)][0] if module is not None else None
            place = lds, device, _whole(stream), form, int(captured), counts.get(shape, 0)
            yield number, process, self.text(name), of, *grid, *block, *place

    def _launches(
        self, process: int, trace: Trace, shapes: dict[int, int], regions: Regions, first: int
    ) -> Iterator[Row]:
        for thread, ids, times in trace.launches.columns():
            inside = regions.of(thread, times) if trace.ranges else [None] * len(times)
            if times and not _LOW <= times[0] <= times[-1] <= _HIGH:
                times = list(map(_time, times))
            for shape, time_ns, region in zip(ids, times, inside, strict=True):
                where = None if region is None else first + region
                yield process, thread, time_ns, shapes[shape], where

    def _events(self, process: int, events: Iterable[Any], row: Callable[[Any], Row]) -> Iterator[Row]:
        for one in events:
            yield process, one.thread, _time(one.time_ns), *row(one)

    def _lookup(self, one: Any) -> Row:
        files = self.text("\n".join(one.databases)) if one.databases else None
        return self.text(one.name), self.text(one.args), None if one.hit is None else int(one.hit), files

    def _problem(self, one: Any) -> Row:
        texts = self.text(one.key), self.text(one.api)
        numbers = one.algorithm, _whole(one.solution), _whole(one.workspace), one.result
        return _time(one.duration_ns), *texts, escaped(one.direction), *numbers

    def _call(self, one: Any) -> Row:
        detail = self.text(one.detail) if one.detail else None
        return _time(one.duration_ns), self.text(one.api), detail, one.result, int(one.nested)

    def _compile(self, trace: Trace, one: Any) -> Row:
        texts = one.by, escaped(one.name), escaped("\n".join(one.options))
        action = one.action, action_name(trace.facts, one)
        rest = int(one.nested), _whole(one.size), one.starter, one.exit_code
        return _time(one.duration_ns), *texts, one.left_out, one.result, *action, *rest

    def _graph(self, one: Any) -> Row:
        return _whole(one.graph), _whole(one.stream), one.device, one.kernels
