"""MIOpen releases: which kernels each has, and which rows each can ask for."""

from __future__ import annotations

import lzma
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kdbtool.errors import KdbtoolError
from kdbtool.miopen.liveness import judge, repair
from kdbtool.miopen.versions import by_miopen_version, kernel_lists, known_releases, resolve
from kdbtool.reasons import Reason

E1 = (
    b" -DMIOPEN_USE_FP16=0 -DMIOPEN_USE_FP32=1 -DMIOPEN_USE_INT8=0 -DMIOPEN_USE_INT8x4=0"
    b" -DMIOPEN_USE_BFP16=0 -DMIOPEN_USE_INT32=0 -DMIOPEN_USE_RNE_BFLOAT16=1"
)
E4 = (
    b" -DMIOPEN_USE_FP16=0 -DMIOPEN_USE_FP16x4=0 -DMIOPEN_USE_FP16x8=0 -DMIOPEN_USE_FP32=1"
    b" -DMIOPEN_USE_INT8=0 -DMIOPEN_USE_BFP16=0 -DMIOPEN_USE_INT32=0 -DMIOPEN_USE_RNE_BFLOAT16=1"
    b" -DMIOPEN_FP8_IEEE_EXPONENT_BIAS=0 -DMIOPEN_FP8_CLIPPING=1"
)
E3 = E4.replace(b"BIAS=0", b"BIAS=1")
CPU = b" -mcpu=gfx1030"
NAIVE = b"naive_conv.cpp.o"


def reasons(
    name: bytes, args: bytes, version: str | None = "6.4.3", arch: str | None = "gfx1030"
) -> list[str]:
    return [r.code for r in judge(name, args, arch, resolve(version) if version else None)]


@pytest.mark.parametrize(
    ("version", "total", "cpp", "cl"),
    [
        ("5.0", 3862, 43, 50),
        ("5.2.3", 3883, 63, 51),
        ("5.5.1", 4083, 63, 51),
        ("5.7", 4926, 63, 52),
        ("6.0.2", 4930, 67, 51),
        ("rocm-6.2.2", 4936, 72, 51),
        ("6.3", 4941, 76, 52),
        ("develop", 4946, 82, 51),
        ("6.4.3", 133, 82, 51),
        ("7.2.4", 130, 88, 42),
    ],
)
def test_the_kernel_lists_are_those_of_the_reference(version: str, total: int, cpp: int, cl: int) -> None:
    kernels = resolve(version).kernels
    assert len(kernels) == total
    assert sum(k.endswith(".cpp") for k in kernels) == cpp
    assert sum(k.endswith(".cl") for k in kernels) == cl


def test_a_debian_list_is_said_to_be_one() -> None:
    build = resolve("6.4.3")
    assert (build.rocm, build.version, build.distributor) == ("6.4.3", "3.4.0", "Debian")
    assert "Debian's 6.4.3 (no assembly)" in build.label
    assert "approximation" in resolve("develop").label


@pytest.mark.parametrize("text", ["9.9", "7.0", "", "6", "6.4.3.1", "six", "v6.4", "6.4.3\n", "../6.4"])
def test_an_unknown_version_is_one_line_that_names_the_known_ones(text: str) -> None:
    with pytest.raises(KdbtoolError) as caught:
        resolve(text)
    line = caught.value.line()
    assert caught.value.exit_code == 2 and "\n" not in line
    if "/" not in text:
        assert all(release in line for release in known_releases())


def test_a_librarys_own_version_leads_to_its_release() -> None:
    found = {v: by_miopen_version(v) for v in ("2.19.0", "3.4.0", "3.5.1", "9.0.0")}
    assert [b.rocm if b else None for b in found.values()] == ["5.5", "6.4", "7.2", None]


def test_the_committed_lists_are_those_that_the_script_makes(shared: Path, tmp_path: Path) -> None:
    repo = Path(__file__).parents[2]
    script = tmp_path / "scripts" / "update-kernel-lists"
    script.parent.mkdir()
    for name in ("update-kernel-lists", "debian-headers.json"):
        (script.parent / name).write_bytes((repo / "scripts" / name).read_bytes())
    (tmp_path / "kdbtool" / "miopen").mkdir(parents=True)
    lists = [shared / "reference" / f"kernel{s}-by-version.json.xz" for s in ("s", "-includes")]
    subprocess.run([sys.executable, script, *lists], check=True, timeout=60)
    files = list((tmp_path / "kdbtool" / "miopen" / "data").iterdir())
    assert len(files) == 3
    for made in files:
        ours = (repo / "kdbtool" / "miopen" / "data" / made.name).read_bytes()
        unpack = lzma.decompress if made.suffix == ".xz" else bytes
        assert unpack(made.read_bytes()) == unpack(ours)
    assert len(kernel_lists()) == 15


