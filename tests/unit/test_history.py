"""A key over MIOpen's releases: where its source is, what it became, where it is live."""

from __future__ import annotations

import itertools
import lzma
from collections import Counter
from pathlib import Path

import pytest

from kdbtool.kdb.identify import identify
from kdbtool.kdb.reader import KdbReader
from kdbtool.miopen.history import (
    epoch_of,
    listed,
    live_in,
    releases_with,
    renamed,
    renames,
    successors,
)
from kdbtool.miopen.versions import header_lists, kernel_lists, known_releases, releases, resolve
from kdbtool.reasons import Reason

E1 = (
    b" -DMIOPEN_USE_FP16=0 -DMIOPEN_USE_FP32=1 -DMIOPEN_USE_INT8=0 -DMIOPEN_USE_INT8x4=0"
    b" -DMIOPEN_USE_BFP16=0 -DMIOPEN_USE_INT32=0 -DMIOPEN_USE_RNE_BFLOAT16=1"
)
E4 = (
    b" -DMIOPEN_USE_FP16=0 -DMIOPEN_USE_FP16x4=0 -DMIOPEN_USE_FP16x8=0 -DMIOPEN_USE_FP32=1"
    b" -DMIOPEN_USE_INT8=0 -DMIOPEN_USE_BFP16=0 -DMIOPEN_USE_INT32=0 -DMIOPEN_USE_RNE_BFLOAT16=1"
    b" -DMIOPEN_FP8_IEEE_EXPONENT_BIAS=0 -DMIOPEN_FP8_CLIPPING=1"
)
E3 = E4.replace(b"BIAS=0", b"BIAS=1")
E2 = E1.replace(b"_FP16=0", b"_FP16=0 -DMIOPEN_USE_FP16x4=0 -DMIOPEN_USE_FP16x8=0")
CPU = b" -mcpu=gfx1030"


def test_where_a_source_is() -> None:
    assert releases_with("naive_conv.cpp") == known_releases()
    assert releases_with("MIOpenCheckNumerics.cl")[-1] == "5.7"
    assert releases_with("MIOpenCheckNumerics.cpp")[0] == "6.0"
    assert releases_with("no_such.cpp") == [] == releases_with("")


@pytest.mark.parametrize(
    ("source", "release", "arch", "want"),
    [
        ("Conv_Winograd_v21_1_3_f3x2_fp32_stride1_group.s", "5.5", None, None),  # it is still there
        (
            "Conv_Winograd_v21_1_3_f3x2_fp32_stride1_group.s",
            "5.6",
            "gfx906",
            "Conv_Winograd_v21_1_3_fp32_f3x2_stride1.s",
        ),
        (
            "Conv_Winograd_v21_1_3_f3x2_fp32_stride1_group.s",
            "6.2",
            "gfx1030",
            "Conv_Winograd_v30_3_1_fp32_f3x2_stride1.s",
        ),
        ("Conv_Winograd_v21_1_3_f3x2_fp32_stride1_group.s", "6.2", None, None),  # one of two
        ("Conv_Winograd_Fury_v1_1_1_fp16_fp16acc_f2x3_stride1.s", "6.2", "gfx1100", None),  # one of two
        ("MIOpenCheckNumerics.cl", "6.4.3", "gfx1030", "MIOpenCheckNumerics.cpp"),
        ("MIOpenPooling.cl", "6.4.3", None, None),
        ("MIOpenPooling.cl", "7.2.4", None, "MIOpenPooling.cpp"),
        ("static_kernel_gridwise_generic_reduction.cpp", "7.2", None, None),
        ("no_such.cl", "7.2", None, None),
    ],
)
def test_what_became_of_a_source(source: str, release: str, arch: str | None, want: str | None) -> None:
    assert renamed(source, resolve(release), arch) == want


def test_several_successors_are_all_named() -> None:
    found = successors("Conv_Winograd_Fury_v1_1_1_fp16_fp16acc_f2x3_stride1.s", resolve("6.2"))
    assert [name.split("_")[-2] for name in found] == ["c16", "c32"]


def test_every_source_that_a_release_lost_is_accounted_for() -> None:
    """The data name each of them, at the right release, and only successors that this release has."""
    lists, told = kernel_lists(), {(r.release, r.old): r for r in renames()}
    order = [r for r in known_releases() if r != "develop"]
    lost = set()
    for before, after in itertools.pairwise(order):
        gone = lists[releases()[before].kernels] - lists[releases()[after].kernels]
        lost |= {(after, source) for source in gone if listed(source, after)}
    assert set(told) == lost
    for step in renames():
        assert step.new == "-" or step.new in lists[releases()[step.release].kernels]


def test_the_epoch_of_arguments() -> None:
    assert [epoch_of(e + CPU) for e in (E1, E2, E3, E4)] == ["E1", "E2", "E3", "E4"]
    assert epoch_of(E4 + E4 + CPU) == "E4"
    assert epoch_of(E4 + b" -DMIOPEN_USE_FP64=1" + CPU) == "E4"
    for mixed in (
        b"",
        CPU,
        b" -DMIOPEN_USE_FP16=0 -DMIOPEN_USE_FP32=1" + CPU,
        E3 + E4 + CPU,
        E4.replace(b"RNE_BFLOAT16=1", b"RNE_BFLOAT16=0"),
        E4.replace(b"FP32=1", b"FP32=7"),
    ):
        assert epoch_of(mixed) is None


def test_where_a_key_is_live() -> None:
    found = live_in(b"naive_conv.cpp.o", E4 + CPU, "gfx1030")
    assert [r for r, reasons in found.items() if not reasons] == ["6.3", "6.4", "7.2", "develop"]
    assert found["6.2"] == [Reason.EPOCH]
    dead = live_in(b"naive_conv.cpp", E4, "gfx1030")
    assert dead["6.4"] == [Reason.NO_DOT_O, Reason.NO_MCPU]


def test_debians_lists_say_nothing_of_assembly() -> None:
    found = live_in(b"conv3x3.s.o", b" -Wa,-defsym,x=1" + CPU, "gfx1030")
    assert set(map(tuple, found.values())) == {()}
    assert not listed("conv3x3.s", "6.4") and listed("conv3x3.s", "6.3") and listed("naive_conv.cpp", "6.4")
    # Judged against that very build it is dead: Debian's has no assembly.
    from kdbtool.miopen.liveness import judge

    assert judge(b"conv3x3.s.o", CPU, "gfx1030", resolve("6.4.3")) == [Reason.NO_SOURCE]


def test_include_sets_are_those_of_the_reference() -> None:
    sizes = {name: len(names) for name, names in header_lists().items()}
    assert (sizes["5.0"], sizes["5.7"], sizes["6.0"], sizes["debian-6.4.3"]) == (254, 282, 286, 171)
    assert "stride_array.hpp" in resolve("6.2").headers


def test_amds_database_and_the_recorded_keys_are_of_one_epoch(shared: Path) -> None:
    with KdbReader(identify(shared / "data" / "gfx942.kdb")) as reader:  # assembly has no such list
        assert Counter(epoch_of(row.args) for row in reader) == {None: 321}
    with lzma.open(shared / "data" / "keys.gfx1030-sample.tsv.xz") as file:
        epochs = Counter(epoch_of(line.rstrip(b"\n").partition(b"\t")[2]) for line in file)
    assert set(epochs) == {"E4", None} and epochs["E4"] == 19969
