"""A manifest for another architecture: the rows whose options do not depend on it.

  kdbtool retarget gfx1030.kdbmanifest --arch gfx1031 -o gfx1031.kdbmanifest

Only rows move that cannot follow the device; the others are counted by reason and source, -v lists each,
--json has all. Exit code 0 when all rows moved, 1 when some were left behind. What moved was never asked for
on the new architecture: record or harvest there for the rest. docs/choosing.md says what is judged by what.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from kdbtool.cli import options
from kdbtool.cli.archs import one_target
from kdbtool.errors import EXIT_DONE, EXIT_PROBLEMS, printable
from kdbtool.files import check_output, write_bytes
from kdbtool.manifest.reader import read_manifest
from kdbtool.manifest.retarget import Retargeted, retarget
from kdbtool.manifest.writer import write_manifest
from kdbtool.miopen.keys import shown_source
from kdbtool.reasons import Reason, first

HELP = "rewrite a manifest for another architecture, as far as its rows allow"


def prepare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("manifest", type=Path, metavar="MANIFEST", help="the manifest to move")
    options.arch(parser, "the architecture to move to, one that kdbtool knows; native: the device present")
    options.output(parser, "the manifest to write", required=True)
    options.force(parser)
    options.json_output(parser)
    options.verbosity(parser)


def run(args: argparse.Namespace) -> int:
    """Judge, write, account."""
    arch = one_target(args.arch).arch
    check_output(args.output, force=args.force)
    done = retarget(read_manifest(args.manifest), arch)
    if not done.rows:
        done.notes.append("the input has no row, the manifest is empty")
    elif not done.manifest.keys:
        done.notes.append("nothing can be moved, the manifest is empty")
    write_bytes(args.output, write_manifest(done.manifest), force=args.force)
    if args.json:
        print(json.dumps(_as_json(done), indent=2))
    elif not args.quiet:
        sys.stderr.write(_as_text(done, verbose=args.verbose > 0))
    return EXIT_PROBLEMS if done.left else EXIT_DONE


def _as_json(done: Retargeted) -> dict[str, object]:
    return {
        "arch": done.arch,
        "rows": done.rows,
        "moved": done.moved,
        "there": done.there,
        "twins": done.twins,
        "reasons": {
            reason.code: {"counted": count, "text": reason.text} for reason, count in _by_order(done.counted)
        },
        "left": [
            {
                "name": printable(one.key.name),
                "args": printable(one.key.args),
                "arch": one.key.arch,
                "reasons": [reason.code for reason in one.reasons],
                "options": [printable(option) for option in one.options],
            }
            for one in done.left
        ],
        "notes": done.notes,
    }


def _as_text(done: Retargeted, *, verbose: bool) -> str:
    lines = [f"{done.rows:>9} rows in"]
    if done.there:
        lines.append(f"{done.there:>9} are for {done.arch} as they stand")
    for reason, count in _by_order(done.counted):
        lines.append(f"{count:>9} left: {reason.code}: {reason.text}")
    by_source: dict[str, Counter[Reason]] = {}
    named: dict[str, Counter[str]] = {}
    for one in done.left:
        source = shown_source(one.key.name)
        by_source.setdefault(source, Counter())[first(one.reasons)] += 1
        named.setdefault(source, Counter()).update(one.options)
    for source, by in sorted(by_source.items(), key=lambda item: (-item[1].total(), item[0])):
        why = ", ".join(f"{count} {reason.code}" for reason, count in _by_order(by))
        of = f" ({', '.join(sorted(named[source])[:4])})" if named[source] else ""
        lines.append(printable(f"{'':>9}   {by.total():>6} {source}: {why}{of}"))
    if verbose:
        for one in done.left:
            codes = " ".join(reason.code for reason in one.reasons)
            lines.append(printable(f"left: {codes}: ") + printable(one.key.name) + printable(one.key.args))
    twins = f", {done.twins} of them onto the same key as another" if done.twins else ""
    lines.append(f"{done.moved:>9} moved to {done.arch}{twins}")
    lines += [printable(f"note: {note}") for note in done.notes]
    return "\n".join(lines) + "\n"


def _by_order(counter: Counter[Reason]) -> list[tuple[Reason, int]]:
    return sorted(counter.items(), key=lambda item: item[0].order)
