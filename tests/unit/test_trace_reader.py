"""The trace reader on good traces, cut ones, damaged ones and bytes that are no trace."""

from __future__ import annotations

import os
import random
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import traces as make
from support.traces import read

from kdbtool.errors import KdbtoolError
from kdbtool.shim._trace import ffi, lib
from kdbtool.shim.trace import find_traces, read_trace

USER, SYSTEM = make.database(1, b"/user.ukdb"), make.database(2, b"/system.kdb")
K = make.key(3, b"k.cl.o", b" -DA=1  -mcpu=gfx1030")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.kdbtrace"


def whole() -> bytes:
    """One of everything, in one block."""
    return make.header() + make.block(
        make.record(lib.KDBT_FACT, make.pair(b"miopen.version", b"3.4.0")),
        *(USER, SYSTEM, K),
        make.statement(4, 3, 1),
        make.step(4, 101),
        make.statement(5, 3, 2),
        make.step(5, 100),
        make.kernel(6, b"kern"),
        make.shape(7, 6),
        make.launches((7, 0), (7, 10)),
        make.record(lib.KDBT_CLOCK, make.struct("clock", ns=9000), ticks=9000),
        make.launches((7, 0), (7, 1), (7, 2), open_run=True),
    )


def error(path: Path) -> str:
    with pytest.raises(KdbtoolError) as caught:
        read_trace(path)
    assert caught.value.exit_code == 2
    assert "\n" not in caught.value.line()
    return caught.value.line()


# -- good


def test_one_of_everything(path: Path) -> None:
    trace = read(path, whole())
    assert trace.notes == []
    assert (trace.facts.pid, trace.facts.host, trace.facts.exe, trace.facts.role) == (
        100,
        "node",
        "python3",
        "host",
    )
    assert trace.facts.miopen_version == "3.4.0"
    (lookup,) = trace.lookups
    assert (lookup.name, lookup.args, lookup.hit) == (b"k.cl.o", b" -DA=1  -mcpu=gfx1030", True)
    assert lookup.databases == ("/user.ukdb", "/system.kdb")
    assert lookup.time_ns == 1_000_000_003_000
    assert len(trace.launches) == 5
    assert trace.launches.by_kernel() == {"kern": 5}
    assert [x.time_ns - 1_000_000_000_000 for x in trace.launches] == [3000, 3160, 3000, 3016, 3048]


def test_clock_of_a_tick_counter(path: Path) -> None:
    """Two gigahertz, by the clock records."""
    clock = make.record(lib.KDBT_CLOCK, make.struct("clock", ns=1_000_001_000), ticks=2_000_001_000)
    head = make.header(clock=lib.KDBT_CLOCK_TSC, load_ticks=1000, load_ns=1000)
    trace = read(path, head, make.block(clock, *(USER, K), make.statement(4, 3, 1, ticks=1_000_001_000)))
    assert trace.lookups[0].time_ns == pytest.approx(1_000_000_000_000 + 500_001_000, abs=2000)


def test_dictionary_of_another_thread(path: Path) -> None:
    """What a thread names may stand in a later block of another one."""
    asked = make.block(make.statement(4, 3, 1), make.step(4, 101), thread=2)
    trace = read(path, make.header(), asked, make.block(USER, K, thread=1))
    assert [x.hit for x in trace.lookups] == [False]
    assert trace.notes == []


def test_blocks_of_a_thread_by_sequence(path: Path) -> None:
    late, early = make.statement(5, 3, 2), make.statement(4, 3, 1)
    late, early = late + make.step(5, 100), early + make.step(4, 101)
    trace = read(
        path, make.header(), make.block(late, sequence=1), make.block(USER, SYSTEM, K, early, sequence=0)
    )
    (lookup,) = trace.lookups
    assert (lookup.hit, lookup.databases) == (True, ("/user.ukdb", "/system.kdb"))


