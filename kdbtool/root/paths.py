"""Where a root and what belongs to it live: everything is beside the root's own folder.

For a root `R`: `R.making` while it is made, `R.lock` with the exact packages, `R.debs/` with the
packages themselves, `R.flock` to keep two makers apart. Removing `R` leaves lock and packages, so
that it can be made again when the archive has moved on.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kdbtool.errors import KdbtoolError
from kdbtool.root.recipe import DEFAULT_VERSION

MARKER = "etc/kdbtool-root.json"


def home() -> Path | None:
    """The user's home folder; None for a user without one, as on some build machines."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def cache_dir() -> Path:
    """`$XDG_CACHE_HOME/kdbtool`, or `~/.cache/kdbtool`; a relative XDG_CACHE_HOME is ignored, as its
    specification wants. KdbtoolError for a user without a home, as on some build machines."""
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    own = home()
    if xdg.startswith("/"):
        return Path(xdg) / "kdbtool"
    if own is None:
        raise KdbtoolError("no cache folder", why="this user has no home", hint="set HOME or XDG_CACHE_HOME")
    return own / ".cache" / "kdbtool"


def default_root(version: str = DEFAULT_VERSION) -> Path:
    """`$KDBTOOL_ROOT`, else `root-<version>` in the cache folder."""
    given = os.environ.get("KDBTOOL_ROOT", "")
    return Path(given).absolute() if given else cache_dir() / f"root-{version}"


@dataclass(frozen=True)
class RootPaths:
    """The root's folder and its companions."""

    root: Path

    def _beside(self, suffix: str) -> Path:
        return self.root.with_name(self.root.name + suffix)

    @property
    def making(self) -> Path:
        """The root while it is made; renamed to `root` at the end."""
        return self._beside(".making")

    @property
    def lock(self) -> Path:
        """Package versions and hashes."""
        return self._beside(".lock")

    @property
    def debs(self) -> Path:
        """The packages, a local apt repository."""
        return self._beside(".debs")

    @property
    def flock(self) -> Path:
        """Held while the root is made or removed."""
        return self._beside(".flock")

    @property
    def marker(self) -> Path:
        """In a complete root: how it was made."""
        return self.root / MARKER
