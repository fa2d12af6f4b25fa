"""ELF notes, the AMDGPU metadata note (MessagePack) and kernel descriptors.

LLVM AMDGPUUsage: note records; "Code Object V3+ Metadata"; "Kernel Descriptor for GFX6-GFX12".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgpack
from construct import Bytes, Int16ul, Int32ul, Int64sl, Padding, Struct

from kdbtool.codeobject.model import CodeObjectError, Descriptor, KernelArg, KernelMeta, damage

NT_AMDGPU_METADATA = 32
OWNER = b"AMDGPU\0"
TARGET_PREFIX = "amdgcn-amd-amdhsa-"

_NOTE = Struct("name_size" / Int32ul, "desc_size" / Int32ul, "type" / Int32ul)
_DESCRIPTOR = Struct(
    "group_segment_fixed_size" / Int32ul,
    "private_segment_fixed_size" / Int32ul,
    "kernarg_size" / Int32ul,
    Padding(4),
    "kernel_code_entry_byte_offset" / Int64sl,
    Padding(20),
    "compute_pgm_rsrc3" / Int32ul,
    "compute_pgm_rsrc1" / Int32ul,
    "compute_pgm_rsrc2" / Int32ul,
    "kernel_code_properties" / Int16ul,
    "kernarg_preload" / Int16ul,
    Padding(4),
)
DESCRIPTOR_SIZE = 64
# An array's header may promise what the note does not hold, and msgpack allots it at once: at its
# 512 levels of nesting these limits keep that to some 60 MB.
_LIMITS = {"max_array_len": 16384, "max_map_len": 16384, "max_ext_len": 0}


def notes(data: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    """(owner, type, description) of each record of a note section."""
    at = 0
    while at < len(data):
        with damage("bad-metadata", "note header"):
            head = _NOTE.parse(data[at : at + _NOTE.sizeof()])
            at += _NOTE.sizeof()
            owner = Bytes(head.name_size).parse(data[at : at + head.name_size])
            at += -(-head.name_size // 4) * 4
            desc = Bytes(head.desc_size).parse(data[at : at + head.desc_size])
            at += -(-head.desc_size // 4) * 4
        yield owner, head.type, desc


def metadata_of(section: bytes) -> Mapping[str, Any] | None:
    """The AMDGPU metadata in a note section, None when it holds none."""
    for owner, kind, desc in notes(section):
        if kind == NT_AMDGPU_METADATA and owner == OWNER:
            with damage("bad-metadata", "AMDGPU metadata"):
                value = msgpack.unpackb(desc, raw=False, **_LIMITS)
                if not isinstance(value, dict):
                    raise CodeObjectError("bad-metadata", "AMDGPU metadata: not a map")
                return value
    return None


def target_of(metadata: Mapping[str, Any]) -> str | None:
    """`amdhsa.target` without the triple: `gfx906:xnack-`."""
    target = metadata.get("amdhsa.target")
    if target is None:
        return None
    if not isinstance(target, str) or not target.startswith(TARGET_PREFIX):
        raise CodeObjectError("bad-metadata", "amdhsa.target is no AMD target")
    return target.removeprefix(TARGET_PREFIX).lstrip("-")


def kernels_of(metadata: Mapping[str, Any]) -> tuple[KernelMeta, ...]:
    """The kernels that the metadata lists; CodeObjectError when a field has a wrong type."""
    rows = metadata.get("amdhsa.kernels", [])
    if not isinstance(rows, list):
        raise CodeObjectError("bad-metadata", "amdhsa.kernels is not a list")
    return tuple(_kernel(row) for row in rows)


def _kernel(row: Any) -> KernelMeta:
    if not isinstance(row, dict):
        raise CodeObjectError("bad-metadata", "an entry of amdhsa.kernels is not a map")
    name, symbol = row.get(".name"), row.get(".symbol")
    if not isinstance(name, str) or not isinstance(symbol, str):
        raise CodeObjectError("bad-metadata", "a kernel without .name and .symbol")
    args = row.get(".args", [])
    if not isinstance(args, list) or not all(isinstance(a, dict) for a in args):
        raise CodeObjectError("bad-metadata", f"{name[:80]}: .args is not a list of maps")
    return KernelMeta(
        name=name,
        symbol=symbol,
        lds=_number(row, ".group_segment_fixed_size"),
        scratch=_number(row, ".private_segment_fixed_size"),
        kernarg_size=_number(row, ".kernarg_segment_size"),
        vgpr=_number(row, ".vgpr_count"),
        agpr=_number(row, ".agpr_count"),
        sgpr=_number(row, ".sgpr_count"),
        vgpr_spills=_number(row, ".vgpr_spill_count"),
        sgpr_spills=_number(row, ".sgpr_spill_count"),
        wavefront_size=_number(row, ".wavefront_size"),
        kernarg_align=_number(row, ".kernarg_segment_align"),
        max_flat_workgroup_size=_number(row, ".max_flat_workgroup_size"),
        reqd_workgroup_size=_numbers(row, ".reqd_workgroup_size"),
        uses_dynamic_stack=_flag(row, ".uses_dynamic_stack"),
        role=_text(row, ".kind"),
        args=tuple(_arg(a) for a in args),
    )


def _arg(row: Mapping[str, Any]) -> KernelArg:
    return KernelArg(
        offset=_number(row, ".offset"),
        size=_number(row, ".size"),
        kind=_text(row, ".value_kind"),
        name=_text(row, ".name"),
        type_name=_text(row, ".type_name"),
        address_space=_text(row, ".address_space"),
        pointee_align=_number(row, ".pointee_align"),
    )


def _number(row: Mapping[str, Any], key: str) -> int | None:
    value = row.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise CodeObjectError("bad-metadata", f"{key} is not a number")
    return value


def _numbers(row: Mapping[str, Any], key: str) -> tuple[int, ...] | None:
    value = row.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or len(value) > 3 or not all(type(n) is int for n in value):
        raise CodeObjectError("bad-metadata", f"{key} is not a list of up to three numbers")
    return tuple(value)


def _flag(row: Mapping[str, Any], key: str) -> bool | None:
    """A boolean; assemblers write 0 and 1 for it."""
    value = row.get(key)
    if value is None:
        return None
    if value not in (0, 1):
        raise CodeObjectError("bad-metadata", f"{key} is neither true nor false")
    return bool(value)


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key, "")
    if not isinstance(value, str):
        raise CodeObjectError("bad-metadata", f"{key} is not a text")
    return value


def descriptor_of(data: bytes) -> Descriptor:
    """A kernel descriptor out of its 64 bytes."""
    with damage("bad-descriptor", "kernel descriptor"):
        fields = _DESCRIPTOR.parse(data)
        return Descriptor(**{k: v for k, v in fields.items() if not k.startswith("_")})
