"""Text to manifest, formats 0 and 1, strict: what the grammar does not allow is refused, with its line.

Grammar and limits: docs/manifest-format.md. Order is the writer's business: a reader takes entries in any.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from kdbtool.errors import KdbtoolError, printable
from kdbtool.manifest.model import (
    ASKED_UNBUILT,
    BUILD,
    Comments,
    Hashes,
    Key,
    Manifest,
    Note,
    Problem,
)
from kdbtool.manifest.quote import QUOTED, unquote
from kdbtool.manifest.schema import VALUE, Schema
from kdbtool.manifest.sections import Sections
from kdbtool.miopen.finddb import Damaged, parse_item
from kdbtool.miopen.keys import MCPU, SUFFIX, is_arch, is_source, source_of
from kdbtool.miopen.problems import is_problem, parse_problem

MAX_FILE = 1 << 30  # bytes
MAX_LINE = 1 << 20  # characters, the newline not counted
MAX_REPEAT = 9

MAGIC = "kdbtool-manifest format "
FORMATS = ("0", "1")  # 1 is 0 with schemas and rows, and more in header and problems
_FORMAT = re.compile(r"kdbtool-manifest format (\S+)\Z")
_VERSION = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,4}){0,3}\Z")
_SHA256 = re.compile(r"sha256:([0-9a-f]{64})\Z")
_QUOTED = re.compile(QUOTED + r"\Z")
_REPEATED = re.compile(rf"{QUOTED} ([0-9]{{1,3}})\*{QUOTED} {QUOTED}\Z")
_CONFLICT = re.compile(r"(?:<{7}|={7}|>{7}|\|{7})(?: |\Z)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_HEADER_0, _BLOCK_0 = ("miopen", "sources", "arch", "origin"), ("source", "headers", "key", "exact")
_HEADER_WORDS: dict[str, tuple[str, ...]] = {"0": _HEADER_0, "1": (*_HEADER_0, "find-db", "profile")}
_BLOCK_WORDS: dict[str, tuple[str, ...]] = {"0": _BLOCK_0, "1": (*_BLOCK_0, "schema", "rows")}
_PROBLEM_WORDS = ("find", "tuned")
_PROFILE = re.compile(r"[A-Za-z][A-Za-z0-9_.]{0,99}\Z")


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


def parse_schemas(data: bytes, where: str) -> dict[bytes, dict[tuple[str, ...], Schema]]:
    """The schemas of the manifest in `data`, by kernel name and the names of their options."""
    reader = _Reader(data, where)
    reader.read()
    return reader.sections.schemas


class _Reader:
    """One pass over the lines; `self.number` is the line at hand."""

    def __init__(self, data: bytes, where: str) -> None:
        self.data, self.where, self.number = data, where, 0
        self.out = Manifest(path=where, digest=hashlib.sha256(data).hexdigest())
        self.seen: set[str] = set()  # header fields
        self.archs: set[str] = set()
        self.pending: list[str] = []
        self.block: tuple[str, bytes, str] | None = None  # state, kernel name, source ("" if none)
        self.problem: Problem | None = None
        self.in_header = True
        self.format = ""
        self.sections = Sections(self)

    def read(self) -> Manifest:
        lines = self.data.split(b"\n")
        self._magic(lines[0])
        if lines[-1]:
            self.number = len(lines)
            self.bad("no newline at the end", "the file may be cut short")
        for raw in lines[1:-1]:
            self.number += 1
            self._line(self._text(raw))
        self.sections.end()
        if self.in_header:
            self._end_header()
        self.out.trailing = self.comments()
        return self.out

    def _magic(self, raw: bytes) -> None:
        self.number = 1
        if raw.startswith(b"\xef\xbb\xbf"):
            self.bad("byte order mark", "a manifest has none", "save the file as UTF-8 without BOM")
        if not raw.startswith(b"kdbtool-manifest "):
            raise KdbtoolError("not a manifest", where=self.where, why=f"the first line is not '{MAGIC}1'")
        text = self._text(raw)
        if text.removeprefix(MAGIC) in FORMATS:
            self.format = text.removeprefix(MAGIC)
            return
        match = _FORMAT.match(text)
        if match and match[1].isdecimal() and not match[1].startswith("0"):
            self.bad(
                f"manifest format {match[1][:20]}",
                "made by a newer kdbtool, this one reads formats 0 and 1",
                "update kdbtool",
            )
        self.bad("unknown manifest format", f"expected '{MAGIC}1'")

    def _text(self, raw: bytes) -> str:
        if len(raw) > MAX_LINE * 4 or b"\r" in raw:
            if raw.endswith(b"\r"):
                self.bad("CRLF line end", "lines end in a newline alone", "run dos2unix on the file")
            if len(raw) > MAX_LINE * 4:
                self.bad("line too long", f"at most {MAX_LINE} characters")
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            self.bad("not UTF-8", f"byte {raw[error.start]:#04x} at column {error.start + 1}")
        if len(text) > MAX_LINE:
            self.bad("line too long", f"at most {MAX_LINE} characters")
        control = None if text.isprintable() else _CONTROL.search(text)
        if control:
            name = {"\t": "tab", "\0": "NUL byte", "\r": "carriage return"}.get(
                control[0], f"control character U+{ord(control[0]):04X}"
            )
            self.bad(name, f"column {control.start() + 1}")
        return text

    def _line(self, text: str) -> None:
        if not text:
            if self.in_header:
                self.out.comments += self.comments()
            return
        stripped = text.lstrip(" ")
        if stripped.startswith("#"):
            self.pending.append(stripped)
            return
        if text.endswith(" "):
            self.bad("blank at the end of the line", "one spelling per line keeps diffs small")
        if _CONFLICT.match(text):
            self.bad("git conflict marker", "the merge was not finished", "resolve it, then try again")
        if text.startswith(" "):
            indent = len(text) - len(stripped)
            if indent == 2:
                self._inner(stripped)
            elif indent == 1 and self.format != "0":
                self.sections.row(stripped)
            elif indent == 4 and self.format != "0":
                self.sections.option(stripped)
            else:
                self.bad("wrong indent", "a line of a block begins with two spaces")
        else:
            self._outer(text)

    def _outer(self, text: str) -> None:
        word, _, rest = text.partition(" ")
        self.sections.leave()
        self.problem = None
        if word in _HEADER_WORDS[self.format]:
            if not self.in_header:
                self.bad(f"header field {word} after the first block", "it belongs above")
            self.out.comments += self.comments()
            self._header(word, rest)
        elif word in ("kernel", "unbuilt"):
            self._end_header()
            self._head(BUILD if word == "kernel" else ASKED_UNBUILT, rest)
        elif word == "problem":
            self._end_header()
            self.block = None
            if not is_problem(rest):
                self.bad(f"not a problem key: {_short(rest)}", "see docs/manifest-format.md for the form")
            if rest in self.out.problems:
                self.bad("duplicate problem", f"first on line {self.out.problems[rest].note.line}")
            self.problem = self.out.problems[rest] = Problem(Note(self.number, self.comments()))
            self.problem_direction = parse_problem(rest).direction
        elif word in (*_BLOCK_WORDS[self.format], *_PROBLEM_WORDS):
            self.bad(f"field {word} outside a block", "it is indented by two spaces below a kernel line")
        else:
            self._unknown(word, (*_HEADER_WORDS[self.format], "kernel", "unbuilt", "problem"))

    def _header(self, word: str, rest: str) -> None:
        if word in ("miopen", "sources", "find-db") and word in self.seen:
            self.bad(f"duplicate field {word}", "it stands once in the header")
        self.seen.add(word)
        if word == "miopen":
            if rest != "unknown" and not _VERSION.match(rest):
                self.bad(f"not a version: {_short(rest)}", "expected one such as 6.4.3, or unknown")
            self.out.miopen = None if rest == "unknown" else rest
        elif word == "sources":
            self.out.sources = None if rest == "unknown" else self._sha256(rest)
        elif word == "find-db":
            self.out.find_db = self._sha256(rest)
        elif word == "profile":
            name, _, value = rest.partition(" ")
            if not _PROFILE.match(name) or name in self.out.profile:
                self.bad(f"not a name, or there twice: {_short(name)}", "expected profile NAME VALUE")
            self.out.profile[name] = self._word(value)
        elif word == "arch":
            arch = self.arch(rest)
            if arch in self.archs:
                self.bad(f"duplicate arch {arch}")
            self.archs.add(arch)
        else:
            match = _QUOTED.match(rest)
            if not match:
                self._bad_string(rest)
            try:
                origin = self._unquote(match[1]).decode("utf-8")
            except UnicodeDecodeError:
                self.bad("origin is not UTF-8")
            if origin in self.out.origins:
                self.bad("duplicate origin")
            self.out.origins.add(origin)

    def _end_header(self) -> None:
        if not self.in_header:
            return
        for word in ("miopen", "sources"):
            if word not in self.seen:
                self.bad(f"no {word} in the header", f"write '{word} unknown' where it is not known")
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
            self.bad(f"not a kernel source name: {_short(rest) or 'nothing'}", _why_no_source(rest))
        first = self.out.blocks.get((state, name))
        if first:
            self.bad("duplicate block", f"first on line {first.line}", "join the two")
        plain = source_of(name)
        if plain is not None and not source:
            self.bad(f"plain name in quotes: {_short(plain)}", "a name has one spelling", f"write {plain}")
        self.out.blocks[state, name] = Note(self.number, self.comments())
        self.block = (state, name, source)

    def _inner(self, text: str) -> None:
        word, _, rest = text.partition(" ")
        if self.problem is not None and self.format != "0":
            self._of_problem(self.problem, word, rest)
            return
        if self.block is None:
            self.bad(f"indented field {_short(word)} outside a block", "no kernel line stands above it")
        state, name, source = self.block
        self.sections.end()
        if word == "schema" and self.format != "0":
            self.sections.schema(rest)
        elif word == "rows" and self.format != "0":
            self.sections.rows(rest)
        elif word in ("key", "exact"):
            self._key(word, rest, state, name)
        elif word in ("source", "headers"):
            if not source or state != BUILD:
                self.bad(
                    f"field {word} where no source is named", "only a kernel block with a plain name has it"
                )
            have = self.out.hashes.get(source, Hashes())
            if getattr(have, word):
                self.bad(f"duplicate field {word}", "it stands once in a block")
            self.comment_block()
            digest = self._sha256(rest)
            self.out.hashes[source] = (
                Hashes(digest, have.headers) if word == "source" else Hashes(have.source, digest)
            )
        else:
            self._unknown(word, _BLOCK_WORDS[self.format])

    def comment_block(self) -> None:
        """What stands above a part of a block that has no comments of its own is the block's."""
        if self.pending and self.block is not None:
            self.out.blocks[self.block[:2]].comments += self.comments()

    def _of_problem(self, problem: Problem, word: str, rest: str) -> None:
        words = rest.split(" ")
        problem.note.comments += self.comments()
        if word == "find":
            if len(words) != 4 or any(s.solver == words[0] for s in problem.solutions):
                self.bad(
                    "not a solution, or the solver's second", "expected find SOLVER TIME BYTES ALGORITHM"
                )
            item = f"{words[0]}:{','.join(words[1:])}"
            found = parse_item(item, self.problem_direction)
            if isinstance(found, Damaged):
                self.bad(f"not a solution: {_short(rest)}", str(found))
            problem.solutions.append(found)
        elif word == "tuned":
            solver, _, value = rest.partition(" ")
            if not solver or solver in problem.tuned:
                self.bad("not tuned values, or the solver's second", "expected tuned SOLVER VALUES")
            problem.tuned[solver] = self._word(value)
        else:
            self._unknown(word, _PROBLEM_WORDS)

    def _word(self, text: str) -> str:
        """A value as it stands, or a string."""
        if VALUE.match(text):
            return text
        match = _QUOTED.match(text)
        if not match:
            self._bad_string(text)
        try:
            return self._unquote(match[1]).decode("utf-8")
        except UnicodeDecodeError:
            self.bad("a string that is not UTF-8")

    def _key(self, word: str, rest: str, state: str, name: bytes) -> None:
        arch, _, value = rest.partition(" ")
        arch = "" if word == "exact" and arch == "-" else self.listed_arch(arch)
        args = self._args(value) + (MCPU + arch.encode("ascii") if word == "key" else b"")
        self.add(Key(name, args, arch, state), Note(self.number, self.comments()))

    def add(self, key: Key, note: Note) -> None:
        """One key more; it may not be there in either state."""
        first = self.out.keys.get(key)
        other = ASKED_UNBUILT if key.state == BUILD else BUILD
        if first is None and (other, key.name) in self.out.blocks:
            first = self.out.keys.get(replace(key, state=other))
        if first:
            self.bad("duplicate key", f"first on line {first.line}", "remove one of the two lines")
        self.out.keys[key] = note

    def listed_arch(self, text: str) -> str:
        """An arch that the header lists."""
        arch = self.arch(text)
        if arch not in self.archs:
            self.bad(
                f"arch {arch} is not in the header",
                "each arch of a key is listed there",
                f"add the line 'arch {arch}'",
            )
        return arch

    def _args(self, value: str) -> bytes:
        match = _QUOTED.match(value)
        if match:
            return self._unquote(match[1])
        match = _REPEATED.match(value)
        if not match:
            self._bad_string(value)
        prefix, count, block, suffix = match.groups()
        if not 2 <= int(count) <= MAX_REPEAT or count.startswith("0"):
            self.bad(f"repeated {count} times", f"expected 2 to {MAX_REPEAT}")
        args = self._unquote(prefix) + self._unquote(block) * int(count) + self._unquote(suffix)
        if not block:
            self.bad("empty repeated block")
        return args

    def _unquote(self, text: str) -> bytes:
        try:
            return unquote(text)
        except ValueError as error:
            self.bad("bad escape", str(error))

    def arch(self, text: str) -> str:
        """A bare architecture."""
        if not is_arch(text):
            self.bad(
                f"not an architecture: {_short(text) or 'nothing'}", "expected a bare one such as gfx1030"
            )
        return text

    def _sha256(self, text: str) -> str:
        match = _SHA256.match(text)
        if not match:
            self.bad(f"not a hash: {_short(text)}", "expected sha256: and 64 lower-case hex digits")
        return match[1]

    def comments(self) -> Comments:
        """What was pending; it belongs to the caller's entry now."""
        taken, self.pending = tuple(self.pending), []
        return taken

    def _bad_string(self, text: str) -> NoReturn:
        escape = re.search(r'\\(?!["\\]|x[0-9a-f]{2})(.{0,3})', text)
        if escape:
            self.bad(f"bad escape \\{_short(escape[1])}", r"only \", \\ and \xHH (lower case) exist")
        if re.search(r"[^ -~]", text):
            self.bad("unescaped byte in a string", r"only printable ASCII, the rest as \xHH")
        self.bad(f"not a string: {_short(text) or 'nothing'}", 'expected "text" or "text" N*"text" "text"')

    def _unknown(self, word: str, known: tuple[str, ...]) -> NoReturn:
        self.bad(f"unknown field {_short(word)}", f"format {self.format} has {', '.join(known)}")

    def bad(self, what: str, why: str | None = None, hint: str | None = None) -> NoReturn:
        """Refuse the line at hand."""
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
