"""What verify says MIOpen does with a bad row is what the real MIOpen does.

One convolution on a simulated gfx1030; its kernel comes from a system kdb that kdbtool wrote, then
damaged one way at a time. Loaded, thrown or never found: MIOpen's own log and exit code say it. The
kernel is compiled once; rows that are never found share a run, which compiles it anew.
"""

from __future__ import annotations

import bz2
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.amdgpu_elf import bundle, code_object, hip_bundle, metadata

from kdbtool.codeobject import parse
from kdbtool.kdb.against import of_sources
from kdbtool.kdb.blob import md5, pack
from kdbtool.kdb.checks import check
from kdbtool.kdb.findings import Code, Consequence
from kdbtool.kdb.provenance import source_records
from kdbtool.kdb.reader import COLUMNS, open_kdb
from kdbtool.kdb.writer import write_kdb
from kdbtool.miopen.entrypoints import Entries
from kdbtool.miopen.sources import SourceSet, from_library
from kdbtool.miopen.versions import resolve
from kdbtool.root import Root

DRIVER = "/usr/libexec/rocm/libmiopen1-tests/MIOpenDriver"
CONV = "conv -n 2 -c 8 -H 16 -W 16 -k 8 -y 3 -x 3 -p 1 -q 1 -t 1 -V 0 -i 1 -F 1".split()
SOURCE = "naive_conv.cpp"
LOADED = 'Successfully loaded binary for: "naive_conv.cpp.o"'
REFUSED = "no kernel image is available for execution on the device"
Blob = tuple[bytes, str, int]


@dataclass(frozen=True)
class Bench:
    """The row that MIOpen asks for, and what verify compares with."""

    key: tuple[bytes, bytes]
    data: bytes
    sources: SourceSet
    run: Callable[..., Any]

    @property
    def kernels(self) -> tuple[str, ...]:
        return parse(self.data).kernels

    def object(self, **how: Any) -> bytes:
        """A small object with the row's kernels, all of it right but for what is given."""
        return code_object(kernels=how.pop("kernels", self.kernels), **how)


