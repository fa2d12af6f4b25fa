"""Explain a kernel key: what each option means, which solvers use its source, where it is live.

  kdbtool explain naive_conv.cpp.o ' -DMIOPEN_USE_FP16=0 ... -mcpu=gfx1030'
  kdbtool explain gfx1030.kdb --kernel naive_conv --args FP16=1 --miopen 6.4.3

A key is given as MIOpen's log prints it, its leading space included (put -- before arguments that are one
option alone), or chosen out of a kernel database, manifest, trace or log: --row is the row's id in a kernel
database, the line in a manifest, else the number of the key, and --kernel and --args search. What was not
read in MIOpen's sources is said to be unknown. Exit code: 0 explained; 1 the MIOpen of --miopen can never
ask for a key; 2 no such key, or unreadable.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from kdbtool.cli import options
from kdbtool.codeobject import CodeObject, CodeObjectError, parse
from kdbtool.codeobject.compare import Resources, kernels
from kdbtool.errors import EXIT_DONE, EXIT_PROBLEMS, KdbtoolError, printable
from kdbtool.explain import Explanation, explain
from kdbtool.explain.options import Option, meaning, written_by
from kdbtool.inputs import Entry, Input, open_input
from kdbtool.manifest.quote import quote
from kdbtool.miopen.keys import SUFFIX, source_of
from kdbtool.miopen.versions import MiopenBuild, epochs, releases, resolve

HELP = "say what a key means, which solvers use it, where it is live"
KEYS, LINES = 5, 100  # keys, and lines of a list, without -v


def prepare(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.add_argument("what", metavar="FILE|NAME", help="an input with keys, or a kernel name (x.cpp.o)")
    parser.add_argument("arguments", nargs="?", metavar="ARGS", help="the kernel arguments of NAME")
    parser.add_argument("--row", type=_number, metavar="N", help="the key with this number in FILE")
    options.kernel(parser)
    options.key_args(parser)
    options.miopen(parser)
    options.json_output(parser)
    options.verbosity(parser)


def run(args: argparse.Namespace) -> int:
    """Explain every chosen key."""
    build = resolve(args.miopen) if args.miopen is not None else None
    if args.arguments is not None:
        if args.row is not None or args.kernel is not None or args.key_args is not None:
            raise KdbtoolError(
                "both a key and a choice", why="NAME ARGS is one key", hint="give FILE instead"
            )
        found = explain(os.fsencode(args.what), os.fsencode(args.arguments), build=build)
        return _show(args, [(found, None, "")])
    with open_input(_file(args.what)) as source:
        return _show(args, _of_file(args, source, build))


def _file(text: str) -> Path:
    if not Path(text).exists() and text.endswith(SUFFIX.decode()):
        raise KdbtoolError(
            "no arguments",
            where=text,
            why="a key is a kernel name and its arguments",
            hint="kdbtool explain NAME ARGS (-- before ARGS of one option, '' for none)",
        )
    return Path(text)


def _list_command(source: Input) -> str:
    return f"kdbtool list {shlex.quote(str(source.path))}"


def _of_file(
    args: argparse.Namespace, source: Input, build: MiopenBuild | None
) -> Iterator[tuple[Explanation, Entry | None, str]]:
    """The chosen keys, each with the rows of its source beside it."""
    siblings: dict[bytes, list[bytes]] = {}
    chosen: list[tuple[int, Entry]] = []
    for number, entry in enumerate(source.entries(), 1):
        siblings.setdefault(entry.name, []).append(entry.args)
        number = entry.row.rowid if entry.row is not None else entry.line or number
        text = source_of(entry.name) or _text(entry.name)
        if args.row is not None and number != args.row:
            continue
        if args.kernel is not None and not args.kernel.search(text):
            continue
        if args.key_args is not None and not args.key_args.search(_text(entry.args)):
            continue
        chosen.append((number, entry))
    count = sum(map(len, siblings.values()))
    if not chosen:
        raise KdbtoolError(
            "no such key", where=source.path, why=f"none of {count}", hint=_list_command(source)
        )
    every = args.row is None and args.kernel is None and args.key_args is None
    if every and len(chosen) > 1:
        raise KdbtoolError(
            f"{count} keys",
            where=source.path,
            why="explain takes few, by --row, --kernel or --args",
            hint=_list_command(source),
        )
    rows = {name: tuple(every) for name, every in siblings.items()}
    for number, entry in chosen if args.verbose or args.json else chosen[:KEYS]:
        label = f"{source.label}: {'line' if entry.line else 'row' if entry.row else 'key'} {number}"
        found = explain(entry.name, entry.args, entry.arch, rows[entry.name], build)
        yield found, entry, label
    if len(chosen) > KEYS and not args.verbose and not args.json:
        print(f"{len(chosen)} keys are chosen, the first {KEYS} are explained (-v: all)")


def _show(args: argparse.Namespace, found: Iterable[tuple[Explanation, Entry | None, str]]) -> int:
    """Print key by key: there can be thousands."""
    out = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
    dead = False
    before = '{"keys": ['
    for one, entry, label in found:
        dead |= bool(one.judged)
        if args.json:
            print(before, json.dumps(_document(one, entry, label), indent=1), sep="\n")
            before = ","
        elif not args.quiet:
            for line in _lines(one, entry, label, verbose=args.verbose > 0):
                out.print(line)
    if args.json:
        print("]}")
    return EXIT_PROBLEMS if dead else EXIT_DONE


def _lines(e: Explanation, entry: Entry | None, label: str, *, verbose: bool) -> Iterator[str]:
    yield (f"{label}: " if label else "") + printable(e.name)
    yield f"  source:    {e.source or 'none: no name of a kernel source with .o'}"
    yield f"  language:  {e.language or 'unknown'}, class {', '.join(e.classes)}"
    yield f"  arch:      {printable(e.arch) or 'unknown'}"
    for n, (path, classes) in enumerate(e.solvers):
        yield f"  {'solvers:' if n == 0 else '':<9}  {', '.join(classes) or 'no solver class'} in {path}"
    if not e.solvers:
        yield "  solvers:   unknown"
    yield f"  serves:    {_SERVES[e.serves]}"
    yield f"  spelling:  {_spelling(e)}"
    yield f"  epoch:     {_epoch(e)}"
    yield from _live(e)
    if e.judged is not None:
        verdict = "; ".join(f"{r.code}: {r.text}" for r in e.judged) or "can be asked for"
        yield f"  judged:    {verdict}" + (f"; now {e.replaced_by}" if e.replaced_by else "")
    yield f"  options:   {len(e.options)}"
    yield from _cut([f"    {_option(o, verbose)}" for o in e.options], verbose)
    if e.rows > 1:
        yield f"  varies:    {len(e.varying) or 'no'} options among the {e.rows} rows of this source here"
        yield from _cut([f"    {line}" for line in _varying(e)], verbose)
    if entry is not None and entry.row is not None:
        yield from _object_lines(entry, verbose)


_SERVES = {
    "one shape": "one shape: some options follow from the problem's sizes",
    "any shape": "any shape: no option follows from a size",
    "unknown": "unknown: not every option, or not the source, is known",
}


def _spelling(e: Explanation) -> str:
    text = {0: "no data type list", 1: "the data type list once", 2: "the data type list twice"}
    here = text.get(e.spelled, f"the data type list {e.spelled} times")
    if e.other is None:
        return here
    return f"{here}; MIOpen also asks with it {'once' if e.spelled == 2 else 'twice'}"


def _epoch(e: Explanation) -> str:
    if e.epoch is None:
        return "none: no whole data type list, or of no one MIOpen"
    having = [name for name, release in releases().items() if release.epoch is epochs()[e.epoch]]
    return f"{e.epoch}, MIOpen of ROCm {having[0]} to {having[-1]}"


def _live(e: Explanation) -> Iterator[str]:
    groups: dict[tuple[str, ...], list[str]] = {}
    for release, reasons in e.releases.items():
        groups.setdefault(tuple(r.code for r in reasons), []).append(release)
    yield f"  live in:   {' '.join(groups.pop((), [])) or 'no known release'}"
    for codes, names in groups.items():
        yield f"  dead in:   {' '.join(names)}: {', '.join(codes)}"


def _option(option: Option, verbose: bool) -> str:
    known = meaning(option.kind, option.name)
    value = "" if option.value is None else f" = {printable(option.value)}"
    text = f"{printable(option.name)}{value}: " + (f"{known.text} ({known.depends})" if known else "unknown")
    files = written_by(option)
    if files and (verbose or known is None):
        text += f"; written by {', '.join(files if verbose else files[:2])}"
    return text


def _varying(e: Explanation) -> Iterator[str]:
    for one in e.varying:
        more = ", ..." if one.count > len(one.values) else ""
        lacking = f"; {one.without} rows without it" if one.without else ""
        values = ", ".join(printable(v) or "(no value)" for v in one.values)
        yield f"{printable(one.name)}: {one.count} values: {values}{more}{lacking}"


def _cut(lines: list[str], verbose: bool) -> Iterator[str]:
    shown = lines if verbose else lines[:LINES]
    for line in shown:
        yield line if verbose or len(line) <= 500 else line[:497] + "..."
    if len(lines) > len(shown):
        yield f"    and {len(lines) - len(shown)} more (-v shows all)"


def _object(entry: Entry) -> tuple[CodeObject, dict[str, Resources]] | str:
    """The object of a row and its kernels, or why it cannot be read."""
    assert entry.row is not None
    try:
        found = parse(entry.row.object(), entry.arch or None)
        return found, kernels(found)
    except KdbtoolError as error:
        return error.why or error.what
    except CodeObjectError as error:
        return str(error)


def _object_lines(entry: Entry, verbose: bool) -> Iterator[str]:
    found = _object(entry)
    if isinstance(found, str):
        yield f"  object:    {printable(found)}"
        return
    obj, taken = found
    version = f"code object version {obj.code_object_version or 'unknown'}"
    yield f"  object:    {printable(obj.target_id)}, {version}, {obj.container}, {len(taken)} kernels"
    lines = []
    for name, r in taken.items():
        numbers: dict[str, int | None] = {
            "VGPR": r.vgpr,
            "SGPR": r.sgpr,
            "AGPR": r.agpr,
            "LDS": r.lds,
            "scratch": r.scratch,
            "wave": r.wave,
            "code": r.code_bytes,
            "kernarg": r.kernarg,
        }
        text = ", ".join(f"{label} {n}" for label, n in numbers.items() if n is not None)
        lines.append(f"    {printable(name)}: {text}")
    yield from _cut(lines, verbose)


def _document(e: Explanation, entry: Entry | None, label: str) -> dict[str, Any]:
    document: dict[str, Any] = {
        "where": label or None,
        "name": quote(e.name)[1:-1],
        "args": quote(e.args)[1:-1],
        "arch": e.arch or None,
        "source": e.source,
        "language": e.language,
        "classes": list(e.classes),
        "solvers": [{"file": path, "classes": list(classes)} for path, classes in e.solvers],
        "serves": e.serves,
        "epoch": e.epoch,
        "spelled": e.spelled,
        "other_spelling": quote(e.other)[1:-1] if e.other is not None else None,
        "releases": {release: [r.code for r in reasons] for release, reasons in e.releases.items()},
        "judged": [r.code for r in e.judged] if e.judged is not None else None,
        "replaced_by": e.replaced_by,
        "options": [_option_document(o) for o in e.options],
        "rows_of_source": e.rows,
        "varying": [vars(v) for v in e.varying],
    }
    if entry is not None and entry.row is not None:
        found = _object(entry)
        document["object"] = {"error": found} if isinstance(found, str) else _object_document(*found)
    return document


def _option_document(option: Option) -> dict[str, Any]:
    known = meaning(option.kind, option.name)
    return {
        **vars(option),
        "meaning": known.text if known else None,
        "depends": known.depends if known else None,
        "files": list(written_by(option)),
    }


def _object_document(obj: CodeObject, taken: dict[str, Resources]) -> dict[str, Any]:
    return {
        "target": obj.target_id,
        "code_object_version": obj.code_object_version,
        "container": obj.container,
        "kernels": {name: vars(found) for name, found in taken.items()},
    }


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a whole number: {text[:40]!r}") from None
