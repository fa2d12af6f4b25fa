"""Perf-dbs in both forms: AMD's rows go there and back, the text is sqlite2txt's, damage is named."""

from __future__ import annotations

import bz2
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.real_dbs import perf_sqlite, perf_text

from kdbtool.cli import main
from kdbtool.errors import KdbtoolError
from kdbtool.miopen import finddb, perfdb, perfdb_sqlite, perfdb_text
from kdbtool.miopen.perfdb_sqlite import BAD_ROW, NO_CONFIG
from kdbtool.miopen.perfdb_text import Damaged, render
from kdbtool.miopen.perfkey import (
    NUMBERS,
    TEXTS,
    Config,
    PerfRecord,
    config_of,
    is_possible,
    parse_config,
    problem_of,
)
from kdbtool.miopen.problems import parse_problem
from kdbtool.miopen.textdb import Damage

KEY = "2x48x35x35x1x5x5x1x64x1x2x2x0x1x1x0x1x1x0x0x1xNCHWxFP32xF"
FIND_KEY = "48-35-35-5x5-64-35-35-1-2x2-1x1-1x1-0-NCHW-FP32-F"
AMDS = {"gfx1030_36.db.bz2": (5217, 9872, 26), "gfx942130.db.bz2": (9393, 21058, 0)}  # problems, rows, unused


def rows(path: Path) -> list[tuple[str, str, str]]:
    return sorted((r.key, r.solver, r.params) for r in perfdb.read(path))


def read(path: Path) -> tuple[list[PerfRecord], list[Damage]]:
    damaged: list[Damage] = []
    return list(perfdb.read(path, damaged.append)), damaged


@pytest.mark.parametrize("name", AMDS)
def test_every_row_of_amds_comes_back(shared: Path, tmp_path: Path, name: str) -> None:
    source = shared / "data" / name
    text, back, again = tmp_path / "a.db.txt", tmp_path / "b.db", tmp_path / "c.db.txt.bz2"
    problems, count, unused = AMDS[name]
    done = perfdb.convert(source, text)
    assert (done.rows, done.problems, done.unused, done.lost) == (count, problems - unused, unused, [])
    assert perfdb.convert(text, back).rows == perfdb.convert(back, again).rows == count
    assert bz2.decompress(again.read_bytes()) == text.read_bytes()
    assert rows(source) == rows(text) == rows(back) == rows(again)
    with sqlite3.connect(f"file:{back}?mode=ro", uri=True) as db, sqlite3.connect(":memory:") as amds:
        amds.deserialize(bz2.decompress(source.read_bytes()))
        columns = [
            [r[1:] for r in d.execute(f"PRAGMA table_info({t})")]
            for d in (db, amds)
            for t in ("config", "perf_db")
        ]
        assert columns[:2] == columns[2:]
        assert db.execute("SELECT name FROM sqlite_schema WHERE type = 'index' ORDER BY 1").fetchall() == [
            ("idx_config",),
            ("idx_perf_db",),
        ]
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_the_text_is_that_of_sqlite2txt(shared: Path, tmp_path: Path) -> None:
    """Its query and its joining, from tools/sqlite2txt/main.cpp of MIOpen 3.2; it sorts lines by no order."""
    source = tmp_path / "a.db"
    source.write_bytes(bz2.decompress((shared / "data" / "gfx1030_36.db.bz2").read_bytes()))
    fields = ", ".join((*NUMBERS, *TEXTS))
    query = f"SELECT solver, params, {fields} FROM perf_db INNER JOIN config ON perf_db.config = config.id"
    lines: dict[str, str] = {}
    with sqlite3.connect(source) as db:
        for solver, params, *columns in db.execute(query):
            key = "x".join(map(str, columns))
            lines[key] = (lines[key] + ";" if key in lines else "") + f"{solver}:{params}"
    perfdb.convert(source, tmp_path / "a.db.txt")
    want = "".join(f"{key}={value}\n" for key, value in sorted(lines.items()))
    assert (tmp_path / "a.db.txt").read_bytes() == want.encode("ascii")


def test_the_same_rows_give_the_same_bytes(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "a.db.txt").write_bytes(perf_text(shared, 300))
    first, second = tmp_path / "a.db", tmp_path / "b.db.bz2"
    perfdb.convert(tmp_path / "a.db.txt", first)
    perfdb.convert(tmp_path / "a.db.txt", second)
    assert first.read_bytes() == bz2.decompress(second.read_bytes())
    assert rows(first) == rows(second) == rows(tmp_path / "a.db.txt")


