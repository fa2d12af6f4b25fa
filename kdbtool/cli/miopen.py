"""What is known of a MIOpen: its kernels, how it spells keys, how it compiles, where it looks.

Name a ROCm release (6.4.3) or a libMIOpen.so; two of them are compared: what a database loses on the way from
the first to the second. Without one, the libMIOpen of this machine (else of the default root) is described,
and all releases are listed. Each fact about a library says how it is known. Kernel texts are in libraries
only; a list that is a distributor's says so. Exit code 2 for an unknown release or what is no libMIOpen.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from kdbtool.cli import options
from kdbtool.errors import EXIT_DONE, KdbtoolError, printable
from kdbtool.miopen.difference import Difference, compare
from kdbtool.miopen.installed import Fact, inspect
from kdbtool.miopen.keys import language
from kdbtool.miopen.sources import SourceSet
from kdbtool.miopen.versions import MiopenBuild, header_lists, kernel_lists, releases, resolve
from kdbtool.root import default_root, is_complete, locate_miopen, open_root

HELP = "what is known of a MIOpen release or library, or how two of them differ"
SHOWN = 10  # names of a kind without -v


def prepare(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.add_argument(
        "builds",
        nargs="*",
        metavar="VERSION|PATH",
        help="a ROCm release (6.4.3, 5.7, develop) or a libMIOpen.so; two are compared",
    )
    options.root(parser)
    options.json_output(parser)
    options.verbosity(parser)


def run(args: argparse.Namespace) -> int:
    """Describe none, one or two builds."""
    if len(args.builds) > 2:
        raise KdbtoolError("more than two MIOpens", hint="name one to describe it, two to compare them")
    document: dict[str, Any] = {}
    names = args.builds
    if not names:
        found = _default_library(args.root)
        names = [str(found)] if found else []
        document["releases"] = _releases()
    known = [_Known(name) for name in names]
    document["builds"] = [one.document() for one in known]
    if len(known) == 2:
        difference = _compare(known[0], known[1])
        document["difference"] = _difference_document(difference)
    if args.json:
        print(json.dumps(document, indent=1))
        return EXIT_DONE
    out = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
    if len(known) == 2:
        _print_difference(out, known[0], known[1], difference, verbose=args.verbose > 0)
        return EXIT_DONE
    for one in known:
        _print_build(out, one.document(), verbose=args.verbose > 0)
    if "releases" in document:
        if not known:
            out.print("no libMIOpen on this machine and no root; known releases:")
        _print_releases(out, document["releases"])
    return EXIT_DONE


class _Known:
    """One build with what is known besides."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.build: MiopenBuild
        self.sources: SourceSet | None = None
        self.facts: tuple[Fact, ...] = ()
        build = None if _is_path(name) else resolve(name)
        if build is not None:
            self.build = build
        else:
            installed = inspect(Path(name))
            self.build, self.sources, self.facts = installed.build, installed.sources, installed.facts

    def document(self) -> dict[str, Any]:
        """For `--json`, and for the text."""
        build, sources = self.build, self.sources
        kernels: list[dict[str, str | None]] = []
        for name in sorted(build.kernels):
            text, headers = sources.hash_of(name) if sources else (None, None)
            kernels.append({"name": name, "source": text, "headers": headers})
        return {
            "name": printable(self.name),
            "label": build.label,
            "rocm": build.rocm,
            "miopen": build.version,
            "distributor": build.distributor,
            "epoch": build.epoch.name,
            "defines": dict(build.epoch.defines),
            "facts": [{"name": f.name, "value": f.value, "how": f.how} for f in self.facts],
            "source_set": sources.set_hash if sources else None,
            "languages": _languages(build),
            "kernels": kernels,
            "headers": sorted(build.headers),
        }


def _is_path(name: str) -> bool:
    """What `resolve` would read as a library."""
    return "/" in name or (Path(name).is_file() and name not in releases())


def _default_library(root: str | None) -> Path | None:
    """That of a named root; this machine's; the default root's, unless `none` forbids roots."""
    if root and root != "none":
        return open_root(Path(root).absolute()).miopen
    found = locate_miopen()
    if found is not None or root == "none":
        return found
    try:
        folder = default_root()
    except KdbtoolError:  # a user without a home has no default root
        return None
    return open_root(folder).miopen if is_complete(folder) else None


def _languages(build: MiopenBuild) -> dict[str, int]:
    counts: dict[str, int] = {}
    for kernel in sorted(build.kernels):
        word = language(kernel) or "other"
        counts[word] = counts.get(word, 0) + 1
    return counts


def _compare(old: _Known, new: _Known) -> Difference:
    texts = (old.sources, new.sources) if old.sources and new.sources else None
    return compare(old.build, new.build, texts)


