"""Whatever holds kernel keys, opened the same way: kdb, ukdb, manifest, trace, folder of traces, log.

`open_input` tells the kind by the content and gives an `Input`; its `entries` are the keys, bytes exact.
A kdb is read in short transactions as it goes by (a live `.ukdb` is never held); of traces and logs a
key comes once, with the number of its look-ups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from kdbtool.errors import KdbtoolError, printable
from kdbtool.kdb.identify import FileKind, Kind, identify
from kdbtool.miopen.keys import is_arch, split_mcpu

if TYPE_CHECKING:
    from kdbtool.kdb.reader import KdbReader, Row
    from kdbtool.manifest.model import Manifest
    from kdbtool.shim.trace_model import Trace

STORED = "stored"
HIT, MISS, UNANSWERED = "hit", "miss", "unanswered"
STATES = (STORED, "build", "asked-unbuilt", HIT, MISS, UNANSWERED)

TRACE_SUFFIX = ".kdbtrace"
_TAKES = "name traces, a folder of them, logs, kernel databases or manifests"


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of an input; `arch` is bare (gfx1030), "" where it is not known.

    `state`: `stored` (kdb), `build` or `asked-unbuilt` (manifest), `hit`, `miss` or `unanswered` (trace,
    log: a key that was found once is a hit). `line`: of a manifest. `count`: look-ups of the key.
    """

    name: bytes
    args: bytes
    arch: str
    state: str
    row: Row | None = None
    line: int = 0
    count: int = 1


@dataclass
class Input:
    """An open input, a context manager. One of `kdb`, `manifest` and `traces` is what it holds.

    `kind` is KDB, UKDB, MANIFEST, TRACE, LOG or DIRECTORY (of traces). `archs`: what name, header or
    devices say; a kdb whose name says none has [] here, and rows that may name some.
    """

    path: Path
    kind: FileKind
    archs: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    kdb: KdbReader | None = None
    manifest: Manifest | None = None
    traces: list[Trace] = field(default_factory=list)

    @property
    def label(self) -> str:
        """The path, safe to print."""
        return printable(str(self.path))

    def __enter__(self) -> Input:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.kdb is not None:
            self.kdb.close()

    def entries(self, *, rows: bool = True) -> Iterator[Entry]:
        """Every key: of a kdb or manifest as they stand, of traces and logs each once.

        Without `rows` a kdb's entries have no `row`, and its blobs' pages are not read where there is an
        index. KdbtoolError for what SQLite cannot read any more.
        """
        if self.kdb is not None:
            yield from self._of_kdb(self.kdb, rows)
        elif self.manifest is not None:
            for key, note in self.manifest.keys.items():
                yield Entry(key.name, key.args, key.arch, key.state, line=note.line)
        else:
            yield from _asked(self.traces)

    def _of_kdb(self, reader: KdbReader, rows: bool) -> Iterator[Entry]:
        arch = self.archs[0] if self.archs else ""
        if rows:
            for row in reader:
                yield Entry(row.name, row.args, arch or arch_of(row.args), STORED, row)
            return
        for name, args in reader.keys():  # noqa: SIM118, not a dict
            yield Entry(name, args, arch or arch_of(args), STORED)


def holds_keys(kind: Kind) -> bool:
    """Whether `open_input` takes such a file; its reader may still find it damaged."""
    if kind.is_kdb or kind.what in (FileKind.DIRECTORY, FileKind.TRACE, FileKind.MANIFEST) or is_log(kind):
        return True
    return kind.path.suffix == TRACE_SUFFIX or (kind.size > 0 and _is_manifest(kind.path))


def is_log(kind: Kind) -> bool:
    """Whether it is a log of MIOpen, compressed or not."""
    return FileKind.LOG in (kind.what, kind.inner)


