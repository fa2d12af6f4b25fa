"""Traces of processes that look kernels up, compile, load and launch them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support import traces

from kdbtool.kdb.blob import md5
from kdbtool.shim._trace import lib


def asked(number: int, name: bytes, args: bytes, *, hit: bool, at: int) -> list[bytes]:
    return [
        traces.key(number, name, args),
        traces.statement(number + 1, number, 9, ticks=at),
        traces.step(number + 1, 100 if hit else 101),
    ]


def loaded(number: int, data: bytes, launches: int, *, at: int, before: bool = False) -> list[bytes]:
    source = lib.KDBT_FROM_MEMORY + (lib.KDBT_FROM_BEFORE if before else 0)
    module = traces.struct("module", md5=bytes.fromhex(md5(data)), size=len(data), source=source)
    return [
        traces.record(lib.KDBT_MODULE, module, id=number, ticks=at),
        traces.kernel(number + 1, b"kernel", number),
        traces.shape(number + 2, number + 1),
        traces.launches(*[(number + 2, 0)] * launches, ticks=at),
    ]


def compiled(name: bytes, options: bytes = b"", *, at: int, **fields: Any) -> bytes:
    known = {"by": lib.KDBT_BY_HIPRTC, "name_bytes": len(name), "option_bytes": len(options)} | fields
    return traces.record(
        lib.KDBT_COMPILE, traces.struct("compile", **known) + name + options, id=90, ticks=at
    )


def program(path: Path, *records: bytes | list[bytes], **header: Any) -> Path:
    """A process on gfx1030; threads of one block each are told apart by lists."""
    device = traces.record(lib.KDBT_FACT, traces.pair(b"device.0", b"gfx1030"))
    clock = traces.record(lib.KDBT_CLOCK, traces.struct("clock", ns=1_000_000), ticks=1_000_000)
    first = [device, clock, traces.database(9, b"/x.kdb")]
    blocks = [traces.block(*first, *(r for r in records if isinstance(r, bytes)))]
    threads = [r for r in records if isinstance(r, list)]
    blocks += [traces.block(*some, thread=2 + n) for n, some in enumerate(threads)]
    traces.read(path, traces.header(**header), *blocks)
    return path


def driver(path: Path, name: bytes, options: bytes = b"", *, at: int, took: int, starter: int = 100) -> Path:
    """The process of a compiler that began at `at`."""
    traces.read(
        path,
        traces.header(
            pid=starter + 7,
            role=lib.KDBT_ROLE_COMPILER,
            start_ns=at,
            start_ticks=at,
            start_realtime_ns=1_000_000_000_000 + at,
        ),
        traces.block(
            traces.record(lib.KDBT_CLOCK, traces.struct("clock", ns=1_000_000), ticks=1_000_000),
            compiled(name, options, at=at, by=lib.KDBT_BY_PROCESS, starter=starter),
            traces.record(lib.KDBT_EXIT, traces.struct("exit", code=0, duration=took), ticks=at + took),
        ),
    )
    return path
