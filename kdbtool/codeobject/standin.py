"""A code object that holds no code: what a harvest answers look-ups with.

The simulated device (csrc/simgpu/elf.c) knows it by the mark in the header's padding, and has every function
of it. A real device refuses it: it has no section.
"""

from __future__ import annotations

import struct

_MARK = b"kdbtool"  # the 7 bytes of e_ident from EI_PAD on
_SHARED, _AMDGPU = 3, 224  # ET_DYN, EM_AMDGPU
_HSA, _V4 = 64, 2  # ELFOSABI_AMDGPU_HSA, ELFABIVERSION_AMDGPU_HSA_V4


def stand_in(mach: int) -> bytes:
    """The 64 bytes for an architecture by its EF_AMDGPU_MACH number; no features are named: they fit any."""
    ident = b"\x7fELF" + bytes((2, 1, 1, _HSA, _V4)) + _MARK
    return ident + struct.pack("<HHIQQQIHHHHHH", _SHARED, _AMDGPU, 1, 0, 0, 0, mach, 64, 0, 0, 0, 0, 0)
