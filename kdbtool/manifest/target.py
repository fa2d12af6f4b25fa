"""The MIOpen that a manifest is for, and the hashes of its kernel sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kdbtool.errors import KdbtoolError
from kdbtool.manifest import conflicts
from kdbtool.manifest.model import BUILD, Hashes, Key
from kdbtool.miopen.keys import source_of
from kdbtool.miopen.sources import SourceSet, build_id_of
from kdbtool.miopen.versions import MiopenBuild, by_miopen_version, resolve

if TYPE_CHECKING:
    from kdbtool.manifest.collect import Collected
    from kdbtool.shim.trace import Facts

_VERSIONS = "inputs of different MIOpen versions"
_ONE_EACH = "make one manifest per MIOpen, or say which one with --miopen"


def build_for(asked: str | None, collected: Collected) -> MiopenBuild | None:
    """The build that was asked for, else the one that traces and manifests agree on, else None.

    KdbtoolError where they name different ones: a kdb belongs to one MIOpen build.
    """
    if asked is not None:
        return resolve(asked)
    conflict = conflicts.versions(collected.manifests)
    if conflict is not None:
        raise conflicts.refusal(_VERSIONS, [conflict], _ONE_EACH)
    found: dict[str, MiopenBuild] = {}
    for manifest in collected.manifests:
        if manifest.miopen and manifest.miopen not in found:
            found[manifest.miopen] = resolve(manifest.miopen)
    for build in _of_traces(collected.facts):
        have = found.get(build.rocm)
        if have is None or have.path is None:
            found[build.rocm] = build
    if len(found) > 1:
        raise KdbtoolError(
            _VERSIONS,
            why=" and ".join(sorted(found)),
            hint=_ONE_EACH,
        )
    return next(iter(found.values()), None)


def _of_traces(facts: Iterable[Facts]) -> Iterator[MiopenBuild]:
    for version, path, build_id in sorted(
        {(f.miopen_version or "", f.miopen_path or "", f.miopen_build_id or "") for f in facts}
    ):
        library = _library(path, build_id)
        build = resolve(str(library)) if library else by_miopen_version(version)
        if build is None and version:
            raise KdbtoolError(
                f"unknown MIOpen version {version} in a trace",
                why=f"its library {path or '(not recorded)'} is not here",
                hint="name the MIOpen with --miopen VERSION|PATH",
            )
        if build is not None:
            yield build


def _library(path: str, build_id: str) -> Path | None:
    """The library that was recorded, here or in the root; None unless it is the very same build."""
    if not path.startswith("/") or not build_id:
        return None
    from kdbtool.root.paths import default_root

    for candidate in (Path(path), default_root() / path.lstrip("/")):
        try:
            if candidate.is_file() and build_id_of(candidate) == build_id:
                return candidate
        except (OSError, KdbtoolError):
            continue
    return None


def hashes_of(sources: SourceSet, keys: Iterable[Key]) -> dict[str, Hashes]:
    """The hashes of every source that the keys to build name and that the set has."""
    names = {source_of(key.name) for key in keys if key.state == BUILD}
    return {
        name: Hashes(*sources.hash_of(name))
        for name in sorted(n for n in names if n)
        if name in sources.kernels
    }
