"""From the bytes of a kdb row to a CodeObject: a bare ELF, or the device's part of a bundle."""

from __future__ import annotations

from kdbtool.codeobject import bundle
from kdbtool.codeobject.elf import parse_elf
from kdbtool.codeobject.model import CodeObject, CodeObjectError


def parse(data: bytes, arch: str | None = None) -> CodeObject:
    """The code object in `data`; of a bundle for several devices, that of `arch`.

    Raises CodeObjectError, and nothing else, for any bytes.
    """
    if data.startswith(bundle.MAGIC):
        entry = bundle.device_entry(data, arch)
        return parse_elf(data[entry.offset : entry.offset + entry.size], "bundle", entry.target)
    if data.startswith(bundle.COMPRESSED_MAGIC):
        said = bundle.compressed(data)
        raise CodeObjectError(
            "bad-bundle", f"a compressed offload bundle ({said}), which MIOpen never stores"
        )
    return parse_elf(data, "elf", None)
