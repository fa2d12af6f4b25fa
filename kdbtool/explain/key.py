"""One key explained, from what is known of MIOpen's releases and from the other keys of its source."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kdbtool.explain.options import Option, options_of, serves, solvers_of
from kdbtool.miopen.classes import classes_of
from kdbtool.miopen.history import epoch_of, live_in, releases_with, renamed
from kdbtool.miopen.keys import SUFFIX, find_repeat, language, source_of, split_mcpu
from kdbtool.miopen.liveness import judge
from kdbtool.miopen.spelling import other_spelling
from kdbtool.miopen.versions import MiopenBuild
from kdbtool.reasons import Reason

VALUES = 8  # of an option that varies, that are kept


@dataclass
class Varying:
    """An option that is not the same in all rows of a source; `without`: rows that lack it."""

    name: str
    values: list[str] = field(default_factory=list)  # the first VALUES, sorted
    count: int = 0
    without: int = 0


@dataclass(frozen=True)
class Explanation:
    """`source` None: the name follows no convention. `judged` None: no MIOpen was named.

    `serves`: "one shape", "any shape" or "unknown". `spelled`: how often the data type list stands in a
    row, 0 without one. `other`: the arguments that MIOpen also asks with, None where there are none.
    """

    name: bytes
    args: bytes
    arch: str
    source: str | None
    language: str | None
    classes: tuple[str, ...]
    solvers: list[tuple[str, tuple[str, ...]]]
    options: list[Option]
    serves: str
    epoch: str | None
    spelled: int
    other: bytes | None
    releases: dict[str, list[Reason]]
    judged: list[Reason] | None
    replaced_by: str | None
    rows: int
    varying: list[Varying]


def explain(
    name: bytes,
    args: bytes,
    arch: str = "",
    siblings: Iterable[bytes] = (),
    build: MiopenBuild | None = None,
) -> Explanation:
    """`siblings`: the arguments of all rows of the same source in the same file, this one's included."""
    source = source_of(name)
    shown = source or name.removesuffix(SUFFIX).decode("utf-8", "backslashreplace")
    split = split_mcpu(args)
    arch = arch or (split[1].partition(":")[0] if split else "")
    options = options_of(args)
    repeat = find_repeat(split[0] if split else args)
    epoch = epoch_of(args)
    everyone = tuple(siblings)
    return Explanation(
        name=name,
        args=args,
        arch=arch,
        source=source,
        language=language(shown),
        classes=classes_of(shown),
        solvers=solvers_of(shown),
        options=options,
        serves=serves(options) if source and releases_with(source) else "unknown",
        epoch=epoch,
        spelled=repeat.count if repeat else 1 if epoch else 0,
        other=other_spelling(name, args),
        releases=live_in(name, args, arch or None),
        judged=judge(name, args, arch or None, build) if build is not None else None,
        replaced_by=renamed(source, build, arch or None) if build is not None and source else None,
        rows=len(everyone),
        varying=list(_varying(everyone)),
    )


@functools.lru_cache(1)
def _varying(rows: tuple[bytes, ...]) -> list[Varying]:
    """`vary`, once for all keys of a source: each alone would read every other one again."""
    return vary(rows)


def vary(rows: Sequence[bytes]) -> list[Varying]:
    """The options whose value, or whose presence, differs between these arguments; by name."""
    values: dict[str, set[str]] = {}
    present: dict[str, int] = {}
    for args in rows:
        # A repeat says nothing new: the last one counts, as for a compiler.
        for name, value in dict(map(_named, options_of(args))).items():
            values.setdefault(name, set()).add(value)
            present[name] = present.get(name, 0) + 1
    return [
        Varying(name, sorted(found, key=_natural)[:VALUES], len(found), len(rows) - present[name])
        for name, found in sorted(values.items())
        if len(found) > 1 or present[name] < len(rows)
    ]


def _named(option: Option) -> tuple[str, str]:
    """(name, value), also of -mcpu=gfx1030."""
    if option.kind == "flag":
        name, _, value = option.name.partition("=")
        return name, value
    return option.name, option.value or ""


def _natural(value: str) -> tuple[int, str]:
    return (int(value), "") if value.isascii() and value.isdecimal() and len(value) < 19 else (1 << 62, value)
