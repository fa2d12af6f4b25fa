"""Merge kernel databases into one, or any mix with manifests, traces and logs into a manifest.

  kdbtool merge a.kdb b.kdb -o gfx1030.kdb
  kdbtool merge gfx1030.kdb traces/ -o all.kdbmanifest

From databases alone comes a database: the same bytes in whatever order they are given. A key with two
objects of the same code (another comment, another layout) is no conflict, and said; with two of different
code it is one: all are listed, nothing is written, exit code 1; --prefer decides instead, and says each
decision. A damaged row is never copied, and databases of different MIOpen versions are refused. Rows of
several architectures need a folder for -o: one ARCH.kdb each. Any other mix becomes what kdbtool manifest
makes of it.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kdbtool.cli import options
from kdbtool.errors import EXIT_DONE, EXIT_PROBLEMS, KdbtoolError, printable
from kdbtool.files import check_output
from kdbtool.inputs import holds_keys, open_input
from kdbtool.kdb.identify import identify
from kdbtool.kdb.merge import FIRST, LAST, Account, Difference, Merge
from kdbtool.kdb.merge_record import merged_record
from kdbtool.kdb.names import file_name, parse_name
from kdbtool.kdb.reader import KdbReader
from kdbtool.kdb.writer import write_kdb

HELP = "merge kernel databases, or any mix of inputs into a manifest"


def prepare(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.add_argument(
        "inputs", nargs="+", type=Path, metavar="INPUT", help="kdb, ukdb, manifest, trace, folder, or log"
    )
    options.output(parser, "the merged file; a folder for databases of several architectures", required=True)
    parser.add_argument(
        "--prefer",
        choices=(FIRST, LAST),
        help="where a key has two objects: take that of the first or the last input that has it",
    )
    parser.add_argument(
        "--skip-damaged",
        action="store_true",
        help="leave damaged rows out, and count them, instead of refusing",
    )
    parser.add_argument(
        "--allow-mixed", action="store_true", help="merge databases of different MIOpen versions all the same"
    )
    options.miopen(parser)
    options.force(parser)
    options.json_output(parser)
    options.verbosity(parser)


def run(args: argparse.Namespace) -> int:
    """Merge databases here; hand any other mix to `manifest`."""
    kinds = [identify(path) for path in args.inputs]
    if not all(kind.is_kdb for kind in kinds):
        return _manifest(args)
    if args.miopen is not None:
        raise KdbtoolError(
            "--miopen", why="databases are merged as they are", hint="kdbtool manifest judges their rows"
        )
    with ExitStack() as files:
        return _databases(args, [files.enter_context(KdbReader(kind)) for kind in kinds])


def _manifest(args: argparse.Namespace) -> int:
    from kdbtool.cli import build_parser

    for path in args.inputs:
        if not holds_keys(identify(path)):
            open_input(path)  # says what it is
    for option, given in (
        ("--prefer", args.prefer),
        ("--skip-damaged", args.skip_damaged),
        ("--allow-mixed", args.allow_mixed),
    ):
        if given:
            raise KdbtoolError(option, why="the inputs are not all kernel databases", hint="leave it out")
    words = ["manifest", "-o", str(args.output)]
    words += ["--miopen", args.miopen] if args.miopen is not None else []
    flags = (("--force", args.force), ("--json", args.json), ("-q", args.quiet))
    words += [flag for flag, given in flags if given] + ["-v"] * args.verbose
    asked = build_parser(("manifest",)).parse_args([*words, "--", *map(str, args.inputs)])
    code: int = asked.run(asked)
    return code


def _databases(args: argparse.Namespace, readers: list[KdbReader]) -> int:
    xnack = {reader.name.xnack for reader in readers if reader.name is not None}
    if len(xnack) > 1:
        raise KdbtoolError(
            "databases for devices with xnack+ and for others",
            why="MIOpen keeps them apart (gfx90a_xnack.kdb, gfx90a.kdb)",
            hint="merge each kind by itself",
        )
    plus = True in xnack
    if not args.output.is_dir():
        check_output(args.output, force=args.force)
        plus = _named(args.output, xnack)
    merge = Merge(readers, args.prefer, xnack=plus)
    account = merge.survey()
    record, notes = merged_record(readers, account, allow_mixed=args.allow_mixed)
    outputs = _outputs(args.output, account, xnack=plus, force=args.force)
    refused = bool(account.conflicts) or (bool(account.damaged) and not args.skip_damaged)
    if not refused:
        for arch, path in outputs.items():
            write_kdb(path, merge.rows(arch), record, force=args.force)
    document = _document(merge, account, outputs, notes, written=not refused)
    if args.json:
        print(json.dumps(document, indent=1))
    _report(document, readers, account, args)
    return EXIT_PROBLEMS if refused else EXIT_DONE


def _named(output: Path, xnack: set[bool]) -> bool:
    """Whether the output is for xnack+ devices. KdbtoolError for a name that says what it will not be."""
    if output.suffix in (".bz2", ".kdbmanifest"):
        hint = f"bzip2 {output.stem}" if output.suffix == ".bz2" else f"kdbtool manifest ... -o {output}"
        raise KdbtoolError(
            "cannot write",
            where=output,
            why="of databases alone a database is made",
            hint=f"afterwards: {hint}",
        )
    name = parse_name(output)
    if name is not None and xnack and name.xnack not in xnack:
        kind = "devices with xnack+" if name.xnack else "other devices than xnack+"
        raise KdbtoolError(
            f"a name for {kind}",
            where=output,
            why="the inputs' names say otherwise",
            hint="rename the output",
        )
    return True in xnack or (name is not None and name.xnack)


def _outputs(output: Path, account: Account, *, xnack: bool, force: bool) -> dict[str, Path]:
    """The file of each architecture; KdbtoolError where they do not fit `output`."""
    archs = sorted(account.archs)
    if output.is_dir():
        if "" in account.archs:
            raise KdbtoolError(
                f"{account.archs['']} rows of no architecture",
                why="neither their keys nor the names of their files name one",
                hint="name their file for one (gfx1030.kdb)",
            )
        paths = {arch: output / file_name(arch, xnack=xnack) for arch in archs}
        for path in paths.values():
            check_output(path, force=force)
        return paths
    named = [arch for arch in archs if arch]
    if len(named) > 1 or (named and "" in account.archs):
        counts = ", ".join(f"{arch or 'none'} {account.archs[arch]}" for arch in archs)
        if "" in account.archs:
            raise KdbtoolError(
                "rows of an architecture and rows of none",
                why=counts,
                hint="name the file of those that name none for one (gfx1030.kdb)",
            )
        raise KdbtoolError(
            "rows of several architectures",
            why=counts,
            hint="a database is for one: name an existing folder with -o",
        )
    name = parse_name(output)
    if name is not None and named and name.arch != named[0]:
        raise KdbtoolError(
            f"a name for {name.arch}",
            where=output,
            why=f"the rows are for {named[0]}",
            hint="rename the output",
        )
    return {archs[0] if archs else "": output}


def _document(
    merge: Merge, account: Account, outputs: dict[str, Path], notes: list[str], *, written: bool
) -> dict[str, Any]:
    labels = [printable(str(reader.path)) for reader in merge.readers]
    return {
        "inputs": [
            {"path": label, "rows": count, "content_sha256": content}
            for label, count, content in zip(labels, account.rows, account.content, strict=True)
        ],
        "written": written,
        "outputs": [
            {"arch": arch or None, "path": printable(str(path)), "rows": merge.keys(arch)}
            for arch, path in outputs.items()
        ],
        "rows": sum(account.rows),
        "equal": account.equal,
        "differences": [_difference(labels, difference) for difference in account.differences],
        "conflicts": len(account.conflicts),
        "damaged": [
            {
                "path": labels[damage.source],
                "row": damage.rowid,
                "name": printable(damage.name),
                "code": damage.finding.code.code,
                "reason": damage.finding.code.reason,
                "detail": printable(damage.finding.detail),
            }
            for damage in account.damaged
        ],
        "notes": [printable(note) for note in notes],
    }


def _difference(labels: list[str], difference: Difference) -> dict[str, Any]:
    return {
        "name": printable(difference.name),
        "args": printable(difference.args),
        "arch": difference.arch or None,
        "same_code": difference.same_code,
        "chosen": difference.chosen,
        "objects": [
            {"path": labels[place.source], "row": place.rowid, "md5": place.md5}
            for place in difference.places
        ],
    }


def _report(
    document: dict[str, Any], readers: list[KdbReader], account: Account, args: argparse.Namespace
) -> None:
    """The account on standard error: what is wrong always, the rest without -q."""
    lines = []
    for found in document["differences"]:
        held = "; ".join(f"{one['path']} row {one['row']} {one['md5']}" for one in found["objects"])
        if found["chosen"] is None:
            lines.append(f"conflict: {found['name']} {found['args']}: {held}")
        elif not args.quiet and (not found["same_code"] or args.verbose):
            lines.append(f"took {found['chosen']}: {found['name']} {found['args']}: {held}")
    if not args.skip_damaged or not args.quiet:
        for damage in document["damaged"]:
            detail = f" ({damage['detail']})" if damage["detail"] else ""
            word = "left out" if args.skip_damaged else "damaged"
            lines.append(
                f"{word}: {damage['path']} row {damage['row']} {damage['name']}: {damage['reason']}{detail}"
            )
    if not args.quiet or not document["written"]:
        lines += _sums(document, account)
    if account.conflicts:
        lines.append("nothing is written: say --prefer first or --prefer last")
    if account.damaged and not args.skip_damaged:
        names = sorted({str(readers[damage.source].path) for damage in account.damaged})
        again = ", ".join(
            f"kdbtool fix {shlex.quote(printable(name))} -o new{number or ''}.kdb"
            for number, name in enumerate(names)
        )
        lines.append(f"nothing is written: repair first ({again}), or leave them out with --skip-damaged")
    for line in lines:
        print(line, file=sys.stderr)


def _sums(document: dict[str, Any], account: Account) -> list[str]:
    same = sum(d.same_code for d in account.differences)
    decided = len(account.differences) - same - len(account.conflicts)
    lines = [f"{document['rows']:>9} rows in"]
    for count, text in (
        (account.equal, "equal to another one"),
        (same, "keys with several objects of the same code: one is taken"),
        (decided, "keys with objects of different code: decided by --prefer"),
        (len(account.conflicts), "keys with objects of different code: conflicts"),
        (len(account.damaged), "damaged rows"),
    ):
        if count:
            lines.append(f"{count:>9} {text}")
    if document["written"]:
        for output in document["outputs"]:
            lines.append(f"{output['rows']:>9} rows written: {output['path']}")
    return lines + [f"note: {note}" for note in document["notes"]]
