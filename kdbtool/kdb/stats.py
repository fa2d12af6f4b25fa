"""Numbers about a kernel database, gathered while its rows go by: what `info` prints."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from kdbtool.codeobject import CodeObject
from kdbtool.errors import printable
from kdbtool.kdb.reader import Row
from kdbtool.miopen.keys import SUFFIX, find_repeat, is_arch, language, split_mcpu


@dataclass
class Source:
    """The rows of one kernel source. Sizes in bytes; `stored` is what the blobs take in the file."""

    name: str
    language: str
    rows: int = 0
    stored: int = 0
    objects: set[bytes] = field(default_factory=set)


@dataclass
class Stats:
    """Counts of one file. An object is counted once however many rows share it."""

    rows: int = 0
    stored: int = 0
    object_bytes: int = 0
    archs: Counter[str] = field(default_factory=Counter)
    languages: Counter[str] = field(default_factory=Counter)
    targets: Counter[str] = field(default_factory=Counter)
    versions: Counter[str] = field(default_factory=Counter)
    containers: Counter[str] = field(default_factory=Counter)
    sources: dict[str, Source] = field(default_factory=dict)
    _objects: set[bytes] = field(default_factory=set)
    _keys: set[bytes] = field(default_factory=set)
    _doubled: list[bytes] = field(default_factory=list)

    def add_key(self, row: Row) -> None:
        """One row by its key."""
        self.rows += 1
        split = split_mcpu(row.args)
        bare = split[1].partition(":")[0] if split else ""
        self.archs[bare if is_arch(bare) else "none"] += 1
        source = self._source(row)
        source.rows += 1
        self.languages[source.language] += 1
        self._keys.add(_once(row.name, row.args))
        repeat = find_repeat(split[0] if split else row.args)
        if repeat is not None:
            tail = row.args[len(split[0]) :] if split else b""
            self._doubled.append(_once(row.name, repeat.once + tail))

    def add_object(self, row: Row, stored: int, identity: bytes) -> None:
        """The blob of the same row."""
        source = self._source(row)
        self.stored += stored
        source.stored += stored
        source.objects.add(identity)
        self._objects.add(identity)

    def describe(self, found: CodeObject, size: int) -> None:
        """An object of `size` bytes that was not seen before."""
        self.object_bytes += size
        self.targets[found.target_id] += 1
        self.versions[f"v{found.code_object_version}" if found.code_object_version else "unknown"] += 1
        self.containers[found.container] += 1

    @property
    def objects(self) -> int:
        """Distinct objects."""
        return len(self._objects)

    @property
    def doubled(self) -> int:
        """Rows whose define block stands twice."""
        return len(self._doubled)

    @property
    def doubled_pairs(self) -> int:
        """Those of them whose spelling with the block once is there too."""
        return sum(key in self._keys for key in self._doubled)

    def json(self) -> dict[str, Any]:
        """As `info --json` shows it."""
        return {
            "rows": self.rows,
            "objects": self.objects,
            "stored_bytes": self.stored,
            "object_bytes": self.object_bytes,
            "archs": dict(sorted(self.archs.items())),
            "languages": dict(sorted(self.languages.items())),
            "targets": dict(sorted(self.targets.items())),
            "code_object_versions": dict(sorted(self.versions.items())),
            "containers": dict(sorted(self.containers.items())),
            "doubled_rows": self.doubled,
            "doubled_pairs": self.doubled_pairs,
            "sources": [
                {
                    "name": s.name,
                    "language": s.language,
                    "rows": s.rows,
                    "objects": len(s.objects),
                    "stored_bytes": s.stored,
                }
                for s in self.by_rows()
            ],
        }

    def by_rows(self) -> list[Source]:
        """The sources, those with most rows first."""
        return sorted(self.sources.values(), key=lambda s: (-s.rows, s.name))

    def _source(self, row: Row) -> Source:
        stem = row.name.removesuffix(SUFFIX)
        name = printable(stem)
        if name not in self.sources:
            self.sources[name] = Source(name, language(name) or "unknown")
        return self.sources[name]


def _once(name: bytes, args: bytes) -> bytes:
    return hashlib.blake2b(name + b"\0" + args, digest_size=16).digest()
