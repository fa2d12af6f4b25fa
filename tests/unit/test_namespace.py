"""`kdbtool.root.namespace`: mounts of a process's own, as root and as an ordinary user."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from kdbtool.root import namespace


def ended(uid: int | None, *, as_root: bool, folder: Path) -> str:
    """What a child says that binds /proc over `folder` in a namespace of its own."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if uid is not None:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
                # A change of user takes /proc/self away until exec (prctl(2): PR_SET_DUMPABLE).
                ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
            namespace.own(as_root=as_root)
            namespace.bind("/proc", str(folder))
            there = (folder / "self/status").exists()
            os.write(write, f"{os.geteuid()} {there}".encode())
        except BaseException as error:
            os.write(write, repr(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


@pytest.mark.skipif(os.geteuid() != 0, reason="changes its user")
@pytest.mark.parametrize(
    ("uid", "as_root", "want"),
    [(None, False, "0 True"), (65534, False, "65534 True"), (65534, True, "0 True")],
)
def test_a_mount_of_ones_own_is_seen_by_nobody_else(uid: int | None, as_root: bool, want: str) -> None:
    folder = Path("/mnt")  # one that every user can reach
    before = Path("/proc/self/mountinfo").read_text()
    assert ended(uid, as_root=as_root, folder=folder) == want
    assert Path("/proc/self/mountinfo").read_text() == before


def test_a_step_that_fails_is_named(tmp_path: Path) -> None:
    said = ended(None, as_root=True, folder=tmp_path / "absent")
    assert "OSError" in said or "FileNotFoundError" in said
    assert f"mount {tmp_path / 'absent'}" in said
