"""Statements that a terminal, a mail or an editor broke over several lines, put together again.

Between two pieces a blank may have been lost (copying from a terminal drops the blanks at the end of a
line, word wrap drops the one it breaks at), and blanks count in a key. So each place between two
pieces has a number of blanks that is known or not:

- The pieces before it fill the width of the log (no line is longer, and another one as long), or two or
  more pieces of this statement have the same width: a hard wrap, which loses nothing, unless the next
  piece begins a new option without a blank before it. Where every piece begins with blanks, they may be an
  indent; where one does, a blank at the end of the piece before it may be lost, unless a word broken at the
  same width shows that the line was full.
- The number is known from the same statement elsewhere, broken at another place: `Fragment.merged`.

A key is exact when every number is known and its words are options. Nothing is guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kdbtool.miopen.logs_text import Line

SOFT = b"\0"  # between two pieces: a number of blanks that is not known
MIN_WIDTH = 40
# Options whose value is the next word.
_TAKES_VALUE = re.compile(rb"(?:\A| )-(?:mllvm|Xclang|isystem|include|target|x)\Z")
_VALUE_OF = (b"-mllvm", b"-Xclang", b"-isystem", b"-I", b"-D", b"-U", b"-x", b"-include", b"-target")
# The options of MIOpen's keys, and what else may be one: letters and hyphens, no digit of another word.
_TOKEN = re.compile(
    rb"-D[A-Za-z_][A-Za-z0-9_]*(?:=[A-Za-z0-9_.,:/-]*)?|-Wa,-defsym,[A-Za-z_][A-Za-z0-9_]*=-?[0-9A-Fa-fx]+"
    rb"|-mcpu=[a-z0-9:+-]+|--?std=[a-z+0-9]+|-cl-std=[A-Z0-9.]+|-mwavefrontsize64|-O[0-3s]"
    rb"|-(?:-(?!m|cl-))?[a-z]{2}[A-Za-z-]*(?:=[A-Za-z0-9_.,/-]+)?"
)
_INNER = re.compile(rb"[^,-]-(?:D[A-Za-z_]|Wa,|mcpu|mllvm|std=|O[0-3])")
_WORD_END = re.compile(rb"(?:\A| )-[^ ]*[A-Za-z0-9_]\Z")  # of an option, as far as it goes
_WORDS = re.compile(rb"([ \0]*)([^ \0]+)")
_WORD = re.compile(rb"[A-Za-z0-9_]")
_ODD = re.compile(rb"[^A-Za-z0-9_.,+:=/-]")


def join(lines: list[Line], texts: list[bytes], width: int | None, trusted: bool) -> bytes:
    """The pieces as one text, SOFT where the number of blanks is not known.

    `texts`: the pieces (of `lines`; the first may be cut at its front). `width`: of the longest line
    of the log. Not `trusted`: pieces of another statement may be among them, all places are unknown.
    """
    widths = [line.width for line in lines[:-1]]
    same = len(widths) > 1 and len(set(widths)) == 1 and lines[-1].width <= widths[0]
    indented = all(text.startswith(b" ") for text in texts[1:])
    # Columns of the lines that end within a word: full ones, which have lost nothing.
    filled = {
        line.width
        for line, before, after in zip(lines, texts, texts[1:], strict=False)
        if _WORD_END.search(before) and _WORD.match(after) and not _TAKES_VALUE.search(before)
    }
    joined = texts[0]
    for line, before, after in zip(lines, texts, texts[1:], strict=False):
        hard = line.width >= MIN_WIDTH and (same or line.width == width)
        if trusted and hard and not indented and _kept(joined, before, after, line.width in filled):
            joined += after
        else:
            joined = joined.rstrip(b" ") + SOFT + after.lstrip(b" ")
    return joined


def _kept(joined: bytes, before: bytes, after: bytes, full: bool) -> bool:
    """Whether a hard wrap lost nothing here. `full`: the width is shown to be that of the wrap."""
    if not before or not after:
        return False
    if before.endswith(b" "):
        return True
    if after.startswith(b" "):
        return full  # a shorter line may have lost a blank at its end
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
    breaks: frozenset[int]  # where the name is broken
    solid: bytes  # the arguments without blanks
    gaps: tuple[int | None, ...]

    @classmethod
    def of(cls, name: bytes, args: bytes) -> Fragment:
        """From texts that may contain SOFT."""
        pieces = name.split(SOFT)
        breaks = frozenset(sum(map(len, pieces[:i])) for i in range(1, len(pieces)))
        solid, gaps = bytearray(), list[int | None]()
        for blanks, word in _WORDS.findall(args):
            gaps += [None if SOFT in blanks else len(blanks), *[0] * (len(word) - 1)]
            solid += word
        return cls(b"".join(pieces), breaks, bytes(solid), tuple(gaps))

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
        return Fragment(self.name, self.breaks & other.breaks, self.solid, tuple(gaps))

    def key(self) -> tuple[bytes, bytes] | None:
        """Name and arguments, if all is known and they can be a key's."""
        if self.breaks or None in self.gaps:
            return None
        args = bytearray()
        for c, gap in zip(self.solid, self.gaps, strict=True):
            args += b" " * (gap or 0)
            args.append(c)
        return (self.name, bytes(args)) if grammatical(bytes(args)) else None


def grammatical(args: bytes) -> bool:
    """Whether joined arguments are options: nothing of another program's output came between."""
    words = [word for word in args.split(b" ") if word]
    for before, word in zip([b"", *words], words, strict=False):
        if b"+" in word if before in _VALUE_OF else not _TOKEN.fullmatch(word):
            return False
        if _ODD.search(word) or _INNER.search(word):
            return False
    return True


def only_options(args: bytes) -> bool:
    """Whether each word is an option or the value of one; of an unbroken line no more is asked."""
    words = [word for word in args.split(b" ") if word]
    pairs = zip([b"", *words], words, strict=False)
    return all(word.startswith(b"-") or before in _VALUE_OF for before, word in pairs)
