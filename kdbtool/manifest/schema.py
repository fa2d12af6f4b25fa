"""One option schema of a kernel source: what its rows need not repeat, and how the rest is worked out again.

A schema has an option for each word of the kernel arguments, in their order. An option's value stands in the
row (a field), is the same in all (a constant), or follows from other options: by a formula over whole
numbers, or by a table. A row that breaks a rule carries its value. Everything is worked out column by column,
since rows come by ten thousands. Grammar: docs/manifest-format.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

MAX_OPTIONS = 1000
MAX_FORMULA = 64  # words
MAX_TABLE = 4096  # entries
_LIMIT = 1 << 63  # of a number, either sign: what overflows follows from nothing

# A value that may stand in a row; everything else makes a line of its own (`key`).
VALUE = re.compile(r"[0-9A-Za-z_.,:;<>/()+&|-][0-9A-Za-z_.,:;<>/()+*&|=-]*\Z")
NAME = re.compile(r"[!#-<>-~]+=?\Z")  # printable, no blank, no double quote; '=' at its end alone
_NUMBER = re.compile(r"(?:0|-?[1-9][0-9]{0,17})\Z")
_REFERENCE = re.compile(r"\$([1-9][0-9]{0,3})\Z")
OPERATORS = frozenset("+-*/^%")

Column = list[str | None]  # a value for each row; None: it cannot be worked out
_Numbers = list[int | None]


@dataclass(frozen=True)
class Constant:
    """The same value in every row."""

    value: str


@dataclass(frozen=True)
class Field:
    """The value stands in the row, at this place, from 1."""

    place: int


@dataclass(frozen=True)
class Formula:
    """In Polish notation, the operator before its operands; `$3` is option 3 (from 1), else a number."""

    words: tuple[str, ...]

    @property
    def references(self) -> tuple[int, ...]:
        """Places of the options that it needs, from 0."""
        return tuple(int(word[1:]) - 1 for word in self.words if word.startswith("$"))


@dataclass(frozen=True)
class Table:
    """The value by those of the options at `references` (from 0)."""

    references: tuple[int, ...]
    entries: tuple[tuple[tuple[str, ...], str], ...]


Rule = Constant | Field | Formula | Table | None  # None: an option without a value


@dataclass(frozen=True)
class Option:
    """`name` is the word up to its `=`, that included; without one it is the whole word."""

    name: str
    rule: Rule


class SchemaError(ValueError):
    """A schema that makes no sense; the text says why."""


@dataclass(frozen=True)
class Schema:
    """Options in the order of the arguments. `check` says whether it can be used."""

    options: tuple[Option, ...]

    @cached_property
    def shape(self) -> tuple[str, ...]:
        """The names."""
        return tuple(option.name for option in self.options)

    @cached_property
    def fields(self) -> tuple[int, ...]:
        """Places of the options that stand in a row, in the row's order."""
        places = [
            (option.rule.place, at)
            for at, option in enumerate(self.options)
            if isinstance(option.rule, Field)
        ]
        return tuple(at for _, at in sorted(places))

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Places of the derived options, each behind those that it follows from. SchemaError in a circle."""
        needs = {at: set(references(option.rule)) for at, option in enumerate(self.options)}
        derived = [at for at, option in enumerate(self.options) if isinstance(option.rule, Formula | Table)]
        done = set(needs) - set(derived)
        out: list[int] = []
        while len(out) < len(derived):
            ready = [at for at in derived if at not in done and needs[at] <= done]
            if not ready:
                raise SchemaError("options that follow from each other")
            out += ready
            done.update(ready)
        return tuple(out)

    def check(self) -> None:
        """SchemaError where a rule names no option, fields have gaps, or options follow from each other."""
        if len(self.options) > MAX_OPTIONS:
            raise SchemaError(f"over {MAX_OPTIONS} options")
        valued = {at for at, option in enumerate(self.options) if option.rule is not None}
        for option in self.options:
            for at in references(option.rule):
                if at not in valued:
                    raise SchemaError(f"{option.name} follows from ${at + 1}, which has no value")
        places = [o.rule.place for o in self.options if isinstance(o.rule, Field)]
        if sorted(places) != list(range(1, len(places) + 1)):
            raise SchemaError(f"fields {sorted(places)}, not 1 to {len(places)}")
        _ = self.order

    def values(self, rows: Sequence[Sequence[str]], others: Sequence[dict[int, str]]) -> list[Column]:
        """The value of every option in every row. `rows`: the fields; `others`: values that break a rule, by
        place. None where a rule gives none and no other value stands there."""
        out: list[Column] = [[] for _ in self.options]
        for field, at in enumerate(self.fields):
            out[at] = [row[field] for row in rows]
        broken: dict[int, list[int]] = {}
        for number, other in enumerate(others):
            for at in other:
                broken.setdefault(at, []).append(number)
        for at, option in enumerate(self.options):
            if isinstance(option.rule, Constant):
                out[at] = [option.rule.value] * len(rows)
                _replace(out[at], at, broken, others)
        numbers: dict[int, _Numbers] = {}
        for at in self.order:
            out[at] = self.derive(at, out, numbers)
            _replace(out[at], at, broken, others)
        return out

    def derive(self, at: int, columns: list[Column], numbers: dict[int, _Numbers]) -> Column:
        """What the rule of a derived option makes of the other columns; `numbers` is kept between calls."""
        rule = self.options[at].rule
        if isinstance(rule, Formula):
            count = len(columns[rule.references[0]]) if rule.references else 0
            return _texts(_formula(rule, columns, numbers, count))
        assert isinstance(rule, Table)
        return _looked_up(rule, columns)


def _replace(column: Column, at: int, broken: dict[int, list[int]], others: Sequence[dict[int, str]]) -> None:
    for number in broken.get(at, ()):
        column[number] = others[number][at]


def references(rule: Rule) -> tuple[int, ...]:
    """Places of the options that a rule needs, from 0."""
    return rule.references if isinstance(rule, Formula | Table) else ()


def parse_formula(text: str) -> Formula:
    """`* $3 $4`; SchemaError for what is none."""
    words = tuple(text.split(" "))
    if len(words) > MAX_FORMULA:
        raise SchemaError(f"a formula of more than {MAX_FORMULA} words")
    wanted = 1
    for word in words:
        if wanted == 0:
            raise SchemaError("words behind the end of a formula")
        if word in OPERATORS:
            wanted += 1
        elif _REFERENCE.match(word) or _NUMBER.match(word):
            wanted -= 1
        else:
            raise SchemaError(f"no word of a formula: {word[:40]}")
    if wanted:
        raise SchemaError("a formula that ends too early")
    if not any(word.startswith("$") for word in words):
        raise SchemaError("a formula without an option: that is a constant")
    return Formula(words)


def _numbers(at: int, columns: list[Column], known: dict[int, _Numbers]) -> _Numbers:
    found = known.get(at)
    if found is None:
        texts = {text: _number(text) for text in set(columns[at])}
        found = known[at] = [texts[text] for text in columns[at]]
    return found


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and _NUMBER.match(text) else None


def _texts(numbers: _Numbers) -> Column:
    texts = {n: None if n is None else str(n) for n in set(numbers)}
    return [texts[n] for n in numbers]


def _formula(rule: Formula, columns: list[Column], known: dict[int, _Numbers], count: int) -> _Numbers:
    stack: list[_Numbers] = []
    for word in reversed(rule.words):
        if word in OPERATORS:
            stack.append(_combined(word, stack.pop(), stack.pop()))
        elif word.startswith("$"):
            stack.append(_numbers(int(word[1:]) - 1, columns, known))
        else:
            stack.append([int(word)] * count)
    return stack.pop()


def _combined(operator: str, left: _Numbers, right: _Numbers) -> _Numbers:
    pairs = set(zip(left, right, strict=True))
    results = {pair: _one(operator, *pair) for pair in pairs}
    return [results[pair] for pair in zip(left, right, strict=True)]


def _one(operator: str, a: int | None, b: int | None) -> int | None:
    if a is None or b is None or (operator in "/^%" and b <= 0):
        return None
    match operator:
        case "+":
            found = a + b
        case "-":
            found = a - b
        case "*":
            found = a * b
        case "/":
            found = a // b
        case "^":
            found = -(-a // b)
        case _:
            found = a % b
    return found if -_LIMIT < found < _LIMIT else None


def _looked_up(rule: Table, columns: list[Column]) -> Column:
    entries = dict(rule.entries)
    keys = zip(*(columns[at] for at in rule.references), strict=True)
    return [entries.get(key) for key in keys]  # a None is in no entry
