"""The options of a key and what is known of each. What was not read in MIOpen's sources is unknown.

Meanings: data/options.tsv, data/flags.tsv, by hand. The host files that write an option:
data/option-files.tsv, made by scripts/update-solver-files.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources

# What an option depends on; `shape`: the object serves problems of one shape only; `setting`: what the
# problem asks for beside sizes and type, such as direction, layout or activation mode.
SHAPE, SETTING, TYPE, TUNING = "shape", "setting", "type", "tuning"
DEVICE, BUILD, LANGUAGE = "device", "build", "language"
_DEFINE = re.compile(rb"-D([A-Za-z_][A-Za-z0-9_]*)(?:=(.*))?\Z", re.DOTALL)
_SYMBOL = re.compile(rb"-Wa,-defsym,([A-Za-z_][A-Za-z0-9_]*)=(.*)\Z", re.DOTALL)


@dataclass(frozen=True)
class Option:
    """One option. `name`: of a define or symbol, else the option as it stands. `value` None: it has none."""

    kind: str  # "define", "symbol", "flag"
    name: str
    value: str | None


@dataclass(frozen=True)
class Meaning:
    """`depends` is one of the categories above; `text` a few words."""

    depends: str
    text: str


def options_of(args: bytes) -> list[Option]:
    """Every option of a key's arguments, in order, split at blanks as MIOpen does; repeats stay."""
    out = []
    words = iter([word for word in args.split(b" ") if word])
    for word in words:
        if word == b"-mllvm":
            word += b" " + next(words, b"")
        for kind, pattern in (("define", _DEFINE), ("symbol", _SYMBOL)):
            match = pattern.match(word)
            if match:
                value = match[2]
                out.append(Option(kind, match[1].decode(), None if value is None else _text(value)))
                break
        else:
            out.append(Option("flag", _text(word), None))
    return out


@functools.lru_cache(4096)
def meaning(kind: str, name: str) -> Meaning | None:
    """What an option means, None where that is not known."""
    for pattern, found in _meanings("flags" if kind == "flag" else "options"):
        if pattern.fullmatch(name):
            return found
    return None


def written_by(option: Option) -> tuple[str, ...]:
    """The host files of MIOpen that write a define or symbol; () where none is known."""
    return _files().get(option.name, ()) if option.kind != "flag" else ()


def serves(options: Iterable[Option]) -> str:
    """What an object with these options can serve: "one shape", "any shape", or "unknown"."""
    found = [meaning(o.kind, o.name) for o in options]
    if any(m is not None and m.depends == SHAPE for m in found):
        return "one shape"
    return "unknown" if None in found else "any shape"


@functools.cache
def _meanings(table: str) -> list[tuple[re.Pattern[str], Meaning]]:
    return [(re.compile(pattern), Meaning(depends, text)) for pattern, depends, text in _rows(f"{table}.tsv")]


@functools.cache
def _files() -> dict[str, tuple[str, ...]]:
    return {name: tuple(paths.split(",")) for name, paths in _rows("option-files.tsv")}


def _rows(file: str) -> list[list[str]]:
    text = (resources.files("kdbtool.explain") / "data" / file).read_text("ascii")
    return [line.split("\t") for line in text.splitlines() if not line.startswith("#")]


def solvers_of(source: str) -> list[tuple[str, tuple[str, ...]]]:
    """(host file, solver classes in it) of each file of MIOpen that names the kernel source; sorted."""
    return [
        (path, tuple(filter(None, classes.split(","))))
        for pattern, path, classes in _solver_rows()
        if pattern == source or (pattern.endswith("*") and source.startswith(pattern[:-1]))
    ]


@functools.cache
def _solver_rows() -> list[tuple[str, str, str]]:
    return [(one, two, three) for one, two, three in _rows("solver-files.tsv")]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
