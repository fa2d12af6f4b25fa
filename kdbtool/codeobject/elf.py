"""The ELF of one code object, through pyelftools' structures.

Headers, sections, segments and symbols are read with its parsers; names and contents are cut out
of the bytes here, within bounds: the library's own name look-up follows a string as far as the
file goes, once per symbol.
"""

from __future__ import annotations

import functools
import struct
from bisect import bisect_right
from io import BytesIO
from itertools import accumulate
from typing import Any

from elftools.common.utils import struct_parse
from elftools.elf.structs import ELFStructs

from kdbtool.codeobject import flags as amdgpu
from kdbtool.codeobject.model import CodeObject, CodeObjectError, Descriptor, damage
from kdbtool.codeobject.notes import DESCRIPTOR_SIZE, descriptor_of, kernels_of, metadata_of, target_of

MAX_SECTIONS = 4096
MAX_SEGMENTS = 256
MAX_SYMBOLS = 65536
MAX_NAME = 4096
ET_DYN, EV_CURRENT, SHF_ALLOC = 3, 1, 2
INSTRUCTION_SIZE = 4  # the shortest there is
STT_AMDGPU_HSA_KERNEL = "STT_LOOS"  # number 10, which pyelftools knows by its generic name


@functools.cache
def _structs(elf_class: int, little_endian: bool) -> Any:
    """pyelftools' parsers; ELFFile would build them anew for each of a hundred thousand objects."""
    structs = ELFStructs(little_endian=little_endian, elfclass=elf_class)
    structs.create_basic_structs()
    structs.create_advanced_structs("ET_DYN", "EM_AMDGPU", None)
    return structs


