"""Problem keys: printed back byte for byte, taken apart rightly, and nothing else taken for one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.mutate import mutations

from kdbtool.errors import KdbtoolError
from kdbtool.miopen import finddb
from kdbtool.miopen.problems import (
    DATA_TYPES,
    Problem,
    format_problem,
    is_problem,
    parse_problem,
    problem_or_none,
)

GOOD = [
    "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP32-F",
    "3-224-224-7x7-64-112-112-16--1x3-2x2-1x1-1-NHWC-BF16-B",
    "16-8-14-14-3x3x3-32-8-14-14-4-1x1x1-1x1x1-1x1x1-0-NCDHW-FP16-W_g16",
    "4-9-9-3x3-8-7-7-1-0x0-1x1-1x1-0-NCHW-INT8INT8INT32-F",
    "4-9-9-3x3-8-7-7-1-0x0-1x1-1x1-0-NHWC-NCHW-NHWC-FP16-F_g2_ciFP8_cwFP8_coBF8",
    "4-9-9-3x3-8-7-7-1-0x0-1x1-1x1-0-NCHWc4-CHWNc4-NCHWc4-INT8-F",
    "4-9-9-3x3-8-7-7-1-0x0-1x1-1x1-0-NCHW-INT8x4INT8x4INT32-F",
    "4-9-9-3x3-8-7-7-1-0x0-1x1-1x1-0-NCHWc-CHWNc-NCHWc-INT8x4-F",
    *(f"4-9-9-3x3-8-7-7-1-0x0-1x1-1x1-0-NCHW-{name}-W" for name in DATA_TYPES),
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
        GOOD[0].replace("NCHW", "NCDHW"),  # axes of another dimension
        GOOD[0].replace("NCHW", "NCHH"),
        GOOD[0].replace("NCHW", "NCHW-NCHW-NCHW"),  # written as one
        GOOD[0].replace("NCHW", "NHWC-NCHW"),
        GOOD[0].replace("FP32", "FP33"),
        GOOD[0].replace("FP32", "FP32FP32FP32"),  # written as one
        GOOD[0].replace("FP32", "FP32FP16"),
        GOOD[0].replace("64-56", "0-56", 1),
        GOOD[0].replace("-32-0x0", "-0-0x0"),
        GOOD[0].replace("-1x1-1x1-0-", "-0x1-1x1-0-"),  # a stride of 0
        GOOD[0].replace("-0-NCHW", "-2-NCHW"),
        GOOD[0] + "_g1",
        GOOD[0] + "_g3",  # 64 channels in 3 groups
        GOOD[0] + "_ciFP8_g2",  # another order
        GOOD[0] + "_ciFP8_ciFP8",
        GOOD[0] + "_cxFP8",
    ],
)
def test_what_is_no_problem_key_is_refused(key: str) -> None:
    assert not is_problem(key)
    with pytest.raises(KdbtoolError) as caught:
        parse_problem(key)
    assert caught.value.exit_code == 2 and "\n" not in caught.value.line()


def test_x_and_y_change_sides_with_the_direction() -> None:
    forward = parse_problem("64-56-56-3x3-128-28-28-32-1x1-2x2-1x1-0-NHWC-NCHW-NCHW-INT8INT8INT32-F")
    assert forward.layouts == ("NHWC", "NCHW", "NCHW")
    assert forward.data_types == ("INT8", "INT8", "INT32")
    assert forward.x == (32, 64, (56, 56), "NHWC", "INT8")
    assert forward.y == (32, 128, (28, 28), "NCHW", "INT32")
    backward = parse_problem("128-28-28-3x3-64-56-56-32-1x1-2x2-1x1-0-NCHW-FP32-B")
    assert backward.x == (32, 64, (56, 56), "NCHW", "FP32")
    assert backward.y == (32, 128, (28, 28), "NCHW", "FP32")
    assert backward.layouts == ("NCHW",) * 3 and backward.data_types == ("FP32",) * 3


def test_cast_types_are_of_their_tensor() -> None:
    assert parse_problem(GOOD[4]).casts == ("FP8", "FP8", "BF8")
    assert parse_problem(GOOD[0] + "_cwFP8").casts == (None, "FP8", None)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Any problem that a key can say."""
    dimensions = draw(st.sampled_from((2, 3)))
    count = st.integers(1, 99999)

    def sizes(values: st.SearchStrategy[int]) -> tuple[int, ...]:
        return tuple(draw(st.lists(values, min_size=dimensions, max_size=dimensions)))

    axes = "NCHW" if dimensions == 2 else "NCDHW"
    names = st.permutations(axes).map("".join).flatmap(lambda n: st.sampled_from((n, n + "c4", n + "c8")))
    layout = draw(names | st.tuples(names, names, names).map("-".join))
    if layout == "-".join([axes] * 3):
        layout = axes
    types = draw(st.tuples(*[st.sampled_from(DATA_TYPES)] * 3))
    groups = draw(st.sampled_from((1, 2, 32)))
    suffixes = [f"g{groups}"] if groups != 1 else []
    suffixes += [
        name + draw(st.sampled_from(DATA_TYPES)) for name in ("ci", "cw", "co") if draw(st.booleans())
    ]
    return Problem(
        groups * draw(count), sizes(count), sizes(count), groups * draw(count), sizes(count), draw(count),
        sizes(st.integers(-9, 99)), sizes(count), sizes(count), draw(st.integers(0, 1)), layout,
        types[0] if len(set(types)) == 1 else "".join(types), draw(st.sampled_from("FBW")), tuple(suffixes),
    )  # fmt: skip


@given(problems())
def test_any_problem_comes_back(problem: Problem) -> None:
    assert parse_problem(format_problem(problem)) == problem


def test_a_corrupted_key_is_refused_or_comes_back(shared: Path) -> None:
    source = shared / "data" / "gfx1030_36.HIP.fdb.txt.bz2"
    keys = [record.key for record, _ in zip(finddb.read(source), range(200), strict=False)]
    taken = 0
    for number, key in enumerate(keys):
        for data in mutations(key.encode() + b"\n", 30, number):
            text = data.decode("ascii", "surrogateescape").removesuffix("\n")
            problem = problem_or_none(text)
            taken += problem is not None
            assert problem is None or format_problem(problem) == text
    assert 0 < taken < 6000
