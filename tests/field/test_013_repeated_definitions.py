"""Field case 13 (MIOpen#616): the general options stand twice; kept as they are, flagged, no problem."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.kdb_files import make, row

from kdbtool.kdb.reader import open_kdb
from kdbtool.rebuild.options import accept

ARGS = b" -DMIOPEN_USE_FP32=1 -DMIOPEN_USE_FP16=0 -DMIOPEN_USE_FP32=1 -DMIOPEN_USE_FP16=0 -mcpu=gfx1030"


def test_013(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    path = make(tmp_path / "gfx1030.kdb", [row(args=ARGS)])
    done = run_cli("verify", path)
    assert done.code == 0 and "note repeated-defines" in done.out
    with open_kdb(path) as reader:
        assert next(iter(reader)).args == ARGS


def test_013_the_compiler_gets_both() -> None:
    """That equal repeats compile to the same object: tests/integration/test_rebuild_real.py."""
    assert accept(ARGS, "gfx1030") == tuple(ARGS.decode().split())
