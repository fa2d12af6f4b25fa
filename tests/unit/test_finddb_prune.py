"""What a MIOpen cannot use is taken out of a find-db and counted, and nothing else changes."""

from __future__ import annotations

import bz2
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.real_dbs import FIND, find_lines

from kdbtool.cli import main
from kdbtool.errors import KdbtoolError
from kdbtool.miopen import finddb
from kdbtool.miopen.prune import Pruned, Why, prune
from kdbtool.miopen.versions import resolve

KEY = "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP32-F"
WAY = "miopenConvolutionFwdAlgo"
GOOD = f"GemmFwdRest:0.5,1024,{WAY}GEMM"
FUSED = f"ConvOclDirectFwdFused:0.1,0,{WAY}Direct"
MLIR = f"ConvMlirIgemmFwd:0.2,0,{WAY}ImplicitGEMM"
NEVER = f"ConvNeverWas:0.3,0,{WAY}Direct"
LEGACY = f"{WAY}Direct:ConvDirectNaiveConvFwd,1.5,0,{WAY}Direct,<unused>"
OTHER = KEY.replace("64", "65", 1)


def pruned(path: Path, text: str, miopen: str = "6.4", **options: Any) -> tuple[str, Pruned]:
    path.write_text(text, "ascii")
    done = Pruned()
    return b"".join(prune(path, resolve(miopen), done, **options)).decode("ascii"), done


def test_each_kind_of_solver_has_its_reason(tmp_path: Path) -> None:
    text = f"{KEY}={FUSED};{MLIR};{GOOD};{NEVER}\n\n{OTHER}={FUSED}\n"
    out, done = pruned(tmp_path / "a", text)
    assert out == f"{KEY}={GOOD}\n\n"
    assert (done.lines, done.kept, done.emptied, done.entries, done.taken_out) == (2, 1, 1, 1, 4)
    assert done.solvers == {
        ("ConvOclDirectFwdFused", Why.WITHOUT_CODE): 2,
        ("ConvMlirIgemmFwd", Why.LEFT_OUT): 1,
        ("ConvNeverWas", Why.UNKNOWN): 1,
    }


def test_it_depends_on_the_miopen(tmp_path: Path) -> None:
    solvers = ("Direct:ConvOclDirectFwdFused", "ImplicitGEMM:ConvMlirIgemmFwd", "GEMM:GemmFwdRest")
    legacy = ";".join(f"{WAY}{solver},1,0,x,y" for solver in solvers)
    for miopen, left in (("5.0", 3), ("5.4", 3), ("5.5", 2), ("6.2", 2), ("6.4", 1), ("7.2", 1)):
        assert pruned(tmp_path / "a", f"{KEY}={legacy}\n", miopen)[1].entries == left, miopen


def test_what_is_good_stays_byte_for_byte(shared: Path, tmp_path: Path) -> None:
    text = find_lines(shared, FIND, 50, 100).decode("ascii")
    for end in ("", "\r"):  # MIOpen does not mind a carriage return
        lines = [line + end for line in text.splitlines() if "FwdFused" not in line]
        out, done = pruned(tmp_path / "a", "\n".join(lines))  # no end of line at the end
        assert out == "\n".join(lines) and done.taken_out == 0 and done.kept == len(lines)


def test_damage_and_repeats_are_taken_out(tmp_path: Path) -> None:
    text = (
        f"garbage\n{KEY}={GOOD};fft:x,0,{WAY}FFT;nothing\n{KEY}={LEGACY}\n"
        f"{OTHER}=miopenConvolutionBwdDataAlgoGEMM:GemmBwdRest,1,0,x,y\n{OTHER[:-1]}B=\n"
    )
    out, done = pruned(tmp_path / "a", text)
    assert out == f"{KEY}={GOOD}\n" and done.emptied == 2
    assert {str(reason): count for reason, count in done.reasons.items()} == {
        "no key": 1,
        "not a number": 1,
        "item without a solver": 1,
        "repeated": 1,
        "not an algorithm of this direction": 1,
        "no solver": 1,
    }


def test_the_form_fits_the_miopen(tmp_path: Path) -> None:
    text = f"{KEY}={LEGACY};{GOOD}\n"
    out, done = pruned(tmp_path / "a", text, "5.4")
    assert out == f"{KEY}={LEGACY}\n" and done.reasons == {Why.FORM: 1}
    out, done = pruned(tmp_path / "a", text, "6.4", convert=True)
    assert out == f"{KEY}=ConvDirectNaiveConvFwd:1.5,0,{WAY}Direct;{GOOD}\n" and done.converted == 1
    with pytest.raises(KdbtoolError, match="legacy form only"):
        pruned(tmp_path / "a", text, "5.5", convert=True)


