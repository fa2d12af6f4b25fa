"""Tables of traces: every row, names that are no UTF-8, numbers that no column can hold; and regions."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import traces as make
from support.whole_trace import whole

from kdbtool.shim._trace import lib
from kdbtool.shim.trace_model import Range
from kdbtool.shim.trace_regions import Regions
from kdbtool.shim.trace_tables import TABLES, escaped
from kdbtool.shim.trace_write import struct

ROWS = {
    "processes": 2, "facts": 12, "texts": 10, "launches": 10, "shapes": 4, "kernels": 4, "modules": 2,
    "lookups": 2, "problems": 2, "calls": 2, "compiles": 2, "graphs": 2, "ranges": 12, "samples": 2,
    "gates": 2,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "t"
    folder.mkdir()
    for rank in (0, 1):
        (folder / f"{rank}.kdbtrace").write_bytes(whole(rank))
    return folder


def test_sqlite(folder: Path, tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    out = tmp_path / "o.sqlite"
    assert run_cli("trace", "export", folder, "-o", out).code == 0
    db = sqlite3.connect(out)
    assert {table: db.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0] for table in TABLES} == ROWS
    assert db.execute("SELECT kernel FROM kernels_named WHERE process=1 ORDER BY 1").fetchall() == [
        ("first",),
        ("k\\xff\\\\",),
    ]
    inside = "SELECT r.name FROM launches l LEFT JOIN ranges_named r ON r.range = l.range WHERE l.process=1"
    names = ["conv", "epoch", "epoch", "epoch", "epoch"]  # the last two: of a start in the other thread
    assert [name for (name,) in db.execute(inside + " ORDER BY l.time_ns")] == names
    assert db.execute("SELECT graph FROM graphs").fetchone() == (-(1 << 63),)
    assert db.execute("SELECT name, args FROM lookups_named").fetchone() == ("k.cl.o", " -DA=1 -mcpu=gfx1030")
    first = out.read_bytes()
    assert run_cli("trace", "export", folder, "-o", out).code == 2
    assert run_cli("trace", "export", folder, "-o", out, "--force").code == 0
    assert out.read_bytes() == first


def test_the_documented_clocks_of_a_launch_are_of_its_host_and_one_card(
    tmp_path: Path, run_cli: Callable[..., Any]
) -> None:
    def host(name: bytes, *samples: tuple[int, int, int]) -> None:
        rows = [make.kernel(1, b"k"), make.shape(2, 1), make.launches((2, 0), ticks=4000)]
        for card, mhz, ticks in samples:
            payload = struct("sample", device=card, valid=1, sclk_khz=mhz * 1000)
            rows.append(make.record(lib.KDBT_SAMPLE, payload, ticks=ticks))
        (tmp_path / f"{name.decode()}.kdbtrace").write_bytes(make.header(host=name) + make.block(*rows))

    host(b"a", (0, 500, 3000), (0, 1000, 3500), (1, 2000, 3500), (0, 9000, 4500))
    host(b"b", (0, 3000, 3900))
    host(b"c")
    out = tmp_path / "o.sqlite"
    assert run_cli("trace", "export", tmp_path, "-o", out).code == 0
    page = (Path(__file__).parents[2] / "docs/trace-tables.md").read_text()
    index, query = page.split("```sql")[1].split("```")[0].strip().rstrip(";").split(";")
    db = sqlite3.connect(out)
    db.execute(index)
    assert sorted(db.execute(query)) == [("k", "a", 0, 1000), ("k", "a", 1, 2000), ("k", "b", 0, 3000)]


def test_parquet(folder: Path, tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    import polars  # of the extra `columns`

    out = tmp_path / "o"
    assert run_cli("trace", "export", folder, "-o", out).code == 0
    assert {table: len(polars.read_parquet(out / f"{table}.parquet")) for table in TABLES} == ROWS
    assert sorted(path.name for path in out.iterdir()) == sorted(f"{table}.parquet" for table in TABLES)
    first = {path.name: path.read_bytes() for path in out.iterdir()}
    assert run_cli("trace", "export", folder, "-o", out).code == 2
    assert run_cli("trace", "export", folder, "-o", out, "--force").code == 0
    assert {path.name: path.read_bytes() for path in out.iterdir()} == first
    one = tmp_path / "l.parquet"
    assert run_cli("trace", "export", folder, "-o", one).code == 2
    assert run_cli("trace", "export", folder, "-o", one, "--table", "launches").code == 0
    assert one.read_bytes() == first["launches.parquet"]


def test_without_polars(
    folder: Path, tmp_path: Path, run_cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    ended = run_cli("trace", "export", folder, "-o", tmp_path / "o")
    assert ended.code == 2 and "pip install 'kdbtool[columns]'" in ended.err and ended.err.count("\n") == 1
    assert not (tmp_path / "o").exists()


def test_escape_loses_nothing() -> None:
    assert escaped("a\\xff") == "a\\\\xff" and escaped("a\udcff") == "a\\xff"


def test_times_and_numbers_beyond_64_bits(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    path = tmp_path / "x.kdbtrace"
    path.write_bytes(
        whole(start_realtime_ns=(1 << 64) - 1, start_ns=0, load_ns=(1 << 64) - 1, load_ticks=1999)
    )
    assert run_cli("trace", "export", path, "-o", tmp_path / "o.sqlite").code == 0


def test_regions_of_ranges_that_do_not_match() -> None:
    ops = [
        ("pop", 0),
        ("stop", 7),
        ("push", 0),
        ("push", 0),
        ("pop", 0),
        ("start", 7),
        ("start", 8),
        ("stop", 8),
    ]
    regions = Regions([Range(op, "x", id, 1, time) for time, (op, id) in enumerate(ops)])
    assert regions.ends == {3: 4, 6: 7}
    assert regions.of(1, [0, 2, 3, 4, 9]) == [None, 2, 3, 2, 2]
    assert regions.of(2, [0, 5, 6, 7]) == [None, 5, 6, 5]


def test_many_open_ranges_were_quadratic() -> None:
    ranges = [Range("start" if i % 2 else "push", "x", i, i % 50, i) for i in range(100_000)]
    assert len(Regions(ranges).of(1, list(range(100_000)))) == 100_000
