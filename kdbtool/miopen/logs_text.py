"""The lines of a log file, as bytes: uncompressed, without colours, in one encoding, of bounded length.

gzip, bzip2 and xz are read by their first bytes; UTF-16 (what PowerShell's `>` writes) by its mark or
its NULs. Memory is flat: one block of the file and one line.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import re
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from kdbtool.errors import KdbtoolError, from_oserror

MAX_LINE = 1 << 18  # MIOpen's longest arguments have a few kB; what is longer is cut, and said to be
MAX_BYTES = 1 << 36
MAX_GROWTH = 3000  # bytes out of one compressed byte: logs repeat themselves, a bomb does so more
_FLOOR = 1 << 26
_BLOCK = 1 << 20
# Colours and other escapes of a terminal (ECMA-48 CSI, OSC).
_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|[@-Z\\^_])")
# A pipe cut short, a bad block: what these libraries say of damaged data.
_DAMAGE = (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile)


# What tells a log of MIOpen: one of its lines, a statement about a kernel, a command of its driver.
_MARK = re.compile(
    rb"MIOpen(?:\([A-Za-z]{1,12}\))?(?: *[0-9]+\.[0-9]{3})?: "
    rb"(?:Fatal|Error|Warning|Info2?|Trace|Command|MIOpenDriver) "
    rb"|(?:Loading|loaded|load|Saving) binary for: | FROM kern_db WHERE \(kernel_name = '"
    rb"|MIOpenDriver(?:\.exe)?\"? +conv[a-z0-9]* -"
)
LOOKED_AT = 1 << 23  # bytes of a file in which a line of MIOpen's must be


@dataclass(slots=True)
class Line:
    """One physical line, without its end. `ended`: a newline was there; `whole`: nothing was cut off."""

    number: int
    text: bytes
    ended: bool = True
    whole: bool = True

    @property
    def width(self) -> int:
        """Columns on a terminal, as far as ASCII goes."""
        return len(self.text) if self.text.isascii() else len(self.text.decode("utf-8", "replace"))


def opened(path: Path) -> BinaryIO:
    """The file, to be read uncompressed; KdbtoolError for what is no regular file."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise KdbtoolError("not a log", where=path, why="not a regular file")
        with path.open("rb") as file:
            head = file.read(6)
        if head.startswith(b"\x1f\x8b"):
            return cast(BinaryIO, gzip.open(path))
        if head.startswith(b"BZh"):
            return cast(BinaryIO, bz2.open(path))
        if head.startswith(b"\xfd7zXZ"):
            return cast(BinaryIO, lzma.open(path))
        return path.open("rb")
    except OSError as error:
        raise from_oserror(error, where=path) from None


def blocks(path: Path) -> Iterator[bytes]:
    """The uncompressed content. Damaged compression ends in KdbtoolError, as too much content does."""
    size = 0
    with opened(path) as file:
        limit = max(_FLOOR, MAX_GROWTH * path.stat().st_size)
        while True:
            try:
                block = file.read(_BLOCK)
            except _DAMAGE as error:
                why = str(error).lower() or "it is cut off"
                raise KdbtoolError("damaged compressed log", where=path, why=why, hint="unpack it") from None
            except OSError as error:  # bz2 says so of bad data, without an errno
                if error.errno is None:
                    raise KdbtoolError("damaged compressed log", where=path, why=str(error).lower()) from None
                raise from_oserror(error, where=path) from None
            if not block:
                return
            size += len(block)
            if size > min(limit, MAX_BYTES):
                raise KdbtoolError("not a log", where=path, why=f"it unpacks to more than {size} bytes")
            yield block


def encoding(head: bytes) -> str | None:
    """utf-16-le or utf-16-be where the first bytes say so, else None: bytes as they are."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16-le" if head.startswith(codecs.BOM_UTF16_LE) else "utf-16-be"
    part = head[:4096]
    half = len(part) // 2
    if half < 16:
        return None
    even, odd = part[0::2].count(0), part[1::2].count(0)
    if odd > half * 3 // 4 and even < half // 8:
        return "utf-16-le"
    if even > half * 3 // 4 and odd < half // 8:
        return "utf-16-be"
    return None


def is_log(path: Path) -> bool:
    """Whether a line of MIOpen's is among the first megabytes of the (uncompressed) file."""
    seen, tail = 0, b""
    try:
        for block in _text(path):
            if _MARK.search(tail + block):
                return True
            seen, tail = seen + len(block), block[-256:]
            if seen > LOOKED_AT:
                return False
    except KdbtoolError:  # damaged: whoever reads it says how
        pass
    return False


def _text(path: Path) -> Iterator[bytes]:
    decoder: codecs.IncrementalDecoder | None = None
    for number, block in enumerate(blocks(path)):
        if number == 0:
            name = encoding(block)
            if name:
                decoder = codecs.getincrementaldecoder(name)("replace")
                block = block[2:] if block[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else block
            elif block.startswith(codecs.BOM_UTF8):
                block = block[len(codecs.BOM_UTF8) :]
        yield decoder.decode(block).encode("utf-8", "replace") if decoder else block


def read_lines(path: Path) -> Iterator[Line]:
    """Every line, in order, numbered from 1."""
    rest, number, dropped = b"", 0, False
    for block in _text(path):
        parts = (rest + block).split(b"\n")
        rest = parts.pop()
        for part in parts:
            number += 1
            yield _line(number, part, dropped)
            dropped = False
        if len(rest) > MAX_LINE:
            rest, dropped = rest[:MAX_LINE], True
    if rest:
        yield _line(number + 1, rest, dropped, ended=False)


def _line(number: int, text: bytes, dropped: bool, ended: bool = True) -> Line:
    if len(text) > MAX_LINE:
        text, dropped = text[:MAX_LINE], True
    if text.endswith(b"\r"):
        text = text.rstrip(b"\r")
    if b"\x1b" in text:
        text = _ESCAPES.sub(b"", text)
    if text[:1] == b"\0":  # a log that was emptied while a program had it open begins with a hole
        text = text.lstrip(b"\0")
    return Line(number, text, ended, not dropped)
