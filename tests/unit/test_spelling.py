"""The other spelling of a key: there where MIOpen has two, never where it has one."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from kdbtool.manifest.choose import Choice, choose
from kdbtool.manifest.collect import Collected
from kdbtool.manifest.model import Key
from kdbtool.miopen.spelling import other_spelling
from kdbtool.miopen.versions import resolve

LIST = (
    b" -DMIOPEN_USE_FP16=0 -DMIOPEN_USE_FP16x4=0 -DMIOPEN_USE_FP16x8=0 -DMIOPEN_USE_FP32=1"
    b" -DMIOPEN_USE_INT8=0 -DMIOPEN_USE_BFP16=0 -DMIOPEN_USE_INT32=0 -DMIOPEN_USE_RNE_BFLOAT16=1"
    b" -DMIOPEN_FP8_IEEE_EXPONENT_BIAS=0 -DMIOPEN_FP8_CLIPPING=1"
)
CPU = b" -mcpu=gfx1030"
NAIVE = b"naive_conv.cpp.o"


def test_once_and_twice_are_each_other() -> None:
    assert other_spelling(NAIVE, LIST + CPU) == LIST * 2 + CPU
    assert other_spelling(NAIVE, LIST * 2 + CPU) == LIST + CPU


def test_a_key_with_two_lists_apart_has_no_other_spelling() -> None:
    """Doubling the first one would not lead back: no solver writes such a key."""
    assert other_spelling(NAIVE, LIST * 2 + b" -DX" + LIST + CPU) is None
    assert other_spelling(NAIVE, LIST + b" -DX" + LIST + CPU) is None


def test_what_stands_around_the_list_stays() -> None:
    name = b"MIOpenConvDirUni.cl.o"
    once = b" -DMLO_HW_WAVE_SZ=64" + LIST + b" -DMLO_CONV_BIAS=0" + CPU
    assert other_spelling(name, once) == b" -DMLO_HW_WAVE_SZ=64" + LIST * 2 + b" -DMLO_CONV_BIAS=0" + CPU


@pytest.mark.parametrize(
    ("name", "args"),
    [
        (b"MIOpenIm2d2Col.cl.o", LIST + CPU),  # has a list of its own, never a second one
        (b"naive_conv.cpp", LIST + CPU),  # no .o
        (NAIVE, LIST),  # no -mcpu
        (NAIVE, LIST + b" -mcpu=gfx90a:xnack-"),
        (NAIVE, CPU),
        (NAIVE, LIST * 3 + CPU),
        (NAIVE, LIST + b" -DA=1" + LIST + CPU),
        (NAIVE, b" -DMIOPEN_USE_FP16=0 -DMIOPEN_USE_FP32=1" + CPU),  # some defines, not the list
        (NAIVE, LIST[1:] + CPU),  # begins without its blank: joined, the two would be one token
        (b"../naive_conv.cpp.o", LIST + CPU),
        (b"", b""),
    ],
)
def test_a_key_that_has_no_other_spelling(name: bytes, args: bytes) -> None:
    assert other_spelling(name, args) is None


def test_every_recorded_key_comes_back(shared: Path) -> None:
    with lzma.open(shared / "data" / "keys.gfx1030-sample.tsv.xz") as file:
        keys = [line.rstrip(b"\n").split(b"\t", 1) for line in file]
    others = [(name, args, other) for name, args in keys if (other := other_spelling(name, args))]
    assert len(others) > 0.99 * len(keys)
    assert all(other_spelling(name, other) == args for name, args, other in others)


def _chosen(key: Key, choice: Choice) -> tuple[set[Key], int]:
    rows = Collected()
    rows.add(key, missed=False)
    kept, report = choose(rows, choice)
    return set(kept), report.added


def test_a_manifest_has_the_spelling_that_nobody_asked_for_yet() -> None:
    once, twice = (Key(NAIVE, LIST * n + CPU, "gfx1030") for n in (1, 2))
    assert _chosen(once, Choice(resolve("6.4.3"))) == ({once, twice}, 1)
    assert _chosen(twice, Choice(resolve("6.4.3"))) == ({once, twice}, 1)
    assert _chosen(once, Choice(resolve("6.4.3"), both_spellings=False)) == ({once}, 0)


def test_no_spelling_is_added_to_a_dead_key() -> None:
    dead = Key(NAIVE, LIST + CPU, "gfx906")
    assert _chosen(dead, Choice(resolve("6.4.3"))) == ({dead}, 0)
    epoch = Key(NAIVE, LIST + CPU, "gfx1030")
    assert _chosen(epoch, Choice(resolve("6.2.2"))) == ({epoch}, 0)
