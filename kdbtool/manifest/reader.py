"""Text to manifest, format 0, strict: what the grammar does not allow is refused by name, with its line.

Grammar and limits: docs/manifest-format.md. Order is the writer's business: a reader takes entries in any.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path
from typing import NoReturn

from kdbtool.errors import KdbtoolError, printable
from kdbtool.manifest.model import ASKED_UNBUILT, BUILD, Comments, Hashes, Key, Manifest, Note, Problem
from kdbtool.manifest.quote import QUOTED, unquote
from kdbtool.miopen.keys import MCPU, SUFFIX, is_arch, is_source, source_of
from kdbtool.miopen.problems import is_problem

MAX_FILE = 1 << 30  # bytes
MAX_LINE = 1 << 20  # characters, the newline not counted
MAX_REPEAT = 9

MAGIC = "kdbtool-manifest format 0"
_FORMAT = re.compile(r"kdbtool-manifest format (\S+)\Z")
_VERSION = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,4}){0,3}\Z")
_SHA256 = re.compile(r"sha256:([0-9a-f]{64})\Z")
_QUOTED = re.compile(QUOTED + r"\Z")
_REPEATED = re.compile(rf"{QUOTED} ([0-9]{{1,3}})\*{QUOTED} {QUOTED}\Z")
_CONFLICT = re.compile(r"(?:<{7}|={7}|>{7}|\|{7})(?: |\Z)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_HEADER_WORDS = ("miopen", "sources", "arch", "origin")
_BLOCK_WORDS = ("source", "headers", "key", "exact")


def read_manifest(path: Path) -> Manifest:
    """The manifest in file `path` (a pipe from a command will do); KdbtoolError, exit code 2, otherwise."""
    # A FIFO on disk without a writer would block for ever, and a device may never end.
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or (stat.S_ISFIFO(mode) and _is_open(path))):
        raise KdbtoolError("not a manifest", where=path, why="not a regular file")
    with path.open("rb") as file:
        data = file.read(MAX_FILE + 1)
    return parse_manifest(data, str(path))


def _is_open(path: Path) -> bool:
    """Whether `path` is a descriptor of this process: /dev/stdin, or a shell's <(...)."""
    return os.path.realpath(path.parent).startswith(("/proc/", "/dev")) or path.name == "stdin"


def parse_manifest(data: bytes, where: str) -> Manifest:
    """The manifest in `data`; `where` names it in errors and in `Manifest.path`."""
    if len(data) > MAX_FILE:
        raise KdbtoolError("too large for a manifest", where=where, why=f"at most {MAX_FILE} bytes")
    return _Reader(data, where).read()


