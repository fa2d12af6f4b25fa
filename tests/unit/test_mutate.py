"""The judge of readers fails on what it is there to find, and only on that."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.mutate import BadReader, Tally, mutations, survives

from kdbtool.errors import KdbtoolError

TEXT = b"# list\nconv.cpp.o\t -DN=1 -mcpu=gfx1030\nx=2,3\n"
BINARY = bytes(range(256)) * 8


def hang(path: Path) -> None:
    time.sleep(60)


def trace(path: Path) -> None:
    raise IndexError("list index out of range")


def blow_up(path: Path) -> None:
    bytearray(os.urandom(1 << 20) * 80)


def devour(path: Path) -> None:
    bytearray(64 << 30)


def crash(path: Path) -> None:
    os.abort()


def quit_early(path: Path) -> None:
    os._exit(0)


def two_lines(path: Path) -> None:
    raise ValueError("one\ntwo")


@pytest.mark.parametrize(
    "reader, said",
    [
        (hang, "still at work after 0.5 s"),
        (trace, "IndexError"),
        (blow_up, "memory grew by"),
        (devour, "MemoryError"),
        (crash, "killed by SIGABRT"),
        (two_lines, "not one line"),
    ],
)
def test_a_bad_reader_is_named_with_the_input_that_did_it(
    reader: Callable[[Path], None], said: str, tmp_path: Path
) -> None:
    def bad_on_third(path: Path) -> None:
        if path.read_bytes() == b"third":
            reader(path)

    good = survives(bad_on_third, [b"first", b"second"], tmp_path, ".bin")
    assert good == Tally(accepted=2, refused=0)
    with pytest.raises(BadReader) as caught:
        survives(
            bad_on_third,
            [b"first", b"second", b"third", b"fourth"],
            tmp_path,
            ".bin",
            errors=(KdbtoolError, ValueError),
            seconds=0.5,
            memory=64 << 20,
        )
    assert said in str(caught.value)
    assert str(caught.value).startswith("input 2: ")
    assert (tmp_path / "bad-2.bin").read_bytes() == b"third"


def test_where_a_hang_hangs_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadReader, match="in hang"):
        survives(hang, [b"x"], tmp_path, seconds=0.3)


def test_a_reader_that_ends_the_process_is_no_success(tmp_path: Path) -> None:
    with pytest.raises(BadReader, match="input 0"):
        survives(quit_early, [b"x", b"y"], tmp_path)


def test_declared_errors_are_counted_and_undeclared_ones_fail(tmp_path: Path) -> None:
    def refuse(path: Path) -> None:
        if path.read_bytes() != b"good":
            raise KdbtoolError("bad", where=path)

    assert survives(refuse, [b"good", b"bad", b"bad"], tmp_path) == Tally(1, 2)
    with pytest.raises(BadReader, match="KdbtoolError"):
        survives(refuse, [b"bad"], tmp_path, errors=(ValueError,))


@pytest.mark.parametrize("data", [TEXT, BINARY, b"x", b"\n"])
def test_the_same_seed_gives_the_same_inputs(data: bytes) -> None:
    def digest(seed: int) -> str:
        state = hashlib.sha256()
        for mutant in mutations(data, 200, seed):
            state.update(len(mutant).to_bytes(8, "big") + mutant)
        return state.hexdigest()

    assert digest(1) == digest(1) != digest(2)


def test_every_kind_of_damage_occurs() -> None:
    texts = list(mutations(TEXT, 4000, 3))
    binaries = list(mutations(BINARY, 4000, 3))
    for mutants, data in ((texts, TEXT), (binaries, BINARY)):
        assert sum(m != data for m in mutants) > 3800
        assert any(len(m) < len(data) // 2 for m in mutants)
        assert any(b"\x91" * 5000 in m for m in mutants)
        assert max(map(len, mutants)) < 2_000_000
    assert any(b"\xff" * 8 in m for m in binaries)
    assert any(b"9" * 5000 in m for m in texts)
    assert any(m.count(b"conv.cpp.o\t -DN=1 -mcpu=gfx1030\n") > 1000 for m in texts)
    assert any(b"\0" in m for m in texts)
