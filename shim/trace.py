"""Reads traces (docs/trace-format.md): what one process asked of MIOpen and HIP.

Any bytes give a `Trace` or one `KdbtoolError`. A trace without a valid header is an error; anything
else that is wrong (a cut tail after kill -9, a damaged record, a record of a newer recorder) is
counted in `Trace.notes`, and the rest is read. Struct layouts come from `_trace`, built of the same
header as the recorder.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kdbtool.errors import KdbtoolError, from_oserror
from kdbtool.shim._trace import ffi, lib
from kdbtool.shim.trace_assemble import Assembler
from kdbtool.shim.trace_events import Events
from kdbtool.shim.trace_file import Reader
from kdbtool.shim.trace_model import Facts, Launch, Launches, Lookup, Module, Problem, Trace

__all__ = ["Facts", "Launch", "Launches", "Lookup", "Module", "Problem", "Section", "Trace", "each_key",
           "each_trace", "find_traces", "problem_keys", "read_facts", "read_trace", "read_traces",
           "sections"]  # fmt: skip

SUFFIX = ".kdbtrace"
_ALIGN, _HEADER = int(lib.KDBT_BLOCK_ALIGN), ffi.sizeof("struct kdbt_header")
MAX_BYTES = 1 << 34  # larger than any trace worth reading in Python; a sparse file is no attack


@dataclass(frozen=True)
class Section:
    """Where a trace lies in a file: all of it, or one of a merged file."""

    path: Path
    number: int  # 0, 1, ...
    at: int
    data: memoryview
    merged: bool  # the file holds others

    @property
    def label(self) -> Path:
        """The path, of a merged file with [N]."""
        return Path(f"{self.path}[{self.number}]") if self.merged else self.path


def sections(path: str | os.PathLike[str]) -> Iterator[Section]:
    """Where the traces of a file lie, by what their headers say; whether they are traces is not looked at."""
    path = Path(path)
    data = memoryview(_mapped(path))
    at = number = 0
    while at < len(data) or not number:
        size = _section(data, at)
        merged = number > 0 or size < len(data)
        yield Section(path, number, at, data[at : at + size], merged)
        at += -(-max(size, 1) // _ALIGN) * _ALIGN
        number += 1


def each_trace(path: str | os.PathLike[str]) -> Iterator[Trace]:
    """`read_traces`, one at a time in memory."""
    last: Trace | None = None
    for section in sections(path):
        try:
            reader = Reader(section.path, section.data)
        except KdbtoolError as error:
            if last is None:
                raise
            last.notes.append(f"byte {section.at} of the merged file: {error.what}: the rest is not read")
            break
        if last is not None:
            yield last
        last = _trace(section.label, reader)
    if last is not None:
        yield last


def read_traces(path: str | os.PathLike[str]) -> list[Trace]:
    """The traces in a file: one, or those of a merged file in its order.

    KdbtoolError (exit code 2) without a valid header at its begin; a later section without one is a
    note of the trace before it.
    """
    return list(each_trace(path))


def read_facts(section: Section) -> Facts:
    """Whose trace it is; KdbtoolError without a valid header."""
    reader = Reader(section.path, section.data)
    reader.read()
    return Assembler(reader).facts_alone()


def each_key(path: str | os.PathLike[str]) -> tuple[Facts, list[tuple[bytes, bytes]]]:
    """Whose trace it is, and the key of every statement of a look-up, all threads by time.

    A key is one object however often it was asked for. Nothing else of the trace is read: a harvest makes
    many. KdbtoolError without a valid header.
    """
    reader = Reader(Path(path), next(sections(path)).data)
    reader.read()
    made = Assembler(reader)
    return made.facts_alone(), made.statement_keys()


def problem_keys(path: str | os.PathLike[str]) -> tuple[Facts, frozenset[str]]:
    """Whose trace it is, and the keys of its convolution problems; of a merged file the first's.

    Nothing else of the trace is read. KdbtoolError without a valid header.
    """
    reader = Reader(Path(path), next(sections(path)).data)
    reader.read()
    made = Assembler(reader)
    return made.facts_alone(), made.problem_keys()


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """The trace in a file of one process. KdbtoolError (exit code 2) without a valid header, or where the
    file holds several."""
    traces = read_traces(path)
    if len(traces) > 1:
        raise KdbtoolError(
            "a merged trace", where=Path(path), why=f"it holds {len(traces)} processes, not one"
        )
    return traces[0]


def _mapped(path: Path) -> mmap.mmap | bytes:
    try:
        # not to wait for the other end of a FIFO
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise KdbtoolError("not a trace", where=path, why="not a regular file")
            if info.st_size > MAX_BYTES:
                raise KdbtoolError("not a trace", where=path, why=f"{info.st_size} bytes are too many")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if info.st_size else b""
    except OSError as error:
        raise from_oserror(error, where=path) from error


def _section(data: memoryview, at: int) -> int:
    """Bytes of the trace that begins at `at`: as its header says, or to the end."""
    size = len(data) - at
    if size < _HEADER:
        return size
    header = ffi.cast("struct kdbt_header *", ffi.from_buffer(data[at:]))
    section = int(header.section_bytes)
    known = header.byte_order == lib.KDBT_BYTE_ORDER and header.version == lib.KDBT_VERSION
    return section if known and _HEADER <= section < size else size


def _trace(path: Path, reader: Reader) -> Trace:
    reader.read()
    made = Assembler(reader)
    made.dictionaries()
    events = Events(made)
    lookups, problems, launches = made.lookups(), made.problems(), made.launches()
    return Trace(
        path=path,
        facts=made.facts_of(),
        lookups=lookups,
        problems=problems,
        modules=[m for m in made.modules.values() if m.source != "fatbin"],
        launches=launches,
        calls=events.calls(),
        compiles=events.compiles(),
        graphs=events.graphs(),
        ranges=events.ranges(),
        samples=events.samples(),
        gates=events.gates(),
        notes=made.notes(),
    )


def find_traces(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Files as given, folders as their *.kdbtrace, sorted; each once."""
    found: set[Path] = set()
    for path in map(Path, paths):
        try:
            is_folder, exists = path.is_dir(), path.exists()
            inside = list(path.iterdir()) if is_folder else []
        except OSError as error:  # not to be searched, or a name that is too long
            raise from_oserror(error, where=path) from error
        if exists and not is_folder:
            found.add(path)
        found.update(p for p in inside if p.suffix == SUFFIX)
        if not exists:
            raise KdbtoolError("no such file or folder", where=path, hint="record one with kdbtool record")
    return sorted(found)
