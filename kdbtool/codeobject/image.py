"""The loaded parts of a code object, told apart from where the linker put them.

Functions with their bounds, data by section, relocations; addresses become (function or section, offset),
so that the same code at another place reads the same. AMDGPU code reaches other sections by
`s_getpc_b64`, then an addition with carry of a 64-bit distance (LLVM AMDGPUUsage, "Code Object
Relocation Records": rel32@lo and rel32@hi); such pairs are found, and their distance is replaced. Where code
may reach others in another way, `layout` says how all lie to each other; where the sections are not all
that is loaded, `loaded` gives the bytes themselves.
"""

from __future__ import annotations

import heapq
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kdbtool.codeobject.descriptor import version_of
from kdbtool.codeobject.elf import Elf
from kdbtool.codeobject.flags import mach_of
from kdbtool.codeobject.model import CodeObjectError, damage

CUID = "__hip_cuid_"  # an empty variable, named by a hash of path and options (clang, CodeGenModule)
MAX_CODE = 64 << 20  # bytes of all functions: overlapping symbols can promise any amount
MAX_REFERENCES = 200_000  # of all functions
_OVERLAP = 8  # symbols of one address that are tried
_ALLOC, _EXEC = 2, 4  # sh_flags
# What the linker makes to find the rest; none of it is code or data of the program.
_LINKERS = {"SHT_NOTE", "SHT_DYNSYM", "SHT_GNU_HASH", "SHT_HASH", "SHT_STRTAB", "SHT_DYNAMIC", "SHT_RELA"}
# s_getpc_b64 (opcode 0x1c up to gfx9, 0x1f on gfx10, 0x47 from gfx11 on), at most two words that only
# wait or extend the sign (gfx12), s_add_u32 with a literal, again such words, s_addc_u32 with a literal.
_BETWEEN = rb"(?:..[\x80-\xff][\xbe\xbf]){0,2}"
_REFERENCE = re.compile(
    rb".[\x1c\x1f\x47][\x80-\xff]\xbe" + _BETWEEN + rb".\xff[\x00-\x7f]\x80(?P<low>.{4})"
    rb"" + _BETWEEN + rb".\xff[\x00-\x7f]\x82(?P<high>.{4})",
    re.DOTALL,
)
# s_getpc_b64 in any other use; s_add_u32 with a literal and a carry into nothing is one of those that are
# understood: sp3's assembler writes it for places in the same function.
_GETPC = re.compile(rb".[\x1c\x1f\x47][\x80-\xff]\xbe", re.DOTALL)
_SHORT = re.compile(_GETPC.pattern + rb".\xff[\x00-\x7f]\x80(?P<low>.{4}).\x80[\x00-\x7f]\x82", re.DOTALL)
# s_branch, s_cbranch_*, s_call_b64 with a distance of 16 bits in words: up to gfx9, gfx10, from gfx11 on.
_BRANCHES = {
    9: re.compile(rb"(..)(?:[\x82\x84-\x89]\xbf|[\x80-\xff]\xba)", re.DOTALL),
    10: re.compile(rb"(..)(?:[\x82\x84-\x89]\xbf|[\x00-\x7f]\xbb)", re.DOTALL),
    11: re.compile(rb"(..)(?:[\xa0-\xa8]\xbf|[\x00-\x7f]\xba)", re.DOTALL),
}
# Words that fill the space between functions: zero, s_nop 0, s_code_end.
_PADDING = {b"\0\0\0\0", b"\x00\x00\x80\xbf", b"\x00\x00\x9f\xbf"}


@dataclass(frozen=True)
class Place:
    """An address as (function, object or section) and the bytes from its start."""

    kind: str  # "function", "object" or "section": their names may be equal
    base: str
    offset: int

    def __str__(self) -> str:
        return f"{self.kind} {self.base}+{self.offset:#x}"


@dataclass(frozen=True)
class Function:
    """Code from `address` to the end of the symbol, or to the next one where the symbol has no size."""

    name: str
    address: int
    code: bytes


