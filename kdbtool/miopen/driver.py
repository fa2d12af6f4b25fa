"""MIOpenDriver's convolution commands, turned into the problem keys that MIOpen makes of them.

`conv -n 2 -c 3 -H 8 ... -F 1`: options, defaults and rules of driver/conv_driver.hpp (develop of
2024-10-24, compared with 6.4.3 by running it). MIOPEN_ENABLE_LOGGING_CMD writes the same commands.
What the driver would refuse, and what its command does not tell exactly (vectorised layouts), is a
KdbtoolError. `conv` stands for FP32, as the driver takes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from kdbtool.errors import KdbtoolError
from kdbtool.miopen.problems import Problem, format_problem

TYPES = {
    "conv": "FP32",
    "convfp16": "FP16",
    "convbfp16": "BF16",
    "convint8": "INT8",
    "convfp8": "FP8",
    "convbfp8": "BF8",
}
_CASTS = {"fp32": "FP32", "fp16": "FP16", "bf16": "BF16", "fp8": "FP8", "bf8": "BF8"}
# Long names, short names, defaults (`AddCmdLineArgs`). Those that shape no problem have no default.
_NUMBERS = {
    "spatial_dim": ("_", 2), "forw": ("F", 0), "batchsize": ("n", 100), "in_channels": ("c", 3),
    "in_d": ("!", 32), "in_h": ("H", 32), "in_w": ("W", 32), "out_channels": ("k", 32), "fil_d": ("@", 3),
    "fil_h": ("y", 3), "fil_w": ("x", 3), "conv_stride_d": ("#", 1), "conv_stride_h": ("u", 1),
    "conv_stride_w": ("v", 1), "pad_d": ("$", 0), "pad_h": ("p", 0), "pad_w": ("q", 0),
    "trans_output_pad_d": ("%", 0), "trans_output_pad_h": ("Y", 0), "trans_output_pad_w": ("X", 0),
    "dilation_d": ("^", 1), "dilation_h": ("l", 1), "dilation_w": ("j", 1), "group_count": ("g", 1),
    "tensor_vect": ("Z", 0), "vector_length": ("L", 1), "wall": ("w", 0), "time": ("t", 0),
}  # fmt: skip
_TEXTS = {
    "in_layout": ("I", ""), "out_layout": ("O", ""), "fil_layout": ("f", ""), "mode": ("m", "conv"),
    "pad_mode": ("z", "default"), "in_cast_type": ("U", "-1"), "out_cast_type": ("T", "-1"),
    "wei_cast_type": ("R", "-1"), "solution": ("S", "-1"),
}  # fmt: skip
_IDLE = {
    "pad_val": "r", "iter": "i", "verify": "V", "verification_cache": "C", "search": "s", "printconv": "P",
    "dump_output": "o", "in_data": "d", "weights": "e", "bias": "b", "in_bias": "a", "dout_data": "D",
    "gpualloc": "G",
}  # fmt: skip
_SHORT = {short: name for name, (short, _) in (*_NUMBERS.items(), *_TEXTS.items())}
_SHORT |= {short: name for name, short in _IDLE.items()}
_LONG = frozenset(_SHORT.values())
_LAYOUTS = {2: ("NCHW", "NHWC", "CHWN"), 3: ("NCDHW", "NDHWC")}
_UPPER = ("in_layout", "out_layout", "fil_layout")  # the driver takes these in any case, by long name
_SHELL = re.compile(r"[0-9&]*[|;&<>)#]")
_INT = re.compile(r"-?[0-9]{1,9}")
# What MIOpen writes of every convolution; the last, but for a solution, is `-t 1` (src/driver_arguments.cpp).
_WRITTEN = frozenset(
    "batchsize in_channels in_h in_w out_channels fil_h fil_w pad_h pad_w conv_stride_h conv_stride_w "
    "dilation_h dilation_w mode group_count forw time".split()
)
MAX_WORDS = 400

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Command:
    """`keys`: (direction of the call, problem key), in the order F, B, W; `solution`: of `-S`, or None."""

    keys: tuple[tuple[str, str], ...]
    solution: int | None


def parse_command(text: str, *, version: tuple[int, ...] | None = None, logged: bool = False) -> Command:
    """The command `conv ...` (what follows `MIOpenDriver`); it ends where a shell would end it.

    `version`: MIOpen's, (3, 4, 0); None is the newest known. `logged`: MIOpen itself wrote it, of
    tensors that a program made: it writes the filters of a transposed convolution in its own way.
    """
    words = text.split()[:MAX_WORDS]
    if not words or words[0] not in TYPES:
        raise KdbtoolError("not a convolution of MIOpenDriver", where=(words or [""])[0][:40])
    given = _options(words[1:])
    if logged and not given.keys() >= _WRITTEN:
        raise KdbtoolError("it is cut off, or not as MIOpen writes it")
    numbers = {name: _number(name, given.get(name), default) for name, (_, default) in _NUMBERS.items()}
    texts = {name: given.get(name, default) for name, (_, default) in _TEXTS.items()}
    solution = texts["solution"]
    if logged and texts["mode"] == "trans":
        # src/driver_arguments.cpp: `-k` is the filters of one group; up to 5.7 the input's channels.
        if version is None or version < (3,):
            raise KdbtoolError("a transposed convolution, whose filters MIOpen may not have written")
        if max(numbers[f"conv_stride_{axis}"] for axis in "dhw") > 1:
            raise KdbtoolError("a transposed convolution, whose output padding MIOpen does not write")
        numbers["out_channels"] *= max(numbers["group_count"], 1)
    # 6.4.3's driver makes the output of convint8 INT8, those before (3.3.0 seen) INT32.
    output = "INT32" if words[0] == "convint8" and version is not None and version < (3, 4) else None
    keys = tuple(_keys(TYPES[words[0]], output or TYPES[words[0]], numbers, texts))
    return Command(
        keys, int(solution) if solution.isdigit() and solution.isascii() and int(solution) else None
    )


def _options(words: list[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    i = 0
    while i < len(words) and not _SHELL.match(words[i]):
        word = words[i].strip("'\"")
        name = word[2:] if word.startswith("--") else _SHORT.get(word[1:2], "") if word[:1] == "-" else ""
        if name not in _LONG or (not word.startswith("--") and len(word) != 2):
            raise KdbtoolError(f"unknown option {word[:40]}")
        if i + 1 >= len(words) or _SHELL.match(words[i + 1]):
            raise KdbtoolError(f"{word} without a value")
        value = words[i + 1].strip("'\"")
        given[name] = value.upper() if word.startswith("--") and name in _UPPER else value
        i += 2
    return given


def _number(name: str, text: str | None, default: int) -> int:
    if text is None:
        return default
    if not _INT.fullmatch(text):
        raise KdbtoolError(f"{name}: not a number: {text[:40]}")
    return int(text)


def _keys(kind: str, output: str, n: dict[str, int], texts: dict[str, str]) -> list[tuple[str, str]]:
    dims = n["spatial_dim"]
    if dims not in _LAYOUTS:
        raise KdbtoolError(f"{dims} spatial dimensions: neither 2 nor 3")
    if n["vector_length"] != 1 or n["tensor_vect"]:
        raise KdbtoolError("a vectorised layout, whose sizes the command does not tell exactly")
    mode = texts["mode"]
    if mode not in ("conv", "trans"):
        raise KdbtoolError(f"unknown convolution mode {mode[:40]}")
    transposed = mode == "trans"
    axes = "hw" if dims == 2 else "dhw"

    def each(name: str) -> Sizes:
        return tuple(n[f"{name}_{axis}"] for axis in axes)

    size, window, strides, dilations = each("in"), each("fil"), each("conv_stride"), each("dilation")
    pads, extra, groups = each("pad"), each("trans_output_pad"), max(n["group_count"], 1)
    batch, channels, filters = n["batchsize"], n["in_channels"], n["out_channels"]
    if min((batch, channels, filters, *size, *window, *strides, *dilations)) < 1 or min(pads + extra) < 0:
        raise KdbtoolError("a size that is not positive")
    if groups > 1 and (channels % groups or filters % groups):
        raise KdbtoolError(f"{groups} groups do not divide the channels")
    if not transposed and (set(dilations) == {1} or set(window) == {1}):
        pads = _padded(texts["pad_mode"], size, window, strides, pads)
    reach = tuple(1 + d * (w - 1) for d, w in zip(dilations, window, strict=True))
    if transposed:
        steps = zip(size, strides, reach, pads, extra, strict=True)
        out = tuple(max(1, s * (i - 1) + r - 2 * p + e) for i, s, r, p, e in steps)
    else:
        if any(r > i + 2 * p for r, i, p in zip(reach, size, pads, strict=True)):
            raise KdbtoolError("a filter that is larger than its padded input")
        out = tuple((i - r + 2 * p) // s + 1 for i, s, r, p in zip(size, strides, reach, pads, strict=True))
    weights = (channels, filters // groups) if transposed else (filters, channels // groups)

    x, y, w = (batch, channels, *size), (batch, filters, *out), (*weights, *window)
    chosen = [_layout(texts[f"{name}_layout"], dims) for name in ("in", "fil", "out")]
    casts = [_cast(texts[f"{name}_cast_type"]) for name in ("in", "wei", "out")]
    found = []
    for bit, call in ((1, "F"), (2, "B"), (4, "W")):
        if n["forw"] and not n["forw"] & bit:
            continue
        # src/convolution_api.cpp: a transposed convolution swaps forward and backward with their sides.
        x_first = call == "F" or (call == "W" and transposed)
        letter = {"F": "B", "B": "F"}.get(call, call) if transposed else call
        order = (0, 1, 2) if x_first else (2, 1, 0)
        sides = [(x, w, y)[i] for i in order]
        types = kind if output == kind else "".join((kind, kind, output)[i] for i in order)
        layout = _common([chosen[i] for i in order], sides)
        suffixes = [f"g{groups}"] if groups > 1 else []
        suffixes += [f"c{side}{casts[i]}" for side, i in zip("iwo", order, strict=True) if casts[i]]
        problem = Problem(
            sides[0][1], sides[0][2:], window, sides[2][1], sides[2][2:], batch, pads, strides, dilations, 0,
            layout, types, letter, tuple(suffixes),
        )  # fmt: skip
        found.append((call, format_problem(problem)))
    return found


def _padded(mode: str, size: Sizes, window: Sizes, strides: Sizes, pads: Sizes) -> Sizes:
    """`-z`: MIOpen's own idea of `same` (driver/conv_driver.hpp `SetConvDescriptorFromCmdLineArgs`)."""
    if mode == "valid":
        return tuple(0 for _ in pads)
    if mode != "same":
        return pads
    steps = zip(size, window, strides, strict=True)
    return tuple(max(w - (s if i % s == 0 else i % s), 0) // 2 for i, w, s in steps)


def _layout(text: str, dims: int) -> str:
    layout = text or _LAYOUTS[dims][0]
    if layout not in _LAYOUTS[dims]:
        raise KdbtoolError(f"layout {layout[:40]} of a {dims}-D convolution")
    return layout


def _cast(text: str) -> str:
    if text != "-1" and text not in _CASTS:
        raise KdbtoolError(f"unknown cast type {text[:40]}")
    return _CASTS.get(text, "")


def _strides(layout: str, lens: Sizes) -> dict[str, int]:
    """Packed: the last letter varies fastest. By letter."""
    stored = "NCHW" if len(lens) == 4 else "NCDHW"
    step, found = 1, {}
    for letter in reversed(layout):
        found[letter] = step
        step *= lens[stored.index(letter)]
    return found


def _common(layouts: list[str], tensors: list[Sizes]) -> str:
    """The layout field of a key. A layout that fits all three tensors (sizes of 1 fit several) replaces
    theirs: the first of NCHW, NHWC, CHWN, NCDHW, as src/conv/problem_description.cpp tries them."""
    strides = [_strides(layout, lens) for layout, lens in zip(layouts, tensors, strict=True)]
    for layout in ("NCHW", "NHWC", "CHWN", "NCDHW"):
        if all(len(layout) == len(of) for of in strides) and all(
            of[a] >= of[b] for of in strides for a, b in pairwise(layout)
        ):
            return layout if layout in ("NCHW", "NCDHW") else "-".join([layout] * 3)
    own = [_own(of, lens) for of, lens in zip(strides, tensors, strict=True)]
    return own[0] if own[0] in ("NCHW", "NCDHW") and len(set(own)) == 1 else "-".join(own)


def _own(strides: dict[str, int], lens: Sizes) -> str:
    """A tensor's own layout: letters by falling (stride, length), as MIOpen tells it from the strides."""
    stored = "NCHW" if len(lens) == 4 else "NCDHW"
    return "".join(sorted(stored, key=lambda c: (-strides[c], -lens[stored.index(c)])))
