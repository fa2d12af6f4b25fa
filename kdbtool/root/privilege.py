"""Commands that build or delete a root: killed with us, in namespaces of their own.

Everything runs in private mount and pid namespaces. The first process there dies with its parent
(`--kill-child`, `--pdeathsig`), and with it all others: after kill -9 of `make` nothing goes on
writing to the folder. An ordinary user is root inside a user namespace that maps their range of
/etc/subuid.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

from kdbtool.errors import EXIT_PROBLEMS, KdbtoolError

# $1 is the root, $2 a folder for /var/cache/apt/archives or nothing. sysfs and proc are bound where a
# container forbids a mount of its own.
_CHROOT = """
set -e
root=$1 debs=$2
shift 2
mount -t proc proc "$root/proc" 2>/dev/null || mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys" 2>/dev/null || :
[ -z "$debs" ] || mount --bind "$debs" "$root/var/cache/apt/archives"
exec chroot "$root" "$@"
"""


@cache
def wrapper() -> tuple[str, ...]:
    """The command that a command is put behind; KdbtoolError in one line where that cannot work."""
    for tool in ("unshare", "setpriv"):
        if shutil.which(tool) is None:
            raise KdbtoolError(f"{tool} is missing", hint="run: apt-get install util-linux")
    users: tuple[str, ...] = ()
    if os.geteuid() != 0:
        if shutil.which("newuidmap") is None:
            raise KdbtoolError(
                "an ordinary user needs newuidmap to make a root",
                hint="run: sudo apt-get install uidmap, or make the root as root",
            )
        users = ("--map-auto", "--map-root-user")
    command = (
        *("setpriv", "--pdeathsig", "KILL"),
        *("unshare", *users, "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "--"),
    )
    done = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise KdbtoolError(
            "no mount namespace to be had here",
            why=" ".join(done.stderr.split())[:200],
            hint="run as root, or give this user a range in /etc/subuid; a container may forbid both",
        )
    return command


class Runner:
    """Runs commands with their output in a log; a failure shows the log's last lines."""

    def __init__(self, log: IO[bytes], env: Mapping[str, str], keep: Sequence[int] = ()) -> None:
        self.log = log
        self.keep = tuple(keep)
        inherited = {
            k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "http_proxy", "https_proxy")
        }
        path = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"
        fixed = {"PATH": path, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
        # debootstrap takes the device nodes from the host when it believes to be in LXC; an ordinary
        # user cannot make any.
        container = {} if os.geteuid() == 0 else {"container": "lxc"}
        self.env = {**env, **inherited, **fixed, **container}

    def host(self, argv: Sequence[str], what: str) -> None:
        """A command of the host."""
        self._run([*wrapper(), *argv], what)

    def chroot(self, root: Path, argv: Sequence[str], what: str, debs: Path | None = None) -> str:
        """A command inside the root; its standard output."""
        command = [*wrapper(), "sh", "-c", _CHROOT, "kdbtool-root", str(root), str(debs or ""), *argv]
        return self._run(command, what)

    def _run(self, command: list[str], what: str) -> str:
        self.log.write(f"\n== {what}\n".encode())
        self.log.flush()
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=self.env,
            pass_fds=self.keep,
            check=False,
        )
        self.log.write(done.stdout)
        self.log.flush()
        if done.returncode != 0:
            raise KdbtoolError(
                f"{what} failed",
                where=self.log.name,
                why=_last_words(Path(self.log.name)) or f"exit code {done.returncode}",
                hint="run the same command again: it goes on where it stopped",
                exit_code=EXIT_PROBLEMS,
            )
        return done.stdout.decode("utf-8", "replace")


def _last_words(log: Path) -> str:
    """The last line that says what went wrong."""
    tail = log.read_bytes()[-16384:].decode("utf-8", "replace").splitlines()
    errors = [
        line for line in tail if line.startswith(("E:", "W: Failure", "dpkg: error")) or "rror:" in line
    ]
    return (errors or [line for line in tail if line.strip()] or [""])[-1].strip()[:200]


def remove_tree(path: Path) -> None:
    """Delete a folder, never past a mount: refused when anything is mounted in it."""
    refuse_mounts(path)
    done = subprocess.run(
        [*wrapper(), "rm", "-rf", "--one-file-system", "--", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0 or path.exists():
        why = " ".join(done.stderr.split())[:200]
        raise KdbtoolError("not removed", where=path, why=why, exit_code=EXIT_PROBLEMS)


def mounts_below(path: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> list[str]:
    """Mount points at or below `path` (proc(5): field 5, octal escapes)."""
    real = os.fsencode(os.path.realpath(path))
    found = []
    for line in mountinfo.read_bytes().splitlines():
        fields = line.split()
        if len(fields) < 5:
            continue
        point = fields[4].decode("latin-1").encode().decode("unicode_escape").encode("latin-1")
        if point == real or point.startswith(real.rstrip(b"/") + b"/"):
            found.append(os.fsdecode(point))
    return found


def refuse_mounts(path: Path) -> None:
    """KdbtoolError when something is mounted at or below `path`."""
    found = mounts_below(path)
    if found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        raise KdbtoolError(
            "not removed: something is mounted in it",
            where=path,
            why=f"{found[0]}{more}",
            hint=f"run: umount -R {found[0]}",
        )
