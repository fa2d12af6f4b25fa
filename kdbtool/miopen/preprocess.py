"""Directives of a C-like kernel source, judged without a compiler: true, false, or not known.

Only what is certain is said. A macro is known when the source itself or a `-D` of the key defines it, and
surely undefined when it has one of MIOpen's own prefixes and no text mentions a definition: a compiler and
its headers define neither. Everything else (builtin macros, other headers, options that MIOpen adds
without the key) may be anything, and a condition that hangs on it is not known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

OWN = ("MIOPEN_", "MIO_", "MLO_")
# On MIOpen's command line without being in the key (src/comgr.cpp, src/hip/hip_build_utils.cpp).
HIDDEN = frozenset({"MIOPEN_DONT_USE_HIP_RUNTIME_HEADERS"})
MAX_DEPTH = 32
MAX_EXPANSIONS = 100

_COMMENT = re.compile(r"""//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""", re.DOTALL)
_TOKEN = re.compile(
    r"""[A-Za-z_]\w*|\.?\d[\w.]*|##|&&|\|\||[<>=!]=|<<|>>|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\S"""
)
_DEFINE = re.compile(r"([A-Za-z_]\w*)(\(([^)]*)\))?[ \t]*(.*)", re.DOTALL)
_INCLUDE = re.compile(r'["<]([^">]*)[">]')
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*\Z")
_NUMBER = re.compile(r"(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)[uUlL]*\Z")

Tokens = tuple[str, ...]


@dataclass(frozen=True)
class Macro:
    """A definition; `params` None for one without parentheses."""

    body: Tokens
    params: Tokens | None = None


@dataclass(frozen=True)
class Line:
    """One directive (`what` if, ifdef, ..., `rest` its tokens) or a run of code (`what` code)."""

    what: str
    rest: Tokens = ()
    name: str = ""  # of a macro or an included file
    macro: Macro | None = None


UNKNOWN = Macro(("?",))  # defined or not, and as what: cannot be told


def lines_of(text: str) -> list[Line]:
    """The directives and the runs of code between them."""
    text = text.replace("\\\r\n", " ").replace("\\\n", " ")
    text = _COMMENT.sub(lambda m: m[1] or "\n" * m[0].count("\n") or " ", text)
    out: list[Line] = []
    code: list[str] = []
    for line in text.split("\n"):
        stripped = line.lstrip()
        if not stripped.startswith("#"):
            code.append(line)
            continue
        if code:
            out.append(Line("code", tokens_of("\n".join(code))))
            code = []
        word, _, rest = stripped[1:].lstrip().replace("\t", " ").partition(" ")
        if word[:2] == "if" and "(" in word:  # #if(X)
            word, rest = "if", stripped[1:].lstrip()[2:]
        elif word[:4] == "elif" and "(" in word:
            word, rest = "elif", stripped[1:].lstrip()[4:]
        out.append(_directive(word, rest.strip()))
    if code:
        out.append(Line("code", tokens_of("\n".join(code))))
    return out


def _directive(word: str, rest: str) -> Line:
    if word == "define":
        match = _DEFINE.match(rest)
        if match is None:
            return Line("other")
        params = tuple(p.strip() for p in match[3].split(",")) if match[2] else None
        return Line("define", (), match[1], Macro(tokens_of(match[4]), params))
    if word in ("undef", "ifdef", "ifndef"):
        return Line(word, (), (rest.split() or [""])[0])
    if word == "include":
        named = _INCLUDE.match(rest)
        return Line("include", (), named[1].rpartition("/")[2] if named else "")
    if word in ("if", "elif", "else", "endif"):
        return Line(word, tokens_of(rest))
    return Line("other")


def tokens_of(text: str) -> Tokens:
    """The preprocessing tokens of a text."""
    return tuple(_TOKEN.findall(text))