@dataclass(frozen=True)
class _Section:
    name: str
    address: int
    size: int
    data: bytes | None  # None: zeroes that are not in the file
    code: bool


_Reference = tuple[int, list[tuple[int, int]], Place | None]


class Image:
    """Functions, data and relocations of one ELF; CodeObjectError for one that is damaged."""

    def __init__(self, data: bytes) -> None:
        elf = Elf(data)
        raw = elf.sections()
        names = elf.section_names(raw)
        self.sections = [
            _Section(
                name,
                int(s.sh_addr),
                int(s.sh_size),
                None if s.sh_type == "SHT_NOBITS" else elf.content(s),
                bool(s.sh_flags & _EXEC),
            )
            for name, s in zip(names, raw, strict=True)
            if s.sh_flags & _ALLOC and s.sh_type not in _LINKERS and s.sh_size
        ]
        symbols = _symbols(elf, raw)
        self.objects = sorted(
            (int(s.st_value), int(s.st_size), name)
            for name, s in symbols
            if s.st_info.type == "STT_OBJECT" and s.st_size and not name.startswith(CUID)
        )
        # The loader finds kernels and variables by .dynsym, whatever .symtab says of them.
        exported = _symbols(elf, raw, ("SHT_DYNSYM",))
        self._addresses = {name: int(s.st_value) for name, s in [*symbols, *exported]}
        self._exported = [
            (name, int(s.st_value), int(s.st_size))
            for name, s in exported
            if s.st_info.type == "STT_OBJECT" and not name.startswith(CUID)
        ]
        self.functions, self.gaps = self._functions(symbols)
        self._ranges = {
            "function": sorted((f.address, f.address + len(f.code), f.name) for f in self.functions),
            "object": [(start, start + size, name) for start, size, name in self.objects],
            "section": sorted((s.address, s.address + s.size, s.name) for s in self.sections),
        }
        major = (version_of(mach_of(int(elf.header.e_flags))) or (0,))[0]
        self._branch = _BRANCHES[min(max(major, 9), 11)]
        self._segments = [
            (int(p.p_offset), int(p.p_vaddr), int(p.p_filesz))
            for p in elf.segments()
            if p.p_type == "PT_LOAD" and p.p_filesz
        ]
        self._data = data
        self._known: dict[tuple[str, int], list[_Reference]] = {}
        self._left = MAX_REFERENCES
        self._is_as_loaded = self._sections_are_loaded(elf, raw)
        self._relocations = list(_relocations(elf, raw))

    def address_of(self, symbol: str) -> int | None:
        """The value of a symbol that is defined here."""
        return self._addresses.get(symbol)

    def place(self, address: int) -> Place | None:
        """Where `address` is; None where nothing is loaded."""
        for kind, ranges in self._ranges.items():
            after = bisect_right(ranges, address, key=lambda r: r[0])
            for start, end, name in reversed(ranges[max(0, after - _OVERLAP) : after]):
                if address < end:
                    return Place(kind, name, address - start)
        return None

    def code(self, function: Function) -> list[bytes]:
        """The function's bytes with each distance to another function or section as zeroes, then what
        these lead to, in order.
        """
        contents = bytearray(function.code)
        targets = []
        for start, spans, target in self._references(function):
            if target is None or target.base == function.name:
                continue
            targets.append(f"{start} {target}".encode())
            for low, high in spans:
                contents[low:high] = bytes(high - low)
        return [bytes(contents), *targets]

    def _references(self, function: Function) -> list[_Reference]:
        """Each distance of a known form: where it begins, its bytes, where it leads."""
        key = function.name, function.address
        if key not in self._known:
            found: list[_Reference] = []
            last = 0
            for match in heapq.merge(
                _REFERENCE.finditer(function.code), _SHORT.finditer(function.code), key=lambda m: m.start()
            ):
                if match.start() % 4 or match.start() < last:
                    continue
                last = match.end()
                distance = int.from_bytes(b"".join(match.groups()), "little")
                target = self.place((function.address + match.start() + 4 + distance) % (1 << 64))
                spans = [match.span(number + 1) for number in range(len(match.groups()))]
                found.append((match.start(), spans, target))
                self._left -= 1
                if self._left < 0:
                    raise CodeObjectError("bad-elf", f"over {MAX_REFERENCES} distances in code")
            self._known[key] = found
        return self._known[key]

    def layout(self) -> list[str]:
        """How functions, objects and sections lie to each other, if some code may depend on that; else []."""
        if all(self._is_self_contained(function) for function in self.functions):
            return []
        every = sorted(
            (start, kind, name) for kind, ranges in self._ranges.items() for start, _, name in ranges
        )
        return [f"{kind} {name} {start - every[0][0]:#x}" for start, kind, name in every]

    def _is_self_contained(self, function: Function) -> bool:
        """Whether no instruction reaches out of the function but in the forms that `code` replaces."""
        code = function.code
        known = {start for start, _, _ in self._references(function)}
        if any(m.start() % 4 == 0 and m.start() not in known for m in _GETPC.finditer(code)):
            return False
        for match in self._branch.finditer(code):
            end = match.start() + 4 + 4 * int.from_bytes(match[1], "little", signed=True)
            if match.start() % 4 == 0 and not 0 <= end < len(code):
                return False
        return True

    def loaded(self) -> list[bytes]:
        """Every loaded byte, by segment, if the sections do not tell all of them; else []."""
        if self._is_as_loaded and all(
            target is not None for function in self.functions for *_, target in self._references(function)
        ):
            return []
        return [
            f"{address:#x}".encode() + self._data[offset : offset + size]
            for offset, address, size in self._segments
        ]

    def _sections_are_loaded(self, elf: Elf, sections: list[Any]) -> bool:
        """Whether what segments load is headers, sections where these say they are, and zeroes."""
        header = elf.header
        told = [(0, int(header.e_ehsize)), (int(header.e_phoff), header.e_phnum * header.e_phentsize)]
        for s in sections:
            if not s.sh_flags & _ALLOC or s.sh_type == "SHT_NOBITS" or not s.sh_size:
                continue
            inside = [
                s.sh_addr - address == s.sh_offset - offset and s.sh_offset + s.sh_size <= offset + size
                for offset, address, size in self._segments
                if offset < s.sh_offset + s.sh_size and s.sh_offset < offset + size
            ]
            if inside != [True]:
                return False
            told.append((int(s.sh_offset), int(s.sh_size)))
        for offset, _, size in self._segments:
            at, end = offset, min(offset + size, len(self._data))
            for start, length in [*sorted(told), (end, 0)]:
                if self._data[at : min(start, end)].strip(b"\0"):
                    return False
                at = max(at, start + length)
        return True

    def variables(self, kernels: set[str]) -> list[str]:
        """Where each object lies in a section with contents, and where the exported ones do; no descriptor
        of `kernels`, no cuid.
        """
        held = [
            (s.address, s.address + s.size, s.name)
            for s in self.sections
            if s.data is not None and not s.code
        ]
        own = {f"{name}.kd" for name in kernels}
        found = [
            f"{name} {size} {section}+{start - first:#x}"
            for start, size, name in self.objects
            for first, end, section in held
            if name not in own and first <= start < end
        ]
        found += [
            f"exported {name} {size} {self.place(address)}"
            for name, address, size in self._exported
            if name not in own
        ]
        return sorted(found)

    def data(self, blank: dict[int, int]) -> Iterator[tuple[str, bytes]]:
        """(name, contents) of what is loaded beside code; `blank`: address to size of what reads as zero."""
        starts = sorted(blank)
        for section in self.sections:
            end = section.address + section.size
            if section.code:
                continue
            if section.data is None:
                # Its size is the linker's business; what lies in it is not.
                first = bisect_left(self.objects, (section.address,))
                for _, size, name in self.objects[first : bisect_left(self.objects, (end,))]:
                    yield f"{section.name} {name}", str(size).encode()
                continue
            contents = bytearray(section.data)
            for address in starts[bisect_left(starts, section.address) : bisect_left(starts, end)]:
                at = address - section.address
                contents[at : at + blank[address]] = bytes(min(blank[address], len(contents) - at))
            yield section.name, bytes(contents)

    def relocations(self) -> Iterator[tuple[int, str]]:
        """(address that the loader writes to, what it writes) of each relocation."""
        for address, kind, symbol, addend in self._relocations:
            value = f"{symbol}+{addend}" if symbol else str(self.place(addend) or addend)
            yield address, f"{self.place(address)} type {kind}: {value}"

    def _functions(self, symbols: list[tuple[str, Any]]) -> tuple[list[Function], list[tuple[str, bytes]]]:
        """Functions by address, and (the function before, code that belongs to none, without padding)."""
        found: list[Function] = []
        gaps: list[tuple[str, bytes]] = []
        total = 0
        for section in self.sections:
            if not section.code or section.data is None:
                continue
            end = section.address + section.size
            starts = sorted(
                {
                    (int(s.st_value), name): int(s.st_size)
                    for name, s in symbols
                    if s.st_info.type == "STT_FUNC" and section.address <= s.st_value < end
                }.items()
            )
            addresses = [*sorted({address for (address, _), _ in starts}), end]
            at, before = section.address, section.name
            for (address, name), size in starts:
                stop = address + size if size else addresses[bisect_right(addresses, address)]
                piece = section.data[address - section.address : min(stop, end) - section.address]
                total += len(piece)
                if total > MAX_CODE:
                    raise CodeObjectError("bad-elf", f"functions of more than {MAX_CODE} bytes")
                if address > at:
                    gaps.append((before, section.data[at - section.address : address - section.address]))
                found.append(Function(name, address, piece))
                at, before = max(at, stop), name
            gaps.append((before, section.data[at - section.address :]))
        return found, [gap for gap in gaps if not _is_padding(gap[1])]


