"""verify: every way in which a row or a file is bad has its code, and nothing else is said of it."""

from __future__ import annotations

import bz2
import json
import os
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.amdgpu_elf import code_object, hip_bundle
from support.kdb_files import ARGS, NAME, Columns, make, row

from kdbtool import targets
from kdbtool.codeobject import flags as amdgpu
from kdbtool.kdb.blob import md5
from kdbtool.kdb.checks import check
from kdbtool.kdb.findings import BY_CODE, Code, Severity
from kdbtool.kdb.reader import open_kdb
from kdbtool.kdb.writer import TABLE_SQL, write_kdb

GOOD = code_object()
PACKED = bz2.compress(GOOD, 9)
CLEAN = {"no-provenance"}


def codes(path: Path, archs: set[str] | None = None) -> list[str]:
    with open_kdb(path) as reader:
        return [f.code.code for f in check(reader, archs).findings if f.code.code not in CLEAN]


def test_right_rows_have_no_finding(tmp_path: Path) -> None:
    rows = [
        row(),
        row(b"naive_conv.cpp.o", b" -DA=1 -mcpu=gfx1030", hip_bundle(GOOD, "gfx1030")),
        row(b"raw.cl.o", blob=GOOD, size=0),
        row(b"mlir_gen_igemm.mlir.o", b" --operation conv2d"),
        row(b"empty_options.cl.o", b" -mcpu=gfx1030"),
    ]
    assert codes(make(tmp_path / "gfx1030.kdb", rows)) == []


ROWS: list[tuple[str, Columns, list[str]]] = [
    ("a quote in the arguments", row(args=b" -DS='a' -mcpu=gfx1030"), ["unreachable-quote"]),
    ("a quote in the name", row(name=b"it's.cl.o"), ["unreachable-quote"]),
    ("no .o", row(name=b"naive_conv.cpp"), ["unreachable-no-dot-o"]),
    ("no -mcpu", row(args=b" -DA=1"), ["unreachable-no-mcpu"]),
    ("-mcpu not at the end", row(args=b" -mcpu=gfx1030 -DA=1"), ["unreachable-no-mcpu"]),
    ("foreign -mcpu", row(args=b" -mcpu=gfx900", data=code_object("gfx900")), ["unreachable-foreign-mcpu"]),
    ("target id", row(args=b" -mcpu=gfx1030:xnack-"), ["unreachable-target-id"]),
    ("key stored as a blob", (memoryview(NAME), *row()[1:]), ["unreachable-type"]),
    ("NUL in the key", row(args="-D\0A -mcpu=gfx1030"), ["unreachable-type"]),
    ("repeated definitions", row(args=b" -DA=1 -DB=2 -DA=1 -mcpu=gfx1030"), ["repeated-defines"]),
    ("blob not bz2", row(blob=b"x" * 200), ["bad-bz2"]),
    ("blob empty", row(blob=b""), ["bad-bz2"]),
    ("bz2 cut", row(blob=PACKED[:-5]), ["bad-bz2"]),
    ("bytes after the stream", row(blob=PACKED + b"tail"), ["bz2-tail"]),
    ("object larger than said", row(size=len(GOOD) - 1), ["size-small"]),
    ("object smaller than said", row(size=len(GOOD) + 1), ["size-large"]),
    ("negative size", row(size=-1), ["bad-size"]),
    ("size of 2 TB", row(size=1 << 41), ["bad-size"]),
    ("size is text", row(size="many"), ["bad-size"]),
    ("wrong hash", row(digest="0" * 32), ["hash-wrong"]),
    ("no hash", row(digest=""), ["hash-wrong"]),
    ("hash of the compressed bytes", row(digest=md5(PACKED)), ["hash-of-compressed"]),
    ("hash in capitals", row(digest=md5(GOOD).upper()), ["hash-case"]),
    ("raw blob, size given", row(blob=GOOD, size=len(GOOD)), ["bad-bz2"]),
    ("compressed blob, size 0", row(size=0), ["hash-wrong", "not-elf"]),
    ("object empty", row(blob=b"", digest=md5(b""), size=0), ["not-elf"]),
    ("object is text", row(data=b"int main() {}" * 20), ["not-elf"]),
    ("object cut", row(data=GOOD[:-100]), ["bad-elf"]),
    ("object of gfx1100", row(data=code_object("gfx1100")), ["elf-arch"]),
    ("object of x86", row(data=code_object(machine=62)), ["elf-machine"]),
    ("object of 32 bits", row(data=code_object(elf_class=1)), ["elf-class"]),
    ("no kernel", row(data=code_object(kernels=())), ["no-kernels"]),
    ("bundle for another", row(b"a.cpp.o", data=hip_bundle(GOOD, "gfx900")), ["bundle-target"]),
    ("bundle of an OpenCL kernel", row(data=hip_bundle(GOOD, "gfx1030")), ["bundle-language"]),
    ("bomb", row(blob=bz2.compress(bytes(50_000_000)), size=1000), ["size-small"]),
]