class Elf:
    """Bounded access to the parts of one ELF."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        if data[:4] != b"\x7fELF":
            start = data[:8].hex(" ") if data else "nothing"
            raise CodeObjectError("not-elf", f"starts with {start}")
        if len(data) < 64:
            raise CodeObjectError("bad-elf", f"only {len(data)} bytes")
        self.stream = BytesIO(data)
        self.elf_class = {1: 32, 2: 64}.get(data[4], 0)
        self.little_endian = data[5] == 1
        if not self.elf_class or data[5] not in (1, 2):
            raise CodeObjectError("bad-elf", f"class {data[4]}, byte order {data[5]}")
        with damage("bad-elf", "ELF header"):
            self.structs = _structs(self.elf_class, self.little_endian)
            self.header: Any = struct_parse(self.structs.Elf_Ehdr, self.stream, 0)

    def table(self, what: str, offset: int, size: int, count: int, expected: int, limit: int) -> None:
        """Refuse a table of `count` entries of `size` bytes that is too long or leaves the file."""
        if count > limit:
            raise CodeObjectError("bad-elf", f"{count} {what}")
        if count and (size < expected or offset + size * count > len(self.data)):
            raise CodeObjectError("bad-elf", f"the table of {what} ends past the end of the file")

    def sections(self) -> list[Any]:
        """Every section header."""
        with damage("bad-elf", "section headers"):
            count = self.header.e_shnum
            shape = self.structs.Elf_Shdr
            size, at = self.header.e_shentsize, self.header.e_shoff
            self.table("sections", at, size, count, shape.sizeof(), MAX_SECTIONS)
            return [struct_parse(shape, self.stream, at + n * size) for n in range(count)]

    def segments(self) -> list[Any]:
        """Every program header."""
        with damage("bad-elf", "program headers"):
            count = self.header.e_phnum
            shape = self.structs.Elf_Phdr
            size, at = self.header.e_phentsize, self.header.e_phoff
            self.table("segments", at, size, count, shape.sizeof(), MAX_SEGMENTS)
            return [struct_parse(shape, self.stream, at + n * size) for n in range(count)]

    def content(self, section: Any) -> bytes:
        """The bytes of a section."""
        if section.sh_type == "SHT_NOBITS":
            return b""
        end = section.sh_offset + section.sh_size
        if end > len(self.data):
            raise CodeObjectError("bad-elf", f"a section ends at byte {end} of {len(self.data)}")
        return self.data[section.sh_offset : end]

    def symbols(self, sections: list[Any], table: Any) -> list[tuple[bytes, Any]]:
        """(name, entry) of each symbol of a symbol table."""
        with damage("bad-elf", "symbol table"):
            shape = self.structs.Elf_Sym
            size = table.sh_entsize
            if size != shape.sizeof():
                raise CodeObjectError("bad-elf", f"symbols of {size} bytes")
            count = table.sh_size // size
            self.table("symbols", table.sh_offset, size, count, shape.sizeof(), MAX_SYMBOLS)
            if table.sh_link >= len(sections) or sections[table.sh_link].sh_type != "SHT_STRTAB":
                raise CodeObjectError("bad-elf", "a symbol table without its names")
            names = self.content(sections[table.sh_link])
            found = []
            for n in range(count):
                entry = struct_parse(shape, self.stream, table.sh_offset + n * size)
                found.append((_name(names, entry.st_name), entry))
            return found

    def section_names(self, sections: list[Any]) -> list[str]:
        """The name of each section; "" for all where the file has no table of them."""
        at = self.header.e_shstrndx
        if not 0 < at < len(sections):
            return [""] * len(sections)
        names = self.content(sections[at])
        return [_text(_name(names, s.sh_name)) for s in sections]

    def at_address(self, segments: list[Any], address: int, size: int) -> bytes | None:
        """`size` bytes that are loaded at `address`, None where no segment holds them."""
        for segment in segments:
            if segment.p_type != "PT_LOAD":
                continue
            inside = address - segment.p_vaddr
            if inside >= 0 and inside + size <= segment.p_filesz:
                start = segment.p_offset + inside
                piece = self.data[start : start + size]
                return piece if len(piece) == size else None
        return None


def parse_elf(data: bytes, container: str, bundle_target: str | None) -> CodeObject:
    """The code object in the ELF `data`."""
    elf = Elf(data)
    ident = elf.header.e_ident
    abi = int(ident.EI_ABIVERSION)
    version = amdgpu.CODE_OBJECT_VERSION.get(abi) if data[7] == amdgpu.ELFOSABI_AMDGPU_HSA else None
    order = "little" if elf.little_endian else "big"
    machine = int.from_bytes(data[18:20], order)  # type: ignore[arg-type]
    raw_flags = int(elf.header.e_flags)
    ours = machine == amdgpu.EM_AMDGPU and elf.elf_class == 64 and elf.little_endian
    mach = amdgpu.mach_of(raw_flags) if ours else None
    xnack, sramecc = amdgpu.features_of(raw_flags, version, mach)
    head: dict[str, Any] = {
        "container": container,
        "bundle_target": bundle_target,
        "elf_class": elf.elf_class,
        "little_endian": elf.little_endian,
        "machine": machine,
        "osabi": data[7],
        "abi_version": abi,
        "flags": raw_flags,
        "mach": mach,
        "xnack": xnack,
        "sramecc": sramecc,
        "code_object_version": version,
        "elf": data,
    }
    if not ours:
        return CodeObject(**head)
    sections, segments = elf.sections(), elf.segments()
    _loadable(elf, sections, segments)
    metadata = _metadata(elf, sections)
    kernels, descriptors = _kernels(elf, sections, segments, version)
    return CodeObject(
        **head,
        kernels=tuple(sorted(kernels)),
        descriptors=descriptors,
        metadata=metadata,
        metadata_kernels=kernels_of(metadata) if metadata is not None else (),
        target=target_of(metadata) if metadata is not None else None,
    )


def _loadable(elf: Elf, sections: list[Any], segments: list[Any]) -> None:
    """Refuse what no loader takes, whatever the kernels (csrc/simgpu/elf.c refuses the same)."""
    kind, version = struct.unpack_from("<HxxI", elf.data, 16)
    if kind != ET_DYN or version != EV_CURRENT:
        raise CodeObjectError("bad-elf", f"not linked: type {kind}, ELF version {version}")
    whole = len(elf.data)
    for part in sections:
        if part.sh_type not in ("SHT_NULL", "SHT_NOBITS") and part.sh_offset + part.sh_size > whole:
            raise CodeObjectError("bad-elf", "a section ends past the end of the file")
    for part in segments:
        if part.p_offset + part.p_filesz > whole:
            raise CodeObjectError("bad-elf", "a segment ends past the end of the file")
        if part.p_type == "PT_LOAD" and part.p_filesz > part.p_memsz:
            raise CodeObjectError("bad-elf", "a segment is larger in the file than in memory")


def _metadata(elf: Elf, sections: list[Any]) -> Any:
    for section in sections:
        if section.sh_type == "SHT_NOTE":
            found = metadata_of(elf.content(section))
            if found is not None:
                return found
    return None


def _kernels(
    elf: Elf, sections: list[Any], segments: list[Any], version: int | None
) -> tuple[set[str], dict[str, Descriptor]]:
    """Names of the kernels, and their descriptors by name: of .dynsym, in which loaders look."""
    starts, ends = _reach(sections)
    for wanted in ("SHT_DYNSYM",) if version != 2 else ("SHT_DYNSYM", "SHT_SYMTAB"):
        names: set[str] = set()
        descriptors: dict[str, Descriptor] = {}
        for table in sections:
            if table.sh_type != wanted:
                continue
            for raw, entry in elf.symbols(sections, table):
                if entry.st_shndx == "SHN_UNDEF":
                    continue
                if version == 2:
                    if entry.st_info.type == STT_AMDGPU_HSA_KERNEL:
                        names.add(_text(raw))
                elif raw.endswith(b".kd"):
                    name = _text(raw[:-3])
                    names.add(name)
                    # Loaders read it out of its section.
                    before = bisect_right(starts, entry.st_value)
                    inside = before and ends[before - 1] >= entry.st_value + DESCRIPTOR_SIZE
                    descriptor = _descriptor(elf, segments, entry.st_value) if inside else None
                    if descriptor is not None:
                        descriptors[name] = descriptor
        if names:
            return names, descriptors
    return set(), {}


def _reach(sections: list[Any]) -> tuple[list[int], list[int]]:
    """(addresses, the furthest end of a loaded section that begins there or before)."""
    ranges = sorted(
        (int(s.sh_addr), int(s.sh_addr + s.sh_size))
        for s in sections
        if s.sh_flags & SHF_ALLOC and s.sh_type not in ("SHT_NULL", "SHT_NOBITS")
    )
    return [start for start, _ in ranges], list(accumulate((end for _, end in ranges), max))


def _descriptor(elf: Elf, segments: list[Any], address: int) -> Descriptor | None:
    """The descriptor at `address`, None unless it and the code that it points to are loaded."""
    piece = elf.at_address(segments, address, DESCRIPTOR_SIZE)
    if piece is None:
        return None
    found = descriptor_of(piece)
    entry = address + found.kernel_code_entry_byte_offset
    return found if elf.at_address(segments, entry, INSTRUCTION_SIZE) is not None else None


def _name(names: bytes, offset: int) -> bytes:
    if offset >= len(names):
        if offset == 0:
            return b""
        raise CodeObjectError("bad-elf", "the name of a symbol lies outside its table")
    end = names.find(b"\0", offset, offset + MAX_NAME + 1)
    if end < 0:
        raise CodeObjectError("bad-elf", f"the name of a symbol is longer than {MAX_NAME} bytes")
    return names[offset:end]


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
