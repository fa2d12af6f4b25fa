"""Whether a MIOpen build can ever ask for a row of a kernel database, and what would make it live.

MIOpen asks for `<source>.o` and options that end in ` -mcpu=` and the bare architecture, with the data type
list of its own epoch, once or twice (src/hip/handlehip.cpp, src/binary_cache.cpp, datatype.hpp). Not judged:
whether a solver writes a leading space, which differs by solver and version.
"""

from __future__ import annotations

from kdbtool.miopen.keys import MCPU, SUFFIX, define_lists, is_source, language, split_mcpu
from kdbtool.miopen.versions import Epoch, MiopenBuild
from kdbtool.reasons import Reason

_HEAD = b" -DMIOPEN_USE_FP16="
_FULL = b" -DMIOPEN_USE_INT8="  # only full lists have it; BN and activation kernels write short ones


def judge(name: bytes, args: bytes, arch: str | None, build: MiopenBuild | None) -> list[Reason]:
    """All reasons why the row is dead, in their fixed order; empty for a live one.

    `arch` is the database's bare architecture, None where it is not known; without a `build` only what holds
    for every MIOpen is judged. A `.mlir` kernel has no source in any MIOpen.
    """
    reasons = []
    dotted = name.endswith(SUFFIX)
    source = _source(name[: -len(SUFFIX)] if dotted else name)
    if not dotted:
        reasons.append(Reason.NO_DOT_O)
    if b"'" in name or b"'" in args:
        reasons.append(Reason.QUOTE)
    split = split_mcpu(args)
    mlir = source is not None and language(source) == "mlir"
    if split is None:
        if not mlir:
            reasons.append(Reason.NO_MCPU)
    else:
        bare, colon, _ = split[1].partition(":")
        if colon:
            reasons.append(Reason.TARGET_ID)
        if arch and bare != arch:
            reasons.append(Reason.FOREIGN_MCPU)
    if build is not None:
        if source is None or source not in build.kernels:
            reasons.append(Reason.NO_SOURCE)
        if not _epoch_fits(args, build.epoch):
            reasons.append(Reason.EPOCH)
    return sorted(reasons, key=lambda reason: reason.order)


def repair(name: bytes, args: bytes, arch: str | None) -> tuple[bytes, bytes]:
    """The key that MIOpen would ask with, as far as spelling goes: `.o` and a bare `-mcpu` at the end.

    What cannot be repaired (another architecture, another epoch, a quote) comes back as it is.
    """
    stem = name[: -len(SUFFIX)] if name.endswith(SUFFIX) else name
    source = _source(stem)
    if source is None or language(source) is None:
        return name, args
    split = split_mcpu(args)
    if split is not None:
        options, value = split
        bare = value.partition(":")[0]
        if bare:
            args = options + MCPU + bare.encode("ascii")
    elif arch and language(source) != "mlir" and MCPU.strip() not in args:
        args += MCPU + arch.encode("ascii")
    return stem + SUFFIX, args


def _source(stem: bytes) -> str | None:
    text = stem.decode("ascii", "replace")
    return text if is_source(text) else None


def full_lists(run: bytes) -> list[bytes]:
    """The whole data type lists in `run`, a run of data type defines; empty where it has but some."""
    if _FULL not in run:
        return []
    return [_HEAD + part for part in run.split(_HEAD)[1:]]  # a kernel's own defines may stand before


def _epoch_fits(args: bytes, epoch: Epoch) -> bool:
    """Each full data type list is the epoch's, and each run of them has one or two."""
    for run in define_lists(args):
        if _FULL not in run:
            continue
        lists = full_lists(run)
        if not 1 <= len(lists) <= 2 or not all(epoch.matches(one) for one in lists):
            return False
    return True
