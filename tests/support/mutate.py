"""Corrupted inputs made from good ones, and a judge of how a reader takes them.

`mutations` is deterministic by seed. `survives` reads each input in a forked child that is watched, so that
a hang, a crash, a traceback or a memory blow-up is one named failure and the input that did it is kept.
"""

from __future__ import annotations

import contextlib
import faulthandler
import mmap
import os
import random
import resource
import select
import signal
import struct
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

from kdbtool.errors import KdbtoolError

MAX_SECONDS = 10.0  # per input, wall clock
MAX_MEMORY = 500 << 20  # bytes that reading may add to the process
_ADDRESS_SPACE = 3 << 30  # the child gets no more, so that a blow-up does not take the machine with it
_GROWTH = 200_000  # at most what one mutation adds, bytes

Mutator = Callable[[bytearray, random.Random], None]


def mutations(data: bytes, count: int, seed: int) -> Iterator[bytes]:
    """`count` corrupted copies of `data`, the same for the same seed.

    Each has one to four of: bits flipped, a cut, ranges swapped, doubled, inserted, huge lengths written
    over fields of 1, 2, 4 or 8 bytes, deep nesting, NULs, invalid UTF-8; and where `data` is text, lines or
    numbers of it changed. Whole copies are made: keep `data` under some 100 KB, or 5,000 of them take long.
    """
    if not data:
        raise ValueError("nothing to mutate")
    rng = random.Random(seed)
    text = b"\0" not in data[:4096] and b"\n" in data
    for _ in range(count):
        out = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 4))):
            rng.choice(_LINES if text and rng.random() < 0.5 else _BYTES)(out, rng)
        yield bytes(out)


class Tally(NamedTuple):
    """How many inputs were read without a complaint and how many refused with a declared error."""

    accepted: int
    refused: int


class BadReader(AssertionError):
    """A reader did on some input what no reader may do; the message names the saved input."""


def survives(
    check: Callable[[Path], object],
    inputs: Iterable[bytes],
    folder: Path,
    suffix: str = "",
    *,
    errors: tuple[type[Exception], ...] = (KdbtoolError,),
    seconds: float = MAX_SECONDS,
    memory: int = MAX_MEMORY,
) -> Tally:
    """Give each of `inputs` as a file `folder/input<suffix>` to `check`; BadReader for the first to fail.

    Only `errors` may come out of `check`, within `seconds` and `memory`. Everything runs in one child
    process: what `check` appends to the test's own objects is lost.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shared = mmap.mmap(-1, 24)  # number of the input at work, how many were refused, whether all are done
    shared[:] = struct.pack("<qqq", -1, 0, 0)
    report = folder / "report.txt"
    child = os.fork()
    if child == 0:
        _child(check, inputs, folder / f"input{suffix}", report, shared, errors, memory)
    status = _watch(child, shared, seconds)
    number, refused, done = struct.unpack("<qqq", shared[:])
    if status == 0 and done:
        return Tally(number + 1 - refused, refused)
    bad = folder / f"bad-{number}{suffix}"
    with contextlib.suppress(FileNotFoundError):
        (folder / f"input{suffix}").replace(bad)
    if status is None:
        what = f"still at work after {seconds:g} s"
    elif os.WIFSIGNALED(status):
        what = f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    else:
        what = "failed" if status else "ended the process"
    detail = report.read_text(errors="backslashreplace") if report.exists() else ""
    raise BadReader(f"input {number}: {what}; saved as {bad}\n{detail}")


def _watch(child: int, shared: mmap.mmap, seconds: float) -> int | None:
    """The child's wait status; None when it took too long with one input and was killed."""
    gate = select.poll()
    handle = os.pidfd_open(child)
    gate.register(handle, select.POLLIN)
    last, since = None, time.monotonic()
    try:
        while not gate.poll(100):
            if shared[:8] != last:
                last, since = shared[:8], time.monotonic()
            elif time.monotonic() - since > seconds:
                os.kill(child, signal.SIGUSR1)  # faulthandler writes where it hangs
                gate.poll(500)
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return None
        return os.waitpid(child, 0)[1]
    finally:
        os.close(handle)


