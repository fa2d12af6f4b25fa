"""From a manifest and a source set to compile jobs: every row is built, or has a reason why not.

Nothing is compiled here and nothing of the manifest is trusted: options pass the allow-list, a source
is a name in the source set, and a source or header that is not the manifest's stops the run (law 2).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kdbtool.errors import KdbtoolError, printable
from kdbtool.manifest import ASKED_UNBUILT, Hashes, Key, Manifest, Variant
from kdbtool.miopen.history import absence
from kdbtool.miopen.keys import language as language_of
from kdbtool.miopen.keys import split_mcpu
from kdbtool.miopen.sources import SourceSet
from kdbtool.reasons import Reason
from kdbtool.rebuild.backend import Identity, Task
from kdbtool.rebuild.options import OptionRefused, accept
from kdbtool.rebuild.recipe import LANGUAGES, Recipe

SHOWN = 5  # rows or sources that an error names
Target = Callable[[str, str], str]  # (arch, language) -> target id to compile for


@dataclass(frozen=True)
class Job:
    """Keys that one object serves."""

    source: str
    language: str
    arch: str
    target: str
    options: tuple[str, ...]
    keys: tuple[Key, ...]


@dataclass(frozen=True)
class Skip:
    """A row that is not built."""

    key: Key
    reason: Reason
    detail: str = ""


@dataclass
class Plan:
    """Jobs in manifest order, and what was left out. `texts` are the sources as they are compiled."""

    recipe: Recipe
    jobs: list[Job] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    filtered: int = 0  # rows that --arch and --kernel left out
    unbuilt: int = 0  # rows that MIOpen asked for and never had the source of
    texts: dict[str, bytes] = field(default_factory=dict)
    hashes: dict[str, tuple[str, str]] = field(default_factory=dict)

    def targets(self) -> dict[str, list[str]]:
        """Target ids by language, each once, sorted."""
        found: dict[str, set[str]] = {}
        for job in self.jobs:
            found.setdefault(job.language, set()).add(job.target)
        return {language: sorted(found[language]) for language in sorted(found)}

    def task(self, job: Job, identity: Identity) -> Task:
        """The job as a back end takes it, with the digest of all that decides the object."""
        text = self.texts[job.source]
        parts = (
            "kdbtool object 1",
            *(
                identity.digest(job.language, job.target),
                self.recipe.digest,
                job.language,
                job.target,
                job.source,
            ),
            *(hashlib.sha256(text).hexdigest(), self.hashes[job.source][1], *job.options),
        )
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        return Task(digest, job.source, text, job.language, job.options, job.arch, job.target)


def make_plan(
    manifest: Manifest,
    sources: SourceSet,
    recipe: Recipe,
    target: Target,
    *,
    archs: Iterable[str] | None = None,
    kernel: re.Pattern[str] | None = None,
    allow_changed: bool = False,
    allow_unknown: bool = False,
) -> Plan:
    """The plan; KdbtoolError (exit code 2) for a refused option, or sources that the manifest is not for."""
    plan = Plan(recipe)
    wanted = None if archs is None else frozenset(archs)

    def selected(name: str, arch: str) -> bool:
        return (wanted is None or arch in wanted) and (kernel is None or bool(kernel.search(name)))

    for key in manifest.keys:
        if key.state == ASKED_UNBUILT and selected(_shown(key.name), key.arch):
            plan.unbuilt += 1
    refused: list[tuple[Key, OptionRefused]] = []
    asked: dict[str, Hashes] = {}
    for variant in manifest.variants():
        keys = variant.spellings
        if not selected(variant.source or _shown(keys[0].name), variant.arch):
            plan.filtered += len(keys)
            continue
        skip = _unbuildable(variant, sources, recipe)
        if skip is not None:
            plan.skips += [Skip(key, *skip) for key in keys]
            continue
        source = variant.source
        assert source is not None
        try:
            for key in keys:
                options = accept(key.args, key.arch)
            # Spellings differ only in how often a block of defines stands there, which changes nothing.
            options = accept(variant.args_once + b" -mcpu=" + variant.arch.encode(), variant.arch)
        except OptionRefused as error:
            refused.append((key, error))
            continue
        language = language_of(source)
        assert language is not None
        asked[source] = variant.hashes
        plan.jobs.append(Job(source, language, variant.arch, target(variant.arch, language), options, keys))
    _refuse_options(manifest, refused)
    for source in sorted(asked):
        plan.hashes[source] = sources.hash_of(source)
        plan.texts[source] = recipe.source_text(language_of(source) or "", sources.kernels[source])
    _check_sources(manifest, sources, asked, plan.hashes, allow_changed, allow_unknown)
    return plan


def _unbuildable(variant: Variant, sources: SourceSet, recipe: Recipe) -> tuple[Reason, str] | None:
    if variant.source is None:
        return Reason.NO_DOT_O, "no source file can have this name"
    split = split_mcpu(variant.spellings[0].args)
    if not variant.arch or split is None:
        return Reason.NO_MCPU, ""
    if split[1] != variant.arch:
        return (Reason.TARGET_ID if ":" in split[1] else Reason.FOREIGN_MCPU), printable(split[1])
    language = language_of(variant.source)
    if language not in LANGUAGES or language not in recipe.commands:
        return Reason.NO_COMPILER, f"nothing here builds {variant.source.rpartition('.')[2]} files"
    if variant.source not in sources.kernels:
        return Reason.SOURCE_ABSENT, f"{variant.source} is not among the sources: {absence(variant.source)}"
    return None


def _refuse_options(manifest: Manifest, refused: list[tuple[Key, OptionRefused]]) -> None:
    if not refused:
        return
    rows = "; ".join(
        f"{_line(manifest, key)}{_shown(key.name)}: option {error.shown()}: {error.why}"
        for key, error in refused[:SHOWN]
    )
    more = f"; and {len(refused) - SHOWN} more rows" if len(refused) > SHOWN else ""
    raise KdbtoolError(
        f"{len(refused)} rows have an option that is not allowed",
        where=manifest.path or None,
        why=rows + more,
        hint="remove these rows from the manifest, nothing was built",
    )


def _check_sources(
    manifest: Manifest,
    sources: SourceSet,
    asked: dict[str, Hashes],
    have: dict[str, tuple[str, str]],
    allow_changed: bool,
    allow_unknown: bool,
) -> None:
    unknown = [name for name, hashes in asked.items() if hashes.source is None or hashes.headers is None]
    if unknown and not allow_unknown:
        made = f"the manifest is for MIOpen {manifest.miopen or 'unknown'}"
        raise KdbtoolError(
            f"{len(unknown)} of {len(asked)} kernel sources have no hash in the manifest",
            where=manifest.path or None,
            why=f"{made}; a row of another MIOpen can give wrong results: {_some(unknown)}",
            hint="make it again with kdbtool manifest --miopen LIBRARY, or rebuild --allow-unknown",
        )
    changed = []
    for name, hashes in asked.items():
        differs = [
            what
            for what, old, new in (
                ("text", hashes.source, have[name][0]),
                ("headers", hashes.headers, have[name][1]),
            )
            if old is not None and old != new
        ]
        if differs:
            rows = sum(1 for key in manifest.keys if key.name == name.encode() + b".o")
            changed.append(f"{name} ({' and '.join(differs)}, {rows} rows)")
    if changed and not allow_changed:
        raise KdbtoolError(
            f"{len(changed)} kernel sources differ from those that the manifest was made for",
            where=sources.where,
            why=_some(changed),
            hint="give the sources of its MIOpen (--miopen, --sources), or rebuild --allow-changed",
        )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(sorted(names)[:SHOWN]) + more


def _line(manifest: Manifest, key: Key) -> str:
    note = manifest.keys.get(key)
    return f"line {note.line}: " if note and note.line else ""


def _shown(name: bytes) -> str:
    text = printable(name)
    return text if len(text) <= 80 else text[:77] + "..."
