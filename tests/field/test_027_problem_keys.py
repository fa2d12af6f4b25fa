"""027 (rocm-libraries#11065): problem keys come back byte for byte; impossible ones are refused.

15 fields 2-D with one layout, 17 with three, 17 and 19 3-D; groups; fields counted at `-`.
"""

from __future__ import annotations

import pytest

from kdbtool.miopen.problems import format_problem, is_problem, parse_problem

REPORTED = "6-256-256-1x1-512-256-256-128-0x0-1x1-1x1-0-NCHW-FP32-W"
KEYS = {
    REPORTED: 15,
    "64-56-56-3x3-64-56-56-32-1x1-1x1-1x1-0-NCHW-FP16-F_g32": 15,
    "64-56-56-1x1-64-56-56-32-0x0-1x1-1x1-0-NHWC-NCHW-NHWC-FP16-F": 17,
    "3-16-112-112-3x7x7-64-16-56-56-8-1x3x3-1x2x2-1x1x1-0-NCDHW-FP32-F": 17,
    "64-8-56-56-1x1x1-64-8-56-56-32-0x0x0-1x1x1-1x1x1-0-NDHWC-NCDHW-NDHWC-BF16-B_g2": 19,
    "64-56-56-1x1-64-56-56-32-0x0-1x1-1x1-0-NCHWc4-CHWNc4-NCHWc4-INT8x4-F": 17,
}


@pytest.mark.parametrize(("key", "fields"), KEYS.items())
def test_027_a_key_comes_back(key: str, fields: int) -> None:
    assert len(key.split("-")) == fields
    assert format_problem(parse_problem(key)) == key


def test_027_the_reported_key_is_read_rightly() -> None:
    problem = parse_problem(REPORTED)
    assert (problem.y.channels, problem.x.channels, problem.batch) == (6, 512, 128)
    assert problem.x.size == problem.y.size == (256, 256) and problem.groups == 1


@pytest.mark.parametrize(
    "key",
    [
        REPORTED.replace("6-256", "6-256-256", 1),  # a depth on one side only
        REPORTED + "_g7",  # 6 channels
        REPORTED.replace("NCHW", "NDHWC"),
        REPORTED.replace("-W", "-WW"),
        REPORTED + "_g32_g32",
    ],
)
def test_027_an_impossible_key_is_refused(key: str) -> None:
    assert not is_problem(key)
