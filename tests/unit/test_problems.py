"""Problem keys: printed back byte for byte, and nothing else taken for one."""

from __future__ import annotations

import bz2
from pathlib import Path

import pytest

from kdbtool.errors import KdbtoolError
from kdbtool.miopen.problems import format_problem, is_problem, parse_problem

GOOD = [
    "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP32-F",
    "3-224-224-7x7-64-112-112-16--1x3-2x2-1x1-1-NHWC-BF16-B",
    "16-8-14-14-3x3x3-32-8-14-14-4-1x1x1-1x1x1-1x1x1-0-NCDHW-FP16-W_g16",
    "4-9-9-3x3-8-7-7-1-0x0-1x1-1x1-0-NCHW-INT8INT8INT32-F",
    "4-9-9-3x3-8-7-7-1-0x0-1x1-1x1-0-NHWC-NCHW-NHWC-FP16-F_g2_ciFP8_cwFP8_coBF8",
    "4-9-9-3x3-8-7-7-1-0x0-1x1-1x1-0-NCHWc4-CHWNc4-NCHWc4-INT8-F",
]


@pytest.mark.parametrize("key", GOOD)
def test_a_key_is_printed_back_byte_for_byte(key: str) -> None:
    assert format_problem(parse_problem(key)) == key


def test_the_parts_have_their_places() -> None:
    problem = parse_problem(GOOD[2])
    assert (problem.in_channels, problem.in_size, problem.filter_size) == (16, (8, 14, 14), (3, 3, 3))
    assert (problem.batch, problem.layout, problem.data_type, problem.direction) == (4, "NCDHW", "FP16", "W")
    assert (problem.groups, problem.dimensions) == (16, 3)
    assert parse_problem(GOOD[1]).pads == (-1, 3)
    assert parse_problem(GOOD[4]).groups == 2


@pytest.mark.parametrize(
    "key",
    [
        "",
        "x",
        GOOD[0][:-2],
        GOOD[0] + "_",
        GOOD[0] + "_g",
        GOOD[0] + "\n",
        " " + GOOD[0],
        GOOD[0].replace("-F", "-X"),
        GOOD[0].replace("64-", "064-", 1),  # would not print back
        GOOD[0].replace("0x0", "-0x0"),
        GOOD[0].replace("64", "٦٤"),  # digits, but not ASCII
        GOOD[0].replace("1x1-128", "1x1x1-128"),  # a 3-D filter in a 2-D problem
        GOOD[0].replace("64", "9" * 11),
        "64-56-56" + "-1" * 500,
    ],
)
def test_what_is_no_problem_key_is_refused(key: str) -> None:
    assert not is_problem(key)
    with pytest.raises(KdbtoolError) as caught:
        parse_problem(key)
    assert caught.value.exit_code == 2 and "\n" not in caught.value.line()


@pytest.mark.parametrize("name", ["gfx1030_36", "gfx906_60", "gfx942130"])
def test_every_key_of_amds_find_dbs_comes_back(shared: Path, name: str) -> None:
    text = bz2.decompress((shared / "data" / f"{name}.HIP.fdb.txt.bz2").read_bytes()).decode("ascii")
    keys = [line.partition("=")[0] for line in text.splitlines() if line]
    assert len(keys) >= 9600
    assert [key for key in keys if format_problem(parse_problem(key)) != key] == []