def test_keys_2d_and_3d() -> None:
    flat = parse_problem(FIND_KEY)
    assert str(config_of(flat)) == KEY and parse_config(KEY) == config_of(flat)
    assert problem_of(config_of(flat)) == flat
    deep = parse_problem("16-8-14-15-3x4x5-32-8-14-15-4-1x2x0-1x1x1-1x1x1-0-NCDHW-FP16-W_g16")
    assert str(config_of(deep)) == "3x16x14x15x8x4x5x3x32x4x2x0x1x1x1x1x1x1x1x0x16xNCDHWxFP16xW"
    strided = parse_problem(FIND_KEY.replace("-1x1-1x1-0-", "-2x2-1x1-0-").removesuffix("F") + "B")
    assert problem_of(config_of(strided)) is None  # two sizes of x give this y


def test_a_find_db_key_finds_its_perf_db_key(shared: Path) -> None:
    """Where the perf-db key says enough, the way back gives the same problem, for most of AMD's own keys."""
    total = same = 0
    for record in finddb.read(shared / "data" / "gfx942130.HIP.fdb.txt.bz2"):
        config = config_of(record.problem)
        assert parse_config(str(config)) == config and is_possible(config)
        back = problem_of(config)
        if back is not None:
            total += 1
            same += back == record.problem
            assert config_of(back) == config
    assert total > 5000 and same > 0.9 * total


@pytest.mark.parametrize(
    "key",
    [
        "",
        KEY[:-1],
        KEY.replace("F", "FF"),
        KEY.replace("FP32", "FP33"),
        KEY.replace("NCHW", "NC"),
        "0" + KEY,
        KEY.replace("2x48x", "2x048x"),
        KEY.replace("2x48x", "2xx48x"),
        KEY + "\n",
    ],
)
def test_other_texts_are_no_keys(key: str) -> None:
    assert parse_config(key) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [("2x48", "4x48"), ("x35x35x1x", "x35x35x2x"), ("x35x35x1x", "x-5x35x1x"), ("x0x1xN", "x0x5xN"),
     ("x0x1xN", "x2x1xN"), ("x2x2x0x1x1x0", "x2x2x0x1x1x1"), ("NCHW", "NCDHW"), ("x48x", "x0x")],
)  # fmt: skip
def test_impossible_keys_are_told_from_others(old: str, new: str) -> None:
    config = parse_config(KEY.replace(old, new, 1))
    assert config is not None and not is_possible(config) and problem_of(config) is None
    assert str(config) == KEY.replace(old, new, 1)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("nothing", Damaged.NO_KEY),
        ("=a:1", Damaged.NO_KEY),
        (KEY[:-1] + "=a:1", Damaged.BAD_KEY),
        (KEY + "=", Damaged.NO_ITEMS),
        (KEY + "=b", Damaged.NO_SOLVER),
        (KEY + "=:1", Damaged.NO_SOLVER),
        (KEY + "=b:1;b:2", Damaged.REPEATED),
        (KEY.replace("48", "49", 1) + "=b:2", Damaged.REPEATED),
    ],
)
def test_damage_in_text_is_named(tmp_path: Path, line: str, reason: Damaged) -> None:
    path = tmp_path / "a.db.txt"
    path.write_text(f"{KEY.replace('48', '49', 1)}=good:1,2\n{line}\n{KEY.replace('48', '50', 1)}=good:\n")
    records, damaged = read(path)
    assert [(d.line, d.reason) for d in damaged] == [(2, reason)]
    assert [(r.solver, r.params) for r in records if r.solver == "good"] == [("good", "1,2"), ("good", "")]


