"""verify judged against a MIOpen, a manifest, another database, whatever the jobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.amdgpu_elf import code_object
from support.kdb_files import NAME, make, row
from support.rebuild_bench import GOOD, Bench, bench
from support.rebuilding import manifest_file

from kdbtool.kdb import decode
from kdbtool.kdb.checks import check
from kdbtool.kdb.provenance import differs, same_release, source_hashes, source_records
from kdbtool.kdb.reader import open_kdb
from kdbtool.kdb.writer import write_kdb
from kdbtool.miopen.sources import from_directory

__all__ = ["bench"]  # a fixture


def document(run_cli: Callable[..., Any], *arguments: object) -> dict[str, Any]:
    done = run_cli("verify", *arguments, "--json")
    found: dict[str, Any] = json.loads(done.out)["files"][0]
    # What the fake compiler's object is besides.
    found["findings"] = [f for f in found["findings"] if f["code"] != "features-explicit"]
    return found | {"code": done.code, "codes": sorted({f["code"] for f in found["findings"]})}


def test_amds_kdb_against_6_2_2(shared: Path, run_cli: Callable[..., Any]) -> None:
    """The issue's show: 320 rows that this MIOpen can never ask for."""
    found = document(run_cli, shared / "data" / "gfx942.kdb", "--miopen", "6.2.2")
    assert found["unreachable"] == {"rows": 320, "by_reason": {"unreachable-target-id": 320}}
    assert found["miopen"].startswith("MIOpen 3.2.0 of ROCm 6.2.2")
    text = run_cli("verify", shared / "data" / "gfx942.kdb", "--miopen", "6.2.2").out
    assert "320 rows that MIOpen can never ask for, by first reason: 320 unreachable-target-id" in text


