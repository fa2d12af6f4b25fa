"""Numbers about a manifest: what `kdbtool info` says of one."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kdbtool.manifest.model import BUILD, Manifest
from kdbtool.miopen.classes import class_of
from kdbtool.miopen.keys import SUFFIX, language, source_of


def summary(manifest: Manifest) -> dict[str, Any]:
    """Header, and the keys by state, language, class, arch and source. `variants`: compilations."""
    sources: Counter[str] = Counter()
    states: Counter[str] = Counter()
    archs: Counter[str] = Counter()
    for key in manifest.keys:
        name = source_of(key.name) or key.name.removesuffix(SUFFIX).decode("utf-8", "backslashreplace")
        sources[name] += 1
        states[key.state] += 1
        archs[key.arch or "unknown"] += 1
    languages: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    for name, count in sources.items():
        languages[language(name) or "unknown"] += count
        classes[class_of(name)] += count
    variants = list(manifest.variants())
    wanted = {source_of(key.name) for key in manifest.keys if key.state == BUILD} - {None}
    return {
        "format": 0,
        "miopen": manifest.miopen,
        "sources_sha256": manifest.sources,
        "origins": sorted(manifest.origins),
        "archs": dict(sorted(archs.items())),
        "rows": len(manifest.keys),
        "states": dict(sorted(states.items())),
        "languages": dict(sorted(languages.items())),
        "classes": dict(sorted(classes.items())),
        "variants": len(variants),
        "doubled_rows": manifest.doubled(),
        "doubled_pairs": sum(len(variant.spellings) > 1 for variant in variants),
        "hashed_sources": len(manifest.hashes),
        "sources_to_build": len(wanted),
        "problems": len(manifest.problems),
        "sources": [
            {"name": name, "language": language(name), "class": class_of(name), "rows": count}
            for name, count in sorted(sources.items(), key=lambda item: (-item[1], item[0]))
        ],
    }
