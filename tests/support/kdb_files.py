"""Kernel databases made by hand, so that each can be wrong in one way on purpose."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from support.amdgpu_elf import code_object

from kdbtool.kdb.blob import md5, pack
from kdbtool.kdb.writer import INDEX_SQL, TABLE_SQL

NAME = b"MIOpenSoftmax.cl.o"
ARGS = b" -DA=1 -mcpu=gfx1030"

Columns = tuple[object, object, object, object, object]


def row(
    name: object = NAME,
    args: object = ARGS,
    data: bytes | None = None,
    *,
    blob: bytes | None = None,
    digest: str | None = None,
    size: object = None,
) -> Columns:
    """The five columns of a right row, but for what is given. Keys in bytes become TEXT."""
    data = code_object() if data is None else data
    packed = pack(data) if data else None
    return (
        name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name,
        args.decode("utf-8", "surrogateescape") if isinstance(args, bytes) else args,
        blob if blob is not None else packed.blob if packed else b"",
        digest if digest is not None else md5(data),
        size if size is not None else packed.uncompressed_size if packed else 0,
    )


def make(
    path: Path,
    rows: Iterable[Columns] | None = None,
    *,
    table: str = TABLE_SQL,
    index: str | None = INDEX_SQL,
    before: Iterable[str] = (),
    after: Iterable[str] = (),
) -> Path:
    """A database with these rows; `before` and `after` are statements around them."""
    with sqlite3.connect(path) as db:
        for statement in before:
            db.execute(statement)
        db.execute(table)
        if index:
            db.execute(index)
        db.executemany(
            "INSERT INTO kern_db (kernel_name, kernel_args, kernel_blob, kernel_hash, uncompressed_size)"
            " VALUES (?, ?, ?, ?, ?)",
            [row()] if rows is None else list(rows),
        )
        for statement in after:
            db.execute(statement)
    db.close()
    return path
