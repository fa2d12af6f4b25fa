"""Which rows of the input a manifest keeps, and why the others go: every row is accounted for.

A row carries all its reasons and is counted under the first of the fixed order (kdbtool/reasons.py).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from kdbtool.manifest.collect import Collected, Row
from kdbtool.manifest.model import ASKED_UNBUILT, BUILD, Key, Note
from kdbtool.miopen.keys import language, source_of
from kdbtool.miopen.liveness import judge, repair
from kdbtool.miopen.spelling import other_spelling
from kdbtool.miopen.versions import MiopenBuild
from kdbtool.reasons import Reason, first


@dataclass(frozen=True)
class Choice:
    """What the user asked for. `archs` None: all. `build` is what rows are judged against, where known."""

    build: MiopenBuild | None = None
    drop_dead: bool = False
    drop_asm: bool = False
    repair: bool = False
    archs: Collection[str] | None = None
    kernel: re.Pattern[str] | None = None
    both_spellings: bool = True


@dataclass
class Report:
    """Counts of rows. `counted` sums to the dropped ones; `carried` counts each reason of each of those."""

    read: int = 0
    distinct: int = 0
    kept: int = 0
    unbuilt: int = 0
    added: int = 0  # keys that no input has: the other spelling of one that is kept
    doubled: int = 0  # keys kept in both spellings, as pairs
    counted: Counter[Reason] = field(default_factory=Counter)
    carried: Counter[Reason] = field(default_factory=Counter)
    repaired: Counter[Reason] = field(default_factory=Counter)

    @property
    def dropped(self) -> int:
        """Distinct rows that are not in the manifest."""
        return self.counted.total()


def choose(collected: Collected, choice: Choice) -> tuple[dict[Key, Note], Report]:
    """The keys that stay, in their state, and the account of all."""
    report = Report(read=collected.total, distinct=len(collected.rows))
    kept: dict[Key, Note] = {}
    taken = set(collected.rows)  # keys that a repaired row must not fall onto
    for _, row in sorted(collected.rows.items()):
        key = replace(row.key, state=_state(row, choice.build))
        reasons, fixed = _judge(key, choice, taken)
        if fixed is not None:
            report.repaired[first(reasons)] += 1
            taken.add((fixed.name, fixed.args, fixed.arch))
            key, reasons = fixed, []
        reasons = reasons + _filters(key, choice)
        if reasons:
            report.counted[first(reasons)] += 1
            report.carried.update(reasons)
            continue
        kept[key] = row.note
        if key.state == ASKED_UNBUILT:
            report.unbuilt += 1
        else:
            report.kept += 1
    if choice.both_spellings:
        _complete(kept, choice.build, report)
    return kept, report


def _complete(kept: dict[Key, Note], build: MiopenBuild | None, report: Report) -> None:
    """Add the other spelling of every live key: a network's next process asks for that one."""
    known = {(key.name, key.args, key.arch) for key in kept}
    for key in list(kept):
        args = other_spelling(key.name, key.args) if key.state == BUILD else None
        if args is None or (key.name, args, key.arch) in known:
            continue
        if judge(key.name, args, key.arch or None, build):
            continue  # dead itself, and kept only because nobody asked to drop such rows
        known.add((key.name, args, key.arch))
        kept[replace(key, args=args)] = Note()
        report.added += 1


def _state(row: Row, build: MiopenBuild | None) -> str:
    """`asked-unbuilt` for a key that only ever missed and whose source this MIOpen lacks."""
    if build is None or not row.missed:
        return row.key.state
    source = source_of(row.key.name)
    return BUILD if source is not None and source in build.kernels else ASKED_UNBUILT


def _judge(key: Key, choice: Choice, taken: set[tuple[bytes, bytes, str]]) -> tuple[list[Reason], Key | None]:
    """Reasons why the row is dead, if that was asked for, and the key that it is repaired to."""
    if not (choice.drop_dead or choice.repair):
        return [], None
    # An unbuilt key was asked for: its missing source is its state, not its death.
    build = choice.build if key.state == BUILD else None
    reasons = judge(key.name, key.args, key.arch or None, build)
    if not reasons:
        return [], None
    name, args = repair(key.name, key.args, key.arch or None)
    fixed = replace(key, name=name, args=args)
    if fixed != key:
        if (name, args, key.arch) in taken:
            reasons.append(Reason.TWIN)
        elif choice.repair and not judge(name, args, key.arch or None, build):
            return reasons, fixed
    return (reasons if choice.drop_dead or Reason.TWIN in reasons else []), None


def _filters(key: Key, choice: Choice) -> list[Reason]:
    reasons = []
    source = source_of(key.name)
    if choice.drop_asm and source is not None and language(source) == "asm":
        reasons.append(Reason.ASM)
    shown = source if source is not None else key.name.decode("utf-8", "backslashreplace")
    if (choice.archs is not None and key.arch not in choice.archs) or (
        choice.kernel is not None and choice.kernel.search(shown) is None
    ):
        reasons.append(Reason.FILTER)
    return reasons