def _child(
    check: Callable[[Path], object],
    inputs: Iterable[bytes],
    path: Path,
    report: Path,
    shared: mmap.mmap,
    errors: tuple[type[Exception], ...],
    memory: int,
) -> NoReturn:
    code = 1
    try:
        with report.open("w") as out:
            faulthandler.enable(out)
            faulthandler.register(signal.SIGUSR1, out)
            resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, resource.RLIM_INFINITY))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            try:
                _run(check, inputs, path, shared, errors, memory)
                code = 0
            except BaseException:
                traceback.print_exc(file=out)
            out.flush()
    finally:
        os._exit(code)  # no clean-up of the parent's fixtures


def _run(
    check: Callable[[Path], object],
    inputs: Iterable[bytes],
    path: Path,
    shared: mmap.mmap,
    errors: tuple[type[Exception], ...],
    memory: int,
) -> None:
    base, refused, parent = _resident_peak(), 0, os.getppid()
    for number, data in enumerate(inputs):
        if os.getppid() != parent:
            os._exit(1)  # the test was killed, and its next run uses the same folder
        for beside in ("-wal", "-shm", "-journal"):  # of the input before
            Path(f"{path}{beside}").unlink(missing_ok=True)
        path.unlink(missing_ok=True)  # ext4 flushes a file that is truncated and written again
        path.write_bytes(data)
        shared[:16] = struct.pack("<qq", number, refused)
        try:
            check(path)
        except errors as error:
            if "\n" in str(error) or not str(error):
                raise AssertionError(f"not one line: {error!r}") from error
            refused += 1
        grown = _resident_peak() - base
        if grown > memory:
            raise AssertionError(f"memory grew by {grown >> 20} MB, at most {memory >> 20} MB")
    shared[8:] = struct.pack("<qq", refused, 1)


def _resident_peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10  # a child's own begins at the fork


def _spot(out: bytearray, rng: random.Random, size: int = 1) -> int:
    """An offset with `size` bytes behind it: anywhere, or near an end, where headers and tables are."""
    last = max(0, len(out) - size)
    where = rng.random()
    if where < 0.3:
        return rng.randint(0, min(last, 256))
    return rng.randint(max(0, last - 256), last) if where < 0.45 else rng.randint(0, last)


def _range(out: bytearray, rng: random.Random) -> slice:
    at = _spot(out, rng)
    return slice(at, at + min(rng.choice((1, 2, 4, 8, 16, 64, 512, 4096)), len(out) - at))


