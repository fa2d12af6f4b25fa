"""Which kernels go where only some have room: the N most used, or as many as a database's size allows.

A kernel here is one compilation: both spellings of its key stay or go together. The order is total: launches
or seconds of compiling, then the other of the two, then the key's bytes, so that the same input gives the
same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kdbtool.manifest.choose_size import Sizes, file_size
from kdbtool.manifest.choose_usage import Kernel, Usage, Use, of_key
from kdbtool.manifest.model import Key
from kdbtool.miopen.keys import shown_source

LAUNCHES, COMPILE_SECONDS = "launches", "compile-seconds"
ORDERS = (LAUNCHES, COMPILE_SECONDS)
_NONE = Use()


@dataclass(frozen=True)
class Estimate:
    """Bytes of an arch's database to come, before and after the cut."""

    before: int
    after: int


class _Room:
    """A database that is being filled; keys that are not built (0 bytes) take none of it."""

    def __init__(self) -> None:
        self.rows = 0
        self.sources: set[str] = set()

    def with_more(self, rows: int, source: str) -> int:
        return file_size(self.rows + rows, len(self.sources | {source})) if rows else 0

    def take(self, rows: int, source: str) -> None:
        if rows:
            self.rows += rows
            self.sources.add(source)

    @property
    def size(self) -> int:
        return file_size(self.rows, len(self.sources)) if self.rows else 0


def grouped(keys: Iterable[Key]) -> dict[Kernel, list[Key]]:
    """The keys by kernel."""
    out: dict[Kernel, list[Key]] = {}
    for key in keys:
        out.setdefault(of_key(key), []).append(key)
    return out


def beyond_top(keys: Iterable[Key], number: int, usage: Usage, by: str) -> list[Key]:
    """The keys of all but the `number` most used kernels; one without a known use is never among those."""
    kernels = grouped(keys)
    used = [kernel for kernel in kernels if _weight(usage, by)(kernel)[0] < 0]
    top = set(sorted(used, key=_weight(usage, by))[:number])
    return [key for kernel, some in kernels.items() if kernel not in top for key in some]


def over_size(
    keys: Iterable[Key], limit: int, sizes: Sizes, by: str, protected: Callable[[Key], bool]
) -> tuple[list[Key], dict[str, Estimate]]:
    """The keys that do not fit into databases of `limit` bytes, one for each arch, and the estimates.

    The least used go first, and all that are used less than one that went; those `protected` never go.
    """
    keys = list(keys)
    sizes.prepare(keys)
    out: list[Key] = []
    estimates = {}
    for arch in sorted({key.arch for key in keys}):
        kernels = grouped(key for key in keys if key.arch == arch)
        weight = _weight(sizes.usage, by)
        order = sorted(kernels, key=lambda one: (not protected(kernels[one][0]), *weight(one)))
        room, everything, full = _Room(), _Room(), False
        for kernel in order:
            some = kernels[kernel]
            rows, source = sum(map(sizes.row, some)), shown_source(kernel[0])
            everything.take(rows, source)
            full = full or room.with_more(rows, source) > limit
            if full and rows and not protected(some[0]):
                out += some
            else:
                room.take(rows, source)
        estimates[arch] = Estimate(everything.size, room.size)
    return out, estimates


def _weight(usage: Usage, by: str) -> Callable[[Kernel], tuple[int, int, Kernel]]:
    """What kernels are sorted by, the most used first."""

    def of(kernel: Kernel) -> tuple[int, int, Kernel]:
        use = usage.kernels.get(kernel, _NONE)
        first, second = (use.launches, use.ns) if by == LAUNCHES else (use.ns, use.launches)
        return -first, -second, kernel

    return of
