"""Build options of an installed MIOpen, out of the config.h that its development package puts beside it.

The library itself does not say them: `include/miopen/config.h` (MIOpen's include/miopen/config.h.in) does. It
is taken only where it names the library's own MIOpen and HIP versions; that both came from one build is then
likely, not proved.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MAX_HEADER = 1 << 20  # bytes
# The options that a data type list spells (src/include/miopen/datatype.hpp, GetDataTypeKBP).
KEY_OPTIONS = ("MIOPEN_USE_RNE_BFLOAT16", "MIOPEN_FP8_IEEE_EXPONENT_BIAS", "MIOPEN_FP8_CLIPPING")
_DEFINE = re.compile(r"^#define ([A-Z][A-Z0-9_]{1,80})[ \t]+([^\r\n]{1,400}?)[ \t\r]*$", re.MULTILINE)


@dataclass(frozen=True)
class Config:
    """The defines of one config.h. A name that it defines twice, for other platforms, has its first value."""

    path: Path
    defines: Mapping[str, str]

    @property
    def key_options(self) -> dict[str, str]:
        """Those that shape keys, "0" or "1"."""
        return {n: v for n in KEY_OPTIONS if (v := self.defines.get(n)) in ("0", "1")}


def config_beside(library: Path, version: str, hip: str | None) -> Config | None:
    """The config.h of the MIOpen `version` at `library`, None without one that is of it.

    `hip` is the HIP version that the library says it was built with, None where it says none.
    """
    for prefix in library.resolve().parents[1:4]:  # lib/libMIOpen.so, lib/x86_64-linux-gnu/libMIOpen.so
        folder = prefix / "include" / "miopen"
        found, numbers = _defines(folder / "config.h"), _defines(folder / "version.h")
        if found is None or numbers is None:
            continue
        if _version(numbers, "MIOPEN_VERSION") != version:
            continue
        if hip is not None and _version(found, "HIP_PACKAGE_VERSION") != hip:
            continue
        return Config(folder / "config.h", found)
    return None


def _version(defines: Mapping[str, str], prefix: str) -> str:
    return ".".join(defines.get(f"{prefix}_{part}", "?") for part in ("MAJOR", "MINOR", "PATCH"))


def _defines(path: Path) -> dict[str, str] | None:
    """The #define lines of a regular file; None where there is none to read."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            text = file.read(MAX_HEADER).decode("utf-8", "replace")
    except OSError:
        return None
    out: dict[str, str] = {}
    for match in _DEFINE.finditer(text):
        out.setdefault(match[1], match[2])
    return out