def _flip(out: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        if out:
            out[_spot(out, rng)] ^= 1 << rng.randrange(8)


def _byte(out: bytearray, rng: random.Random) -> None:
    if out:
        out[_spot(out, rng)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def _cut(out: bytearray, rng: random.Random) -> None:
    if rng.random() < 0.5:
        del out[_spot(out, rng) :]
    else:
        del out[_range(out, rng)]


def _swap(out: bytearray, rng: random.Random) -> None:
    a, b = _range(out, rng), _range(out, rng)
    first, second = bytes(out[a]), bytes(out[b])
    out[b] = first
    out[a.start : a.start + len(first)] = second


def _double(out: bytearray, rng: random.Random) -> None:
    piece = bytes(out[_range(out, rng)])
    times = min(rng.choice((1, 1, 2, 50)), max(1, _GROWTH // max(1, len(piece))))
    at = _spot(out, rng)
    out[at:at] = piece * times


def _length(out: bytearray, rng: random.Random) -> None:
    size = rng.choice((1, 2, 4, 4, 8, 8))
    bits = 8 * size
    values = (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1, (1 << bits) - 16, len(out), len(out) - 1
    value = rng.choice((*values, 0, rng.getrandbits(bits))) & ((1 << bits) - 1)
    at = _spot(out, rng, size)
    if rng.random() < 0.7:
        at -= at % size  # fields are aligned
    out[at : at + size] = value.to_bytes(size, rng.choice(("little", "little", "big")))


# msgpack arrays and maps of one, JSON and quotes, directories, brackets of a regex or a mangled name
_NESTS = (
    b"\x91",
    b"\x81\xa0",
    b"\xdd\x00\x00\x00\x01",
    b"\xdc\xff\xff",
    b"[",
    b'{"":',
    b'"',
    b"(",
    b"../",
    b"\\",
)


def _nest(out: bytearray, rng: random.Random) -> None:
    piece = rng.choice(_NESTS)
    where = _range(out, rng) if rng.random() < 0.5 else slice((at := _spot(out, rng)), at)
    out[where] = piece * min(rng.choice((2, 600, 5000, 40_000)), _GROWTH // len(piece))


_ODD = (
    b"\0",
    b"\0" * 64,
    b"\xff\xfe\xfd",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    b"\xf8\x88\x80\x80\x80",
    b"\xef\xbb\xbf",
    b"\xe2\x80\xae",
    b"\r\n",
    b"\x1b[2J",
    b"'",
    b"%s%n",
)


def _odd(out: bytearray, rng: random.Random) -> None:
    where = _range(out, rng) if rng.random() < 0.3 else slice((at := _spot(out, rng)), at)
    out[where] = rng.choice(_ODD)


def _noise(out: bytearray, rng: random.Random) -> None:
    where = _range(out, rng)
    out[where] = rng.randbytes(where.stop - where.start)


_BYTES: tuple[Mutator, ...] = (
    _flip,
    _flip,
    _byte,
    _cut,
    _swap,
    _double,
    _length,
    _length,
    _nest,
    _odd,
    _noise,
)


def _lines_of(out: bytearray, rng: random.Random) -> tuple[list[bytes], int]:
    lines = bytes(out).split(b"\n")
    return lines, rng.randrange(len(lines))


def _line(out: bytearray, rng: random.Random) -> None:
    """One line dropped, doubled, moved, joined with the next, broken, grown, or ended in another way."""
    lines, at = _lines_of(out, rng)
    line = lines[at]
    middle = rng.randint(0, len(line))
    lines[at : at + 1] = rng.choice(
        (
            [],
            [line, line],
            [line] * min(3000, max(2, _GROWTH // max(1, len(line)))),
            [lines[rng.randrange(len(lines))], line],
            [line + b"\r"],
            [line[:middle], line[middle:]],
            [line[:middle] + b"\t" + line[middle:]],
            [b" " + line],
            [line + b" "],
            [line + line[-1:] * _GROWTH],
            [line[:middle]],
            [b""],
            [line.swapcase()],
        )
    )
    if rng.random() < 0.15 and len(lines) > at + 1:
        lines[at : at + 2] = [b"".join(lines[at : at + 2])]
    out[:] = b"\n".join(lines)


_NUMBERS = (
    b"0",
    b"-1",
    b"1e400",
    b"nan",
    b"0x10",
    b"007",
    b"9" * 20,
    b"9" * 5000,
    b"4294967296",
    "٣".encode(),
)


def _number(out: bytearray, rng: random.Random) -> None:
    """One run of digits replaced by a number that nobody expects."""
    at = next((i for i in range(_spot(out, rng), len(out)) if 48 <= out[i] <= 57), None)
    if at is None:
        return
    end = at
    while end < len(out) and 48 <= out[end] <= 57:
        end += 1
    out[at:end] = rng.choice(_NUMBERS)


def _fields(out: bytearray, rng: random.Random) -> None:
    """The fields of one line, by one of its separators: one dropped, doubled, or two swapped."""
    lines, at = _lines_of(out, rng)
    mark = rng.choice((b"\t", b" ", b",", b":", b";", b"=", b"-", b"/"))
    fields = lines[at].split(mark)
    one, other = rng.randrange(len(fields)), rng.randrange(len(fields))
    kind = rng.randrange(3)
    if kind == 0:
        del fields[one]
    elif kind == 1:
        fields.insert(one, fields[other])
    else:
        fields[one], fields[other] = fields[other], fields[one]
    lines[at] = mark.join(fields)
    out[:] = b"\n".join(lines)


_LINES: tuple[Mutator, ...] = (_line, _line, _number, _fields)
