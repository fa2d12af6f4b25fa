"""Joins traces to one file, losing nothing (docs/trace-format.md, "Merged traces").

Whole traces one after another, byte for byte but for `section_bytes` of their headers. Ordered by rank
(those without one last), host, begin, pid, part, and then by content: the same set gives the same bytes
in any order. The same trace twice is there once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kdbtool.errors import KdbtoolError
from kdbtool.files import atomic_write
from kdbtool.shim._trace import ffi, lib
from kdbtool.shim.trace import Section, read_facts, sections
from kdbtool.shim.trace_model import Facts

_ALIGN = int(lib.KDBT_BLOCK_ALIGN)
_AT, _BYTES = ffi.offsetof("struct kdbt_header", "section_bytes"), 8
_PIECE = 1 << 20


@dataclass(frozen=True)
class Merged:
    """What went into a merged file."""

    facts: list[Facts]  # in its order
    repeated: int  # traces that were given more than once, times
    notes: list[str]  # what could not be taken, of merged inputs


@dataclass(frozen=True)
class _Part:
    """A trace by its place: no file stays open, there may be thousands."""

    path: Path
    at: int
    size: int
    facts: Facts
    digest: bytes

    def order(self) -> tuple[bool, int, str, int, int, int, bytes]:
        facts = self.facts
        rank = facts.rank is None, facts.rank or 0
        return (*rank, facts.host, facts.start_ns, facts.pid, facts.part, self.digest)


def merge(paths: Iterable[Path], output: Path, *, force: bool = False) -> Merged:
    """`output` holds the traces of all files, all or nothing, mode 0600.

    KdbtoolError (exit code 2) for a file that is no trace, and where there is none.
    """
    parts: dict[bytes, _Part] = {}
    repeated, notes = 0, []
    for path in paths:
        for section in sections(path):
            try:
                facts = read_facts(section)
            except KdbtoolError as error:
                if section.number == 0:
                    raise
                notes.append(f"{path}: byte {section.at}: {error.what}: the rest is left out")
                break
            digest = _digest(section)
            repeated += digest in parts
            parts.setdefault(digest, _Part(path, section.at, len(section.data), facts, digest))
    if not parts:
        raise KdbtoolError("no trace to merge", hint="record one: kdbtool record -o DIR -- CMD")
    ordered = sorted(parts.values(), key=_Part.order)
    with atomic_write(output, mode=0o600, force=force) as file:
        for one in ordered[:-1]:
            _copy(one, one.size, file)
            file.write(bytes(-one.size % _ALIGN))
        _copy(ordered[-1], 0, file)
    return Merged([one.facts for one in ordered], repeated, notes)


def _digest(section: Section) -> bytes:
    """Of the trace as its recorder left it: without where the next one begins."""
    found = hashlib.sha256(section.data[:_AT])
    found.update(bytes(_BYTES))
    for at in range(_AT + _BYTES, len(section.data), _PIECE):
        found.update(section.data[at : at + _PIECE])
    return found.digest()


def _copy(part: _Part, section_bytes: int, file: BinaryIO) -> None:
    with part.path.open("rb") as source:
        source.seek(part.at)
        head = bytearray(source.read(_AT + _BYTES))
        head[_AT:] = ffi.buffer(ffi.new("uint64_t *", section_bytes))
        file.write(head)
        left = part.size - len(head)
        while left > 0 and (piece := source.read(min(left, _PIECE))):
            file.write(piece)
            left -= len(piece)
    if left:
        raise KdbtoolError("changed while it was read", where=part.path, hint="merge again")
