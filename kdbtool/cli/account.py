"""What `kdbtool manifest` says of its work: what went in, what went, why, and what that costs."""

from __future__ import annotations

from typing import Any

from kdbtool.errors import counted, printable
from kdbtool.manifest.choose import Report
from kdbtool.manifest.choose_cost import Cost, Loss
from kdbtool.manifest.choose_size import BASES
from kdbtool.manifest.model import Manifest
from kdbtool.miopen.versions import MiopenBuild
from kdbtool.reasons import Reason

_SOURCES = 10  # that are listed without -v


def as_json(
    report: Report, manifest: Manifest, build: MiopenBuild | None, notes: list[str], cost: Cost
) -> dict[str, object]:
    """One object; times in seconds, sizes in bytes."""
    return {
        "miopen": build.label if build else None,
        "rows": report.read,
        "distinct": report.distinct,
        "kept": report.kept,
        "added": report.added,
        "unbuilt": report.unbuilt,
        "dropped": report.dropped,
        "doubled": report.doubled,
        "repaired": {"rows": report.repaired.total(), "by_reason": _by_reason(report.repaired)},
        "reasons": {
            reason.code: {
                "counted": report.counted[reason],
                "carried": report.carried[reason],
                "text": reason.text,
            }
            for reason in sorted(report.carried, key=lambda r: r.order)
        },
        "dropped_sources": {source: _by_reason(found) for source, found in _sources(report)},
        "cost": {
            "kernels": cost.kernels,
            "launches": cost.launches,
            "timed_kernels": cost.timed,
            "compile_seconds": round(cost.ns / 1e9, 6),
            "problems_by_askers": cost.asked.as_json() if cost.asked else None,
            "problems_by_assembly": cost.assembly.as_json() if cost.assembly else None,
        },
        "estimates": {
            arch or "unknown": {"before": one.before, "after": one.after}
            for arch, one in report.estimates.items()
        },
        "sizes_from": {basis: report.bases[basis] for basis in BASES if report.bases[basis]},
        "problems": len(manifest.problems),
        "archs": manifest.archs,
        "notes": notes,
    }


def as_text(
    report: Report,
    manifest: Manifest,
    build: MiopenBuild | None,
    notes: list[str],
    cost: Cost,
    *,
    verbose: bool,
) -> str:
    """Lines for people; `verbose`: what a reason means, and every source."""
    lines = [printable(f"judged against: {build.label}") if build else "judged against: no MIOpen (unknown)"]
    equal = report.read - report.distinct
    lines.append(f"{report.read:>9} rows in" + (f", {equal} of them equal to another" if equal else ""))
    for reason in sorted(report.carried, key=lambda r: r.order):
        also = report.carried[reason] - report.counted[reason]
        line = f"{report.counted[reason]:>9} out: {reason.code}"
        if also:
            line += f" (and {also} counted above)"
        lines.append(line + (f": {reason.text}" if verbose else ""))
    lines += _dropped(report, verbose=verbose)
    for reason in sorted(report.repaired, key=lambda r: r.order):
        lines.append(f"{report.repaired[reason]:>9} repaired: {reason.code}")
    lines.append(
        f"{report.kept:>9} kept" + (f", {report.doubled} in both spellings" if report.doubled else "")
    )
    if report.added:
        lines.append(f"{report.added:>9} added: the other spelling of a kept key")
    if report.unbuilt:
        lines.append(f"{report.unbuilt:>9} listed as unbuilt: asked for, but this MIOpen has no source")
    if manifest.problems:
        lines.append(f"{len(manifest.problems):>9} problems")
    lines += _costs(cost)
    for arch, one in report.estimates.items():
        of = printable(arch or "unknown arch")
        lines.append(f"estimate: {of}.kdb of {_mb(one.after)}, {_mb(one.before)} before --max-size")
    if report.bases:
        from_ = ", ".join(f"{report.bases[basis]} {basis}" for basis in BASES if report.bases[basis])
        lines.append(f"estimate: rows by where their size is from: {from_}")
    lines += [printable(f"note: {note}") for note in notes]
    return "\n".join(lines) + "\n"


def _sources(report: Report) -> list[tuple[str, Any]]:
    return sorted(report.by_source.items(), key=lambda item: (-item[1].total(), item[0]))


def _by_reason(counter: dict[Reason, int]) -> dict[str, int]:
    return {reason.code: count for reason, count in sorted(counter.items(), key=lambda i: i[0].order)}


def _dropped(report: Report, *, verbose: bool) -> list[str]:
    found = _sources(report)
    shown = found if verbose else found[:_SOURCES]
    lines = []
    for source, by in shown:
        why = ", ".join(f"{count} {code}" for code, count in _by_reason(by).items())
        lines.append(printable(f"{'':>9}   {by.total():>6} {source}: {why}"))
    if len(shown) < len(found):
        lines.append(f"{'':>9}   and {len(found) - len(shown)} more sources (-v shows all)")
    return lines


def _costs(cost: Cost) -> list[str]:
    if not cost.kernels:
        return []
    lines = [f"cost: {counted(cost.kernels, 'kernel')} to be compiled again when asked for"]
    if cost.timed:
        took = f"{cost.ns / 1e9:.1f} s of compiling in the traces for {cost.timed} of them"
        lines.append(f"cost: {took}, {cost.launches} launches")
    else:
        lines.append("cost: how long they compile is not known, no trace has it")
    for loss, whose in ((cost.asked, "that asked for them"), (cost.assembly, "looked at, without assembly")):
        if loss is not None:
            lines += _loss(loss, whose)
    return lines


def _loss(loss: Loss, whose: str) -> list[str]:
    lines = [
        f"cost: of {counted(loss.problems, 'problem')} {whose}, {loss.best.total()} lose their fastest "
        f"solver, {len(loss.without)} have none left (by data, not run)"
    ]
    if loss.median is not None:
        lines.append(f"cost: the next solver takes {loss.median:.2f} times as long (median, by data)")
    if loss.best:
        by = ", ".join(f"{name} {count}" for name, count in loss.best.most_common(5))
        lines.append(printable(f"cost: most problems lose {by}"))
    if loss.unknown:
        lines.append(f"cost: {counted(loss.unknown, 'problem')} without a record of solvers")
    return lines


def _mb(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{size} bytes"
