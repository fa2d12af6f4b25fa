"""Convolution problem keys, as find-dbs and MIOpen's own records spell them (reference C.3).

`64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP32-F`: channels and sizes of the input, filter sizes,
channels and sizes of the output, batch, pads, strides, dilations, bias, layout, type, direction, then
`_gN` (groups) and `_ci/_cw/_co<type>` (cast types). For B and W the input side is the gradient of the
output, y, and the output side is x (MIOpen 2.15 to 3.5, src/conv/problem_description.cpp `Serialize`).

A key that MIOpen cannot write is refused: what it reads from a file under such a key is never asked for.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from kdbtool.errors import KdbtoolError

MAX_KEY = 400
# GetDataTypeName of src/include/miopen/datatype.hpp; INT8x4 up to ROCm 5.7, FP8, BF8 and INT64 from 6.0.
DATA_TYPES = ("FP32", "FP16", "BF16", "INT8", "INT8x4", "INT32", "FP64", "FP8", "BF8", "INT64")
DIRECTIONS = ("F", "B", "W")

_NUMBER = r"(?:0|[1-9][0-9]{0,9})"
_COUNT = r"[1-9][0-9]{0,9}"  # channels, sizes, strides: a tensor without elements has no convolution
_SIGNED = r"(?:-?[1-9][0-9]{0,9}|0)"
_NAME = r"[A-Za-z0-9]{1,16}"
_TYPE = r"(?:INT8x4|FP32|FP16|BF16|INT8|INT32|FP64|FP8|BF8|INT64)"
_PATTERN = re.compile(
    rf"({_COUNT})((?:-{_COUNT}){{2,3}})-({_COUNT}(?:x{_COUNT}){{1,2}})"
    rf"-({_COUNT})((?:-{_COUNT}){{2,3}})-({_COUNT})"
    rf"-({_SIGNED}(?:x{_SIGNED}){{1,2}})-({_COUNT}(?:x{_COUNT}){{1,2}})-({_COUNT}(?:x{_COUNT}){{1,2}})"
    rf"-([01])-({_NAME}(?:-{_NAME}-{_NAME})?)-((?:{_TYPE}){{1,3}})-([FBW])"
    rf"((?:_g{_COUNT})?(?:_ci{_TYPE})?(?:_cw{_TYPE})?(?:_co{_TYPE})?)\Z"
)
_ONE_TYPE = re.compile(rf"{_TYPE}\Z")
_THREE_TYPES = re.compile(rf"({_TYPE})({_TYPE})({_TYPE})\Z")
_LAYOUT = re.compile(r"([NCDHW]{4,5})(?:c[48]?)?\Z")

Sizes = tuple[int, ...]
Triple = tuple[str, str, str]


class Tensor(NamedTuple):
    """One side of a convolution: x or y."""

    batch: int
    channels: int
    size: Sizes
    layout: str
    data_type: str


class Problem(NamedTuple):
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
    layout: str  # one name, or three joined by `-`
    data_type: str  # one name, or three run together
    direction: str  # F, B or W
    suffixes: tuple[str, ...] = ()  # `g32`, `ciFP8`, ... in the order of the key

    @property
    def groups(self) -> int:
        """The group count, 1 where the key says none."""
        return next((int(s[1:]) for s in self.suffixes if s[0] == "g"), 1)

    @property
    def dimensions(self) -> int:
        """2 or 3."""
        return len(self.in_size)

    @property
    def layouts(self) -> Triple:
        """Layouts of the input side, the weights and the output side."""
        names = self.layout.split("-")
        return (names[0], names[len(names) // 2], names[-1])

    @property
    def data_types(self) -> Triple:
        """Data types of the input side, the weights and the output side."""
        mixed = _THREE_TYPES.match(self.data_type)
        return (mixed[1], mixed[2], mixed[3]) if mixed else (self.data_type,) * 3

    @property
    def casts(self) -> tuple[str | None, str | None, str | None]:
        """Cast types of the input side, the weights and the output side."""
        found = {s[:2]: s[2:] for s in self.suffixes if s[0] == "c"}
        return found.get("ci"), found.get("cw"), found.get("co")

    @property
    def x(self) -> Tensor:
        """What a forward convolution reads (or its gradient): the output side of B and W."""
        return self._side(2 if self.direction != "F" else 0)

    @property
    def y(self) -> Tensor:
        """What a forward convolution writes (or its gradient): the input side of B and W."""
        return self._side(0 if self.direction != "F" else 2)

    def _side(self, at: int) -> Tensor:
        channels, size = (self.out_channels, self.out_size) if at else (self.in_channels, self.in_size)
        return Tensor(self.batch, channels, size, self.layouts[at], self.data_types[at])


def is_problem(text: str) -> bool:
    """Whether `text` is a problem key."""
    return problem_or_none(text) is not None


def parse_problem(text: str) -> Problem:
    """The parts of a problem key; KdbtoolError for any other text."""
    problem = problem_or_none(text)
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


def problem_or_none(text: str) -> Problem | None:
    """The parts of a problem key, None for any other text. About 4 microseconds for a key of AMD's."""
    if len(text) > MAX_KEY:
        return None
    match = _PATTERN.match(text)
    if match is None:
        return None
    c, size, filters, k, out_size, n, pads, strides, dilations, bias, layout, types, way, rest = (
        match.groups()
    )
    inner, outer = _dashed(size), _dashed(out_size)
    window = _crossed(filters), _crossed(pads), _crossed(strides), _crossed(dilations)
    dimensions = len(inner)
    if not len(outer) == len(window[0]) == len(window[1]) == len(window[2]) == len(window[3]) == dimensions:
        return None  # 2-D and 3-D parts in one key
    suffixes = _tail(layout, types, rest, dimensions)
    if suffixes is None:
        return None
    problem = Problem(
        int(c), inner, window[0], int(k), outer, int(n), window[1], window[2], window[3], int(bias),
        layout, types, way, suffixes,
    )  # fmt: skip
    if rest and (problem.in_channels % problem.groups or problem.out_channels % problem.groups):
        return None
    return problem


