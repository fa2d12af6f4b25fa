"""One JSON document of many rows, written as they are read: memory stays flat however many they are."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kdbtool.errors import KdbtoolError, printable


def print_rows(path: Path, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """`{"path": PATH, NAME: [ROW, ...]}`, a row to a line.

    A KdbtoolError of `rows` is raised on, the document closed before it with its line as "error".
    """
    write = sys.stdout.write
    write(f'{{"path": {json.dumps(printable(path))},\n{json.dumps(name)}: [')
    separator, error = "\n", None
    try:
        for row in rows:
            write(separator + json.dumps(row))
            separator = ",\n"
    except KdbtoolError as raised:
        error = raised
    write("\n]")
    if error is not None:
        write(f',\n"error": {json.dumps(error.line())}')
    write("}\n")
    if error is not None:
        error.in_document = True
        raise error
