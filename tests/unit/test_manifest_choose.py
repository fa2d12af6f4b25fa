"""`kdbtool manifest`: every row is kept, or goes with a reason that is counted."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kdbtool.manifest import Key, Manifest, parse_manifest, read_manifest, write_manifest
from kdbtool.manifest.choose import Choice, choose
from kdbtool.manifest.collect import Collected
from kdbtool.manifest.model import Note
from kdbtool.miopen.versions import resolve
from kdbtool.reasons import Reason

CPU = b" -mcpu=gfx1030"
CAT = Key(b"MIOpenCat.cpp.o", CPU, "gfx1030")
ASM = Key(b"conv3x3.s.o", b"-Wa,-defsym,x=1" + CPU, "gfx1030")


def kdb(path: Path, rows: list[tuple[str, str]]) -> Path:
    db = sqlite3.connect(path)
    db.executescript(
        "CREATE TABLE kern_db(id INTEGER PRIMARY KEY ASC, kernel_name TEXT NOT NULL,"
        " kernel_args TEXT NOT NULL, kernel_blob BLOB NOT NULL,"
        " kernel_hash TEXT NOT NULL, uncompressed_size INT NOT NULL);"
        "CREATE UNIQUE INDEX idx_kern_db ON kern_db(kernel_name, kernel_args);"
    )
    db.executemany(
        "INSERT INTO kern_db(kernel_name, kernel_args, kernel_blob, kernel_hash, uncompressed_size)"
        " VALUES (?, ?, x'00', '', 0)",
        rows,
    )
    db.commit()
    db.close()
    return path


def collected(*keys: Key, missed: bool = False) -> Collected:
    out = Collected()
    for key in keys:
        out.add(key, missed=missed)
    return out


def test_a_missed_key_without_a_source_is_unbuilt_and_not_dead() -> None:
    kept, report = choose(collected(CAT, ASM, missed=True), Choice(resolve("6.4.3"), drop_dead=True))
    assert {key.name: key.state for key in kept} == {CAT.name: "build", ASM.name: "asked-unbuilt"}
    assert (report.kept, report.unbuilt, report.dropped) == (1, 1, 0)


def test_a_key_that_was_found_once_is_to_be_built() -> None:
    both = collected(ASM, missed=True)
    both.add(ASM, missed=False)
    kept, report = choose(both, Choice(resolve("6.4.3")))
    assert [key.state for key in kept] == ["build"]
    assert (report.read, report.distinct) == (2, 1)


def test_a_missed_assembly_key_of_an_upstream_build_is_to_be_built() -> None:
    kept, _ = choose(collected(ASM, missed=True), Choice(resolve("6.2.2")))
    assert [key.state for key in kept] == ["build"]


def test_drop_asm_takes_unbuilt_ones_too() -> None:
    kept, report = choose(collected(CAT, ASM, missed=True), Choice(resolve("6.4.3"), drop_asm=True))
    assert [key.name for key in kept] == [CAT.name]
    assert report.counted == {Reason.ASM: 1}


def test_repaired_rows_never_fall_onto_one_that_is_there() -> None:
    raw = Key(b"MIOpenCat.cpp", b"", "gfx1030")
    tagged = Key(CAT.name, b" -mcpu=gfx1030:xnack-", "gfx1030")
    for keys in ((CAT, raw, tagged), (tagged, raw, CAT)):
        kept, report = choose(collected(*keys), Choice(resolve("6.4.3"), drop_dead=True, repair=True))
        assert list(kept) == [CAT]
        assert report.repaired == {}
        assert report.counted == {Reason.NO_DOT_O: 1, Reason.TARGET_ID: 1}
        assert report.carried[Reason.TWIN] == 2
    kept, report = choose(collected(raw, tagged), Choice(resolve("6.4.3"), drop_dead=True, repair=True))
    assert list(kept) == [CAT]
    assert (report.repaired.total(), report.carried[Reason.TWIN], report.dropped) == (1, 1, 1)


def test_a_row_that_repair_does_not_make_live_goes_with_all_its_reasons() -> None:
    row = Key(b"absent.cpp.o", b" -mcpu=gfx1030:xnack-", "gfx1030")
    kept, report = choose(collected(row), Choice(resolve("6.4.3"), drop_dead=True, repair=True))
    assert not kept and not report.repaired
    assert report.carried == {Reason.TARGET_ID: 1, Reason.NO_SOURCE: 1}


def test_the_account_adds_up(shared: Path, run_cli: Callable[..., Any], tmp_path: Path) -> None:
    source = shared / "data" / "gfx942.kdb"
    out = tmp_path / "m.txt"
    want = {
        ("6.2.2", ""): (1, 320, 0, {"target-id": (320, 320)}),
        ("6.2.2", "--repair"): (321, 0, 320, {}),
        ("6.4.3", ""): (1, 320, 0, {"target-id": (320, 320), "no-source": (0, 320)}),
        ("6.4.3", "--repair"): (1, 320, 0, {"target-id": (320, 320), "no-source": (0, 320)}),
    }
    for (version, flag), (kept, dropped, repaired, reasons) in want.items():
        extra = [flag] if flag else []
        ended = run_cli(
            "manifest", source, "--miopen", version, "--drop", "dead", *extra, "--json", "--force", "-o", out
        )
        assert ended.code == 0 and ended.err == ""
        report = json.loads(ended.out)
        assert (report["rows"], report["kept"], report["dropped"]) == (321, kept, dropped)
        assert report["repaired"]["rows"] == repaired
        assert {k: (v["counted"], v["carried"]) for k, v in report["reasons"].items()} == reasons
        assert len(read_manifest(out).keys) == kept


def test_the_text_is_the_same_however_it_came(
    shared: Path, run_cli: Callable[..., Any], tmp_path: Path
) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    assert run_cli("manifest", shared / "data" / "gfx942.kdb", "-o", first).code == 0
    assert run_cli("manifest", first, first, "-o", second, "-q") == (0, "", "")
    assert second.read_bytes() == first.read_bytes()
    shown = run_cli("manifest", first, "-q")
    assert shown.out.encode() == first.read_bytes()


def test_an_output_that_exists_needs_force(shared: Path, run_cli: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "m"
    out.write_text("mine")
    ended = run_cli("manifest", shared / "data" / "gfx942.kdb", "-o", out)
    assert ended.code == 2 and "output exists" in ended.err and out.read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["m"]
    assert run_cli("manifest", shared / "data" / "gfx942.kdb", "-o", out, "--force", "-q").code == 0


def test_arch_and_kernel_choose_rows(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    rows = [("a.cpp.o", " -mcpu=gfx1030"), ("a.cpp.o", " -mcpu=gfx906"), ("b.cpp.o", " -mcpu=gfx1030")]
    source = kdb(tmp_path / "any.kdb", rows)  # no arch in its name: each row's -mcpu says it
    ended = run_cli("manifest", source, "--arch", "gfx1030:36", "--kernel", "^a")
    assert [k.args for k in parse_manifest(ended.out.encode(), "m").keys] == [b" -mcpu=gfx1030"]
    assert "2 out: filter" in ended.err
    for bad in ("gfx1030:x", "gfx90a:xnack-", "volta", ""):
        ended = run_cli("manifest", source, f"--arch={bad}")
        assert ended.code == 2 and "not an architecture" in ended.err
    assert run_cli("manifest", source, "--kernel", "(").code == 2


def test_an_input_without_rows_is_an_empty_manifest(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    ended = run_cli("manifest", kdb(tmp_path / "gfx1030.kdb", []))
    assert ended.code == 0 and "the manifest is empty" in ended.err
    assert not parse_manifest(ended.out.encode(), "m").keys


def written(path: Path, manifest: Manifest) -> Path:
    path.write_bytes(write_manifest(manifest))
    return path


def test_manifests_for_different_miopens_do_not_merge_unasked(
    run_cli: Callable[..., Any], tmp_path: Path
) -> None:
    one = written(tmp_path / "1", Manifest(miopen="6.4.3", keys={CAT: Note()}))
    two = written(tmp_path / "2", Manifest(miopen="6.2.2", keys={CAT: Note()}))
    ended = run_cli("manifest", one, two)
    said = f"different MIOpen versions: MIOpen: {one} line 2: 6.4.3; {two} line 2: 6.2.2; "
    assert ended.code == 2 and said in ended.err and ended.err.count("\n") == 1
    assert run_cli("manifest", one, two, "--miopen", "6.4.3").code == 0


def test_hashes_come_from_the_sources_given(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    source = written(tmp_path / "m", Manifest(keys={CAT: Note(), ASM: Note()}))
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "MIOpenCat.cpp").write_text("x")
    ended = run_cli("manifest", source, "--sources", folder)
    back = parse_manifest(ended.out.encode(), "m")
    assert list(back.hashes) == ["MIOpenCat.cpp"] and back.sources and back.miopen is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 400027325\n", "Git LFS pointer"),
        (b"hello\n" * 200, "not an SQLite file"),
        (b"kdbtool-manifest format 2\n", "made by a newer kdbtool"),
        (b"\xef\xbb\xbfkdbtool-manifest format 0\n", "byte order mark"),
    ],
)
def test_an_input_of_another_kind_is_one_line(
    run_cli: Callable[..., Any], tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "gfx1030.kdb"
    path.write_bytes(content)
    ended = run_cli("manifest", path)
    assert ended.code == 2 and ended.out == "" and words in ended.err and ended.err.count("\n") == 1


def test_drop_dead_needs_a_miopen(shared: Path, run_cli: Callable[..., Any]) -> None:
    ended = run_cli("manifest", shared / "data" / "gfx942.kdb", "--drop", "dead")
    assert ended.code == 2 and "add --miopen VERSION|PATH" in ended.err and ended.err.count("\n") == 1
