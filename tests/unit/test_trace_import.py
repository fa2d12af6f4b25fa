"""`kdbtool trace import`: what is written is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kdbtool.shim.trace import read_trace

LOG = b'MIOpen(HIP): Info2 [LoadBinary] Loading binary for: "x.cl.o"; args:  -DA=1 -mcpu=gfx1030\n'


def test_what_is_written_is_said_where_the_next_log_cannot_be_read(
    tmp_path: Path, run_cli: Callable[..., Any]
) -> None:
    log, out = tmp_path / "a.log", tmp_path / "out"
    log.write_bytes(LOG)
    out.mkdir()
    ended = run_cli("trace", "import", log, tmp_path / "none.log", "-o", out, "--json")
    found = json.loads(ended.out)
    assert ended.code == 2 and "none.log" in found["error"]
    (told,) = found["traces"]
    assert [one.name for one in read_trace(Path(told["trace"])).lookups] == [b"x.cl.o"]
