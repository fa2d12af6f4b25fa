"""Keys and rows of perf-dbs, and the find-db keys of the same problems.

A key has 24 fields, in this order and joined by `x` in the text form (`Visit` in
src/include/miopen/conv/problem_description.hpp, the same in tools/sqlite2txt/main.cpp). 2-D problems have
depth 1, and pad, stride and dilation 0 along it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kdbtool.miopen.problems import Problem, Sizes, is_layout, is_type

NUMBERS = tuple(
    """spatial_dim in_channels in_h in_w in_d fil_h fil_w fil_d out_channels batchsize pad_h pad_w pad_d
    conv_stride_h conv_stride_w conv_stride_d dilation_h dilation_w dilation_d bias group_count""".split()
)
TEXTS = ("layout", "data_type", "direction")

_NUMBER = r"(?:0|-?[1-9][0-9]{0,9})"
_KEY = re.compile(
    rf"({_NUMBER}(?:x{_NUMBER}){{20}})x([NCDHW]{{4,5}}(?:c[48]?)?)x([A-Z0-9x]{{3,18}})x([FBW])\Z"
)


class Config(NamedTuple):
    """A problem as perf-dbs know it: 21 numbers as in NUMBERS, then layout, type and direction."""

    numbers: tuple[int, ...]
    layout: str
    data_type: str
    direction: str

    def __str__(self) -> str:
        return "x".join(map(str, (*self.numbers, self.layout, self.data_type, self.direction)))


class PerfRecord(NamedTuple):
    """One row: `line` is the line of a text, the id of an SQLite row; `key` is the key as text has it."""

    line: int
    key: str
    config: Config | None  # None under a find-db key
    solver: str
    params: str


def parse_config(text: str) -> Config | None:
    """The fields of a text key, `str` of them is the text; None for any other text."""
    match = _KEY.match(text)
    if match is None or not is_type(match[3]):
        return None
    return Config(tuple(map(int, match[1].split("x"))), match[2], match[3], match[4])


def is_possible(config: Config) -> bool:
    """Whether some convolution has this key: 2-D and 3-D columns, sizes, layout, groups.

    AMD's own files have keys that none has (an in_h of -5 in gfx1030_36.db); they are kept, never asked for.
    """
    n = dict(zip(NUMBERS, config.numbers, strict=True))
    if n["spatial_dim"] not in (2, 3) or n["bias"] not in (0, 1):
        return False
    flat = n["spatial_dim"] == 2
    if flat and (n["in_d"], n["fil_d"], n["pad_d"], n["conv_stride_d"], n["dilation_d"]) != (1, 1, 0, 0, 0):
        return False
    axes = ("h", "w") if flat else ("h", "w", "d")
    sizes = [n[f"{name}_{axis}"] for name in ("in", "fil", "conv_stride", "dilation") for axis in axes]
    counts = [n["in_channels"], n["out_channels"], n["batchsize"], n["group_count"], *sizes]
    if min(counts) < 1 or n["in_channels"] % n["group_count"] or n["out_channels"] % n["group_count"]:
        return False
    return is_layout(config.layout, n["spatial_dim"])


def config_of(problem: Problem) -> Config:
    """The perf-db key of a problem. Output sizes and the layouts of the other tensors are not in it."""
    flat = problem.dimensions == 2

    def hwd(sizes: Sizes, none: int) -> Sizes:
        return (*sizes, none) if flat else (*sizes[1:], sizes[0])

    numbers = (
        problem.dimensions, problem.in_channels, *hwd(problem.in_size, 1), *hwd(problem.filter_size, 1),
        problem.out_channels, problem.batch, *hwd(problem.pads, 0), *hwd(problem.strides, 0),
        *hwd(problem.dilations, 0), problem.bias, problem.groups,
    )  # fmt: skip
    return Config(numbers, problem.layouts[0], problem.data_type, problem.direction)


def problem_of(config: Config) -> Problem | None:
    """The problem of a perf-db key, where it says enough: None for strided B and W, and impossible ones.

    Padding as given, not `same`; all tensors in the layout of the input side.
    """
    if not is_possible(config):
        return None
    n = dict(zip(NUMBERS, config.numbers, strict=True))
    axes = ("h", "w") if n["spatial_dim"] == 2 else ("d", "h", "w")

    def sizes(name: str) -> Sizes:
        return tuple(n[f"{name}_{axis}"] for axis in axes)

    inner, filters, pads = sizes("in"), sizes("fil"), sizes("pad")
    strides, dilations = sizes("conv_stride"), sizes("dilation")
    if config.direction != "F" and set(strides) != {1}:
        return None  # several sizes of x give this y
    spans = [d * (f - 1) - 2 * p for d, f, p in zip(dilations, filters, pads, strict=True)]
    if config.direction == "F":
        outer = tuple((i - r - 1) // s + 1 for i, r, s in zip(inner, spans, strides, strict=True))
    else:
        outer = tuple(i + r for i, r in zip(inner, spans, strict=True))
    if min(outer) < 1:
        return None
    layout = config.layout if config.layout in ("NCHW", "NCDHW") else "-".join([config.layout] * 3)
    suffixes = (f"g{n['group_count']}",) if n["group_count"] != 1 else ()
    return Problem(
        n["in_channels"], inner, filters, n["out_channels"], outer, n["batchsize"], pads, strides, dilations,
        n["bias"], layout, config.data_type, config.direction, suffixes,
    )  # fmt: skip
