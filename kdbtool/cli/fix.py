"""Put right what can be put right in a kernel database, and say what cannot.

Keys get `.o` and a bare `-mcpu=<arch>` at the end, as MIOpen asks for them; a kernel_hash or
uncompressed_size that the object itself proves wrong is written anew; the file gets journal mode
delete, the index, pages of 4096 bytes, UTF-8, no unused page and mode 0644. Rows that MIOpen would
throw on are left out, rows with one object under one key become one, and two objects for one key are
never merged. Every row is counted. Exit code: 0 nothing wrong is left, 1 something could not be
fixed (it is listed), 2 not a kernel database or bad usage.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from kdbtool.cli import options
from kdbtool.cli.progress import row_progress
from kdbtool.errors import EXIT_DONE, EXIT_PROBLEMS, KdbtoolError, counted, from_oserror, printable
from kdbtool.files import check_output
from kdbtool.kdb.fix import CONFLICT, DUPLICATE, REPAIRS, Outcome, Plan, plan, rows
from kdbtool.kdb.identify import FileKind, Kind, identify
from kdbtool.kdb.reader import KdbReader
from kdbtool.kdb.sqlite import has_wal, side_files
from kdbtool.kdb.writer import write_kdb
from kdbtool.miopen.keys import is_arch

HELP = "put right what can be put right in a kernel database"
SHOWN = 10  # rows per reason without -v
_FORM_ONLY = "form"


def prepare(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a .kdb or .ukdb")
    options.output(parser, "the database to write")
    parser.add_argument(
        "--in-place", action="store_true", help="replace FILE, and keep what it was as FILE.orig"
    )
    parser.add_argument("--no-backup", action="store_true", help="with --in-place: keep no FILE.orig")
    parser.add_argument("--dry-run", action="store_true", help="write nothing, say what would be done")
    parser.add_argument(
        "--only",
        action="append",
        choices=(*REPAIRS, _FORM_ONLY),
        metavar="REPAIR",
        help=f"make only this repair of rows (repeatable): {', '.join(REPAIRS)}; {_FORM_ONLY}: none of them",
    )
    parser.add_argument(
        "--strip-target-id",
        action="append_const",
        dest="only",
        const="target-id",
        help="the same as --only target-id",
    )
    options.arch(parser, "the architecture that the database is for (default: that of its name)")
    options.force(parser)
    options.json_output(parser)
    options.verbosity(parser)


def run(args: argparse.Namespace) -> int:
    """Plan, write, report."""
    target = _target(args)
    kind = identify(args.file)
    if not kind.is_kdb:
        if kind.what in (FileKind.MALFORMED, FileKind.TRUNCATED):
            raise KdbtoolError(
                kind.text, where=kind.path, hint="kdbtool salvage FILE -o NEW reads what is left of it"
            )
        raise kind.error()
    if args.in_place and not args.dry_run:
        _check_in_place(kind, keep=not args.no_backup, force=args.force)
    elif target is not None:
        check_output(target, force=args.force)
    only = None if args.only is None else {REPAIRS[name] for name in args.only if name in REPAIRS}
    with contextlib.ExitStack() as stack:
        writing = target
        if args.in_place and target is not None:
            # Renamed when the reader is closed: with the file open in WAL mode it has side files.
            folder = stack.enter_context(_folder_beside(target))
            writing = folder / target.name
        with KdbReader(kind) as reader:
            with row_progress(reader, "checking") as tick:
                decided = plan(reader, _arch(args.arch), only=only, tick=tick)
            if writing is not None:
                with row_progress(reader, "writing") as tick:
                    write_kdb(writing, rows(reader, decided, tick), decided.written(), force=args.force)
        if args.in_place and target is not None and writing is not None:
            _replace(target, writing, keep=not args.no_backup, force=args.force)
    document = _document(args.file, target, decided)
    if args.json:
        print(json.dumps(document, indent=1))
    else:
        _print(decided, document, verbose=args.verbose > 0, quiet=args.quiet)
    return EXIT_DONE if decided.all_right else EXIT_PROBLEMS


def _target(args: argparse.Namespace) -> Path | None:
    """The file to write, None with --dry-run."""
    if args.in_place and args.output is not None:
        raise KdbtoolError("--in-place and -o exclude each other", hint="give one of them")
    if args.no_backup and not args.in_place:
        raise KdbtoolError("--no-backup is of no use without --in-place")
    if args.dry_run:
        return None
    if not args.in_place and args.output is None:
        raise KdbtoolError("nowhere to write", hint="give -o NEW, --in-place or --dry-run")
    target: Path = args.file if args.in_place else args.output
    with contextlib.suppress(OSError):
        if not args.in_place and target.exists() and target.samefile(args.file):
            raise KdbtoolError("the output is the input", where=target, hint="--in-place replaces it")
    return target


def _arch(values: list[str] | None) -> str | None:
    if values is None:
        return None
    arch = values[0].partition(":")[0]
    if len(values) > 1 or not is_arch(arch):
        raise KdbtoolError(
            "not one architecture", where="--arch", why="a database is for one", hint="such as --arch gfx1030"
        )
    return arch


def _check_in_place(kind: Kind, *, keep: bool, force: bool) -> None:
    """Refuse what somebody may have open: a rename would leave him writing into a file without a name."""
    path = kind.path
    if kind.what is FileKind.UKDB:
        raise KdbtoolError(
            "not replaced in place",
            where=path,
            why="a running MIOpen may write to it",
            hint="give -o NEW.kdb",
        )
    if side_files(path) or has_wal(path):
        raise KdbtoolError(
            "not replaced in place",
            where=path,
            why="a -wal or -journal is beside it: somebody has it open, or was killed",
            hint="give -o NEW.kdb",
        )
    if path.is_symlink() or path.stat().st_nlink > 1:
        raise KdbtoolError(
            "not replaced in place",
            where=path,
            why="it is a link",
            hint="name the file itself, or -o NEW.kdb",
        )
    if keep:
        check_output(_backup(path), force=force)


@contextlib.contextmanager
def _folder_beside(path: Path) -> Iterator[Path]:
    """A folder for a file that will be renamed to `path`, gone afterwards."""
    try:
        with tempfile.TemporaryDirectory(prefix=".kdbtool-fix-", dir=path.absolute().parent) as name:
            yield Path(name)
    except OSError as error:
        raise from_oserror(error) from None


def _backup(path: Path) -> Path:
    return path.with_name(path.name + ".orig")


def _replace(path: Path, new: Path, *, keep: bool, force: bool) -> None:
    """FILE.orig becomes a second name of the file, whose first one the new file takes; the owner stays."""
    status = path.stat()
    backup = _backup(path)
    with contextlib.suppress(PermissionError):  # root fixes somebody's file
        os.chown(new, status.st_uid, status.st_gid)
    try:
        if keep:
            if force:
                backup.unlink(missing_ok=True)
            os.link(path, backup)
        new.replace(path)
    except OSError as error:
        raise from_oserror(error, where=backup if keep else path) from None


def _document(path: Path, target: Path | None, decided: Plan) -> dict[str, Any]:
    counts = {what: decided.count(what) for what in ("kept", "repaired", "merged", "left-out", "unfixed")}
    return {
        "input": printable(str(path)),
        "output": printable(str(target)) if target is not None else None,
        "rows": len(decided.outcomes),
        **{what.replace("-", "_"): count for what, count in counts.items()},
        "repairs": decided.repairs,
        "left_out_by": decided.reasons("left-out"),
        "unfixed_by": decided.reasons("unfixed"),
        "notes": dict(sorted(decided.notes.items())),
        "form": [f.code.code for f in decided.form],
        "provenance": "dropped" if decided.provenance_lost else "kept" if decided.provenance else "none",
        "details": [o.json() for o in decided.outcomes if o.what != "kept"],
    }


def _print(decided: Plan, document: dict[str, Any], *, verbose: bool, quiet: bool) -> None:
    out = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
    wrong = not decided.all_right
    where = document["output"] or f"{document['input']} (dry run)"
    if not quiet or wrong:
        out.print(
            f"{where}: {counted(document['rows'], 'row')}: {document['kept']} kept, "
            f"{document['repaired']} repaired, {document['merged']} merged, "
            f"{document['left_out']} left out, {document['unfixed']} kept unfixed"
        )
    if not quiet:
        for code, count in decided.repairs.items():
            out.print(f"  repaired {code} ({counted(count, 'row')}): {REPAIRS[code].text}")
        for finding in decided.form:
            detail = f": {printable(finding.detail)}" if finding.detail else ""
            out.print(f"  the file no longer has {finding.code.code}{detail}")
        if decided.provenance_lost:
            out.print("  provenance dropped: it was not written for these rows")
        for code, count in document["notes"].items():
            out.print(f"  stays: note {code} ({counted(count, 'row')}), which only a rebuild can change")
    for what, verb in (("merged", "merged, same object"), ("left-out", "left out"), ("unfixed", "unfixed")):
        if what != "merged" or not quiet:
            _print_rows(out, [o for o in decided.outcomes if o.what == what], verb, verbose=verbose)


def _print_rows(out: Console, found: list[Outcome], verb: str, *, verbose: bool) -> None:
    for reason in dict.fromkeys(o.reason for o in found):
        group = [o for o in found if o.reason == reason]
        out.print(f"  {verb}{f' {reason}' if reason else ''} ({counted(len(group), 'row')}):")
        limit = len(group) if verbose or reason in (CONFLICT, DUPLICATE) else SHOWN
        for one in group[:limit]:
            other = f" (into row {one.other})" if one.what == "merged" else ""
            out.print(f"    row {one.row} {printable(one.name)}: {printable(one.detail)}{other}")
        if len(group) > limit:
            out.print(f"    and {len(group) - limit} more (-v shows all)")
