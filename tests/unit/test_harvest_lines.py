"""A problem as the driver's line, and problems that have none."""

from __future__ import annotations

import pytest

from kdbtool.harvest.lines import Unspeakable, check, line
from kdbtool.miopen.problems import parse_problem

FORWARD = "64-56-58-1x3-128-56-58-32-0x1-1x2-3x1-0-NCHW-FP32-F"


def words(key: str, *rest: object) -> str:
    return line(7, 60, parse_problem(key), *rest)  # type: ignore[arg-type]


def test_a_forward_problem_gives_x_w_y_packed_with_their_types() -> None:
    assert words(FORWARD, "ids", [11, 85]) == (
        "7 60 F 4 1"
        " 1 -1 32 64 56 58 207872 3248 58 1"  # x
        " 1 -1 128 64 1 3 192 3 3 1"  # w
        " 1 -1 32 128 56 58 415744 3248 58 1"  # y
        " 0 1 1 2 3 1 ids 11 85"
    )


@pytest.mark.parametrize("way", ["B", "W"])
def test_backward_keys_hold_y_first(way: str) -> None:
    """The key of the gradient says the output side first: the line must say x first all the same."""
    key = f"128-28-28-3x3-64-56-56-2-1x1-2x2-1x1-0-NCHW-FP32-{way}"
    fields = words(key, "find").split()
    assert fields[2:5] == [way, "4", "1"]
    assert fields[5:11] == ["1", "-1", "2", "64", "56", "56"]  # x
    assert fields[15:21] == ["1", "-1", "128", "64", "3", "3"]  # w
    assert fields[25:31] == ["1", "-1", "2", "128", "28", "28"]  # y


def test_layouts_are_strides_and_groups_divide_the_weights() -> None:
    fields = words("64-8-8-3x3-32-8-8-2-1x1-1x1-1x1-0-NHWC-NHWC-NHWC-FP16-F_g4", "offered").split()
    assert fields[4] == "4"
    assert fields[5:15] == ["0", "-1", "2", "64", "8", "8", "4096", "1", "512", "64"]
    assert fields[15:25] == ["0", "-1", "32", "16", "3", "3", "144", "1", "48", "16"]


def test_three_dimensions_mixed_types_and_casts() -> None:
    key = "4-8-8-8-3x3x3-8-8-8-8-1-1x1x1-1x1x1-1x1x1-0-NCDHW-INT8INT8INT32-F"
    fields = words(key, "find").split()
    assert fields[3] == "5"
    assert (fields[5], fields[17], fields[29]) == ("3", "3", "2")
    cast = words("4-8-8-3x3-8-8-8-1-1x1-1x1-1x1-0-NCHW-FP16-B_ciFP8_cwBF8_coFP8", "find").split()
    assert (cast[6], cast[16], cast[26]) == ("7", "8", "7")


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-1-NCHW-FP32-F", "bias"),
        ("64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHWc4-CHWNc4-NCHWc4-INT8-F", "layout NCHWc4"),
        ("64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-INT8x4-F", "INT8x4"),
        ("64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-INT8x4INT8x4INT32-F", "INT8x4"),
        ("64-65536-65536-1x1-2-65536-65536-4-0x0-1x1-1x1-0-NCHW-FP32-F", "larger strides"),
        ("9999-1-1-999x999-9999-1-1-1-0x0-1x1-1x1-0-NCHW-FP32-F", "larger strides"),
    ],
)
def test_what_its_key_does_not_tell_cannot_be_asked_for(key: str, why: str) -> None:
    for call in (check, lambda problem: line(0, 0, problem, "find")):
        with pytest.raises(Unspeakable, match=why):
            call(parse_problem(key))
