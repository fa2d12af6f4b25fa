"""One statement of MIOpen's log about a kernel: what it says, and whether its key is exact.

MIOpen writes, at log level 6, around each look-up (src/binary_cache.cpp `LoadBinary`):

    Loading binary for: NAME ;args: ARGS       3.5 to 4.2: the name without `.o`
    Loading binary for: NAME.o; args: ARGS     4.3 to 6.1 (up to 6.0 ` size=N` follows an MD5 as a name)
    Loading binary for: "NAME.o"; args: ARGS   from 6.2: a path, so quoted

then the SELECT as its text (src/sqlite_db.cpp `Prepare`), once per database, then the outcome in the same
spelling: `Successfully loaded` (`Sucessfully` up to 5.3; from 3.8) or `Unable to load`; after a compilation
`Saving`. Exactly one blank separates `args:` from the key.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from kdbtool.codeobject.flags import ARCHS, XNACK_ARCHS
from kdbtool.miopen.keys import is_source
from kdbtool.miopen.logs_text import Line
from kdbtool.miopen.logs_wrap import SOFT, Fragment, flexible, grammatical, join, only_options

LOAD, SELECT, HIT, MISS, SAVE = "load", "select", "hit", "miss", "save"
_QUERY = b"SELECT kernel_blob, kernel_hash, uncompressed_size FROM kern_db WHERE (kernel_name = '"
_HEADS = (
    (LOAD, b"Loading binary for: "),
    (HIT, b"Successfully loaded binary for: "),
    (HIT, b"Sucessfully loaded binary for: "),
    (MISS, b"Unable to load binary for: "),
    (SAVE, b"Saving binary for: "),
    (SELECT, _QUERY),
)
_KINDS = {head: kind for kind, head in _HEADS}
_HEAD = re.compile(b"|".join(re.escape(head) for _, head in _HEADS))
_SOFT_HEAD = re.compile(b"|".join(b"(%s)" % flexible(head) for _, head in _HEADS))
_AND = flexible(b"') AND (kernel_args = '")
_QUERIED = re.compile(rb"([^']*?)" + _AND + rb"(.*)'\0?\)\0?;[ \0]*\Z", re.DOTALL)
_NAMED = re.compile(
    rb"(?:\"(?P<quoted>[^\"\\]*)\"|(?P<plain>[^ ;\"]+?)(?P<size>[ \0]+size=[0-9\0]+)?)"
    rb"(?P<gap>[ \0]*);(?P<after>[ \0]*)a\0?r\0?g\0?s\0?:(?P<rest>.*)\Z",
    re.DOTALL,
)
_ARCH = rb"(gfx[0-9a-z]{2,8}(?:-[0-9a-z]{1,8}){0,2})"
_END = re.compile(rb"(?:\A| )-mcpu=" + _ARCH + rb"((?::[a-z]{2,12}[-+])*)\Z")
_CUT_END = re.compile(rb"-mcpu=" + _ARCH + rb"((?::[a-z]{2,12}[-+])*) *\Z")
_QUERY_END = re.compile(rb"'\); *\Z")
_MD5_NAME = re.compile(rb"[0-9a-f]{32}\.o\Z")
_ODD = re.compile(rb"[^ -~]")
_FEATURED = frozenset(arch.encode() for arch in XNACK_ARCHS)  # xnack is a target id's last feature
_KNOWN = frozenset(arch.encode() for arch in ARCHS)


class Widest(NamedTuple):
    """The longest lines of a log. A wrap made them where there are several: then no line is longer."""

    columns: int
    lines: int

    @property
    def wrap(self) -> int | None:
        """The columns of the wrap, None where nothing shows that there is one."""
        return self.columns if self.lines > 1 else None


@dataclass(frozen=True, slots=True)
class Statement:
    """`key`: exact; else `fragment`: as far as it is known, else neither, and `why` in any case."""

    kind: str
    line: int
    key: tuple[bytes, bytes] | None = None
    fragment: Fragment | None = None
    why: str = ""


def find_head(text: bytes) -> re.Match[bytes] | None:
    """Where a statement about a kernel begins; the match ends where its name begins."""
    if b" binary for: " in text or b"FROM kern_db" in text:
        return _HEAD.search(text)
    return None


def parse(
    lines: list[Line], devices: frozenset[bytes], widest: Callable[[], Widest], trusted: bool
) -> Statement | None:
    """The statement that begins in the first of `lines`; the others follow it and may belong to it.

    `devices`: architectures that the log itself names. `widest`: of all, asked only at need. None: no
    statement about a kernel.
    """
    first = lines[0]
    head = find_head(first.text)
    if head:
        kind = _KINDS[head.group()]
        body = first.text[head.end() :]
        if _ends(kind, body, devices) and not _goes_on(kind, lines[1:]):
            if any(_CUT_END.search(line.text[-96:]) for line in lines[1:]):
                return Statement(kind, first.number, why="another statement's end follows: they may be mixed")
            return _single(kind, first, body, devices)
        if len(lines) == 1:
            return _single(kind, first, body, devices)
    elif len(lines) == 1:
        return None
    last = _last(head is not None and _KINDS[head.group()] == SELECT, lines, devices)
    if last is None:
        if head is None:
            return None
        kind, body = _KINDS[head.group()], first.text[head.end() :]
        alone = _single(kind, first, body, devices)
        if alone.key and alone.key[0].endswith(b".mlir.o") and first.width < widest().columns:
            return alone
        return Statement(kind, first.number, why="it is cut off, or broken by other lines")
    # A second end among the lines that follow: which of them is this statement's?
    ends = any(_CUT_END.search(line.text[-96:]) for line in lines[last + 1 :])
    return _wrapped(lines[: last + 1], widest().wrap, trusted and not ends, devices)


def _ends(kind: str, text: bytes, devices: frozenset[bytes]) -> bool:
    """Whether `text` ends as a statement does, for certain."""
    if kind == SELECT:
        return _QUERY_END.search(text[-96:]) is not None
    end = _CUT_END.search(text[-96:])
    return end is not None and (end[1] in _KNOWN or end[1] in devices)


def _goes_on(kind: str, lines: list[Line]) -> bool:
    """Whether lines that follow a whole statement could still be its end: a target id's features."""
    return kind != SELECT and next((line.text for line in lines if line.text), b"").startswith(b":")


