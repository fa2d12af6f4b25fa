"""The uncompressed `__CLANG_OFFLOAD_BUNDLE__` around device code, as MIOpen 6.4.3 stores `.cpp` kernels.

Layout (clang, "Offload Bundler"): magic, entry count, then per entry offset, size, length of the
name, name (`<kind>-amdgcn-amd-amdhsa--<target id>`; `host-...` for the empty host part); all
numbers little-endian, 64 bits; offsets from the start of the bundle. With --offload-compress, which
MIOpen never passes, the whole is behind `CCOB`, its version and its method (16 bits each).
"""

from __future__ import annotations

from dataclasses import dataclass

from construct import Bytes, Const, Int64ul, Struct

from kdbtool.codeobject.model import CodeObjectError, damage

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED_MAGIC = b"CCOB"
MAX_ENTRIES = 64
MAX_NAME = 256

_HEADER = Struct("magic" / Const(MAGIC), "count" / Int64ul)
_ENTRY = Struct("offset" / Int64ul, "size" / Int64ul, "name_size" / Int64ul)
_METHODS = {0: "zlib", 1: "zstd"}  # llvm::compression::Format
_TRIPLE = "amdgcn-amd-amdhsa"


@dataclass(frozen=True)
class Entry:
    """One part of a bundle: its name and where its bytes are."""

    name: str
    offset: int
    size: int

    @property
    def target(self) -> str | None:
        """The target id (`gfx906:xnack-`), None for what is not AMD device code."""
        _, found, tail = self.name.partition(_TRIPLE)
        # The environment of the triple is empty: `--gfx906`; clang before 12 wrote `-gfx906`.
        return tail.lstrip("-") or None if found else None


def entries(data: bytes) -> list[Entry]:
    """Every entry of the bundle `data`; CodeObjectError when a number leads outside it."""
    with damage("bad-bundle", "offload bundle header"):
        count = _HEADER.parse(data[: _HEADER.sizeof()]).count
        if not 1 <= count <= MAX_ENTRIES:
            raise CodeObjectError("bad-bundle", f"{count} entries in the offload bundle")
        found = []
        at = _HEADER.sizeof()
        for number in range(count):
            head = _ENTRY.parse(data[at : at + _ENTRY.sizeof()])
            at += _ENTRY.sizeof()
            if head.name_size > MAX_NAME:
                raise CodeObjectError("bad-bundle", f"entry {number}: a name of {head.name_size} bytes")
            name = Bytes(head.name_size).parse(data[at : at + head.name_size]).decode("ascii")
            at += head.name_size
            if head.offset + head.size > len(data):
                raise CodeObjectError(
                    "bad-bundle",
                    f"entry {name}: bytes {head.offset} to {head.offset + head.size} of {len(data)}",
                )
            found.append(Entry(name, head.offset, head.size))
        return found


def compressed(data: bytes) -> str:
    """What a bundle that begins with COMPRESSED_MAGIC says of itself: format version and method."""
    version, method = int.from_bytes(data[4:6], "little"), int.from_bytes(data[6:8], "little")
    return f"version {version}, {_METHODS.get(method, f'method {method}')}"


def device_entry(data: bytes, arch: str | None) -> Entry:
    """The one entry of AMD device code; of several, that for `arch`."""
    devices = [e for e in entries(data) if e.target]
    if arch is not None and len(devices) > 1:
        ours = [e for e in devices if str(e.target).partition(":")[0] == arch]
        # One that insists on no feature loads on every device of the architecture.
        devices = sorted(ours, key=lambda e: ":" in str(e.target)) or devices
    if not devices:
        raise CodeObjectError("bad-bundle", "no entry for an AMD device")
    return devices[0]
