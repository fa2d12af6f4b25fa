"""Field case 19 (as TheRock#3496): a database of 0 rows, 12,288 bytes, is valid."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.kdb_files import make

from kdbtool.kdb.writer import write_kdb


def test_019(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    path = make(tmp_path / "gfx1030.kdb", [])
    assert path.stat().st_size == 12288
    assert run_cli("verify", path).code == 0
    assert "0, 0 distinct objects" in run_cli("info", path).out


def test_019_written(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    path = tmp_path / "gfx1030.kdb"
    write_kdb(path, [], {})
    assert run_cli("verify", path).code == 0
