"""The class of a kernel source: its language, and for assembly where its text comes from.

`asm-generated`: igemm_*, written by AMD's generator iGEMMgen, which is public (MIT licence).
`asm-disassembled`: instruction streams whose true source (sp3) is not public: Conv_Winograd_* (Fury
included) and conv_3x3_wheel_alpha_*; MIOpen#480 and #3904 are about them. `asm-handwritten`: every other
`.s`, made to be read and changed. Source: the `.s` and `.inc` files of MIOpen's src/kernels, tags rocm-5.0.0
to develop of October 2024 (reference E.3).

Winograd kernels are a class across these: the disassembled ones, and the hand-written transforms xform_*
of the multipass solvers.

Solvers are classed by what MIOpen names them: one of "Asm" or "Wino" launches assembly, no other convolution
solver does (src/solver/conv of the same tags; a test holds the names against explain's solver-files.tsv).
"""

from __future__ import annotations

import re

from kdbtool.miopen.keys import language

ASM_GENERATED, ASM_DISASSEMBLED, ASM_HANDWRITTEN = "asm-generated", "asm-disassembled", "asm-handwritten"
WINOGRAD = "winograd"
UNKNOWN = "unknown"
# What `classes_of` can say, in the order in which it is shown.
CLASSES = (ASM_GENERATED, ASM_DISASSEMBLED, ASM_HANDWRITTEN, "hip", "opencl", "mlir", WINOGRAD, UNKNOWN)

_GENERATED = re.compile(r"igemm_")
_DISASSEMBLED = re.compile(r"Conv_Winograd_|conv_3x3_wheel_alpha_")
_TRANSFORMS = re.compile(r"xform_(?:bidirect_winograd_)?(?:data|filter|out)\.s\Z")


def class_of(source: str) -> str:
    """The one class of CLASSES but `winograd` that a kernel source (with its extension) is in."""
    spoken = language(source)
    if spoken != "asm":
        return spoken or UNKNOWN
    if _GENERATED.match(source):
        return ASM_GENERATED
    return ASM_DISASSEMBLED if _DISASSEMBLED.match(source) else ASM_HANDWRITTEN


def classes_of(source: str) -> tuple[str, ...]:
    """`class_of`, and `winograd` behind it for a kernel of that algorithm."""
    first = class_of(source)
    winograd = first == ASM_DISASSEMBLED or _TRANSFORMS.match(source) is not None
    return (first, WINOGRAD) if winograd else (first,)


def asm_class_of_solver(solver: str) -> str | None:
    """The class of the assembly that a convolution solver needs, None for one that needs none."""
    if solver.startswith("ConvAsmImplicitGemm"):
        return ASM_GENERATED
    if "Multipass" in solver or "ConvMPBidirect" in solver or "Asm" in solver:
        return ASM_HANDWRITTEN
    return ASM_DISASSEMBLED if "Wino" in solver else None
