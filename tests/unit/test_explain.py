"""`kdbtool explain`: known options and unknown ones, what varies, where a key is live, every bad key."""

from __future__ import annotations

import json
import lzma
import os
import re
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.amdgpu_elf import code_object
from support.kdb_files import make, row
from support.mutate import mutations, survives

from kdbtool.cli import main
from kdbtool.explain import explain
from kdbtool.explain.key import Varying, vary
from kdbtool.explain.options import Option, meaning, options_of, serves, solvers_of, written_by
from kdbtool.manifest import Key, Manifest, write_manifest
from kdbtool.manifest.model import Note
from kdbtool.miopen.versions import kernel_lists, resolve

Run = Callable[..., Any]
NAME = b"naive_conv.cpp.o"
E4 = (
    b" -DMIOPEN_USE_FP16=0 -DMIOPEN_USE_FP16x4=0 -DMIOPEN_USE_FP16x8=0 -DMIOPEN_USE_FP32=1"
    b" -DMIOPEN_USE_INT8=0 -DMIOPEN_USE_BFP16=0 -DMIOPEN_USE_INT32=0 -DMIOPEN_USE_RNE_BFLOAT16=1"
    b" -DMIOPEN_FP8_IEEE_EXPONENT_BIAS=0 -DMIOPEN_FP8_CLIPPING=1"
)


def _table(name: str) -> Iterator[list[str]]:
    text = (resources.files("kdbtool.explain") / "data" / name).read_text("ascii")
    return (line.split("\t") for line in text.splitlines() if not line.startswith("#"))


def test_every_meaning_is_of_an_option_that_miopen_writes() -> None:
    written = [name for name, _ in _table("option-files.tsv")]
    patterns = [pattern for pattern, _, _ in _table("options.tsv")]
    assert len(set(patterns)) == len(patterns)
    for pattern in patterns:
        # Newer than the tags that option-files.tsv was made from: read in the kernels of 6.4.3.
        if pattern != "MIOPEN_USE_BFPMIX":
            assert any(re.fullmatch(pattern, name) for name in written), pattern
    for _, depends, text in (*_table("options.tsv"), *_table("flags.tsv")):
        assert depends in ("shape", "setting", "type", "tuning", "device", "build", "language") and text


def test_every_kernel_with_solvers_is_one_that_some_miopen_has() -> None:
    known = set().union(*kernel_lists().values())
    for pattern, path, _ in _table("solver-files.tsv"):
        assert path.startswith("src/")
        stem = pattern.removesuffix("*")
        assert any(name == pattern or (stem != pattern and name.startswith(stem)) for name in known), pattern


def test_options_of_a_key() -> None:
    found = options_of(b"  -DA=1,2 -DB -Wa,-defsym,x=-3  -mcumode -mllvm -amdgpu-prelink -DC= -mcpu=gfx906")
    assert found == [
        Option("define", "A", "1,2"),
        Option("define", "B", None),
        Option("symbol", "x", "-3"),
        Option("flag", "-mcumode", None),
        Option("flag", "-mllvm -amdgpu-prelink", None),
        Option("define", "C", ""),
        Option("flag", "-mcpu=gfx906", None),
    ]


def test_what_is_unknown_is_said_to_be() -> None:
    assert meaning("define", "MLO_IN_WIDTH") is not None and meaning("define", "MLO_IN_WIDTHS") is None
    assert meaning("flag", "MLO_IN_WIDTH") is None and meaning("define", "-mcumode") is None
    assert written_by(Option("define", "NOBODY", None)) == () and solvers_of("nobody.cl") == []
    assert serves(options_of(b"-DNOBODY=1")) == "unknown"
    assert serves(options_of(b"-DNOBODY=1 -DMLO_IN_WIDTH=7")) == "one shape"
    assert serves(options_of(E4)) == "any shape"
    assert explain(b"nobody.cl.o", E4 + b" -mcpu=gfx1030").serves == "unknown"


@pytest.mark.parametrize(
    ("source", "solver"),
    [
        ("naive_conv.cpp", "ConvDirectNaiveConvFwd"),
        ("MIOpenSoftmax.cl", "Softmax"),
        ("MIOpenConvDirUni.cl", "ConvOclDirectFwd"),
        ("Conv_Winograd_v30_3_1_fp32_f2x3_stride1.s", "ConvBinWinogradRxSf2x3g1"),
        ("Conv_Winograd_Fury_v2_4_1_fp16_fp16acc_f2x3_c16_stride1.s", "ConvWinoFuryRxS"),
        ("conv1x1u.s", "ConvAsm1x1U"),
        ("convolution_forward_implicit_gemm_v6r1_dlops_nchw_kcyx_nkhw.cpp", "ConvCkIgemmFwdV6r1DlopsNchw"),
    ],
)
def test_solvers_of_a_source(source: str, solver: str) -> None:
    assert solver in {name for _, classes in solvers_of(source) for name in classes}


