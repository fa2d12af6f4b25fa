"""Run a program and record what MIOpen asks for, loads and launches.

Exit code and output are the program's own; nothing of kdbtool's is on standard output. One trace
per process, in DIR (default: kdbtool-traces in the current folder, made at need).

--simulate ARCH[:CU] shows the program a simulated GPU: real MIOpen, real compilers, kernels that
are loaded but not run. The program then has a private HOME and private MIOpen databases, removed
at the end unless --keep; a MIOPEN_SYSTEM_DB_PATH that is set stays.

Where the program runs: --root DIR or $KDBTOOL_ROOT, if given, is entered. Else, with --simulate on
a machine without libMIOpen, the default root. --root none: never. Inside a root the current folder,
the home folder, /tmp and DIR are visible at the same paths, and PATH is the root's own.

Without --simulate, the rows of the user's find-db and perf-db that belong to the recorded problems are copied
beside the traces at the end (docs/find-and-perf-db.md).

--kernel, --every, --first, --iterations, --device, --rank and --region keep a part; what they leave out is
counted in the traces. With --signal USR2, `kill -USR2 PID` of this command or of a recorded process pauses
and goes on. --max-size bounds each process: at the limit recording stops, or goes on in a new part while
the oldest is removed. docs/selection.md has the whole of it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from kdbtool.cli import options
from kdbtool.errors import KdbtoolError, counted, from_oserror, printable
from kdbtool.root import Root, choose_root, enter
from kdbtool.root.paths import home
from kdbtool.shim import libs
from kdbtool.shim.clocks import Sampler, parse_interval
from kdbtool.shim.launcher import Limit, Workspace, recorded_environment
from kdbtool.shim.selection import Selection, raw_name_only
from kdbtool.targets import split_target

HELP = "run a program and record what MIOpen asks for"
DEFAULT_OUTPUT = Path("kdbtool-traces")


def prepare(parser: argparse.ArgumentParser) -> None:
    """Options, then the program."""
    parser.usage = "kdbtool record [options] [--] CMD ..."
    parser.add_argument("--simulate", metavar="ARCH[:CU]", help="show a simulated GPU, e.g. gfx1030:36")
    options.output(parser, "folder of the traces (default: kdbtool-traces)")
    options.root(parser)
    options.selection(parser, recording=True)
    parser.add_argument(
        "--max-size", type=options.byte_size, metavar="SIZE", help="bytes of one process, e.g. 500M or 2G"
    )
    parser.add_argument(
        "--at-limit", choices=("stop", "rotate"), help="at that size: stop (default), or keep the newest"
    )
    parser.add_argument(
        "--audit", action="store_true", help="see by LD_AUDIT, too, what a preload cannot (docs/recorder.md)"
    )
    parser.add_argument(
        "--clocks", metavar="INTERVAL", help="sample the clocks of AMD's cards, e.g. each 100ms"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep the private folders of --simulate, and say where"
    )
    options.verbosity(parser)
    parser.add_argument("argv", nargs=argparse.REMAINDER, metavar="CMD", help="the program and its arguments")


def run(args: argparse.Namespace) -> int:
    """Everything that can be wrong is found before the program starts."""
    argv = args.argv[1:] if args.argv[:1] == ["--"] else args.argv
    if not argv:
        raise KdbtoolError("no program given", hint="run: kdbtool record -- CMD ...")
    selection, limit = _selection(args), _limit(args)
    if args.audit and platform.machine() != "x86_64":
        why = f"LD_AUDIT's help is written for x86-64, this is {platform.machine()}"
        raise KdbtoolError("nothing to audit with", where="--audit", why=why, hint="leave it out")
    interval = parse_interval(args.clocks) if args.clocks is not None else None
    target = split_target(args.simulate) if args.simulate else None
    root = choose_root(args.root, simulated=target is not None)
    libraries = libs.recorder().parent
    folder, made = _output_folder(args.output or DEFAULT_OUTPUT)
    before = set(folder.glob("*.kdbtrace"))
    keep = target is not None and args.keep
    space = Workspace(keep=keep)
    try:
        env = recorded_environment(
            os.environ if root is None else root.environment(),
            library_dir=space.reachable(libraries),
            trace_dir=folder,
            target=target,
            private=space.private() if target is not None else None,
            selection=selection,
            limit=limit,
            audit=args.audit,
        )
        code = _record(argv, env, root, [libraries, folder], space, interval, args.signal)
    finally:
        if not keep:
            space.remove()
        if made and not any(folder.iterdir()):
            folder.rmdir()
    made_now = sorted(set(folder.glob("*.kdbtrace")) - before) if folder.is_dir() else []
    if target is None:
        _copy_tuned(made_now, env, root, told=args.verbose > 0)
    told = not args.quiet and (args.verbose > 0 or sys.stderr.isatty())
    account = _Account()
    if told or selection or limit:
        account.read(made_now)
    if told:
        account.show(folder)
    account.warn(selection)
    if keep:
        print(f"kdbtool record: private folders kept: {space.path}", file=sys.stderr)
    return code if code >= 0 else _die(-code)


def _output_folder(path: Path) -> tuple[Path, bool]:
    """The folder, absolute, and whether it was made just now."""
    path = path.absolute()
    made = not path.exists()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise from_oserror(error, where=path) from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise KdbtoolError("not writable", where=path, hint="name another folder with -o DIR")
    return path, made


def _selection(args: argparse.Namespace) -> Selection:
    if args.kernel is not None:
        raw_name_only(args.kernel)
    if args.start_paused and args.signal is None:
        hint = "add --signal USR2; --region NAME alone begins with the region"
        raise KdbtoolError("nothing would end the pause", where="--start-paused", hint=hint)
    return options.selected(args)


def _limit(args: argparse.Namespace) -> Limit | None:
    if args.max_size is None:
        if args.at_limit:
            raise KdbtoolError("no size to be reached", where="--at-limit", hint="add --max-size SIZE")
        return None
    return Limit(args.max_size, rotate=args.at_limit == "rotate")


def _record(
    argv: list[str],
    env: dict[str, str],
    root: Root | None,
    binds: list[Path],
    space: Workspace,
    interval: float | None,
    number: int | None,
) -> int:
    """Start the program and wait; its exit code, or minus its signal. `interval` of the clocks, in
    seconds; `number` of the signal that pauses."""
    folder = binds[-1]
    binds = [*binds, space.path, *filter(None, [home()])]
    database = os.environ.get("MIOPEN_SYSTEM_DB_PATH", "")
    if database:
        binds.append(Path(database))
    relay = _Relay(number)
    try:
        process = enter.popen(
            argv,
            root=root.path if root else None,
            env=env,
            binds=binds,
            close_fds=False,  # what the caller opened for the program stays open
        )
    except OSError as error:
        raise _not_started(argv[0], root, error) from None
    relay.started(process)
    space.started(process.pid)
    if interval is None:
        return process.wait()
    with Sampler(folder, interval) as sampler:
        code = process.wait()
    if sampler.problem:
        print(f"kdbtool record: {printable(sampler.problem)}", file=sys.stderr)
    return code


def _copy_tuned(traces: list[Path], env: dict[str, str], root: Root | None, *, told: bool) -> None:
    """What MIOpen tuned for the user goes beside the traces; a run never fails of it."""

    def here(path: str) -> Path | None:
        shared = [*filter(None, [home()]), Path.cwd(), Path("/tmp")]
        if root is None or any(Path(path).is_relative_to(folder) for folder in shared):
            return Path(path)
        return root.path / path.lstrip("/")

    for trace in traces:
        try:
            from kdbtool import tuned

            line: object = tuned.copy_beside(trace, env, here)
        except KdbtoolError as error:
            line = f"nothing tuned is copied: {error.line()}"
        except (ImportError, MemoryError, OSError) as error:  # a library path may name another SQLite
            line = f"nothing tuned is copied: {error}"
        if told and line is not None:
            print(f"kdbtool record: {printable(line)}", file=sys.stderr)


def _not_started(program: str, root: Root | None, error: OSError) -> KdbtoolError:
    where = f"{program} (in the root {root.path})" if root else program
    if isinstance(error, FileNotFoundError):
        hint = None if root else "a root's programs need --simulate or --root DIR"
        return KdbtoolError("no such program", where=where, hint=hint)
    return KdbtoolError("cannot be executed", where=where, why=(error.strerror or str(error)).lower())


class _Relay:
    """Signals that are meant for the program. Those that a terminal sends reach it by themselves.

    They are Python handlers, not ignored signals: exec gives the program the default for a handled
    signal, but would hand an ignored one down.
    """

    def __init__(self, chosen: int | None = None) -> None:
        """`chosen`: one more, the user's."""
        self.process: subprocess.Popen[Any] | None = None
        self.early: list[int] = []  # came while the program was being started
        for number in {
            *(signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP),
            *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH),
            *([] if chosen is None else [chosen]),
        }:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self.forward)

    def forward(self, number: int, frame: FrameType | None) -> None:
        """To the program, unless the terminal has sent it there already."""
        if number in (signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH) and _in_foreground():
            return
        if self.process is None:
            self.early.append(number)
        elif self.process.poll() is None:
            self.process.send_signal(number)

    def started(self, process: subprocess.Popen[Any]) -> None:
        """`process` runs; it gets what came before."""
        self.process = process
        while self.early:
            self.process.send_signal(self.early.pop(0))


