"""The command line: one module per subcommand, one place that catches errors.

A command module, named like the command, has `HELP` (one line), `prepare(parser)` and `run(args) -> int`. Its
docstring is its long help. Exit codes: 0 done; 1 it ran and found problems; 2 bad usage or
unreadable input.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import json
import os
import signal
import sys
from typing import NoReturn

from kdbtool import __version__
from kdbtool.errors import EXIT_USAGE, KdbtoolError, from_oserror, printable

# The road first, then what stands beside it. `--help` shows them in this order.
COMMANDS = (
    "record",
    "harvest",
    "manifest",
    "rebuild",
    "verify",
    "info",
    "list",
    "explain",
    "diff",
    "merge",
    "retarget",
    "fix",
    "salvage",
    "trace",
    "finddb",
    "perfdb",
    "miopen",
    "root",
)


class _Parser(argparse.ArgumentParser):
    """Bad usage is one line, like every error of ours; `--help` has the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"{self.prog}: {printable(message)}: {self.prog} --help says more\n")


def build_parser(names: tuple[str, ...] = COMMANDS) -> argparse.ArgumentParser:
    """The whole parser, every subcommand included; `names`: only those, when nothing is installed yet."""
    parser = _Parser(
        prog="kdbtool",
        description="MIOpen kernel databases as reviewed text, rebuilt for any GPU without owning it.",
    )
    parser.add_argument("--version", action="version", version=f"kdbtool {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in names:
        module = importlib.import_module(f"kdbtool.cli.{name}")
        sub = commands.add_parser(
            name,
            help=module.HELP,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.prepare(sub)
        sub.set_defaults(run=module.run)
    return parser


def main(argv: list[str] | None = None, names: tuple[str, ...] = COMMANDS) -> int:
    """Run one command; every error of ours is one line on stderr."""
    _streams()
    words = sys.argv[1:] if argv is None else argv
    if words and words[0] in names:
        names = (words[0],)  # what the others import is most of a short command's time
    args = build_parser(names).parse_args(words)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # `kdbtool ... | head`: as if the signal had ended it
        _lost_output()
        return 128 + signal.SIGPIPE
    except KdbtoolError as error:
        return _fail(args, error)
    except OSError as error:
        lost = _lost_output() or (error.errno == errno.EBADF and error.filename is None)
        where = "standard output" if lost else None
        return _fail(args, from_oserror(error, where=where))
    except KeyboardInterrupt:
        print(f"kdbtool {args.command}: interrupted", file=sys.stderr)
        return 130


def _lost_output() -> bool:
    """Whether standard output takes no more; the rest is dropped, or Python would try again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


def _streams() -> None:
    """Output that any locale can show, and three descriptors that no file of ours can fall onto.

    Python has no sys.stdout where the descriptor is closed; one that fails in one line is better.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            handle = os.open(os.devnull, os.O_RDONLY if number < 2 else os.O_WRONLY)
            if handle != number:
                os.dup2(handle, number)
                os.close(handle)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _fail(args: argparse.Namespace, error: KdbtoolError) -> int:
    """Say the error; with --json also as the document that a program waits for."""
    print(f"kdbtool {args.command}: {error.line()}", file=sys.stderr)
    if getattr(args, "json", False) and not error.in_document:
        try:
            print(json.dumps({"error": error.line()}), flush=True)
        except OSError:
            _lost_output()
    return error.exit_code


def entry() -> NoReturn:
    """The console script. What would end it at once unwinds it: no temporary file, no process is left."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores one of them
            signal.signal(number, lambda got, frame: sys.exit(128 + got))
    sys.exit(main())
