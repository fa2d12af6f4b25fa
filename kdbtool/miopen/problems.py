"""Convolution problem keys, as find-dbs and MIOpen's own records spell them (reference C.3).

`64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP32-F`: channels and sizes of the input, filter sizes,
channels and sizes of the output, batch, pads, strides, dilations, bias, layout, type, direction, then
`_gN` (groups) and `_ci/_cw/_co<type>` (cast types). For B and W the input side is the gradient of the
output (MIOpen 2.15 to 3.5, src/conv/problem_description.cpp `Serialize`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kdbtool.errors import KdbtoolError

MAX_KEY = 400
_NUMBER = r"(?:0|[1-9][0-9]{0,9})"
_SIGNED = r"(?:-?[1-9][0-9]{0,9}|0)"
_NAME = r"[A-Za-z0-9]{1,16}"
_PATTERN = re.compile(
    rf"({_NUMBER})((?:-{_NUMBER}){{2,3}})-({_NUMBER}(?:x{_NUMBER}){{1,2}})"
    rf"-({_NUMBER})((?:-{_NUMBER}){{2,3}})-({_NUMBER})"
    rf"-({_SIGNED}(?:x{_SIGNED}){{1,2}})-({_NUMBER}(?:x{_NUMBER}){{1,2}})-({_NUMBER}(?:x{_NUMBER}){{1,2}})"
    rf"-({_NUMBER})-({_NAME}(?:-{_NAME}-{_NAME})?)-([A-Z0-9]{{1,24}})-([FBW])"
    rf"((?:_(?:g{_NUMBER}|c[iwo][A-Z0-9]{{1,16}}))*)\Z"
)

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """One convolution problem. Sizes run depth (3-D only), height, width; 2 or 3 of each."""

    in_channels: int
    in_size: Sizes
    filter_size: Sizes
    out_channels: int
    out_size: Sizes
    batch: int
    pads: Sizes
    strides: Sizes
    dilations: Sizes
    bias: int
    layout: str
    data_type: str
    direction: str
    suffixes: tuple[str, ...] = ()  # `g32`, `ciFP8`, ... in the order of the key

    @property
    def groups(self) -> int:
        """The group count, 1 where the key says none."""
        return next((int(s[1:]) for s in self.suffixes if s[0] == "g"), 1)

    @property
    def dimensions(self) -> int:
        """2 or 3."""
        return len(self.in_size)


def is_problem(text: str) -> bool:
    """Whether `text` is a problem key."""
    return _parse(text) is not None


def parse_problem(text: str) -> Problem:
    """The parts of a problem key; KdbtoolError for any other text."""
    problem = _parse(text)
    if problem is None:
        raise KdbtoolError(
            "not a problem key",
            where=text[:100],
            why="expected one such as 64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP32-F",
        )
    return problem


def format_problem(problem: Problem) -> str:
    """The key of `problem`: `format_problem(parse_problem(key)) == key`."""
    fields = [
        str(problem.in_channels),
        *map(str, problem.in_size),
        _joined(problem.filter_size),
        str(problem.out_channels),
        *map(str, problem.out_size),
        str(problem.batch),
        _joined(problem.pads),
        _joined(problem.strides),
        _joined(problem.dilations),
        str(problem.bias),
        problem.layout,
        problem.data_type,
        problem.direction,
    ]
    return "-".join(fields) + "".join(f"_{suffix}" for suffix in problem.suffixes)


def _parse(text: str) -> Problem | None:
    if len(text) > MAX_KEY or not text.isascii():
        return None
    match = _PATTERN.match(text)
    if match is None:
        return None
    sizes = [tuple(map(int, match[i][1:].split("-"))) for i in (2, 5)]
    windows = [tuple(map(int, match[i].split("x"))) for i in (3, 7, 8, 9)]
    if len({len(part) for part in (*sizes, *windows)}) != 1:
        return None  # 2-D and 3-D parts in one key
    return Problem(
        int(match[1]), sizes[0], windows[0], int(match[4]), sizes[1], int(match[6]),
        windows[1], windows[2], windows[3], int(match[10]), match[11], match[12], match[13],
        tuple(match[14].split("_")[1:]),
    )  # fmt: skip


def _joined(sizes: Sizes) -> str:
    return "x".join(map(str, sizes))
