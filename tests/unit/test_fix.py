"""kdbtool fix: each repair on a row that needs it, each row accounted for, and nothing merged silently."""

from __future__ import annotations

import json
import os
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.amdgpu_elf import code_object
from support.kdb_files import ARGS, NAME, Columns, make, row
from support.mutate import mutations, survives

from kdbtool.kdb.blob import md5, pack
from kdbtool.kdb.checks import check
from kdbtool.kdb.fix import plan, rows
from kdbtool.kdb.reader import open_kdb
from kdbtool.kdb.writer import write_kdb

Cli = Callable[..., Any]
GOOD, OTHER = code_object(), code_object(kernels=("other",))
BLOB = pack(GOOD).blob


def fixed(path: Path, run_cli: Cli, *more: object, output: str = "new/gfx1030.kdb") -> tuple[int, Any, Path]:
    """(exit code, --json, output) of a fix; the numbers have to add up to all rows."""
    target = path.parent / output
    target.parent.mkdir(exist_ok=True)
    done = run_cli("fix", path, "-o", target, "--force", "--json", *more)
    found = json.loads(done.out)
    parts = ("kept", "repaired", "merged", "left_out", "unfixed")
    with open_kdb(path) as reader:
        assert sum(found[p] for p in parts) == found["rows"] == len(reader)
    with open_kdb(target) as reader:
        assert found["kept"] + found["repaired"] + found["unfixed"] == len(reader)
    assert found["left_out"] == sum(found["left_out_by"].values())
    assert done.code == (1 if found["left_out"] or found["unfixed"] else 0)
    return done.code, found, target


def keys(path: Path) -> set[tuple[bytes, bytes]]:
    with open_kdb(path) as reader:
        return set(reader.keys())


def problems(path: Path) -> set[str]:
    with open_kdb(path) as reader:
        return {f.code.code for f in check(reader).findings if f.is_problem}


REPAIRED: dict[str, tuple[Columns, str]] = {
    "no .o": (row(b"MIOpenSoftmax.cl"), "dot-o"),
    "no -mcpu": (row(args=b" -DA=1"), "mcpu"),
    "target id": (row(args=b" -DA=1 -mcpu=gfx1030:xnack-"), "target-id"),
    "key is a blob": (row(memoryview(NAME)), "key-type"),
    "hash in capitals": (row(digest=md5(GOOD).upper()), "hash-case"),
    "hash of the compressed": (row(digest=md5(BLOB)), "hash-of-compressed"),
    "size too large": (row(size=len(GOOD) + 5), "size"),
    "size too small": (row(size=len(GOOD) - 5), "size"),
    "size is 0": (row(size=0), "size"),
    "size is negative": (row(size=-7), "size"),
    "size is no number": (row(size="many"), "size"),
    "bytes after the stream": (row(blob=BLOB + b"tail"), "bz2-tail"),
}


@pytest.mark.parametrize("name", REPAIRED)
def test_each_repair_alone(name: str, tmp_path: Path, run_cli: Cli) -> None:
    bad, repair = REPAIRED[name]
    path = make(tmp_path / "gfx1030.kdb", [bad, row(b"good.cl.o")])
    if name != "size too large" and repair != "bz2-tail":  # MIOpen takes those
        assert problems(path)
    code, found, target = fixed(path, run_cli)
    assert (code, found["repairs"], found["kept"]) == (0, {repair: 1}, 1)
    assert keys(target) == {(NAME, ARGS), (b"good.cl.o", ARGS)}
    assert not problems(target)
    with open_kdb(target) as reader:
        assert [r.object() for r in reader] == [GOOD, GOOD]
        assert reader.provenance()["fix"] == f"{repair} 1"  # type: ignore[index]


@pytest.mark.parametrize("name", [n for n, (_, repair) in REPAIRED.items() if repair != "key-type"])
def test_a_repair_that_is_not_wanted_is_not_made(name: str, tmp_path: Path, run_cli: Cli) -> None:
    bad, repair = REPAIRED[name]
    path = make(tmp_path / "gfx1030.kdb", [bad])
    assert fixed(path, run_cli, "--only", "form")[1]["repairs"] == {}
    assert fixed(path, run_cli, "--only", repair)[1]["repairs"] == {repair: 1}


