"""The schemas that kdbtool knows for the kernels of a MIOpen release: data, found by scripts/update-rules.

Which schema a kernel gets depends on its name and the names of its options alone, never on other rows: so
adding a network to a manifest adds lines. An arrangement of options that is not here is written key by key.
"""

from __future__ import annotations

import functools
from importlib import resources

from kdbtool.manifest.schema import Schema

Schemas = dict[bytes, dict[tuple[str, ...], Schema]]  # by kernel name and shape


def schemas(miopen: str | None) -> Schemas:
    """Those of a ROCm release (6.4.3), none where it is unknown or has no data."""
    return _load(".".join(miopen.split(".")[:2])) if miopen else {}


@functools.cache
def _load(minor: str) -> Schemas:
    from kdbtool.manifest.reader import parse_schemas

    file = resources.files("kdbtool.manifest") / "data" / f"rules-{minor}.kdbmanifest"
    return parse_schemas(file.read_bytes(), str(file)) if file.is_file() else {}
