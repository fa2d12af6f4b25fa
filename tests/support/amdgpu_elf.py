"""Small AMDGPU code objects, made byte by byte so that each can be wrong in one way on purpose.

Layout as lld's: header, program headers, .note, .dynsym, .dynstr, .rodata (descriptors), .text,
section names, section headers. `flags` words are those of LLVM AMDGPUUsage for code object v4+.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import msgpack

MACH = {"gfx900": 0x2C, "gfx906": 0x2F, "gfx90a": 0x3F, "gfx942": 0x4C, "gfx1030": 0x36, "gfx1100": 0x41}
FEATURE = {"unsupported": 0, "any": 1, "off": 2, "on": 3}
BASE = 0x1000  # address of what stands at offset 0


def flags(arch: str, xnack: str = "unsupported", sramecc: str = "unsupported") -> int:
    """e_flags of code object v4 and later."""
    return MACH[arch] | FEATURE[xnack] << 8 | FEATURE[sramecc] << 10


def metadata(target: str, names: Sequence[str]) -> dict[str, Any]:
    """The smallest metadata of kernels `names`."""
    return {
        "amdhsa.version": [1, 2],
        "amdhsa.target": f"amdgcn-amd-amdhsa--{target}",
        "amdhsa.kernels": [
            {
                ".name": name,
                ".symbol": f"{name}.kd",
                ".group_segment_fixed_size": 256,
                ".private_segment_fixed_size": 0,
                ".kernarg_segment_size": 8,
                ".vgpr_count": 4,
                ".sgpr_count": 16,
                ".wavefront_size": 32,
                ".args": [{".size": 8, ".offset": 0, ".value_kind": "global_buffer"}],
            }
            for name in names
        ],
    }


def note(desc: bytes, *, owner: bytes = b"AMDGPU\0", kind: int = 32, size: int | None = None) -> bytes:
    """One note record; `size` lies about the description's."""
    pad = b"\0" * (-len(owner) % 4)
    tail = b"\0" * (-len(desc) % 4)
    return (
        struct.pack("<3I", len(owner), len(desc) if size is None else size, kind) + owner + pad + desc + tail
    )


def code_object(
    arch: str = "gfx1030",
    kernels: Sequence[str] = ("k",),
    *,
    xnack: str = "unsupported",
    sramecc: str = "unsupported",
    abi: int = 3,
    osabi: int = 64,
    machine: int = 224,
    elf_class: int = 2,
    order: int = 1,
    e_flags: int | None = None,
    meta: Mapping[str, Any] | bytes | None = None,
    no_meta: bool = False,
    descriptor_address: int | None = None,
    entry: int | None = None,
    text: bytes = b"\x00\x00\x81\xbf" * 4,
    symbol_suffix: str = ".kd",
    shnum: int | None = None,
    shoff: int | None = None,
) -> bytes:
    """One code object; every argument that is left alone is right."""
    word = flags(arch, xnack, sramecc) if e_flags is None else e_flags
    target = arch + "".join(
        f":{n}{'+' if s == 'on' else '-'}"
        for n, s in (("sramecc", sramecc), ("xnack", xnack))
        if s in ("on", "off")
    )
    value = metadata(target, kernels) if meta is None else meta
    desc = value if isinstance(value, bytes) else msgpack.packb(dict(value))
    notes = b"" if no_meta else note(desc)

    note_at = 64 + 56 * 2
    sym_at = note_at + len(notes)
    names = b"\0"
    symbols = [b"\0" * 24]
    str_at = sym_at + 24 * (1 + len(kernels))
    for n, kernel in enumerate(kernels):
        names_at = len(names)
        names += kernel.encode() + symbol_suffix.encode() + b"\0"
        symbols.append((names_at, n))  # type: ignore[arg-type]
    rodata_at = -(-(str_at + len(names)) // 64) * 64
    text_at = rodata_at + 64 * len(kernels)
    rows = b"".join(
        s
        if isinstance(s, bytes)
        else struct.pack(
            "<IBBHQQ",
            s[0],
            0x11,
            3,
            4,
            BASE + rodata_at + 64 * s[1] if descriptor_address is None else descriptor_address,
            64,
        )
        for s in symbols
    )
    rodata = b"".join(
        struct.pack(
            "<III4xq20xIIIHH4x",
            256,
            0,
            8,
            text_at - (rodata_at + 64 * n) if entry is None else entry,
            0,
            0x60AF0000,
            0x8C,
            0x408,
            0,
        )
        for n in range(len(kernels))
    )
    body = notes + rows + names
    body += b"\0" * (rodata_at - note_at - len(body)) + rodata + text
    shstr = b"\0.note\0.dynsym\0.dynstr\0.rodata\0.text\0.shstrtab\0"
    shstr_at = note_at + len(body)
    table_at = -(-(shstr_at + len(shstr)) // 8) * 8

    def section(name: bytes, kind: int, at: int, size: int, link: int = 0, entsize: int = 0) -> bytes:
        return struct.pack(
            *("<IIQQQQIIQQ", shstr.index(name), kind, 6 if name == b".text" else 2),
            *(BASE + at, at, size, link, 1, 8, entsize),
        )

    sections = b"\0" * 64 + b"".join(
        (
            section(b".note", 7, note_at, len(notes)),
            section(b".dynsym", 11, sym_at, len(rows), 3, 24),
            section(b".dynstr", 3, str_at, len(names)),
            section(b".rodata", 1, rodata_at, len(rodata)),
            section(b".text", 1, text_at, len(text)),
            section(b".shstrtab", 3, shstr_at, len(shstr)),
        )
    )
    ident = b"\x7fELF" + bytes((elf_class, order, 1, osabi, abi)) + b"\0" * 7
    endian = "<" if order == 1 else ">"
    header = ident + struct.pack(
        endian + "HHIQQQIHHHHHH",
        3,
        machine,
        1,
        0,
        64,
        table_at if shoff is None else shoff,
        word,
        64,
        56,
        2,
        64,
        7 if shnum is None else shnum,
        6,
    )
    end = shstr_at + len(shstr)
    segments = struct.pack("<IIQQQQQQ", 1, 5, 0, BASE, BASE, end, end, 4096) + struct.pack(
        "<IIQQQQQQ", 4, 4, note_at, BASE + note_at, BASE + note_at, len(notes), len(notes), 4
    )
    data = header + segments + body + shstr
    return data + b"\0" * (table_at - len(data)) + sections


def bundle(*entries: tuple[str, bytes], count: int | None = None, align: int = 4096) -> bytes:
    """An offload bundle of (entry name, bytes); `count` lies about the number."""
    table = b""
    at = -(-(32 + sum(24 + len(n) for n, _ in entries)) // align) * align
    body = b""
    for name, data in entries:
        start = at + len(body)
        table += struct.pack("<QQQ", start, len(data), len(name)) + name.encode()
        body += data + b"\0" * (-len(data) % align)
    head = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(entries) if count is None else count) + table
    return head + b"\0" * (at - len(head)) + body


def hip_bundle(data: bytes, target: str) -> bytes:
    """As clang makes it of a `.cpp` kernel: an empty host entry, then the device's."""
    return bundle(("host-x86_64-unknown-linux-gnu-", b""), (f"hipv4-amdgcn-amd-amdhsa--{target}", data))