class _Reader:
    """One pass over the lines; `self.number` is the line at hand."""

    def __init__(self, data: bytes, where: str) -> None:
        self.data, self.where, self.number = data, where, 0
        self.out = Manifest(path=where, digest=hashlib.sha256(data).hexdigest())
        self.seen: set[str] = set()  # header fields
        self.archs: set[str] = set()
        self.pending: list[str] = []
        self.block: tuple[str, bytes, str] | None = None  # state, kernel name, source ("" if none)
        self.in_header = True

    def read(self) -> Manifest:
        lines = self.data.split(b"\n")
        self._magic(lines[0])
        if lines[-1]:
            self.number = len(lines)
            self._bad("no newline at the end", "the file may be cut short")
        for raw in lines[1:-1]:
            self.number += 1
            self._line(self._text(raw))
        if self.in_header:
            self._end_header()
        self.out.trailing = self._comments()
        return self.out

    def _magic(self, raw: bytes) -> None:
        self.number = 1
        if raw.startswith(b"\xef\xbb\xbf"):
            self._bad("byte order mark", "a manifest has none", "save the file as UTF-8 without BOM")
        if not raw.startswith(b"kdbtool-manifest "):
            raise KdbtoolError("not a manifest", where=self.where, why=f"the first line is not '{MAGIC}'")
        text = self._text(raw)
        if text == MAGIC:
            return
        match = _FORMAT.match(text)
        if match and match[1].isdecimal() and match[1] != "0" and not match[1].startswith("0"):
            self._bad(
                f"manifest format {match[1][:20]}",
                "made by a newer kdbtool, this one reads format 0",
                "update kdbtool",
            )
        self._bad("unknown manifest format", f"expected '{MAGIC}'")

    def _text(self, raw: bytes) -> str:
        if len(raw) > MAX_LINE * 4 or b"\r" in raw:
            if raw.endswith(b"\r"):
                self._bad("CRLF line end", "lines end in a newline alone", "run dos2unix on the file")
            if len(raw) > MAX_LINE * 4:
                self._bad("line too long", f"at most {MAX_LINE} characters")
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            self._bad("not UTF-8", f"byte {raw[error.start]:#04x} at column {error.start + 1}")
        if len(text) > MAX_LINE:
            self._bad("line too long", f"at most {MAX_LINE} characters")
        control = None if text.isprintable() else _CONTROL.search(text)
        if control:
            name = {"\t": "tab", "\0": "NUL byte", "\r": "carriage return"}.get(
                control[0], f"control character U+{ord(control[0]):04X}"
            )
            self._bad(name, f"column {control.start() + 1}")
        return text

    def _line(self, text: str) -> None:
        if not text:
            if self.in_header:
                self.out.comments += self._comments()
            return
        stripped = text.lstrip(" ")
        if stripped.startswith("#"):
            self.pending.append(stripped)
            return
        if text.endswith(" "):
            self._bad("blank at the end of the line", "one spelling per line keeps diffs small")
        if _CONFLICT.match(text):
            self._bad("git conflict marker", "the merge was not finished", "resolve it, then try again")
        if text.startswith("  ") and not text.startswith("   "):
            self._inner(text[2:])
        elif text.startswith(" "):
            self._bad("wrong indent", "a line of a block begins with two spaces")
        else:
            self._outer(text)

    def _outer(self, text: str) -> None:
        word, _, rest = text.partition(" ")
        if word in _HEADER_WORDS:
            if not self.in_header:
                self._bad(f"header field {word} after the first block", "it belongs above")
            self.out.comments += self._comments()
            self._header(word, rest)
        elif word in ("kernel", "unbuilt"):
            self._end_header()
            self._head(BUILD if word == "kernel" else ASKED_UNBUILT, rest)
        elif word == "problem":
            self._end_header()
            self.block = None
            if not is_problem(rest):
                self._bad(f"not a problem key: {_short(rest)}", "see docs/manifest-format.md for the form")
            if rest in self.out.problems:
                self._bad("duplicate problem", f"first on line {self.out.problems[rest].note.line}")
            self.out.problems[rest] = Problem(Note(self.number, self._comments()))
        elif word in _BLOCK_WORDS:
            self._bad(f"field {word} outside a block", "it is indented by two spaces below a kernel line")
        else:
            self._unknown(word, (*_HEADER_WORDS, "kernel", "unbuilt", "problem"))

    def _header(self, word: str, rest: str) -> None:
        if word in ("miopen", "sources") and word in self.seen:
            self._bad(f"duplicate field {word}", "it stands once in the header")
        self.seen.add(word)
        if word == "miopen":
            if rest != "unknown" and not _VERSION.match(rest):
                self._bad(f"not a version: {_short(rest)}", "expected one such as 6.4.3, or unknown")
            self.out.miopen = None if rest == "unknown" else rest
        elif word == "sources":
            self.out.sources = None if rest == "unknown" else self._sha256(rest)
        elif word == "arch":
            arch = self._arch(rest)
            if arch in self.archs:
                self._bad(f"duplicate arch {arch}")
            self.archs.add(arch)
        else:
            match = _QUOTED.match(rest)
            if not match:
                self._bad_string(rest)
            try:
                origin = self._unquote(match[1]).decode("utf-8")
            except UnicodeDecodeError:
                self._bad("origin is not UTF-8")
            if origin in self.out.origins:
                self._bad("duplicate origin")
            self.out.origins.add(origin)

    def _end_header(self) -> None:
        if not self.in_header:
            return
        for word in ("miopen", "sources"):
            if word not in self.seen:
                self._bad(f"no {word} in the header", f"write '{word} unknown' where it is not known")
        self.in_header = False

    def _head(self, state: str, rest: str) -> None:
        source = ""
        if rest.startswith('"'):
            match = _QUOTED.match(rest)
            if not match:
                self._bad_string(rest)
            name = self._unquote(match[1])
        elif is_source(rest):
            source, name = rest, rest.encode("ascii") + SUFFIX
        else:
            self._bad(f"not a kernel source name: {_short(rest) or 'nothing'}", _why_no_source(rest))
        first = self.out.blocks.get((state, name))
        if first:
            self._bad("duplicate block", f"first on line {first.line}", "join the two")
        plain = source_of(name)
        if plain is not None and not source:
            self._bad(f"plain name in quotes: {_short(plain)}", "a name has one spelling", f"write {plain}")
        self.out.blocks[state, name] = Note(self.number, self._comments())
        self.block = (state, name, source)

    def _inner(self, text: str) -> None:
        word, _, rest = text.partition(" ")
        if self.block is None:
            self._bad(f"indented field {_short(word)} outside a block", "no kernel line stands above it")
        state, name, source = self.block
        if word in ("key", "exact"):
            self._key(word, rest, state, name)
        elif word in ("source", "headers"):
            if not source or state != BUILD:
                self._bad(
                    f"field {word} where no source is named", "only a kernel block with a plain name has it"
                )
            have = self.out.hashes.get(source, Hashes())
            if getattr(have, word):
                self._bad(f"duplicate field {word}", "it stands once in a block")
            if self.pending:
                block = self.out.blocks[state, name]
                block.comments += self._comments()
            digest = self._sha256(rest)
            self.out.hashes[source] = (
                Hashes(digest, have.headers) if word == "source" else Hashes(have.source, digest)
            )
        else:
            self._unknown(word, _BLOCK_WORDS)

    def _key(self, word: str, rest: str, state: str, name: bytes) -> None:
        arch, _, value = rest.partition(" ")
        if word == "exact" and arch == "-":
            arch = ""
        else:
            arch = self._arch(arch)
            if arch not in self.archs:
                self._bad(
                    f"arch {arch} is not in the header",
                    "each arch of a key is listed there",
                    f"add the line 'arch {arch}'",
                )
        args = self._args(value) + (MCPU + arch.encode("ascii") if word == "key" else b"")
        key = Key(name, args, arch, state)
        other = Key(name, args, arch, ASKED_UNBUILT if state == BUILD else BUILD)
        first = self.out.keys.get(key) or self.out.keys.get(other)
        if first:
            self._bad("duplicate key", f"first on line {first.line}", "remove one of the two lines")
        self.out.keys[key] = Note(self.number, self._comments())

    def _args(self, value: str) -> bytes:
        match = _QUOTED.match(value)
        if match:
            return self._unquote(match[1])
        match = _REPEATED.match(value)
        if not match:
            self._bad_string(value)
        prefix, count, block, suffix = match.groups()
        if not 2 <= int(count) <= MAX_REPEAT or count.startswith("0"):
            self._bad(f"repeated {count} times", f"expected 2 to {MAX_REPEAT}")
        args = self._unquote(prefix) + self._unquote(block) * int(count) + self._unquote(suffix)
        if not block:
            self._bad("empty repeated block")
        return args

    def _unquote(self, text: str) -> bytes:
        try:
            return unquote(text)
        except ValueError as error:
            self._bad("bad escape", str(error))

    def _arch(self, text: str) -> str:
        if not is_arch(text):
            self._bad(
                f"not an architecture: {_short(text) or 'nothing'}", "expected a bare one such as gfx1030"
            )
        return text

    def _sha256(self, text: str) -> str:
        match = _SHA256.match(text)
        if not match:
            self._bad(f"not a hash: {_short(text)}", "expected sha256: and 64 lower-case hex digits")
        return match[1]

    def _comments(self) -> Comments:
        taken, self.pending = tuple(self.pending), []
        return taken

    def _bad_string(self, text: str) -> NoReturn:
        escape = re.search(r'\\(?!["\\]|x[0-9a-f]{2})(.{0,3})', text)
        if escape:
            self._bad(f"bad escape \\{_short(escape[1])}", r"only \", \\ and \xHH (lower case) exist")
        if re.search(r"[^ -~]", text):
            self._bad("unescaped byte in a string", r"only printable ASCII, the rest as \xHH")
        self._bad(f"not a string: {_short(text) or 'nothing'}", 'expected "text" or "text" N*"text" "text"')

    def _unknown(self, word: str, known: tuple[str, ...]) -> NoReturn:
        self._bad(f"unknown field {_short(word)}", f"format 0 has {', '.join(known)}")

    def _bad(self, what: str, why: str | None = None, hint: str | None = None) -> NoReturn:
        raise KdbtoolError(what, where=f"{self.where}:{self.number}", why=why, hint=hint)


def _short(text: str) -> str:
    text = printable(text)
    return text if len(text) <= 60 else text[:57] + "..."


def _why_no_source(text: str) -> str:
    if "/" in text:
        return "a name has no '/'"
    if ".." in text:
        return "a name has no '..'"
    if text[:1] in (".", "-"):
        return "a name does not begin with '.' or '-'"
    return "expected letters, digits, '_', '.', '+', '-', at most 255"
