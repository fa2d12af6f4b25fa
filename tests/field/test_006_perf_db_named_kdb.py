"""Field case 6 (MIOpen#1930): a performance database copied to gfx90878.kdb."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_006(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    path = tmp_path / "gfx90878.kdb"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE config (id INTEGER PRIMARY KEY, layout TEXT)")
        db.execute("CREATE TABLE perf_db (id INTEGER PRIMARY KEY, solver TEXT, config INT, params TEXT)")
    done = run_cli("verify", path)
    assert done.code == 2
    assert done.err == f"kdbtool verify: {path}: performance database, not a kernel database\n"