def _last(query: bool, lines: list[Line], devices: frozenset[bytes]) -> int | None:
    """Index of the line in which the statement ends."""
    before = b""
    for i, line in enumerate(lines):
        tail = before[-48:] + line.text.strip(b" ")
        before = tail
        query = query or b"FROM kern_db" in tail
        if i and _ends(SELECT if query else LOAD, tail, devices):
            if _goes_on(SELECT if query else LOAD, lines[i + 1 : i + 4]):
                continue
            return i
    return None


def _single(kind: str, line: Line, body: bytes, devices: frozenset[bytes]) -> Statement:
    """Of one unbroken line."""
    if not line.whole:
        return Statement(kind, line.number, why="a line too long to be kept whole")
    found = _split(kind, body)
    if found is None:
        return Statement(kind, line.number, why="no name and arguments in it, or it is cut off")
    why = _wrong(kind, *found, devices, line.ended)
    return Statement(kind, line.number, why=why) if why else Statement(kind, line.number, found)


def _wrapped(
    lines: list[Line], width: int | None, trusted: bool, devices: frozenset[bytes]
) -> Statement | None:
    texts = [line.text for line in lines]
    number = lines[0].number
    kind = LOAD
    for trust in (True, False) if trusted else (False,):
        joined = join(lines, texts, width, trust)
        head = _SOFT_HEAD.search(joined)
        if head is None or head.lastindex is None:
            continue
        kind = _HEADS[head.lastindex - 1][0]
        found = _split(kind, joined[head.end() :])
        if found is None:
            continue
        if SOFT not in found[0] and SOFT not in found[1]:
            if not _wrong(kind, *found, devices, True) and grammatical(found[1]):
                return Statement(kind, number, found)
            continue
        likely = found[1].replace(SOFT + b"-", b" -").replace(SOFT, b"")
        if not _wrong(kind, found[0].replace(SOFT, b""), likely, devices, True) and grammatical(likely):
            why = "wrapped, and blanks of its key may be lost"
            return Statement(kind, number, fragment=Fragment.of(*found), why=why)
    if not any(find_head(text) or b"[LoadBinary]" in text for text in texts[:2]):
        return None
    return Statement(kind, number, why="wrapped, and its pieces make no key")


def _split(kind: str, body: bytes) -> tuple[bytes, bytes] | None:
    """(name, arguments) of what follows the head; the old spelling's name gets its `.o`."""
    if kind == SELECT:
        query = _QUERIED.match(body)
        return (query[1], query[2]) if query else None
    named = _NAMED.match(body)
    if named is None:
        return None
    name = named["quoted"] if named["quoted"] is not None else named["plain"]
    old = named["quoted"] is None and not named["after"].strip(SOFT) and named["gap"] != b""
    if SOFT in named["gap"] + named["after"]:  # which of the blanks is lost? Only old names lack the `.o`
        old = named["quoted"] is None and not name.replace(SOFT, b"").endswith((b".o", b".obj"))
    elif named["quoted"] is None and not old and (named["gap"] or named["after"] != b" "):
        return None
    if named["size"] is not None and not _MD5_NAME.match(name):
        return None
    rest = named["rest"]
    lead = len(rest) - len(rest.lstrip(b" \0"))
    if SOFT not in rest[:lead]:  # exactly one separator, the rest is the key's
        if rest[:1] != b" ":
            return None
        rest = rest[1:]
    return (name + b".o" if old else name), rest


def _wrong(kind: str, name: bytes, args: bytes, devices: frozenset[bytes], ended: bool) -> str:
    """Why it cannot be a key of MIOpen's, or ""."""
    for suffix in (b".o", b".obj"):
        if name.endswith(suffix):
            break
    else:
        return "its name does not end in .o"
    try:
        source = name[: -len(suffix)].decode("ascii")
    except UnicodeDecodeError:
        return "its name is no kernel's"
    if not is_source(source):
        return "its name is no kernel's"
    mlir = source.endswith(".mlir")  # its words are those of its own compiler
    if _ODD.search(args) or b"MIOpen(" in args or not (mlir or only_options(args)):
        return "something else is mixed into it"
    if mlir:
        return "" if kind == SELECT or ended else "it is cut off"
    end = _END.search(args[-96:])
    if end is None or args.count(b"-mcpu=") != 1:
        return "its arguments do not end in -mcpu=ARCH: it is cut off, or something else is mixed into it"
    if kind != SELECT and end[1] not in _KNOWN and end[1] not in devices:
        return "it ends in an architecture that is not known: it may be cut off"
    if kind != SELECT and not ended and end[1] in _FEATURED and b":xnack" not in end[2]:
        return "it may be cut off within its target id"
    return ""
