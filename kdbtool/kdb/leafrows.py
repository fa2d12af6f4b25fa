"""Rows of kern_db as records in SQLite's pages: their shape, their columns, where these stand.

The record of a row holds NULL for `id` (the row number stands in the cell), then what MIOpen's table has.
"""

from __future__ import annotations

import sqlite3

from kdbtool.kdb.pages import BadPage, Cell, Pages, length, record, serials
from kdbtool.miopen.keys import SUFFIX, is_source

COLUMNS = (1, 2, 3, 4, 5)  # MIOpen's order: id, name, args, blob, hash, size
MAX_KEY = 1 << 20
_ENCODINGS = {2: "utf-16-le", 3: "utf-16-be"}


def is_row(cell: Cell, places: tuple[int, ...]) -> bool:
    """Whether a record has the shape of a row: two texts, a blob, a text and a whole number."""
    try:
        kinds, _ = serials(cell.local, cell.size)
    except BadPage:
        return False
    if max(places) >= len(kinds) or (places == COLUMNS and len(kinds) < 6):
        return False
    name, args, blob, digest, size = (kinds[n] for n in places)
    texts = name >= 12 and args >= 12 and digest >= 13 and digest % 2 == 1
    small = texts and max(length(name), length(args), length(digest)) <= MAX_KEY
    return small and blob >= 12 and size in (1, 2, 3, 4, 5, 6, 8, 9)


def columns(pages: Pages, cell: Cell, places: tuple[int, ...]) -> tuple[bytes, bytes, bytes, str, int]:
    """kernel_name, kernel_args, kernel_blob, kernel_hash, uncompressed_size of a row."""
    _, values = record(pages.payload(cell))
    name, args, blob, digest, size = (values[n] for n in places)
    if not (
        isinstance(name, bytes)
        and isinstance(args, bytes)
        and isinstance(blob, bytes)
        and isinstance(digest, bytes)
        and isinstance(size, int)
    ):
        raise BadPage("no row of kern_db")
    text = utf8(digest, pages.encoding).decode("utf-8", "backslashreplace")
    return utf8(name, pages.encoding), utf8(args, pages.encoding), blob, text, size


def utf8(text: bytes, encoding: int) -> bytes:
    other = _ENCODINGS.get(encoding)
    return text.decode(other, "replace").encode() if other else text


def plausible(name: bytes, args: bytes) -> bool:
    """Whether it can be a key, where nothing else says so: a source's name, printable arguments."""
    stem = name.removesuffix(SUFFIX).decode("ascii", "replace")
    return is_source(stem) and "." in stem and args.isascii() and (not args or args.decode().isprintable())


def layout(sql: bytes) -> tuple[int, ...]:
    """Where the five columns stand in a record, by its own statement, else MIOpen's order."""
    denied = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_ATTACH)
    db = sqlite3.connect(":memory:", isolation_level=None)
    try:
        db.set_authorizer(lambda action, *_: sqlite3.SQLITE_DENY if action in denied else sqlite3.SQLITE_OK)
        statement = sql.decode()
        if not statement.startswith("CREATE TABLE ") or len(statement) > MAX_KEY:
            return COLUMNS
        db.execute(statement)
        db.set_authorizer(None)
        info = db.execute("PRAGMA table_xinfo(kern_db)").fetchall()
        kept = (row[1].lower() for row in info if row[6] != 2)  # a computed column is not in the record
        place = {name: number for number, name in enumerate(kept)}
        wanted = ("kernel_name", "kernel_args", "kernel_blob", "kernel_hash", "uncompressed_size")
        return tuple(place[c] for c in wanted)
    except (sqlite3.Error, UnicodeDecodeError, KeyError, ValueError):
        return COLUMNS
    finally:
        db.close()


def is_key_index(sql: bytes) -> bool:
    plain = sql.translate(None, b' `"[]\n\t').lower()
    return plain.startswith(b"createuniqueindex") and plain.endswith(b"(kernel_name,kernel_args)")
