"""Field case 16: `-DS='a'` is stored, but MIOpen's SQL can never find it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.amdgpu_elf import code_object

from kdbtool.kdb.reader import open_kdb
from kdbtool.kdb.writer import write_kdb

ARGS = b" -DS='a' -mcpu=gfx1030"


def test_016(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    path = tmp_path / "gfx1030.kdb"
    write_kdb(path, [(b"a.cl.o", ARGS, code_object())], {})
    with open_kdb(path) as reader:
        assert list(reader.keys()) == [(b"a.cl.o", ARGS)]
    done = run_cli("verify", path)
    assert done.code == 1 and "problem unreachable-quote" in done.out and "MIOpen: never hit" in done.out
