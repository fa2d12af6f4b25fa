"""What the bits of a kernel descriptor mean, under the names of the assembler's `.amdhsa_` directives.

LLVM AMDGPUUsage (LLVM 21): "Kernel Descriptor", "compute_pgm_rsrc1/2/3", "AMDHSA Kernel Assembler
Directives". An architecture is taken by its version: gfx90a is (9, 0, 10), gfx1030 (10, 3, 0).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kdbtool.codeobject.model import Descriptor

Version = tuple[int, int, int]
_MACH = re.compile(r"gfx(\d{1,2})([0-9a-f])([0-9a-f])")
_GENERIC = re.compile(r"gfx(\d{1,2})(?:-(\d))?-generic")
_ALWAYS: Version = (0, 0, 0)
_NEVER: Version = (99, 0, 0)


class _Field(NamedTuple):
    """A bit field of one word; there from architecture `since` on, below `until`."""

    name: str
    word: str
    shift: int
    width: int = 1
    since: Version = _ALWAYS
    until: Version = _NEVER


_R1, _R2, _R3, _PROPERTIES = (
    "compute_pgm_rsrc1",
    "compute_pgm_rsrc2",
    "compute_pgm_rsrc3",
    "kernel_code_properties",
)
_FIELDS = (
    _Field("float_round_mode_32", _R1, 12, 2),
    _Field("float_round_mode_16_64", _R1, 14, 2),
    _Field("float_denorm_mode_32", _R1, 16, 2),
    _Field("float_denorm_mode_16_64", _R1, 18, 2),
    _Field("dx10_clamp", _R1, 21, until=(12, 0, 0)),
    _Field("round_robin_scheduling", _R1, 21, since=(12, 0, 0)),
    _Field("ieee_mode", _R1, 23, until=(12, 0, 0)),
    _Field("fp16_overflow", _R1, 26, since=(9, 0, 0)),
    _Field("workgroup_processor_mode", _R1, 29, since=(10, 0, 0)),
    _Field("memory_ordered", _R1, 30, since=(10, 0, 0)),
    _Field("forward_progress", _R1, 31, since=(10, 0, 0)),
    _Field("system_sgpr_workgroup_id_x", _R2, 7),
    _Field("system_sgpr_workgroup_id_y", _R2, 8),
    _Field("system_sgpr_workgroup_id_z", _R2, 9),
    _Field("system_sgpr_workgroup_info", _R2, 10),
    _Field("system_vgpr_workitem_id", _R2, 11, 2),
    _Field("exception_fp_ieee_invalid_op", _R2, 24),
    _Field("exception_fp_denorm_src", _R2, 25),
    _Field("exception_fp_ieee_div_zero", _R2, 26),
    _Field("exception_fp_ieee_overflow", _R2, 27),
    _Field("exception_fp_ieee_underflow", _R2, 28),
    _Field("exception_fp_ieee_inexact", _R2, 29),
    _Field("exception_int_div_zero", _R2, 30),
    _Field("tg_split", _R3, 16, since=(9, 0, 10), until=(10, 0, 0)),
    _Field("shared_vgpr_count", _R3, 0, 4, since=(10, 0, 0), until=(12, 0, 0)),  # of wave64 alone
    _Field("inst_pref_size", _R3, 4, 6, since=(11, 0, 0), until=(12, 0, 0)),
    _Field("inst_pref_size", _R3, 4, 8, since=(12, 0, 0)),
    _Field("user_sgpr_dispatch_ptr", _PROPERTIES, 1),
    _Field("user_sgpr_queue_ptr", _PROPERTIES, 2),
    _Field("user_sgpr_kernarg_segment_ptr", _PROPERTIES, 3),
    _Field("user_sgpr_dispatch_id", _PROPERTIES, 4),
    _Field("user_sgpr_private_segment_size", _PROPERTIES, 6),
    _Field("wavefront_size32", _PROPERTIES, 10, since=(10, 0, 0)),
    _Field("uses_dynamic_stack", _PROPERTIES, 11),
)


def version_of(mach: str | None) -> Version | None:
    """(major, minor, stepping) of gfx90a or gfx9-4-generic; None for another text."""
    match = _MACH.fullmatch(mach or "")
    if match:
        return int(match[1]), int(match[2], 16), int(match[3], 16)
    match = _GENERIC.fullmatch(mach or "")
    # gfx9-4-generic is coded as gfx940 and later are, gfx9-generic as gfx900.
    return (int(match[1]), int(match[2] or 0), 0) if match else None


def _unified(version: Version) -> bool:
    """Whether VGPRs and AGPRs share one file, in blocks of 8: gfx90a, gfx94x, gfx950."""
    return version[0] == 9 and version[1:] >= (0, 10) and version[1:] != (0, 12)


def vgprs(found: Descriptor, mach: str | None) -> int | None:
    """Vector registers that a wave gets, in whole granules; on gfx90a and gfx94x with the accumulators."""
    version = version_of(mach)
    if version is None:
        return None
    wide = _unified(version) or (version[0] >= 10 and found.wave32)
    return ((found.compute_pgm_rsrc1 & 63) + 1) * (8 if wide else 4)


def sgprs(found: Descriptor, mach: str | None) -> int | None:
    """Scalar registers that a wave gets, up to gfx9; from gfx10 on every wave has the same number: None."""
    version = version_of(mach)
    if version is None or version[0] >= 10:
        return None
    return ((found.compute_pgm_rsrc1 >> 6 & 15) + 1) * 8


def accum_offset(found: Descriptor, mach: str | None) -> int | None:
    """The first accumulator register among the unified ones; None where they are a file of their own."""
    version = version_of(mach)
    if version is None or not _unified(version):
        return None
    return ((found.compute_pgm_rsrc3 & 63) + 1) * 4


def directives(found: Descriptor, mach: str | None) -> dict[str, int]:
    """The descriptor as an assembler is told it, names without `.amdhsa_`; {} for an unknown architecture.

    Left out are reserve_* (the disassembler prints 0), what a scratch setting is called (it depends on
    the architecture), user SGPRs for scratch, and kernarg preloading.
    """
    version = version_of(mach)
    if version is None:
        return {}
    out = {
        "group_segment_fixed_size": found.group_segment_fixed_size,
        "private_segment_fixed_size": found.private_segment_fixed_size,
        "kernarg_size": found.kernarg_size,
    }
    for name, value in (
        ("next_free_vgpr", vgprs(found, mach)),
        ("next_free_sgpr", sgprs(found, mach)),
        ("accum_offset", accum_offset(found, mach)),
    ):
        if value is not None:
            out[name] = value
    absent = {"tg_split"} if not _unified(version) else set()
    absent |= {"shared_vgpr_count"} if found.wave32 else set()
    for f in _FIELDS:
        if f.since <= version < f.until and f.name not in absent:
            out[f.name] = int(getattr(found, f.word)) >> f.shift & ((1 << f.width) - 1)
    return out
