"""The environment of a recorded process, and the private folders of a simulated one.

What the C parts read is set here and nowhere else: LD_PRELOAD, LD_AUDIT, KDBTOOL_TRACE_DIR,
KDBTOOL_SELECT and KDBTOOL_TRACE_LIMIT for the recorder, LD_LIBRARY_PATH and KDBTOOL_SIMGPU for the
simulated device. docs/recorder.md tells how to set the same by hand.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kdbtool.errors import KdbtoolError
from kdbtool.shim import libs
from kdbtool.shim._trace import lib
from kdbtool.shim.selection import Selection
from kdbtool.shim.simulate import simulated_environment
from kdbtool.targets import Target

# ld.so splits LD_PRELOAD at blanks and colons, LD_LIBRARY_PATH at colons and semicolons; neither can quote.
_SPLITTERS = frozenset(" \t\n:;")

LEAST_ROTATED = 1 << 20  # bytes: KDB_LEAST_ROTATED of csrc/recorder/internal.h

# What a simulated run gets of its own: MIOpen's databases and caches follow these.
_PRIVATE = {
    "HOME": "home",
    "XDG_CACHE_HOME": "home/.cache",
    "XDG_CONFIG_HOME": "home/.config",
    "XDG_DATA_HOME": "home/.local/share",
    "XDG_STATE_HOME": "home/.local/state",
    "MIOPEN_USER_DB_PATH": "miopen/db",
    "MIOPEN_CUSTOM_CACHE_DIR": "miopen/cache",
}


@dataclass(frozen=True)
class Limit:
    """How many bytes the traces of one process may take; at the limit recording stops, or goes on in a
    new part (`rotate`) while the oldest is removed: 1 MiB at least then."""

    size: int
    rotate: bool = False

    def __post_init__(self) -> None:
        least = int(lib.KDBT_HEADER_BYTES) if not self.rotate else LEAST_ROTATED
        if self.size < least:
            raise KdbtoolError("too small", where=f"--max-size {self.size}", why=f"at least {least} bytes")

    def __str__(self) -> str:
        return f"{self.size}:{'rotate' if self.rotate else 'stop'}"


def recorded_environment(
    base: Mapping[str, str],
    *,
    library_dir: Path,
    trace_dir: Path,
    target: Target | None = None,
    private: Path | None = None,
    selection: Selection | None = None,
    limit: Limit | None = None,
    audit: bool = False,
) -> dict[str, str]:
    """`base` with what makes the program's processes record into `trace_dir`, `selection` alone and up to
    `limit`. `audit`: by LD_AUDIT, too, which sees what a preload cannot.

    With `target` the program sees that device, simulated. With `private` its home and MIOpen's
    databases are folders in there; a MIOPEN_SYSTEM_DB_PATH that the user set is kept.
    """
    env = dict(base)
    env["LD_PRELOAD"] = _first(library_dir / libs.recorder().name, env.get("LD_PRELOAD"))
    env["KDBTOOL_TRACE_DIR"] = str(trace_dir)
    if selection:
        env["KDBTOOL_SELECT"] = selection.text
    if audit:
        env["LD_AUDIT"] = _first(library_dir / libs.audit().name, env.get("LD_AUDIT"))
    if limit is not None:
        env["KDBTOOL_TRACE_LIMIT"] = str(limit)
    if target is not None:
        wanted = simulated_environment(target, library_dir)
        path = wanted.pop("LD_LIBRARY_PATH")
        env.update(wanted)
        env["LD_LIBRARY_PATH"] = _first(path, env.get("LD_LIBRARY_PATH"))
    if private is not None:
        env.update({name: str(private / place) for name, place in _PRIVATE.items()})
    return env


def _first(entry: Path | str, rest: str | None) -> str:
    return f"{entry}:{rest}" if rest else str(entry)


class Workspace:
    """A folder for one run: private home and databases, and a short name for the libraries.

    It is `run-<pid namespace>-<pid>-<start>` in a folder of this user's under $TMPDIR. One whose
    kdbtool was killed is removed by the next run, once its program has ended too. With `keep` it has
    a name that no run removes.
    """

    def __init__(self, *, keep: bool = False, base: Path | None = None) -> None:
        """`base`: another folder than $TMPDIR to be made in."""
        parent = _parent(base or Path(tempfile.gettempdir()))
        _sweep(parent)
        if keep:
            self.path = Path(tempfile.mkdtemp(prefix="kept-", dir=parent))
            return
        pid = os.getpid()
        self.path = parent / f"run-{_pid_namespace()}-{pid}-{_start(pid)}"
        self.path.mkdir(mode=0o700)

    def private(self) -> Path:
        """The folders of `recorded_environment(private=...)`, made."""
        return make_private(self.path)

    def reachable(self, folder: Path) -> Path:
        """`folder`, by a link where its own path cannot stand in LD_PRELOAD."""
        if not _SPLITTERS & set(str(folder)):
            return folder
        link = self.path / "lib"
        if _SPLITTERS & set(str(link)):
            raise KdbtoolError(
                "no path for the libraries without blanks, ':' and ';'",
                where=link,
                hint="set TMPDIR to a folder without them",
            )
        link.symlink_to(folder)
        return link

    def started(self, pid: int) -> None:
        """Note the program: while it lives, no other run sweeps this folder."""
        (self.path / "program").write_text(f"{pid} {_start(pid)}")

    def remove(self) -> None:
        """Delete it; what a process left behind still writes there does not matter."""
        shutil.rmtree(self.path, ignore_errors=True)


def make_private(folder: Path) -> Path:
    """`folder`, with the folders that `recorded_environment(private=folder)` names made in it."""
    for place in _PRIVATE.values():
        (folder / place).mkdir(parents=True, exist_ok=True)
    return folder


def user_databases(private: Path) -> Path:
    """Where a run with these private folders has its user perf-db and find-db."""
    return private / _PRIVATE["MIOPEN_USER_DB_PATH"]


def _parent(base: Path) -> Path:
    """This user's folder in `base`, which nobody else may have laid there."""
    parent = base / f"kdbtool-{os.getuid()}"
    parent.mkdir(mode=0o700, exist_ok=True)
    state = parent.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o022:
        raise KdbtoolError("not this user's own folder", where=parent, hint="remove it, or set TMPDIR")
    return parent


def _sweep(parent: Path) -> None:
    """Remove the folders of dead runs. Pids of another pid namespace (a container that shares /tmp)
    say nothing here: those are left alone."""
    for path in parent.glob(f"run-{_pid_namespace()}-*"):
        owners = [path.name.split("-")[2:]]
        with contextlib.suppress(OSError):
            owners.append((path / "program").read_text().split())
        if not any(len(o) == 2 and o[1] and _start(o[0]) == o[1] for o in owners):
            shutil.rmtree(path, ignore_errors=True)


def _pid_namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


def _start(pid: int | str) -> str:
    """When a process started, in clock ticks since boot (proc(5): field 22); "" when there is none."""
    try:
        text = Path(f"/proc/{int(pid)}/stat").read_text("utf-8", "replace")
    except (OSError, ValueError):
        return ""
    return text.rpartition(")")[2].split()[19]  # the program's name before it may hold blanks
