"""The parts of a kernel key (kernel_name, kernel_args), found without changing a byte of it.

MIOpen's name is a source file name plus `.o`; its arguments are the options of a solver plus
` -mcpu=<arch>`, one space in front (MIOpen 2.15 to 3.5, src/hip/handlehip.cpp `LoadProgram`,
src/binary_cache.cpp). The arguments of a `.mlir` kernel carry no `-mcpu`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SUFFIX = b".o"
MCPU = b" -mcpu="
# A bare architecture: no target id (`:xnack-`), the only form that MIOpen appends.
ARCH = re.compile(r"gfx[0-9a-z]+(?:-[0-9a-z]+)*\Z")
MAX_ARCH = 32
# A name that can be a file of a source set; anything else is data and never becomes a path.
SOURCE = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_+-]|\.(?!\.))*\Z")
MAX_SOURCE = 255

LANGUAGES = {".cpp": "hip", ".cl": "opencl", ".s": "asm", ".mlir": "mlir"}

# Every epoch's data type list begins with this token (src/include/miopen/datatype.hpp).
_LIST_HEAD = b" -DMIOPEN_USE_FP16="
_LIST = re.compile(rb"(?: -DMIOPEN_(?:USE_(?!RNE)[A-Za-z0-9]+|USE_RNE_BFLOAT16|FP8_[A-Z_]+)=[^ ]*)+")


def is_arch(text: str) -> bool:
    """Whether `text` is a bare architecture name such as gfx90a."""
    return len(text) <= MAX_ARCH and ARCH.match(text) is not None


def is_source(text: str) -> bool:
    """Whether `text` can name a kernel source: one path component, no leading dot or dash."""
    return len(text) <= MAX_SOURCE and SOURCE.match(text) is not None


def source_of(name: bytes) -> str | None:
    """The source file that a kernel name stands for, or None where the name follows no convention."""
    if not name.endswith(SUFFIX):
        return None
    try:
        text = name[: -len(SUFFIX)].decode("ascii")
    except UnicodeDecodeError:
        return None
    return text if is_source(text) else None


def shown_source(name: bytes) -> str:
    """The source of a kernel name; of one that follows no convention the name, without a `.o` at its end."""
    return source_of(name) or name.removesuffix(SUFFIX).decode("utf-8", "backslashreplace")


def language(source: str) -> str | None:
    """hip, opencl, asm or mlir, by extension; None for another one."""
    dot = source.rfind(".")
    return LANGUAGES.get(source[dot:]) if dot > 0 else None


def split_mcpu(args: bytes) -> tuple[bytes, str] | None:
    """(options, value of the -mcpu at the very end), whatever the value; None without one."""
    at = args.rfind(MCPU)
    if at < 0:
        return None
    value = args[at + len(MCPU) :]
    if not value or b" " in value or not value.isascii():
        return None
    return args[:at], value.decode("ascii")


def split_arch(args: bytes) -> tuple[bytes, str] | None:
    """(options, arch) of arguments that end as MIOpen ends them; None for any others."""
    split = split_mcpu(args)
    return split if split is not None and is_arch(split[1]) else None


@dataclass(frozen=True)
class Repeat:
    """`prefix + block * count + suffix`, count at least 2."""

    prefix: bytes
    block: bytes
    count: int
    suffix: bytes

    @property
    def once(self) -> bytes:
        """The spelling that has the block once."""
        return self.prefix + self.block + self.suffix


def find_repeat(options: bytes) -> Repeat | None:
    """The doubled data type list of `options` (reference B.6), or None.

    A repeat is a run of equal blocks, one directly after the other, each beginning with
    ` -DMIOPEN_USE_FP16=` and made of `-D` options only: repeating those changes no compilation.
    """
    start = options.find(_LIST_HEAD)
    if start < 0:
        return None
    second = options.find(_LIST_HEAD, start + 1)
    if second < 0:
        return None
    block = options[start:second]
    if not _only_defines(block):
        return None
    end, count = second, 1
    while options.startswith(block, end):
        end, count = end + len(block), count + 1
    if count < 2 or options[end : end + 1] not in (b"", b" "):
        return None
    return Repeat(options[:start], block, count, options[end:])


def collapse(options: bytes) -> bytes:
    """`options` with a doubled data type list written once: what decides the object."""
    repeat = find_repeat(options)
    return repeat.once if repeat else options


def define_lists(options: bytes) -> list[bytes]:
    """Each maximal run of data type defines, in order, as it stands (each option with its leading space)."""
    return [m.group() for m in _LIST.finditer(b" " + options if options[:1] == b"-" else options)]


def _only_defines(block: bytes) -> bool:
    return all(token.startswith(b"-D") and len(token) > 2 for token in block[1:].split(b" "))
