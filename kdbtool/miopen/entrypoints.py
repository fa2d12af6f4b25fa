"""Which kernels a kernel source defines under a key's options, as far as that is certain.

Found in the text: `__kernel void NAME(`, `extern "C" __global__ void NAME(`, `.amdhsa_kernel NAME`, also
where a macro of the text makes the name (naive_conv.cpp). A definition under a condition that cannot be
judged, or with a name that cannot, is possible and not certain; nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from kdbtool.miopen.keys import language
from kdbtool.miopen.preprocess import UNKNOWN, Line, Macro, Macros, Tokens, lines_of, tokens_of
from kdbtool.miopen.sources import SourceSet

MARKS = {"opencl": frozenset({"__kernel", "kernel"}), "hip": frozenset({"__global__"})}
MAX_TOKENS = 1_000_000  # that the expansion of one source's macros may make
MAX_NESTING = 64
_NAME = re.compile(r"[A-Za-z_]\w*\Z")
_ATTRIBUTES = frozenset({"__attribute__", "__launch_bounds__", "__declspec", "alignas"})
_ASM = re.compile(r"^[ \t]*\.(\w+)(?:[ \t]+([^\s;/]+))?", re.MULTILINE)
_ASM_OPEN = frozenset({"if", "ifdef", "ifndef", "ifnotdef", "ifc", "ifeq", "ifne", "ifb", "ifnb",
                       "ifgt", "ifge", "iflt", "ifle", "macro", "rept", "irp", "irpc"})  # fmt: skip
_ASM_CLOSE = frozenset({"endif", "endm", "endmacro", "endr"})
_DEFINE = re.compile(rb"(?:^| )-D([A-Za-z_]\w*)(?:=([^ ]*))?(?= |$)")


@dataclass(frozen=True)
class EntryPoints:
    """`certain`: kernels that the object must have. `possible`: those and others that it may have.

    `complete`: whether it can have no others. Where `certain` is empty and `complete` False nothing
    can be told.
    """

    certain: frozenset[str]
    possible: frozenset[str]
    complete: bool

    @property
    def told(self) -> bool:
        """Whether an object can be compared with this at all."""
        return bool(self.certain) or self.complete


NOTHING = EntryPoints(frozenset(), frozenset(), False)


class Entries:
    """The entry points of a source set's kernels; each text is read once, each set of options once."""

    def __init__(self, sources: SourceSet) -> None:
        self.sources = sources
        self._texts: dict[str, _Text] = {}
        self._known: dict[tuple[str, tuple[tuple[str, str], ...]], EntryPoints] = {}

    def of(self, source: str, args: bytes) -> EntryPoints | None:
        """The kernels that `source` defines under the options `args`; None for an unknown source."""
        if source not in self.sources.kernels:
            return None
        kind = language(source)
        if kind not in MARKS:
            text = self.sources.kernels[source].decode("utf-8", "replace")
            return self._known.setdefault((source, ()), _assembly(text)) if kind == "asm" else NOTHING
        text_ = self._texts.get(source)
        if text_ is None:
            text_ = self._texts[source] = _Text.read(self.sources, source, MARKS[kind])
        options = {n: v for n, v in _options(args).items() if n in text_.mentions}
        identity = (source, tuple(sorted(options.items())))
        found = self._known.get(identity)
        if found is None:
            found = self._known[identity] = _Scan(text_, options, kind == "hip").run()
        return found


def _options(args: bytes) -> dict[str, str]:
    return {
        m[1].decode(): (m[2] if m[2] is not None else b"1").decode("latin-1") for m in _DEFINE.finditer(args)
    }


@dataclass
class _Text:
    """A source as lines, reduced to what can matter, and the names that its headers define."""

    lines: list[Line]
    marks: frozenset[str]  # the words that announce a kernel, and the macros that hold one
    mentions: frozenset[str]  # all names in what is left: other options change nothing
    guards: frozenset[str]  # of headers put in place: not defined before them
    foreign: dict[str, frozenset[str]] = field(default_factory=dict)  # header -> names it may define

    @classmethod
    def read(cls, sources: SourceSet, source: str, words: frozenset[str]) -> _Text:
        foreign: dict[str, frozenset[str]] = {}
        guards: set[str] = set()
        lines = list(_placed(sources, sources.kernels[source], words, foreign, guards, set()))
        marks = set(words)
        grown = True
        while grown:
            grown = False
            for line in lines:
                if line.macro and line.name not in marks and marks & set(line.macro.body):
                    marks.add(line.name)
                    grown = True
        kept = [_reduced(line, marks) for line in lines]
        mentions = {line.name for line in kept} | {t for line in kept for t in line.rest}
        mentions |= {t for line in kept if line.macro for t in line.macro.body}
        return cls(kept, frozenset(marks), frozenset(mentions), frozenset(guards), foreign)


