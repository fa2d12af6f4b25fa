"""Which rows of the input a manifest keeps, and why the others go: every row is accounted for.

A row carries all its reasons and is counted under the first of the fixed order (kdbtool/reasons.py).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from kdbtool.manifest.choose_rank import LAUNCHES, Estimate, beyond_top, over_size
from kdbtool.manifest.choose_size import Sizes
from kdbtool.manifest.choose_usage import Kernel, Usage, of_key
from kdbtool.manifest.collect import Collected, Row
from kdbtool.manifest.model import ASKED_UNBUILT, BUILD, Key, Note
from kdbtool.miopen.classes import class_of
from kdbtool.miopen.keys import language, shown_source, source_of
from kdbtool.miopen.liveness import judge, repair
from kdbtool.miopen.spelling import other_spelling
from kdbtool.miopen.versions import MiopenBuild
from kdbtool.reasons import Reason, first


@dataclass(frozen=True)
class Choice:
    """What the user asked for. `archs` None: all. `build` is what rows are judged against, where known.

    `drop_classes`: of kdbtool.miopen.classes. Rows of a source that one of `keep_sources` matches stay
    whatever else is dropped on request; they are not spared where they are dead, or of another arch, kernel
    or language. `max_size`: bytes of each database to come.
    """

    build: MiopenBuild | None = None
    drop_dead: bool = False
    drop_asm: bool = False
    repair: bool = False
    archs: Collection[str] | None = None
    kernel: re.Pattern[str] | None = None
    both_spellings: bool = True
    drop_classes: Collection[str] = ()
    drop_sources: Collection[re.Pattern[str]] = ()
    keep_sources: Collection[re.Pattern[str]] = ()
    languages: Collection[str] | None = None
    used: Collection[Kernel] | None = None
    top: int | None = None
    max_size: int | None = None
    order: str = LAUNCHES

    def spares(self, key: Key) -> bool:
        """Whether one of `keep_sources` names the key's source."""
        return any(one.search(shown_source(key.name)) for one in self.keep_sources)


_CLASS_REASONS = {
    "asm-generated": Reason.ASM_GENERATED,
    "asm-disassembled": Reason.ASM_DISASSEMBLED,
    "asm-handwritten": Reason.ASM_HANDWRITTEN,
}


@dataclass
class Report:
    """Counts of rows. `counted` sums to the dropped ones; `carried` counts each reason of each of those.

    `gone`: the dropped keys, as they stood in the input or after repair. `estimates`: with a `max_size`, by
    arch.
    """

    read: int = 0
    distinct: int = 0
    kept: int = 0
    unbuilt: int = 0
    added: int = 0  # keys that no input has: the other spelling of one that is kept
    doubled: int = 0  # keys kept in both spellings, as pairs
    counted: Counter[Reason] = field(default_factory=Counter)
    carried: Counter[Reason] = field(default_factory=Counter)
    repaired: Counter[Reason] = field(default_factory=Counter)
    by_source: dict[str, Counter[Reason]] = field(default_factory=dict)  # the first reason of each row
    gone: list[Key] = field(default_factory=list)
    estimates: dict[str, Estimate] = field(default_factory=dict)
    bases: Counter[str] = field(default_factory=Counter)  # where the sizes of the rows came from

    @property
    def dropped(self) -> int:
        """Distinct rows that are not in the manifest."""
        return self.counted.total()

    def drop(self, key: Key, reasons: list[Reason]) -> None:
        """Count a row that goes."""
        self.counted[first(reasons)] += 1
        self.carried.update(reasons)
        self.by_source.setdefault(shown_source(key.name), Counter())[first(reasons)] += 1
        self.gone.append(key)


def choose(
    collected: Collected, choice: Choice, usage: Usage | None = None
) -> tuple[dict[Key, Note], Report]:
    """The keys that stay, in their state, and the account of all; `top` and `max_size` go by `usage`."""
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
            report.drop(key, reasons)
            continue
        kept[key] = row.note
        if key.state == ASKED_UNBUILT:
            report.unbuilt += 1
        else:
            report.kept += 1
    added = _complete(kept, choice.build) if choice.both_spellings else set()
    report.added = len(added)
    usage = usage or Usage()
    if choice.top is not None:
        beyond = beyond_top(kept, choice.top, usage, choice.order)
        _cut(kept, [key for key in beyond if not choice.spares(key)], Reason.NOT_TOP, added, report)
    if choice.max_size is not None:
        sizes = Sizes(usage)
        over, report.estimates = over_size(kept, choice.max_size, sizes, choice.order, choice.spares)
        report.bases = sizes.bases
        _cut(kept, over, Reason.OVER_SIZE, added, report)
    return kept, report


def _cut(kept: dict[Key, Note], keys: Iterable[Key], reason: Reason, added: set[Key], report: Report) -> None:
    """Take rows out again. A spelling that no input has was never one of its rows, so it is not dropped."""
    for key in keys:
        del kept[key]
        if key in added:
            report.added -= 1
            continue
        report.drop(key, [reason])
        if key.state == ASKED_UNBUILT:
            report.unbuilt -= 1
        else:
            report.kept -= 1


def _complete(kept: dict[Key, Note], build: MiopenBuild | None) -> set[Key]:
    """Add the other spelling of every live key: a network's next process asks for that one."""
    added = set()
    known = {(key.name, key.args, key.arch) for key in kept}
    for key in list(kept):
        args = other_spelling(key.name, key.args) if key.state == BUILD else None
        if args is None or (key.name, args, key.arch) in known:
            continue
        if judge(key.name, args, key.arch or None, build):
            continue  # dead itself, and kept only because nobody asked to drop such rows
        known.add((key.name, args, key.arch))
        kept[replace(key, args=args)] = Note()
        added.add(replace(key, args=args))
    return added


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
    shown = shown_source(key.name)
    spoken = language(shown)
    reasons = []
    if not choice.spares(key):
        if choice.drop_asm and spoken == "asm":
            reasons.append(Reason.ASM)
        if (of := class_of(shown)) in choice.drop_classes:
            reasons.append(_CLASS_REASONS[of])
        if any(one.search(shown) for one in choice.drop_sources):
            reasons.append(Reason.SOURCE_DROPPED)
        if choice.used is not None and of_key(key) not in choice.used:
            reasons.append(Reason.UNUSED)
    if (
        (choice.archs is not None and key.arch not in choice.archs)
        or (choice.languages is not None and spoken not in choice.languages)
        or (choice.kernel is not None and choice.kernel.search(shown) is None)
    ):
        reasons.append(Reason.FILTER)
    return reasons
