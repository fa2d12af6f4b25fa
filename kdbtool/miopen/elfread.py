"""What kdbtool needs of a shared library: dynamic symbols with their bytes, build-id, links, version texts.

pyelftools does the parsing; here every failure that hostile bytes can cause becomes one KdbtoolError, and no
size or offset is used before it is checked against the file.
"""

from __future__ import annotations

import itertools
import mmap
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, cast

from elftools.common.exceptions import DWARFError, ELFError
from elftools.construct import ConstructError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection

from kdbtool.errors import KdbtoolError

MAX_LIBRARY = 4 << 30  # bytes
MAX_SYMBOLS = 2_000_000
MAX_TAGS = 10_000

# pyelftools raises these, beside its own errors, on damaged files.
_PARSE_ERRORS = (
    ELFError,
    DWARFError,
    ConstructError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    AssertionError,
    OverflowError,
    MemoryError,
    RecursionError,
    struct.error,
    EOFError,
)


@dataclass(frozen=True)
class Symbol:
    """A defined dynamic symbol: name, virtual address, size in bytes."""

    name: str
    address: int
    size: int


class Library:
    """An open shared library; use as a context manager. All reads are from a read-only map of the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            why = "it is no regular file" if path.exists() else "there is no such file"
            why = "it is a folder" if path.is_dir() else why
            raise KdbtoolError("not a library", where=path, why=why, hint="name a libMIOpen.so")
        size = path.stat().st_size
        if size < 64:
            raise self._no_elf(f"{size} bytes long")
        if size > MAX_LIBRARY:
            raise KdbtoolError(
                "too large for a library", where=path, why=f"{size} bytes, at most {MAX_LIBRARY}"
            )
        self._file = path.open("rb")
        self.map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        if self.map[:4] != b"\x7fELF":
            raise self._no_elf("it does not begin with the ELF magic")
        if self.map[4:6] != b"\x02\x01":
            raise self._no_elf("not a 64-bit little-endian one")
        try:
            self._elf = ELFFile(cast(IO[bytes], self.map))
            self._loads = [
                (s["p_vaddr"], s["p_offset"], s["p_filesz"])
                for s in self._elf.iter_segments()
                if s["p_type"] == "PT_LOAD"
            ]
        except _PARSE_ERRORS as error:
            raise self.damaged(error) from None

    def symbols(self, prefix: str) -> Iterator[Symbol]:
        """The defined dynamic symbols whose name begins with `prefix`."""
        try:
            table = self._elf.get_section_by_name(".dynsym")
            if not isinstance(table, SymbolTableSection):
                raise KdbtoolError(
                    "no dynamic symbol table",
                    where=self.path,
                    why="the file is cut short, stripped of its section headers, or not a shared library",
                    hint="use the library as it is installed, or give the kernel sources with --sources DIR",
                )
            if table.num_symbols() > MAX_SYMBOLS:
                raise ValueError(f"{table.num_symbols()} symbols")
            for symbol in table.iter_symbols():
                if symbol.name.startswith(prefix) and symbol["st_shndx"] != "SHN_UNDEF":
                    yield Symbol(symbol.name, symbol["st_value"], symbol["st_size"])
        except _PARSE_ERRORS as error:
            raise self.damaged(error) from None

    def undefined(self) -> frozenset[str]:
        """Names of the dynamic symbols that other libraries are to define."""
        try:
            table = self._elf.get_section_by_name(".dynsym")
            if not isinstance(table, SymbolTableSection) or table.num_symbols() > MAX_SYMBOLS:
                return frozenset()
            return frozenset(s.name for s in table.iter_symbols() if s["st_shndx"] == "SHN_UNDEF" and s.name)
        except _PARSE_ERRORS as error:
            raise self.damaged(error) from None

    def needed(self) -> list[str]:
        """The libraries that it is linked to (DT_NEEDED), in its order."""
        try:
            section = self._elf.get_section_by_name(".dynamic")
            if not isinstance(section, DynamicSection):
                return []
            tags = itertools.islice(section.iter_tags(), MAX_TAGS)
            return [str(getattr(tag, "needed", "")) for tag in tags if tag.entry.d_tag == "DT_NEEDED"]
        except _PARSE_ERRORS as error:
            raise self.damaged(error) from None

    def read(self, address: int, size: int) -> bytes:
        """`size` bytes at a virtual address; KdbtoolError where the file does not have them."""
        for start, offset, length in self._loads:
            if start <= address and address + size <= start + length:
                at = offset + address - start
                if at + size > len(self.map):
                    break
                return self.map[at : at + size]
        raise KdbtoolError(
            "damaged library",
            where=self.path,
            why=f"{size} bytes at address {address:#x} are not in the file, it may be cut short",
            hint="install the package that it came from again",
        )

    def build_id(self) -> str | None:
        """The GNU build-id in lower-case hex, None where there is none."""
        try:
            section = self._elf.get_section_by_name(".note.gnu.build-id")
            if isinstance(section, NoteSection):
                for note in section.iter_notes():
                    if note["n_type"] == "NT_GNU_BUILD_ID":
                        return str(note["n_desc"])
        except _PARSE_ERRORS as error:
            raise self.damaged(error) from None
        return None

    def search(self, pattern: re.Pattern[bytes]) -> Iterator[re.Match[bytes]]:
        """Matches of `pattern` in the file's bytes."""
        return pattern.finditer(self.map)

    def damaged(self, error: BaseException) -> KdbtoolError:
        """The one error for an ELF that cannot be parsed."""
        return KdbtoolError(
            "damaged ELF file",
            where=self.path,
            why=str(error)[:100] or type(error).__name__,
            hint="install the package that it came from again",
        )

    def _no_elf(self, why: str) -> KdbtoolError:
        return KdbtoolError("not an ELF shared library", where=self.path, why=why, hint="name a libMIOpen.so")

    def close(self) -> None:
        """Free the map."""
        self.map.close()
        self._file.close()

    def __enter__(self) -> Library:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()
