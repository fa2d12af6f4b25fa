"""A trace with every type of record, for tests that break it or read all of it."""

from __future__ import annotations

from typing import Any

from support import traces as make

from kdbtool.shim._trace import lib
from kdbtool.shim.trace_write import struct


def fact(name: str, value: str) -> bytes:
    return make.record(lib.KDBT_FACT, make.pair(name.encode(), value.encode("utf-8", "surrogateescape")))


def ranged(op: int, name: int = 0, id: int = 0, ticks: int = 3000) -> bytes:
    return make.record(lib.KDBT_RANGE, struct("range", op=op, name=name, id=id), ticks=ticks)


def compiled(name: bytes = b"a.cl", options: bytes = b"-O3\0-DX=1\0", **fields: Any) -> bytes:
    fields = {"by": lib.KDBT_BY_HIPRTC, "name_bytes": len(name), "option_bytes": len(options)} | fields
    return make.record(lib.KDBT_COMPILE, struct("compile", **fields) + name + options, id=30, ticks=3100)


def whole(rank: int = 0, ranks: int = 2, *, clean: bool = True, **head: Any) -> bytes:
    """Two threads; 5 launches of two kernels. Not `clean`: with a record of an unknown type, too."""
    first = make.block(
        fact("miopen.version", "3.4.0"), fact("device.0", "gfx1030"), fact("device.0.cu", "36"),
        fact("rank", str(rank)), fact("ranks", str(ranks)), fact("odd", "\udcff\\"),
        make.record(lib.KDBT_CLOCK, struct("clock", ns=9000), ticks=9000),
        make.database(1, b"/user.ukdb"), make.key(3, b"k.cl.o", b" -DA=1 -mcpu=gfx1030"),
        make.statement(4, 3, 1), make.step(4, 101),
        make.record(lib.KDBT_API, b"miopenConvolutionForward", id=8),
        make.record(lib.KDBT_PROBLEM_KEY, b"3-8-8-3x3-4-8-8-2-1x1-1x1-1x1-0-NCHW-FP32-F", id=9),
        make.record(lib.KDBT_PROBLEM, struct("problem", key=9, api=8, algorithm=1, solution=85)),
        make.record(lib.KDBT_DETAIL, b"x=1 y=2", id=10),
        make.record(lib.KDBT_CALL, struct("call", api=8, detail=10, result=3, duration=50), ticks=3050),
        make.record(
            lib.KDBT_MODULE,
            struct("module", size=100, source=1, md5=b"m" * 16, duration=9) + b"gfx1030",
            id=11,
        ),
        make.kernel(6, b"first", 11), make.shape(7, 6, stream=5),
        make.kernel(16, b"k\xff\\", 11), make.shape(17, 16),
        compiled(), make.record(lib.KDBT_OUTPUT, struct("output", compile=30, bytes=77)),
        make.record(lib.KDBT_EXIT, struct("exit", code=0, duration=5)),
        make.record(lib.KDBT_RANGE_NAME, b"epoch", id=20), make.record(lib.KDBT_RANGE_NAME, b"conv", id=21),
        ranged(lib.KDBT_RANGE_PUSH, 20, ticks=3200), ranged(lib.KDBT_RANGE_PUSH, 21, ticks=3300),
        make.launches((7, 0), ticks=3400), ranged(lib.KDBT_RANGE_POP, ticks=3500),
        make.launches((7, 0), (17, 1), ticks=3600), ranged(lib.KDBT_RANGE_POP, ticks=3700),
        ranged(lib.KDBT_RANGE_MARK, 21, ticks=3750), ranged(lib.KDBT_RANGE_START, 20, 99, ticks=3800),
        make.record(lib.KDBT_SAMPLE, struct("sample", device=0, valid=3, sclk_khz=2_000_000), ticks=3900),
        make.record(lib.KDBT_GATE, struct("gate", open=1, cause=2), ticks=3950),
        *(() if clean else (make.record(999, b"newer"),)),
    )  # fmt: skip
    second = make.block(
        make.launches((7, 0), (7, 10), ticks=3850),
        make.record(lib.KDBT_GRAPH, struct("graph", graph=1 << 63, kernels=4), ticks=4000),
        thread=2,
    )
    return make.header(pid=100 + rank, **head) + first + second
