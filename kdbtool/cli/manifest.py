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
from kdbtool.cli.account import as_json, as_text
from kdbtool.cli.archs import wanted_archs
from kdbtool.errors import EXIT_DONE, KdbtoolError, counted, printable
from kdbtool.files import check_output, write_bytes
from kdbtool.inputs import each_input
from kdbtool.manifest.choose import Choice, Report, choose
from kdbtool.manifest.choose_cost import (
    Cost,
    asked_loss,
    assembly_loss,
    cost_of,
    known_solutions,
    read_solutions,
)
from kdbtool.manifest.choose_usage import Kernel, Usage
from kdbtool.manifest.collect import Collected, collect, merged_askers, merged_comments, merged_hashes
from kdbtool.manifest.conflicts import Refused, merged_profile, told
from kdbtool.manifest.model import Manifest
from kdbtool.manifest.spdx import spdx_document
from kdbtool.manifest.target import build_for, hashes_of
from kdbtool.manifest.writer import write_manifest
from kdbtool.miopen.solvers import solver_set
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
    options.choosing(parser)
    parser.add_argument("--problems", action="store_true", help="add the recorded convolution problems")
    parser.add_argument(
        "--spdx",
        type=Path,
        metavar="FILE",
        help="also write an SPDX document (JSON): the manifest's kernel sources by class, and their licences",
    )
    options.json_output(parser)
    options.force(parser)
    options.verbosity(parser)


def run(args: argparse.Namespace) -> int:
    """Collect, choose, write, account."""
    try:
        return _run(args)
    except Refused as error:
        if len(error.conflicts) > 1:
            for conflict in error.conflicts:
                print(f"kdbtool manifest: conflict: {printable(conflict)}", file=sys.stderr)
        raise


def _run(args: argparse.Namespace) -> int:
    if args.output is not None:
        check_output(args.output, force=args.force)
    if args.spdx is not None:
        check_output(args.spdx, force=args.force)
        if args.output is not None and args.spdx.resolve() == args.output.resolve():
            raise KdbtoolError("one file for two outputs", where=args.spdx, hint="name another for --spdx")
    archs = wanted_archs(args.arch)
    if args.top_by and args.top is None and args.max_size is None:
        raise KdbtoolError("--top-by alone", why="it says what --top and --max-size rank by")
    usage = Usage()
    collected = collect(args.inputs, args.from_kdb, usage if _chooses(args) else None)
    build = build_for(args.miopen, collected)
    if options.DEAD in args.drop and build is None:
        raise KdbtoolError(
            "--drop dead needs a MIOpen to judge against",
            why="the input does not say which one it is for",
            hint="add --miopen VERSION|PATH",
        )
    order = args.top_by or options.TOP_BY[0]
    if args.top is not None:
        _need_order(usage, order)
    choice = Choice(
        build,
        options.DEAD in args.drop,
        options.ASM in args.drop,
        args.repair,
        archs,
        args.kernel,
        both_spellings=args.spellings == "both",
        drop_classes=frozenset(args.drop) - {options.DEAD, options.ASM},
        drop_sources=args.drop_source,
        keep_sources=args.keep_source,
        languages=args.language,
        used=_used(args.used_by, usage, collected.notes) if args.used_by else None,
        top=args.top,
        max_size=args.max_size,
        order=order,
    )
    joined = collected.join
    sources = _sources(args.sources, build)
    manifest, report, notes = _make(collected, choice, sources, usage, asked=args.miopen is not None)
    cost = _cost(collected, choice, report, manifest, usage, args.find_db, notes)
    if args.problems:
        manifest.problems = collected.problems
        notes += told(collected.conflicts)
    elif any(m.problems for m in collected.manifests):
        notes.append("the problems of the input manifests are left out, --problems keeps them")
    data = write_manifest(manifest)
    about = spdx_document(manifest, data, sources) if args.spdx is not None else b""
    if args.output is not None:
        write_bytes(args.output, data, force=args.force)
    elif not args.json:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    if args.spdx is not None:
        write_bytes(args.spdx, about, force=args.force)
    if args.json:
        account = as_json(report, manifest, build, notes, cost)
        print(json.dumps(account | ({"join": joined.as_json()} if joined else {}), indent=2))
    elif not args.quiet:
        if joined and args.verbose:
            notes += joined.listed()
        text = as_text(report, manifest, build, notes, cost, verbose=args.verbose > 0)
        print(text, file=sys.stderr, end="")
    return EXIT_DONE


