"""Writes a trace file (docs/trace-format.md) of what `kdbtool.miopen.logs` read from a log.

Facts, look-ups and problems; modules and launches no log tells. `read_trace` of the file gives the
same facts, look-ups and problems. Structs and checksums are the recorder's own (`_trace`); the records
are made here and in the tests by the same functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kdbtool.errors import KdbtoolError
from kdbtool.files import atomic_write
from kdbtool.shim._trace import ffi, lib
from kdbtool.shim.trace_model import Lookup, Problem, Trace

_ALIGN = int(lib.KDBT_BLOCK_ALIGN)
_BLOCK_ROOM = 1 << 20  # bytes of records after which a block ends
_ROW, _DONE = 100, 101  # SQLite's results of a step


def struct(name: str, /, **fields: Any) -> bytes:
    """One struct kdbt_NAME as bytes."""
    return bytes(ffi.buffer(ffi.new(f"struct kdbt_{name} *", fields)))


def header(**fields: Any) -> bytes:
    """The header's page; magic, version and sizes are filled in, `header_check` unless it is given."""
    made = ffi.new(
        "struct kdbt_header *",
        {
            "magic": b"KDBTRACE",
            "version": lib.KDBT_VERSION,
            "byte_order": lib.KDBT_BYTE_ORDER,
            "header_bytes": lib.KDBT_HEADER_BYTES,
            "clock": lib.KDBT_CLOCK_NANOSECONDS,
            "tick_shift": lib.KDBT_TICK_SHIFT,
        }
        | fields,
    )
    if "header_check" not in fields:
        made.header_check = lib.kdbt_header_check(made)
    return bytes(ffi.buffer(made)).ljust(int(lib.KDBT_HEADER_BYTES), b"\0")


def record(kind: int, payload: bytes = b"", *, id: int = 0, ticks: int = 0, open_run: bool = False) -> bytes:
    """A record with its check, padded to 8. `open_run`: launches that are still being added."""
    size = ffi.sizeof("struct kdbt_record") + len(payload)
    data = bytearray(struct("record", type=kind, bytes=0 if open_run else size, id=id, ticks=ticks) + payload)
    if not open_run:
        check = lib.kdbt_record_check(ffi.from_buffer(data), size)
        data[8:12] = ffi.buffer(ffi.new("uint32_t *", check))[:]
    return bytes(data) + bytes(-size % 8)


def block(
    *records: bytes, thread: int = 1, sequence: int = 0, committed: int | None = None, room: int = 0
) -> bytes:
    """A block of whole pages with these records."""
    body = b"".join(records)
    size = -(-(ffi.sizeof("struct kdbt_block") + len(body) + room) // _ALIGN) * _ALIGN
    made = ffi.new(
        "struct kdbt_block *",
        {
            "magic": lib.KDBT_BLOCK_MAGIC,
            "bytes": size,
            "thread": thread,
            "tid": 1000 + thread,
            "sequence": sequence,
            "committed": len(body) if committed is None else committed,
        },
    )
    made.check = lib.kdbt_block_check(made)
    return (bytes(ffi.buffer(made)) + body).ljust(size, b"\0")


def pair(name: bytes, value: bytes) -> bytes:
    """struct kdbt_pair and its two texts."""
    return struct("pair", name_bytes=len(name), value_bytes=len(value)) + name + value


def write_trace(path: Path, trace: Trace, *, force: bool = False) -> None:
    """`trace`'s facts, look-ups and problems become the file `path`, all or nothing, mode 0600.

    KdbtoolError for one with launches or other events: they would be lost.
    """
    others = trace.calls, trace.compiles, trace.graphs, trace.ranges, trace.samples, trace.gates
    if trace.modules or len(trace.launches) or any(others):
        raise KdbtoolError("cannot write a trace with launches", where=path, why="copy the file instead")
    with atomic_write(path, mode=0o600, force=force) as file:
        blocks = list(_blocks(trace))
        size = int(lib.KDBT_HEADER_BYTES) + sum(map(len, blocks))
        facts = trace.facts
        times = {"start_realtime_ns": facts.start_ns}
        names = {"host": _bounded(facts.host), "exe": _bounded(facts.exe)}
        file.write(header(pid=facts.pid, ppid=facts.ppid, file_bytes=size, **times, **names))
        file.writelines(blocks)


def _bounded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")[:63]


def _blocks(trace: Trace) -> Iterator[bytes]:
    """The records, block by block: a thread's in order, as many as fit."""
    made = _Records(trace)
    for thread in made.threads:
        sequence, size = 0, 0
        body: list[bytes] = []
        for one in made.of(thread):
            if body and size + len(one) > _BLOCK_ROOM:
                yield block(*body, thread=thread, sequence=sequence)
                sequence, body, size = sequence + 1, [], 0
            body.append(one)
            size += len(one)
        yield block(*body, thread=thread, sequence=sequence)


class _Records:
    """Records by thread. Ids are unique in the file; a dictionary record stands before its first use."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.start = trace.facts.start_ns
        self.last_id = 0
        self.ids: dict[tuple[int, bytes, bytes], int] = {}
        self.by_thread: dict[int, list[Lookup | Problem]] = {}
        events: list[Lookup | Problem] = [*trace.lookups, *trace.problems]
        for one in events:
            self.by_thread.setdefault(one.thread, []).append(one)
        self.threads = sorted(self.by_thread) or [1]

    def of(self, thread: int) -> Iterator[bytes]:
        if thread == self.threads[0]:
            for name, value in self.trace.facts.all.items():
                texts = (text.encode("utf-8", "surrogateescape") for text in (name, value))
                yield record(lib.KDBT_FACT, pair(*texts))
        for one in self.by_thread.get(thread, ()):
            yield from self._lookup(one) if isinstance(one, Lookup) else self._problem(one)

    def _lookup(self, lookup: Lookup) -> Iterator[bytes]:
        key = yield from self._named(lib.KDBT_KEY, lookup.name, lookup.args)
        places = lookup.databases or ("",)
        ticks = lookup.time_ns - self.start
        for place in places:
            database = 0
            if place:
                text = place.encode("utf-8", "surrogateescape")
                database = yield from self._named(lib.KDBT_DATABASE, text)
            self.last_id += 1
            asked = struct("statement", key=key, database=database)
            yield record(lib.KDBT_STATEMENT, asked, id=self.last_id, ticks=ticks)
            if lookup.hit is not None:
                result = _ROW if lookup.hit and place == places[-1] else _DONE
                yield record(
                    lib.KDBT_STEP, struct("step", statement=self.last_id, result=result), ticks=ticks
                )

    def _problem(self, problem: Problem) -> Iterator[bytes]:
        key = yield from self._named(lib.KDBT_PROBLEM_KEY, problem.key.encode("ascii"))
        api = yield from self._named(lib.KDBT_API, problem.api.encode("utf-8"))
        fields = struct(
            "problem",
            key=key,
            api=api,
            algorithm=-1 if problem.algorithm is None else problem.algorithm,
            result=problem.result,
            solution=problem.solution or 0,
            workspace=problem.workspace,
            duration=problem.duration_ns,
        )
        yield record(lib.KDBT_PROBLEM, fields, ticks=problem.time_ns - self.start)

    def _named(self, kind: int, first: bytes, second: bytes = b"") -> Any:
        """Yields the dictionary record where it is new; returns its id."""
        known = self.ids.get((kind, first, second))
        if known is not None:
            return known
        self.last_id += 1
        self.ids[kind, first, second] = self.last_id
        payload = pair(first, second) if kind == lib.KDBT_KEY else first
        yield record(kind, payload, id=self.last_id)
        return self.last_id
