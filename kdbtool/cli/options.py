"""Options that several subcommands share, each declared once: one name, one meaning."""

from __future__ import annotations

import argparse
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from kdbtool.miopen.classes import CLASSES
from kdbtool.miopen.keys import LANGUAGES

DEAD, ASM = "dead", "asm"
DROPPED = (DEAD, ASM, *(one for one in CLASSES if one.startswith("asm-")))
TOP_BY = ("launches", "compile-seconds")

if TYPE_CHECKING:
    from kdbtool.shim.selection import Selection


def verbosity(parser: argparse.ArgumentParser) -> None:
    """`-v` and `-q`."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("-v", "--verbose", action="count", default=0, help="say more (twice: everything)")
    group.add_argument("-q", "--quiet", action="store_true", help="say only what is wrong")


def json_output(parser: argparse.ArgumentParser, *, lines: bool = False) -> None:
    """`--json`; `lines`: an object to a line, as they come."""
    what = "JSON instead of text, an object to a line" if lines else "one JSON document instead of text"
    parser.add_argument("--json", action="store_true", help=f"print {what}")


class Once(argparse.Action):
    """An option that a second one would silently replace."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        if getattr(namespace, self.dest) is not self.default:
            parser.error(f"argument {option_string}: given twice")
        setattr(namespace, self.dest, values)


def output(parser: argparse.ArgumentParser, what: str, *, required: bool = False) -> None:
    """`-o`: a file, or a folder where several are written. An existing file needs `--force`."""
    parser.add_argument("-o", "--output", type=Path, metavar="PATH", required=required, help=what)


def force(parser: argparse.ArgumentParser) -> None:
    """`--force`: replace an output that exists."""
    parser.add_argument("--force", action="store_true", help="replace an output that exists")


ARCH = "only this architecture (repeatable); native: the devices present; default: all in the input"


def arch(parser: argparse._ActionsContainer, what: str = ARCH) -> None:
    """`--arch`, repeatable; absent means every arch in the input."""
    parser.add_argument(
        "--arch",
        action="append",
        metavar="A[:CU]|native|all",
        help=what,
    )


def kernel(parser: argparse._ActionsContainer) -> None:
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


def language(parser: argparse._ActionsContainer) -> None:
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


def choosing(parser: argparse.ArgumentParser) -> None:
    """Which rows of its input a manifest keeps (docs/choosing.md)."""
    group = parser.add_argument_group("choosing", "which rows stay (docs/choosing.md)")
    arch(group)
    kernel(group)
    language(group)
    add = group.add_argument
    add("--drop", action="append", choices=DROPPED, default=[], help="dead: rows that this MIOpen can "
        "never ask for; asm, or one class of it: assembly kernels (repeatable)")  # fmt: skip
    add("--drop-source", action="append", type=regex, default=[], metavar="REGEX", help="drop kernels whose "
        "source name matches (search; repeatable); an option of its own, since --drop would take a misspelt "
        "class for a pattern that matches nothing")  # fmt: skip
    add("--keep-source", action="append", type=regex, default=[], metavar="REGEX", help="keep kernels whose "
        "source name matches, whatever --drop asm, --drop-source, --used-by, --top and --max-size say "
        "(search; repeatable)")  # fmt: skip
    add("--used-by", action="append", type=Path, default=[], metavar="TRACE", help="only kernels that these "
        "traces (a file or a folder; repeatable) looked up or loaded, in both spellings")  # fmt: skip
    add("--top", action=Once, type=_positive, metavar="N", help="only the N kernels that the input's traces "
        "launched most; a kernel is one compilation, in both spellings")  # fmt: skip
    add("--top-by", choices=TOP_BY, help="what --top and --max-size rank by (default: launches); "
        "compile-seconds: what compiling took in the traces")  # fmt: skip
    add("--max-size", action=Once, type=byte_size, metavar="SIZE", help="drop the least used kernels until "
        "each database to come is estimated to be no larger than this, such as 200M")  # fmt: skip
    find_db(group, "it tells which problems lose their best solver by what is dropped")


def find_db(parser: argparse._ActionsContainer, what: str) -> None:
    """`--find-db`: a find-db that is read; `what` it is read for."""
    parser.add_argument("--find-db", type=Path, metavar="FILE", help=f"a find-db, text or .bz2: {what}")


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


def selection(parser: argparse.ArgumentParser, *, recording: bool = False) -> None:
    """What of a recording is kept (docs/selection.md); `recording`: with what has a meaning only then.

    `selected` makes the selection of them.
    """
    group = parser.add_argument_group("selection", "what is kept of a recording (docs/selection.md)")
    add = group.add_argument
    # Its own meaning of --kernel: a POSIX extended expression over the names of device functions.
    add("--kernel", action=Once, metavar="REGEX", help="only launches of kernels of such a symbol (search)")
    add("--every", action=Once, metavar="N", help="only the 1st, N+1st, 2N+1st, ... launch of each kernel")
    add("--first", action=Once, metavar="N", help="only the first N launches of each kernel")
    add("--iterations", action=Once, metavar="A:B", help="only launches A to B-1 of each kernel, from 0")
    add("--device", action=Once, metavar="N[,N]", help="only launches on these devices")
    add("--rank", action=Once, metavar="N[,N]", help="only these ranks; the others leave nothing")
    add("--region", metavar="NAME", action="append", help="only while a ROCTx range of this name is open "
        "in any thread (repeatable)")  # fmt: skip
    if recording:
        add("--start-paused", action="store_true", help="record nothing until the signal of --signal comes")
        add("--signal", metavar="NAME", type=signal_number, help="pause and go on whenever this signal comes")


def selected(args: argparse.Namespace) -> Selection:
    """The selection of `selection`'s options; KdbtoolError in one line for one that is none."""
    from kdbtool.shim.selection import Selection

    return Selection.of(
        kernel=args.kernel,
        every=args.every,
        first=args.first,
        iterations=args.iterations,
        device=args.device,
        rank=args.rank,
        regions=tuple(args.region or ()),
        paused=getattr(args, "start_paused", False),
        signal=getattr(args, "signal", None),
    )


def signal_number(text: str) -> int:
    """USR2, SIGUSR2 or RTMIN+3; the numbers 32 and 33 are the C library's own."""
    name, plus, more = text.upper().removeprefix("SIG").partition("+")
    number = getattr(signal.Signals, f"SIG{name}", None)
    if number is None or (plus and not (name == "RTMIN" and more.isdecimal())):
        raise argparse.ArgumentTypeError(f"no such signal: {text!r} (e.g. USR2)")
    found = int(number) + (int(more) if plus else 0)
    if found > int(signal.SIGRTMAX):
        raise argparse.ArgumentTypeError(f"no such signal: {text!r} (e.g. USR2)")
    return found


def byte_size(text: str) -> int:
    """Bytes of 500M or 2G: K, M and G are powers of 1024."""
    found = re.fullmatch(r"([0-9]{1,15})([KMG]?)", text.upper())
    size = int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]] if found else 0
    if not 0 < size < 1 << 62:
        raise argparse.ArgumentTypeError(f"not a size like 500M or 2G: {text!r}")
    return size


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
