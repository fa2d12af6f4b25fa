"""The one kind of error that kdbtool raises for bad input, and how it is printed.

Every error is one line: what, where (file, row or line), why, next command. Bad bytes from outside
(a file name, a key) are escaped, so that one error stays one line on any terminal.
"""

from __future__ import annotations

import errno
from pathlib import Path

EXIT_DONE = 0
EXIT_PROBLEMS = 1  # it ran and found problems
EXIT_USAGE = 2  # bad usage or unreadable input


def printable(text: object) -> str:
    """`text` with everything that is not printable escaped: safe to show, and one line."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else _escape(c) for c in str(text))


def _escape(c: str) -> str:
    byte = ord(c) - 0xDC00  # of a surrogate that stands for a byte that is no UTF-8
    return f"\\x{byte:02x}" if 0x80 <= byte <= 0xFF else c.encode("unicode_escape").decode()


class KdbtoolError(Exception):
    """What went wrong, where, why, and what to do; `exit_code` is 2 unless the work had begun (1).

    `in_document`: the command's JSON document, with this error in it, is already written.
    """

    in_document = False

    def __init__(
        self,
        what: str,
        *,
        where: str | Path | None = None,
        why: str | None = None,
        hint: str | None = None,
        exit_code: int = EXIT_USAGE,
    ) -> None:
        self.what, self.where, self.why, self.hint, self.exit_code = what, where, why, hint, exit_code
        super().__init__(self.line())

    def line(self) -> str:
        """`where: what: why; hint`, one line."""
        text = f"{self.where}: {self.what}" if self.where is not None else self.what
        if self.why:
            text += f": {self.why}"
        if self.hint:
            text += f"; {self.hint}"
        return printable(text)


def counted(number: int, word: str) -> str:
    """`1 row`, `2 rows`, `2 processes`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}{'es' if word.endswith('s') else 's'}"


def from_oserror(error: OSError, *, where: str | Path | None = None) -> KdbtoolError:
    """An `OSError` as one line. A full disk has exit code 1: the work had begun."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    path = where if where is not None else (error.filename or None)
    return KdbtoolError(
        "no space left" if full else (error.strerror or str(error)).lower(),
        where=path if not isinstance(path, bytes) else printable(path),
        hint="free some space and run the same command again" if full else None,
        exit_code=EXIT_PROBLEMS if full else EXIT_USAGE,
    )
