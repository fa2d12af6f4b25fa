"""Field case 3 (MIOpen#1615): a Git LFS pointer named gfx1030.kdb."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:2c4484c6eab2c9a0a5f1c0f8a2f4c1b2c3d4e5f60718293a4b5c6d7e8f901234\n"
    b"size 400027325\n"
)


@pytest.mark.parametrize("command", ["verify", "info"])
@pytest.mark.parametrize("ending", [b"", b"\r"])
def test_003(tmp_path: Path, run_cli: Callable[..., Any], command: str, ending: bytes) -> None:
    path = tmp_path / "gfx1030.kdb"
    path.write_bytes(POINTER.replace(b"\n", ending + b"\n"))
    done = run_cli(command, path)
    assert done.code == 2 and done.out == ""
    expected = f"{path}: Git LFS pointer for a 400 MB file, not a database; git lfs pull\n"
    assert done.err == f"kdbtool {command}: {expected}"
