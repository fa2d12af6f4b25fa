"""Manifests: kernel keys as sorted text that is reviewed in a diff. Grammar: docs/manifest-format.md."""

from kdbtool.manifest.model import (
    ASKED_UNBUILT,
    BUILD,
    Asker,
    Hashes,
    Key,
    Manifest,
    Note,
    Problem,
    Solution,
    Variant,
)
from kdbtool.manifest.reader import parse_manifest, read_manifest
from kdbtool.manifest.writer import write_manifest

__all__ = [
    "ASKED_UNBUILT",
    "BUILD",
    "Asker",
    "Hashes",
    "Key",
    "Manifest",
    "Note",
    "Problem",
    "Solution",
    "Variant",
    "parse_manifest",
    "read_manifest",
    "write_manifest",
]
