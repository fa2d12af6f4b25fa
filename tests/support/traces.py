"""Makes trace files by hand, of the structs that the recorder writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kdbtool.shim import trace_write as write
from kdbtool.shim._trace import lib
from kdbtool.shim.trace import Trace, read_trace

ALIGN = int(lib.KDBT_BLOCK_ALIGN)
block, pair, struct = write.block, write.pair, write.struct


def header(**changes: Any) -> bytes:
    """A header page. `header_check` is right for the changed fields, unless it is one of them."""
    fields = {
        "pid": 100,
        "ppid": 99,
        "load_ns": 1000,
        "load_ticks": 1000,
        "start_ns": 2000,
        "start_ticks": 2000,
        "start_realtime_ns": 1_000_000_002_000,
        "host": b"node",
        "exe": b"python3",
    }
    return write.header(**fields | changes)


def record(
    kind: int, payload: bytes = b"", *, id: int = 0, ticks: int = 3000, open_run: bool = False
) -> bytes:
    """A record with its check, padded to 8."""
    return write.record(kind, payload, id=id, ticks=ticks, open_run=open_run)


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
