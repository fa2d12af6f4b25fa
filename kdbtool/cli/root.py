"""Make, check, enter, list and remove roots: folders with a Debian that has the real MIOpen.

kdbtool itself runs on the host; the real MIOpen may need a newer system, and lives in a root.
A machine that has libMIOpen needs none. Default place: $KDBTOOL_ROOT, else
~/.cache/kdbtool/root-VERSION. docs/roots.md says more.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from kdbtool.errors import EXIT_DONE, EXIT_PROBLEMS, EXIT_USAGE, KdbtoolError, printable
from kdbtool.root import enter, locate_miopen, manage, open_root, read_marker, recipe
from kdbtool.root.make import Options, make
from kdbtool.root.paths import RootPaths, default_root, home

HELP = "make, check, enter or remove a Debian root with the real MIOpen"


def prepare(parser: argparse.ArgumentParser) -> None:
    """The actions and their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, text: str) -> argparse.ArgumentParser:
        sub = actions.add_parser(name, help=text, description=text)
        sub.add_argument("--root", type=Path, metavar="DIR", help="the root's folder")
        sub.add_argument(
            "--version",
            default=recipe.DEFAULT_VERSION,
            choices=recipe.known(),
            help="the MIOpen in it (default: %(default)s)",
        )
        return sub

    sub = action("make", "make the root, or go on where a make was cut off")
    sub.add_argument("--mirror", metavar="URL", help="Debian archive (default: the host's own apt source)")
    sub.add_argument("--update", action="store_true", help="leave the lock aside: current versions, new lock")
    sub.add_argument("--no-cures", action="store_true", help="leave the faults of Debian's build as they are")
    sub.add_argument(
        "--rocblas",
        metavar="ARCH,...",
        help="architectures whose rocBLAS code objects are kept (default: those in docs/roots.md)",
    )
    sub.add_argument("-q", "--quiet", action="store_true", help="say only what is wrong")
    sub = action("check", "say what is wrong with a root")
    sub.add_argument("-q", "--quiet", action="store_true", help="say only what is wrong")
    sub = action("enter", "run a command (default: a shell) inside the root")
    sub.add_argument(
        "--bind", type=Path, action="append", default=[], metavar="DIR", help="visible inside too"
    )
    sub.add_argument(
        "--keep-changes",
        action="store_true",
        help="changes to the root's own system stay (default: thrown away)",
    )
    sub.usage = "kdbtool root enter [options] [--] [CMD ...]"
    sub.add_argument("argv", nargs=argparse.REMAINDER, metavar="CMD", help="the command and its arguments")
    action("path", "print the root's folder; exit 1 when it is not made")
    sub = action("remove", "delete the root; its lock and packages stay, so that it can be made again")
    sub.add_argument("--all", action="store_true", help="the lock and the packages too")
    actions.add_parser("list", help="list the roots in the cache folder, and this machine's own MIOpen")


def run(args: argparse.Namespace) -> int:
    """Do the action."""
    if args.action == "list":
        return _list()
    paths = RootPaths((args.root or default_root(args.version)).absolute())
    return {"make": _make, "check": _check, "enter": _enter, "path": _path, "remove": _remove}[args.action](
        args, paths
    )


def _make(args: argparse.Namespace, paths: RootPaths) -> int:
    def say(text: str) -> None:
        if not args.quiet:
            print(f"kdbtool root: {text}", file=sys.stderr, flush=True)

    archs = tuple(a for a in (args.rocblas or "").split(",") if a)
    if not all(a.isalnum() and a.startswith("gfx") for a in archs):
        raise KdbtoolError(f"not a list of architectures: {args.rocblas!r}", why="wanted: gfx906,gfx1030")
    options = Options(cures=not args.no_cures, rocblas=archs)
    made = make(
        paths,
        recipe.load(args.version),
        options,
        mirror_url=args.mirror,
        update=args.update,
        say=say,
    )
    say(f"{paths.root}: {'made' if made else 'up to date'}")
    return EXIT_DONE


def _check(args: argparse.Namespace, paths: RootPaths) -> int:
    found = manage.check(paths)
    for line in found:
        print(f"{printable(paths.root)}: {printable(line)}")
    if not found and not args.quiet:
        opened = open_root(paths.root)
        count = len(manage.installed(paths.root))
        print(f"{printable(paths.root)}: good; MIOpen {opened.recipe.miopen}, {count} packages")
    return EXIT_PROBLEMS if found else EXIT_DONE


def _enter(args: argparse.Namespace, paths: RootPaths) -> int:
    opened = open_root(paths.root)
    argv = args.argv[1:] if args.argv[:1] == ["--"] else args.argv
    enter.execute(
        argv or ["/bin/bash"],
        root=opened.path,
        env=opened.environment(),
        binds=[*filter(None, [home()]), *args.bind],
        protect=not args.keep_changes,
    )


def _path(args: argparse.Namespace, paths: RootPaths) -> int:
    print(os.fspath(paths.root))
    return EXIT_DONE if read_marker(paths.root) is not None else EXIT_PROBLEMS


def _remove(args: argparse.Namespace, paths: RootPaths) -> int:
    if not manage.remove(paths, everything=args.all):
        raise KdbtoolError(
            "no such root", where=paths.root, hint="run: kdbtool root list", exit_code=EXIT_USAGE
        )
    return EXIT_DONE


def _list() -> int:
    own = locate_miopen()
    if own is not None:
        print(f"{printable(own)}\tthis machine's own")
    for path, marker in manage.list_roots():
        if marker is None:
            print(f"{printable(path)}\thalf made")
        else:
            cures = "with cures" if marker.get("cures") else "without cures"
            print(f"{printable(path)}\tMIOpen {printable(marker.get('miopen'))}, {cures}")
    return EXIT_DONE
