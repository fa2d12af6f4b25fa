"""Traces that were made to hurt: too much work, or data that nobody recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import traces as make
from support.traces import read

from kdbtool.errors import KdbtoolError
from kdbtool.shim._trace import lib
from kdbtool.shim.trace import find_traces

KEY = make.key(1, b"a.cl.o", b" -DX=1") + make.database(2, b"/user.ukdb")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.kdbtrace"


@pytest.mark.parametrize("number", [1 << 31, (1 << 32) - 1, 5000])
def test_stop_error_beyond_an_int(path: Path, number: int) -> None:
    """No checksum covers the field: os.strerror overflowed."""
    assert read(path, make.header(stop_errno=number)).notes == [f"recording stopped: error {number}"]


def test_unanswered_statements_of_one_key_were_quadratic(path: Path) -> None:
    count = 60_000
    asked = b"".join(make.statement(10 + i, 1, 2) for i in range(count))
    assert len(read(path, make.header(), make.block(KEY, asked)).lookups) == 1


def test_steps_of_one_statement_were_quadratic(path: Path) -> None:
    count = 30_000
    steps = make.step(10, 5) * count + b"".join(make.statement(11 + i, 1, 2) for i in range(count))
    assert len(read(path, make.header(), make.block(KEY, make.statement(10, 1, 2), steps)).lookups) == 1


def test_problems_of_one_huge_key_were_quadratic(path: Path) -> None:
    huge = make.record(lib.KDBT_PROBLEM_KEY, b"1-" * 2_000_000 + b"F", id=3)
    call = make.record(lib.KDBT_PROBLEM, make.struct("problem", key=3, api=0, algorithm=-1))
    problems = read(path, make.header(), make.block(huge, call * 3000)).problems
    assert len(problems) == 3000
    assert {p.direction for p in problems} == {"F"}


def shapes() -> bytes:
    return make.kernel(5, b"k") + make.shape(6, 5)


def test_killed_between_the_check_and_the_length_of_a_run(path: Path) -> None:
    """It was taken for damage, and its launches were lost."""
    open_run = bytearray(make.launches((6, 0), (6, 1), open_run=True))
    closed = make.launches((6, 0), (6, 1))
    open_run[8:12] = closed[8:12]
    trace = read(path, make.header(), make.block(shapes(), bytes(open_run)))
    assert (len(trace.launches), trace.notes) == (2, [])
    open_run[8] ^= 1
    trace = read(path, make.header(), make.block(shapes(), bytes(open_run)))
    assert (len(trace.launches), trace.notes) == (0, ["1 damaged record"])


def test_killed_while_a_block_was_begun(path: Path) -> None:
    """Its magic is stored last. A block with content that has lost its magic is damage all the same."""
    begun = bytearray(make.block())
    begun[:4] = bytes(4)
    good = make.block(shapes(), make.launches((6, 0)), thread=2)
    trace = read(path, make.header(), bytes(begun), good)
    assert (len(trace.launches), trace.notes) == (1, [])
    lost = bytearray(make.block(shapes()))
    lost[:4] = bytes(4)
    assert read(path, make.header(), bytes(lost), good).notes == ["1 damaged record"]


def test_open_run_in_a_closed_block(path: Path) -> None:
    """Only the last record of a block that is still written to has no checksum."""
    closed = bytearray(make.block(shapes(), make.launches((6, 0), (6, 1), open_run=True)))
    assert len(read(path, make.header(), bytes(closed)).launches) == 2
    closed[36:40] = (1).to_bytes(4, "little")
    trace = read(path, make.header(), bytes(closed))
    assert (len(trace.launches), trace.notes) == (0, ["1 damaged record"])


def test_launches_out_of_the_inside_of_a_record(path: Path) -> None:
    """A damaged length leads into a payload, where the launch (13, 0) looks like an open run."""
    record = bytearray(make.launches(*[(13, 0)] * 50))
    record[4:8] = (56).to_bytes(4, "little")
    trace = read(path, make.header(), make.block(make.kernel(5, b"k"), make.shape(13, 5), bytes(record)))
    assert len(trace.launches) == 0
    assert trace.notes


def test_cut_between_two_blocks(path: Path) -> None:
    one, two = make.block(KEY, make.statement(4, 1, 2)), make.block(make.statement(5, 1, 2), thread=2)
    whole = len(make.header()) + len(one) + len(two)
    header = make.header(file_bytes=whole)
    assert read(path, header, one, two).notes == []
    assert read(path, header, one).notes == [f"cut: {whole - len(two)} of {whole} bytes are here"]


def test_names_that_are_lost_are_counted(path: Path) -> None:
    """A shape without its kernel, a kernel without its module, a statement without its file, a problem
    without its key or function."""
    problem = make.record(lib.KDBT_PROBLEM, make.struct("problem", key=50, api=0, algorithm=-1))
    records = [make.shape(6, 77), make.kernel(7, b"k", 88), make.shape(8, 7), make.launches((6, 0), (8, 0))]
    trace = read(path, make.header(), make.block(KEY, make.statement(4, 1, 99), problem, *records))
    assert trace.notes == ["4 records that name a lost one"]


def test_name_that_is_too_long_was_a_traceback(tmp_path: Path) -> None:
    for name in ("x" * 300, "x/" * 3000):
        with pytest.raises(KdbtoolError):
            find_traces([tmp_path / name])