def _sources(folder: Path | None, build: MiopenBuild | None) -> SourceSet | None:
    """The kernel sources that are at hand: of the folder, else of the library."""
    if folder is not None:
        return from_directory(folder)
    return from_library(build.path) if build is not None and build.path is not None else None


def _chooses(args: argparse.Namespace) -> bool:
    """Whether anything may go, so that its cost, or its rank, is asked for."""
    names = ("arch", "kernel", "language", "drop", "drop_source", "used_by", "top", "max_size")
    return any(getattr(args, name) for name in names)


def _need_order(usage: Usage, order: str) -> None:
    """KdbtoolError where the traces rank nothing."""
    if order == options.TOP_BY[0] and not any(use.launches for use in usage.kernels.values()):
        what, seen = "launches", f"{usage.launches} launches"
        why = f"{counted(usage.traces, 'trace')} with {seen}, none of a kernel whose key is known"
    elif order != options.TOP_BY[0] and not usage.timed:
        what, why = "the time of a compile", f"{counted(usage.traces, 'trace')}, none with a timed one"
    else:
        return
    hint = "name a folder of traces among the inputs, compilers' traces included"
    raise KdbtoolError(f"--top needs {what}", where="the input", why=why, hint=hint)


def _used(paths: list[Path], known: Usage, notes: list[str]) -> set[Kernel]:
    """The kernels that these traces used; objects without a look-up by what the input's databases say."""
    usage = Usage()
    usage.learn(known)
    for path in paths:
        for source in each_input(path):
            if source.kdb is not None or source.manifest is not None:
                why = f"it is a {source.kind.value}"
                raise KdbtoolError("not a trace", where=path, why=why, hint="--used-by takes traces and logs")
            usage.add_input(source)
            notes += source.notes
    usage.finish()
    if not usage.used:
        notes.append("the traces of --used-by used no kernel that is known")
    return usage.used


def _cost(
    collected: Collected,
    choice: Choice,
    report: Report,
    manifest: Manifest,
    usage: Usage,
    find_db: Path | None,
    notes: list[str],
) -> Cost:
    cost = cost_of(report.gone, manifest.keys, usage)
    solutions = read_solutions(find_db, notes) if find_db else {}
    known, without = known_solutions(collected, solutions)
    cost.asked = asked_loss(collected, solutions | known, report.gone, manifest.keys)
    if known and (choice.drop_asm or choice.drop_classes):
        has = None
        try:
            has = solver_set(choice.build) if choice.build else None
        except KdbtoolError as error:  # a stripped library: the rest of the account is none the worse
            notes.append(f"solvers are not compared with the MIOpen's own: {error.what}")
        cost.assembly = assembly_loss(known, None if choice.drop_asm else choice.drop_classes, has)
        cost.assembly.unknown = without
    return cost


def _make(
    collected: Collected, choice: Choice, sources: SourceSet | None, usage: Usage, *, asked: bool
) -> tuple[Manifest, Report, list[str]]:
    keys, report = choose(collected, choice, usage)
    notes = list(collected.notes)
    manifest = merged_comments(collected.manifests)
    manifest.keys = keys
    manifest.origins = collected.origins
    if not collected.others:  # of rows of a trace or a database nobody said what decided them
        manifest.profile, differing = merged_profile(collected.manifests)
        notes += told(differing)
        find_dbs = {m.find_db for m in collected.manifests}
        manifest.find_db = find_dbs.pop() if len(find_dbs) == 1 else None
    manifest.asked_by = merged_askers(collected.manifests, keys)
    build = choice.build
    manifest.miopen = build.rocm if build else None
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
    elif not keys:
        notes.append("nothing is left, the manifest is empty")
    if report.counted[Reason.OVER_SIZE] and not any(use.launches or use.ns for use in usage.kernels.values()):
        notes.append("no trace says what is used: --max-size dropped the last kernels in the order of keys")
    for arch, one in report.estimates.items():
        if choice.max_size is not None and one.after > choice.max_size:
            notes.append(f"{arch or 'unknown arch'}: the rows of --keep-source alone are over --max-size")
    return manifest, report, notes