def _releases() -> list[dict[str, Any]]:
    rows = []
    for release in releases().values():
        kernels = kernel_lists()[release.kernels]
        rows.append(
            {
                "rocm": release.rocm,
                "miopen": release.miopen,
                "epoch": release.epoch.name,
                "hip": sum(k.endswith(".cpp") for k in kernels),
                "opencl": sum(k.endswith(".cl") for k in kernels),
                "asm": None if release.distributor else sum(k.endswith(".s") for k in kernels),
                "headers": len(header_lists()[release.kernels]),
                "list": f"{release.distributor}'s {release.kernels.partition('-')[2]}"
                if release.distributor
                else "upstream",
            }
        )
    return rows


def _difference_document(difference: Difference) -> dict[str, Any]:
    return {
        "added": list(difference.added),
        "removed": list(difference.removed),
        "renamed": {old: list(new) for old, new in difference.renamed},
        "changed": None
        if difference.changed is None
        else [{"name": n, "source": s, "headers": h} for n, s, h in difference.changed],
        "same": difference.same,
        "headers_added": list(difference.headers_added),
        "headers_removed": list(difference.headers_removed),
        "keys_differ": difference.keys_differ,
        "not_compared": list(difference.blind),
    }


def _print_build(out: Console, document: Mapping[str, Any], *, verbose: bool) -> None:
    out.print(f"{document['name']}: {document['label']}")
    languages = ", ".join(f"{word} {number}" for word, number in document["languages"].items())
    rows = [(f["name"], f["value"], f["how"]) for f in document["facts"]]
    if not rows:
        rows = [("version", document["miopen"], "data/versions.toml")]
    rows.append(("data type list", document["epoch"], _list_text(document["defines"])))
    rows.append(("kernels", str(len(document["kernels"])), languages))
    rows.append(("headers", str(len(document["headers"])), ""))
    if document["source_set"]:
        rows.append(
            ("all texts", f"sha256:{document['source_set']}", "as a manifest's `sources` line has it")
        )
    width = max(len(name) for name, _, _ in rows) + 2
    for name, value, how in rows:
        text = "not known" if value is None else printable(value)
        out.print(f"  {name + ':':<{width}}{text}" + (f" ({printable(how)})" if how else ""))
    if verbose:
        for kernel in document["kernels"]:
            hashes = f"  {kernel['source']} {kernel['headers']}" if kernel["source"] else ""
            out.print(f"  {kernel['name']}{hashes}")
    elif document["kernels"]:
        out.print("  (-v lists the kernels" + (" with their hashes)" if document["source_set"] else ")"))


def _list_text(defines: Mapping[str, str | None]) -> str:
    return " ".join(f"{name.removeprefix('MIOPEN_')}={value or '*'}" for name, value in defines.items())


def _print_releases(out: Console, rows: list[dict[str, Any]]) -> None:
    out.print(
        f"{'ROCm':<8} {'MIOpen':<7} {'list':<5} {'.cpp':>5} {'.cl':>4} {'.s':>5} {'headers':>8}  kernels of"
    )
    for row in rows:
        asm = "?" if row["asm"] is None else row["asm"]
        out.print(
            f"{row['rocm']:<8} {row['miopen']:<7} {row['epoch']:<5} {row['hip']:>5} {row['opencl']:>4} "
            f"{asm:>5} {row['headers']:>8}  {row['list']}"
        )


def _print_difference(
    out: Console, old: _Known, new: _Known, difference: Difference, *, verbose: bool
) -> None:
    out.print(f"from {old.build.label}")
    out.print(f"to   {new.build.label}")
    if difference.keys_differ:
        a, b = old.build.epoch, new.build.epoch
        out.print(f"data type list: {a.name}, then {b.name}: no key that has one is asked for by both")
    else:
        out.print(f"data type list: {old.build.epoch.name} in both")
    _section(out, "kernels added", list(difference.added), verbose=verbose)
    _section(out, "kernels removed", list(difference.removed), verbose=verbose)
    renamed = [f"{before} -> {' or '.join(after)}" for before, after in difference.renamed]
    _section(out, "kernels renamed", renamed, verbose=verbose)
    if difference.changed is not None:
        own = [name for name, source, _ in difference.changed if source]
        only = [name for name, source, _ in difference.changed if not source]
        _section(out, "kernels whose text changed", own, verbose=verbose)
        _section(out, "kernels of which only headers changed", only, verbose=verbose)
        out.print(f"kernels with the same texts: {difference.same}")
    _section(out, "headers added", list(difference.headers_added), verbose=verbose)
    _section(out, "headers removed", list(difference.headers_removed), verbose=verbose)
    for what in difference.blind:
        out.print(f"not compared: {what}")


def _section(out: Console, title: str, names: list[str], *, verbose: bool) -> None:
    out.print(f"{title}: {len(names)}")
    shown = names if verbose else names[:SHOWN]
    for name in shown:
        out.print(f"  {name}")
    if len(names) > len(shown):
        out.print(f"  and {len(names) - len(shown)} more (-v shows all)")