@pytest.mark.parametrize(
    ("name", "args", "want"),
    [
        (NAIVE, E4 + CPU, []),
        (NAIVE, E4 + E4 + CPU, []),
        (NAIVE, E4 + b" -DMIOPEN_USE_FP64=1" + CPU, []),
        (NAIVE, E4 * 3 + CPU, ["epoch"]),
        (NAIVE, E3 + CPU, ["epoch"]),
        (NAIVE, E4 + E3 + CPU, ["epoch"]),
        (NAIVE, E1 + CPU, ["epoch"]),
        (NAIVE, E4.replace(b"FP32=1", b"FP32=2") + CPU, ["epoch"]),
        (NAIVE[:-2], E4, ["no-dot-o", "no-mcpu"]),
        (NAIVE, E4 + b" -mcpu=gfx1030:xnack-", ["target-id"]),
        (NAIVE, E4 + b" -mcpu=gfx906:xnack-", ["target-id", "foreign-mcpu"]),
        (NAIVE, E4 + b" -mcpu=gfx906", ["foreign-mcpu"]),
        (NAIVE, E4 + CPU + b" ", ["no-mcpu"]),
        (NAIVE, E4 + CPU + b" -DX", ["no-mcpu"]),
        (NAIVE, E4 + b" -DS='a'" + CPU, ["quote"]),
        (b"MIOpenCat.cpp.o", CPU, []),
        (b"MIOpenCat.cpp.o", b"-mcpu=gfx1030", ["no-mcpu"]),  # MIOpen always puts a space in front
        (b"conv3x3.s.o", b"-Wa,-defsym,x=1" + CPU, ["no-source"]),
        (b"../naive_conv.cpp.o", E4 + CPU, ["no-source"]),
        (b"\xff.o", b"\xff", ["no-mcpu", "no-source"]),
        (b"", b"", ["no-dot-o", "no-mcpu", "no-source"]),
        (b".o", CPU, ["no-source"]),
    ],
)
def test_a_row_carries_all_its_reasons_in_their_order(name: bytes, args: bytes, want: list[str]) -> None:
    assert reasons(name, args) == want


def test_short_lists_of_other_kernels_are_no_epoch() -> None:
    args = b"-DMIOPEN_USE_FP16=0 -DMIOPEN_USE_FP32=1 -DMIOPEN_USE_FPMIX=0 -DMIO_BN_GRP0=1" + CPU
    for version in ("5.0", "6.0", "6.4.3"):
        assert reasons(b"MIOpenBatchNormFwdInferSpatial.cl.o", args, version) == []


def test_every_key_that_6_4_3_asked_for_is_live_in_it_and_dead_in_6_2(shared: Path) -> None:
    with lzma.open(shared / "data" / "keys.gfx1030-sample.tsv.xz") as file:
        rows = [line.rstrip(b"\n").split(b"\t") for line in file]
    new, old = resolve("6.4.3"), resolve("6.2.2")
    assert Counter(tuple(judge(n, a, "gfx1030", new)) for n, a in rows) == {(): 20000}
    assert Counter(tuple(judge(n, a, "gfx1030", old)) for n, a in rows) == {(Reason.EPOCH,): 19969, (): 31}


def test_every_observed_sample_of_6_4_3_is_live_in_it(shared: Path) -> None:
    build, count = resolve("6.4.3"), 0
    for path in sorted((shared / "reference" / "sample-options").glob("observed-6.4.3-*.txt")):
        text = path.read_bytes()
        name = re.search(rb"# kernel_name: (\S+)", text)
        assert name
        for args in re.findall(rb'^"(.*)"$', text, re.MULTILINE):
            assert judge(name[1], args, None, build) == [], (path.name, args)
            count += 1
    assert count > 100


@pytest.mark.parametrize(
    ("name", "args", "arch", "want"),
    [
        (b"a.cpp.o", b"x -mcpu=gfx90a:sramecc+:xnack-", "gfx90a", (b"a.cpp.o", b"x -mcpu=gfx90a")),
        (b"a.cpp", b"x", "gfx1030", (b"a.cpp.o", b"x -mcpu=gfx1030")),
        (b"a.cpp", b"x", None, (b"a.cpp.o", b"x")),
        (b"a.mlir", b"x", "gfx1030", (b"a.mlir.o", b"x")),
        (b"a.cpp.o", b"x -mcpu=gfx906", "gfx1030", (b"a.cpp.o", b"x -mcpu=gfx906")),
        (b"a.cpp.o", b"-mcpu=gfx1030 x", "gfx1030", (b"a.cpp.o", b"-mcpu=gfx1030 x")),
        (b"a.cpp.o", b"x -mcpu=gfx1030 y", "gfx1030", (b"a.cpp.o", b"x -mcpu=gfx1030 y")),
        (b"readme.txt", b"x", "gfx1030", (b"readme.txt", b"x")),
        (b"../a.cpp", b"x", "gfx1030", (b"../a.cpp", b"x")),
        (b"a.cpp.o", b"x -mcpu=:", "gfx1030", (b"a.cpp.o", b"x -mcpu=:")),
    ],
)
def test_repair_changes_the_spelling_of_name_and_mcpu_alone(
    name: bytes, args: bytes, arch: str | None, want: tuple[bytes, bytes]
) -> None:
    assert repair(name, args, arch) == want
