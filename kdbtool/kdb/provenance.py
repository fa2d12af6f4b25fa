"""What a kernel database says of its making, in the table kdbtool_provenance (docs/kdb-format.md).

`miopen` is the ROCm release, `sources` the hash of the whole source set, `source NAME` the hashes of one
kernel source: by them a row that another MIOpen's text made is told from one that is the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

Hashes = tuple[str, str]  # sha256 of the text, and of the headers that it may include

_SOURCE = "source "
_VALUE = re.compile(r"sha256:([0-9a-f]{64}) headers:([0-9a-f]{64})")


def source_records(hashes: Mapping[str, Hashes]) -> dict[str, str]:
    """The records of these sources."""
    return {
        f"{_SOURCE}{name}": f"sha256:{text} headers:{headers}" for name, (text, headers) in hashes.items()
    }


def source_hashes(record: Mapping[str, str]) -> dict[str, Hashes]:
    """{source: hashes} of a provenance table; what is not written so is left out."""
    found = {}
    for key, value in record.items():
        match = _VALUE.fullmatch(value) if key.startswith(_SOURCE) else None
        if match is not None:
            found[key[len(_SOURCE) :]] = (match[1], match[2])
    return found


def set_hash(record: Mapping[str, str]) -> str | None:
    """The hash of the whole source set."""
    value = record.get("sources", "")
    return value.removeprefix("sha256:") if value.startswith("sha256:") else None


def same_release(one: str, other: str) -> bool:
    """Equal as far as both say: a library names its release by two numbers alone."""
    return all(a == b for a, b in zip(one.split("."), other.split("."), strict=False))


def differs(there: Hashes, here: Hashes) -> str | None:
    """What differs between two pairs of hashes, in words; None for nothing."""
    parts = [word for word, a, b in zip(("text", "headers"), there, here, strict=True) if a != b]
    return " and ".join(parts) or None


def without_sources(record: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """The records for people to read: not one line for each source."""
    return ((key, value) for key, value in record.items() if not key.startswith(_SOURCE))
