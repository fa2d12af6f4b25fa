"""Which compiler and which kernel sources a rebuild takes when it is not told, in one fixed order.

A root that is named comes first. A machine with MIOpen uses its own compiler and library. Else the default
root is used if it is made: its compiler is the one that its MIOpen would start. Else this machine's compiler,
with sources given.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from kdbtool.errors import KdbtoolError
from kdbtool.miopen.sources import SourceSet, from_directory, from_library
from kdbtool.rebuild.clang import Clang
from kdbtool.rebuild.place import Place, Root
from kdbtool.rebuild.recipe import Recipe
from kdbtool.root import choose_root, default_root, is_complete, locate_miopen, open_root

# ROCm's own first; then the newest of a distribution's that MIOpen's kernels are known to build with.
_ROCM = ("opt/rocm/llvm/bin/clang", "opt/rocm/lib/llvm/bin/clang", "usr/lib64/rocm/llvm/bin/clang")
_NAMES = (*(f"clang-{version}" for version in range(22, 14, -1)), "clang")


def pick_root(option: str | None, compiler: Path | None) -> Path | None:
    """The root to enter, or None. --root DIR, --root none and $KDBTOOL_ROOT mean what they always do;
    a --compiler without --root is one of this machine."""
    if option is None and compiler is not None:
        return None
    named = choose_root(option, simulated=False)
    if named is not None:
        return named.path
    if option == "none" or locate_miopen() is not None:
        return None
    path = _made_root()
    return open_root(path).path if path is not None else None


def pick_compiler(root: Path | None, option: Path | None, recipe: Recipe) -> Clang:
    """A clang: --compiler (a path of the machine, or of the root if one is entered), else the first found."""
    place = Root(root) if root is not None else Place()
    if option is not None:
        found = place.outside(str(option)) if root is not None else option
        named = shutil.which(option) if os.sep not in str(option) and root is None else None
        path = named or (str(option) if root is not None else str(option.absolute()))
        if named is None and not (found.is_file() and os.access(found, os.X_OK)):
            raise KdbtoolError("no such compiler", where=option, why=f"looked for it in {place}")
        return Clang(path, recipe, place)
    for candidate in _candidates(root):
        return Clang(candidate, recipe, place)
    raise KdbtoolError(
        "no compiler for AMD GPUs",
        where=root,
        why="no ROCm clang and no clang-15 to clang-22 found",
        hint="run: kdbtool root make, or apt install clang lld rocm-device-libs hipcc, or --compiler PATH",
    )


def pick_sources(root: Path | None, library: Path | None, folder: Path | None, *, roots: bool) -> SourceSet:
    """--sources, --miopen, the root's libMIOpen, this machine's, the default root's: the first there is.

    Reading a root's library does not enter the root; `roots` False (--root none) leaves them alone.
    """
    if folder is not None:
        return from_directory(folder)
    if library is None:
        library = open_root(root).miopen if root is not None else locate_miopen()
    made = _made_root() if library is None and roots else None
    if made is not None:
        library = open_root(made).miopen
    if library is None:
        raise KdbtoolError(
            "no kernel sources",
            why="no libMIOpen on this machine and no root",
            hint="give --miopen LIBRARY or --sources DIR, or run: kdbtool root make",
        )
    return from_library(library)


def _made_root() -> Path | None:
    """The default root, if it is made."""
    try:
        path = default_root()
    except KdbtoolError:  # no home directory, as on a build machine
        return None
    return path if is_complete(path) else None


def _candidates(root: Path | None) -> list[str]:
    if root is not None:
        inside = [f"/{path}" for path in (*_ROCM, *(f"usr/bin/{name}" for name in _NAMES))]
        outside = Root(root).outside
        return [path for path in inside if outside(path).is_file()]
    prefix = os.environ.get("ROCM_PATH", "")
    paths = [f"{prefix}/llvm/bin/clang"] if prefix.startswith("/") else []
    paths += [f"/{path}" for path in _ROCM]
    found = [path for path in paths if os.access(path, os.X_OK)]
    found += sorted(
        (str(path) for path in Path("/opt").glob("rocm-*/llvm/bin/clang")),
        key=lambda path: [int(n) for n in re.findall(r"\d+", path)],
        reverse=True,
    )
    return found + [path for name in _NAMES if (path := shutil.which(name))]