def test_live_dead_epoch_and_spelling() -> None:
    found = explain(NAME, E4 + b" -mcpu=gfx1030")
    assert (found.epoch, found.spelled, found.other) == ("E4", 1, E4 * 2 + b" -mcpu=gfx1030")
    assert not found.releases["6.4"] and [r.code for r in found.releases["6.2"]] == ["epoch"]
    twice = explain(NAME, E4 * 2 + b" -mcpu=gfx1030")
    assert twice.spelled == 2 and twice.other == found.args and twice.judged is None
    judged = explain(NAME, E4 + b" -mcpu=gfx1030:xnack-", build=resolve("6.2.2")).judged
    assert judged is not None and {r.code for r in judged} == {"target-id", "epoch"}


def test_what_varies_between_rows(tmp_path: Path, run_cli: Run) -> None:
    tails = (b" -DMLO_IN_WIDTH=7", b" -DMLO_IN_WIDTH=14 -DLITE", b" -DMLO_IN_WIDTH=7 -DLITE")
    rows = [row(NAME, E4 + tail + b" -mcpu=gfx1030") for tail in tails]
    path = make(tmp_path / "gfx1030.kdb", [*rows, row(b"other.cl.o", b" -mcpu=gfx1030")])
    done = run_cli("explain", path, "--row", 2)
    assert done.code == 0 and "2 options among the 3 rows" in done.out
    assert (
        "MLO_IN_WIDTH: 2 values: 7, 14" in done.out
        and "LITE: 1 values: (no value); 1 rows without" in done.out
    )
    assert "k: VGPR 4, SGPR 16, LDS 256" in done.out and "code object version 5" in done.out
    (document,) = json.loads(run_cli("explain", path, "--row", 2, "--json").out)["keys"]
    assert document["object"]["kernels"]["k"]["lds"] == 256 and document["rows_of_source"] == 3
    assert len(json.loads(run_cli("explain", path, "--kernel", "naive", "--json").out)["keys"]) == 3


def test_a_manifest_by_line_and_a_damaged_object(tmp_path: Path, run_cli: Run) -> None:
    manifest = tmp_path / "m.kdbmanifest"
    manifest.write_bytes(
        write_manifest(Manifest(miopen="6.4.3", keys={Key(NAME, E4 + b" -mcpu=gfx1030", "gfx1030"): Note()}))
    )
    (line,) = [
        n for n, text in enumerate(manifest.read_text().splitlines(), 1) if text.strip().startswith("key ")
    ]
    assert f"line {line}: naive_conv.cpp.o" in run_cli("explain", manifest, "--row", line).out
    assert run_cli("explain", manifest).code == 0  # the only key
    assert run_cli("explain", manifest, "--row", line + 1).code == 2
    bad = make(tmp_path / "gfx1030.kdb", [row(NAME, E4 + b" -mcpu=gfx1030", blob=b"BZh9")])
    done = run_cli("explain", bad)
    assert done.code == 0 and "object:    the blob" in done.out


def test_judged_dead_is_exit_code_1(run_cli: Run) -> None:
    args = (E4 + b" -mcpu=gfx1030").decode()
    done = run_cli("explain", NAME.decode(), args, "--miopen", "6.2.2")
    assert done.code == 1 and "judged:    epoch:" in done.out
    done = run_cli("explain", NAME.decode(), args, "--miopen", "6.4.3")
    assert done.code == 0 and "judged:    can be asked for" in done.out