@pytest.mark.parametrize(("bad", "expected"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS])
def test_each_bad_row_has_its_code_and_the_others_none(
    tmp_path: Path, bad: Columns, expected: list[str]
) -> None:
    path = make(tmp_path / "gfx1030.kdb", [row(b"first.cl.o"), bad, row(b"last.cl.o")])
    with open_kdb(path) as reader:
        found = [f for f in check(reader).findings if f.code.code not in CLEAN]
    assert [f.code.code for f in found] == expected
    assert {f.row for f in found} == {2}


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    path = make(tmp_path / "gfx1030.kdb", [row(blob=bz2.compress(bytes(200_000_000)), size=1 << 27)])
    assert codes(path) == ["size-small"]


FILES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("no index", {"index": None}, ["no-index"]),
    ("index on the name alone", {"index": "CREATE INDEX idx_kern_db ON kern_db(kernel_name)"}, ["no-index"]),
    ("another column", {"after": ["ALTER TABLE kern_db ADD COLUMN extra TEXT"]}, ["extra-column"]),
    ("another table", {"after": ["CREATE TABLE extra (x)"]}, ["extra-table"]),
    ("user_version", {"after": ["PRAGMA user_version=7"]}, ["user-version"]),
    ("application_id", {"after": ["PRAGMA application_id=7"]}, ["user-version"]),
    ("UTF-16", {"before": ["PRAGMA encoding='UTF-16'"]}, ["encoding"]),
    ("page size", {"before": ["PRAGMA page_size=1024"]}, ["page-size"]),
    ("WAL", {"before": ["PRAGMA journal_mode=wal"]}, ["journal=wal"]),
]


@pytest.mark.parametrize(("how", "expected"), [f[1:] for f in FILES], ids=[f[0] for f in FILES])
def test_each_bad_file_has_its_code(tmp_path: Path, how: dict[str, Any], expected: list[str]) -> None:
    assert codes(make(tmp_path / "gfx1030.kdb", **how)) == expected


def test_wal_is_how_a_user_database_lives(tmp_path: Path) -> None:
    path = make(tmp_path / "gfx1030_36.ukdb", before=["PRAGMA journal_mode=wal"])
    assert codes(path) == []


def test_a_missing_column_is_found_and_the_keys_still_judged(tmp_path: Path) -> None:
    table = (
        "CREATE TABLE kern_db (id INTEGER PRIMARY KEY, kernel_name TEXT, kernel_args TEXT, kernel_blob BLOB)"
    )
    with sqlite3.connect(tmp_path / "gfx1030.kdb") as db:
        db.execute(table)
        db.execute("INSERT INTO kern_db VALUES (1, 'a.cl.o', ' -DA=1', x'')")
    assert codes(tmp_path / "gfx1030.kdb") == ["no-column", "no-column", "no-index", "unreachable-no-mcpu"]


def test_rows_left_in_a_side_file(tmp_path: Path) -> None:
    path = make(tmp_path / "gfx1030.kdb", before=["PRAGMA journal_mode=wal"])
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA wal_autocheckpoint=0")
    writer.execute("DELETE FROM kern_db")
    writer.commit()
    assert codes(path) == ["journal=wal", "side-files"]
    writer.close()


def test_free_pages(tmp_path: Path) -> None:
    rows = [row(b"k%d.cl.o" % n) for n in range(40)]
    path = make(tmp_path / "gfx1030.kdb", rows, after=["DELETE FROM kern_db WHERE id > 1"])
    assert codes(path) == ["free-pages"]


def test_duplicate_keys_without_an_index(tmp_path: Path) -> None:
    path = make(tmp_path / "gfx1030.kdb", [row(), row(data=code_object(kernels=("other",)))], index=None)
    assert codes(path) == ["no-index", "duplicate-key"]


def test_a_twin_of_a_repaired_row(tmp_path: Path) -> None:
    rows = [row(), row(args=b" -DA=1"), row(name=b"a.cl"), row(name=b"a.cl", args=b" -DA=1")]
    found = codes(make(tmp_path / "gfx1030.kdb", rows))
    assert found.count("twin") == 2


