"""Rows of a schema: a variant of a kernel as one short line, and the kernel arguments out of such lines.

A variant's arguments without ` -mcpu=` and with the data type list once are its *options*. A row stands for
both spellings of it where MIOpen has two (`twice`), else for the one; a mark says that one of two is missing.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from kdbtool.manifest.schema import VALUE, Column, Constant, Field, Formula, Option, Schema, Table
from kdbtool.miopen.keys import define_lists
from kdbtool.miopen.spelling import twice_of

ONCE, TWICE = "!once", "!twice"  # the only spelling, where MIOpen has two
MAX_ARGS = 1 << 20  # bytes of one key, as for a line
NOTHING = "-"  # a row without fields

_LIST_HEAD = "-DMIOPEN_USE_FP16="
_VALUES = re.compile("=[^ ]*")

Bad = Callable[[int, str, str], NoReturn]  # number of the row, what, why


Run = tuple[int, int]  # places of the data type list in a shape, from and to


@dataclass(frozen=True)
class Parts:
    """Options taken apart: the names with the data type list once, the values, whether it was there twice."""

    shape: tuple[str, ...]
    values: tuple[str, ...]
    twice: bool


def parts(options: str) -> Parts | None:
    """Words at blanks, each cut behind its first `=`; None where something is repeated in another way than
    MIOpen repeats its data type list."""
    found = _arrangement(_VALUES.sub("=", options))
    if found is None:
        return None
    shape, run = found
    values = _VALUES.findall(options)
    if run is not None:
        begin, end = run
        if values[begin:end] != values[end : 2 * end - begin]:
            return None
        del values[end : 2 * end - begin]
    return Parts(shape, tuple(value[1:] for value in values), run is not None)


@functools.lru_cache(maxsize=4096)
def _arrangement(text: str) -> tuple[tuple[str, ...], Run | None] | None:
    """(the names of options without their values, places of the repeated values or None)."""
    shape = tuple(text.split(" "))
    if shape.count(_LIST_HEAD) < 2:
        return shape, None
    begin = shape.index(_LIST_HEAD)
    end = shape.index(_LIST_HEAD, begin + 1)
    once = shape[:end] + shape[2 * end - begin :]
    if shape[begin:end] != shape[end : 2 * end - begin] or run_of(once) is None:
        return None
    if twice_of(_sample(once)) != _sample(shape):
        return None
    before = sum(name.endswith("=") for name in shape[:begin])
    return once, (before, before + sum(name.endswith("=") for name in shape[begin:end]))


@functools.lru_cache(maxsize=4096)
def run_of(shape: tuple[str, ...]) -> Run | None:
    """Where the data type list of such options is, None where MIOpen has one spelling of them.

    It follows from the names alone, since values hold no blank.
    """
    once = _sample(shape)
    twice = twice_of(once)
    if twice is None:
        return None
    (block,) = define_lists(once)
    begin = once.index(block)
    start = once[:begin].count(b" ") + (1 if begin or once[:1] == b" " else 0)
    return start, start + block.count(b" ")


def _sample(shape: tuple[str, ...]) -> bytes:
    return " ".join(name + "0" * name.endswith("=") for name in shape).encode("ascii")


def decode(
    schema: Schema, texts: Sequence[str], bad: Bad, budget: int
) -> list[tuple[bytes, bytes | None, str]]:
    """(options, their other spelling if MIOpen has one, mark) of every row. `bad` is told of what does not
    fit; `budget`: bytes that all of them may have, written out."""
    fields, others, marks = [], [], []
    width = len(schema.fields)
    known: set[str] = set()
    for number, text in enumerate(texts):
        words = text.split(" ")
        marks.append(words.pop() if words[-1] in (ONCE, TWICE) else "")
        if not width and words[:1] == [NOTHING]:
            words.pop(0)
        row, rest = words[:width], words[width:]
        if len(row) < width:
            bad(number, f"{len(row)} values", f"the schema has {width} fields")
        if not known.issuperset(row):
            for word in row:
                if not VALUE.match(word):
                    why = "letters, digits and some signs; no quotes, no blanks"
                    bad(number, f"not a value: {word[:40]!r}", why)
            known.update(row)
        fields.append(row)
        others.append(_others(schema, number, rest, bad) if rest else {})
    columns = schema.values(fields, others)
    every = range(len(schema.options))
    run = run_of(schema.shape)
    for at in every:
        if None in columns[at]:
            why = f"{schema.options[at].name}: its rule gives no value here (overflow, division, or no entry)"
            bad(columns[at].index(None), "a value cannot be worked out", f"{why}; write ${at + 1}=VALUE")
    used = [at for at in every if schema.options[at].rule is not None]
    longest = sum(len(option.name) + 1 for option in schema.options)
    longest += sum(max(len(text or "") for text in set(columns[at])) for at in used)
    if longest > MAX_ARGS or longest * len(texts) > budget:
        bad(0, "too large when it is written out", f"{len(texts)} rows of up to {longest} bytes")
    once = _written(schema, columns, list(every), len(texts))
    if run is None:
        return [(options, None, mark) for options, mark in zip(once, marks, strict=True)]
    twice = _written(schema, columns, [*range(run[1]), *range(run[0], len(every))], len(texts))
    return list(zip(once, twice, marks, strict=True))


def _written(schema: Schema, columns: list[Column], places: list[int], count: int) -> list[bytes]:
    """The options at these places, in this order, of every row."""
    words = []
    used = []
    for at in places:
        option = schema.options[at]
        words.append(option.name.replace("%", "%%") + ("" if option.rule is None else "%s"))
        if option.rule is not None:
            used.append(columns[at])
    template = " ".join(words)
    if not used:
        return [(template % ()).encode("ascii")] * count
    return [(template % row).encode("ascii") for row in zip(*used, strict=True)]


def _others(schema: Schema, number: int, words: list[str], bad: Bad) -> dict[int, str]:
    found: dict[int, str] = {}
    for word in words:
        place, equals, value = word.partition("=")
        index = int(place[1:]) - 1 if place[:1] == "$" and place[1:].isdecimal() and len(place) < 6 else -1
        if not equals or not 0 <= index < len(schema.options) or not VALUE.match(value):
            bad(number, f"not an option's own value: {word[:40]!r}", "expected $N=VALUE behind the fields")
        if not isinstance(schema.options[index].rule, Constant | Formula | Table) or index in found:
            bad(number, f"a value too many: {word[:40]!r}", "the option has none, or has one already")
        found[index] = value
    return found


def encode(schema: Schema, rows: Sequence[Sequence[str]]) -> list[str]:
    """The row of each variant, by its values in the order of the shape; without marks."""
    columns: list[Column] = [[] for _ in schema.options]
    valued = [at for at, option in enumerate(schema.options) if option.rule is not None]
    for index, at in enumerate(valued):
        columns[at] = [row[index] for row in rows]
    others: list[list[str]] = [[] for _ in rows]
    numbers: dict[int, list[int | None]] = {}
    for at, option in enumerate(schema.options):
        if isinstance(option.rule, Constant):
            _note(others, at, columns[at], [option.rule.value] * len(rows))
    for at in schema.order:
        _note(others, at, columns[at], schema.derive(at, columns, numbers))
    out = []
    for number, other in enumerate(others):
        words = [columns[at][number] or "" for at in schema.fields] or [NOTHING]
        out.append(" ".join([*words, *sorted(other, key=lambda word: int(word[1 : word.index("=")]))]))
    return out


def _note(others: list[list[str]], at: int, have: Column, derived: Column) -> None:
    if have != derived:
        for number, (value, other) in enumerate(zip(have, derived, strict=True)):
            if value != other:
                others[number].append(f"${at + 1}={value}")


def option_line(option: Option) -> str:
    """The option as text, without indent: its name and its rule."""
    name = option.name or '""'
    match option.rule:
        case None:
            return name
        case Constant(value):
            return f"{name} {value}"
        case Field(place):
            return f"{name} *{place}"
        case Table(references, entries):
            places = ",".join(f"${at + 1}" for at in references)
            return f"{name} ? {places} " + " ".join(f"{','.join(key)}={value}" for key, value in entries)
        case rule:
            return f"{name} = {' '.join(rule.words)}"