LEFT_OUT: dict[str, tuple[Columns, str]] = {
    "hash of another object": (row(digest=md5(OTHER)), "hash-wrong"),
    "no hash": (row(digest=""), "hash-wrong"),
    "stream cut": (row(blob=BLOB[:-9]), "bad-bz2"),
    "a flipped bit": (row(blob=BLOB[:60] + bytes([BLOB[60] ^ 4]) + BLOB[61:]), "bad-bz2"),
    "wrong size and wrong hash": (row(size=10, digest=md5(OTHER)), "size-small"),
    "no object": (row(data=b"int main() {}" * 30), "not-elf"),
    "empty": (row(data=b"", blob=b"", size=0), "not-elf"),
    "no kernel": (row(data=code_object(kernels=())), "no-kernels"),
    "of another architecture": (row(data=code_object("gfx1100")), "elf-arch"),
    "NUL in the key": (row(b"a.cl\0.o"), "unreachable-type"),
    "no name": (row(b""), "unreachable-type"),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_cannot_be_proven_is_left_out(name: str, tmp_path: Path, run_cli: Cli) -> None:
    bad, reason = LEFT_OUT[name]
    path = make(tmp_path / "gfx1030.kdb", [bad, row(b"good.cl.o")])
    code, found, target = fixed(path, run_cli)
    assert (code, found["left_out_by"], found["kept"]) == (1, {reason: 1}, 1)
    assert found["details"][0]["row"] == 1 and found["details"][0]["reason"] == reason
    assert keys(target) == {(b"good.cl.o", ARGS)}


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (b" -DS='a' -mcpu=gfx1030", "quote"),
        (b" -DA=1 -mcpu=gfx906", "foreign-mcpu"),
        (b" -mcpu=gfx1030 -DA=1", "no-mcpu"),
    ],
)
def test_what_is_only_never_asked_for_stays_and_is_said(
    args: bytes, reason: str, tmp_path: Path, run_cli: Cli
) -> None:
    data = code_object("gfx906", xnack="any", sramecc="any") if b"gfx906" in args else GOOD
    path = make(tmp_path / "gfx1030.kdb", [row(args=args, data=data)])
    code, found, target = fixed(path, run_cli)
    assert (code, found["unfixed_by"]) == (1, {reason: 1})
    assert keys(target) == {(NAME, args)}


def test_mlir_rows_need_no_mcpu(tmp_path: Path, run_cli: Cli) -> None:
    path = make(tmp_path / "gfx1030.kdb", [row(b"conv.mlir.o", b" --operation conv2d")])
    assert fixed(path, run_cli)[1]["kept"] == 1


def test_an_mlir_row_needs_an_object_for_the_database(tmp_path: Path, run_cli: Cli) -> None:
    """Its key names no architecture, MIOpen asks with it on every one: another's object would throw."""
    keyless = row(b"mlir_gen_igemm_conv2d_v4r4.mlir.o", b" --operation conv2d")
    foreign = row(b"mlir_gen_igemm_conv2d_v4r5.mlir.o", b" --operation conv2d", code_object("gfx906"))
    path = make(tmp_path / "gfx1030.kdb", [row(), keyless, foreign])
    code, found, new = fixed(path, run_cli)
    assert (code, found["left_out_by"], found["kept"]) == (1, {"elf-arch": 1}, 2)
    assert keys(new) == {(NAME, ARGS), (b"mlir_gen_igemm_conv2d_v4r4.mlir.o", b" --operation conv2d")}