def test_a_page_overwritten_is_malformed(tmp_path: Path) -> None:
    path = make(tmp_path / "gfx1030.kdb", [row(b"k%d.cl.o" % n) for n in range(60)])
    raw = bytearray(path.read_bytes())
    raw[3 * 4096 : 4 * 4096] = b"\xa5" * 4096
    path.write_bytes(raw)
    found = codes(path)
    assert found[0] == "malformed" and found.count("malformed") == 1


def test_an_index_that_lacks_a_row_is_malformed(tmp_path: Path) -> None:
    path = make(tmp_path / "gfx1030.kdb", [row(b"aaaa.cl.o"), row(b"bbbb.cl.o")])
    raw = path.read_bytes()
    index_page = raw.index(b"aaaa.cl.o", 2 * 4096)
    path.write_bytes(raw[:index_page] + b"zzzz" + raw[index_page + 4 :])
    assert "malformed" in codes(path)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gfx1030.kdb", []),
        ("gfx1030_36.kdb", ["shadows"]),
        ("mine.kdb", ["file-name"]),
        ("gfx1030.db", ["file-name"]),
    ],
)
def test_names(tmp_path: Path, name: str, expected: list[str]) -> None:
    assert codes(make(tmp_path / name)) == expected


def test_a_file_that_others_cannot_read(tmp_path: Path) -> None:
    path = make(tmp_path / "gfx1030.kdb")
    path.chmod(0o600)
    assert codes(path) == ["file-mode"]


def test_xnack_in_the_name_turns_the_devices_setting(tmp_path: Path) -> None:
    data = code_object("gfx90a", xnack="on", sramecc="any")
    rows = [row(args=b" -mcpu=gfx90a", data=data)]
    assert codes(make(tmp_path / "gfx90a_xnack.kdb", rows)) == ["features-explicit"]
    assert codes(make(tmp_path / "gfx90a.kdb", rows)) == ["features-foreign"]


def test_gfx906_as_miopen_itself_compiles_it(tmp_path: Path) -> None:
    data = hip_bundle(code_object("gfx906", xnack="off", sramecc="any"), "gfx906:xnack-")
    assert codes(make(tmp_path / "gfx906.kdb", [row(b"a.cpp.o", b" -mcpu=gfx906", data)])) == [
        "features-explicit"
    ]


def test_provenance_of_the_writer_and_a_row_changed_since(tmp_path: Path) -> None:
    path = tmp_path / "gfx1030.kdb"
    write_kdb(path, [(NAME, ARGS, GOOD), (b"b.cl.o", ARGS, GOOD)], {"miopen": "6.4.3"})
    with open_kdb(path) as reader:
        assert check(reader).findings == []
    with sqlite3.connect(path) as db:
        db.execute("UPDATE kern_db SET kernel_args = ' -DA=2 -mcpu=gfx1030' WHERE id = 1")
    assert codes(path) == ["bad-provenance"]


def test_arch_on_the_command_line_replaces_the_names(tmp_path: Path) -> None:
    path = make(tmp_path / "gfx1030.kdb")
    assert codes(path, {"gfx1100"}) == ["unreachable-foreign-mcpu"]
    assert codes(path, {"gfx1100", "gfx1030"}) == []


def test_amds_kdb_has_320_rows_that_nobody_asks_for(shared: Path, run_cli: Callable[..., Any]) -> None:
    done = run_cli("verify", shared / "data" / "gfx942.kdb", "--json")
    document = json.loads(done.out)["files"][0]
    assert done.code == 1 and document["rows"] == 321 and document["problems"] == 320
    problems = [f for f in document["findings"] if f["severity"] == "problem"]
    assert {f["code"] for f in problems} == {"unreachable-target-id"}
    assert {f["consequence"] for f in problems} == {"never hit"} and all(f["row"] for f in problems)


def test_a_problem_says_row_name_reason_consequence_and_next(
    tmp_path: Path, run_cli: Callable[..., Any]
) -> None:
    path = make(tmp_path / "gfx1030.kdb", [row(b"ok.cl.o"), row(digest="0" * 32)])
    done = run_cli("verify", path)
    assert done.code == 1 and done.err == ""
    for part in ("row 2 MIOpenSoftmax.cl.o", "kernel_hash is not the MD5", "throws", "next: kdbtool"):
        assert part in done.out


