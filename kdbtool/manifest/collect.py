"""Keys out of any mix of traces, kernel databases and manifests, each told by its content."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kdbtool import __version__
from kdbtool.errors import KdbtoolError
from kdbtool.kdb.identify import FileKind, identify
from kdbtool.manifest.model import BUILD, Hashes, Key, Manifest, Note
from kdbtool.manifest.reader import read_manifest
from kdbtool.miopen.keys import is_arch, split_mcpu
from kdbtool.miopen.problems import is_problem

if TYPE_CHECKING:
    from kdbtool.shim.trace import Facts

_TRACE_SUFFIX = ".kdbtrace"
_TAKES = "name traces, a folder of them, kernel databases or manifests"


@dataclass
class Row:
    """A distinct key of the input. `missed`: every lookup of it in the traces found nothing."""

    key: Key
    missed: bool = False
    note: Note = field(default_factory=Note)


@dataclass
class Collected:
    """What the inputs hold, merged."""

    rows: dict[tuple[bytes, bytes, str], Row] = field(default_factory=dict)  # by name, args, arch
    total: int = 0  # rows read, equal ones of several inputs counted each
    problems: dict[str, Note] = field(default_factory=dict)
    origins: set[str] = field(default_factory=set)
    facts: list[Facts] = field(default_factory=list)  # of the traces that looked something up
    manifests: list[Manifest] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, key: Key, *, missed: bool, note: Note | None = None) -> None:
        """Count `key`; one that was found, or that stands in a kdb, is no longer `missed`."""
        self.total += 1
        row = self.rows.get((key.name, key.args, key.arch))
        if row is None:
            row = self.rows[key.name, key.args, key.arch] = Row(key, missed)
        elif not missed:
            row.missed = False
        if row.key.state != BUILD and key.state == BUILD:
            row.key = key
        if note:
            row.note.comments = _joined(row.note.comments, note.comments)


def collect(paths: Iterable[Path]) -> Collected:
    """Read every input; KdbtoolError, exit code 2, for one that is none of the kinds."""
    out = Collected()
    for path in paths:
        kind = identify(path)
        if kind.what is FileKind.DIRECTORY or path.suffix == _TRACE_SUFFIX:
            _traces(path, out)
        elif kind.what is FileKind.MANIFEST or (kind.size and _is_manifest(path)):
            _manifest(path, out)
        elif kind.is_kdb:
            _kdb(path, out)
        else:
            raise KdbtoolError(kind.text, where=path, hint=kind.hint or _TAKES)
    return out


def _is_manifest(path: Path) -> bool:
    """Damaged at its very beginning, but a manifest: its reader says how."""
    with path.open("rb") as file:
        return b"kdbtool-manifest" in file.read(32)


def _traces(path: Path, out: Collected) -> None:
    from kdbtool.shim.trace import find_traces, read_trace

    found = find_traces([path])
    if not found:
        raise KdbtoolError(
            "no trace in the folder",
            where=path,
            why=f"no *{_TRACE_SUFFIX} file",
            hint="record one: kdbtool record -o DIR -- CMD",
        )
    for file in found:
        trace = read_trace(file)
        out.notes += [f"{file}: {note}" for note in trace.notes]
        for problem in trace.problems:
            if is_problem(problem.key):
                out.problems.setdefault(problem.key, Note())
        if not trace.lookups:
            continue
        out.facts.append(trace.facts)
        arch = bare_arch(trace.facts.device or "")
        out.origins.add(_origin(trace.facts, arch))
        for lookup in trace.lookups:
            key = Key(lookup.name, lookup.args, arch or _arch_of(lookup.args))
            out.add(key, missed=lookup.hit is not True)


def _kdb(path: Path, out: Collected) -> None:
    from kdbtool.kdb.names import parse_name
    from kdbtool.kdb.reader import open_kdb

    named = parse_name(path.name)
    arch = named.arch if named else ""
    with open_kdb(path) as reader:
        for name, args in reader.keys():  # noqa: SIM118, not a dict
            out.add(Key(name, args, arch or _arch_of(args)), missed=False)
    out.origins.add(f"rows of a kernel database{f' for {arch}' if arch else ''} by kdbtool {__version__}")


def _manifest(path: Path, out: Collected) -> None:
    manifest = read_manifest(path)
    out.manifests.append(manifest)
    out.origins |= manifest.origins
    for key, note in manifest.keys.items():
        out.add(key, missed=key.state != BUILD, note=note)
    for problem, note in manifest.problems.items():
        have = out.problems.setdefault(problem, Note())
        have.comments = _joined(have.comments, note.comments)


def merged_hashes(manifests: Iterable[Manifest]) -> dict[str, Hashes]:
    """The hashes of all manifests; KdbtoolError where two name different ones for a source."""
    out: dict[str, Hashes] = {}
    for manifest in manifests:
        for source, hashes in manifest.hashes.items():
            have = out.setdefault(source, hashes)
            if have != hashes:
                raise KdbtoolError(
                    f"other hashes for {source} than in the manifests before",
                    where=manifest.path,
                    why="the two were made for different sources",
                    hint="say which with --miopen PATH or --sources DIR",
                )
    return out


def merged_comments(manifests: Iterable[Manifest]) -> Manifest:
    """A manifest with nothing but the comments of all: header, blocks, end."""
    out = Manifest()
    for manifest in manifests:
        out.comments = _joined(out.comments, manifest.comments)
        out.trailing = _joined(out.trailing, manifest.trailing)
        for block, note in manifest.blocks.items():
            have = out.blocks.setdefault(block, Note())
            have.comments = _joined(have.comments, note.comments)
    return out


def bare_arch(device: str) -> str:
    """gfx90a of gfx90a:sramecc+:xnack-; "" for what is no architecture."""
    bare = device.partition(":")[0]
    return bare if is_arch(bare) else ""


def _arch_of(args: bytes) -> str:
    split = split_mcpu(args)
    return bare_arch(split[1]) if split else ""


def _origin(facts: Facts, arch: str) -> str:
    device = f"{'simulated ' if facts.simulated else ''}{arch or 'an unknown device'}"
    if arch and facts.cu:
        device += f":{facts.cu}"
    overrides = f" with {', '.join(sorted(facts.overrides))} set" if facts.overrides else ""
    return f"recorded on {device}{overrides} by kdbtool {__version__}"


def _joined(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return first + tuple(line for line in second if line not in first)