def test_the_architecture_comes_from_the_name_or_arch_and_is_not_guessed(
    tmp_path: Path, run_cli: Cli
) -> None:
    path = make(tmp_path / "cache.kdb", [row(args=b" -DA=1")])
    assert fixed(path, run_cli)[1]["unfixed_by"] == {"no-mcpu": 1}
    assert fixed(path, run_cli, "--arch", "gfx1030:36")[1]["repairs"] == {"mcpu": 1}
    # The object says that it is not for that one.
    assert fixed(path, run_cli, "--arch", "gfx1100")[1]["left_out_by"] == {"elf-arch": 1}
    assert run_cli("fix", path, "--dry-run", "--arch", "gfx1030", "--arch", "gfx1100").code == 2


def test_code_for_the_other_setting_of_a_feature_is_left_out(tmp_path: Path, run_cli: Cli) -> None:
    rows_ = [
        row(args=b" -mcpu=gfx90a:sramecc+:xnack+", data=code_object("gfx90a", xnack="on", sramecc="on")),
        row(b"b.cl.o", b" -mcpu=gfx90a:xnack-", code_object("gfx90a", xnack="off", sramecc="any")),
    ]
    path = make(tmp_path / "gfx90a.kdb", rows_)
    _, found, _ = fixed(path, run_cli)
    assert found["left_out_by"] == {"features-foreign": 1} and found["notes"] == {"features-explicit": 1}
    _, found, _ = fixed(path.rename(tmp_path / "gfx90a_xnack68.kdb"), run_cli)
    assert found["left_out_by"] == {"features-foreign": 1} and found["repaired"] == 1


RAW, LIVE = (b"MIOpenSoftmax.cl", b" -DA=1"), (NAME, ARGS)


def test_a_twin_with_the_same_object_is_merged_and_said(tmp_path: Path, run_cli: Cli) -> None:
    path = make(tmp_path / "gfx1030.kdb", [row(*RAW, GOOD), row(*LIVE, GOOD)])
    code, found, target = fixed(path, run_cli)
    assert (code, found["kept"], found["merged"], found["repairs"]) == (0, 1, 1, {})
    assert found["details"][0]["other"] == 2 and keys(target) == {LIVE}
    text = run_cli("fix", path, "--dry-run").out
    assert "merged, same object (1 row)" in text and "(into row 2)" in text


def test_a_twin_with_another_object_is_never_merged(tmp_path: Path, run_cli: Cli) -> None:
    path = make(tmp_path / "gfx1030.kdb", [row(*RAW, OTHER), row(*LIVE, GOOD)])
    code, found, target = fixed(path, run_cli)
    assert (code, found["kept"], found["left_out_by"]) == (1, 1, {"conflict": 1})
    with open_kdb(target) as reader:
        assert [r.object() for r in reader] == [GOOD]
    text = run_cli("fix", path, "--dry-run").out
    assert md5(GOOD) in text and md5(OTHER) in text and "row 2" in text


def test_two_repaired_rows_with_two_objects_are_both_left_out(tmp_path: Path, run_cli: Cli) -> None:
    path = make(tmp_path / "gfx1030.kdb", [row(*RAW, OTHER), row(NAME, b" -DA=1", GOOD), row(b"c.cl.o")])
    code, found, target = fixed(path, run_cli)
    assert (code, found["left_out_by"]) == (1, {"conflict": 2})
    assert [d["other"] for d in found["details"]] == [2, 1] and keys(target) == {(b"c.cl.o", ARGS)}


def test_one_key_twice_in_a_file_without_index(tmp_path: Path, run_cli: Cli) -> None:
    path = make(tmp_path / "gfx1030.kdb", [row(data=GOOD), row(data=GOOD)], index=None)
    assert fixed(path, run_cli)[1]["merged"] == 1
    path = make(tmp_path / "gfx1031.kdb", [row(data=GOOD), row(data=OTHER)], index=None)
    assert fixed(path, run_cli, "--arch", "gfx1030")[1]["left_out_by"] == {"duplicate-key": 2}


