"""Traces, logs, kernel databases and manifests in, one sorted text out.

  kdbtool manifest traces/ -o resnet50.kdbmanifest
  kdbtool manifest gfx942.kdb --miopen 6.2.2 --drop dead --repair -o gfx942.kdbmanifest

INPUT is a trace, a folder of traces, a log of MIOpen, a .kdb or .ukdb, or a manifest: its content says. The
text goes to standard output or to the file of -o. What went in, what was dropped and why goes to standard
error; --json puts that account on standard output instead, and the text only into the file of -o.
docs/manifest-format.md has the grammar.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from kdbtool.cli import options
from kdbtool.cli.archs import wanted_archs
from kdbtool.errors import EXIT_DONE, KdbtoolError, printable
from kdbtool.files import check_output, write_bytes
from kdbtool.manifest.choose import Choice, Report, choose
from kdbtool.manifest.collect import Collected, collect, merged_comments, merged_hashes
from kdbtool.manifest.model import Manifest
from kdbtool.manifest.target import build_for, hashes_of
from kdbtool.manifest.writer import write_manifest
from kdbtool.miopen.sources import SourceSet, from_directory, from_library
from kdbtool.miopen.versions import MiopenBuild
from kdbtool.reasons import Reason

HELP = "write kernel keys as sorted text: from traces, logs, kernel databases, manifests"


def prepare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "inputs", nargs="+", type=Path, metavar="INPUT", help="trace, folder, log, kdb, or manifest"
    )
    options.output(parser, "write the manifest to this file (default: standard output)")
    parser.add_argument(
        "--drop",
        action="append",
        choices=("dead", "asm"),
        default=[],
        help="dead: rows that this MIOpen can never ask for; asm: assembly kernels (repeatable)",
    )
    parser.add_argument(
        "--repair", action="store_true", help="keep rows that only .o or -mcpu makes dead, with the right key"
    )
    parser.add_argument(
        "--spellings",
        choices=("both", "asked"),
        default="both",
        help="both: add the other spelling of a key whose data type list MIOpen repeats by path (default); "
        "asked: only the keys of the input",
    )
    parser.add_argument(
        "--from-kdb",
        action="append",
        type=Path,
        default=[],
        metavar="KDB",
        help="join traces without look-ups (a MIOpen with static SQLite) by the MD5 of what they loaded "
        "with the rows of this .kdb or .ukdb (repeatable)",
    )
    options.miopen(parser)
    parser.add_argument("--sources", type=Path, metavar="DIR", help="take the hashes from the sources in DIR")
    options.arch(parser)
    options.kernel(parser)
    parser.add_argument("--problems", action="store_true", help="add the recorded convolution problems")
    options.json_output(parser)
    options.force(parser)
    options.verbosity(parser)


def run(args: argparse.Namespace) -> int:
    """Collect, choose, write, account."""
    if args.output is not None:
        check_output(args.output, force=args.force)
    archs = wanted_archs(args.arch)
    collected = collect(args.inputs, args.from_kdb)
    build = build_for(args.miopen, collected)
    if "dead" in args.drop and build is None:
        raise KdbtoolError(
            "--drop dead needs a MIOpen to judge against",
            why="the input does not say which one it is for",
            hint="add --miopen VERSION|PATH",
        )
    choice = Choice(
        build,
        "dead" in args.drop,
        "asm" in args.drop,
        args.repair,
        archs,
        args.kernel,
        both_spellings=args.spellings == "both",
    )
    joined = collected.join
    manifest, report, notes = _make(collected, choice, args.sources, asked=args.miopen is not None)
    if args.problems:
        manifest.problems = collected.problems
    elif any(m.problems for m in collected.manifests):
        notes.append("the problems of the input manifests are left out, --problems keeps them")
    data = write_manifest(manifest)
    if args.output is not None:
        write_bytes(args.output, data, force=args.force)
    elif not args.json:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    if args.json:
        account = _as_json(report, manifest, build, notes)
        print(json.dumps(account | ({"join": joined.as_json()} if joined else {}), indent=2))
    elif not args.quiet:
        if joined and args.verbose:
            notes += joined.listed()
        print(_as_text(report, manifest, build, notes, verbose=args.verbose > 0), file=sys.stderr, end="")
    return EXIT_DONE


def _make(
    collected: Collected, choice: Choice, folder: Path | None, *, asked: bool
) -> tuple[Manifest, Report, list[str]]:
    keys, report = choose(collected, choice)
    notes = list(collected.notes)
    manifest = merged_comments(collected.manifests)
    manifest.keys = keys
    manifest.origins = collected.origins
    build = choice.build
    manifest.miopen = build.rocm if build else None
    sources: SourceSet | None = None
    if folder is not None:
        sources = from_directory(folder)
    elif build is not None and build.path is not None:
        sources = from_library(build.path)
    if sources is not None:
        manifest.sources = sources.set_hash
        manifest.hashes = hashes_of(sources, keys)
    else:
        same = [m for m in collected.manifests if m.miopen == manifest.miopen]
        if asked and len(same) < len(collected.manifests):
            notes.append("hashes of manifests for another MIOpen are left out")
        manifest.hashes = merged_hashes(same)
        sets = {m.sources for m in same if m.sources}
        manifest.sources = sets.pop() if len(sets) == 1 else None
        if not manifest.hashes and report.kept:
            notes.append(
                "no source hashes: name the library with --miopen PATH or the sources with --sources DIR"
            )
    if report.unbuilt and build is not None and build.path is None:
        notes.append("unbuilt by the kernel list of a release: --miopen PATH takes the library's own")
    report.doubled = sum(1 for variant in manifest.variants() if len(variant.spellings) > 1)
    if not report.distinct:
        notes.append("the input has no row, the manifest is empty")
    return manifest, report, notes


def _as_json(
    report: Report, manifest: Manifest, build: MiopenBuild | None, notes: list[str]
) -> dict[str, object]:
    def rows(counter: dict[Reason, int]) -> dict[str, int]:
        return {reason.code: count for reason, count in sorted(counter.items(), key=lambda i: i[0].order)}

    return {
        "miopen": build.label if build else None,
        "rows": report.read,
        "distinct": report.distinct,
        "kept": report.kept,
        "added": report.added,
        "unbuilt": report.unbuilt,
        "dropped": report.dropped,
        "doubled": report.doubled,
        "repaired": {"rows": report.repaired.total(), "by_reason": rows(report.repaired)},
        "reasons": {
            reason.code: {
                "counted": report.counted[reason],
                "carried": report.carried[reason],
                "text": reason.text,
            }
            for reason in sorted(report.carried, key=lambda r: r.order)
        },
        "problems": len(manifest.problems),
        "archs": manifest.archs,
        "notes": notes,
    }


def _as_text(
    report: Report, manifest: Manifest, build: MiopenBuild | None, notes: list[str], *, verbose: bool
) -> str:
    lines = [printable(f"judged against: {build.label}") if build else "judged against: no MIOpen (unknown)"]
    equal = report.read - report.distinct
    lines.append(f"{report.read:>9} rows in" + (f", {equal} of them equal to another" if equal else ""))
    for reason in sorted(report.carried, key=lambda r: r.order):
        also = report.carried[reason] - report.counted[reason]
        line = f"{report.counted[reason]:>9} out: {reason.code}"
        if also:
            line += f" (and {also} counted above)"
        lines.append(line + (f": {reason.text}" if verbose else ""))
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
    lines += [printable(f"note: {note}") for note in notes]
    return "\n".join(lines) + "\n"
