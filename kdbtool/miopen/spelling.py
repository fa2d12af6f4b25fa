"""The other spelling of a key: MIOpen asks for one kernel with its data type list once or twice.

Whether a solver's options hold the list once or twice depends on the way that the program takes
(reference B.6): Find with a search and Immediate without a compilation ask once; Find that is answered
by a find-db, and CompileSolution, ask twice. So the process that finds and the next one, which reads the
first one's user find-db, differ. Only solvers that paste `general_compile_options` are concerned
(MIOpen 3.2, src/solver/conv/*.cpp); the harvested keys of gfx1030 have the two spellings of exactly these.
"""

from __future__ import annotations

import re

from kdbtool.miopen.keys import define_lists, find_repeat, source_of, split_arch

# Sources of the solvers that paste `general_compile_options`: conv_direct_naive_conv.cpp,
# conv_ocl_dir2D*.cpp, conv_hip_implicit_gemm_*.cpp, and the subsampling of conv_asm_1x1u.cpp and
# conv_asm_dir_BwdWrW1x1.cpp.
_DOUBLED = re.compile(
    r"naive_conv\.cpp"
    r"|static_kernel_gridwise_convolution_\w+\.cpp"
    r"|MIOpenConv(?:DirUni|DirGenFwd|Fwd_LxL_11|1x1S|1x1J1|1x1J1_stride)\.cl"
    r"|MIOpen(?:Group)?ConvBwdWrW(?:S2|_LxG_P53)\.cl"
    r"|MIOpenConvBwdWrW1x1_PAD_read4\.cl"
    r"|MIOpenUtilKernels3\.cl"
)


def other_spelling(name: bytes, args: bytes) -> bytes | None:
    """The kernel arguments with the list twice for once, once for twice; None where there is no other."""
    source, split = source_of(name), split_arch(args)
    if source is None or split is None or not _DOUBLED.fullmatch(source):
        return None
    options = split[0]
    ending = args[len(options) :]
    repeat = find_repeat(options)
    if repeat is not None:
        return repeat.once + ending if twice_of(repeat.once) == options else None
    twice = twice_of(options)
    return None if twice is None else twice + ending


def twice_of(options: bytes) -> bytes | None:
    """`options` with their one data type list doubled; None where they have none, or several."""
    lists = define_lists(options)
    # A whole list, not some data type defines of a solver's own: it has RNE_BFLOAT16 in every epoch.
    if len(lists) != 1 or b" -DMIOPEN_USE_RNE_BFLOAT16=" not in lists[0]:
        return None
    twice = options.replace(lists[0], lists[0] * 2, 1)
    found = find_repeat(twice)
    return twice if found is not None and found.once == options else None
