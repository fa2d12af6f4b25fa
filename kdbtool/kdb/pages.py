"""The pages of an SQLite file, read without SQLite, so that what is intact is found among what is not.

SQLite's published file format (sqlite.org/fileformat2.html, sections 1.3 to 1.6, 2.1): pages, b-tree cells
with their overflow chains, records. Nothing in the file is trusted: a number that does not fit is a BadPage,
a chain or tree that meets itself ends, and no payload may be larger than the file.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from kdbtool.errors import from_oserror
from kdbtool.kdb.sqlite import HEADER_MAGIC, HEADER_SIZE, MAX_VALUE

TABLE_LEAF, TABLE_INNER, INDEX_LEAF, INDEX_INNER = 13, 5, 10, 2
_TYPES = (TABLE_LEAF, TABLE_INNER, INDEX_LEAF, INDEX_INNER)
SIZES = (4096, 1024, 2048, 8192, 512, 16384, 32768, 65536)
_SAMPLE = 2000  # pages that a guess of the page size looks at
_INTEGERS = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 8: 0, 9: 0}

Value = bytes | int | None


class BadPage(Exception):
    """A page, cell, chain or record is not what the format says."""


@dataclass(frozen=True)
class Cell:
    """One cell of a leaf, or of an inner page of an index. `rowid` is 0 in an index."""

    page: int
    at: int  # where it begins in the page
    rowid: int
    size: int  # bytes of the whole payload
    local: bytes  # the part of it that is in the page
    overflow: int  # the first page of the rest, 0 for none


@dataclass
class Tree:
    """What was reached from a root: its leaves and inner pages, and whether nothing was missing."""

    leaves: list[int] = field(default_factory=list)
    inner: list[int] = field(default_factory=list)
    bad: list[int] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether each page that was named could be used."""
        return not self.bad


