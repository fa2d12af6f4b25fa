"""What a failed compilation leaves: its log, its source, and a script that runs it again.

One folder per kernel in the log folder, `headers/` once beside them. Folders of an earlier run are
removed first, so that what is there always belongs to the last run.

`findings` tells what the logs of many failures have in common and no kernel is to blame for: headers
that the machine lacks (MIOpen issue 2049).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from kdbtool.errors import EXIT_PROBLEMS, KdbtoolError, from_oserror, printable
from kdbtool.rebuild.backend import Backend
from kdbtool.rebuild.engine import Failure

MAX_FOLDERS = 1000  # one wrong header fails every kernel; nobody reads more
_OURS = re.compile(r"[0-9a-f]{12}-[A-Za-z0-9_.+-]+")


# What <...> of the standard libraries MIOpen's kernels and clang's own headers include (C++20, C17).
_CXX = frozenset(
    "algorithm any array atomic bit cassert cerrno cfloat climits cmath complex cstddef cstdint cstdio "
    "cstdlib cstring ctime functional initializer_list iosfwd iostream istream iterator limits list map "
    "memory new numeric optional ostream ratio set sstream stdexcept string string_view tuple "
    "type_traits typeinfo unordered_map utility variant vector version".split()
)
_C = frozenset("assert.h errno.h math.h stdio.h stdlib.h string.h time.h wchar.h".split())
_MISSING = re.compile(r"fatal error: '([^'\n]{1,200})' file not found")
_STANDARD = (
    (_CXX, "C++ standard headers missing", "install g++ (Debian, Ubuntu) or gcc-c++ (Fedora)"),
    (_C, "C standard headers missing", "install libc6-dev (Debian, Ubuntu) or glibc-devel (Fedora)"),
)


def findings(failures: list[Failure]) -> list[str]:
    """One line per cause that lies outside the kernels, with the number of kernels that it failed."""
    lines = []
    for names, what, hint in _STANDARD:
        kernels = 0
        missing: set[str] = set()
        for failure in failures:
            found = names & set(_MISSING.findall(failure.outcome.log))
            kernels += bool(found)
            missing |= found
        if kernels:
            which = ", ".join(sorted(missing))
            lines.append(f"{what} ({which}): not the kernels' fault, {kernels} of them; {hint}")
    return lines


def check(folder: Path) -> None:
    """Refuse, before the work begins, what is no folder, and one whose `headers` is not an earlier run's."""
    try:
        names = {path.name for path in folder.iterdir()}
    except FileNotFoundError:
        return
    except OSError as error:
        raise from_oserror(error, where=folder) from None
    if "headers" in names and not any(_OURS.fullmatch(name) for name in names):
        raise KdbtoolError(
            "not a folder for logs",
            where=folder,
            why="it has a `headers` that no rebuild made, and logs would replace it",
            hint="name another folder with --logs",
        )


def clear(folder: Path) -> None:
    """Remove what an earlier run left in `folder`, and `folder` if nothing else is in it."""
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        if (
            entry.is_dir()
            and not entry.is_symlink()
            and (entry.name == "headers" or _OURS.fullmatch(entry.name))
        ):
            shutil.rmtree(entry)
    if not any(folder.iterdir()):
        folder.rmdir()


def save(folder: Path, failures: list[Failure], backend: Backend, headers: Mapping[str, bytes]) -> None:
    """Write a folder per failure."""
    try:
        _save(folder, failures, backend, headers)
    except OSError as error:
        found = from_oserror(error, where=folder)
        found.exit_code = EXIT_PROBLEMS
        raise found from None


def _save(folder: Path, failures: list[Failure], backend: Backend, headers: Mapping[str, bytes]) -> None:
    if not failures:
        return
    shared = folder / "headers"
    shared.mkdir(parents=True, exist_ok=True)
    for name, text in headers.items():
        (shared / name).write_bytes(text)
    for failure in failures[:MAX_FOLDERS]:
        task, outcome = failure.task, failure.outcome
        here = folder / f"{task.digest[:12]}-{task.source}"
        (here / "source").mkdir(parents=True, exist_ok=True)
        (here / "source" / task.source).write_bytes(task.text)
        reason = outcome.reason.code if outcome.reason else "unknown"
        rows = "".join(f"  {printable(key.name)} {printable(key.args)}\n" for key in failure.keys)
        (here / "log.txt").write_text(
            f"{task.source} for {task.target}: {reason}: {outcome.detail}\n"
            f"rows that lack it:\n{rows}\n{outcome.log}"
        )
        script = here / "reproduce.sh"
        script.write_text(backend.reproduce(outcome))
        script.chmod(0o755)
