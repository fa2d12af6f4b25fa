"""Field case 28 (as TheRock#2591): a trace cut in the middle of its last record by kill -9."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support import traces as t

KEYS = [(b"a%d.cpp.o" % n, b" -DN=%d -mcpu=gfx1030" % n) for n in range(3)]


def test_028(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    records = [t.key(1 + n, *key) for n, key in enumerate(KEYS)] + [t.database(9, b"/x/gfx1030_36.ukdb")]
    records += [t.statement(10 + n, 1 + n, 9) for n in range(3)]
    whole = t.header() + t.block(*records)
    path = tmp_path / "a.kdbtrace"
    path.write_bytes(whole)
    ended = run_cli("info", path)
    assert ended.code == 0 and "look-ups:  3:" in ended.out and "truncated" not in ended.out
    end = whole.rindex(records[-1]) + len(records[-1])
    path.write_bytes(whole[: end - 9])
    ended = run_cli("info", path)
    assert ended.code == 0 and ended.err == ""
    assert "1 truncated record\n" in ended.out and "look-ups:  2:" in ended.out
    listed = run_cli("list", path)
    assert listed.code == 0 and [line.split()[0] for line in listed.out.splitlines()] == ["a0.cpp", "a1.cpp"]
    made = run_cli("manifest", path)
    assert made.code == 0 and "1 truncated record" in made.err
