"""What a library says of itself, and that nothing is claimed which it does not say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest
from support.small_library import BANNER, KERNELS, library

from kdbtool.miopen.config import config_beside
from kdbtool.miopen.difference import compare
from kdbtool.miopen.installed import inspect
from kdbtool.miopen.liveness import judge
from kdbtool.miopen.sources import from_library
from kdbtool.miopen.versions import resolve
from kdbtool.reasons import Reason

OFFLINE = """
extern int hipModuleLoad(void); int use(void) { return hipModuleLoad(); }
const char a[] = "\\0/usr/bin/clang++-21\\0/build/x/clang-21\\0 /not/a/text/clang";
const char b[] = "\\0share/miopen/db\\0HIP.3_4_0_\\0~/.config/miopen/\\0~/.cache/miopen/\\0.db.txt\\0kern_db";
"""
RTC = """
extern int hiprtcCompileProgram(void), amd_comgr_do_action(void), hipInit(void);
int use(void) { return hiprtcCompileProgram() + amd_comgr_do_action() + hipInit(); }
const char b[] = "\\0/usr/share/miopen/db\\0HIP.3_4_0_abc1234\\0~/.cache/miopen/";
const char c[] = "\\0Missing system database file: ";
"""
CONFIG = """
#define HIP_PACKAGE_VERSION_MAJOR 6
#define HIP_PACKAGE_VERSION_MINOR 4
#define HIP_PACKAGE_VERSION_PATCH 43484
#define MIOPEN_USE_RNE_BFLOAT16 1
#define MIOPEN_FP8_IEEE_EXPONENT_BIAS 1
#define MIOPEN_FP8_CLIPPING {clipping}
"""
VERSION = "#define MIOPEN_VERSION_MAJOR 3\n#define MIOPEN_VERSION_MINOR 4\n#define MIOPEN_VERSION_PATCH 0\n"
E4 = (
    b" -DMIOPEN_USE_FP16=0 -DMIOPEN_USE_FP16x4=0 -DMIOPEN_USE_FP16x8=0 -DMIOPEN_USE_FP32=1"
    b" -DMIOPEN_USE_INT8=0 -DMIOPEN_USE_BFP16=0 -DMIOPEN_USE_INT32=0 -DMIOPEN_USE_RNE_BFLOAT16=1"
    b" -DMIOPEN_FP8_IEEE_EXPONENT_BIAS=0 -DMIOPEN_FP8_CLIPPING=1 -mcpu=gfx1030"
)


class Result(Protocol):
    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def cc() -> str:
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found is None:
        pytest.skip("no C compiler")
    return found


def facts(path: Path) -> dict[str, str | None]:
    found = inspect(path).facts
    assert all(fact.how for fact in found)
    return {fact.name: fact.value for fact in found}


def installed(cc: str, prefix: Path, extra: str) -> Path:
    (prefix / "lib").mkdir(parents=True)
    return library(cc, prefix / "lib", extra=extra)


def test_a_library_that_starts_compilers(cc: str, tmp_path: Path) -> None:
    path = installed(cc, tmp_path / "usr", OFFLINE)
    found = facts(path)
    assert found["version"] == "3.4.0" and found["rocm"] == "6.4" and found["hip"] == "6.4.43484"
    assert found["compiles"] == "all by compilers that it starts"
    assert found["compilers"] == "/build/x/clang-21, /usr/bin/clang++-21"
    assert found["system databases in"] == str(tmp_path / "usr/share/miopen/db")
    assert found["user databases in"] == "~/.config/miopen/"
    assert found["kernel cache in"] == "~/.cache/miopen/3.4.0."
    assert str(found["system databases"]).startswith("built with MIOPEN_DISABLE_SYSDB")
    assert found["perf-db"] == "text (.db.txt)" and found["sqlite"] == "static"
    assert found["MIOPEN_FP8_IEEE_EXPONENT_BIAS"] == "0"
    assert "assumed" in {f.name: f.how for f in inspect(path).facts}["MIOPEN_FP8_IEEE_EXPONENT_BIAS"]


def test_a_library_that_compiles_by_itself(cc: str, tmp_path: Path) -> None:
    found = facts(installed(cc, tmp_path / "usr", RTC))
    assert found["compiles"] == ".cpp by hipRTC, .cl and .s by COMGR"
    assert found["system databases in"] == "/usr/share/miopen/db" and found["system databases"] == "read"
    assert found["kernel cache in"] == "~/.cache/miopen/3.4.0.abc1234"
    assert found["compilers"] is None and found["user databases in"] is None
    assert found["sqlite"] is None and found["perf-db"] is None


def test_what_a_bare_library_does_not_say_is_not_known(cc: str, tmp_path: Path) -> None:
    found = facts(installed(cc, tmp_path / "usr", ""))
    for name in ("compiles", "compilers", "system databases in", "user databases in", "kernel cache in"):
        assert found[name] is None, name


def test_the_config_of_its_own_package_decides_how_keys_are_spelled(cc: str, tmp_path: Path) -> None:
    path = installed(cc, tmp_path / "usr", "")
    include = tmp_path / "usr" / "include" / "miopen"
    include.mkdir(parents=True)
    (include / "version.h").write_text(VERSION)
    (include / "config.h").write_text(CONFIG.format(clipping=1))
    build = resolve(str(path))
    assert build.options["MIOPEN_FP8_IEEE_EXPONENT_BIAS"] == "1" and build.epoch.name == "E4 changed"
    assert judge(b"naive_conv.cpp.o", E4, "gfx1030", build) == [Reason.EPOCH]
    assert judge(b"naive_conv.cpp.o", E4.replace(b"BIAS=0", b"BIAS=1"), "gfx1030", build) == []
    # One of another version, or that says nonsense, decides nothing.
    for version, config in (
        (VERSION.replace("MINOR 4", "MINOR 5"), CONFIG.format(clipping=1)),
        (VERSION, CONFIG.format(clipping=1).replace("43484", "43485")),
        (VERSION, CONFIG.replace("BIAS 1", "BIAS 7").format(clipping="\x00")),
        ("", ""),
    ):
        (include / "version.h").write_text(version)
        (include / "config.h").write_text(config)
        assert resolve(str(path)).epoch.name == "E4"
    (include / "config.h").unlink()
    (include / "config.h").mkdir()
    assert config_beside(path, "3.4.0", "6.4.43484") is None


def test_two_libraries_are_compared_by_text(cc: str, tmp_path: Path) -> None:
    one = installed(cc, tmp_path / "a", "")
    texts = {
        "MIOPEN_KERNEL_NAIVE_CONV": KERNELS["MIOPEN_KERNEL_NAIVE_CONV"],
        "MIOPEN_KERNEL_MIOPENPOOLING": "__global__ void g() {}\n",
        "MIOPEN_KERNEL_MIOPENCAT": "__global__ void h() {}\n",
        "MIOPEN_KERNEL_STRIDE_ARRAY_INCLUDE": "#pragma once\n// changed\n",
    }
    (tmp_path / "b").mkdir()
    two = library(
        cc, tmp_path / "b", texts, banner=BANNER.replace("3.4.0", "3.5.1").replace("6.4.43484", "7.2.1")
    )
    found = compare(resolve(str(one)), resolve(str(two)), (from_library(one), from_library(two)))
    assert found.renamed == (("MIOpenPooling.cl", ("MIOpenPooling.cpp",)),)
    assert found.added == ("MIOpenCat.cpp",) and found.removed == ()
    assert found.changed == (("naive_conv.cpp", False, True),) and found.same == 0
    assert not found.keys_differ and found.blind == ()
    same = compare(resolve(str(one)), resolve(str(one)), (from_library(one), from_library(one)))
    assert (same.added, same.removed, same.renamed, same.changed, same.same) == ((), (), (), (), 2)


def test_assembly_is_not_called_removed_where_a_list_lacks_it() -> None:
    found = compare(resolve("6.3"), resolve("6.4.3"))
    assert not any(name.endswith(".s") for name in (*found.added, *found.removed))
    assert found.blind[0] == "assembly: Debian's 6.4.3 has none" and found.changed is None
    assert ("MIOpenDropout.cl", ("MIOpenDropoutHIP.cpp",)) in found.renamed  # which 6.3 had already
    assert compare(resolve("6.2"), resolve("6.3")).keys_differ


def test_the_command_describes_and_compares(run_cli: Callable[..., Result], cc: str, tmp_path: Path) -> None:
    path = installed(cc, tmp_path / "usr", OFFLINE)
    shown = run_cli("miopen", path)
    assert "compiles:" in shown.out and "not known" not in shown.out.partition("compilers")[2][:20]
    document = json.loads(run_cli("miopen", path, "--json").out)
    assert document["builds"][0]["miopen"] == "3.4.0"
    assert len(document["builds"][0]["kernels"][0]["source"]) == 64
    assert "difference" in json.loads(run_cli("miopen", "5.5", "5.6", "--json").out)
    shown = run_cli("miopen", "5.5", "5.6")
    assert "kernels renamed: 14" in shown.out and "E2 in both" in shown.out
    assert "naive_conv.cpp" in run_cli("miopen", "6.2", "-v").out
    listed = run_cli("miopen", "--root", "none")
    assert listed.code == 0 and "Debian's 7.2.4" in listed.out


@pytest.mark.parametrize(
    "names", [["9.9"], ["/etc/passwd"], ["/"], ["/no/such.so"], ["6.2", "x"], ["1", "2", "3"]]
)
def test_a_bad_name_is_one_line(run_cli: Callable[..., Result], names: list[str]) -> None:
    result = run_cli("miopen", *names)
    assert result.code == 2 and result.out == "" and result.err.count("\n") == 1


def test_a_name_with_a_line_end_is_printed_escaped(
    run_cli: Callable[..., Result], cc: str, tmp_path: Path
) -> None:
    path = installed(cc, tmp_path / "u\nsr", "").rename(tmp_path / "u\nsr" / "lib" / "lib\x1b[2J\nMIOpen.so")
    shown = run_cli("miopen", path)
    assert shown.code == 0 and "\x1b" not in shown.out and "lib\\x1b[2J\\nMIOpen.so" in shown.out
    assert all(line.startswith((" ", "/")) for line in shown.out.splitlines())
