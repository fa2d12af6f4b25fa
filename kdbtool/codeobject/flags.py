"""`e_flags` of AMDGPU objects: which architecture, which settings of xnack and sramecc.

Numbers: LLVM AMDGPUUsage, "AMDGPU ELF Header e_flags Table" (V2 to V6), the same as
hsa/amd_hsa_elf.h of ROCm 7.0; feature support: ibid., "AMDGPU Processors".
"""

from __future__ import annotations

from kdbtool.codeobject.model import Feature

EM_AMDGPU = 224
ELFOSABI_AMDGPU_HSA = 64
# EI_ABIVERSION of ELFOSABI_AMDGPU_HSA -> code object version.
CODE_OBJECT_VERSION = {0: 2, 1: 3, 2: 4, 3: 5, 4: 6}

MACH = {
    0x20: "gfx600", 0x21: "gfx601", 0x3A: "gfx602",
    0x22: "gfx700", 0x23: "gfx701", 0x24: "gfx702", 0x25: "gfx703", 0x26: "gfx704", 0x3B: "gfx705",
    0x28: "gfx801", 0x29: "gfx802", 0x2A: "gfx803", 0x3C: "gfx805", 0x2B: "gfx810",
    0x2C: "gfx900", 0x2D: "gfx902", 0x2E: "gfx904", 0x2F: "gfx906", 0x30: "gfx908", 0x31: "gfx909",
    0x3F: "gfx90a", 0x32: "gfx90c", 0x40: "gfx940", 0x4B: "gfx941", 0x4C: "gfx942", 0x4F: "gfx950",
    0x33: "gfx1010", 0x34: "gfx1011", 0x35: "gfx1012", 0x42: "gfx1013",
    0x36: "gfx1030", 0x37: "gfx1031", 0x38: "gfx1032", 0x39: "gfx1033", 0x3E: "gfx1034", 0x3D: "gfx1035",
    0x45: "gfx1036",
    0x41: "gfx1100", 0x46: "gfx1101", 0x47: "gfx1102", 0x44: "gfx1103",
    0x43: "gfx1150", 0x4A: "gfx1151", 0x55: "gfx1152", 0x58: "gfx1153",
    0x48: "gfx1200", 0x4E: "gfx1201", 0x49: "gfx1250",
    0x51: "gfx9-generic", 0x5F: "gfx9-4-generic", 0x52: "gfx10-1-generic", 0x53: "gfx10-3-generic",
    0x54: "gfx11-generic", 0x59: "gfx12-generic",
}  # fmt: skip
NUMBER = {name: number for number, name in MACH.items()}
ARCHS = frozenset(name for name in NUMBER if not name.endswith("-generic"))


def _archs(text: str) -> frozenset[str]:
    return frozenset(text.split())


XNACK_ARCHS = _archs(
    "gfx801 gfx810 gfx900 gfx902 gfx904 gfx906 gfx908 gfx909 gfx90a gfx90c gfx940 gfx941 gfx942 gfx950 "
    "gfx1010 gfx1011 gfx1012 gfx1013"
)
SRAMECC_ARCHS = _archs("gfx906 gfx908 gfx90a gfx940 gfx941 gfx942 gfx950")

# Generic targets and the architectures whose devices load them.
GENERIC = {
    "gfx9-generic": _archs("gfx900 gfx902 gfx904 gfx906 gfx909 gfx90c"),
    "gfx9-4-generic": _archs("gfx940 gfx941 gfx942 gfx950"),
    "gfx10-1-generic": _archs("gfx1010 gfx1011 gfx1012 gfx1013"),
    "gfx10-3-generic": _archs("gfx1030 gfx1031 gfx1032 gfx1033 gfx1034 gfx1035 gfx1036"),
    "gfx11-generic": _archs("gfx1100 gfx1101 gfx1102 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153"),
    "gfx12-generic": _archs("gfx1200 gfx1201"),
}

_STATES: tuple[Feature, ...] = ("unsupported", "any", "off", "on")


def mach_of(flags: int) -> str | None:
    """The architecture's name, None for a number that is not known."""
    return MACH.get(flags & 0xFF)


def features_of(flags: int, version: int | None, mach: str | None) -> tuple[Feature, Feature]:
    """(xnack, sramecc). Before version 4 a flag is on or off, "any" did not exist."""
    if version is not None and version >= 4:
        return _STATES[flags >> 8 & 3], _STATES[flags >> 10 & 3]
    if version == 3:
        return (
            _old(flags & 0x100, mach in XNACK_ARCHS),
            _old(flags & 0x200, mach in SRAMECC_ARCHS),
        )
    # Version 2 has no sramecc, and its xnack bit lies inside the architecture's number.
    return "unsupported", "unsupported"


def _old(bit: int, supported: bool) -> Feature:
    if bit:
        return "on"
    return "off" if supported else "unsupported"
