"""The harvest's record: gone on with, refused, damaged; the same whoever was first."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kdbtool.errors import KdbtoolError
from kdbtool.harvest import run
from kdbtool.harvest.record import Record, pack
from kdbtool.harvest.run import begin, digest, harvest, in_order
from kdbtool.harvest.steps import Found
from kdbtool.harvest.wanted import ALL, Failure, Plan, Wanted, Why

META = {"miopen": "6.4.3", "build-id": "", "device": "gfx1030:36"}
FAILED = Failure("p1", "Solver", Why.CRASHED, "ended by SIGSEGV")


def plan(count: int = 5) -> Plan:
    return Plan(
        ALL, [Wanted(f"p{i}", "ids", ("S",)) for i in range(count)], [Failure("q", "", Why.UNSPEAKABLE, "?")]
    )


def packed(wanted: list[Wanted]) -> object:
    """As if every problem had asked for a key of its own and for one that all ask for."""
    keys = sorted([(b"all.o", b" -DA=1"), *((one.key.encode(), b"") for one in wanted)])
    own = {name: number for number, (name, _) in enumerate(keys)}
    asked = [(i, "S", own[one.key.encode()]) for i, one in enumerate(wanted)]
    asked += [(i, "S", own[b"all.o"]) for i in range(len(wanted))]
    return pack(Found(keys, sorted(asked)))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "CHUNK", 2)


class FakePool:
    """Answers in the order that it is told; stops where it is told, as a kill would."""

    backwards, stop_after = False, 99

    def __init__(self, size: int, setup: object) -> None:
        self.size = size

    def __enter__(self) -> FakePool:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, messages: list[tuple[int, list[Wanted]]]) -> Iterator[tuple[object, object]]:
        for message in reversed(messages) if self.backwards else messages[: self.stop_after]:
            yield message, packed(message[1])
        if self.stop_after < len(messages):
            raise KeyboardInterrupt

    def __class_getitem__(cls, item: object) -> type[FakePool]:
        return cls


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> type[FakePool]:
    monkeypatch.setattr(run, "Pool", FakePool)
    monkeypatch.setattr(FakePool, "backwards", False)
    monkeypatch.setattr(FakePool, "stop_after", 99)
    return FakePool


def walked(path: Path, of: Plan) -> run.Outcome:
    with begin(path, of, META, force=False) as record:
        return harvest(of, None, record, workers=2, progress=lambda *_: None)  # type: ignore[arg-type]


def content(path: Path) -> list[object]:
    with closing(sqlite3.connect(path)) as c:
        tables = ("meta", "problem", "solver", "chunk", "key", "asked", "failure")
        return [c.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in tables]


def test_all_comes_back(tmp_path: Path, pool: type[FakePool]) -> None:
    path = tmp_path / "r"
    assert walked(path, plan()) == run.Outcome(walked=5)
    with Record.open(path) as record:
        keys = dict(record.each_key())
        assert sorted(keys.values()) == sorted(
            [(b"all.o", b" -DA=1"), *((b"p%d" % i, b"") for i in range(5))]
        )
        (shared,) = (number for number, (name, _) in keys.items() if name == b"all.o")
        assert record.askers(shared) == [("S", f"p{i}") for i in range(5)]
        assert list(record.failures()) == [Failure("q", "", Why.UNSPEAKABLE, "?")]
        assert record.counts() == {"problem": 6, "key": 6, "asked": 10}


def test_who_is_first_changes_nothing(
    tmp_path: Path, pool: type[FakePool], monkeypatch: pytest.MonkeyPatch
) -> None:
    walked(tmp_path / "a", plan())
    monkeypatch.setattr(FakePool, "backwards", True)
    walked(tmp_path / "b", plan())
    assert content(tmp_path / "a") == content(tmp_path / "b")


@pytest.mark.parametrize("chunks", [0, 1, 2])
def test_an_interrupted_harvest_goes_on_and_ends_the_same(
    chunks: int, tmp_path: Path, pool: type[FakePool], monkeypatch: pytest.MonkeyPatch
) -> None:
    walked(tmp_path / "whole", plan())
    monkeypatch.setattr(FakePool, "stop_after", chunks)
    with pytest.raises(KeyboardInterrupt):
        walked(tmp_path / "r", plan())
    monkeypatch.setattr(FakePool, "stop_after", 99)
    assert walked(tmp_path / "r", plan()) == run.Outcome(walked=5 - 2 * chunks, resumed=2 * chunks)
    assert walked(tmp_path / "r", plan()) == run.Outcome(resumed=5)
    assert content(tmp_path / "r") == content(tmp_path / "whole")


def test_a_worker_that_is_killed_twice_costs_its_chunk_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dies(FakePool):
        def map(self, messages: list[tuple[int, list[Wanted]]]) -> Iterator[tuple[object, object]]:
            yield messages[0], None
            yield messages[1], packed(messages[1][1])

    monkeypatch.setattr(run, "Pool", Dies)
    walked(tmp_path / "r", plan(4))
    with Record.open(tmp_path / "r") as record:
        assert [(f.key, f.why) for f in record.failures()] == [
            ("p0", Why.CRASHED), ("p1", Why.CRASHED), ("q", Why.UNSPEAKABLE),
        ]  # fmt: skip


def test_replies_wait_for_their_turn() -> None:
    replies = iter([((3, []), None), ((1, []), None), ((7, []), None)])
    assert [number for number, _, _ in in_order(replies, [1, 3, 7])] == [1, 3, 7]


def test_every_part_of_a_plan_counts() -> None:
    one = plan(2)
    others = [plan(3), Plan("best", one.wanted), Plan(ALL, [one.wanted[0], Wanted("p1", "ids", ("T",))])]
    assert digest(one) == digest(plan(2))
    assert len({digest(other) for other in [one, *others]}) == 4


def test_bytes_that_are_no_text_in_a_find_db_do_no_harm() -> None:
    wanted = [Wanted("p0", "offered", record="p0=S:1,0,x,\udcff")]
    assert digest(Plan("offered", wanted)) != digest(Plan("offered", []))


def test_the_record_of_another_harvest_is_refused_and_kept(tmp_path: Path, pool: type[FakePool]) -> None:
    path = tmp_path / "r"
    walked(path, plan())
    before = content(path)
    with pytest.raises(KdbtoolError, match="record of another harvest: other plan; name another file"):
        begin(path, plan(3), META, force=False)
    with pytest.raises(KdbtoolError, match="other device"):
        begin(path, plan(), META | {"device": "gfx906:60"}, force=False)
    assert content(path) == before
    with begin(path, plan(3), META, force=True) as record:
        assert record.counts() == {"problem": 4, "key": 0, "asked": 0}


@pytest.mark.parametrize("data", [b"", b"SQLite format 3\0" + bytes(84), b"text\n" * 99])
def test_a_file_that_is_no_record_is_one_line_and_left_alone(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_bytes(data)
    for call in (lambda: begin(path, plan(), META, force=False), lambda: Record.open(path)):
        with pytest.raises(KdbtoolError) as raised:
            call()
        assert raised.value.exit_code == 2
        assert "\n" not in raised.value.line()
    assert path.read_bytes() == data


def test_a_record_of_a_newer_version_is_named(tmp_path: Path, pool: type[FakePool]) -> None:
    walked(tmp_path / "r", plan())
    with closing(sqlite3.connect(tmp_path / "r")) as c:
        c.execute("PRAGMA user_version=9")
    with pytest.raises(KdbtoolError, match="a record of version 9: this kdbtool reads version 1"):
        Record.open(tmp_path / "r")


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE chunk SET keys=x'00'",
        "UPDATE chunk SET keys=substr(keys, 1, 5)",
        "UPDATE chunk SET keys='text'",
        "UPDATE key SET place=99",
        "UPDATE key SET place='x'",
        "UPDATE failure SET why='WHATEVER'",
        "DROP TABLE failure",
        "DROP TABLE key",
    ],
)
def test_a_damaged_record_is_one_line(damage: str, tmp_path: Path, pool: type[FakePool]) -> None:
    walked(tmp_path / "r", plan())
    with closing(sqlite3.connect(tmp_path / "r")) as c:
        c.execute(damage)
        c.commit()
    with pytest.raises(KdbtoolError) as raised, Record.open(tmp_path / "r") as record:
        list(record.each_key())
        list(record.failures())
    assert raised.value.exit_code == 2
    assert "\n" not in raised.value.line()


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(KdbtoolError):
        begin(tmp_path / "no" / "r", plan(), META, force=False)