def _placed(
    sources: SourceSet,
    text: bytes,
    words: frozenset[str],
    foreign: dict[str, frozenset[str]],
    guards: set[str],
    seen: set[str],
) -> Iterator[Line]:
    """The lines of a text, those of a header that holds kernels in place of its first #include."""
    for line in lines_of(text.decode("utf-8", "replace")):
        name = line.name
        if line.what != "include" or name not in sources.headers or name in seen:
            yield line
            continue
        names, kernels = _header(sources, name, words)
        if not kernels:
            foreign[name] = names
            yield line
            continue
        seen.add(name)
        placed = list(_placed(sources, sources.headers[name], words, foreign, guards, seen))
        directives = [one for one in placed if one.what != "code"][:2]
        if [one.what for one in directives] == ["ifndef", "define"] and len(
            {d.name for d in directives}
        ) == 1:
            guards.add(directives[0].name)
        yield from placed


def _reduced(line: Line, marks: set[str]) -> Line:
    """A run of code without a kernel, down to the end of the declaration that it begins in."""
    if line.what != "code" or marks & set(line.rest):
        return line
    end = next((n for n, token in enumerate(line.rest) if token in "{;"), len(line.rest))
    tail = max((n for n, token in enumerate(line.rest) if token in "};"), default=end)
    return Line("code", (*line.rest[: end + 1], *line.rest[max(tail, end + 1) :]))


def _header(sources: SourceSet, name: str, words: frozenset[str]) -> tuple[frozenset[str], bool]:
    """(names that the header and those it includes may define or undefine, whether one holds kernels)."""
    names: set[str] = set()
    kernels = False
    seen: set[str] = set()
    todo = [name]
    while todo:
        header = todo.pop()
        if header in seen or header not in sources.headers:
            continue
        seen.add(header)
        for line in lines_of(sources.headers[header].decode("utf-8", "replace")):
            if line.what in ("define", "undef"):
                names.add(line.name)
                kernels = kernels or bool(line.macro and words & set(line.macro.body))
            elif line.what == "include":
                todo.append(line.name)
            elif line.what == "code":
                kernels = kernels or bool(words & set(line.rest))
    return frozenset(names), kernels


