"""Keys out of any mix of inputs (kdbtool.inputs), merged into what a manifest is made of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kdbtool import __version__
from kdbtool.inputs import HIT, STORED, Input, bare_arch, each_input, open_input
from kdbtool.manifest import conflicts
from kdbtool.manifest.conflicts import Conflict
from kdbtool.manifest.join import Join
from kdbtool.manifest.model import BUILD, Asker, Hashes, Key, Manifest, Note, Problem
from kdbtool.manifest.tuning import Tuning
from kdbtool.miopen.problems import is_problem

if TYPE_CHECKING:
    from kdbtool.manifest.choose_usage import Usage
    from kdbtool.shim.trace import Facts


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
    problems: dict[str, Problem] = field(default_factory=dict)
    origins: set[str] = field(default_factory=set)
    facts: list[Facts] = field(default_factory=list)  # of the traces that looked something up
    manifests: list[Manifest] = field(default_factory=list)
    others: int = 0  # inputs that are no manifests
    tuning: Tuning = field(default_factory=Tuning)
    conflicts: list[Conflict] = field(default_factory=list)  # of the problems, decided by a rule
    notes: list[str] = field(default_factory=list)
    join: Join | None = None  # with --from-kdb: what traces without look-ups loaded

    def add(self, key: Key, *, missed: bool, note: Note | None = None, count: int = 1) -> None:
        """Count `key`; one that was found, or that stands in a kdb, is no longer `missed`."""
        self.total += count
        row = self.rows.get((key.name, key.args, key.arch))
        if row is None:
            row = self.rows[key.name, key.args, key.arch] = Row(key, missed)
        elif not missed:
            row.missed = False
        if row.key.state != BUILD and key.state == BUILD:
            row.key = key
        if note:
            row.note.comments = _joined(row.note.comments, note.comments)


def collect(paths: Iterable[Path], from_kdbs: Iterable[Path] = (), usage: Usage | None = None) -> Collected:
    """Read every input; KdbtoolError, exit code 2, for one that is none of the kinds.

    `from_kdbs`: databases that traces without a look-up are joined with (kdbtool.manifest.join). `usage`,
    where it is wanted, takes in what traces and databases know beside the keys, and is finished.
    """
    kdbs = list(from_kdbs)
    out = Collected(join=Join() if kdbs else None)
    for path in paths:
        for source in each_input(path):
            add_input(source, out)
            if usage is not None:
                usage.add_input(source)
    if out.join is not None:
        _join(out, out.join, kdbs)
    if usage is not None:
        for path in kdbs:
            with open_input(path) as source:
                usage.add_input(source)
        usage.finish()
    out.conflicts = out.tuning.into(out.problems)
    out.notes += out.tuning.notes
    from kdbtool.shim.trace_summary import mixed_devices

    out.notes += mixed_devices(out.facts)
    return out


def add_input(source: Input, out: Collected) -> None:
    """All that a manifest can take from an open input."""
    manifest = source.manifest
    for entry in source.entries(rows=False):
        state = entry.state if manifest else BUILD
        key = Key(entry.name, entry.args, entry.arch, state)
        found = entry.state in (STORED, BUILD, HIT)
        out.add(key, missed=not found, note=manifest.keys[key] if manifest else None, count=entry.count)
    out.notes += source.notes
    if manifest is not None:
        out.manifests.append(manifest)
        out.origins |= manifest.origins
        out.tuning.add_manifest(manifest)
        for problem, known in manifest.problems.items():
            have = out.problems.setdefault(problem, Problem())
            have.note.comments = _joined(have.note.comments, known.note.comments)
    else:
        out.others += 1
    if source.kdb is not None:
        of = "".join(f" for {arch}" for arch in source.archs)
        out.origins.add(f"rows of a kernel database{of} by kdbtool {__version__}")
    for trace in source.traces:
        out.tuning.add_beside(trace.path, trace.facts)
        for asked in trace.problems:
            if is_problem(asked.key):
                out.problems.setdefault(asked.key, Problem())
        joins = out.join is not None and out.join.add(trace)
        if trace.lookups or joins:
            out.facts.append(trace.facts)
            out.origins.add(_origin(trace.facts))


def _join(out: Collected, join: Join, kdbs: list[Path]) -> None:
    join.with_kdbs(kdbs)
    for keys in join.found.values():
        shared = (f"# one of {len(keys)} keys of the object that was loaded",) if len(keys) > 1 else ()
        for name, args, arch in keys:
            known = (name, args, arch) in out.rows  # asked for elsewhere: nothing to doubt
            out.add(Key(name, args, arch), missed=False, note=None if known else Note(comments=shared))
    out.notes += join.notes()


def merged_hashes(manifests: Sequence[Manifest]) -> dict[str, Hashes]:
    """The hashes of all manifests; KdbtoolError where two name different ones for a source."""
    found = conflicts.sources(manifests)
    if found:
        hint = "say which sources with --miopen PATH or --sources DIR"
        raise conflicts.refusal("inputs for different kernel sources", found, hint)
    return {source: hashes for manifest in manifests for source, hashes in manifest.hashes.items()}


def merged_askers(manifests: Iterable[Manifest], keys: Collection[Key]) -> dict[Key, set[Asker]]:
    """Who asked for each of these keys, by all manifests that say it."""
    out: dict[Key, set[Asker]] = {}
    for manifest in manifests:
        for key, askers in manifest.asked_by.items():
            if key in keys:
                out.setdefault(key, set()).update(askers)
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


def _origin(facts: Facts) -> str:
    arch = bare_arch(facts.device or "")
    device = f"{'simulated ' if facts.simulated else ''}{arch or 'an unknown device'}"
    if arch and facts.cu:
        device += f":{facts.cu}"
    overrides = f" with {', '.join(sorted(facts.overrides))} set" if facts.overrides else ""
    how = "read from a log of" if facts.all.get("source") == "log" else "recorded on"
    return f"{how} {device}{overrides} by kdbtool {__version__}"


def _joined(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return first + tuple(line for line in second if line not in first)
