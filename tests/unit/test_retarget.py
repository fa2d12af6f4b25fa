"""`kdbtool retarget`: only rows move that cannot follow the device, the rest stays with its reasons."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdbtool.manifest import Asker, Hashes, Key, Manifest, Note, Problem, read_manifest, write_manifest
from kdbtool.manifest.retarget import judge, retarget
from kdbtool.miopen.finddb import FindSolution
from kdbtool.reasons import Reason

OLD, NEW = "gfx1030", "gfx906"
PROBLEM = "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP32-F"


def key(name: str, args: str, arch: str = OLD, state: str = "build") -> Key:
    return Key(f"{name}.o".encode(), f"{args} -mcpu={arch}".encode(), arch, state)


MOVES = key("naive_conv.cpp", " -DMIOPEN_USE_FP16=0 -DMIOPEN_USE_RNE_BFLOAT16=1")
SAME = key("MIOpenCat.cpp", "")
LEFT = {
    key("conv1x1u.s", " -Wa,-defsym,pad_h=0"): ["arch-source"],
    key("igemm_fwd.s", ""): ["arch-source"],
    key("static_kernel_gridwise_convolution_v4r4.cpp", "-DCK_PARAM_PROBLEM_N=1"): ["arch-source"],
    key("gridwise_convolution_xdlops.cpp", ""): ["arch-source"],
    key("a.mlir", ""): ["arch-source"],
    key("MIOpenX.cl", " -DMIO_BN_GFX103X=1"): ["arch-option"],
    key("MIOpenX.cl", " -DMLO_HW_WAVE_SZ=64"): ["arch-option"],
    key("MIOpenX.cpp", " -DCK_AMD_GPU_GFX1030"): ["arch-option"],
    key("MIOpenX.cpp", " -mwavefrontsize64"): ["arch-option"],
    key("MIOpenX.cpp", " -mcumode -mcpu=gfx1030"): ["arch-option"],
    key("MIOpenX.cl", " -DMLO_GRP_SZ0=64 -DMLO_IN_WIDTH=8"): ["tuned-option"],
    key("MIOpenX.cl", " -DNEVER_SEEN=1"): ["unknown-option"],
    key("MIOpenX.cl", " -DMLO_IN_WIDTH=gfx1030"): ["arch-option"],
    key("MIOpenX.cl", " -O3 -fbad"): ["unknown-option"],
    key("MIOpenX.cl", " -DMLO_GRP_SZ0=64 -DMIO_BN_GFX110X=0 -DODD"): ["arch-option", "tuned-option",
                                                                       "unknown-option"],
    key("MIOpenCat.cpp", " -DA=1", state="asked-unbuilt"): ["asked-unbuilt", "unknown-option"],
    Key(b"MIOpenCat.cpp", b" -mcpu=gfx1030", OLD): ["no-dot-o"],
    Key(b"MIOpenCat.cpp.o", b" -DX=1", OLD): ["no-mcpu"],
    Key(b"MIOpenCat.cpp.o", b" -mcpu=gfx1031", OLD): ["foreign-mcpu"],
    Key(b"MIOpenCat.cpp.o", b" -mcpu=gfx1030:xnack-", OLD): ["target-id"],
    Key(b"MIOpenCat.cpp.o", b" -mcpu=gfx1030", ""): ["foreign-mcpu"],
    Key(b"\xff\x00.o", b"\xff -mcpu=gfx1030", OLD): ["no-dot-o", "unknown-option"],
}  # fmt: skip


@pytest.mark.parametrize(("row", "reasons"), LEFT.items(), ids=range(len(LEFT)))
def test_what_may_follow_the_device_stays(row: Key, reasons: list[str]) -> None:
    assert [one.code for one in judge(row)[0]] == reasons
    done = retarget(Manifest(keys={row: Note()}), NEW)
    assert not done.manifest.keys and [one.key for one in done.left] == [row]


def test_what_moves_changes_its_arch_alone() -> None:
    there = key("MIOpenCat.cpp", "", NEW)
    manifest = Manifest(
        miopen="6.4.3", sources="a" * 64, origins={"here"}, find_db="b" * 64, profile={"cu": "36"},
        keys={MOVES: Note(5, ("# mine",)), SAME: Note(), there: Note(), next(iter(LEFT)): Note()},
        hashes={"naive_conv.cpp": Hashes("c" * 64), "conv1x1u.s": Hashes("d" * 64)},
        blocks={("build", MOVES.name): Note(3, ("# block",)), ("build", b"conv1x1u.s.o"): Note()},
        problems={PROBLEM: Problem(Note(9, ("# p",)), [FindSolution("S", "1", "0", "A", False)], {"S": "1"})},
        asked_by={MOVES: {Asker("S", PROBLEM)}},
    )  # fmt: skip
    before = write_manifest(manifest)
    done = retarget(manifest, NEW)
    assert write_manifest(manifest) == before
    out = done.manifest
    moved = Key(MOVES.name, MOVES.args.replace(b"gfx1030", b"gfx906"), NEW)
    assert set(out.keys) == {moved, there} and out.keys[moved].comments == ("# mine",)
    assert (done.rows, done.moved, done.there, done.twins, len(done.left)) == (4, 2, 1, 1, 1)
    assert (out.miopen, out.sources, list(out.hashes)) == ("6.4.3", "a" * 64, ["naive_conv.cpp"])
    assert list(out.blocks) == [("build", MOVES.name)]
    assert out.problems[PROBLEM] == Problem(Note(9, ("# p",)))
    assert not out.asked_by and not out.profile and out.find_db is None
    assert len(done.notes) == 3
    assert any(re.match(r"moved from gfx1030 to gfx906, not asked for there, by", one) for one in out.origins)


WORDS = st.lists(
    st.sampled_from(["", " -DMIOPEN_USE_FP16=1", "  -DMLO_IN_WIDTH=8", " -O3", " -DX", " -DMLO_GRP_SZ0=1",
                     " -mcumode"]),
    max_size=4,
).map("".join)  # fmt: skip
KEYS = st.builds(key, st.sampled_from(["naive_conv.cpp", "a.cl", "b.s"]), WORDS, st.sampled_from([OLD, NEW]))


@given(st.sets(KEYS, max_size=12))
def test_there_and_back_is_what_moved(keys: set[Key]) -> None:
    done = retarget(Manifest(keys={one: Note() for one in keys}), NEW)
    assert done.rows == done.moved + done.there + len(done.left) == len(keys)
    assert len(done.manifest.keys) == done.moved + done.there - done.twins
    assert done.counted.total() == len(done.left)
    assert all(one.arch == NEW and one.args.endswith(b"-mcpu=gfx906") for one in done.manifest.keys)
    only_old = {one for one in keys if one.arch == OLD and not judge(one)[0]}
    moved = retarget(Manifest(keys={one: Note() for one in only_old}), NEW).manifest
    assert set(retarget(moved, OLD).manifest.keys) == only_old
    assert set(moved.keys) <= set(done.manifest.keys)


def written(path: Path, *keys: Key) -> Path:
    path.write_bytes(write_manifest(Manifest(keys={one: Note() for one in keys})))
    return path


def test_exit_codes_and_account(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "out"
    ended = run_cli("retarget", written(tmp_path / "a", MOVES), "--arch", "gfx906:60", "-o", out)
    assert (ended.code, ended.out) == (0, "") and "1 moved to gfx906" in ended.err
    assert [one.arch for one in read_manifest(out).keys] == [NEW]
    some = [one for one in LEFT if one.arch and one.name.isascii()]
    both = written(tmp_path / "b", MOVES, *some)
    assert run_cli("retarget", both, "--arch", NEW, "-o", out).code == 2  # it exists
    ended = run_cli("retarget", both, "--arch", NEW, "-o", out, "--force", "-v")
    assert ended.code == 1 and "left: arch-source" in ended.err
    assert f"{len(some) + 1} rows in" in ended.err and ended.err.count("\nleft: ") == len(some)
    ended = run_cli("retarget", both, "--arch", NEW, "-o", out, "--force", "--json")
    account = json.loads(ended.out)
    assert (ended.code, ended.err, account["moved"], len(account["left"])) == (1, "", 1, len(some))
    assert sum(one["counted"] for one in account["reasons"].values()) == len(some)
    for keys, note in (((), "the input has no row"), (some[:1], "nothing can be moved")):
        ended = run_cli("retarget", written(tmp_path / "c", *keys), "--arch", NEW, "-o", out, "--force")
        assert ended.code == (1 if keys else 0) and note in ended.err
        assert not read_manifest(out).keys


@pytest.mark.parametrize(
    "words",
    [
        (), ("--arch", "all"), ("--arch", "gfx906", "--arch", "gfx1030"), ("--arch", "volta"), ("--arch", ""),
        ("--arch", "gfx906:xnack-x"), ("--arch", "gfx999"),
    ],
)  # fmt: skip
def test_bad_usage_is_one_line(words: tuple[str, ...], run_cli: Callable[..., Any], tmp_path: Path) -> None:
    ended = run_cli("retarget", written(tmp_path / "m", MOVES), *words, "-o", tmp_path / "out")
    assert ended.code == 2 and ended.err.count("\n") == 1 and not (tmp_path / "out").exists()


def test_what_is_no_manifest_is_one_line(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no manifest\n")
    for bad in (tmp_path / "text", tmp_path / "none", tmp_path):
        ended = run_cli("retarget", bad, "--arch", NEW, "-o", tmp_path / "out")
        assert ended.code == 2 and ended.err.count("\n") == 1 and not (tmp_path / "out").exists()


def test_no_reason_is_left_without_a_row() -> None:
    seen = {code for codes in LEFT.values() for code in codes}
    assert {Reason.ARCH_SOURCE.code, Reason.ARCH_OPTION.code, Reason.TUNED_OPTION.code} <= seen