def test_a_damaged_twin_does_not_hide_the_good_one(tmp_path: Path, run_cli: Cli) -> None:
    path = make(tmp_path / "gfx1030.kdb", [row(*LIVE, GOOD, digest="0" * 32), row(*RAW, OTHER)])
    _, found, target = fixed(path, run_cli)
    assert (found["left_out_by"], found["repaired"]) == ({"hash-wrong": 1}, 1)
    with open_kdb(target) as reader:
        assert [r.object() for r in reader] == [OTHER]


FORMS = {
    "journal=wal": ["PRAGMA journal_mode=wal"],
    "encoding": ["PRAGMA encoding='UTF-16be'"],
    "page-size": ["PRAGMA page_size=1024"],
    "user-version": ["PRAGMA user_version=7"],
}


@pytest.mark.parametrize("code", FORMS)
def test_the_file_gets_the_form_that_miopen_writes(code: str, tmp_path: Path, run_cli: Cli) -> None:
    make_rows = [row(), row(b"b.cl.o")]
    path = make(tmp_path / "gfx1030.kdb", make_rows, before=FORMS[code])
    _, found, target = fixed(path, run_cli)
    assert code in found["form"]
    assert fixed(make(tmp_path / "gfx1031.kdb", make_rows), run_cli, "--arch", "gfx1030")[1]["form"] == []
    with open_kdb(target) as reader:
        assert {f.code.code for f in check(reader).findings} == set()
    assert target.stat().st_mode & 0o7777 == 0o644


def test_index_free_pages_tables_columns_mode(tmp_path: Path, run_cli: Cli) -> None:
    path = make(
        tmp_path / "gfx1030.kdb",
        [row(b"k%d.cl.o" % n) for n in range(50)],
        index=None,
        after=["CREATE TABLE t (x)", "ALTER TABLE kern_db ADD COLUMN y", "DELETE FROM kern_db WHERE id > 9"],
    )
    path.chmod(0o600)
    _, found, target = fixed(path, run_cli)
    assert {"no-index", "extra-table", "extra-column", "free-pages", "file-mode"} == set(found["form"])
    assert len(keys(target)) == 9 and not problems(target)


def test_the_rows_of_a_wal_file_are_folded_in_and_nothing_is_left_beside(
    tmp_path: Path, run_cli: Cli
) -> None:
    path = make(tmp_path / "gfx1030_36.ukdb", [row()], before=["PRAGMA journal_mode=wal"])
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA wal_autocheckpoint=0")
    writer.execute("INSERT INTO kern_db VALUES (9, ?, ?, ?, ?, ?)", row(b"b.cl.o"))
    writer.commit()
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    _, found, target = fixed(path, run_cli)
    assert found["kept"] == 2
    assert {
        p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file() and p.suffix != ".ukdb-shm"
    } == {n: b for n, b in before.items() if not n.endswith("-shm")}
    writer.close()
    with sqlite3.connect(target) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert [p.name for p in target.parent.iterdir()] == ["gfx1030.kdb"]


def test_provenance_is_kept_where_true_and_dropped_where_not(tmp_path: Path, run_cli: Cli) -> None:
    path = tmp_path / "gfx1030.kdb"
    write_kdb(path, [(b"a.cl", b" -DA=1", GOOD), (b"b.cl.o", ARGS, GOOD)], {"miopen": "6.4.3"})
    _, found, target = fixed(path, run_cli, "--only", "dot-o")
    with open_kdb(target) as reader:
        said = reader.provenance()
    assert said is not None and said["miopen"] == "6.4.3" and said["fix"] == "dot-o 1"
    _, found, second = fixed(target, run_cli, output="second.kdb")
    with open_kdb(second) as reader:
        assert reader.provenance()["fix"] == "dot-o 1; then mcpu 1"  # type: ignore[index]
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM kern_db WHERE id = 2")
    db.close()
    _, found, target = fixed(path, run_cli)
    assert found["provenance"] == "dropped"
    with open_kdb(target) as reader:
        assert "miopen" not in (reader.provenance() or {})
    assert "bad-provenance" not in problems(target)


