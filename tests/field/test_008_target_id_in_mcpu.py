"""Field case 8 (MIOpen#2309): `-mcpu=gfx90a:sramecc+:xnack-` is never asked for; fix strips the target id."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.amdgpu_elf import code_object
from support.kdb_files import make, row

from kdbtool.kdb.reader import open_kdb

KEY = b"naive_conv.cpp.o", b" -DA=1 -mcpu=gfx90a:sramecc+:xnack-"
DATA = code_object("gfx90a", xnack="off", sramecc="on")
OTHER = code_object("gfx90a", kernels=("other",), xnack="any", sramecc="any")


def test_008_verify(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    rows = [row(*KEY, DATA), row(b"naive_conv.cpp.o", b" -DA=1 -mcpu=gfx90a", OTHER)]
    done = run_cli("verify", make(tmp_path / "gfx90a.kdb", rows))
    assert done.code == 1
    assert "unreachable-target-id" in done.out and "twin" in done.out


def test_008_fix(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    new = tmp_path / "new.kdb"
    path = make(tmp_path / "gfx90a.kdb", [row(*KEY, DATA)])
    assert run_cli("fix", path, "--strip-target-id", "-o", new).code == 0
    with open_kdb(new) as reader:
        assert list(reader.keys()) == [(b"naive_conv.cpp.o", b" -DA=1 -mcpu=gfx90a")]


def test_008_two_blobs_are_never_merged(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    new = tmp_path / "new.kdb"
    rows = [row(*KEY, DATA), row(b"naive_conv.cpp.o", b" -DA=1 -mcpu=gfx90a", OTHER)]
    done = run_cli("fix", make(tmp_path / "gfx90a.kdb", rows), "--strip-target-id", "-o", new, "--json")
    assert done.code == 1 and json.loads(done.out)["left_out_by"] == {"conflict": 1}
    with open_kdb(new) as reader:
        assert [r.object() for r in reader] == [OTHER]
