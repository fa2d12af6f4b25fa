"""The records of a trace file: bytes in, `Raw` records out, whatever the bytes are.

Lengths and offsets are checked before they are used; every record's checksum is computed by the
recorder's own C (`_trace`). What cannot be read is counted: `truncated` (the file ends within
records), `damaged` (a checksum or a length is wrong), `unknown` (a type of a newer recorder).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kdbtool.errors import KdbtoolError
from kdbtool.shim._trace import ffi, lib

_HEADER, _BLOCK, _RECORD = (ffi.sizeof(f"struct kdbt_{n}") for n in ("header", "block", "record"))
_LAUNCH = ffi.sizeof("struct kdbt_launch")
_MAGIC = b"KDBTRACE"
_BLOCK_MAGIC = int(lib.KDBT_BLOCK_MAGIC).to_bytes(4, sys.byteorder)


@dataclass(slots=True)
class Raw:
    """One record: which thread's, its id, its time, and where its payload lies."""

    type: int
    id: int
    ticks: int
    thread: int
    at: int
    bytes: int


class Reader:
    """Walks blocks and records of one file; hostile lengths end a block, never the program."""

    def __init__(self, path: Path, data: memoryview) -> None:
        self.path, self.data, self.size = path, data, len(data)
        self.base = ffi.from_buffer(data)
        self.truncated = self.damaged = self.unknown = 0
        self.header = self._header()
        self.threads: dict[int, list[tuple[int, list[Raw]]]] = {}

    @property
    def unselected(self) -> int:
        """Events that the selection left out."""
        if self.size < lib.KDBT_HEADER_BYTES:
            return int(self.header.unselected)
        groups = self.view("left_out", int(lib.KDBT_LEFT_OUT_AT)).events
        return sum(map(int, groups), int(self.header.unselected))

    def view(self, struct: str, at: int) -> Any:
        """A struct at a place that is known to hold one."""
        return ffi.cast(f"struct kdbt_{struct} *", self.base + at)

    def take(self, at: int, count: int) -> bytes:
        return bytes(self.data[at : at + count])

    def _header(self) -> Any:
        def bad(what: str, why: str | None = None) -> KdbtoolError:
            return KdbtoolError(what, where=self.path, why=why, hint="record again")

        if self.size < _HEADER or self.take(0, 8) != _MAGIC:
            short = self.size < _HEADER and _MAGIC.startswith(self.take(0, 8)[: self.size])
            raise bad("not a trace", "it is shorter than a header" if short else "no KDBTRACE at its begin")
        header = self.view("header", 0)
        order = int(header.byte_order)
        if order == int.from_bytes(int(lib.KDBT_BYTE_ORDER).to_bytes(4, "little"), "big"):
            raise bad("trace in the other byte order", "it was recorded on another kind of machine")
        if order == lib.KDBT_BYTE_ORDER and header.version != lib.KDBT_VERSION:
            raise bad(f"trace of version {header.version}", f"this kdbtool reads {lib.KDBT_VERSION}")
        if header.header_check != lib.kdbt_header_check(header):
            raise bad("damaged trace header", "its checksum does not match")
        if header.header_bytes != lib.KDBT_HEADER_BYTES:
            raise bad("damaged trace header", f"a header of {header.header_bytes} bytes")
        return header

    def read(self) -> None:
        """All blocks. A place without a block (claimed and never begun) is passed over."""
        at, align = int(self.header.header_bytes), int(lib.KDBT_BLOCK_ALIGN)
        if self.size < at:
            self.truncated += 1
        while at < self.size:
            if self.size - at < _BLOCK:
                self.truncated += 1
                return
            block = self.view("block", at)
            whole = int(block.bytes)
            if (
                block.magic == lib.KDBT_BLOCK_MAGIC
                and block.check == lib.kdbt_block_check(block)
                and whole >= align
                and whole % align == 0
            ):
                self._block(at, block)
                at += whole
                continue
            # Without magic and content it was being begun when the process ended: magic is stored last.
            if (block.magic or block.committed or block.closed) and any(self.take(at, _BLOCK)):
                self.damaged += 1
            at = self._next_block(at, align)

    def _next_block(self, at: int, align: int) -> int:
        # Not mmap.find, which reads beyond the end until Python 3.11.5 (gh-105235), and so crashes.
        for place in range(at - at % align + align, self.size, align):
            if self.take(place, len(_BLOCK_MAGIC)) == _BLOCK_MAGIC:
                return place
        return self.size

    def _block(self, at: int, block: Any) -> None:
        room = int(block.bytes) - _BLOCK
        committed = int(block.committed)
        if committed > room:
            self.damaged += 1
            committed = room
        start, here = at + _BLOCK, self.size - at - _BLOCK
        cut = here < committed
        records = self._records(start, min(committed, here), int(block.thread), cut, bool(block.closed))
        self.threads.setdefault(int(block.thread), []).append((int(block.sequence), records))

    def _records(self, start: int, committed: int, thread: int, cut: bool, closed: bool) -> list[Raw]:
        records: list[Raw] = []
        at, damaged = 0, self.damaged
        while committed - at >= _RECORD:
            record = self.view("record", start + at)
            kind, whole, left = int(record.type), int(record.bytes), committed - at
            if whole == 0 and kind == lib.KDBT_LAUNCHES:  # still being written: the rest of the block
                # It has no checksum. In a closed block it was never written; after a damaged length
                # it may be the inside of another record.
                whole = left - (left - _RECORD) % _LAUNCH
                if closed or self.damaged > damaged or record.id or record.reserved:
                    break
                if record.check and record.check != self._check_as_closed(start + at, whole):
                    break
                committed -= left - whole
            elif not _RECORD <= whole <= left:
                break
            elif record.check != lib.kdbt_record_check(record, whole):
                self.damaged += 1
                at += (whole + 7) & ~7
                continue
            if kind not in _SHORTEST:
                self.unknown += 1
            elif whole - _RECORD < _SHORTEST[kind]:
                self.damaged += 1
            else:
                payload = (start + at + _RECORD, whole - _RECORD)
                records.append(Raw(kind, int(record.id), int(record.ticks), thread, *payload))
            at += (whole + 7) & ~7
        if cut:
            self.truncated += 1
        elif at < committed:
            self.damaged += 1
        return records

    def _check_as_closed(self, at: int, whole: int) -> int:
        """The check of a run of launches whose writer stores its check, then its length: a kill may
        fall between the two."""
        data = ffi.from_buffer(bytearray(self.take(at, whole)))
        ffi.cast("struct kdbt_record *", data).bytes = whole
        return int(lib.kdbt_record_check(data, whole))


_SHORTEST = {
    int(getattr(lib, f"KDBT_{name}")): ffi.sizeof(f"struct kdbt_{struct}") if struct else 0
    for name, struct in {
        "FACT": "pair", "CLOCK": "clock", "DATABASE": "", "KEY": "pair", "STATEMENT": "statement",
        "STEP": "step", "API": "", "PROBLEM_KEY": "", "PROBLEM": "problem", "MODULE": "module",
        "KERNEL": "kernel", "SHAPE": "shape", "LAUNCHES": "", "CALL": "call", "DETAIL": "",
        "COMPILE": "compile", "EXIT": "exit", "GRAPH": "graph", "RANGE_NAME": "", "RANGE": "range",
        "SAMPLE": "sample", "GATE": "gate", "OUTPUT": "output",
    }.items()
}  # fmt: skip
