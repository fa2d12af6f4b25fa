"""How large a kernel database will be that holds certain keys: an estimate, before anything is compiled.

The size of an object as the database stores it (bz2) comes from, in this order: `stored`, a row of the same
kernel in a database of the input; `loaded`, the object that a trace saw, by the packing ratio of its source;
`source`, the median of the kernels of that source known so far; `data`, the median of that source in
data/object-sizes.tsv; `language`, the median of all sources of its language there. A row costs as SQLite lays
it out: pages of 4096 bytes, long rows on pages of their own, each key once more in the index. Both spellings
are rows with a blob each.
"""

from __future__ import annotations

import functools
import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import resources

from kdbtool.manifest.choose_usage import Usage, of_key
from kdbtool.manifest.model import BUILD, Key
from kdbtool.miopen.keys import language, shown_source

BASES = ("stored", "loaded", "source", "data", "language")
_PAGE = 4096
_EMPTY = 5 * _PAGE  # schema, table, index, provenance and its index
_PER_SOURCE = 220  # a provenance record
_COLUMNS = 50  # id, hash, size, and the headers of a row


@dataclass(frozen=True)
class Known:
    """Medians of one source's objects: bytes as stored and as loaded, of so many objects."""

    packed: int
    loaded: int
    objects: int


@dataclass
class Sizes:
    """Estimates for keys; `bases` counts where those that were asked for came from."""

    usage: Usage
    bases: Counter[str] = field(default_factory=Counter)
    _objects: dict[tuple[bytes, bytes, str], tuple[int, str]] = field(default_factory=dict)
    _sources: dict[str, int] = field(default_factory=dict)

    def prepare(self, keys: Iterable[Key]) -> None:
        """Take in what is known of these kernels; the medians of `source` come from them alone."""
        known: dict[str, list[int]] = {}
        for key in keys:
            kernel = of_key(key)
            if kernel in self._objects:
                continue
            source = shown_source(key.name)
            use = self.usage.kernels.get(kernel)
            if kernel in self.usage.packed:
                self._objects[kernel] = self.usage.packed[kernel], "stored"
            elif use is not None and use.size:
                like = of_source(source)
                self._objects[kernel] = max(1, use.size * like.packed // like.loaded), "loaded"
            else:
                continue
            known.setdefault(source, []).append(self._objects[kernel][0])
        self._sources = {source: int(statistics.median_low(sizes)) for source, sizes in known.items()}

    def object(self, key: Key) -> tuple[int, str]:
        """(bytes of the blob to come, which of BASES says so)."""
        found = self._objects.get(of_key(key))
        if found is not None:
            return found
        source = shown_source(key.name)
        if source in self._sources:
            return self._sources[source], "source"
        return of_source(source).packed, "data" if source in _table() else "language"

    def row(self, key: Key) -> int:
        """Bytes that the key adds to the file; 0 for one that is not built."""
        if key.state != BUILD:
            return 0
        blob, basis = self.object(key)
        self.bases[basis] += 1
        names = len(key.name) + len(key.args)
        return _cell(names + blob + _COLUMNS, _PAGE - 35) + _cell(names + 12, (_PAGE - 12) * 64 // 255 - 23)


def file_size(rows: int, sources: int) -> int:
    """The file that so many bytes of rows (`Sizes.row`), of so many kernel sources, make."""
    return _EMPTY + sources * _PER_SOURCE + rows


def of_source(source: str) -> Known:
    """What data/object-sizes.tsv has for the source, else for its language, else for all."""
    table = _table()
    return table.get(source) or table.get(f".{language(source)}") or table["."]


def _cell(payload: int, most: int) -> int:
    """Bytes of one record in a b-tree whose pages take `most` bytes of one (SQLite's file format, 1.6).

    A page is filled in key order, so that records like this one share it, and its rest stays empty.
    """
    local, pages = payload, 0
    if payload > most:
        least = (_PAGE - 12) * 32 // 255 - 23
        local = least + (payload - least) % (_PAGE - 4)
        if local > most:
            local = least
        pages = -(-(payload - local) // (_PAGE - 4))
    return _PAGE // max(1, (_PAGE - 8) // (local + 12)) + pages * _PAGE


@functools.cache
def _table() -> dict[str, Known]:
    text = (resources.files("kdbtool.manifest") / "data" / "object-sizes.tsv").read_text("ascii")
    out: dict[str, Known] = {}
    groups: dict[str, list[Known]] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            source, packed, loaded, objects = line.split("\t")
            out[source] = Known(int(packed), int(loaded), int(objects))
            for group in (".", f".{language(source)}"):
                groups.setdefault(group, []).append(out[source])
    for group, some in groups.items():
        middle = sorted(some, key=lambda one: one.packed)[len(some) // 2]
        out[group] = Known(middle.packed, middle.loaded, sum(one.objects for one in some))
    return out
