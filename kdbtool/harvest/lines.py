"""A convolution problem as a line for the driver (csrc/harvest/driver.c), or why it has none.

The driver sets descriptors from lengths and strides, so a problem can be put to MIOpen if its key tells
both: vectorised layouts and biases it does not. A key does not say whether the convolution was declared
transposed; the same solvers run, so it is put as an ordinary one (src/conv/problem_description.cpp,
MIOpen 2.15 to 3.5, swaps the sides before it makes the key).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable

from kdbtool.miopen.problems import Problem, Sizes

# miopenDataType_t of include/miopen/miopen.h, 2.15 to 3.5
_TYPES = {
    "FP16": 0, "FP32": 1, "INT32": 2, "INT8": 3, "BF16": 5, "FP64": 6, "FP8": 7, "BF8": 8, "INT64": 9,
}  # fmt: skip
MAX_IDS = 512  # MAX_IDS of the driver
_MAX_STRIDE = (1 << 31) - 1  # an int


class Unspeakable(ValueError):
    """The problem cannot be put to MIOpen through its API by what its key tells; the text says why."""


def check(problem: Problem) -> None:
    """Unspeakable where `line` has none for the problem."""
    if problem.bias:
        raise Unspeakable("a bias in the key")
    for lengths in _lengths(problem):
        if math.prod(lengths) // min(lengths[0], lengths[1]) > _MAX_STRIDE:
            raise Unspeakable("a tensor of larger strides than MIOpen's API can take")
    _check_kinds(problem.layout, problem.data_type, problem.dimensions)


@functools.lru_cache(maxsize=4096)
def _check_kinds(layout: str, data_type: str, dimensions: int) -> None:
    for name in layout.split("-"):
        if sorted(name) != sorted(_axes(dimensions)):
            raise Unspeakable(f"vectorised layout {name}")
    if "INT8x4" in data_type:
        raise Unspeakable("data type INT8x4")


def line(index: int, seconds: int, problem: Problem, action: str, ids: Iterable[int] = ()) -> str:
    """The driver's line for `problem`, without its end. `action`: find, offered or ids, those with `ids`."""
    check(problem)
    lengths = _lengths(problem)
    # The key's own order is input side, weights, output side; for B and W that is y, w, x.
    order = (0, 1, 2) if problem.direction == "F" else (2, 1, 0)
    words = [str(index), str(seconds), problem.direction, str(problem.dimensions + 2), str(problem.groups)]
    for dims, at in zip(lengths, order, strict=True):
        words += _tensor(dims, problem.layouts[at], problem.data_types[at], problem.casts[at])
    for sizes in (problem.pads, problem.strides, problem.dilations):
        words += map(str, sizes)
    return " ".join([*words, action, *map(str, ids)])


def _lengths(problem: Problem) -> tuple[Sizes, Sizes, Sizes]:
    """Of x, the weights and y."""
    x, y = (problem.in_channels, problem.in_size), (problem.out_channels, problem.out_size)
    if problem.direction != "F":
        x, y = y, x
    weights = (y[0], x[0] // problem.groups, *problem.filter_size)
    return (problem.batch, x[0], *x[1]), weights, (problem.batch, y[0], *y[1])


def _tensor(dims: Sizes, layout: str, data_type: str, cast: str | None) -> list[str]:
    axes = _axes(len(dims) - 2)
    strides, step = {}, 1
    for axis in reversed(layout):
        strides[axis] = step
        step *= dims[axes.index(axis)]
    of_cast = "-1" if cast is None else str(_TYPES[cast])
    return [str(_TYPES[data_type]), of_cast, *map(str, dims), *(str(strides[axis]) for axis in axes)]


def _axes(dimensions: int) -> str:
    return "NCHW" if dimensions == 2 else "NCDHW"