ODD = (
    [v for v, _ in REPAIRED.values()] + [v for v, _ in LEFT_OUT.values()] + [row(*RAW, OTHER), row(b"z.cl.o")]
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(ODD), max_size=8), st.randoms(use_true_random=False))
def test_fix_is_idempotent_and_does_not_depend_on_the_order(
    tmp_path: Path, chosen: list[Columns], chance: random.Random
) -> None:
    made = []
    for number, order in enumerate((chosen, chance.sample(chosen, len(chosen)))):
        path, target = tmp_path / f"{number}.kdb", tmp_path / f"new{number}.kdb"
        path.unlink(missing_ok=True)
        make(path, order, index=None)
        write(path, target)
        made.append(target.read_bytes())
    assert made[0] == made[1]
    write(tmp_path / "new0.kdb", tmp_path / "again.kdb")
    assert (tmp_path / "again.kdb").read_bytes() == made[0]


def write(path: Path, target: Path) -> None:
    with open_kdb(path) as reader:
        decided = plan(reader, "gfx1030")
        write_kdb(target, rows(reader, decided), decided.written(), force=True)


def test_one_object_stored_raw_and_compressed_gives_one_file(tmp_path: Path, run_cli: Cli) -> None:
    pair = [row(b"a.cl.o"), row(b"b.cl.o", blob=GOOD, size=0)]
    made = set()
    for number, order in enumerate((pair, pair[::-1])):
        path = make(tmp_path / f"gfx103{number}.kdb", order)
        made.add(fixed(path, run_cli, "--arch", "gfx1030")[2].read_bytes())
    assert len(made) == 1


# --- where it writes


def test_in_place_keeps_the_original(tmp_path: Path, run_cli: Cli) -> None:
    path = make(tmp_path / "gfx1030.kdb", [row(*RAW)])
    before = path.read_bytes()
    assert run_cli("fix", path, "--in-place").code == 0
    assert (tmp_path / "gfx1030.kdb.orig").read_bytes() == before and keys(path) == {LIVE}
    after = path.read_bytes()
    assert run_cli("fix", path, "--in-place").code == 2  # .orig is there
    assert path.read_bytes() == after
    assert run_cli("fix", path, "--in-place", "--no-backup").code == 0
    assert path.read_bytes() == after and len(list(tmp_path.iterdir())) == 2
    assert run_cli("fix", path, "--in-place", "--force").code == 0
    assert (tmp_path / "gfx1030.kdb.orig").read_bytes() == after


def test_in_place_of_a_wal_file_leaves_nothing_beside(tmp_path: Path, run_cli: Cli) -> None:
    path = make(tmp_path / "gfx1030.kdb", before=["PRAGMA journal_mode=wal"])
    assert run_cli("fix", path, "--in-place", "--no-backup").code == 0
    assert [p.name for p in tmp_path.iterdir()] == ["gfx1030.kdb"] and not problems(path)


def test_in_place_refuses_what_may_be_live_or_is_a_link(tmp_path: Path, run_cli: Cli) -> None:
    ukdb = make(tmp_path / "gfx1030_36.ukdb")
    wal = make(tmp_path / "gfx1030.kdb", before=["PRAGMA journal_mode=wal"])
    held = sqlite3.connect(wal)
    held.execute("SELECT * FROM kern_db").fetchone()
    (tmp_path / "link.kdb").symlink_to(make(tmp_path / "a.kdb"))
    os.link(tmp_path / "a.kdb", tmp_path / "b.kdb")
    for path in (ukdb, wal, tmp_path / "link.kdb", tmp_path / "b.kdb"):
        done = run_cli("fix", path, "--in-place")
        assert done.code == 2 and "not replaced in place" in done.err, path
    held.close()


def test_a_failure_in_place_leaves_the_original_alone(
    tmp_path: Path, run_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "gfx1030.kdb")
    before = path.read_bytes()

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kdbtool.cli.fix.write_kdb", fail)
    assert run_cli("fix", path, "--in-place").code == 1
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["gfx1030.kdb"]