@pytest.fixture(scope="module")
def bench(root: Path, opened_root: Root, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """The row compiled by MIOpen itself."""

    def run(traces: Path, system: Path, *more: str) -> Any:
        argv = [
            "record",
            "--simulate",
            "gfx1030",
            "--root",
            str(root),
            "-o",
            str(traces),
            *more,
            "--",
            DRIVER,
        ]
        return subprocess.run(
            [sys.executable, "-m", "kdbtool", *argv, *CONV],
            env={**os.environ, "MIOPEN_LOG_LEVEL": "6", "MIOPEN_SYSTEM_DB_PATH": str(system)},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    folder = tmp_path_factory.mktemp("compiled")
    done = run(folder / "traces", folder, "--keep")
    kept = re.search(r"private folders kept: (.+)$", done.stderr, re.MULTILINE)
    assert done.returncode == 0 and kept, done.stderr
    (cache,) = Path(kept[1]).rglob("gfx1030_36.ukdb")
    with open_kdb(cache) as reader:
        (row,) = [r for r in reader if r.name == b"naive_conv.cpp.o"]
        found = Bench((row.name, row.args), row.object(), from_library(opened_root.miopen), run)
    shutil.rmtree(kept[1])
    return found


# --- what is done to the blob columns of the row, by the code that verify has for it
BLOBS: dict[Code, Callable[[bytes, str, int], Blob]] = {
    Code.SIZE_LARGE: lambda b, h, s: (b, h, s + 1),
    Code.SIZE_SMALL: lambda b, h, s: (b, h, s - 1),
    Code.BAD_SIZE: lambda b, h, s: (b, h, (1 << 32) + 10),  # -1 is 4 GiB, which a machine may have
    Code.BZ2_TAIL: lambda b, h, s: (b + b"tail", h, s),
    Code.BAD_BZ2: lambda b, h, s: (b[:-9], h, s),
    Code.HASH_CASE: lambda b, h, s: (b, h.upper(), s),
    Code.HASH_OF_COMPRESSED: lambda b, h, s: (b, md5(b), s),
    Code.HASH_WRONG: lambda b, h, s: (b, "0" * 32, s),
}
# --- the object of the row
OBJECTS: dict[Code, Callable[[Bench], bytes]] = {
    Code.NOT_ELF: lambda b: b"int main() {}" * 30,
    Code.BAD_ELF: lambda b: b.object()[:-100],
    Code.BAD_BUNDLE: lambda b: bundle(("host-x86_64-unknown-linux-gnu-", b"")),
    Code.BUNDLE_TARGET: lambda b: hip_bundle(b.object(), "gfx1031"),
    Code.ELF_CLASS: lambda b: b.object(elf_class=1),
    Code.ELF_MACHINE: lambda b: b.object(machine=62),
    Code.ELF_ARCH: lambda b: b.object(arch="gfx1100"),
    Code.FEATURES_FOREIGN: lambda b: b.object(xnack="on"),
    Code.OBJECT_VERSION: lambda b: b.object(abi=5),
    Code.OBJECT_OLD: lambda b: b.object(abi=1),
    Code.TARGET_DISAGREES: lambda b: b.object(meta=metadata("gfx1031", b.kernels)),
    Code.NO_KERNELS: lambda b: b.object(kernels=()),
    Code.BAD_DESCRIPTOR: lambda b: b.object(descriptor_address=1 << 40),
    Code.SYMBOL_MISSING: lambda b: b.object(kernels=("naive_conv_fwd_nchw_float_double_float",)),
    Code.SYMBOL_EXTRA: lambda b: b.object(kernels=(*b.kernels, "extra")),
    Code.STALE: lambda b: b.object(),
}
# --- the file
STATEMENTS: dict[Code, tuple[str, ...]] = {
    Code.NO_INDEX: ("DROP INDEX idx_kern_db",),
    Code.EXTRA_TABLE: ("CREATE TABLE other (x)",),
    Code.EXTRA_COLUMN: ("ALTER TABLE kern_db ADD COLUMN other TEXT",),
    Code.NO_COLUMN: ("ALTER TABLE kern_db DROP COLUMN uncompressed_size",),
    Code.USER_VERSION: ("PRAGMA user_version = 5",),
    Code.PAGE_SIZE: ("PRAGMA page_size = 1024", "VACUUM"),
    Code.FREE_PAGES: ("CREATE TABLE x (x)", "INSERT INTO x VALUES (zeroblob(90000))", "DROP TABLE x"),
    Code.NO_PROVENANCE: ("DROP TABLE kdbtool_provenance",),
    Code.BAD_PROVENANCE: ("UPDATE kdbtool_provenance SET value = '7' WHERE key = 'rows'",),
    Code.OTHER_MIOPEN: ("UPDATE kdbtool_provenance SET value = '6.2.4' WHERE key = 'miopen'",),
    Code.UNPROVED: ("DELETE FROM kdbtool_provenance WHERE key LIKE 'source%'",),
    Code.DUPLICATE_KEY: (
        "DROP INDEX idx_kern_db",
        f"INSERT INTO kern_db SELECT NULL, {', '.join(COLUMNS[1:])} FROM kern_db",
    ),
}
# --- the name of the file, or a row beside the right one
NAMES = {Code.SHADOWS: "gfx1030_36.kdb"}
# --- keys that are never found, each beside the others in one file: (name, arguments) from the right ones
KEYS: dict[Code, Callable[[bytes, bytes], tuple[bytes, bytes]]] = {
    Code.QUOTE: lambda n, a: (n, b" -DS='1'" + a),
    Code.NO_DOT_O: lambda n, a: (n[:-2], a),
    Code.NO_MCPU: lambda n, a: (n, a[: a.rindex(b" -mcpu=")]),
    Code.FOREIGN_MCPU: lambda n, a: (n, a.replace(b"gfx1030", b"gfx1031")),
    Code.TARGET_ID: lambda n, a: (n, a + b":xnack-"),
    Code.NO_SOURCE: lambda n, a: (b"naive_conv_of_old.cpp.o", a),
    Code.EPOCH: lambda n, a: (
        n,
        a.replace(b" -DMIOPEN_USE_BFP16", b" -DMIOPEN_USE_INT8x4=0 -DMIOPEN_USE_BFP16"),
    ),
    Code.REPEATED_DEFINES: lambda n, a: (n, b" -DMIOPEN_USE_FP16=0" + a),
}
_METADATA = "HIP reads the metadata of an object that it loads, the simulated device does not"
# What a row or file cannot show here, and why; the unit tests have all of these.
NOT_HERE: dict[Code, str] = {
    Code.JOURNAL: "needs a folder that the user cannot write; field case 7",
    Code.SIDE_FILES: "MIOpen reads what is in a -wal",
    Code.FILE_MODE: "the tests' user may be root",
    Code.ENCODING: "the writer makes UTF-8 only; what SQLite finds does not depend on it",
    Code.TWIN: "said of a row that another finding names",
    Code.MISSING_ROW: "not a row",
    Code.EXTRA_ROW: "said of a right row",
    Code.OTHER_CODE: "said of a right row",
    Code.OTHER_BYTES: "said of a right row",
    Code.GENERIC_ARCH: "what a driver of real devices takes",
    Code.FEATURES_EXPLICIT: "gfx1030 has no features",
    Code.BAD_METADATA: _METADATA,
    Code.NO_METADATA: _METADATA,
    Code.KERNEL_NO_METADATA: _METADATA,
    Code.METADATA_NO_KERNEL: _METADATA,
    Code.BUNDLE_LANGUAGE: "the row's kernel is HIP; its own object is a bundle and loads",
}
OTHERS = {Code.MALFORMED, Code.UNREADABLE, Code.NOT_TEXT, Code.FILE_NAME}


def _database(bench: Bench, folder: Path, data: bytes | None = None) -> Path:
    """`system/gfx1030.kdb` with the row."""
    system = folder / "system"
    system.mkdir()
    record = {"miopen": "6.4.3"} | source_records({SOURCE: bench.sources.hash_of(SOURCE)})
    write_kdb(system / "gfx1030.kdb", [(*bench.key, data or bench.data)], record)
    return system / "gfx1030.kdb"


def _execute(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as db:
        for statement in statements:
            db.execute(statement)
    db.close()


def _found(bench: Bench, path: Path, sources: SourceSet | None = None) -> set[Code]:
    """What verify finds, judged against the library that runs."""
    against = [of_sources("6.4.3", sources or bench.sources)]
    with open_kdb(path) as reader:
        report = check(reader, build=resolve("6.4.3"), entries=Entries(bench.sources), against=against)
    return {f.code for f in report.findings}


def _compare(bench: Bench, folder: Path, path: Path, code: Code | None, *, changed: bool = False) -> None:
    sources = None
    if changed:
        texts = {**bench.sources.kernels, SOURCE: bench.sources.kernels[SOURCE] + b"\n"}
        sources = SourceSet(texts, bench.sources.headers, "another")
    found = _found(bench, path, sources)
    assert code in found if code else not found, found
    done = bench.run(folder / "traces", path.parent)
    text = done.stdout + done.stderr
    said = code.consequence if code else Consequence.HARMLESS
    if said is Consequence.HARMLESS:
        assert done.returncode == 0 and LOADED in text, text[-3000:]
    elif said is Consequence.WRONG_CODE:  # MIOpen knows nothing of it; a device may
        assert LOADED in text and (done.returncode == 0 or REFUSED in text), text[-3000:]
    elif said is Consequence.NEVER_HIT:
        assert done.returncode == 0 and LOADED not in text
    else:
        assert done.returncode != 0, text[-3000:]


def test_the_row_as_it_was_written(bench: Bench, tmp_path: Path) -> None:
    _compare(bench, tmp_path, _database(bench, tmp_path), None)


def test_the_row_with_a_small_object(bench: Bench, tmp_path: Path) -> None:
    _compare(bench, tmp_path, _database(bench, tmp_path, bench.object()), None)


def test_the_row_stored_raw(bench: Bench, tmp_path: Path) -> None:
    path = _database(bench, tmp_path)
    with sqlite3.connect(path) as db:
        (blob,) = db.execute("SELECT kernel_blob FROM kern_db").fetchone()
        db.execute("UPDATE kern_db SET kernel_blob = ?, uncompressed_size = 0", (bz2.decompress(blob),))
    db.close()
    _execute(path, "VACUUM")
    _compare(bench, tmp_path, path, None)


@pytest.mark.parametrize("code", BLOBS, ids=lambda c: c.code)
def test_blobs(code: Code, bench: Bench, tmp_path: Path) -> None:
    path = _database(bench, tmp_path)
    packed = pack(bench.data)
    columns = BLOBS[code](packed.blob, packed.md5, packed.uncompressed_size)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE kern_db SET kernel_blob = ?, kernel_hash = ?, uncompressed_size = ?", columns)
    db.close()
    _compare(bench, tmp_path, path, code)


@pytest.mark.parametrize("code", OBJECTS, ids=lambda c: c.code)
def test_objects(code: Code, bench: Bench, tmp_path: Path) -> None:
    path = _database(bench, tmp_path, OBJECTS[code](bench))
    _compare(bench, tmp_path, path, code, changed=code is Code.STALE)


@pytest.mark.parametrize("code", STATEMENTS, ids=lambda c: c.code)
def test_files(code: Code, bench: Bench, tmp_path: Path) -> None:
    path = _database(bench, tmp_path)
    _execute(path, *STATEMENTS[code])
    _compare(bench, tmp_path, path, code)


@pytest.mark.parametrize("code", NAMES, ids=lambda c: c.code)
def test_names(code: Code, bench: Bench, tmp_path: Path) -> None:
    path = _database(bench, tmp_path)
    _compare(bench, tmp_path, path.rename(path.with_name(NAMES[code])), code)


@pytest.mark.parametrize(("code", "page"), [(Code.MALFORMED, 1), (Code.UNREADABLE, 3)])
def test_pages(code: Code, page: int, bench: Bench, tmp_path: Path) -> None:
    """The page of the schema's table, or one that the blob goes on in."""
    path = _database(bench, tmp_path)
    raw = bytearray(path.read_bytes())
    at = raw.index(b"naive_conv.cpp.o") // 4096 * 4096 if page == 1 else len(raw) // 8192 * 4096
    raw[at : at + 4096] = b"\xa5" * 4096
    path.write_bytes(raw)
    _compare(bench, tmp_path, path, code)


def test_keys_that_are_never_found(bench: Bench, tmp_path: Path) -> None:
    path = _database(bench, tmp_path)
    rows = [(*key(*bench.key), bench.data) for key in KEYS.values()]
    write_kdb(path, rows, {"miopen": "6.4.3"}, force=True)
    found = _found(bench, path)
    assert set(KEYS) <= found
    assert all(c.consequence is Consequence.NEVER_HIT for c in KEYS if c is not Code.REPEATED_DEFINES)
    others = ", ".join(COLUMNS[3:])
    row = "kernel_name = 'naive_conv.cpp.o' LIMIT 1"
    cast = f"CAST(kernel_name AS BLOB), kernel_args, {others}"
    _execute(path, f"INSERT INTO kern_db SELECT NULL, {cast} FROM kern_db WHERE {row}")
    right = f"UPDATE kern_db SET kernel_args = '{bench.key[1].decode()}' WHERE typeof(kernel_name) = 'blob'"
    _execute(path, right)
    assert Code.NOT_TEXT in _found(bench, path)
    _compare(bench, tmp_path, path, Code.NOT_TEXT)


def test_a_name_that_miopen_does_not_open(bench: Bench, tmp_path: Path) -> None:
    path = _database(bench, tmp_path)
    _compare(bench, tmp_path, path.rename(path.with_name("gfx1030_40.kdb.old")), Code.FILE_NAME)


def test_every_code_is_shown_or_has_its_reason() -> None:
    shown = {*BLOBS, *OBJECTS, *STATEMENTS, *NAMES, *KEYS, *OTHERS}
    assert shown | set(NOT_HERE) == set(Code) and not shown & set(NOT_HERE)