@pytest.mark.parametrize(
    ("steps", "hits"),
    [
        ([(1, 101), (2, 101)], [False]),
        ([(1, 101), (2, 100)], [True]),
        ([(1, 100), (2, 101)], [True, False]),  # a row ends a lookup
        ([(1, 101), (1, 101)], [False, False]),  # an answer ends a database's part
        ([(1, 5), (1, 101), (2, 101)], [False]),  # busy, and tried again
        ([(1, 11)], [None]),
        ([(1, None)], [None]),
        ([(1, 101), (2, None)], [None]),
    ],
)
def test_what_is_one_lookup(path: Path, steps: list[tuple[int, int | None]], hits: list[bool | None]) -> None:
    records = [USER, SYSTEM, K]
    for i, (place, result) in enumerate(steps, 10):
        records.append(make.statement(i, 3, place))
        if result is not None:
            records.append(make.step(i, result))
    assert [x.hit for x in read(path, make.header(), make.block(*records)).lookups] == hits


def test_threads_do_not_share_a_lookup(path: Path) -> None:
    a = make.block(USER, SYSTEM, K, make.statement(4, 3, 1), make.step(4, 101), thread=1)
    b = make.block(make.statement(5, 3, 2), make.step(5, 100), thread=2)
    assert [(x.thread, x.hit) for x in read(path, make.header(), a, b).lookups] == [(1, False), (2, True)]


def test_grid_in_work_groups(path: Path) -> None:
    shape = make.shape(7, 6, form=lib.KDBT_LAUNCH_EXT, grid=[1000, 3, 1], block=[256, 2, 0])
    trace = read(path, make.header(), make.block(make.kernel(6, b"k"), shape, make.launches((7, 0))))
    assert [x.grid for x in trace.launches] == [(4, 2, 1)]


# -- newer, damaged, cut


def test_unknown_type_is_skipped_and_counted(path: Path) -> None:
    """A record of a newer recorder."""
    trace = read(
        path, make.header(), make.block(USER, make.record(999, b"future"), K, make.statement(4, 3, 1))
    )
    assert trace.notes == ["1 record of an unknown type"]
    assert len(trace.lookups) == 1


def test_one_damaged_record(path: Path) -> None:
    bad = bytearray(make.key(9, b"other.o", b"args"))
    bad[-6] ^= 1
    trace = read(path, make.header(), make.block(USER, bytes(bad), K, make.statement(4, 3, 1)))
    assert trace.notes == ["1 damaged record"]
    assert [x.name for x in trace.lookups] == [b"k.cl.o"]


def test_record_that_names_a_lost_one(path: Path) -> None:
    trace = read(
        path, make.header(), make.block(make.statement(4, 3, 1), make.step(8, 100), make.launches((7, 0)))
    )
    assert trace.notes == ["3 records that name a lost one"]
    assert (trace.lookups, trace.launches.by_kernel()) == ([], {"": 1})


@pytest.mark.parametrize("name_bytes", [0, 7, 1 << 31, (1 << 32) - 1])
def test_pair_that_lies_about_its_lengths(path: Path, name_bytes: int) -> None:
    lie = make.struct("pair", name_bytes=name_bytes, value_bytes=1) + b"ab"
    trace = read(path, make.header(), make.block(make.record(lib.KDBT_KEY, lie, id=3)))
    assert trace.notes == ["1 damaged record"]


@pytest.mark.parametrize("committed", [1, 23, 1 << 31, (1 << 32) - 1])
def test_block_that_lies_about_what_is_committed(path: Path, committed: int) -> None:
    assert read(path, make.header(), make.block(USER, K, committed=committed)).notes != []


def test_place_claimed_and_never_begun(path: Path) -> None:
    """Killed between claiming a block and writing its header."""
    after = make.block(USER, K, make.statement(4, 3, 1), thread=2)
    trace = read(path, make.header(), bytes(3 * make.ALIGN), after)
    assert (len(trace.lookups), trace.notes) == (1, [])


def test_damaged_block_header(path: Path) -> None:
    bad = bytearray(make.block(K))
    bad[5] ^= 0x40
    trace = read(path, make.header(), bytes(bad), make.block(USER, K, make.statement(4, 3, 1), thread=2))
    assert (len(trace.lookups), trace.notes) == (1, ["1 damaged record"])


def test_case_28_cut_in_the_last_record(path: Path) -> None:
    data = make.header() + make.block(USER, K, make.statement(4, 3, 1), make.step(4, 101))
    trace = read(path, data[: data.rindex(make.step(4, 101)) + 20])
    assert trace.notes == ["1 truncated record"]
    assert [x.hit for x in trace.lookups] == [None]


