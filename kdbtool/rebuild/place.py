"""Where a compiler runs: on this machine, or inside a root; bounded, without a shell, and killed whole.

A worker process enters its place once (for a root: a mount namespace of its own with /proc, /dev and
the work folder in it); each run then only forks, changes root and executes: about 2 ms. The worker
itself never changes root, so it can still import and write to the caller's folders.

A run has no standard input, no environment but `ENVIRONMENT`, an own session, its output in a
file, and limits for memory and file sizes. It dies with the worker, and the worker with its parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from kdbtool.errors import EXIT_PROBLEMS, KdbtoolError
from kdbtool.root import namespace

# Nothing of the caller's: CPATH, CCC_OVERRIDE_OPTIONS, HOME or a locale could change an object.
# __DATE__ and __TIME__, should a source use them, are the epoch.
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LC_ALL": "C",
    "HIP_PLATFORM": "amd",
    "SOURCE_DATE_EPOCH": "0",
}
MAX_FILE = 128 << 20  # bytes that a compiler may write into one file; the largest object seen has 0.4 MB
MAX_LOG = 64 << 10  # bytes of a compiler's output that are kept

_PR_SET_PDEATHSIG = 1
_INSIDE = "/mnt"  # where a root sees the work folder; every Debian root has it

_libc = ctypes.CDLL(None, use_errno=True)


_running: set[int] = set()  # process groups of this process's runs


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """That signal for this process when its parent ends (also by SIGKILL)."""
    _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def end_on_sigterm() -> None:
    """SIGTERM, or the parent's end, ends this process and all that its runs started.

    Without it a compiler's children outlive it, such as the clang below a wrapper script.
    """

    def end(number: int, frame: FrameType | None) -> None:
        for group in _running:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, end)
    die_with_parent(signal.SIGTERM)


@dataclass(frozen=True)
class Ran:
    """One run. `returncode` is subprocess's, None where the time limit ended it; `log` is cut to MAX_LOG."""

    returncode: int | None
    log: str


class Place:
    """This machine. Call `enter` once per worker process, then `run` as often as needed."""

    root: Path | None = None

    def __init__(self) -> None:
        self.work = Path()

    def __str__(self) -> str:
        return "this machine"

    def enter(self, work: Path) -> None:
        """Get ready; `work` is the folder that every run starts in."""
        self.work = work.absolute()

    def outside(self, path: str) -> Path:
        """A path as the compiler names it, as this process can open it."""
        return Path(path) if path.startswith("/") else self.work / path

    def _inside(self) -> str:
        return str(self.work)

    def run(
        self, argv: Sequence[str], *, timeout: float, memory: int, output: str = ".log", split: bool = False
    ) -> Ran:
        """Run `argv`. `memory` limits address space (bytes). With `split` only standard output is kept."""
        log = self.work / output
        inside, root = self._inside(), self.root
        environment = {**ENVIRONMENT, "TMPDIR": inside}

        def prepare() -> None:  # in the child, before exec; the worker has no other threads
            die_with_parent()
            for what, limit in (
                (resource.RLIMIT_AS, memory),
                (resource.RLIMIT_FSIZE, MAX_FILE),
                (resource.RLIMIT_CORE, 0),
            ):
                hard = resource.getrlimit(what)[1]
                limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
                resource.setrlimit(what, (limit, limit))
            if root is not None:
                os.chroot(root)
            os.chdir(inside)

        with log.open("wb") as file:
            try:
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.DEVNULL if split else subprocess.STDOUT,
                    env=environment,
                    preexec_fn=prepare,
                    start_new_session=True,
                )
            except (OSError, subprocess.SubprocessError) as error:
                return Ran(127, f"cannot run {argv[0]}: {error}")
        ended = _wait(process, timeout)
        return Ran(process.returncode if ended else None, _text(log))


class Root(Place):
    """A folder with another system in it. Needs root rights or user namespaces, as `kdbtool root` does."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root: Path = root.absolute()

    def __str__(self) -> str:
        return f"root {self.root}"

    def enter(self, work: Path) -> None:
        """A mount namespace of this process alone; nothing of it is left when the process ends."""
        super().enter(work)
        try:
            namespace.own(as_root=True)
            for source, target in (("/proc", "/proc"), ("/dev", "/dev"), (str(self.work), _INSIDE)):
                namespace.bind(source, f"{self.root}{target}")
        except OSError as error:
            raise KdbtoolError(
                "cannot enter the root",
                where=self.root,
                why=error.strerror,
                hint="kdbtool root check says what is missing; --root none uses this machine's compiler",
                exit_code=EXIT_PROBLEMS,
            ) from None

    def _inside(self) -> str:
        return _INSIDE

    def outside(self, path: str) -> Path:
        """Links are followed as inside the root: an absolute one begins at the root."""
        if not path.startswith("/"):
            return self.work / path
        rest, here, hops = path.split("/"), self.root, 0
        rest.reverse()
        while rest:
            part = rest.pop()
            if part in ("", "."):
                continue
            if part == "..":
                here = here.parent if here != self.root else here
                continue
            step = here / part
            if step.is_symlink() and (hops := hops + 1) < 40:
                link = str(step.readlink())
                here = self.root if link.startswith("/") else here
                rest += reversed(link.split("/"))
            else:
                here = step
        return here


def _wait(process: subprocess.Popen[bytes], timeout: float) -> bool:
    """Wait for `process`, then kill what is left of its session; False when time ran out."""
    _running.add(process.pid)
    pidfd = os.pidfd_open(process.pid)
    try:
        ended = bool(select.select([pidfd], [], [], timeout)[0])
    finally:
        os.close(pidfd)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # not yet reaped, so the number is still its own
        _running.discard(process.pid)
        process.wait()
    return ended


def _text(log: Path) -> str:
    with log.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size <= MAX_LOG:
            data = file.read()
        else:  # the first error explains the rest; the end says how it went out
            head = file.read(MAX_LOG * 3 // 4)
            file.seek(size - MAX_LOG // 4)
            data = head + f"\n[... {size - MAX_LOG} bytes left out ...]\n".encode() + file.read()
    return data.decode("utf-8", "replace")
