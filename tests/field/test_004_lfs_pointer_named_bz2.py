"""Field case 4 (MIOpen#2037): the same text named gfx90a6e.kdb.bz2: the same message, one line."""

import bz2
from collections.abc import Callable
from pathlib import Path
from typing import Any

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 400027325\n"


def test_004(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    path = tmp_path / "gfx90a6e.kdb.bz2"
    path.write_bytes(POINTER)
    done = run_cli("verify", path)
    assert done.code == 2
    assert "Git LFS pointer for a 400 MB file, not a database" in done.err and done.err.count("\n") == 1


def test_004_pointer_inside_bzip2(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    path = tmp_path / "gfx90a6e.kdb.bz2"
    path.write_bytes(bz2.compress(POINTER))
    done = run_cli("verify", path)
    assert done.code == 2 and "Git LFS pointer" in done.err and done.err.count("\n") == 1
