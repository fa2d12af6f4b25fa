"""Problems out of whatever names some: a list, MIOpenDriver's commands, a trace, a log, a manifest.

A list has one problem to a line: its key (find-db spelling) or a command (`MIOpenDriver conv ...`, with or
without the first word, with an environment or a path before it). Empty lines and those that begin with `#`
are passed over. What cannot be read is reported with its line, and the rest goes on.
"""

from __future__ import annotations

from pathlib import Path

from kdbtool.errors import KdbtoolError
from kdbtool.inputs import each_input, holds_keys, is_log
from kdbtool.kdb.identify import FileKind, identify
from kdbtool.miopen import textdb
from kdbtool.miopen.driver import TYPES, parse_command
from kdbtool.miopen.problems import is_problem
from kdbtool.miopen.textdb import Damage, Report

_TEXTS = (FileKind.OTHER, FileKind.SHORT, FileKind.FIND_DB, FileKind.PERF_DB)
_NOT_A_PROBLEM = "neither a problem key nor a convolution of MIOpenDriver"


def read_problems(path: Path, version: tuple[int, ...] | None, damaged: Report) -> list[str]:
    """The problem keys in `path`, each once, in its order. KdbtoolError where it holds none.

    `version`: MIOpen's own, (3, 4, 0): its driver's rules.
    """
    kind = identify(path)
    found: list[str] = []
    if holds_keys(kind):
        found = _of_input(path)
    elif kind.what not in _TEXTS and kind.inner not in _TEXTS:
        raise KdbtoolError(
            kind.text, where=path, hint="name a list of problems, a trace, a log or a manifest"
        )
    if not found and (not holds_keys(kind) or is_log(kind)):  # a list of commands looks like a log, too
        found = _of_list(path, version, damaged)
    if not found:
        raise KdbtoolError("no convolution problem in it", where=path)
    return list(dict.fromkeys(found))


def _of_input(path: Path) -> list[str]:
    found: list[str] = []
    for source in each_input(path):
        if source.kdb is not None:
            raise KdbtoolError(
                "a kernel database names no problem", where=path, hint="name a trace or a list"
            )
        if source.manifest is not None:
            found += source.manifest.problems
        for trace in source.traces:
            found += [asked.key for asked in trace.problems if is_problem(asked.key)]
    return found


def _of_list(path: Path, version: tuple[int, ...] | None, damaged: Report) -> list[str]:
    report = textdb.bounded(path, damaged)
    found: list[str] = []
    for one in textdb.lines(path):
        text = one.text.strip()
        if not text or text.startswith("#"):
            continue
        key = text.partition("=")[0]
        if is_problem(key):  # a find-db's line is one, too
            found.append(key)
            continue
        command = _command(text)
        if command is None:
            report(Damage(one.number, _NOT_A_PROBLEM, text))
            continue
        try:
            found += [key for _, key in parse_command(command, version=version).keys]
        except KdbtoolError as error:
            report(Damage(one.number, error.line(), text))
    return found


def _command(text: str) -> str | None:
    """`conv -n 2 ...` of a line that holds such a command."""
    words = text.split()
    for at, word in enumerate(words[:40]):
        if word in TYPES and (at == 0 or words[at - 1].rpartition("/")[2].strip("'\"") == "MIOpenDriver"):
            return " ".join(words[at:])
    return None
