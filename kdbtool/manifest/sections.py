"""The parts of a block that format 1 has beyond format 0: schemas, and rows of them.

Rows are gathered and worked out together when their section ends: column by column is ten times as fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from kdbtool.errors import printable
from kdbtool.manifest import rows
from kdbtool.manifest.model import Comments, Key, Note
from kdbtool.manifest.schema import (
    MAX_TABLE,
    NAME,
    VALUE,
    Constant,
    Field,
    Option,
    Rule,
    Schema,
    SchemaError,
    Table,
    parse_formula,
)
from kdbtool.miopen.keys import MCPU

if TYPE_CHECKING:
    from kdbtool.manifest.reader import _Reader

MAX_EXPANDED = 2 << 30  # bytes of all keys that a manifest's rows stand for: a few lines could mean terabytes
_PIECE = 5000  # rows that are worked out together


class Sections:
    """What is open of a block: options of a schema, or rows."""

    def __init__(self, reader: _Reader) -> None:
        self.reader = reader
        self.options: list[Option] | None = None  # of the schema that is being read
        self.current: Schema | None = None
        self.schemas: dict[bytes, dict[tuple[str, ...], Schema]] = {}  # by kernel name and shape
        self.shapes: set[tuple[str, ...]] = set()  # of this block
        self.archs: tuple[str, ...] = ()
        self.texts: list[str] = []
        self.lines: list[tuple[int, Comments]] = []
        self.rows_of: set[tuple[int, tuple[str, ...]]] = set()
        self.expanded = 0

    def schema(self, rest: str) -> None:
        """A line `schema`."""
        if rest:
            self.reader.bad("something behind schema", "its options stand below it, indented by four spaces")
        self.reader.comment_block()
        self.options, self.current = [], None

    def option(self, text: str) -> None:
        """A line of a schema."""
        if self.options is None:
            self.reader.bad("an option outside a schema", "no schema line stands above it")
        self.reader.comment_block()
        self.options.append(self._option(text))

    def rows(self, rest: str) -> None:
        """A line `rows ARCH...`."""
        if self.current is None:
            self.reader.bad("rows without a schema", "a schema and its options stand above them")
        archs = tuple(self.reader.listed_arch(word) for word in rest.split(" "))
        if list(archs) != sorted(set(archs)):
            self.reader.bad(f"architectures out of order: {printable(rest[:60])}", "sorted, each once")
        if (id(self.current), archs) in self.rows_of:
            self.reader.bad("rows of these architectures again", "they stand in one section")
        self.reader.comment_block()
        self.rows_of.add((id(self.current), archs))
        self.archs = archs

    def row(self, text: str) -> None:
        """A row."""
        if not self.archs:
            self.reader.bad("a row outside rows", "no rows line stands above it")
        self.texts.append(text)
        self.lines.append((self.reader.number, self.reader.comments()))
        if len(self.texts) >= _PIECE:
            self._work_out()

    def end(self) -> None:
        """What is open ends here."""
        if self.options is not None:
            self._end_schema(tuple(self.options))
            self.options = None
        if self.archs:
            self._work_out()
            self.archs = ()

    def leave(self) -> None:
        """The block ends, and with it what its schemas are good for."""
        self.end()
        self.current = None
        self.shapes.clear()

    def _option(self, text: str) -> Option:
        name, blank, rest = text.partition(" ")
        if name == '""':
            name = ""
        elif not NAME.match(name):
            self.reader.bad(
                f"not an option: {printable(name[:40])}", 'a word up to its =, or "" for an empty one'
            )
        if not name.endswith("="):
            if blank:
                self.reader.bad(f"a rule for {printable(name[:40])}", "an option without = has no value")
            return Option(name, None)
        try:
            return Option(name, _rule(rest))
        except SchemaError as error:
            self.reader.bad(f"bad rule of {printable(name[:40])}", printable(error))

    def _end_schema(self, options: tuple[Option, ...]) -> None:
        assert self.reader.block is not None
        name = self.reader.block[1]
        schema = Schema(options)
        try:
            if not options:
                raise SchemaError("no option in it")
            schema.check()
        except SchemaError as error:
            self.reader.bad("bad schema above", str(error))
        if schema.shape in self.shapes:
            self.reader.bad(
                "a second schema of the same options above", "one shape has one schema in a block"
            )
        self.shapes.add(schema.shape)
        self.schemas.setdefault(name, {})[schema.shape] = self.current = schema

    def _work_out(self) -> None:
        if not self.texts:
            return
        assert self.current is not None and self.reader.block is not None
        state, name, _ = self.reader.block
        here, texts, lines = self.reader.number, self.texts, self.lines
        self.texts, self.lines = [], []

        def bad(number: int, what: str, why: str) -> NoReturn:
            self.reader.number = lines[number][0]
            self.reader.bad(printable(what), printable(why))

        budget = (MAX_EXPANDED - self.expanded) // (2 * len(self.archs))
        for number, (once, twice, mark) in enumerate(rows.decode(self.current, texts, bad, budget)):
            if mark and twice is None:
                bad(number, f"{mark} of a row that has one spelling", "it has no data type list to repeat")
            spellings = [once] if twice is None or mark == rows.ONCE else [once, twice]
            if mark == rows.TWICE:
                spellings = spellings[1:]
            self.expanded += len(self.archs) * sum(map(len, spellings))
            line, comments = lines[number]
            self.reader.number = line
            for arch in self.archs:
                ending = MCPU + arch.encode("ascii")
                for spelling in spellings:
                    self.reader.add(Key(name, spelling + ending, arch, state), Note(line, comments))
        self.reader.number = here


def _rule(text: str) -> Rule:
    """The rule of an option with a value; SchemaError where it is none."""
    if text.startswith("*"):
        if not text[1:].isdecimal() or text[1:].startswith("0") or len(text) > 5:
            raise SchemaError("a field is * and its place, from 1")
        return Field(int(text[1:]))
    if text.startswith("= "):
        return parse_formula(text[2:])
    if text.startswith("? "):
        return _table(text[2:].split(" "))
    if not VALUE.match(text):
        raise SchemaError("expected a constant, *PLACE, = FORMULA or ? TABLE")
    return Constant(text)


def _table(words: list[str]) -> Table:
    places = words[0].split(",")
    if not all(p[:1] == "$" and p[1:].isdecimal() and 0 < len(p[1:]) < 5 and p[1] != "0" for p in places):
        raise SchemaError("a table begins with the options that it goes by: $3 or $3,$4")
    entries: dict[tuple[str, ...], str] = {}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        parts = tuple(key.split(","))
        if not equals or len(parts) != len(places) or not VALUE.match(value) or parts in entries:
            raise SchemaError(f"no entry of a table, or its second: {word[:40]}")
        entries[parts] = value
    if not entries or len(entries) > MAX_TABLE:
        raise SchemaError(f"a table of {len(entries)} entries, not 1 to {MAX_TABLE}")
    return Table(tuple(int(place[1:]) - 1 for place in places), tuple(entries.items()))
