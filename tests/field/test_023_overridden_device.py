"""Field case 23 (MIOpen#3540, #3096): a gfx1030 that HSA_OVERRIDE_GFX_VERSION=10.3.0 made, 14 units."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import traces as t

from kdbtool.kdb.names import parse_name
from kdbtool.shim._trace import lib

KEY = (b"MIOpenIm2d2Col.cl.o", b" -DA=1 -mcpu=gfx1030")


def trace(path: Path, cu: int, **switches: str) -> Path:
    facts = {"device.0": "gfx1030", "device.0.cu": str(cu), "miopen.version": "3.4.0"}
    facts |= {f"env.{name}": value for name, value in switches.items()}
    made = [t.record(lib.KDBT_FACT, t.pair(k.encode(), v.encode())) for k, v in facts.items()]
    file = f"/home/u/.cache/miopen/3.4.0./gfx1030_{cu}.ukdb".encode()
    asked = [t.key(1, *KEY), t.database(2, file), t.statement(3, 1, 2), t.step(3, 101)]
    t.read(path, t.header(), t.block(*made, *asked))
    return path


@pytest.fixture
def overridden(tmp_path: Path) -> Path:
    return trace(tmp_path / "a.kdbtrace", 14, HSA_OVERRIDE_GFX_VERSION="10.3.0")


def test_023_flag_and_name(overridden: Path, tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    shown = run_cli("info", overridden).out
    assert "flags:     override" in shown and "HSA_OVERRIDE_GFX_VERSION=10.3.0" in shown
    assert "gfx1030_14.ukdb (gfx1030, 14 WGP)" in shown and "gfx1030, 14 units" in shown
    name = parse_name("gfx1030_14.ukdb")
    assert name is not None and (name.arch, name.cu, name.kind) == ("gfx1030", 14, "ukdb")
    assert "override" not in run_cli("info", trace(tmp_path / "true", 36)).out


def test_023_merge_warns(overridden: Path, tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    words = "keys of true gfx1030 devices and of ones made gfx1030 by HSA_OVERRIDE_GFX_VERSION are merged"
    true = trace(tmp_path / "b.kdbtrace", 36)
    for inputs, warns in (((overridden, true), True), ((overridden, overridden), False), ((true,), False)):
        ended = run_cli("merge", *inputs, "-o", tmp_path / "m", "--force")
        assert ended.code == 0 and (words in ended.err) is warns
    assert words in run_cli("info", tmp_path).out  # a folder with both
