"""A manifest out of a harvest's record."""

from __future__ import annotations

from dataclasses import replace

from kdbtool import __version__
from kdbtool.harvest.record import Record
from kdbtool.harvest.wanted import OF_FIND_DB
from kdbtool.manifest.model import ASKED_UNBUILT, BUILD, Key, Manifest, Note
from kdbtool.manifest.target import hashes_of
from kdbtool.miopen.keys import source_of
from kdbtool.miopen.sources import SourceSet
from kdbtool.miopen.spelling import other_spelling
from kdbtool.targets import Target


def manifest_of(record: Record, sources: SourceSet, target: Target, *, askers: bool = False) -> Manifest:
    """Every key of the record for the device's architecture, in its state; `askers`: who asked for each, as
    comments above it.

    Of a tier that went by Find, with the other spelling of each key too: a process that finds and the one
    after it ask for different ones (docs/manifest-format.md). The tiers of a find-db have asked for both.
    """
    meta = record.meta()
    out = Manifest(miopen=meta.get("miopen"), sources=sources.set_hash, find_db=meta.get("find-db"))
    out.origins.add(
        f"harvested, tier {meta.get('tier')}, on simulated {target.arch}:{target.cu} by kdbtool {__version__}"
    )
    out.profile = {"cu": str(target.cu)}
    states: dict[bytes, str] = {}
    names: dict[bytes, bytes] = {}  # one object for all keys of a name
    for number, (found, args) in record.each_key():
        name = names.setdefault(found, found)
        if name not in states:
            states[name] = BUILD if source_of(name) in sources.kernels else ASKED_UNBUILT
        note = Note(comments=_asked_by(record.askers(number)) if askers else ())
        out.keys[Key(name, args, target.arch, states[name])] = note
    if meta.get("tier") not in OF_FIND_DB:
        for key in [key for key in out.keys if key.state == BUILD]:
            other = other_spelling(key.name, key.args)
            if other is not None:
                out.keys.setdefault(replace(key, args=other), Note())
    out.hashes = hashes_of(sources, out.keys)
    return out


def _asked_by(askers: list[tuple[str, str]]) -> tuple[str, ...]:
    """A line for each solver; the record has all problems."""
    problems: dict[str, list[str]] = {}
    for solver, problem in askers:
        problems.setdefault(solver, []).append(problem)
    return tuple(
        f"# asked for by {solver}: {some[0]}" + (f" and {len(some) - 1} more" if len(some) > 1 else "")
        for solver, some in problems.items()
    )
