"""`kdbtool diff`: by key, by code and by source; equal, different, unreadable."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.amdgpu_elf import code_object, hip_bundle
from support.kdb_files import make, row
from support.mutate import mutations, survives

from kdbtool.cli import main
from kdbtool.manifest import Hashes, Key, Manifest, write_manifest
from kdbtool.manifest.model import Note

NAME = b"naive_conv.cpp.o"
LIST = (
    b" -DMIOPEN_USE_FP16=0 -DMIOPEN_USE_FP16x4=0 -DMIOPEN_USE_FP16x8=0 -DMIOPEN_USE_FP32=1"
    b" -DMIOPEN_USE_INT8=0 -DMIOPEN_USE_BFP16=0 -DMIOPEN_USE_INT32=0 -DMIOPEN_USE_RNE_BFLOAT16=1"
)
MCPU = b" -mcpu=gfx1030"
Run = Callable[..., Any]


def kdb(path: Path, *rows: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    return make(path, rows)


def manifest(path: Path, keys: list[Key], source: str | None = None) -> Path:
    hashes = {"naive_conv.cpp": Hashes(source * 64, "b" * 64)} if source else {}
    path.write_bytes(write_manifest(Manifest(miopen="6.4.3", keys={k: Note() for k in keys}, hashes=hashes)))
    return path


def test_equal_inputs_of_any_kind(tmp_path: Path, run_cli: Run) -> None:
    one = kdb(tmp_path / "a" / "gfx1030.kdb", row(NAME, LIST + MCPU))
    text = manifest(tmp_path / "m.kdbmanifest", [Key(NAME, LIST + MCPU, "gfx1030")])
    other = kdb(tmp_path / "other.kdb", row(NAME, LIST + MCPU))  # no arch in its name
    for a, b in ((one, one), (one, text), (text, one), (text, text), (one, other)):
        done = run_cli("diff", a, b)
        assert (done.code, done.err) == (0, ""), done.out
        assert "by key: 1 in both, 0 only in A, 0 only in B" in done.out


def test_other_bytes_of_the_same_code_are_equal_and_other_code_is_not(tmp_path: Path, run_cli: Run) -> None:
    good = code_object()
    a = kdb(tmp_path / "a" / "gfx1030.kdb", row(NAME, MCPU, good))
    same = kdb(tmp_path / "b" / "gfx1030.kdb", row(NAME, MCPU, hip_bundle(good, "gfx1030")))
    done = run_cli("diff", a, same)
    assert done.code == 0 and "0 same object, 1 same code in other bytes" in done.out

    changed = bytearray(good)
    at = good.index(b"\x00\x00\xaf\x60")  # COMPUTE_PGM_RSRC1
    changed[at] = 3
    b = kdb(tmp_path / "c" / "gfx1030.kdb", row(NAME, MCPU, bytes(changed)))
    done = run_cli("diff", a, b)
    assert done.code == 1 and "1 other code" in done.out and "\n    k " in done.out
    assert run_cli("diff", a, b, "--by", "key").code == 0 == run_cli("diff", a, b, "--by", "source").code
    assert run_cli("diff", a, b, "--by", "code").code == 1
    document = json.loads(run_cli("diff", a, b, "--json").out)
    (found,) = document["rows"]
    (kernel,) = found["kernels"]
    assert kernel["kernel"] == "k" and kernel["code_differs"] and kernel["before"]["lds"] == 256


def test_a_raw_and_a_compressed_blob_are_the_same_object(tmp_path: Path, run_cli: Run) -> None:
    good = code_object()
    a = kdb(tmp_path / "a" / "gfx1030.kdb", row(NAME, MCPU, good))
    b = kdb(tmp_path / "b" / "gfx1030.kdb", row(NAME, MCPU, good, blob=good, size=0))
    done = run_cli("diff", a, b)
    assert done.code == 0 and "1 same object" in done.out


def test_a_kernel_that_one_side_lacks(tmp_path: Path, run_cli: Run) -> None:
    a = kdb(tmp_path / "a" / "gfx1030.kdb", row(NAME, MCPU, code_object(kernels=("k", "gone"))))
    b = kdb(tmp_path / "b" / "gfx1030.kdb", row(NAME, MCPU, code_object(kernels=("k",))))
    done = run_cli("diff", a, b)
    assert done.code == 1 and "gone (only in A)" in done.out


def test_a_damaged_row_is_a_difference_not_an_end(tmp_path: Path, run_cli: Run) -> None:
    a = kdb(tmp_path / "a" / "gfx1030.kdb", row(NAME, MCPU), row(NAME, LIST + MCPU))
    b = kdb(tmp_path / "b" / "gfx1030.kdb", row(NAME, MCPU, blob=b"BZh9 no"), row(NAME, LIST + MCPU))
    done = run_cli("diff", a, b)
    assert done.code == 1 and "1 same object" in done.out and "1 damaged" in done.out
    assert "row 1: damaged row" in done.out
    # The same damage twice is the same object.
    assert run_cli("diff", b, b).code == 0


def test_another_spelling_is_said(tmp_path: Path, run_cli: Run) -> None:
    a = kdb(tmp_path / "a" / "gfx1030.kdb", row(NAME, LIST + MCPU), row(NAME, b" -DX=1 -mcpu=gfx1030:xnack-"))
    b = kdb(tmp_path / "b" / "gfx1030.kdb", row(NAME, LIST * 2 + MCPU), row(NAME, b" -DX=1" + MCPU))
    done = run_cli("diff", a, b)
    assert (
        done.code == 1 and "data type list twice" in done.out and "equal after repair (target-id)" in done.out
    )
    assert "2 same object" in done.out  # the objects of the twins are compared
    back = run_cli("diff", b, a, "-v")
    assert "data type list once" in back.out and "equal after repair (target-id)" in back.out


def test_manifests_name_sources_of_other_hashes_and_other_states(tmp_path: Path, run_cli: Run) -> None:
    key = Key(NAME, LIST + MCPU, "gfx1030")
    a = manifest(tmp_path / "a.kdbmanifest", [key], "a")
    b = manifest(tmp_path / "b.kdbmanifest", [key], "c")
    done = run_cli("diff", a, b)
    assert done.code == 1 and "naive_conv.cpp  (source of other hashes)" in done.out
    assert run_cli("diff", a, b, "--by", "key").code == 0
    unbuilt = manifest(tmp_path / "c.kdbmanifest", [Key(NAME, LIST + MCPU, "gfx1030", "asked-unbuilt")])
    done = run_cli("diff", a, unbuilt, "--by", "key")
    assert done.code == 1 and "in another state" in done.out


def test_filters(tmp_path: Path, run_cli: Run) -> None:
    a = kdb(tmp_path / "a.kdb", row(NAME, MCPU), row(b"x.cl.o", b" -mcpu=gfx906"))
    b = kdb(tmp_path / "b.kdb", row(NAME, MCPU))
    assert run_cli("diff", a, b).code == 1
    assert run_cli("diff", a, b, "--kernel", "naive").code == 0
    assert run_cli("diff", a, b, "--arch", "gfx1030").code == 0
    assert run_cli("diff", a, b, "--arch", "gfx906").code == 1
    assert run_cli("diff", a, b, "--quiet").out == ""


def test_many_differences_are_cut_and_shown_with_v(tmp_path: Path, run_cli: Run) -> None:
    a = kdb(tmp_path / "a.kdb", *(row(b"k%d.cl.o" % n, MCPU) for n in range(30)))
    b = kdb(tmp_path / "b.kdb")
    done = run_cli("diff", a, b)
    assert "and 20 more (-v shows all)" in done.out and "k29.cl" not in done.out
    assert "k29.cl" in run_cli("diff", a, b, "-v").out


def test_what_is_no_input_is_one_line(tmp_path: Path, run_cli: Run) -> None:
    good = kdb(tmp_path / "a.kdb", row())
    text = manifest(tmp_path / "m.kdbmanifest", [])
    bad = tmp_path / "bad.kdb"
    bad.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
    for a, b, by in (
        (good, bad, []),
        (bad, good, []),
        (good, tmp_path / "no", []),
        (good, text, ["--by", "code"]),
    ):
        done = run_cli("diff", a, b, *by)
        assert done.code == 2 and done.out == "" and done.err.count("\n") == 1


def test_keys_that_no_terminal_shows(tmp_path: Path, run_cli: Run) -> None:
    a = kdb(tmp_path / "a.kdb", row("\x1b[2J.cl.o", " -DX='\n' -mcpu=gfx1030"))
    with sqlite3.connect(tmp_path / "a.kdb") as db:
        db.execute("UPDATE kern_db SET kernel_args = CAST(x'ff00fe' AS TEXT)")
    done = run_cli("diff", a, kdb(tmp_path / "b.kdb"))
    assert done.code == 1 and "\x1b" not in done.out and "\\xff\\x00\\xfe" in done.out
    json.loads(run_cli("diff", a, tmp_path / "b.kdb", "--json").out)


@pytest.mark.parametrize("mode", [[], ["--json"]])
def test_damaged_files_bring_nothing_but_one_line(
    tmp_path: Path, mode: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    good = kdb(
        tmp_path / "good.kdb", row(NAME, MCPU), row(NAME, LIST + MCPU, hip_bundle(code_object(), "gfx1030"))
    )

    def check(path: Path) -> None:
        assert main(["diff", str(good), str(path), *mode]) in (0, 1, 2)
        assert main(["diff", str(path), str(path), *mode]) in (0, 1, 2)

    tally = survives(check, mutations(good.read_bytes(), 250, 7), tmp_path / "bad", ".kdb")
    assert tally.accepted == 250