def test_usage(tmp_path: Path, run_cli: Cli) -> None:
    path = make(tmp_path / "gfx1030.kdb", [row(*RAW)])
    for words in ([], ["--in-place", "-o", "x"], ["--no-backup", "-o", "x"], ["-o", path], ["--only", "all"]):
        assert run_cli("fix", path, *words).code == 2, words
    assert run_cli("fix", path, "--dry-run").code == 0 and len(list(tmp_path.iterdir())) == 1
    assert run_cli("fix", path, "-o", path, "--force").code == 2
    assert "salvage" in run_cli("fix", _cut(path), "--dry-run").err
    (tmp_path / "x.txt").write_text("no database\n" * 99)
    assert run_cli("fix", tmp_path / "x.txt", "--dry-run").code == 2


def _cut(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[:-4096])
    return path


def test_a_stale_wal_beside_the_output_is_no_place_to_write(tmp_path: Path, run_cli: Cli) -> None:
    path = make(tmp_path / "gfx1030.kdb")
    (tmp_path / "new.kdb-wal").write_bytes(b"x" * 5000)
    done = run_cli("fix", path, "-o", tmp_path / "new.kdb")
    assert done.code == 2 and "new.kdb-wal" in done.err and not (tmp_path / "new.kdb").exists()


def test_a_file_damaged_inside_is_sent_to_salvage(tmp_path: Path, run_cli: Cli) -> None:
    path = make(tmp_path / "gfx1030.kdb", [row(b"k%d.cl.o" % n) for n in range(50)])
    raw = bytearray(path.read_bytes())
    raw[3 * 4096 : 4 * 4096] = bytes(4096)
    path.write_bytes(raw)
    done = run_cli("fix", path, "-o", tmp_path / "new.kdb")
    assert done.code == 1 and "kdbtool salvage" in done.err and not (tmp_path / "new.kdb").exists()


def test_a_table_without_the_columns_that_prove_a_row(tmp_path: Path, run_cli: Cli) -> None:
    path = make(tmp_path / "gfx1030.kdb", after=["ALTER TABLE kern_db DROP COLUMN kernel_hash"])
    done = run_cli("fix", path, "-o", tmp_path / "new.kdb")
    assert done.code == 1 and "kernel_hash" in done.err and done.err.count("\n") == 1


def test_a_row_replaced_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    path = make(tmp_path / "gfx1030_36.ukdb", [row(), row(b"b.cl.o")])
    with open_kdb(path) as reader:
        decided = plan(reader)
        with sqlite3.connect(path) as db:
            db.execute("UPDATE kern_db SET kernel_args = 'x' WHERE id = 2")
        with pytest.raises(Exception, match="changed while it was read"):
            list(rows(reader, decided))


def test_amds_gfx942(shared: Path, tmp_path: Path, run_cli: Cli) -> None:
    target = tmp_path / "gfx942.kdb"
    done = run_cli("fix", shared / "data" / "gfx942.kdb", "-o", target, "--json")
    found = json.loads(done.out)
    assert (done.code, found["repairs"], found["kept"]) == (0, {"target-id": 320}, 1)
    assert found["notes"] == {"features-explicit": 321}
    assert not problems(target)
    assert all(args.endswith(b" -mcpu=gfx942") for _, args in keys(target))
    again = tmp_path / "again.kdb"
    assert run_cli("fix", target, "-o", again, "--arch", "gfx942").code == 0
    assert again.read_bytes() == target.read_bytes()


def test_five_thousand_corrupted_databases(tmp_path: Path) -> None:
    data = make(
        tmp_path / "good.kdb", [row(*RAW), row(b"b.cl.o"), row(b"c.cl.o", digest="0" * 32)]
    ).read_bytes()

    def one(path: Path) -> None:
        target = path.with_name("out.kdb")
        target.unlink(missing_ok=True)
        write(path, target)
        assert not problems(target)

    found = survives(one, mutations(data, 5000, seed=3), tmp_path / "m", ".kdb")
    assert found.accepted > 100 and found.refused > 100