# Few texts repeat often in a find-db: most of a key's cost is saved by remembering them.
@functools.lru_cache(maxsize=4096)
def _dashed(text: str) -> Sizes:
    return tuple(map(int, text[1:].split("-")))


@functools.lru_cache(maxsize=4096)
def _crossed(text: str) -> Sizes:
    return tuple(map(int, text.split("x")))


@functools.lru_cache(maxsize=4096)
def _tail(layout: str, types: str, rest: str, dimensions: int) -> tuple[str, ...] | None:
    """The suffixes; None where layout, types and suffixes are none that MIOpen writes."""
    if not all(is_layout(name, dimensions) for name in layout.split("-")):
        return None
    if layout in ("NCHW-NCHW-NCHW", "NCDHW-NCDHW-NCDHW") or not is_type(types) or rest.startswith("_g1_"):
        return None
    return None if rest == "_g1" else tuple(rest.split("_")[1:])


def is_layout(name: str, dimensions: int) -> bool:
    """Whether `name` is a layout: the axes in some order, then `c`, `c4` or `c8` for a vectorised one."""
    match = _LAYOUT.match(name)
    return match is not None and sorted(match[1]) == sorted("NCDHW" if dimensions == 3 else "NCHW")


def is_type(text: str) -> bool:
    """Whether `text` is what EncodeDataTypesForKey writes: one type, or three of which one differs."""
    if _ONE_TYPE.match(text):
        return True
    mixed = _THREE_TYPES.match(text)
    return mixed is not None and not mixed[1] == mixed[2] == mixed[3]


def _joined(sizes: Sizes) -> str:
    return "x".join(map(str, sizes))
