"""Whether a code object is what its key promises: the part of `verify` that `rebuild` shares."""

from __future__ import annotations

from collections.abc import Mapping

from kdbtool.codeobject import flags as amdgpu
from kdbtool.codeobject.model import CodeObject, CodeObjectError
from kdbtool.codeobject.parse import parse
from kdbtool.kdb.findings import BY_CODE, Code, Finding

_DEVICE_FEATURES = ("sramecc", "xnack")


def check_object(data: bytes, arch: str | None, expected_target: str | None = None) -> list[Finding]:
    """What is wrong with the object `data` under a key whose -mcpu is `arch`.

    `expected_target` is the target id of the devices (`gfx906:sramecc+:xnack-`) or the one that the
    object was compiled for; by default that of the known devices of `arch`. Explicit features that
    it has are a note, others a problem. `arch` None: nothing is said about architecture or features.
    """
    try:
        found = parse(data, arch)
    except CodeObjectError as error:
        return [damage_finding(error)]
    return check_parsed(found, arch, expected_target)


def damage_finding(error: CodeObjectError) -> Finding:
    """The finding that stands for bytes which do not parse."""
    return Finding(BY_CODE[error.code], error.text)


def check_parsed(found: CodeObject, arch: str | None, expected_target: str | None = None) -> list[Finding]:
    """`check_object` for an object that is parsed already."""
    if found.elf_class != 64 or not found.little_endian:
        order = "little" if found.little_endian else "big"
        return [Finding(Code.ELF_CLASS, f"{found.elf_class}-bit {order}-endian")]
    if found.machine != amdgpu.EM_AMDGPU or found.osabi != amdgpu.ELFOSABI_AMDGPU_HSA:
        return [Finding(Code.ELF_MACHINE, f"machine {found.machine}, OS ABI {found.osabi}")]
    findings = [*_version(found), *_bundle(found)]
    if arch is not None:
        findings += [*_arch(found, arch), *_features(found, arch, expected_target)]
    return [*findings, *_kernels(found)]


def device_target(arch: str) -> str | None:
    """The target id of the devices of `arch`, None for one that kdbtool has no data for."""
    from kdbtool import targets  # late: rebuild's workers check objects without reading any data file

    return targets.load(arch).device if arch in targets.known() else None


def target_features(target: str) -> Mapping[str, str]:
    """{"xnack": "off"} of `gfx906:xnack-`."""
    parts = target.split(":")[1:]
    return {p[:-1]: "on" if p.endswith("+") else "off" for p in parts if p[-1:] in "+-"}


def _version(found: CodeObject) -> list[Finding]:
    version = found.code_object_version
    if version is None:
        return [Finding(Code.OBJECT_VERSION, f"EI_ABIVERSION {found.abi_version}")]
    return [Finding(Code.OBJECT_OLD, f"version {version}")] if version < 4 else []


def _bundle(found: CodeObject) -> list[Finding]:
    if found.bundle_target is None or found.mach is None:
        return []
    arch, _, _ = found.bundle_target.partition(":")
    named = target_features(found.bundle_target)
    wrong = arch != found.mach or any(
        named[f] != state
        for f, state in (("xnack", found.xnack), ("sramecc", found.sramecc))
        if f in named and state in ("on", "off")
    )
    return [Finding(Code.BUNDLE_TARGET, f"{found.bundle_target}, ELF {found.target_id}")] if wrong else []


def _arch(found: CodeObject, arch: str) -> list[Finding]:
    mach = found.mach or f"number {found.flags & 0xFF:#x}"
    if mach == arch:
        return []
    if arch in amdgpu.GENERIC.get(mach, ()):
        return [Finding(Code.GENERIC_ARCH, f"{mach}, -mcpu={arch}")]
    return [Finding(Code.ELF_ARCH, f"{mach}, -mcpu={arch}")]


def _features(found: CodeObject, arch: str, expected: str | None) -> list[Finding]:
    explicit = target_features(found.target_id)
    if not explicit or found.mach != arch:
        return []
    target = expected if expected is not None else device_target(arch)
    if target is None:
        return [Finding(Code.FEATURES_EXPLICIT, f"{found.target_id}; devices of {arch} not known")]
    have = target_features(target)
    foreign = any(have.get(f) != explicit[f] for f in _DEVICE_FEATURES if f in explicit)
    code = Code.FEATURES_FOREIGN if foreign else Code.FEATURES_EXPLICIT
    return [Finding(code, f"{found.target_id}, devices {target}")]


def _kernels(found: CodeObject) -> list[Finding]:
    findings = []
    if not found.kernels:
        findings.append(Finding(Code.NO_KERNELS))
    for name in found.kernels:
        if found.code_object_version != 2 and name not in found.descriptors:
            findings.append(Finding(Code.BAD_DESCRIPTOR, name))
    if found.code_object_version == 2:
        return findings  # its metadata is YAML, which loaders of today do not read either
    if found.metadata is None:
        return [*findings, Finding(Code.NO_METADATA)] if found.kernels else findings
    listed = {k.symbol.removesuffix(".kd") for k in found.metadata_kernels}
    findings += [Finding(Code.KERNEL_NO_METADATA, n) for n in found.kernels if n not in listed]
    findings += [Finding(Code.METADATA_NO_KERNEL, n) for n in sorted(listed - set(found.kernels))]
    if found.target is not None and found.mach is not None and found.target != found.target_id:
        findings.append(Finding(Code.TARGET_DISAGREES, f"{found.target}, flags {found.target_id}"))
    return findings
