"""Mutated traces through everything that reads one: a report or one line, in bounded memory and time."""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Iterator
from pathlib import Path

from support import traces as make
from support.mutate import mutations, survives
from support.whole_trace import compiled, ranged, whole

from kdbtool.cli import main
from kdbtool.errors import KdbtoolError
from kdbtool.shim._trace import ffi, lib
from kdbtool.shim.trace import read_traces
from kdbtool.shim.trace_write import struct

COUNT = 5000
_RECORD = ffi.sizeof("struct kdbt_record")


def merged() -> bytes:
    first = bytearray(whole(0, clean=False))
    at = ffi.offsetof("struct kdbt_header", "section_bytes")
    first[at : at + 8] = len(first).to_bytes(8, "little")
    return bytes(first) + whole(1, part=1)


def sealed(data: bytes) -> bytes:
    """`data` with the checksums that its headers and records would have: the damage gets further in."""
    out, at = bytearray(data), 0
    base = ffi.from_buffer(out)
    while at + 4096 <= len(out):
        if out[at : at + 8] == b"KDBTRACE":
            header = ffi.cast("struct kdbt_header *", base + at)
            header.header_check = lib.kdbt_header_check(header)
        block = ffi.cast("struct kdbt_block *", base + at)
        if block.magic == lib.KDBT_BLOCK_MAGIC:
            block.check = lib.kdbt_block_check(block)
            place = at + ffi.sizeof("struct kdbt_block")
            while place + _RECORD <= min(at + 8192, len(out)):
                record = ffi.cast("struct kdbt_record *", base + place)
                if not _RECORD <= record.bytes <= len(out) - place:
                    break
                record.check = lib.kdbt_record_check(record, record.bytes)
                place += (record.bytes + 7) & ~7
        at += 4096
    return bytes(out)


def inputs(count: int, seed: int) -> Iterator[bytes]:
    for number, data in enumerate(mutations(merged(), count, seed)):
        yield sealed(data) if number % 2 else data


def run(*words: object) -> None:
    """A command: done, or one line of an error; a traceback comes out of it."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in words])
    assert code in (0, 1, 2)
    if code == 2:
        assert err.getvalue().count("\n") == 1, err.getvalue()
        raise KdbtoolError("refused")


def read_all(path: Path) -> None:
    for trace in read_traces(path):
        assert sum(trace.launches.by_kernel().values()) == sum(1 for _ in trace.launches)


def test_reader(tmp_path: Path) -> None:
    tally = survives(read_all, inputs(COUNT, 41), tmp_path / "m", ".kdbtrace")
    assert tally.accepted + tally.refused == COUNT and min(tally) > COUNT // 50


def test_commands(tmp_path: Path) -> None:
    def check(path: Path) -> None:
        run("trace", "info", path)
        run("trace", "list", path)
        run("trace", "merge", path, "-o", tmp_path / "out.kdbtrace", "--force")
        run("trace", "export", path, "-o", tmp_path / "out.sqlite", "--force")

    tally = survives(check, inputs(300, 42), tmp_path / "m", ".kdbtrace")
    assert tally.accepted > 100


def huge() -> bytes:
    """Many rows that name one text of 16 MB, and what was never closed."""
    text = b"x" * ((1 << 24) - 100)
    dictionary = make.record(lib.KDBT_DETAIL, text, id=10) + make.record(lib.KDBT_RANGE_NAME, text, id=20)
    call = make.record(lib.KDBT_CALL, struct("call", detail=10))
    rng = random.Random(1)
    ranges = b"".join(
        ranged(rng.choice((lib.KDBT_RANGE_PUSH, lib.KDBT_RANGE_START)), 20, i, 3000 + i)
        for i in range(20_000)
    )
    pops = b"".join(ranged(lib.KDBT_RANGE_POP, ticks=1) for _ in range(5000))
    records = compiled() * 50_000 + call * 5000 + pops + ranges
    shapes = make.kernel(6, b"k") + make.shape(7, 6)
    launches = make.launches(*[(7, 1)] * 1000, ticks=2000)
    return make.header() + make.block(dictionary, shapes, records, launches)


def test_much_of_one_huge_text_was_as_much_memory(tmp_path: Path) -> None:
    def check(path: Path) -> None:
        (trace,) = read_traces(path)
        assert (len(trace.calls), len(trace.compiles), len(trace.launches)) == (5000, 50_000, 1000)
        del trace
        run("trace", "info", path)
        run("trace", "export", path, "-o", tmp_path / "out.sqlite")

    survives(check, [huge()], tmp_path / "m", ".kdbtrace", seconds=60)
    assert (tmp_path / "out.sqlite").stat().st_size < 200 << 20