def test_find_db_keys_of_old_text_become_perf_db_keys(tmp_path: Path) -> None:
    path = tmp_path / "gfx1030_36.HIP.2_20_0_.udb.txt"
    path.write_text(f"{FIND_KEY}=ConvOclDirectFwd:1,2\n")
    assert [r.config for r in perfdb.read(path)] == [None]
    done = perfdb.convert(path, tmp_path / "a.db.txt")
    assert (done.rekeyed, done.lost) == (1, [])
    assert (tmp_path / "a.db.txt").read_text() == f"{KEY}=ConvOclDirectFwd:1,2\n"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("UPDATE perf_db SET config = 9999 WHERE id = 1", NO_CONFIG),
        ("UPDATE perf_db SET solver = '' WHERE id = 1", BAD_ROW),
        ("UPDATE perf_db SET params = x'00ff' WHERE id = 1", Damaged.UNWRITABLE),
        ("UPDATE config SET in_h = 'tall' WHERE id = (SELECT config FROM perf_db WHERE id = 1)", BAD_ROW),
        ("UPDATE config SET layout = 'a;b' WHERE id = (SELECT config FROM perf_db WHERE id = 1)", BAD_ROW),
        ("UPDATE config SET pad_h = 1 << 50 WHERE id = (SELECT config FROM perf_db WHERE id = 1)", BAD_ROW),
        ("DROP INDEX idx_perf_db;"
         "INSERT INTO perf_db SELECT 99, solver, config, 'new' FROM perf_db WHERE id = 1", Damaged.REPEATED),
        ("UPDATE perf_db SET params = 'a;b' WHERE id = 1", Damaged.UNWRITABLE),
        ("UPDATE perf_db SET params = 'a' || char(10) WHERE id = 1", Damaged.UNWRITABLE),
        ("UPDATE perf_db SET solver = 'a:b' WHERE id = 1", Damaged.UNWRITABLE),
        ("UPDATE perf_db SET params = 'ä' WHERE id = 1", Damaged.UNWRITABLE),
    ],
)  # fmt: skip
def test_damage_in_sqlite_is_named(
    shared: Path, tmp_path: Path, run_cli: Callable[..., Any], change: str, reason: str
) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(perf_sqlite(shared, tmp_path, 40))
    assert run_cli("perfdb", "convert", path, "-o", tmp_path / "good.db.txt").code == 0
    with sqlite3.connect(path) as db:
        db.executescript(change)
    done = perfdb.convert(path, tmp_path / "a.db.txt")
    assert [(d.line, d.reason) for d in done.lost if d.reason == reason][:1] == [(1, reason)]
    assert done.rows >= 30
    result = run_cli("perfdb", "convert", path, "-o", tmp_path / "b.db.txt")
    assert result.code == 1 and f"line 1: {reason}" in result.err


def test_the_last_of_two_rows_counts_as_in_miopen(shared: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(perf_sqlite(shared, tmp_path, 4))
    with sqlite3.connect(path) as db:
        db.executescript(
            "DROP INDEX idx_perf_db;"
            "INSERT INTO perf_db SELECT 9, solver, config, 'new' FROM perf_db WHERE id = 1"
        )
    records, _ = read(path)
    assert len(records) == 4 and records[-1].params == "new"


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda db: db.execute("DROP TABLE config"), "no table config"),
        (lambda db: db.execute("ALTER TABLE config DROP COLUMN layout"), "layout"),
        (lambda db: db.executescript("ALTER TABLE perf_db ADD arch; ALTER TABLE perf_db ADD num_cu"), "sev"),
        (lambda db: db.executescript("DROP TABLE perf_db; CREATE VIEW perf_db AS SELECT 1 a"), "no table"),
    ],
)  # fmt: skip
def test_other_databases_are_refused(shared: Path, tmp_path: Path, make: Any, what: str) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(perf_sqlite(shared, tmp_path, 4))
    with sqlite3.connect(path) as db:
        db.execute("DROP INDEX idx_config")
        make(db)
    with pytest.raises(KdbtoolError, match=what) as caught:
        list(perfdb.read(path))
    assert caught.value.exit_code == 2


def test_a_find_db_and_a_kdb_are_refused(shared: Path) -> None:
    for name in ("gfx942130.HIP.fdb.txt.bz2", "gfx942.kdb"):
        with pytest.raises(KdbtoolError):
            list(perfdb.read(shared / "data" / name))


def test_a_user_db_in_wal_mode_is_read(shared: Path, tmp_path: Path) -> None:
    path = tmp_path / "gfx1030_36_1.1.0.udb"
    path.write_bytes(perf_sqlite(shared, tmp_path, 20))
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("UPDATE perf_db SET params = 'fresh' WHERE id = 1")
        db.commit()
        assert [r.params for r in perfdb.read(path) if r.line == 1] == ["fresh"]


