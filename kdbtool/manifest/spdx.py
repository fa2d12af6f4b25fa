"""The kernel sources behind a manifest's rows and their licences, as an SPDX 2.3 document in JSON.

A package for the manifest, one for each class of rows (kdbtool.miopen.classes), one for each kernel source.
What is declared: MIT where a source's text carries that licence, an identifier that the text names itself,
else MIT as well, MIOpen's own licence (its LICENSE.txt), and the comment says which of these it is. kdbtool
concludes nothing. The same manifest and sources give the same bytes: the time is SOURCE_DATE_EPOCH, or the
epoch itself.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import re
import uuid
from collections import Counter
from typing import Any

from kdbtool import __version__
from kdbtool.errors import KdbtoolError, counted, printable
from kdbtool.manifest.model import BUILD, Hashes, Manifest
from kdbtool.miopen.classes import (
    ASM_DISASSEMBLED,
    ASM_GENERATED,
    ASM_HANDWRITTEN,
    CLASSES,
    UNKNOWN,
    class_of,
)
from kdbtool.miopen.keys import shown_source, source_of
from kdbtool.miopen.sources import SourceSet

_NOTHING = "NOASSERTION"
_CLASSES = {
    "hip": "kernels in HIP C++",
    "opencl": "kernels in OpenCL C",
    ASM_GENERATED: "assembly that AMD's generator iGEMMgen wrote, which is public",
    ASM_DISASSEMBLED: "assembly whose form made for changes (sp3) is not public: MIOpen issues 480 and 3904",
    ASM_HANDWRITTEN: "assembly written by hand",
    "mlir": "kernels that MLIR makes at run time, without a source text",
    UNKNOWN: "rows whose name is no kernel source's",
}
_NOISE = re.compile(rb"[\s*/#;]+")
_GRANT = b"Permission is hereby granted, free of charge, to any person obtaining a copy of this software"
_NAMED = re.compile(rb"SPDX-License-Identifier:[ \t]*([A-Za-z0-9.+-]{1,64})[ \t*/]*$", re.MULTILINE)
_LAST = 253_402_300_799  # 9999-12-31T23:59:59Z


def spdx_document(manifest: Manifest, text: bytes, sources: SourceSet | None) -> bytes:
    """The document about `manifest`, whose text is `text`; licences of `sources`, where those are at hand.

    KdbtoolError where SOURCE_DATE_EPOCH is no time.
    """
    states: dict[str, Counter[str]] = {}
    for key in manifest.keys:
        states.setdefault(shown_source(key.name), Counter())[key.state] += 1
    named = {source for key in manifest.keys if (source := source_of(key.name))}
    digest = hashlib.sha256(text).hexdigest()
    archs = ", ".join(manifest.archs) or "no arch"
    title = f"kernel manifest for {archs}, MIOpen {manifest.miopen or 'unknown'}"
    top = _package("SPDXRef-Manifest", title, _NOTHING, "rows of kernel databases, as text", digest)
    packages, relations = [top], [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Manifest")]
    for group in (one for one in CLASSES if one in _CLASSES):
        members = sorted(source for source in states if class_of(source) == group)
        if not members:
            continue
        rows = sum((states[source] for source in members), Counter[str]())
        group_id = f"SPDXRef-Class-{group}"
        about = f"{_CLASSES[group]}. {_rows(rows)}"
        packages.append(_package(group_id, f"MIOpen kernels: {group}", _of_class(group), about))
        relations.append(("SPDXRef-Manifest", "DEPENDS_ON", group_id))
        for source in members:
            licence, why = _licence(source, sources) if source in named else (_NOTHING, "not a source")
            hashes = manifest.hashes.get(source, Hashes())
            about = f"{_rows(states[source])}; {why}"
            packages.append(_package(_id(source), printable(source), licence, about, hashes.source))
            relations.append((group_id, "CONTAINS", _id(source)))
    document: dict[str, Any] = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": title,
        "creationInfo": {"created": _created(), "creators": [f"Tool: kdbtool-{__version__}"]},
        "packages": packages,
        "relationships": [
            {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
            for one, kind, other in relations
        ],
    }
    content = hashlib.sha256(json.dumps(document).encode()).digest()
    document["documentNamespace"] = f"urn:uuid:{uuid.UUID(bytes=content[:16], version=5)}"
    return (json.dumps(document, indent=1) + "\n").encode("ascii")


def _package(ref: str, name: str, licence: str, comment: str, sha256: str | None = None) -> dict[str, Any]:
    checksums = {"checksums": [{"algorithm": "SHA256", "checksumValue": sha256}]} if sha256 else {}
    return {
        "SPDXID": ref,
        "name": name,
        "downloadLocation": _NOTHING,
        "filesAnalyzed": False,
        "licenseConcluded": _NOTHING,
        "licenseDeclared": licence,
        "copyrightText": _NOTHING,
        "comment": comment,
        **checksums,
    }


def _licence(source: str, sources: SourceSet | None) -> tuple[str, str]:
    """What is declared of a source, and by what."""
    text = sources.kernels.get(source) if sources else None
    if text is None:
        return "MIT", "MIOpen's licence; the text was not at hand"
    if found := _NAMED.search(text):
        return found[1].decode("ascii"), "its text names this licence"
    if _GRANT in _NOISE.sub(b" ", text):
        return "MIT", "its text carries this licence"
    return "MIT", "MIOpen's licence; the text itself names none"


def _of_class(group: str) -> str:
    return _NOTHING if group in (UNKNOWN, "mlir") else "MIT"


def _rows(states: Counter[str]) -> str:
    unbuilt = states.total() - states[BUILD]
    return f"{counted(states[BUILD], 'row')} to build" + (
        f", {unbuilt} asked for without a source" if unbuilt else ""
    )


def _id(source: str) -> str:
    """Letters, digits, '.' and '-' alone may stand in one; the hash keeps a_b and a-b apart."""
    plain = re.sub(r"[^A-Za-z0-9.]", "-", source)[:100]
    return f"SPDXRef-Source-{plain}-{hashlib.sha256(source.encode()).hexdigest()[:8]}"


def _created() -> str:
    value = os.environ.get("SOURCE_DATE_EPOCH", "0")
    if not (value.isascii() and value.isdecimal() and len(value) <= 12 and int(value) <= _LAST):
        why = f"expected seconds since 1970, not {value[:40]!r}"
        raise KdbtoolError("not a time", where="SOURCE_DATE_EPOCH", why=why)
    return datetime.datetime.fromtimestamp(int(value), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
