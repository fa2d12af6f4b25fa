"""What a root of one MIOpen version is made of: `recipes/<version>.toml`, read and checked."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kdbtool.errors import KdbtoolError

DEFAULT_VERSION = "6.4.3"
_FOLDER = Path(__file__).parent / "recipes"


@dataclass(frozen=True)
class Recipe:
    """One recipe. Paths in `needs` are relative to the root, all others absolute inside it."""

    miopen: str
    suite: str
    hip_major: int
    packages: tuple[str, ...]
    needs: tuple[str, ...]
    path: tuple[str, ...]
    rocblas_folder: str
    rocblas_default: tuple[str, ...]
    exclude: tuple[str, ...]
    include: tuple[str, ...]
    cure_links: dict[str, str]
    cure_environment: dict[str, str]


@functools.cache
def known() -> tuple[str, ...]:
    """Versions that have a recipe."""
    return tuple(sorted(p.stem for p in _FOLDER.glob("*.toml")))


def load(version: str = DEFAULT_VERSION) -> Recipe:
    """The recipe of a version; KdbtoolError names the known ones."""
    if version not in known():
        raise KdbtoolError(f"no root recipe for MIOpen {version}", why=f"known: {', '.join(known())}")
    with (_FOLDER / f"{version}.toml").open("rb") as file:
        data: dict[str, Any] = tomllib.load(file)
    cures = data.pop("cures")
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
    return Recipe(
        **fields,
        cure_links=cures["links"],
        cure_environment=cures["environment"],
    )