def test_rows_are_counted_once_by_their_first_reason(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    rows = [
        row(),
        row(b"gone.cl", b" -DA=1 -mcpu=gfx900:xnack-"),
        row(b"gone.cl.o"),
        row(args=b" -DMIOPEN_USE_FP16=0 -DMIOPEN_USE_INT8=0 -mcpu=gfx1030"),
    ]
    found = document(run_cli, make(tmp_path / "gfx1030.kdb", rows), "--miopen", "6.4.3")
    assert found["unreachable"] == {
        "rows": 3,
        "by_reason": {"unreachable-no-dot-o": 1, "unreachable-no-source": 1, "unreachable-epoch": 1},
    }
    assert document(run_cli, tmp_path / "gfx1030.kdb")["unreachable"]["rows"] == 1


def test_a_rebuilt_row_says_its_source_and_is_stale_when_that_changes(
    bench: Bench, run_cli: Callable[..., Any]
) -> None:
    """Rows of one changed source are stale, those of another are not (law 2, reference A.9)."""
    other = type(GOOD)(b"other.cl.o", GOOD.args, GOOD.arch)
    assert bench.rebuild([GOOD, other]).code == 0
    kdb = bench.output.rename(bench.output.with_name("gfx942.kdb"))
    assert document(run_cli, kdb, "--sources", bench.sources)["code"] == 0
    (bench.sources / "kernel.cl").write_text("// another text\n")
    found = document(run_cli, kdb, "--sources", bench.sources)
    stale = [(f["name"], f["detail"]) for f in found["findings"] if f["code"] == "stale"]
    assert found["code"] == 1 and stale == [("kernel.cl.o", "text of kernel.cl")]
    assert found["findings"][-1]["consequence"] == "wrong code"


def test_a_changed_header_makes_its_rows_stale(bench: Bench, run_cli: Callable[..., Any]) -> None:
    assert bench.rebuild([GOOD]).code == 0
    (bench.sources / "shared.h").write_text("#define ONE 2\n")
    found = document(run_cli, bench.output, "--sources", bench.sources)
    # The text of an OpenCL kernel has its headers in it, as MIOpen embeds it.
    assert [f["detail"] for f in found["findings"] if f["code"] == "stale"] == ["text of kernel.cl"]


def test_an_older_provenance_names_the_whole_set_alone(bench: Bench, run_cli: Callable[..., Any]) -> None:
    sources = from_directory(bench.sources)
    record = {"miopen": "6.4.3", "sources": f"sha256:{sources.set_hash}"}
    path = bench.folder / "gfx942.kdb"
    data = code_object("gfx942", xnack="any", sramecc="any")
    write_kdb(path, [(GOOD.name, GOOD.args, data)], record)
    assert document(run_cli, path, "--sources", bench.sources)["codes"] == []
    (bench.sources / "other.cl").write_text("// another text\n")
    assert document(run_cli, path, "--sources", bench.sources)["codes"] == ["stale"]


def test_against_a_manifest(bench: Bench, run_cli: Callable[..., Any]) -> None:
    more = type(GOOD)(GOOD.name, GOOD.args.replace(b"-DA=1", b"-DA=2"), GOOD.arch)
    foreign = type(GOOD)(GOOD.name, b" -DA=2 -mcpu=gfx900", "gfx900")
    assert bench.rebuild([GOOD, more]).code == 0
    kdb = bench.output.rename(bench.output.with_name("gfx942.kdb"))
    same = manifest_file(bench.folder / "same.kdbmanifest", [GOOD, more, foreign], bench.sources)
    assert document(run_cli, kdb, "--against", same)["codes"] == []
    fewer = manifest_file(bench.folder / "fewer.kdbmanifest", [GOOD], bench.sources)
    found = document(run_cli, kdb, "--against", fewer)
    assert (found["code"], found["codes"]) == (0, ["extra-row"])
    extra = type(GOOD)(GOOD.name, GOOD.args.replace(b"-DA=1", b"-DA=3"), GOOD.arch)
    wider = manifest_file(bench.folder / "wider.kdbmanifest", [GOOD, more, extra], bench.sources)
    found = document(run_cli, kdb, "--against", wider)
    (missing,) = found["findings"]
    assert found["code"] == 1 and missing["code"] == "missing-row" and missing["row"] is None
    assert missing["name"] == "kernel.cl.o" and "-DA=3" in missing["detail"]
    assert "kernel.cl.o:" in run_cli("verify", kdb, "--against", wider).out
    (bench.sources / "kernel.cl").write_text("// another text\n")
    newer = manifest_file(bench.folder / "newer.kdbmanifest", [GOOD, more], bench.sources, miopen="6.2.2")
    assert document(run_cli, kdb, "--against", newer)["codes"] == ["other-miopen", "stale"]


def test_against_another_database(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    rows = [(NAME, b" -DA=%d -mcpu=gfx1030" % n, code_object()) for n in range(4)]
    write_kdb(one / "gfx1030.kdb", rows[:3], {})
    changed = [
        rows[0],
        (*rows[1][:2], code_object() + b"\0" * 32),
        (*rows[2][:2], code_object(text=b"\x00\x00\x80\xbf" * 4)),
        rows[3],
    ]
    write_kdb(two / "gfx1030.kdb", changed, {})
    found = document(run_cli, one / "gfx1030.kdb", "--against", two / "gfx1030.kdb")
    assert [(f["code"], f["row"], f["severity"]) for f in found["findings"]] == [
        ("other-bytes", 2, "note"),
        ("other-code", 3, "problem"),
        ("missing-row", None, "problem"),
    ]
    found = document(run_cli, two / "gfx1030.kdb", "--against", one / "gfx1030.kdb")
    assert [(f["code"], f["row"]) for f in found["findings"]][-1] == ("extra-row", 4)
    assert document(run_cli, one / "gfx1030.kdb", "--against", one / "gfx1030.kdb")["code"] == 0


@pytest.mark.parametrize("content", [b"", b"hello" * 200, b"\x7fELF" + bytes(600)])
def test_against_what_is_none_of_them(content: bytes, tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    other = tmp_path / "other"
    other.write_bytes(content)
    done = run_cli("verify", make(tmp_path / "gfx1030.kdb"), "--against", other)
    assert done.code == 2 and done.err.count("\n") == 1 and "other" in done.err
    done = run_cli("verify", make(tmp_path / "x.kdb"), "--against", tmp_path / "absent")
    assert done.code == 2 and "no such file" in done.err


def test_a_twin_says_whose(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    rows = [row(), row(args=b" -DA=1"), row(name=b"a.cl"), row(name=b"a.cl", args=b" -DA=1")]
    found = document(run_cli, make(tmp_path / "gfx1030.kdb", rows))
    twins = [(f["row"], f["detail"]) for f in found["findings"] if f["code"] == "twin"]
    assert twins == [(2, "of row 1"), (4, "of row 3, once that is repaired")]


def test_rows_behind_a_damaged_page_are_read(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    rows = [(NAME, b" -DA=%03d -mcpu=gfx1030" % n, code_object(kernels=(f"k{n}",))) for n in range(200)]
    path = tmp_path / "gfx1030.kdb"
    write_kdb(path, rows, {})
    raw = bytearray(path.read_bytes())
    at = raw.index(b" -DA=100 -mcpu") // 4096 * 4096
    raw[at : at + 4096] = b"\xa5" * 4096
    path.write_bytes(raw)
    found = document(run_cli, path)
    (lost,) = [f for f in found["findings"] if f["code"] == "unreadable-rows"]
    first, last = (int(part.split()[-1]) for part in lost["detail"].partition(":")[0].split(" to "))
    assert first <= 101 <= last and found["rows"] == 200 - (last - first + 1) > 150
    malformed = next(f for f in found["findings"] if f["code"] == "malformed")
    assert malformed["detail"].startswith(f"page {at // 4096 + 1}:")


def test_the_answer_does_not_depend_on_the_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        row(args=b" -DA=%d -mcpu=gfx1030" % n, data=code_object(kernels=(f"k{n // 2}",))) for n in range(60)
    ]
    rows[7] = row(args=b" -DA=7 -mcpu=gfx1030", digest="0" * 32)
    rows[8] = row(args=b" -DA=8 -mcpu=gfx1030", data=code_object("gfx1100"))
    rows[30] = row(args=b" -DA=30 -mcpu=gfx1030:xnack-")
    path = make(tmp_path / "gfx1030.kdb", rows)
    monkeypatch.setattr("kdbtool.kdb.checks.WORTH", 1)
    with open_kdb(path) as reader:
        one, three = (check(reader, jobs=jobs) for jobs in (1, 3))
    assert one.findings == three.findings and len(one.findings) == 4
    assert one.stats.json() == three.stats.json()
    assert decode.WORTH > 1


def test_the_records_of_sources() -> None:
    hashes = {"a.cl": ("1" * 64, "2" * 64)}
    assert source_hashes(source_records(hashes) | {"miopen": "6.4.3", "source b.cl": "sha256:x"}) == hashes
    assert differs(("a", "b"), ("a", "b")) is None and differs(("a", "b"), ("a", "c")) == "headers"
    assert same_release("6.4", "6.4.3") and not same_release("6.4.2", "6.4.3")
