"""What MIOpen tuned and found on real hardware, copied beside the trace of the run that asked for it.

`NAME.kdbtrace` gets `NAME.ufdb.txt` and `NAME.udb.txt`, texts that every reader of find-dbs and perf-dbs
takes: the rows of the trace's own problems, out of the user databases of its device and its MIOpen. Those are
read after the program has ended and never written to. A simulated run has no such file: its times are no
measurements.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kdbtool.errors import KdbtoolError, counted, from_oserror
from kdbtool.files import write_bytes
from kdbtool.kdb.sqlite import HEADER_MAGIC
from kdbtool.miopen import userdbs
from kdbtool.miopen.problemrows import find_rows, find_text, perf_rows, perf_text
from kdbtool.miopen.problems import is_problem
from kdbtool.miopen.userdbs import Library

if TYPE_CHECKING:
    from kdbtool.shim.trace_model import Facts

FIND_ENDING, PERF_ENDING = ".ufdb.txt", ".udb.txt"
MAX_DATABASE = 256 << 20  # bytes of a user database that is looked into; AMD's largest is 60 MB
MAX_COPY = 64 << 20  # bytes of one copy


@dataclass(frozen=True)
class Copied:
    """The files beside one trace, None for one that would have no row, and how many records they hold."""

    find_db: Path | None = None
    perf_db: Path | None = None
    problems: int = 0
    parameters: int = 0

    def __str__(self) -> str:
        found = [
            f"{counted(self.problems, 'record')} of the user find-db" if self.problems else "",
            f"{counted(self.parameters, 'row')} of the user perf-db" if self.parameters else "",
        ]
        return " and ".join(filter(None, found)) + " copied beside the trace"


def beside(trace: Path) -> Copied:
    """The copies that lie beside a trace, their rows not counted."""
    find_db, perf_db = _names(trace)
    return Copied(find_db if find_db.is_file() else None, perf_db if perf_db.is_file() else None)


def is_measured(facts: Facts) -> bool:
    """Whether the process ran on a device of its own: not a simulated one, and not read from a log."""
    return facts.role == "host" and not facts.simulated and facts.all.get("source") != "log"


def device_of(facts: Facts) -> str | None:
    """`gfx1030_36`: what MIOpen names databases of the process's device after, None where it is unknown."""
    return userdbs.base_of(facts.device or "", facts.cu or 0, facts.overrides)


def copy_beside(
    trace: Path, environment: Mapping[str, str], here: Callable[[str], Path | None] = Path
) -> Copied | None:
    """Copy the user rows of a trace's problems beside it; None where there is nothing to copy.

    `environment`: of the recorded program. `here`: a path of the program's as this process sees it, None for
    one that it cannot see. KdbtoolError where the rows cannot be had, with no copy left by half.
    """
    from kdbtool.shim.trace import problem_keys

    facts, asked = problem_keys(trace)
    problems = {key for key in asked if is_problem(key)}
    if not is_measured(facts) or not problems or facts.miopen_version is None:
        return None
    base = device_of(facts)
    if base is None:
        raise KdbtoolError("its device is not known: no rows of the user databases", where=trace)
    library = Library(facts.miopen_version, _library(facts, here))
    folder = userdbs.folder_of(environment, library)
    seen = here(str(folder)) if folder else None
    if seen is None:
        return None
    found = userdbs.find(seen, base, library)
    records = list(find_rows(_bounded(found.find_db), problems)) if found.find_db else []
    rows = []
    if found.perf_db:
        with _apart(_bounded(found.perf_db)) as copy:
            rows = list(perf_rows(copy, problems))
    if not records and not rows:
        return None
    texts = [find_text(records) if records else b"", perf_text(rows) if rows else b""]
    if max(map(len, texts)) > MAX_COPY:
        raise KdbtoolError("too many rows to copy", where=seen, why=f"over {MAX_COPY} bytes")
    places = _names(trace)
    for place, text in zip(places, texts, strict=True):
        if text:
            write_bytes(place, text, mode=0o600)  # as the trace: problems tell of a network
    find_db, perf_db = (place if text else None for place, text in zip(places, texts, strict=True))
    return Copied(find_db, perf_db, len(records), len(rows))


def _names(trace: Path) -> tuple[Path, Path]:
    return trace.with_suffix(FIND_ENDING), trace.with_suffix(PERF_ENDING)


def _library(facts: Facts, here: Callable[[str], Path | None]) -> Path | None:
    """The libMIOpen of the process, if it is still the very same."""
    from kdbtool.miopen.sources import build_id_of

    path = here(facts.miopen_path) if facts.miopen_path else None
    with contextlib.suppress(OSError, KdbtoolError):
        if path is not None and path.is_file() and build_id_of(path) == facts.miopen_build_id:
            return path
    return None


def _bounded(path: Path) -> Path:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise from_oserror(error, where=path) from None
    if size > MAX_DATABASE:
        raise KdbtoolError("too large for a user database", where=path, why=f"{size} bytes")
    return path


def _is_sqlite(path: Path) -> bool:
    """By its first bytes alone: whoever opens one in WAL mode as a database leaves marks in its -shm."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return stat.S_ISREG(os.fstat(file.fileno()).st_mode) and file.read(16) == HEADER_MAGIC
    except OSError as error:
        raise from_oserror(error, where=path) from None


@contextlib.contextmanager
def _apart(path: Path) -> Iterator[Path]:
    """`path`, of an SQLite file a copy with its -wal: even a reader makes side files beside one."""
    if not _is_sqlite(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="kdbtool-") as folder:
        copy = Path(folder) / path.name
        try:
            for ending in ("", "-wal"):
                if os.path.lexists(f"{path}{ending}"):
                    shutil.copyfile(_bounded(Path(f"{path}{ending}")), f"{copy}{ending}")
        except OSError as error:
            raise KdbtoolError("cannot be copied", where=path, why=error.strerror or str(error)) from None
        try:
            yield copy
        except KdbtoolError as error:
            raise KdbtoolError(error.what, where=path, why=error.why) from None
