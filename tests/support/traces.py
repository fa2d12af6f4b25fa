"""Makes trace files by hand, of the structs that the recorder writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kdbtool.shim._trace import ffi, lib
from kdbtool.shim.trace import Trace, read_trace

ALIGN = int(lib.KDBT_BLOCK_ALIGN)


def struct(name: str, **fields: Any) -> bytes:
    """One struct kdbt_NAME as bytes."""
    made = ffi.new(f"struct kdbt_{name} *", fields)
    return bytes(ffi.buffer(made))


def header(**changes: Any) -> bytes:
    """A header page. `header_check` is right for the changed fields, unless it is one of them."""
    fields = {
        "magic": b"KDBTRACE",
        "version": lib.KDBT_VERSION,
        "byte_order": lib.KDBT_BYTE_ORDER,
        "header_bytes": lib.KDBT_HEADER_BYTES,
        "pid": 100,
        "ppid": 99,
        "clock": lib.KDBT_CLOCK_NANOSECONDS,
        "tick_shift": lib.KDBT_TICK_SHIFT,
        "load_ns": 1000,
        "load_ticks": 1000,
        "start_ns": 2000,
        "start_ticks": 2000,
        "start_realtime_ns": 1_000_000_002_000,
        "host": b"node",
        "exe": b"python3",
    } | changes
    made = ffi.new("struct kdbt_header *", fields)
    if "header_check" not in changes:
        made.header_check = lib.kdbt_header_check(made)
    return bytes(ffi.buffer(made)).ljust(int(lib.KDBT_HEADER_BYTES), b"\0")


def record(
    kind: int, payload: bytes = b"", *, id: int = 0, ticks: int = 3000, open_run: bool = False
) -> bytes:
    """A record with its check, padded to 8."""
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
    size = -(-(ffi.sizeof("struct kdbt_block") + len(body) + room) // ALIGN) * ALIGN
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
    return struct("pair", name_bytes=len(name), value_bytes=len(value)) + name + value


def key(id: int, name: bytes, args: bytes) -> bytes:
    return record(lib.KDBT_KEY, pair(name, args), id=id)


def database(id: int, path: bytes) -> bytes:
    return record(lib.KDBT_DATABASE, path, id=id)


def statement(id: int, key: int, database: int, ticks: int = 3000) -> bytes:
    return record(lib.KDBT_STATEMENT, struct("statement", key=key, database=database), id=id, ticks=ticks)


def step(statement: int, result: int) -> bytes:
    return record(lib.KDBT_STEP, struct("step", statement=statement, result=result))


def launches(*pairs: tuple[int, int], ticks: int = 3000, open_run: bool = False) -> bytes:
    data = b"".join(struct("launch", shape=s, delta=d) for s, d in pairs)
    return record(lib.KDBT_LAUNCHES, data, ticks=ticks, open_run=open_run)


def kernel(id: int, name: bytes, module: int = 0) -> bytes:
    return record(lib.KDBT_KERNEL, struct("kernel", module=module) + name, id=id)


def shape(id: int, kernel: int, **fields: Any) -> bytes:
    fields = {"form": lib.KDBT_LAUNCH_MODULE, "grid": [1, 1, 1], "block": [64, 1, 1]} | fields
    return record(lib.KDBT_SHAPE, struct("shape", kernel=kernel, **fields), id=id)


def read(path: Path, *parts: bytes) -> Trace:
    """What the reader makes of a file of these parts."""
    path.write_bytes(b"".join(parts))
    return read_trace(path)
