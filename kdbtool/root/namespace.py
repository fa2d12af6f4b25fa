"""A mount namespace of the calling process's own: nothing that is mounted in it is seen outside.

For a process that is about to become something else (between fork and exec) or a worker: the caller's
view of the system changes for good. Every failure is an OSError that names the step.
"""

from __future__ import annotations

import ctypes
import os

# Linux: sched.h and sys/mount.h.
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000

_libc = ctypes.CDLL(None, use_errno=True)


def own(*, as_root: bool) -> None:
    """Enter a new one in which every mount is private. An ordinary user gets a user namespace, too, and is
    root in it with `as_root`, else who they are, with the capabilities to mount until exec."""
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        _check(_libc.unshare(_CLONE_NEWNS), "unshare")
    else:
        _check(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS), "unshare")
        inside = (0, 0) if as_root else (uid, gid)
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{inside[0]} {uid} 1"),
            ("gid_map", f"{inside[1]} {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123 - between fork and exec
                file.write(text)
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)


def bind(source: str, target: str) -> None:
    """Show `source`, and all that is mounted below it, at `target` as well."""
    _mount(source, target, None, _MS_BIND | _MS_REC)


def mount(kind: str, target: str, options: str) -> None:
    """A new file system of this kind at `target`."""
    _mount(kind, target, kind, 0, options)


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encoded = [None if t is None else os.fsencode(t) for t in (source, target, kind)]
    _check(
        _libc.mount(*encoded, ctypes.c_ulong(flags), None if data is None else os.fsencode(data)),
        f"mount {target}",
    )


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
