"""Whether two code objects hold the same code, and what each kernel takes of the machine.

The same code: the same target, and for each kernel the same name, machine code, descriptor and launch
metadata; the same other functions, data and relocations. Not looked at: the .comment section, the
code object version, a bundle around the ELF, symbols of no size or of `__hip_cuid_*`, names and types of
arguments, counts in the metadata that the descriptor says in its own way, and where the linker put things:
distances to other functions and sections are compared by what they lead to (`image`). Where code may reach
others by a distance that is not recognised, layout counts: objects can be called different for it alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from kdbtool.codeobject import descriptor as bits
from kdbtool.codeobject.image import Image
from kdbtool.codeobject.model import CodeObject, KernelMeta

SHARED = ""  # the name under which `digests` keeps what belongs to no single kernel


@dataclass(frozen=True)
class Resources:
    """What one kernel takes; None where the object does not say. Registers per lane, sizes in bytes.

    vgpr, sgpr and agpr are the metadata's counts; without metadata the descriptor's, in granules.
    """

    vgpr: int | None
    sgpr: int | None
    agpr: int | None
    lds: int | None
    scratch: int | None
    wave: int | None
    code_bytes: int | None
    kernarg: int | None


def kernels(obj: CodeObject) -> dict[str, Resources]:
    """The resources of each kernel by its name; CodeObjectError for a damaged ELF."""
    return _resources(obj, Image(obj.elf))


def _resources(obj: CodeObject, image: Image) -> dict[str, Resources]:
    sizes = {f.name: len(f.code) for f in image.functions}
    listed = {k.symbol.removesuffix(".kd"): k for k in obj.metadata_kernels}
    out = {}
    for name in obj.kernels:
        meta = listed.get(name, KernelMeta(name, name))
        found = obj.descriptors.get(name)
        if found is not None:
            accum = bits.accum_offset(found, obj.mach)
            total = bits.vgprs(found, obj.mach)
            wave32 = found.wave32 and (bits.version_of(obj.mach) or (0,))[0] >= 10
            meta = replace(
                meta,
                vgpr=_or(meta.vgpr, total),
                sgpr=_or(meta.sgpr, bits.sgprs(found, obj.mach)),
                agpr=_or(meta.agpr, max(0, total - accum) if accum is not None and total else None),
                lds=_or(meta.lds, found.group_segment_fixed_size),
                scratch=_or(meta.scratch, found.private_segment_fixed_size),
                kernarg_size=_or(meta.kernarg_size, found.kernarg_size),
                wavefront_size=_or(meta.wavefront_size, 32 if wave32 else 64),
            )
        out[name] = Resources(
            meta.vgpr, meta.sgpr, meta.agpr, meta.lds, meta.scratch, meta.wavefront_size,
            sizes.get(name), meta.kernarg_size,
        )  # fmt: skip
    return out


def digests(obj: CodeObject) -> dict[str, str]:
    """sha256 by kernel name, and under SHARED of all that the kernels have in common.

    CodeObjectError for a damaged ELF.
    """
    return _digests(obj, Image(obj.elf))


def _digests(obj: CodeObject, image: Image) -> dict[str, str]:
    listed = {k.symbol.removesuffix(".kd"): k for k in obj.metadata_kernels}
    own = set(obj.kernels)
    code: dict[str, list[bytes]] = {}
    for function in sorted(image.functions, key=lambda f: f.name):
        code.setdefault(function.name, []).extend(image.code(function))
    out = {}
    for name in obj.kernels:
        found = obj.descriptors.get(name)
        said = repr(replace(found, kernel_code_entry_byte_offset=0)) if found is not None else "none"
        out[name] = _sha256([name.encode(), said.encode(), _launch(listed.get(name)), *code.get(name, [])])
    # The distance from a descriptor to its code is layout; whether the entry is the symbol is not.
    entries = {}
    blank = {}
    for name, descriptor in obj.descriptors.items():
        address = image.address_of(f"{name}.kd")
        if address is not None:
            blank[address + 16] = 8
            entries[name] = str(image.place(address + descriptor.kernel_code_entry_byte_offset))
    pieces = [f"target {obj.target_id}".encode(), f"entries {sorted(entries.items())}".encode()]
    pieces.append(repr((obj.metadata or {}).get("amdhsa.printf")).encode())  # the runtime prints with it
    for name, parts in code.items():
        if name not in own:
            pieces += [f"function {name}".encode(), *parts]
    for where, between in image.gaps:
        pieces += [f"after {where}".encode(), between]
    relocations = list(image.relocations())
    blank |= {address: 8 for address, _ in relocations}
    for name, contents in image.data(blank):
        pieces += [f"data {name}".encode(), contents]
    pieces += [text.encode() for text in (*image.variables(own), *image.layout())]
    pieces += image.loaded()
    pieces += sorted(text.encode() for _, text in relocations)
    return {SHARED: _sha256(pieces), **out}


def code_identity(obj: CodeObject) -> str:
    """sha256 over all of `digests`: equal for objects that hold the same code."""
    return _sha256(f"{name} {digest}".encode() for name, digest in sorted(digests(obj).items()))


@dataclass(frozen=True)
class Summary:
    """All that a comparison of objects needs of one; small enough to keep."""

    target: str
    identity: str
    digests: dict[str, str]
    kernels: dict[str, Resources]


def summary(obj: CodeObject) -> Summary:
    """Both of the above in one go; CodeObjectError for a damaged ELF."""
    image = Image(obj.elf)
    found = _digests(obj, image)
    identity = _sha256(f"{name} {digest}".encode() for name, digest in sorted(found.items()))
    return Summary(obj.target_id, identity, found, _resources(obj, image))


def _launch(meta: KernelMeta | None) -> bytes:
    """What the runtime reads of the metadata to launch the kernel."""
    if meta is None:
        return b"no metadata"
    arguments = [(a.offset, a.size, a.kind, a.address_space, a.pointee_align) for a in meta.args]
    numbers = (
        meta.lds, meta.scratch, meta.kernarg_size, meta.kernarg_align, meta.wavefront_size,
        meta.max_flat_workgroup_size, meta.reqd_workgroup_size, bool(meta.uses_dynamic_stack),
        meta.role or "normal",
    )  # fmt: skip
    return repr((arguments, numbers)).encode()


def _or(one: int | None, other: int | None) -> int | None:
    return other if one is None else one


def _sha256(parts: Iterable[bytes]) -> str:
    """Of the parts, each with its length before it: no two lists of parts read alike."""
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.hexdigest()
