"""Run a program inside a root, with mounts that end with it.

A child enters a mount namespace of its own (as an ordinary user: a user namespace too), where
everything is private; binds the host's /dev, /proc, /sys, /tmp and the given paths; and changes
its root. Nothing is ever mounted in the caller's namespace, so nothing can be left behind.

With `protect` (the default) the root is the lower layer of an overlay on a tmpfs: what the program
writes to the system itself is thrown away, and folders for mounts need not exist. Where the kernel
has no such overlay the root is used as it is, and the folders are made in it.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from kdbtool.errors import KdbtoolError
from kdbtool.root import namespace

# Top folders that belong to the root's own system: the host's are not laid over them.
_SYSTEM = {"usr", "etc", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "boot", "var"}
_ALWAYS = {"dev", "proc", "sys", "run"}

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def popen(
    argv: Sequence[str],
    *,
    root: Path | None,
    env: Mapping[str, str] | None = None,
    binds: Iterable[Path] = (),
    cwd: Path | None = None,
    protect: bool = True,
    **keywords: Any,
) -> subprocess.Popen[Any]:
    """subprocess.Popen inside `root`; with root None, on the host. The child's pid is the program's.

    `binds` are visible inside at the same path, as are `cwd` (default: the current folder), /tmp and
    $TMPDIR; a bind that names a folder which the root's own system has (/usr, ...) is passed over.
    `env` is the whole environment, used by the program alone. A program that is not there or cannot
    be executed raises the OSError that Popen raises; a root that cannot be entered, KdbtoolError.
    """
    folder = Path.cwd() if cwd is None else cwd.absolute()
    environment = dict(os.environ if env is None else env)
    if root is None:
        return subprocess.Popen(argv, env=environment, cwd=cwd, **keywords)
    if not root.is_dir():
        raise KdbtoolError("no such root", where=root, hint="run: kdbtool root make")
    wanted = [folder, Path("/tmp"), *(Path(b).absolute() for b in binds)]
    if os.environ.get("TMPDIR", "").startswith("/"):
        wanted.append(Path(os.environ["TMPDIR"]))
    places = _bindable(wanted, root)
    read, write = os.pipe()

    def inside() -> None:
        try:
            _enter(root, places, folder, protect)
        except OSError as error:
            os.write(write, f"{error.errno or 0} {error.strerror or error}".encode())
            raise

    try:
        return subprocess.Popen(argv, env=environment, preexec_fn=inside, **keywords)
    except subprocess.SubprocessError:
        os.set_blocking(read, False)
        number, _, text = os.read(read, 4096).decode("utf-8", "replace").partition(" ")
        raise _refused(root, int(number or 0), text) from None
    finally:
        os.close(read)
        os.close(write)


def execute(
    argv: Sequence[str],
    *,
    root: Path,
    env: Mapping[str, str],
    binds: Iterable[Path] = (),
    protect: bool = True,
) -> NoReturn:
    """Become the program, in the current folder: its exit code and signals are this process's."""
    folder = Path.cwd()
    places = _bindable([folder, Path("/tmp"), *(Path(b).absolute() for b in binds)], root)
    try:
        _enter(root, places, folder, protect)
    except OSError as error:
        raise _refused(root, error.errno or 0, error.strerror or str(error)) from None
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, programs should not
        signal.signal(number, signal.SIG_DFL)
    os.execvpe(argv[0], list(argv), env)


def _refused(root: Path, number: int, text: str) -> KdbtoolError:
    hint = None
    if number in (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EINVAL) and os.geteuid() != 0:
        hint = "this user may not make user namespaces here (sysctl, container or LSM): run as root"
    return KdbtoolError("the root cannot be entered", where=root, why=text, hint=hint)


def _bindable(paths: Iterable[Path], root: Path) -> list[Path]:
    """Which host paths to lay into the root: outer ones first, each once."""
    places: list[Path] = []
    for path in sorted(set(paths)):
        top = path.parts[1] if len(path.parts) > 1 else ""
        if not top or top in _ALWAYS or not path.exists():
            continue
        if top in _SYSTEM and (root / path.relative_to("/")).exists():
            continue
        if not any(path.is_relative_to(p) for p in places):
            places.append(path)
    return places


def _enter(root: Path, places: list[Path], cwd: Path, protect: bool) -> None:
    """In the child: from here on nothing of the caller's namespace changes."""
    uid = os.geteuid()
    namespace.own(as_root=False)
    # Sources are held open now: after chroot their paths mean something else.
    held = [(str(p), os.open(p, os.O_PATH | os.O_CLOEXEC), p.is_dir()) for p in places]
    os.chdir(root)
    tree = _overlay(uid) if protect else "."
    for name in ("dev", "proc", "sys"):
        namespace.bind(f"/{name}", f"{tree}/{name}")
    os.chroot(tree)
    os.chdir("/")
    for path, source, is_dir in held:
        if is_dir:
            Path(path).mkdir(parents=True, exist_ok=True)
        else:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        namespace.bind(f"/proc/self/fd/{source}", path)
        os.close(source)
    os.chdir(cwd)


def _overlay(uid: int) -> str:
    """An overlay of the current folder (the root) on a tmpfs over its own /mnt; "." where there is none."""
    try:
        namespace.mount("tmpfs", "mnt", "mode=0755")
        for name in ("upper", "work", "tree"):
            Path(f"mnt/{name}").mkdir()
        # Relative names: the root's path may hold a comma or a colon.
        options = "lowerdir=.,upperdir=mnt/upper,workdir=mnt/work"
        namespace.mount("overlay", "mnt/tree", options + (",userxattr" if uid else ""))
    except OSError:
        return "."
    return "mnt/tree"


def environment(env: Mapping[str, str], path: Sequence[str], cures: Mapping[str, str]) -> dict[str, str]:
    """The host's environment as it makes sense inside: the root's PATH, no host ROCm, the cures.

    ROCM_PATH makes this MIOpen look for a compiler under it; a value of a cure that the user has set
    is kept.
    """
    inside = {k: v for k, v in env.items() if k not in ("ROCM_PATH", "HIP_PATH")}
    inside["PATH"] = ":".join([SYSTEM_PATH, *path])
    for name, value in cures.items():
        inside.setdefault(name, value)
    return inside
