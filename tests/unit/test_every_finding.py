"""Every code of verify's closed list is found in an input that is bad exactly that way, and in no other.

One entry for each code: what makes a right database bad. The right one has no finding at all under the
same comparison, so each entry shows both sides.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.amdgpu_elf import bundle, code_object, hip_bundle, metadata
from support.kdb_files import ARGS, NAME, Columns, make, row

from kdbtool.cli import COMMANDS
from kdbtool.kdb.against import AgainstKdb, AgainstManifest, of_sources
from kdbtool.kdb.blob import md5, pack
from kdbtool.kdb.checks import Report, check
from kdbtool.kdb.findings import BY_CODE, Code
from kdbtool.kdb.provenance import source_records
from kdbtool.kdb.reader import open_kdb
from kdbtool.kdb.writer import write_kdb
from kdbtool.manifest import Hashes, Key, Manifest
from kdbtool.manifest.model import Note
from kdbtool.miopen.entrypoints import Entries
from kdbtool.miopen.sources import SourceSet
from kdbtool.miopen.versions import resolve

SOURCE = "MIOpenSoftmax.cl"
SOURCES = SourceSet({SOURCE: b"__kernel void k(__global float* x) { }\n"}, {}, "here")
CHANGED = SourceSet({SOURCE: b"__kernel void k(__global int* x) { }\n"}, {}, "there")
GOOD = code_object()
SECOND = b"MIOpenSoftmax.cl.o", b" -DA=2 -mcpu=gfx1030"
RIGHT = [(NAME, ARGS, GOOD), (*SECOND, GOOD)]
RECORD = {"miopen": "6.4.3"} | source_records({SOURCE: SOURCES.hash_of(SOURCE)})


def right(folder: Path, rows: list[tuple[bytes, bytes, bytes]] = RIGHT, **record: str) -> Path:
    """A right database; `record` over its provenance."""
    path = folder / "gfx1030.kdb"
    write_kdb(path, rows, RECORD | record)
    return path


def by_hand(folder: Path, *bad: Columns, **how: Any) -> Path:
    """A database with a right row and bad ones, without provenance."""
    how.setdefault("after", [])
    how["after"] = [
        *how["after"],
        "CREATE TABLE kdbtool_provenance (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        *(f"INSERT INTO kdbtool_provenance VALUES ('{k}', '{v}')" for k, v in RECORD.items()),
    ]
    return make(folder / "gfx1030.kdb", [row(), *bad], **how)


def bad_row(*columns: Columns, **how: Any) -> Callable[[Path], Path]:
    return lambda folder: by_hand(folder, *columns, **how)


def bad_object(
    data: bytes, arch: str = "gfx1030", name: bytes = b"MIOpenSoftmax.cl.o"
) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / f"{arch}.kdb"
        write_kdb(path, [(name, f" -DA=2 -mcpu={arch}".encode(), data)], {**RECORD})
        return path

    return write


def changed(*statements: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = right(folder)
        with sqlite3.connect(path) as db:
            for statement in statements:
                db.execute(statement)
        db.close()
        return path

    return write


def renamed(name: str) -> Callable[[Path], Path]:
    return lambda folder: right(folder).rename(folder / name)


def overwritten(folder: Path, page: Callable[[bytes], int]) -> Path:
    """A database of many rows with one page overwritten."""
    rows = [(NAME, b" -DA=%d -mcpu=gfx1030" % n, code_object(kernels=("k", f"k{n}"))) for n in range(200)]
    path = right(folder, rows)
    raw = bytearray(path.read_bytes())
    at = page(bytes(raw)) // 4096 * 4096
    raw[at : at + 4096] = b"\xa5" * 4096
    path.write_bytes(raw)
    return path


def index_page(raw: bytes) -> int:
    """An offset in the index: there a key follows no blob, near the end of the file."""
    return raw.rindex(b" -DA=150 -mcpu=gfx1030")


def table_page(raw: bytes) -> int:
    return raw.index(b" -DA=150 -mcpu=gfx1030")


def not_for_others(folder: Path) -> Path:
    path = right(folder)
    path.chmod(0o600)
    return path


def with_side_file(folder: Path) -> Path:
    path = right(folder)
    (folder / "gfx1030.kdb-journal").write_bytes(b"\0" * 512)  # one that SQLite takes for a finished one
    return path


def no_provenance(folder: Path) -> Path:
    return make(folder / "gfx1030.kdb", [row()])


HIP = b"a.cpp.o"
FILES: dict[Code, Callable[[Path], Path]] = {
    Code.MALFORMED: lambda folder: overwritten(folder, index_page),
    Code.UNREADABLE: lambda folder: overwritten(folder, table_page),
    Code.JOURNAL: changed("PRAGMA journal_mode=wal"),
    Code.SIDE_FILES: with_side_file,
    Code.NO_COLUMN: changed("ALTER TABLE kern_db DROP COLUMN uncompressed_size"),
    Code.NO_INDEX: changed("DROP INDEX idx_kern_db", "VACUUM"),
    Code.DUPLICATE_KEY: bad_row(row(data=code_object(kernels=("other",))), index=None),
    Code.EXTRA_COLUMN: changed("ALTER TABLE kern_db ADD COLUMN extra TEXT"),
    Code.EXTRA_TABLE: changed("CREATE TABLE extra (x)"),
    Code.USER_VERSION: changed("PRAGMA user_version=7"),
    Code.ENCODING: bad_row(before=["PRAGMA encoding='UTF-16'"]),
    Code.PAGE_SIZE: changed("PRAGMA page_size=1024", "VACUUM"),
    Code.FREE_PAGES: changed(
        "CREATE TABLE gone (x)", "INSERT INTO gone VALUES (zeroblob(90000))", "DROP TABLE gone"
    ),
    Code.FILE_NAME: renamed("mine.kdb"),
    Code.SHADOWS: renamed("gfx1030_36.kdb"),
    Code.FILE_MODE: not_for_others,
    Code.NO_PROVENANCE: no_provenance,
    Code.BAD_PROVENANCE: changed("UPDATE kern_db SET kernel_args = ' -DA=3 -mcpu=gfx1030' WHERE id = 1"),
    Code.QUOTE: bad_row(row(args=b" -DS='a' -mcpu=gfx1030")),
    Code.NOT_TEXT: bad_row((memoryview(NAME), *row(args=SECOND[1])[1:])),
    Code.NO_DOT_O: bad_row(row(name=b"naive_conv.cpp")),
    Code.NO_MCPU: bad_row(row(args=b" -DA=2")),
    Code.FOREIGN_MCPU: bad_row(row(args=b" -mcpu=gfx900", data=code_object("gfx900"))),
    Code.TARGET_ID: bad_row(row(args=b" -DA=2 -mcpu=gfx1030:xnack-")),
    Code.NO_SOURCE: right,
    Code.EPOCH: right,
    Code.TWIN: bad_row(row(args=ARGS.replace(b"gfx1030", b"gfx1030:xnack-"))),
    Code.REPEATED_DEFINES: bad_row(row(args=b" -DA=1 -DA=1 -mcpu=gfx1030")),
    Code.OTHER_MIOPEN: right,
    Code.STALE: right,
    Code.UNPROVED: right,
    Code.MISSING_ROW: right,
    Code.EXTRA_ROW: right,
    Code.OTHER_CODE: right,
    Code.OTHER_BYTES: right,
    Code.BAD_BZ2: bad_row(row(args=SECOND[1], blob=pack(GOOD).blob[:-5])),
    Code.BZ2_TAIL: bad_row(row(args=SECOND[1], blob=pack(GOOD).blob + b"tail")),
    Code.SIZE_SMALL: bad_row(row(args=SECOND[1], size=len(GOOD) - 1)),
    Code.SIZE_LARGE: bad_row(row(args=SECOND[1], size=len(GOOD) + 1)),
    Code.BAD_SIZE: bad_row(row(args=SECOND[1], size=-1)),
    Code.HASH_WRONG: bad_row(row(args=SECOND[1], digest="0" * 32)),
    Code.HASH_OF_COMPRESSED: bad_row(row(args=SECOND[1], digest=md5(pack(GOOD).blob))),
    Code.HASH_CASE: bad_row(row(args=SECOND[1], digest=md5(GOOD).upper())),
    Code.NOT_ELF: bad_object(b"int main() {}" * 20),
    Code.BAD_ELF: bad_object(GOOD[:-100]),
    Code.BAD_BUNDLE: bad_object(bundle(("host-x86_64-unknown-linux-gnu-", b"")), name=HIP),
    Code.BUNDLE_TARGET: bad_object(hip_bundle(GOOD, "gfx1031"), name=HIP),
    Code.BUNDLE_LANGUAGE: bad_object(hip_bundle(GOOD, "gfx1030")),
    Code.ELF_CLASS: bad_object(code_object(elf_class=1)),
    Code.ELF_MACHINE: bad_object(code_object(machine=62)),
    Code.ELF_ARCH: bad_object(code_object("gfx1100")),
    Code.GENERIC_ARCH: bad_object(code_object(e_flags=0x53, meta=metadata("gfx10-3-generic", ("k",)))),
    Code.FEATURES_FOREIGN: bad_object(code_object("gfx906", xnack="on", sramecc="any"), "gfx906"),
    Code.FEATURES_EXPLICIT: bad_object(code_object("gfx906", xnack="off", sramecc="any"), "gfx906"),
    Code.OBJECT_VERSION: bad_object(code_object(abi=5)),
    Code.OBJECT_OLD: bad_object(code_object(abi=1)),
    Code.BAD_METADATA: bad_object(code_object(meta=b"\xa3abc")),
    Code.NO_METADATA: bad_object(code_object(no_meta=True)),
    Code.TARGET_DISAGREES: bad_object(code_object(meta=metadata("gfx1031", ("k",)))),
    Code.NO_KERNELS: bad_object(code_object(kernels=())),
    Code.KERNEL_NO_METADATA: bad_object(code_object(meta=metadata("gfx1030", ()))),
    Code.METADATA_NO_KERNEL: bad_object(code_object(meta=metadata("gfx1030", ("k", "l")))),
    Code.SYMBOL_MISSING: bad_object(code_object(kernels=("l",))),
    Code.SYMBOL_EXTRA: bad_object(code_object(kernels=("k", "l"))),
    Code.BAD_DESCRIPTOR: bad_object(code_object(descriptor_address=1 << 40)),
}
# What the same damage is besides.
ALSO: dict[Code, set[Code]] = {
    Code.UNREADABLE: {Code.MALFORMED},
    Code.DUPLICATE_KEY: {Code.NO_INDEX},
    Code.TWIN: {Code.TARGET_ID},
    Code.SYMBOL_MISSING: {Code.SYMBOL_EXTRA},
}
BY_HAND = {Code.NO_PROVENANCE, Code.BAD_PROVENANCE}


def manifest(*args: bytes) -> Manifest:
    hashes = {SOURCE: Hashes(*SOURCES.hash_of(SOURCE))}
    return Manifest(miopen="6.4.3", keys={Key(NAME, a, "gfx1030"): Note() for a in args}, hashes=hashes)


def compared(code: Code, folder: Path, *, good: bool) -> dict[str, Any]:
    """The comparison that the code belongs to; with `good` the same one, but passed."""
    other = folder / "other"
    if code is Code.NO_SOURCE:
        build = resolve("6.4.3")
        return {"build": build if good else replace(build, kernels=frozenset({"naive_conv.cpp"}))}
    if code is Code.OTHER_MIOPEN:
        return {"against": [of_sources("6.4.3" if good else "6.2.4", None)]}
    if code is Code.STALE:
        return {"against": [of_sources("6.4.3", SOURCES if good else CHANGED)]}
    if code is Code.UNPROVED:
        unnamed = manifest(ARGS, SECOND[1])
        return {"against": [AgainstManifest(unnamed, {"gfx1030"})]}
    if code is Code.MISSING_ROW:
        return {
            "against": [
                AgainstManifest(manifest(ARGS, SECOND[1], *([] if good else [b" -mcpu=gfx1030"])), None)
            ]
        }
    if code is Code.EXTRA_ROW:
        return {"against": [AgainstManifest(manifest(ARGS, *([SECOND[1]] if good else [])), None)]}
    if code in (Code.OTHER_CODE, Code.OTHER_BYTES):
        other.mkdir(exist_ok=True)
        data = GOOD
        if not good:
            data = code_object(text=b"\x00\x00\x80\xbf" * 4) if code is Code.OTHER_CODE else GOOD + b"\0" * 64
        path = other / "gfx1030.kdb"
        write_kdb(path, [(NAME, ARGS, data), (*SECOND, GOOD)], RECORD, force=True)
        return {"against": [AgainstKdb(open_kdb(path))]}
    if code in (Code.SYMBOL_MISSING, Code.SYMBOL_EXTRA):
        return {"entries": Entries(SOURCES)}
    return {}


def found_codes(report: Report, code: Code) -> set[Code]:
    codes = {f.code for f in report.findings}
    # Rows made by hand are not those that the provenance counts.
    return codes if code in BY_HAND else codes - {Code.BAD_PROVENANCE}


@pytest.mark.parametrize("code", list(FILES), ids=lambda c: c.code)
def test_found_in_what_is_bad_that_way_and_only_there(code: Code, tmp_path: Path) -> None:
    path = FILES[code](tmp_path)
    how = compared(code, tmp_path, good=False)
    if code is Code.EPOCH:
        path.unlink()
        full = b" -DMIOPEN_USE_FP16=0 -DMIOPEN_USE_FP32=1 -DMIOPEN_USE_INT8=0 -mcpu=gfx1030"
        path, how = right(tmp_path, [(NAME, full, GOOD)]), {"build": resolve("6.4.3")}
    if code is Code.UNPROVED:
        path.unlink()
        write_kdb(path, RIGHT, {"miopen": "6.4.3"})
    with open_kdb(path) as reader:
        report = check(reader, **how)
    assert found_codes(report, code) == {code} | ALSO.get(code, set())
    (first, *_) = [f for f in report.findings if f.code is code]
    assert code.next_command(path) and first.json(path)["consequence"] == code.consequence.value


@pytest.mark.parametrize("code", [c for c in FILES if FILES[c] is right], ids=lambda c: c.code)
def test_the_same_comparison_passes_where_it_is_right(code: Code, tmp_path: Path) -> None:
    with open_kdb(right(tmp_path)) as reader:
        assert check(reader, **compared(code, tmp_path, good=True)).findings == []


def test_a_right_database_has_no_finding(tmp_path: Path) -> None:
    build = resolve("6.4.3")
    against = [of_sources("6.4.3", SOURCES), AgainstManifest(manifest(ARGS, SECOND[1]), None)]
    with open_kdb(right(tmp_path)) as reader:
        report = check(reader, build=build, entries=Entries(SOURCES), against=against)
    assert report.findings == [] and (report.told, report.untold) == (2, 0)
    (tmp_path / "by-hand").mkdir()
    with open_kdb(by_hand(tmp_path / "by-hand")) as reader:
        assert {f.code for f in check(reader).findings} == {Code.BAD_PROVENANCE}


def test_every_next_command_is_one_that_exists() -> None:
    for code in Code:
        text = code.next_command("a file.kdb", "6.4.3")
        assert "{" not in text and "VERSION" not in text
        assert set(re.findall(r"kdbtool (\w+)", text)) <= set(COMMANDS), text


def test_the_closed_list_is_covered_both_ways() -> None:
    assert set(FILES) == set(Code) == set(BY_CODE.values())
