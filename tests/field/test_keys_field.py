"""Cases from public bug reports about keys; the number is that of the field case."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kdbtool.manifest import Key, Manifest, parse_manifest, write_manifest
from kdbtool.manifest.model import Note
from kdbtool.miopen.keys import collapse, language, source_of
from kdbtool.miopen.liveness import judge, repair
from kdbtool.miopen.problems import format_problem, parse_problem
from kdbtool.miopen.versions import resolve

E3 = (
    b" -DMIOPEN_USE_FP16=0 -DMIOPEN_USE_FP16x4=0 -DMIOPEN_USE_FP16x8=0 -DMIOPEN_USE_FP32=1"
    b" -DMIOPEN_USE_INT8=0 -DMIOPEN_USE_BFP16=0 -DMIOPEN_USE_INT32=0 -DMIOPEN_USE_RNE_BFLOAT16=1"
    b" -DMIOPEN_FP8_IEEE_EXPONENT_BIAS=1 -DMIOPEN_FP8_CLIPPING=1"
)


def codes(name: bytes, args: bytes, arch: str, version: str = "6.2.2") -> list[str]:
    return [reason.code for reason in judge(name, args, arch, resolve(version))]


def kept(key: Key) -> Key:
    """The key after its way through the text."""
    (back,) = parse_manifest(write_manifest(Manifest(keys={key: Note()})), "m").expand()
    return back


def test_008_a_target_id_is_dead_and_repaired_but_never_merged(
    run_cli: Callable[..., Any], tmp_path: Path
) -> None:
    tagged = E3 + b" -mcpu=gfx90a:sramecc+:xnack-"
    assert codes(b"naive_conv.cpp.o", tagged, "gfx90a") == ["target-id"]
    assert repair(b"naive_conv.cpp.o", tagged, "gfx90a") == (b"naive_conv.cpp.o", E3 + b" -mcpu=gfx90a")
    path = tmp_path / "gfx90a.kdb"
    db = sqlite3.connect(path)
    db.execute(
        "CREATE TABLE kern_db(id INTEGER PRIMARY KEY ASC, kernel_name TEXT NOT NULL,"
        " kernel_args TEXT NOT NULL, kernel_blob BLOB NOT NULL,"
        " kernel_hash TEXT NOT NULL, uncompressed_size INT NOT NULL)"
    )
    for number, args in enumerate((tagged, E3 + b" -mcpu=gfx90a")):
        db.execute(
            "INSERT INTO kern_db VALUES (?, 'naive_conv.cpp.o', ?, ?, '', 0)",
            (number, args.decode(), b"blob%d" % number),
        )
    db.commit()
    db.close()
    ended = run_cli("manifest", path, "--miopen", "6.2.2", "--drop", "dead", "--repair", "--json")
    report = json.loads(ended.out)
    assert (report["kept"], report["repaired"]["rows"]) == (1, 0)
    assert report["reasons"]["twin"]["carried"] == 1


def test_010_leading_blanks_of_assembly_options_are_part_of_the_key() -> None:
    args = (
        b" -Wa,-defsym,elements_in_dword=2 -Wa,-defsym,batch_size=256"
        b" -Wa,-defsym,ROCM_METADATA_VERSION=5 -mcpu=gfx908"
    )
    for spelling in (args, b" " + args, args.lstrip()):
        key = Key(b"conv3x3wrw.s.o", spelling, "gfx908")
        assert kept(key) == key
        assert codes(key.name, key.args, "gfx908") == []
    assert language(source_of(b"conv3x3wrw.s.o") or "") == "asm"


def test_011_an_mlir_row_has_no_mcpu_and_no_source() -> None:
    args = b" --operation conv2d --kernel_id 0 --num_cu 60 --arch amdgcn-amd-amdhsa:gfx906:sramecc+:xnack-"
    for version in ("5.7", "6.2.2", "6.4.3"):
        assert codes(b"mlir_gen_igemm_conv2d_v4r4_fwd0.mlir.o", args, "gfx906", version) == ["no-source"]
        assert codes(b"naive_conv.cpp.o", args, "gfx906", version) == ["no-mcpu"]
    key = Key(b"mlir_gen_igemm_conv2d_v4r4_fwd0.mlir.o", args, "gfx906")
    assert kept(key) == key


def test_012_a_kernel_that_the_release_no_longer_has_is_no_source() -> None:
    args = b" -mcpu=gfx1030"
    assert codes(b"MIOpenCol2Im2d.cl.o", args, "gfx1030", "6.4.3") == []
    assert codes(b"MIOpenCol2Im2d.cl.o", args, "gfx1030", "7.2.4") == ["no-source"]


def test_013_repeated_general_options_are_kept_verbatim() -> None:
    args = E3 + E3 + b" -mcpu=gfx1030"
    key = Key(b"naive_conv.cpp.o", args, "gfx1030")
    assert kept(key) == key
    assert codes(key.name, args, "gfx1030") == []
    assert collapse(args) == E3 + b" -mcpu=gfx1030"
    apart = b" -DMIOPEN_USE_FP32=1 -DX=1 -DMIOPEN_USE_FP32=1 -mcpu=gfx1030"
    assert collapse(apart) == apart
    assert kept(Key(b"a.cl.o", apart, "gfx1030")).args == apart


def test_016_a_quote_in_a_key_can_never_be_found() -> None:
    key = Key(b"naive_conv.cpp.o", b" -DS='a' -mcpu=gfx1030", "gfx1030")
    assert codes(key.name, key.args, "gfx1030") == ["quote"]
    assert kept(key) == key


def test_027_problem_keys_come_back_byte_for_byte() -> None:
    for key in (
        "6-256-256-1x1-512-256-256-128-0x0-1x1-1x1-0-NCHW-FP32-W",
        "64-56-56-3x3-64-56-56-32-1x1-1x1-1x1-0-NCHW-FP16-F_g32",
        "3-16-112-112-3x7x7-64-16-56-56-8-1x3x3-1x2x2-1x1x1-0-NCDHW-FP32-F",
        "64-56-56-1x1-64-56-56-32-0x0-1x1-1x1-0-NHWC-NCHW-NHWC-FP16-F",
        "64-8-56-56-1x1x1-64-8-56-56-32-0x0x0-1x1x1-1x1x1-0-NDHWC-NCDHW-NDHWC-BF16-B_g2",
    ):
        assert format_problem(parse_problem(key)) == key


def test_032_wave64_and_cumode_stay_in_a_winograd_key() -> None:
    name = b"Conv_Winograd_Fury_v2_4_1_fp16_fp16acc_f2x3_c16_stride1.s.o"
    args = b"-Wa,-defsym,ROCM_METADATA_VERSION=5 -mcumode -mwavefrontsize64 -mcpu=gfx1150"
    assert codes(name, args, "gfx1150") == []
    (variant,) = Manifest(keys={Key(name, args, "gfx1150"): Note()}).variants()
    assert variant.source == name[:-2].decode()
    assert variant.args_once == b"-Wa,-defsym,ROCM_METADATA_VERSION=5 -mcumode -mwavefrontsize64"