def open_input(path: Path) -> Input:
    """The input `path`; KdbtoolError, exit code 2, saying what it is where it is none of the kinds."""
    kind = identify(path)
    if not holds_keys(kind):
        raise KdbtoolError(kind.text, where=path, hint=kind.hint or _TAKES, exit_code=kind.exit_code)
    if kind.what is FileKind.DIRECTORY or kind.what is FileKind.TRACE or path.suffix == TRACE_SUFFIX:
        return _traces(path, kind)
    if kind.is_kdb:
        from kdbtool.kdb.reader import KdbReader

        reader = KdbReader(kind)
        return Input(path, kind.what, [reader.name.arch] if reader.name else [], kdb=reader)
    if is_log(kind):
        from kdbtool.miopen.logs import read_log

        log = read_log(path)
        return Input(
            path, FileKind.LOG, _devices([log]), [f"{path}: {note}" for note in log.notes], traces=[log]
        )
    from kdbtool.manifest.reader import read_manifest

    manifest = read_manifest(path)
    return Input(path, FileKind.MANIFEST, manifest.archs, manifest=manifest)


def _is_manifest(path: Path) -> bool:
    """Damaged at its very beginning, but a manifest: its reader says how."""
    with path.open("rb") as file:
        return b"kdbtool-manifest" in file.read(32)


def each_input(path: Path) -> Iterator[Input]:
    """`open_input`, closed after its turn; of a folder or a merged file the traces one by one, one at a time
    in memory."""
    kind = identify(path)
    if kind.what is FileKind.DIRECTORY:
        for part in _in_folder(path):
            yield from each_input(part)
    elif kind.what is FileKind.TRACE:
        from kdbtool.shim.trace import each_trace

        for trace in each_trace(path):
            notes = [f"{trace.path}: {note}" for note in trace.notes]
            yield Input(trace.path, FileKind.TRACE, _devices([trace]), notes, traces=[trace])
    else:
        with open_input(path) as found:
            yield found


def is_merged(path: Path, kind: Kind) -> bool:
    """Whether a file holds the traces of several processes."""
    if kind.what is not FileKind.TRACE:
        return False
    from kdbtool.shim.trace import sections

    return next(sections(path)).merged


def _in_folder(path: Path) -> list[Path]:
    from kdbtool.shim.trace import find_traces

    found = find_traces([path])
    if not found:
        raise KdbtoolError(
            "no trace in the folder",
            where=path,
            why=f"no *{TRACE_SUFFIX} file",
            hint="record one: kdbtool record -o DIR -- CMD",
        )
    return found


def _traces(path: Path, kind: Kind) -> Input:
    from kdbtool.shim.trace import read_traces

    is_folder = kind.what is FileKind.DIRECTORY
    found = _in_folder(path) if is_folder else [path]
    traces = [trace for file in found for trace in read_traces(file)]
    notes = [f"{trace.path}: {note}" for trace in traces for note in trace.notes]
    what = FileKind.DIRECTORY if is_folder else FileKind.TRACE
    return Input(path, what, _devices(traces), notes, traces=traces)


def _devices(traces: Iterable[Trace]) -> list[str]:
    return sorted({arch for trace in traces if (arch := bare_arch(trace.facts.device or ""))})


def _asked(traces: Iterable[Trace]) -> Iterator[Entry]:
    """The distinct keys of all look-ups, in the order in which they were first asked for."""
    found: dict[tuple[bytes, bytes, str], tuple[str, int]] = {}
    for trace in traces:
        device = bare_arch(trace.facts.device or "")
        for lookup in trace.lookups:
            key = (lookup.name, lookup.args, device or arch_of(lookup.args))
            state = HIT if lookup.hit else UNANSWERED if lookup.hit is None else MISS
            before, count = found.get(key, (UNANSWERED, 0))
            found[key] = min(before, state), count + 1  # by the alphabet: hit, miss, unanswered
    for (name, args, arch), (state, count) in found.items():
        yield Entry(name, args, arch, state, count=count)


def bare_arch(device: str) -> str:
    """gfx90a of gfx90a:sramecc+:xnack-; "" for what is no architecture."""
    bare = device.partition(":")[0]
    return bare if is_arch(bare) else ""


def arch_of(args: bytes) -> str:
    """The bare architecture that the `-mcpu` at the end of `args` names, "" without one."""
    split = split_mcpu(args)
    return bare_arch(split[1]) if split else ""