@pytest.mark.parametrize(
    ("name", "args", "says"),
    [
        (b"naive_conv.cpp.o", b" -DS='a' -mcpu=gfx1030", "quote"),
        (b"naive_conv.cpp", b" -mcpu=gfx1030", "no-dot-o"),
        (b"naive_conv.cpp.o", b"", "no-mcpu"),
        (b"", b"", "no-dot-o"),
        (b"nobody.cl.o", b" -mcpu=gfx1030", "no-source"),
        (b"../../etc/passwd.o", b" -mcpu=gfx1030", "no-source"),
        (b"\xff\xfe.cl.o", b" -DA=\xff\x00\x1b[2J -mcpu=gfx1030", "no-source"),
        (b"naive_conv.cpp.o", b" -DA=" + b"x" * 1_000_000 + b" -mcpu=gfx1030", "live in"),
        (b"naive_conv.cpp.o", b" -DA=1" * 150_000 + b" -mcpu=gfx1030", "live in"),
        (b"naive_conv.cpp.o", b" -mllvm", "unknown"),
        (b"naive_conv.cpp.o", b"-mcpu=", "no-mcpu"),
        (b"x.o", b" " * 1000, "no-source"),
    ],
)
def test_bad_keys_are_explained(name: bytes, args: bytes, says: str, run_cli: Run) -> None:
    given_args = os.fsdecode(args.replace(b"\0", b"\1"))
    for more in ([], ["-v"], ["--json"]):
        done = run_cli("explain", *more, "--", os.fsdecode(name), given_args)
        assert (done.code, done.err) == (0, ""), done.err
        assert "\x1b" not in done.out and (says in done.out or "--json" in more)


def test_bad_usage_is_one_line(tmp_path: Path, run_cli: Run) -> None:
    good = make(tmp_path / "a.kdb", [row(), row(b"b.cl.o")])
    for arguments in (
        [tmp_path / "none.kdb"],
        ["naive_conv.cpp.o"],
        [good],
        [good, "--row", 9],
        [good, "--kernel", "nothing"],
        ["a.cl.o", " -DX=1", "--row", 1],
        [good, "--row", 1, "--miopen", "1.0"],
        [Path(__file__)],
    ):
        done = run_cli("explain", *arguments)
        assert done.code == 2 and done.err.count("\n") == 1 and done.out == "", done.err
    assert run_cli("explain", good, "--row", "x").code == 2


@given(st.binary(max_size=80), st.binary(max_size=300))
def test_any_bytes_can_be_explained(name: bytes, args: bytes) -> None:
    found = explain(name, args, "", [args, b""])
    assert found.rows == 2 and bool(found.options) == bool(args.strip(b" "))


def test_real_keys_have_few_unknown_options(shared: Path) -> None:
    """Of the options of 20,000 real keys at least four in five are known by meaning."""
    known = total = 0
    with lzma.open(shared / "data" / "keys.gfx1030-sample.tsv.xz") as file:
        for number, line in enumerate(file):
            if number % 20 == 0:
                found = options_of(line.rstrip(b"\n").split(b"\t", 1)[1])
                total += len(found)
                known += sum(meaning(o.kind, o.name) is not None for o in found)
    assert known / total > 0.8


def test_damaged_files_bring_nothing_but_one_line(tmp_path: Path) -> None:
    good = make(tmp_path / "good.kdb", [row(NAME, E4 + b" -mcpu=gfx1030", code_object())])

    def check(path: Path) -> None:
        assert main(["explain", str(path), "--kernel", "."]) in (0, 1, 2)

    assert survives(check, mutations(good.read_bytes(), 250, 5), tmp_path / "bad", ".kdb").accepted == 250


def test_a_source_is_read_once_for_all_its_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 keys of one source took minutes: each read the options of all."""
    calls = 0

    def counted(rows: Sequence[bytes]) -> list[Varying]:
        nonlocal calls
        calls += 1
        return vary(rows)

    monkeypatch.setattr("kdbtool.explain.key.vary", counted)
    rows = tuple(b" -DX=%d -mcpu=gfx1030" % n for n in range(20))
    for args in rows:
        (varying,) = explain(b"counted.cpp.o", args, "gfx1030", rows).varying
        assert varying.count == 20
    assert calls == 1


@pytest.mark.parametrize(
    ("name", "args", "served"),
    [
        ("MIOpenNeuron.cl.o", " -DLITE -DMIOPEN_READ_UNIT=4 -DMIOPEN_NRN_OP_ID=3", "any shape"),
        ("MIOpenBatchNormFwdInferSpatial.cl.o", " -DMIO_LAYOUT_NHWC=0 -DMIO_BN_GRP0=1", "any shape"),
        ("MIOpenLRNFwd.cl.o", " -DMLO_LRN_DO_SCALE=1 -DMLO_LRN_N_INPUTS=64", "one shape"),
    ],
)
def test_a_mode_or_a_layout_is_no_shape(name: str, args: str, served: str) -> None:
    assert explain(name.encode(), f"{args} -mcpu=gfx1030".encode()).serves == served