def test_the_output_name_decides(shared: Path, tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    source = shared / "data" / "gfx1030_36.db.bz2"
    assert "SQLite" in run_cli("perfdb", "convert", source, "-o", tmp_path / "a.kdb").err
    result = run_cli("perfdb", "convert", source, "-o", tmp_path / "a.db.txt")
    assert result.code == 0 and "9872 rows of 5191 problems" in result.out and "26 problems" in result.out
    assert run_cli("perfdb", "convert", source, "-o", tmp_path / "a.db.txt").code == 2
    done = json.loads(
        run_cli("perfdb", "convert", tmp_path / "a.db.txt", "-o", tmp_path / "a.udb", "--json").out
    )
    assert (done["form"], done["rows"], done["lost"]) == ("sqlite", 9872, [])
    found = run_cli(
        "perfdb", "list", tmp_path / "a.udb", "--solver", "^ConvOclDirectFwd$", "--problem", f"^{KEY}$"
    )
    assert found.out == f"{KEY}\tConvOclDirectFwd\t16,8,16,32,1,4,1,2,1\n"


def test_a_summary_counts(shared: Path, tmp_path: Path) -> None:
    found = perfdb.summary(shared / "data" / "gfx1030_36.db.bz2")
    assert (found["problems"], found["rows"], found["impossible"]) == (5191, 9872, 3)
    assert found["dimensions"] == {"2-D": 5155, "3-D": 36} and found["damaged"] == {}
    json.dumps(found)


texts = st.text(st.characters(codec="ascii", exclude_characters=":;=\n\0"), min_size=1, max_size=20)
configs = st.builds(
    Config,
    st.lists(st.integers(-(10**9), 10**9), min_size=21, max_size=21).map(tuple),
    st.sampled_from(("NCHW", "NHWC", "NCDHW", "NCHWc4")),
    st.sampled_from(("FP32", "INT8INT8INT32", "INT8x4INT8x4FP32")),
    st.sampled_from("FBW"),
)


@given(st.dictionaries(st.tuples(configs, texts), texts, min_size=1, max_size=6))
def test_any_rows_come_back_from_both_forms(tmp_path_factory: pytest.TempPathFactory, content: Any) -> None:
    folder = tmp_path_factory.mktemp("rows")
    records = [PerfRecord(0, str(c), c, solver, params) for (c, solver), params in content.items()]
    assert all(map(perfdb_text.is_writable, records))
    (folder / "a.db.txt").write_bytes(b"".join(render(records)))
    perfdb.convert(folder / "a.db.txt", folder / "a.db")
    want = sorted((r.key, r.solver, r.params) for r in records)
    assert rows(folder / "a.db.txt") == rows(folder / "a.db") == want


@pytest.mark.parametrize(
    "text",
    ["version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "<html>\n404\n"],
    ids=["lfs", "html"],
)
def test_another_kind_of_file_is_refused_not_converted_to_nothing(tmp_path: Path, text: str) -> None:
    path, output = tmp_path / "gfx1030_36.db", tmp_path / "out.db.txt"
    path.write_text(text)
    assert main(["perfdb", "convert", str(path), "-o", str(output)]) == 2
    assert not output.exists()


def test_more_rows_than_either_form_may_have_are_refused_in_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key = "2x64x56x56x1x1x1x1x128x32x0x0x0x1x1x0x1x1x0x0x1xNCHWxFP32xF"
    path, output = tmp_path / "a.db.txt", tmp_path / "a.db"
    path.write_text(f"{key}=A:1;B:2\n")
    assert main(["perfdb", "convert", str(path), "-o", str(output)]) == 0
    capsys.readouterr()
    for module in (perfdb_text, perfdb_sqlite):
        monkeypatch.setattr(module, "MAX_ROWS", 1)
    assert main(["perfdb", "convert", str(path), "-o", str(tmp_path / "b.db")]) == 2
    assert main(["perfdb", "list", str(output)]) == 2
    # What is printed stays one document, however far the rows were read.
    capsys.readouterr()
    assert main(["perfdb", "list", "--json", str(path)]) == 2
    document = json.loads(capsys.readouterr().out)
    assert len(document["rows"]) == 1 and "too large" in document["error"]
