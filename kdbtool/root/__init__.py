"""A folder with a Debian system that has a real MIOpen: made, checked, entered, removed.

The real libMIOpen may need a newer system than the host. A *root* is a folder with one, made by
debootstrap and apt. Needs the standard library only, so that `scripts/rocm-root` works in a
clean clone. `docs/roots.md` is the guide.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from kdbtool.errors import KdbtoolError
from kdbtool.root import enter, recipe
from kdbtool.root.paths import MARKER, default_root
from kdbtool.root.recipe import DEFAULT_VERSION, Recipe

__all__ = [
    "DEFAULT_VERSION",
    "Root",
    "choose_root",
    "default_root",
    "is_complete",
    "locate_miopen",
    "open_root",
]

_MARKER_LIMIT = 1 << 20
_SONAMES = ("libMIOpen.so.1", "libMIOpen.so")


@dataclass(frozen=True)
class Root:
    """A root that can be entered."""

    path: Path
    recipe: Recipe
    cures: bool

    @property
    def miopen(self) -> Path:
        """libMIOpen.so.1 of the root, as a path of the host."""
        found = _library_in(self.path)
        assert found is not None  # open_root has seen it
        return found

    def environment(self, env: dict[str, str] | None = None) -> dict[str, str]:
        """The environment inside, made of `env` (default: the caller's)."""
        return enter.environment(
            os.environ if env is None else env,
            self.recipe.path,
            self.recipe.cure_environment if self.cures else {},
        )


def read_marker(root: Path) -> dict[str, object] | None:
    """How `make` made this root; None for a folder that it did not finish or never made."""
    path = root / MARKER
    try:
        if path.stat().st_size > _MARKER_LIMIT:
            return None
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def is_complete(root: Path) -> bool:
    """Whether `make` finished this root. Fast: one small file is read."""
    return read_marker(root) is not None


def open_root(path: Path) -> Root:
    """The root at `path`, which may also be one that a user made by hand; KdbtoolError if it is none."""
    if not path.is_dir():
        raise KdbtoolError("no such root", where=path, hint="run: kdbtool root make")
    if _library_in(path) is None:
        raise KdbtoolError("a root without libMIOpen.so.1", where=path, hint="run: kdbtool root make")
    marker = read_marker(path) or {}
    version = marker.get("miopen")
    known = version if isinstance(version, str) and version in recipe.known() else DEFAULT_VERSION
    return Root(path.resolve(), recipe.load(known), marker.get("cures") is not False)


def choose_root(option: str | None, *, simulated: bool, version: str = DEFAULT_VERSION) -> Root | None:
    """Which root a program runs in; None: none, it runs on this machine as it is.

    `option` is the value of --root. A root that is named (there or in $KDBTOOL_ROOT) is entered.
    Unasked, one is entered only for a simulated run on a machine whose loader finds no libMIOpen: a
    program on a real GPU has brought its own. KdbtoolError when the default root is wanted and not made.
    """
    if option == "none":
        return None
    if option:
        return open_root(Path(option).absolute())
    if os.environ.get("KDBTOOL_ROOT"):
        return open_root(default_root(version))
    if not simulated or locate_miopen() is not None:
        return None
    path = default_root(version)
    if not is_complete(path):
        raise KdbtoolError(
            f"this machine has no libMIOpen, and no root at {path}",
            hint="run: kdbtool root make (or say --root none when the program brings its own MIOpen)",
        )
    return open_root(path)


def _library_in(root: Path) -> Path | None:
    for folder in ("usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib", "opt/rocm/lib"):
        for name in _SONAMES:
            path = root / folder / name
            if path.is_symlink() or path.is_file():
                return path
    return None


def locate_miopen() -> Path | None:
    """The libMIOpen that this machine's loader would find, or ROCm's under /opt; None if there is none.

    A libMIOpen inside a Python wheel is not found here: no loader path leads to it.
    """
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        for name in _SONAMES:
            if folder and (Path(folder) / name).is_file():
                return Path(folder) / name
    for tool in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
        try:
            done = subprocess.run([tool, "-p"], capture_output=True, text=True, check=True, timeout=60)
        except (OSError, subprocess.SubprocessError):
            continue
        match = re.search(r"^\s*libMIOpen\.so(?:\.1)? .*=> (/.*)$", done.stdout, re.MULTILINE)
        if match and Path(match[1]).is_file():
            return Path(match[1])
        break
    for path in sorted(Path("/opt").glob("rocm*/lib/libMIOpen.so.1"), reverse=True):
        return path
    return None
