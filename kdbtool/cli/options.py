"""Options that several subcommands share, each declared once: one name, one meaning."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from kdbtool.miopen.classes import CLASSES
from kdbtool.miopen.keys import LANGUAGES


def verbosity(parser: argparse.ArgumentParser) -> None:
    """`-v` and `-q`."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("-v", "--verbose", action="count", default=0, help="say more (twice: everything)")
    group.add_argument("-q", "--quiet", action="store_true", help="say only what is wrong")


def json_output(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")


def output(parser: argparse.ArgumentParser, what: str, *, required: bool = False) -> None:
    """`-o`: a file, or a folder where several are written. An existing file needs `--force`."""
    parser.add_argument("-o", "--output", type=Path, metavar="PATH", required=required, help=what)


def force(parser: argparse.ArgumentParser) -> None:
    """`--force`: replace an output that exists."""
    parser.add_argument("--force", action="store_true", help="replace an output that exists")


ARCH = "only this architecture (repeatable); native: the devices present; default: all in the input"


def arch(parser: argparse.ArgumentParser, what: str = ARCH) -> None:
    """`--arch`, repeatable; absent means every arch in the input."""
    parser.add_argument(
        "--arch",
        action="append",
        metavar="A[:CU]|native|all",
        help=what,
    )


def kernel(parser: argparse.ArgumentParser) -> None:
    """`--kernel`: rows whose kernel source name matches."""
    parser.add_argument(
        "--kernel", type=regex, metavar="REGEX", help="only kernels whose source name matches (search)"
    )


def key_args(parser: argparse.ArgumentParser) -> None:
    """`--args`: keys whose kernel arguments match."""
    parser.add_argument(
        "--args",
        dest="key_args",
        type=regex,
        metavar="REGEX",
        help="only keys whose kernel arguments match (search)",
    )


def language(parser: argparse.ArgumentParser) -> None:
    """`--language`, repeatable: of the kernel source, by its extension."""
    parser.add_argument(
        "--language",
        action="append",
        choices=tuple(LANGUAGES.values()),
        help="only kernels of this language (repeatable)",
    )


def kernel_class(parser: argparse.ArgumentParser) -> None:
    """`--class`, repeatable: kdbtool.miopen.classes."""
    parser.add_argument(
        "--class",
        dest="kernel_class",
        action="append",
        choices=CLASSES,
        help="only kernels of this class (repeatable); winograd cuts across the others",
    )


def miopen(parser: argparse.ArgumentParser) -> None:
    """`--miopen`: the MIOpen that is judged against."""
    parser.add_argument(
        "--miopen",
        metavar="VERSION|PATH",
        help="the MIOpen that rows are judged against: a ROCm version (6.4.3) or a libMIOpen.so",
    )


def sources(parser: argparse.ArgumentParser) -> None:
    """`--sources`: kernel sources of a folder instead of a library's."""
    parser.add_argument(
        "--sources", type=Path, metavar="DIR", help="take the kernel sources from this folder"
    )


def jobs(parser: argparse.ArgumentParser) -> None:
    """`--jobs`."""
    parser.add_argument(
        "-j", "--jobs", type=_positive, metavar="N", help="worker processes (default: usable cores)"
    )


def root(parser: argparse.ArgumentParser) -> None:
    """`--root`: a Debian root with a real MIOpen; `none` forbids entering one."""
    parser.add_argument(
        "--root",
        metavar="DIR|none",
        help="root with the real MIOpen (default: $KDBTOOL_ROOT, else ~/.cache/kdbtool/root-VERSION)",
    )


def regex(text: str) -> re.Pattern[str]:
    """An argument that is a regular expression."""
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"not a regular expression: {error}") from None


def count(text: str) -> int:
    """An argument that is a number of things, 0 among them."""
    if not (text.isascii() and text.isdecimal()) or len(text) > 9:
        raise argparse.ArgumentTypeError(f"not a whole number: {text!r}")
    return int(text)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"not a positive whole number: {text!r}")
    return int(text)