def test_exit_codes_over_several_files(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    good, bad = make(tmp_path / "gfx1030.kdb"), make(tmp_path / "gfx900.kdb")
    none = tmp_path / "none.kdb"
    none.write_bytes(b"")
    assert run_cli("verify", good).code == 0
    assert run_cli("verify", good, bad).code == 1
    done = run_cli("verify", none, good, bad)
    assert done.code == 2 and done.err.count("\n") == 1 and "empty file" in done.err
    assert "gfx900.kdb" in done.out
    document = json.loads(run_cli("verify", "--json", none, good).out)
    assert [f["kind"] for f in document["files"]] == ["empty", "kdb"]


def test_long_lists_are_cut_unless_verbose(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    path = make(tmp_path / "gfx1030.kdb", [row(b"k%02d.cl" % n) for n in range(30)])
    short, long = run_cli("verify", path).out, run_cli("verify", "-v", path).out
    assert "and 20 more (-v shows all)" in short and "k29.cl" not in short
    assert "k29.cl" in long
    assert "no-provenance" in short and "no-provenance" not in run_cli("verify", "-q", path).out


def test_names_that_would_break_a_line_are_escaped(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    path = make(tmp_path / "gfx1030.kdb", [row(b"a\n\x1b[31m.cl")])
    out = run_cli("verify", path).out
    assert "\x1b" not in out and r"a\n\x1b[31m.cl" in out


def test_info_counts(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    block = b" -DMIOPEN_USE_FP16=0 -DMIOPEN_USE_INT8=0"
    hip = hip_bundle(GOOD, "gfx1030")
    rows = [
        row(b"naive_conv.cpp.o", block + b" -mcpu=gfx1030", hip),
        row(b"naive_conv.cpp.o", block * 2 + b" -mcpu=gfx1030", hip),
        row(),
    ]
    path = make(tmp_path / "gfx1030_36.kdb", rows)
    document = json.loads(run_cli("info", "--json", path).out)["files"][0]
    assert document["name"] == {"arch": "gfx1030", "cu": 36, "unit": "WGP", "xnack": False}
    assert (document["rows"], document["objects"]) == (3, 2)
    assert document["languages"] == {"hip": 2, "opencl": 1}
    assert document["containers"] == {"bundle": 1, "elf": 1}
    assert document["object_bytes"] == len(GOOD) + len(hip)
    assert (document["doubled_rows"], document["doubled_pairs"]) == (1, 1)
    assert document["sources"][0]["name"] == "naive_conv.cpp" and document["sources"][0]["objects"] == 1
    text = run_cli("info", path).out
    for part in ("gfx1030, 36 WGP", "3, 2 distinct objects", "naive_conv.cpp", "v5 2", "journal:"):
        assert part in text


def test_info_says_what_else_a_file_is(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    (tmp_path / "x.kdb").write_bytes(b"\x7fELF" + bytes(600))
    done = run_cli("info", tmp_path / "x.kdb")
    assert done.code == 2 and "an ELF file" in done.err and done.err.count("\n") == 1


def test_reading_a_wal_file_where_only_immutable_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "gfx1030.kdb", before=["PRAGMA journal_mode=wal"])
    monkeypatch.setattr(os, "access", lambda *_: False)
    with open_kdb(path) as reader:
        found = {f.code.code: f.detail for f in check(reader).findings}
    assert "immutable=1" in found["journal=wal"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["gfx1030.kdb"]


def test_the_documented_table_is_the_closed_list() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "kdb-format.md").read_text()
    rows = re.findall(r"^\| `([^`]+)` \| (problem|note) \| ([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)
    assert [(r[0], r[1], r[2].strip(), r[3].strip()) for r in rows] == [
        (c.code, c.severity.value, c.consequence.value, c.reason) for c in Code
    ]


def test_codes_are_unique_and_problems_are_never_harmless() -> None:
    assert len(BY_CODE) == len(Code)
    for code in Code:
        if code.severity is Severity.PROBLEM:
            assert code.consequence.value != "harmless", code.code


def test_architecture_data_agrees_with_the_elf_flags() -> None:
    for arch in targets.known():
        target = targets.load(arch)
        assert amdgpu.MACH[target.elf_mach] == arch
        assert ("xnack" in target.features) == (arch in amdgpu.XNACK_ARCHS), arch
        assert ("sramecc" in target.features) == (arch in amdgpu.SRAMECC_ARCHS), arch


def test_the_table_text_is_miopens() -> None:
    assert TABLE_SQL.startswith(
        "CREATE TABLE `kern_db` (`id` INTEGER PRIMARY KEY ASC,`kernel_name` TEXT NOT NULL"
    )
