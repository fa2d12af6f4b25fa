"""Statements that a terminal, a mail or an editor broke over several lines, put together again.

Between two pieces a blank may have been lost (copying from a terminal drops the blanks at the end of a
line, word wrap drops the one it breaks at), and blanks count in a key. So each place between two
pieces has a number of blanks that is known or not:

- The pieces before it fill the width of the log (no line is longer), or two or more pieces of this
  statement have the same width: a hard wrap, which loses nothing, unless the next piece begins a new
  option without a blank before it.
- The number is known from the same statement elsewhere, broken at another place: `Fragment.merged`.

A key is exact when every number is known. Nothing is guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kdbtool.miopen.logs_text import Line

SOFT = b"\0"  # between two pieces: a number of blanks that is not known
MIN_WIDTH = 40
# Options whose value is the next word.
_TAKES_VALUE = re.compile(rb"(?:\A| )-(?:mllvm|Xclang|isystem|include|target|x)\Z")


def join(lines: list[Line], texts: list[bytes], width: int | None, trusted: bool) -> bytes:
    """The pieces as one text, SOFT where the number of blanks is not known.

    `texts`: the pieces (of `lines`; the first may be cut at its front). `width`: of the longest line
    of the log. Not `trusted`: pieces of another statement may be among them, all places are unknown.
    """
    widths = [line.width for line in lines[:-1]]
    same = len(widths) > 1 and len(set(widths)) == 1 and lines[-1].width <= widths[0]
    steady = len(texts) > 2 and len({len(t) - len(t.lstrip(b" ")) for t in texts[1:]}) == 1
    indented = steady and texts[1].startswith(b" ")
    joined = texts[0]
    for line, before, after in zip(lines, texts, texts[1:], strict=False):
        full = line.width == width and line.width >= MIN_WIDTH
        hard = full or (same and line.width >= MIN_WIDTH)
        if trusted and hard and not indented and _kept(joined, before, after, full):
            joined += after
        else:
            joined = joined.rstrip(b" ") + SOFT + after.lstrip(b" ")
    return joined


def _kept(joined: bytes, before: bytes, after: bytes, full: bool) -> bool:
    """Whether a hard wrap lost nothing here. `full`: the width is the log's own."""
    if not before or not after:
        return False
    if before.endswith(b" "):
        return True
    if after.startswith(b" "):
        return full  # of a width that only this statement shows, a blank at the end may be missing
    if after.startswith(b"-"):  # a new option without its blank, or the inside of one
        return joined.rpartition(b" ")[2] in (b"-", b"-Wa,")
    return not _TAKES_VALUE.search(joined[-64:])


def flexible(text: bytes) -> bytes:
    """A pattern for `text` wherever SOFT may stand in it, for any number of blanks."""
    parts = [rb"[ \0]+" if c == 0x20 else re.escape(bytes([c])) for c in text]
    return rb"\0?".join(parts)


@dataclass(frozen=True)
class Fragment:
    """A key as far as one statement tells it. `gaps[i]`: blanks before `solid[i]`, None: not known."""

    name: bytes
    sure_name: bool
    solid: bytes  # the arguments without blanks
    gaps: tuple[int | None, ...]

    @classmethod
    def of(cls, name: bytes, args: bytes) -> Fragment:
        """From texts that may contain SOFT."""
        plain = name.replace(SOFT, b"")
        solid, gaps, blanks, soft = bytearray(), [], 0, False
        for c in args:
            if c == 0x20:
                blanks += 1
            elif c == 0:
                soft = True
            else:
                gaps.append(None if soft else blanks)
                solid.append(c)
                blanks, soft = 0, False
        return cls(plain, plain == name, bytes(solid), tuple(gaps))

    def agrees(self, other: Fragment) -> bool:
        """Whether both can be the same key."""
        return (
            self.name == other.name
            and self.solid == other.solid
            and all(a == b or a is None or b is None for a, b in zip(self.gaps, other.gaps, strict=True))
        )

    def merged(self, other: Fragment) -> Fragment:
        """What both tell together; they agree."""
        gaps = (a if a is not None else b for a, b in zip(self.gaps, other.gaps, strict=True))
        return Fragment(self.name, True, self.solid, tuple(gaps))

    def key(self) -> tuple[bytes, bytes] | None:
        """Name and arguments, if all is known."""
        if not self.sure_name or None in self.gaps:
            return None
        args = bytearray()
        for c, gap in zip(self.solid, self.gaps, strict=True):
            args += b" " * (gap or 0)
            args.append(c)
        return self.name, bytes(args)
