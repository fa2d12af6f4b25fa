"""The benchmark of the recorder runs, reads every launch back, and prints its table. No time is asserted."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/bench/recorder"
pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="no C compiler")


def test_every_way_is_in_the_table() -> None:
    command = [sys.executable, str(SCRIPT), "--rounds", "1", "--launches", "1000"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(("hot", "shapes", "cold"))]
    own = ["unhooked", "forward", "ring", "write", "recorder"]
    tracers = [name for name in ("ltrace", "uftrace") if shutil.which(name)]
    expected = [("hot", "1", name) for name in own + tracers]
    for mode, threads in (("hot", "2"), ("hot", "4"), ("shapes", "1"), ("cold", "1")):
        expected += [(mode, threads, name) for name in own]
    assert [tuple(row[:3]) for row in rows] == expected
    assert all(re.fullmatch(r"-?[0-9]+\.[0-9]+", cell) for row in rows for cell in row[3:])
    missing = [name for name in ("ltrace", "uftrace") if name not in tracers]
    assert [line for line in done.stdout.splitlines() if "not installed" in line] == [
        f"{name}: not installed, left out" for name in missing
    ]


def test_no_rounds_is_a_usage_error() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--rounds", "0"], capture_output=True, text=True)
    assert done.returncode == 2 and "at least 1 round" in done.stderr
