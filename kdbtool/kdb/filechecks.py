"""Findings about the file itself: integrity, schema, journal, name, mode; not its rows."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator

from kdbtool.errors import KdbtoolError
from kdbtool.kdb.findings import Code, Finding
from kdbtool.kdb.identify import FileKind
from kdbtool.kdb.pages import INDEX_INNER, INDEX_LEAF, BadPage, Pages
from kdbtool.kdb.reader import COLUMNS, PROVENANCE_TABLE, KdbReader
from kdbtool.kdb.sqlite import NO_MEMORY, side_files

DETAIL = 160  # characters of a message that a finding repeats
_LINES = 100  # that SQLite's check is asked for
_PAGE = re.compile(r"\b(?:page|Page|[Tt]ree \d+ page) (\d+)")


def check_file(reader: KdbReader) -> list[Finding]:
    """All of them, in a fixed order."""
    return [*_integrity(reader), *_schema(reader), *_form(reader), *_surroundings(reader)]


def _integrity(reader: KdbReader) -> Iterator[Finding]:
    """One finding; its detail names the pages that SQLite does."""
    if reader.kind.what is FileKind.UKDB and reader.kind.journal != "wal":
        return  # it would hold a lock for as long as it reads, and a running MIOpen would feel it
    lines: list[str] = []
    try:
        for (text,) in reader.db.execute(f"PRAGMA integrity_check({_LINES})"):
            lines += _line(text).splitlines()
    except sqlite3.Error as error:
        lines.append(str(error))
    except MemoryError:
        lines = [NO_MEMORY]
    lines = [line for line in lines if not line.startswith("*** in database")]
    if lines == ["ok"]:
        return
    pages = sorted({int(p) for line in lines for p in _PAGE.findall(line)}) or _bad_pages(reader)
    where = f"page{'s' if len(pages) > 1 else ''} {', '.join(map(str, pages[:10]))}" if pages else ""
    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    first = (lines[0] if lines else "no answer")[:DETAIL]
    yield Finding(Code.MALFORMED, f"{where}: {first}{more}" if where else f"{first}{more}")


def _bad_pages(reader: KdbReader) -> list[int]:
    """Pages of tables and indexes that are none: SQLite's check gives up at some before it names them."""
    try:
        roots = reader.db.execute("SELECT rootpage FROM sqlite_schema WHERE rootpage > 0").fetchall()
        with Pages(reader.path) as pages:
            # A table WITHOUT ROWID is an index, too.
            trees = [pages.tree(r, index=pages.kind(r) in (INDEX_LEAF, INDEX_INNER)) for (r,) in roots]
    except (sqlite3.Error, BadPage, KdbtoolError, OSError):
        return []
    return sorted({page for tree in trees for page in tree.bad})


def _line(value: object) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _schema(reader: KdbReader) -> Iterator[Finding]:
    for column in COLUMNS[1:]:
        if column not in reader.columns:
            yield Finding(Code.NO_COLUMN, column)
    for column in reader.columns:
        if column not in COLUMNS:
            yield Finding(Code.EXTRA_COLUMN, column)
    for table in sorted(reader.tables):
        if table not in ("kern_db", PROVENANCE_TABLE) and not table.startswith("sqlite_"):
            yield Finding(Code.EXTRA_TABLE, table)
    if not reader.has_index:
        yield Finding(Code.NO_INDEX)


def _form(reader: KdbReader) -> Iterator[Finding]:
    for pragma in ("user_version", "application_id"):
        if (value := reader.pragma(pragma)) != "0":
            yield Finding(Code.USER_VERSION, f"{pragma} {value}")
    if (encoding := reader.pragma("encoding")) != "UTF-8":
        yield Finding(Code.ENCODING, encoding)
    if (size := reader.pragma("page_size")) != "4096":
        yield Finding(Code.PAGE_SIZE, size)
    if (free := reader.pragma("freelist_count")) != "0" and reader.kind.what is FileKind.KDB:
        yield Finding(Code.FREE_PAGES, f"{free} of {reader.pragma('page_count')} pages")


def _surroundings(reader: KdbReader) -> Iterator[Finding]:
    name = reader.name
    if name is None or name.kind not in ("kdb", "ukdb") or name.compressed:
        yield Finding(Code.FILE_NAME, reader.path.name)
    if reader.kind.what is not FileKind.KDB:
        return
    if reader.kind.journal == "wal":
        how = "; read with immutable=1, since its folder is not writable" if reader.kind.immutable else ""
        yield Finding(Code.JOURNAL, f"journal=wal{how}")
    for suffix, size in side_files(reader.path).items():
        yield Finding(Code.SIDE_FILES, f"{reader.path.name}{suffix}, {size} bytes")
    if name is not None and name.cu is not None:
        yield Finding(Code.SHADOWS, f"{name.arch} with {name.cu} {name.unit}")
    mode = reader.path.stat().st_mode & 0o777
    if mode & 0o044 != 0o044:
        yield Finding(Code.FILE_MODE, f"{mode:04o}")
