"""MIOpen's log lines as its versions write them, and what terminals and mails do to them."""

from __future__ import annotations

import lzma
import textwrap
from pathlib import Path

from kdbtool.miopen.logs import read_log
from kdbtool.shim.trace_model import Trace

TAG = b"MIOpen(HIP): Info2 "
SPELLINGS = ("old", "middle", "new")  # 3.5 to 4.2, 4.3 to 6.1, from 6.2
Key = tuple[bytes, bytes]

FP32 = (
    b" -DMIOPEN_USE_FP16=0 -DMIOPEN_USE_FP16x4=0 -DMIOPEN_USE_FP16x8=0 -DMIOPEN_USE_FP32=1 "
    b"-DMIOPEN_USE_INT8=0 -DMIOPEN_USE_BFP16=0 -DMIOPEN_USE_INT32=0 -DMIOPEN_USE_RNE_BFLOAT16=1 "
    b"-DMIOPEN_FP8_IEEE_EXPONENT_BIAS=0 -DMIOPEN_FP8_CLIPPING=1 -mcpu=gfx1030"
)
NAIVE: Key = (b"naive_conv.cpp.o", FP32)


def named(spelling: str, name: bytes) -> bytes:
    """A kernel's name and what separates it from its arguments."""
    if spelling == "old":
        return name.removesuffix(b".o") + b" ;args: "
    return (b'"%s"' % name if spelling == "new" else name) + b"; args: "


def loading(spelling: str, key: Key) -> bytes:
    return TAG + b"[LoadBinary] Loading binary for: " + named(spelling, key[0]) + key[1]


def select(key: Key) -> bytes:
    return TAG + (
        b"[Prepare] SELECT kernel_blob, kernel_hash, uncompressed_size FROM kern_db "
        b"WHERE (kernel_name = '%s') AND (kernel_args = '%s');" % key
    )


def outcome(spelling: str, key: Key, hit: bool) -> bytes:
    done = b"Sucessfully loaded" if spelling == "old" else b"Successfully loaded"
    what = done if hit else b"Unable to load"
    return TAG + b"[LoadBinary] " + what + b" binary for: " + named(spelling, key[0]) + key[1]


def lookup(spelling: str, key: Key, hit: bool = False, selects: int = 1) -> list[bytes]:
    """All lines of one look-up."""
    queries = [select(key)] * selects
    measured = TAG + b"[Measure] Db::FindRecord time: 6.9904 ms"
    return [loading(spelling, key), *queries, measured, outcome(spelling, key, hit)]


def hard(line: bytes, width: int) -> list[bytes]:
    """As a terminal breaks it, or `fold -w`."""
    return [line[i : i + width] for i in range(0, len(line), width)] or [line]


def trimmed(line: bytes, width: int) -> list[bytes]:
    """The same, copied out of a terminal that drops blanks at the end of a line."""
    return [part.rstrip(b" ") for part in hard(line, width)]


def words(line: bytes, width: int) -> list[bytes]:
    """As a mail program breaks it: at blanks, which are lost."""
    return [part.encode() for part in textwrap.wrap(line.decode(), width, break_on_hyphens=False)]


def hyphens(line: bytes, width: int) -> list[bytes]:
    """The same, behind hyphens too."""
    return [part.encode() for part in textwrap.wrap(line.decode(), width)]


def folded(line: bytes, width: int) -> list[bytes]:
    """As `fold -s -w` breaks it: behind blanks, which stay."""
    parts = []
    while len(line) > width:
        at = line.rfind(b" ", 0, width) + 1 or width
        parts.append(line[:at])
        line = line[at:]
    return [*parts, line]


def read(path: Path, *lines: bytes) -> Trace:
    """The log of these lines."""
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return read_log(path)


def keys_of(trace: Trace) -> list[Key]:
    return [(lookup.name, lookup.args) for lookup in trace.lookups]


def sample(shared: Path) -> list[Key]:
    """20,000 keys that MIOpen 6.4.3 asked for."""
    text = lzma.decompress((shared / "data" / "keys.gfx1030-sample.tsv.xz").read_bytes())
    parts = (line.split(b"\t") for line in text.split(b"\n") if line)
    return [(name, args) for name, args in parts]
