"""Which ranks left no trace: by the ranks of the traces, and how many there are as the launcher said."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kdbtool.shim.trace_model import Facts

Gap = tuple[int, int]  # first and last rank, both missing


def missing(facts: Iterable[Facts]) -> dict[int, list[Gap]]:
    """Missing ranks by the number of ranks of a job. Where no launcher said how many there are, those
    below the highest. What is complete is not in it."""
    seen: dict[int | None, set[int]] = {}
    for one in facts:
        if one.rank is not None:
            seen.setdefault(one.ranks, set()).add(one.rank)
    found: dict[int, list[Gap]] = {}
    for said, ranks in seen.items():
        count = max(said or 0, max(ranks) + 1)
        gaps, after = [], 0
        for rank in [*sorted(ranks), count]:
            if rank > after:
                gaps.append((after, rank - 1))
            after = rank + 1
        if gaps:
            found[count] = gaps
    return dict(sorted(found.items()))


def told(gaps: dict[int, list[Gap]]) -> list[str]:
    """`no trace of ranks 2, 5-7 of 8`, a line for each job."""
    lines = []
    for count, some in gaps.items():
        shown = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in some[:50])
        many = len(some) > 1 or some[0][0] < some[0][1]
        more = ", ..." if len(some) > 50 else ""
        lines.append(f"no trace of rank{'s' if many else ''} {shown}{more} of {count}")
    return lines
