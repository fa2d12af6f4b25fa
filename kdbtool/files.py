"""Writing files so that a reader sees the old one or the whole new one, never a half.

`atomic_write` and `atomic_path` make a temporary file in the folder of the output, sync it, and
rename it into place. Whatever goes wrong (an exception, Ctrl-C, a full disk), the temporary file is
removed and the output is untouched. An output that exists is refused unless `force`; one that is no
regular file (`/dev/null`, a FIFO, a folder) always is: a rename would replace it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from kdbtool.errors import EXIT_PROBLEMS, KdbtoolError, from_oserror

_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES})


def check_output(path: Path, *, force: bool = False) -> Path:
    """The real path to write for `path`, or KdbtoolError. Call it before hours of work, too.

    A symbolic link is followed: the link stays and its target is replaced.
    """
    real = Path(os.path.realpath(path))
    try:
        mode = os.lstat(real).st_mode
    except FileNotFoundError:
        if not real.parent.is_dir():
            raise KdbtoolError(
                "cannot write", where=path, why="its folder does not exist", hint=f"mkdir -p {real.parent}"
            ) from None
        return real
    except OSError as error:
        raise from_oserror(error, where=path) from None
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
        raise KdbtoolError("cannot write", where=path, why=f"it is {what}", hint="name another output")
    if not force:
        raise _exists(path)
    return real


@contextlib.contextmanager
def atomic_path(path: Path, *, mode: int = 0o644, force: bool = False) -> Iterator[Path]:
    """The path of an empty temporary file, for writers that need a name (SQLite).

    On leaving without an exception it is synced, given exactly `mode`, and renamed to `path`.
    """
    real = check_output(path, force=force)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{real.name[:80]}.", suffix=".tmp", dir=real.parent)
        os.close(handle)
    except OSError as error:
        raise from_oserror(error, where=path) from None
    temp = Path(name)
    try:
        yield temp
        _publish(temp, real, path, mode, force)
    except OSError as error:
        # A read that failed in the body is not ours to name; a write that failed is.
        ours = error.filename in (None, str(temp), str(real)) or error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise from_oserror(error, where=path if ours else None) from None
    finally:
        temp.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_write(path: Path, *, mode: int = 0o644, force: bool = False) -> Iterator[BinaryIO]:
    """A binary file to write; its content becomes `path` on leaving without an exception."""
    with atomic_path(path, mode=mode, force=force) as temp, temp.open("wb") as file:
        yield file


def write_bytes(path: Path, data: bytes, *, mode: int = 0o644, force: bool = False) -> None:
    """`data` becomes the content of `path`, all or nothing."""
    with atomic_write(path, mode=mode, force=force) as file:
        file.write(data)


def _publish(temp: Path, real: Path, path: Path, mode: int, force: bool) -> None:
    with temp.open("rb") as file:
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())
    if force:
        temp.replace(real)
    else:
        _link_or_rename(temp, real, path)
    folder = os.open(real.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno != errno.EINVAL:  # file systems that cannot sync a folder
            raise
    finally:
        os.close(folder)


def _link_or_rename(temp: Path, real: Path, path: Path) -> None:
    """Publish without replacing: a link fails where a rename would overwrite what came meanwhile."""
    try:
        os.link(temp, real)
    except FileExistsError:
        raise _exists(path, exit_code=EXIT_PROBLEMS) from None
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        if os.path.lexists(real):
            raise _exists(path, exit_code=EXIT_PROBLEMS) from None
        temp.replace(real)


def _exists(path: Path, exit_code: int = 2) -> KdbtoolError:
    return KdbtoolError("output exists", where=path, hint="--force replaces it", exit_code=exit_code)