class _Scan:
    """One pass over a text under one set of options."""

    def __init__(self, text: _Text, options: dict[str, str], hip: bool) -> None:
        self.text, self.hip = text, hip
        self.macros = Macros({name: Macro(tokens_of(value)) for name, value in options.items()})
        self.certain: set[str] = set()
        self.possible: set[str] = set()
        self.macros.known.update(dict.fromkeys(text.guards - options.keys()))
        self.complete = True
        self.budget = MAX_TOKENS
        self.statement: list[str] = []  # tokens since the last ; { or }
        self.kernel = False  # a kernel is announced in it
        self.sure = True  # every token of it stands there for sure
        self.named = False

    def run(self) -> EntryPoints:
        # Of each #if around: whether its branch is there, whether an earlier one was, whether all outside is.
        regions: list[tuple[bool | None, bool | None, bool | None]] = []
        for line in self.text.lines:
            live = _all((regions[-1][0], regions[-1][2])) if regions else True
            if line.what in ("if", "ifdef", "ifndef"):
                held = self.macros.condition(line) if live is not False else False
                regions.append((held, held, live))
            elif line.what in ("elif", "else") and regions:
                _, before, outside = regions[-1]
                asked = line.what == "elif" and before is not True and outside is not False
                held = _all((_not(before), self.macros.condition(line) if asked else True))
                regions[-1] = (held, _any((before, held)), outside)
            elif line.what == "endif" and regions:
                regions.pop()
            elif live is not False:
                self.line(line, live is True)
        self.end()
        return EntryPoints(frozenset(self.certain), frozenset(self.possible), self.complete)

    def line(self, line: Line, sure: bool) -> None:
        """A line that is, or may be, there."""
        if line.what == "define" or line.what == "undef":
            self.macros.set(line.name, line.macro, sure=sure)
        elif line.what == "include":
            for name in self.text.foreign.get(line.name, ()):
                self.macros.known[name] = UNKNOWN
        elif line.what == "code":
            for token in self.expanded(line.rest, sure):
                self.token(token, sure)

    def expanded(self, tokens: Tokens, sure: bool, depth: int = 0) -> Iterator[str]:
        """The tokens, macros that make kernels expanded; the others are left as they are."""
        at = 0
        while at < len(tokens):
            token = tokens[at]
            at += 1
            self.budget -= 1
            macro = (
                self.macros.get(token) if token in self.text.marks and self.macros.mentioned(token) else None
            )
            if macro is None or self.budget < 0:
                self.complete = self.complete and self.budget >= 0
                yield token
                continue
            arguments: list[Tokens] | None = []
            if macro.params is not None:
                begin = at
                arguments, at = _arguments(tokens, at)
                self.budget -= at - begin
            body = None
            if macro is not UNKNOWN and arguments is not None and depth < MAX_NESTING:
                body = self.substituted(macro, arguments)
            if body is None:
                self.complete = False
                continue
            yield from self.expanded(body, sure, depth + 1)

    def substituted(self, macro: Macro, arguments: list[Tokens]) -> Tokens | None:
        """The body with the arguments in place, pasted where it pastes; None where that is not certain."""
        params = macro.params or ()
        if params and (len(params) != len(arguments) or "..." in params):
            return None
        given = dict(zip(params, arguments, strict=False))
        body = macro.body
        out: list[str] = []
        paste = False
        for at, token in enumerate(body):
            if token == "##":
                paste = True
                continue
            piece: Tokens = (token,)
            if token in given:
                piece = given[token]
                if not paste and body[at + 1 : at + 2] != ("##",):
                    # An opaque word where it is not known: as a name it will not pass.
                    piece = tuple(self.macros.identifier(t) or "?" for t in piece)
            if paste and out and piece:
                out[-1] += piece[0]
                piece = piece[1:]
            paste = False
            out += piece
            self.budget -= len(piece)
        return tuple(out)

    def token(self, token: str, sure: bool) -> None:
        """One more token of the statement; at its `(` a kernel has its name."""
        if token in (";", "{", "}"):
            self.end()
            return
        self.statement.append(token)
        self.sure = self.sure and sure
        if token in MARKS["hip" if self.hip else "opencl"]:
            self.kernel = True

    def end(self) -> None:
        """The end of a statement: if it declared a kernel, take its name."""
        if self.kernel:
            self.take(_declared(self.statement))
        self.statement, self.kernel, self.sure = [], False, True

    def take(self, name: str | None) -> None:
        """A kernel whose declaration says `name`."""
        final = self.macros.identifier(name) if name is not None else None
        if final is None or (self.hip and "extern" not in self.statement):
            self.complete = False  # a computed name, or a C++ one, mangled or a template's
            return
        self.possible.add(final)
        if self.sure:
            self.certain.add(final)


def _declared(statement: list[str]) -> str | None:
    """The name in front of the parameters of a function's declaration, attributes left out."""
    at = 0
    while at < len(statement):
        if statement[at] in _ATTRIBUTES:
            _, at = _arguments(tuple(statement), at + 1)
            continue
        if statement[at + 1 : at + 2] == ["("]:
            return statement[at] if _NAME.match(statement[at]) else None
        at += 1
    return None


def _arguments(tokens: Tokens, at: int) -> tuple[list[Tokens] | None, int]:
    """(the arguments in the parentheses at `at`, where they end); None where there are none."""
    if tokens[at : at + 1] != ("(",):
        return None, at
    found: list[list[str]] = [[]]
    depth = 0
    for end in range(at, len(tokens)):
        token = tokens[end]
        depth += {"(": 1, ")": -1}.get(token, 0)
        if depth == 0:
            return [tuple(one) for one in found], end + 1
        if token == "," and depth == 1:
            found.append([])
        elif end > at:
            found[-1].append(token)
    return None, len(tokens)


def _assembly(text: str) -> EntryPoints:
    """`.amdhsa_kernel` directives: certain outside every `.if` and macro."""
    certain, possible, complete, depth = set(), set(), True, 0
    for match in _ASM.finditer(re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)):
        word, operand = match[1], match[2] or ""
        if word in _ASM_OPEN:
            depth += 1
        elif word in _ASM_CLOSE:
            depth -= 1
        elif word in ("amdhsa_kernel", "amdgpu_hsa_kernel"):
            if not _NAME.match(operand):
                complete = False
                continue
            possible.add(operand)
            if depth == 0 and word == "amdhsa_kernel":
                certain.add(operand)
        elif word == "include":
            complete = False
    return EntryPoints(frozenset(certain), frozenset(possible), complete)


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _all(values: tuple[bool | None, ...]) -> bool | None:
    found: bool | None = True
    for value in values:
        if value is False:
            return False
        if value is None:
            found = None
    return found


def _any(values: tuple[bool | None, ...]) -> bool | None:
    return _not(_all(tuple(_not(v) for v in values)))