def _in_foreground() -> bool:
    """Whether this process is in the foreground group of a terminal: Ctrl-C then reaches the whole group."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


@dataclass
class _Account:
    """What the new traces hold."""

    traces: int = 0
    lookups: int = 0
    hits: int = 0
    compilers: int = 0
    launches: int = 0
    left_out: int = 0
    stopped: int = 0  # traces that recording did not go on with
    hosts: bool = False  # a process that used MIOpen or HIP
    errors: list[str] = field(default_factory=list)

    def read(self, traces: list[Path]) -> None:
        from kdbtool.shim.trace import each_trace
        from kdbtool.shim.trace_assemble import STOPPED

        self.traces = len(traces)
        for path in traces:
            try:
                for trace in each_trace(path):
                    self.lookups += len(trace.lookups)
                    self.hits += sum(1 for lookup in trace.lookups if lookup.hit)
                    self.compilers += trace.facts.role == "compiler"
                    self.launches += len(trace.launches)
                    self.left_out += trace.facts.unselected
                    self.stopped += any(note.startswith(STOPPED) for note in trace.notes)
                    self.hosts |= trace.facts.role == "host"
            except KdbtoolError as error:
                self.errors.append(error.line())

    def show(self, folder: Path) -> None:
        for line in self.errors:
            print(f"kdbtool record: {line}", file=sys.stderr)
        print(
            f"kdbtool record: traces in {folder}: {self.traces}; kernel lookups: {self.lookups}, "
            f"hits: {self.hits}; compilers started: {self.compilers}",
            file=sys.stderr,
        )

    def warn(self, selection: Selection) -> None:
        """Of what is not there, whatever else is quiet: a filter that kept nothing may be misspelt."""
        if self.stopped:
            told = f"recording stopped in {counted(self.stopped, 'trace')}: kdbtool trace info says why"
            print(f"kdbtool record: {told}", file=sys.stderr)
        if selection.has_rank and not self.hosts:
            why = "no process of such a rank used MIOpen or HIP"
        elif selection and self.left_out and not self.launches:
            why = f"no launch was kept, {counted(self.left_out, 'event')} left out"
        else:
            return
        what = " ".join(selection.text.split("\n")).strip()
        print(f"kdbtool record: the selection matched nothing ({printable(what)}): {why}", file=sys.stderr)


def _die(number: int) -> int:
    """End by the signal that ended the program, so that a shell or make sees the same; no second core."""
    sys.stderr.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # SIGKILL and SIGSTOP have no handler to set
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number  # a blocked signal
