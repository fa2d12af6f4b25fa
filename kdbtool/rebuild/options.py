"""Which compiler options a row may carry: an allow-list by grammar, closed by default (design, law 7).

What is accepted is what MIOpen's own solvers put into a key (read in its sources at rocm-5.0.0 to
October 2024, and seen in 20,000 keys of 6.4.3): defines, assembler symbols, `-mcpu`, wave size and
CU mode, a language standard, OpenCL math switches, `-O`. Everything else is refused by name: no
option here takes a file, loads code, or names an output.

A define's value is numbers, identifiers, `a::b` and `4,2` alone. The compiler would pass on more, but
a quote, `<` or a bracket in a value could turn `#include NAME` or `_Pragma` in a source into something
that its author did not write, and MIOpen's offline builds hand the string to a shell, so no key of
theirs can hold one.

Options are split at single blanks, as MIOpen does; blanks at the ends or doubled are in many keys.
"""

from __future__ import annotations

import re

from kdbtool.errors import printable

MAX_ARGS = 1 << 16  # bytes; the longest key seen has about 3,000
MAX_OPTIONS = 4096
MAX_OPTION = 2048

_NAME = rb"[A-Za-z_][A-Za-z0-9_]{0,255}"
_VALUE = rb"(?:[A-Za-z0-9_+\-.]+(?:(?:,|::)[A-Za-z0-9_+\-.]+)*)?"
_GRAMMAR = re.compile(
    rb"-D" + _NAME + rb"(?:=" + _VALUE + rb")?"
    rb"|-Wa,-defsym," + _NAME + rb"=(?:-?[0-9]{1,20}|0x[0-9a-fA-F]{1,16})"
    rb"|-mcumode|-mwavefrontsize64"
    rb"|--?std=c\+\+(?:11|14|17|20)"
    rb"|-cl-std=CL(?:1\.[012]|2\.0|3\.0)"
    rb"|-cl-(?:denorms-are-zero|fast-relaxed-math|finite-math-only|unsafe-math-optimizations"
    rb"|fp32-correctly-rounded-divide-sqrt|kernel-arg-info)"
    rb"|-O[0-3s]"
)
# `-mllvm` takes the next word; the words are those that MIOpen writes itself.
_MLLVM = re.compile(
    rb"-amdgpu-(?:early-inline-all|internalize-symbols|prelink)(?:=(?:true|false))?"
    rb"|--?amdgpu-spill-vgpr-to-agpr=[01]"
)
_ARCH = re.compile(rb"gfx[0-9a-f]{3,5}|gfx[0-9]{1,2}-(?:[0-9]-)?generic")


class OptionRefused(Exception):
    """One option that is not on the list: `option` as it stands in the key, and why."""

    def __init__(self, option: bytes, why: str) -> None:
        self.option, self.why = option, why
        super().__init__(f"option {self.shown()} refused: {why}")

    def shown(self) -> str:
        """The option, printable, cut at 60 characters."""
        text = printable(self.option)
        return repr(text if len(text) <= 60 else text[:57] + "...")


def accept(args: bytes, arch: str) -> tuple[str, ...]:
    """The options of a key's arguments, in order, every one of them allowed; `-mcpu` must be `arch`.

    Raises `OptionRefused` for the first that is not. `arch` is a bare architecture (gfx1030).
    """
    if len(args) > MAX_ARGS:
        raise OptionRefused(args, f"the arguments are {len(args)} bytes long, {MAX_ARGS} are allowed")
    words = [word for word in args.split(b" ") if word]
    if len(words) > MAX_OPTIONS:
        raise OptionRefused(args, f"{len(words)} options, {MAX_OPTIONS} are allowed")
    accepted: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == b"-mllvm":
            value = next(rest, b"")
            if not _MLLVM.fullmatch(value):
                raise OptionRefused(b"-mllvm " + value, "MIOpen does not use this -mllvm value")
            accepted += ["-mllvm", value.decode("ascii")]
            continue
        _check(word, arch)
        accepted.append(word.decode("ascii"))
    return tuple(accepted)


def _check(word: bytes, arch: str) -> None:
    if len(word) > MAX_OPTION:
        raise OptionRefused(word, f"longer than {MAX_OPTION} bytes")
    if word.startswith(b"-mcpu="):
        value = word.removeprefix(b"-mcpu=")
        if not _ARCH.fullmatch(value) or value != arch.encode():
            raise OptionRefused(word, f"-mcpu must be the row's own architecture, {printable(arch)}")
    elif not _GRAMMAR.fullmatch(word):
        raise OptionRefused(word, "not on the allow-list")