def test_cut_at_every_byte(path: Path) -> None:
    """No valid header: an error. Else: what is whole is read, and nothing more; never an exception."""
    data = whole()
    size = ffi.sizeof("struct kdbt_header")
    full = read(path, data)
    before = -1
    with path.open("r+b") as file:
        for cut in range(len(data) - 1, -1, -1):
            file.truncate(cut)
            if cut < size:
                assert "not a trace" in error(path)
                continue
            trace = read_trace(path)
            assert set(trace.notes) <= {"1 truncated record"}, (cut, trace.notes)
            if cut < int(lib.KDBT_HEADER_BYTES):
                assert trace.notes
            now = len(trace.launches)
            assert before == -1 or now <= before
            assert now <= len(full.launches)
            before = now


def test_bit_flips_never_trace_back(path: Path) -> None:
    data = whole()
    used = len(data.rstrip(b"\0"))
    random.seed(2)
    for _ in range(3000):
        bad = bytearray(data)
        for _ in range(random.choice((1, 1, 2, 8))):
            bad[random.randrange(used)] ^= 1 << random.randrange(8)
        path.write_bytes(bad)
        try:
            trace = read_trace(path)
        except KdbtoolError as caught:
            assert "\n" not in caught.line()
        else:
            list(trace.launches)
            trace.launches.by_kernel()


@settings(max_examples=200, deadline=None)
@given(tail=st.binary(max_size=300), at=st.integers(0, 400))
def test_any_bytes_after_a_header(tmp_path_factory: pytest.TempPathFactory, tail: bytes, at: int) -> None:
    path = tmp_path_factory.mktemp("any") / "x.kdbtrace"
    body = bytearray(whole()[int(lib.KDBT_HEADER_BYTES) :])
    body[at : at + len(tail)] = tail
    trace = read(path, make.header(), bytes(body))
    list(trace.launches)


# -- no trace


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "shorter than a header"),
        (b"KDB", "shorter than a header"),
        (make.header()[:100], "shorter than a header"),
        (b"SQLite format 3\0" + bytes(5000), "no KDBTRACE"),
        (bytes(5000), "no KDBTRACE"),
        (make.header(version=2), "version 2"),
        (make.header(byte_order=0x04030201), "other byte order"),
        (make.header(header_check=1), "damaged trace header"),
        (make.header(header_bytes=8), "damaged trace header"),
    ],
)
def test_no_valid_header(path: Path, content: bytes, why: str) -> None:
    path.write_bytes(content)
    assert why in error(path)


def test_not_a_file(tmp_path: Path) -> None:
    error(tmp_path)
    error(tmp_path / "absent")
    os.mkfifo(tmp_path / "fifo")
    os.truncate(os.open(tmp_path / "sparse", os.O_RDWR | os.O_CREAT), 1 << 40)
    assert "too many" in error(tmp_path / "sparse")


def test_fifo_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert "not a regular file" in error(tmp_path / "fifo")


def test_find_traces(tmp_path: Path) -> None:
    for name in ("b.kdbtrace", "a.kdbtrace", "c.txt"):
        (tmp_path / name).touch()
    assert [p.name for p in find_traces([tmp_path, tmp_path / "a.kdbtrace"])] == ["a.kdbtrace", "b.kdbtrace"]
    assert [p.name for p in find_traces([tmp_path / "c.txt"])] == ["c.txt"]
    with pytest.raises(KdbtoolError):
        find_traces([tmp_path / "absent"])


# -- one definition


def test_crc_is_zlibs() -> None:
    random.seed(1)
    for n in (*range(400), 1000, 4097):  # from 128 on another way, where the processor has it
        data = random.randbytes(n)
        assert lib.kdbt_crc32(0, data, n) == zlib.crc32(data)
        assert lib.kdbt_crc32(lib.kdbt_crc32(0, data, n // 3), data[n // 3 :], n - n // 3) == zlib.crc32(data)


def test_a_launch_is_eight_bytes() -> None:
    assert ffi.sizeof("struct kdbt_launch") == 8
    assert sys.byteorder == "little" or lib.KDBT_BYTE_ORDER == 0x01020304