class Pages:
    """An open file, page by page (numbered from 1); a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("rb", buffering=0)
            self.length = os.fstat(self._file.fileno()).st_size
            header = os.pread(self._file.fileno(), HEADER_SIZE, 0)
        except OSError as error:
            raise from_oserror(error, where=path) from None
        size = int.from_bytes(header[16:18], "big")
        size = 65536 if size == 1 else size
        # All three, or nothing of the header is believed.
        self.has_header = (
            header.startswith(HEADER_MAGIC) and size in SIZES and header[21:24] == b"\x40\x20\x20"
        )
        self.size = size if self.has_header else 0
        # Some builds of SQLite keep bytes at the end of each page for themselves.
        self.reserved = min(header[20], size - 480) if self.has_header else 0
        self.encoding = int.from_bytes(header[56:60], "big") if self.has_header else 1
        self.free_trunk = int.from_bytes(header[32:36], "big") if self.has_header else 0
        if not self.size:
            self.size = self._guess_size()
        self.count = -(-self.length // self.size)
        self.budget = 8 * self.length + (1 << 20)  # bytes of overflow pages; a sound file needs its length

    def __enter__(self) -> Pages:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def page(self, number: int) -> bytes:
        """The bytes of a whole page."""
        if not 1 <= number <= self.count:
            raise BadPage(f"no page {number}")
        try:
            data = os.pread(self._file.fileno(), self.size, (number - 1) * self.size)
        except OSError as error:  # a disk that cannot read this block
            raise BadPage(str(error)) from None
        if len(data) < self.size:
            raise BadPage(f"page {number} is cut off")
        return data

    def kind(self, number: int) -> int:
        """The type of a b-tree page, 0 for any other."""
        try:
            data = self.page(number)
            _cell_offsets(data, _start(number))
        except BadPage:
            return 0
        return data[_start(number)]

    def cells(self, number: int) -> Iterator[Cell | None]:
        """The cells of a page that holds payloads, None for each that is broken; BadPage when the page is."""
        data = self.page(number)
        start = _start(number)
        offsets = _cell_offsets(data, start)
        kind = data[start]
        if kind == TABLE_INNER:
            raise BadPage("it holds no payloads")
        for at in offsets:
            try:
                yield self._cell(data, number, kind, at)[0]
            except BadPage:
                yield None

    def again(self, cell: Cell) -> Cell:
        """A cell that was kept without its `local` part."""
        data = self.page(cell.page)
        return self._cell(data, cell.page, data[_start(cell.page)], cell.at)[0]

    def _cell(self, data: bytes, number: int, kind: int, at: int) -> tuple[Cell, int]:
        """A cell and where it ends."""
        first = at
        if kind == INDEX_INNER:
            at += 4
        size, at = varint(data, at)
        rowid = 0
        if kind == TABLE_LEAF:
            rowid, at = varint(data, at)
            rowid -= (rowid >> 63) << 64
        if size > min(self.length, MAX_VALUE):
            raise BadPage("a payload larger than the file")
        usable = self.size - self.reserved
        most = usable - 35 if kind == TABLE_LEAF else (usable - 12) * 64 // 255 - 23
        local = size
        if size > most:
            least = (usable - 12) * 32 // 255 - 23
            local = least + (size - least) % (usable - 4)
            local = local if local <= most else least
        end = at + local + (4 if local < size else 0)
        if end > usable:
            raise BadPage("a cell beyond its page")
        overflow = int.from_bytes(data[at + local : end], "big")
        return Cell(number, first, rowid, size, data[at : at + local], overflow), end

    def payload(self, cell: Cell) -> bytes:
        """The whole payload of a cell, its overflow chain followed."""
        if len(cell.local) == cell.size:
            return cell.local
        parts, missing = [cell.local], cell.size - len(cell.local)
        next_, seen = cell.overflow, set()
        while missing:
            if next_ in seen or self.budget < self.size:
                raise BadPage("an overflow chain that meets itself")
            seen.add(next_)
            self.budget -= self.size
            data = self.page(next_)
            part = data[4 : 4 + min(missing, self.size - self.reserved - 4)]
            parts.append(part)
            missing -= len(part)
            next_ = int.from_bytes(data[:4], "big")
        if next_:
            raise BadPage("an overflow chain that goes on past its end")
        return b"".join(parts)

    def tree(self, root: int, *, index: bool = False) -> Tree:
        """All pages of the b-tree at `root`, in order."""
        leaf, inner = (INDEX_LEAF, INDEX_INNER) if index else (TABLE_LEAF, TABLE_INNER)
        found, seen, stack = Tree(), set(), [root]
        while stack:
            number = stack.pop()
            if number in seen:
                found.bad.append(number)
                continue
            seen.add(number)
            kind = self.kind(number)
            if kind == leaf:
                found.leaves.append(number)
            elif kind == inner:
                found.inner.append(number)
                stack += reversed(self._children(number))
            else:
                found.bad.append(number)
        return found

    def _children(self, number: int) -> list[int]:
        data, start = self.page(number), _start(number)
        ends = [at for at in _cell_offsets(data, start) if at + 4 <= len(data)]
        found = [int.from_bytes(data[at : at + 4], "big") for at in ends]
        return [*found, int.from_bytes(data[start + 8 : start + 12], "big")]

    def free_pages(self) -> set[int]:
        """The pages on the freelist, as far as it can be followed."""
        found: set[int] = set()
        trunk = self.free_trunk
        while trunk and trunk not in found:
            try:
                data = self.page(trunk)
            except BadPage:
                break
            found.add(trunk)
            trunk, count = struct.unpack_from(">II", data)
            count = min(count, self.size // 4 - 2)
            found.update(struct.unpack_from(f">{count}I", data, 8))
        return found

    def trunk_leaves(self, number: int) -> set[int]:
        """The free pages that a page names, if it looks like a trunk of the freelist."""
        try:
            data = self.page(number)
        except BadPage:
            return set()
        trunk, count = struct.unpack_from(">II", data)
        if trunk > self.count or not 0 < count <= self.size // 4 - 2:
            return set()
        found = set(struct.unpack_from(f">{count}I", data, 8))
        return found if len(found) == count and min(found) > 1 and max(found) <= self.count else set()

    def _guess_size(self) -> int:
        """The size at which most leaves end where a page ends: a page's first cell is put at its very end."""
        best, size = 0, SIZES[0]
        for self.size in SIZES:
            self.count = -(-self.length // self.size)
            score = sum(self._ends_right(n) for n in range(2, min(self.count, _SAMPLE) + 1))
            if score > best:
                best, size = score, self.size
        return size

    def _ends_right(self, number: int) -> bool:
        try:
            data = self.page(number)
            offsets = _cell_offsets(data, 0)
            if data[0] not in (TABLE_LEAF, INDEX_LEAF) or not offsets:
                return False
            return self._cell(data, number, data[0], max(offsets))[1] == self.size
        except BadPage:
            return False


def _start(number: int) -> int:
    return HEADER_SIZE if number == 1 else 0


def _cell_offsets(data: bytes, start: int) -> tuple[int, ...]:
    """Where the cells of a b-tree page begin."""
    kind, _, count, content = struct.unpack_from(">BHHH", data, start)
    if kind not in _TYPES:
        raise BadPage("no b-tree page")
    array = start + (8 if kind in (TABLE_LEAF, INDEX_LEAF) else 12)
    end = array + 2 * count
    if end > len(data) or not end <= (content or 65536) <= len(data):
        raise BadPage("more cells than fit")
    return struct.unpack_from(f">{count}H", data, array)


def varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, end) of SQLite's integer of 1 to 9 bytes at `at`."""
    value = 0
    for n, byte in enumerate(data[at : at + 9]):
        if n == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + n + 1
    raise BadPage("a number that is cut off")


def serials(start: bytes, size: int) -> tuple[list[int], int]:
    """(serial types, length of the header) of a record of `size` bytes that begins with `start`."""
    end, at = varint(start, 0)
    if not at <= end <= min(size, len(start)):
        raise BadPage("a record's header that does not fit")
    found = []
    while at < end:
        kind, at = varint(start, at)
        found.append(kind)
    if at != end or end + sum(map(length, found)) != size:
        raise BadPage("a record that does not fit its payload")
    return found, end


def length(serial: int) -> int:
    """Bytes of a value of a serial type."""
    if serial >= 12:
        return (serial - 12) // 2
    if serial in (10, 11):
        raise BadPage("a reserved type")
    return 8 if serial == 7 else _INTEGERS[serial]


def record(payload: bytes) -> tuple[list[int], list[Value]]:
    """(serial types, values) of a record; a floating point number is None."""
    kinds, at = serials(payload, len(payload))
    values: list[Value] = []
    for kind in kinds:
        part = payload[at : at + length(kind)]
        at += len(part)
        if kind >= 12:
            values.append(part)
        elif kind in (8, 9):
            values.append(kind - 8)
        else:
            values.append(None if kind in (0, 7) else int.from_bytes(part, "big", signed=True))
    return kinds, values