def test_prune_again_changes_nothing(shared: Path, tmp_path: Path) -> None:
    text = find_lines(shared, "gfx906_60.HIP.fdb.txt.bz2", 100, 300).decode("ascii")
    once, done = pruned(tmp_path / "a", text)
    assert done.taken_out > 0 and 0 < done.emptied < done.lines == 300
    again, done = pruned(tmp_path / "b", once)
    assert again == once and done.taken_out == 0


def test_the_command_writes_text_or_bz2_and_counts(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    source = tmp_path / "a.HIP.fdb.txt.bz2"
    source.write_bytes(bz2.compress(f"{KEY}={FUSED};{GOOD}\n{OTHER}={MLIR}\n".encode()))
    for name in ("out.HIP.fdb.txt", "out.HIP.fdb.txt.bz2"):
        output = tmp_path / name
        result = run_cli("finddb", "prune", source, "--miopen", "6.4.3", "-o", output)
        assert result.code == 0 and result.err == ""
        assert "1 of 2 kept, 1 had no other solver" in result.out and "ConvMlirIgemmFwd" in result.out
        assert [finddb.format_record(r) for r in finddb.read(output)] == [f"{KEY}={GOOD}"]
        assert run_cli("finddb", "prune", source, "--miopen", "6.4.3", "-o", output).code == 2
    document = run_cli("finddb", "prune", source, "--miopen", "6.4", "-o", output, "--force", "--json").out
    assert json.loads(document)["entries"] == {"written": 1, "taken_out": 2, "converted": 0}
    assert bz2.decompress(output.read_bytes()) == f"{KEY}={GOOD}\n".encode()


def test_the_command_refuses_in_one_line(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    source = tmp_path / "a"
    source.write_text(f"{KEY}={GOOD}\n")
    for arguments in (
        ["-o", tmp_path / "b"],
        ["--miopen", "4.0", "-o", tmp_path / "b"],
        ["--miopen", source, "-o", tmp_path / "b"],
        ["--miopen", "6.4", "-o", tmp_path / "none" / "b"],
    ):
        result = run_cli("finddb", "prune", source, *arguments)
        assert result.code == 2 and result.err.count("\n") == 1, arguments
        assert not (tmp_path / "b").exists()


def test_list_filters_and_tells_damage(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    source = tmp_path / "a"
    source.write_text(f"{KEY}={GOOD};{FUSED}\n{OTHER}={LEGACY}\nbad\x1b[31m\n")
    every = run_cli("finddb", "list", source)
    assert every.code == 1 and every.out.splitlines()[0] == f"{KEY}\tGemmFwdRest\t0.5\t1024\t{WAY}GEMM"
    assert "line 3: no key: bad\\x1b[31m" in every.err and len(every.out.splitlines()) == 3
    best = run_cli("finddb", "list", source, "--best", "--problem", "^64-")
    assert [line.split("\t")[1] for line in best.out.splitlines()] == ["ConvOclDirectFwdFused"]
    naive = json.loads(run_cli("finddb", "list", source, "--solver", "Naive", "--json").out)
    assert [entry["problem"] for entry in naive["entries"]] == [OTHER]


LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345678\n"
PERF = "2x64x56x56x1x1x1x1x128x32x0x0x0x1x1x0x1x1x0x0x1xNCHWxFP32xF=ConvAsm1x1U:1,8,4\n"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (LFS.encode(), "Git LFS pointer"),
        (b"outs:\n- md5: 00.dir\n  size: 5\n", "DVC stub"),
        (PERF.encode(), "performance database"),
        (bz2.compress(PERF.encode()), "performance database"),
        (b"kdbtool-manifest format 0\n", "manifest"),
        (b"<!DOCTYPE html>\n<p>404</p>\n", "none of its 2 lines"),
        (b"\x7fELF\x02\x01\x01" + bytes(600) + b"\n\xff=\n", "none of its 2 lines"),
    ],
    ids=["lfs", "dvc", "perf-db", "perf-db.bz2", "manifest", "html", "elf"],
)
def test_another_kind_of_file_is_named_not_pruned_to_nothing(tmp_path: Path, data: bytes, said: str) -> None:
    path, output = tmp_path / "gfx1030_36.HIP.fdb.txt", tmp_path / "out"
    path.write_bytes(data)
    assert main(["finddb", "prune", str(path), "--miopen", "6.4", "-o", str(output)]) == 2
    assert not output.exists()
    with pytest.raises(KdbtoolError, match=said):
        list(prune(path, resolve("6.4"), Pruned()))
    if not said.startswith("none"):
        with pytest.raises(KdbtoolError, match=said):
            list(finddb.read(path))


def test_a_kernel_database_is_no_find_db(shared: Path, tmp_path: Path) -> None:
    path = shared / "data" / "gfx942.kdb"
    assert main(["finddb", "prune", str(path), "--miopen", "6.4", "-o", str(tmp_path / "out")]) == 2
    assert not any(tmp_path.iterdir())