class Macros:
    """What is defined at one point of a text."""

    def __init__(self, options: dict[str, Macro]) -> None:
        self.known: dict[str, Macro | None] = dict(options)

    def get(self, name: str) -> Macro | None:
        """The definition, None for surely none, UNKNOWN."""
        if name in self.known:
            return self.known[name]
        return None if name.startswith(OWN) and name not in HIDDEN else UNKNOWN

    def set(self, name: str, macro: Macro | None, *, sure: bool) -> None:
        """A #define or #undef (`macro` None)."""
        if not sure and self.get(name) != macro:
            macro = UNKNOWN
        self.known[name] = macro

    def identifier(self, name: str, depth: int = 0) -> str | None:
        """What an identifier is in the end, following macros that stand for one; None: cannot be told."""
        macro = self.get(name) if self.mentioned(name) else None
        if macro is None:
            return name
        if macro.params is not None or len(macro.body) != 1 or depth > MAX_DEPTH:
            return None
        return self.identifier(macro.body[0], depth + 1) if _IDENTIFIER.match(macro.body[0]) else None

    def mentioned(self, name: str) -> bool:
        """Whether an option or a text defines it; a name in code that nothing mentions is no macro."""
        return name in self.known

    def condition(self, line: Line) -> bool | None:
        """Whether an #if, #ifdef, #ifndef or #elif holds."""
        if line.what in ("ifdef", "ifndef"):
            macro = self.get(line.name)
            if macro is UNKNOWN:
                return None
            return (macro is not None) == (line.what == "ifdef")
        try:
            value = _Expression(self, line.rest).value()
        except _NotUnderstood:
            return None
        return None if value is None else value != 0


class _NotUnderstood(Exception):
    """An expression that is not an integer constant one as we read them."""


_LEVELS = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="),
    ("<<", ">>"), ("+", "-"), ("*", "/", "%"),
)  # fmt: skip


class _Expression:
    """An integer constant expression over values that may be unknown (None)."""

    def __init__(self, macros: Macros, tokens: Tokens) -> None:
        self.macros, self.tokens, self.at = macros, tokens, 0
        self.expansions = 0

    def value(self) -> int | None:
        found = self.level(0)
        if self.at != len(self.tokens):
            raise _NotUnderstood
        return found

    def next(self) -> str:
        if self.at >= len(self.tokens):
            raise _NotUnderstood
        self.at += 1
        return self.tokens[self.at - 1]

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def level(self, n: int, depth: int = 0) -> int | None:
        if n == len(_LEVELS):
            return self.unary(depth)
        left = self.level(n + 1, depth)
        while self.peek() in _LEVELS[n]:
            operator = self.next()
            left = _apply(operator, left, self.level(n + 1, depth))
        return left

    def unary(self, depth: int) -> int | None:
        if depth > MAX_DEPTH:
            raise _NotUnderstood
        token = self.next()
        if token == "!":
            inner = self.unary(depth + 1)
            return None if inner is None else int(not inner)
        if token in ("-", "+"):
            inner = self.unary(depth + 1)
            return None if inner is None else -inner if token == "-" else inner
        if token == "(":
            inner = self.level(0, depth + 1)
            if self.next() != ")":
                raise _NotUnderstood
            return inner
        if token == "defined":
            name = self.next()
            if name == "(":
                name = self.next()
                if self.next() != ")":
                    raise _NotUnderstood
            macro = self.macros.get(name)
            return None if macro is UNKNOWN else int(macro is not None)
        if (number := _NUMBER.match(token)) is not None:
            return _number(number[1])
        if not _IDENTIFIER.match(token):
            raise _NotUnderstood
        macro = self.macros.get(token)
        if macro is None:
            return 0
        self.expansions += 1
        if macro.params is not None or self.expansions > MAX_EXPANSIONS or self.peek() == "(":
            raise _NotUnderstood
        if macro is UNKNOWN:
            return None
        self.tokens = macro.body + self.tokens[self.at :]  # as text: its operators bind with those around
        self.at = 0
        return self.unary(depth + 1)


def _number(digits: str) -> int:
    octal = len(digits) > 1 and digits.isdigit() and digits[0] == "0"
    try:
        return int(digits, 8 if octal else 0)
    except ValueError:  # 08, or thousands of digits
        raise _NotUnderstood from None


def _apply(operator: str, left: int | None, right: int | None) -> int | None:
    if operator == "&&":
        if 0 in (left, right):
            return 0
        return None if left is None or right is None else 1
    if operator == "||":
        if (left or 0) or (right or 0):
            return 1
        return None if left is None or right is None else 0
    if left is None or right is None:
        return None
    if operator in ("<<", ">>"):
        if not 0 <= right <= 62 or not 0 <= left <= 1 << 62:
            raise _NotUnderstood
        return left << right if operator == "<<" else left >> right
    if operator in ("/", "%"):
        if right <= 0 or left < 0:
            raise _NotUnderstood
        return left // right if operator == "/" else left % right
    return int(
        {
            "|": left | right, "^": left ^ right, "&": left & right, "+": left + right, "-": left - right,
            "*": left * right, "==": left == right, "!=": left != right, "<": left < right,
            ">": left > right, "<=": left <= right, ">=": left >= right,
        }[operator]
    )  # fmt: skip
