"""Rebuilding with a stand-in for clang: manifests, sources and compilers of the tests' own."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

from kdbtool.kdb.blob import unpack
from kdbtool.manifest import Hashes, Key, Manifest, write_manifest
from kdbtool.manifest.model import Note
from kdbtool.miopen.sources import from_directory

FAKE = Path(__file__).parent / "fake-compilers" / "clang"
ARCH = "gfx942"
TARGET = "gfx942:xnack-"  # of the good object
HEADER = "shared.h"


def key(options: str, source: str = "kernel.cl", *, arch: str = ARCH, state: str = "build") -> Key:
    """A key as MIOpen makes it."""
    return Key(f"{source}.o".encode(), f"{options} -mcpu={arch}".encode(), arch, state)


def fake_clang(folder: Path, shared: Path) -> Path:
    """The fake compiler in `folder`, with a real object beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    compiler = folder / "clang"
    shutil.copy(FAKE, compiler)
    database = sqlite3.connect(f"file:{shared / 'data' / 'gfx942.kdb'}?mode=ro&immutable=1", uri=True)
    try:
        blob, md5, size = database.execute(
            "SELECT kernel_blob, kernel_hash, uncompressed_size FROM kern_db WHERE kernel_name LIKE '%.s.o' "
            "ORDER BY length(kernel_blob) LIMIT 1"
        ).fetchone()
    finally:
        database.close()
    code, findings = unpack(blob, md5, size)
    assert code is not None and not findings
    (folder / "object").write_bytes(code)
    return compiler


def calls(compiler: Path) -> list[str]:
    """What the fake compiler was asked for, probes aside."""
    log = compiler.parent / "calls"
    return log.read_text().split() if log.exists() else []


def kernel_folder(folder: Path, *sources: str) -> Path:
    """Kernel sources, each with a text of its own, and a header."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in sources or ("kernel.cl",):
        (folder / source).write_text(f'#include "{HEADER}"\n// {source}\n')
    (folder / HEADER).write_text("#define ONE 1\n")
    return folder


def manifest_file(path: Path, keys: list[Key], sources: Path | None, *, miopen: str | None = "6.4.3") -> Path:
    """A manifest for `keys`, with the hashes of the sources in folder `sources`."""
    hashes: dict[str, Hashes] = {}
    if sources is not None:
        texts = from_directory(sources)
        hashes = {name: Hashes(*texts.hash_of(name)) for name in texts.kernels}
    manifest = Manifest(miopen=miopen, keys={k: Note() for k in keys}, hashes=hashes)
    path.write_bytes(write_manifest(manifest))
    return path