def _symbols(
    elf: Elf, sections: list[Any], tables: tuple[str, ...] = ("SHT_SYMTAB", "SHT_DYNSYM")
) -> list[tuple[str, Any]]:
    """Defined symbols of .symtab, which has local functions too, else of .dynsym."""
    for wanted in tables:
        found = [
            (raw.decode("utf-8", "backslashreplace"), entry)
            for table in sections
            if table.sh_type == wanted
            for raw, entry in elf.symbols(sections, table)
            if entry.st_shndx not in ("SHN_UNDEF", "SHN_ABS")
        ]
        if found:
            return found
    return []


def _relocations(elf: Elf, sections: list[Any]) -> Iterator[tuple[int, int, str, int]]:
    """(address, type, symbol or "", addend) of every dynamic relocation."""
    struct = elf.structs.Elf_Rela
    for section in sections:
        if section.sh_type != "SHT_RELA":
            continue
        contents = elf.content(section)
        names: list[bytes] = []
        if section.sh_link < len(sections) and sections[section.sh_link].sh_type == "SHT_DYNSYM":
            names = [name for name, _ in elf.symbols(sections, sections[section.sh_link])]
        with damage("bad-elf", "relocations"):
            for at in range(0, len(contents) - struct.sizeof() + 1, struct.sizeof()):
                entry = struct.parse(contents[at : at + struct.sizeof()])
                symbol = names[entry.r_info_sym] if entry.r_info_sym else b""
                yield (
                    int(entry.r_offset),
                    int(entry.r_info_type),
                    symbol.decode("utf-8", "backslashreplace"),
                    int(entry.r_addend),
                )


def _is_padding(code: bytes) -> bool:
    return all(code[n : n + 4] in _PADDING for n in range(0, len(code), 4))
