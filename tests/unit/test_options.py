"""The allow-list of compiler options: what MIOpen writes passes, everything else is refused by name."""

from __future__ import annotations

import lzma
import re
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdbtool.rebuild.options import MAX_ARGS, MAX_OPTIONS, OptionRefused, accept

HOSTILE = [
    "-include",
    "-include/etc/passwd",
    "--include=x.h",
    "-imacros",
    "-I",
    "-I/",
    "-I.",
    "-isystem",
    "-iquote",
    "-idirafter/x",
    "-isysroot",
    "--sysroot=/",
    "-B/tmp",
    "-fplugin=x.so",
    "-fpass-plugin=x.so",
    "-fplugin-arg-x",
    "-Xclang",
    "-load",
    "-Xclang -load -Xclang x.so",
    "-Xassembler",
    "-Xlinker",
    "-Xpreprocessor",
    "-Xarch_device",
    "@file",
    "@/etc/passwd",
    "-o",
    "-oout",
    "-o/tmp/x",
    "--output=x",
    "-specs=x",
    "--config",
    "--config=x",
    "-x",
    "-xc",
    "-E",
    "-S",
    "-M",
    "-MD",
    "-MFx",
    "-save-temps",
    "-ftime-trace=/x",
    "-fdiagnostics-log-file",
    "-fprofile-use=/etc/passwd",
    "-fmodules-cache-path=/x",
    "-fcrash-diagnostics-dir=/x",
    "-working-directory=/",
    "-resource-dir",
    "-Wl,-rpath,/x",
    "-Wa,-o,x",
    "-Wa,-I/x",
    "-Wa,-defsym,A=1,-o,x",
    "-Wa,-defsym,A=B",
    "-Wa,-defsym,A",
    "-Wa,-defsym,A=1;rm",
    "-Wp,-include,x",
    "-mllvm",
    "-mllvm -load=x.so",
    "-mllvm -o=x",
    "-mllvm @x",
    "-mcode-object-version=5",
    "-mcpu=gfx906",
    "-mcpu=gfx1030:xnack-",
    "-mcpu=gfx1030,x",
    "-mcpu=/x",
    "-mcpu=",
    "-mwavefrontsize32",
    "-march=native",
    "-std=/x",
    "--std=c++98x",
    "-std=gnu++17",
    "-O4",
    "-Ofast",
    "-O",
    "-U",
    "-UFOO",
    "-D",
    "-D=1",
    "-D1A=1",
    "-DA(x)=x",
    '-DA="/etc/passwd"',
    "-DA=<stdio.h>",
    "-DA=/etc/passwd",
    "-DA=a/b",
    "-DA=a\\b",
    "-DA=$(id)",
    "-DA=`id`",
    "-DA=;id",
    "-DA=|id",
    "-DA=&id",
    "-DA=x>y",
    "-DA='x'",
    "-DA=(1)",
    "-DA=1,",
    "-DA=,1",
    "-DA=a:b",
    "-DA=~",
    "-DA=*",
    "-DA=#",
    "-DA=1=2",
    "-DA=@x",
    "-DA=\t1",
    "-DA=1\n",
    "-DA=1\r-o",
    "-DA=1\0",
    "-DA=\x7f",
    "-DA=é",
    "-D\u0410=1",
    "-DA=\u00a01",
    "file.c",
    "/etc/passwd",
    "../x",
    "-",
    "--",
    "-DA=1\x0b-o",
    "-v",
    "-###",
    "--help",
    "-Wno-everything",
    "-fno-crash-diagnostics",
]


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("around", ["{} -mcpu=gfx1030", " -DA=1 {} -mcpu=gfx1030", "{}"])
def test_hostile_option_is_refused(hostile: str, around: str) -> None:
    with pytest.raises(OptionRefused):
        accept(around.format(hostile).encode(), "gfx1030")


@pytest.mark.parametrize(
    "good",
    [
        "-DMLO_READ_TYPE=_FLOAT4",
        "-DCFF_BACKWARD",
        "-DOP_TYPE=ReduceCalculationOp_t::Sum",
        "-DCK_PARAM_BM10BN10ThreadClusterBM10Xs=4,2",
        "-DA=-1",
        "-DA=1.5e-3f",
        "-DA=",
        "-Wa,-defsym,ROCM_METADATA_VERSION=5",
        "-Wa,-defsym,pad_h=-1",
        "-Wa,-defsym,mask=0xff",
        "-mcumode",
        "-mwavefrontsize64",
        "--std=c++14",
        "-std=c++17",
        "-cl-denorms-are-zero",
        "-cl-std=CL2.0",
        "-O3",
        "-mllvm -amdgpu-early-inline-all=true",
        "-mllvm --amdgpu-spill-vgpr-to-agpr=0",
    ],
)
def test_option_of_miopen_is_accepted(good: str) -> None:
    assert accept(f" {good}  -mcpu=gfx1030".encode(), "gfx1030") == (*good.split(), "-mcpu=gfx1030")


def test_blanks_and_repetition_are_kept_apart() -> None:
    assert accept(b"  -DA=1   -DA=1 ", "gfx906") == ("-DA=1", "-DA=1")
    assert accept(b"", "gfx906") == ()


def test_refusal_names_the_option_and_is_short() -> None:
    with pytest.raises(OptionRefused, match=r"-fplugin=x\.so") as caught:
        accept(b"-DA=1 -fplugin=x.so", "gfx906")
    assert caught.value.option == b"-fplugin=x.so"
    with pytest.raises(OptionRefused) as long:
        accept(b"-X" * 1000, "gfx906")
    assert len(str(long.value)) < 200


def test_size_is_bounded() -> None:
    with pytest.raises(OptionRefused, match="bytes"):
        accept(b"-DA=" + b"1" * 3000, "gfx906")
    with pytest.raises(OptionRefused, match="bytes long"):
        accept(b" -DA=1" * (MAX_ARGS // 6 + 1), "gfx906")
    with pytest.raises(OptionRefused, match="options"):
        accept(b" -DA" * (MAX_OPTIONS + 1), "gfx906")
    with pytest.raises(OptionRefused):
        accept(b"x" * 10_000_000, "gfx906")


def _harmless(words: tuple[str, ...]) -> None:
    for word in words:
        assert word.isascii() and word.isprintable() and " " not in word
        assert word.startswith("-") and not word.startswith("-o")
        assert not set(word) & set("/\\@\"'<>;|&$`()#*?[]{}~!^%")


@given(st.lists(st.sampled_from([*HOSTILE, "-DA=1", "-mcumode", "", "-mllvm", "-O3"]), max_size=5))
def test_nothing_accepted_can_name_a_file(words: list[str]) -> None:
    try:
        accepted = accept(" ".join(words).encode(), "gfx1030")
    except OptionRefused:
        return
    _harmless(accepted)


@given(
    st.one_of(
        st.binary(max_size=60), st.text(max_size=40).map(lambda t: ("-DA=" + t).encode("utf-8", "replace"))
    )
)
def test_any_bytes_are_accepted_or_refused(data: bytes) -> None:
    try:
        accepted = accept(data, "gfx1030")
    except OptionRefused:
        return
    _harmless(accepted)
    assert [word.encode() for word in accepted] == [word for word in data.split(b" ") if word]


@given(st.from_regex(r"-D[A-Z_]{1,8}=[ -~]{0,12}", fullmatch=True))
def test_a_define_cannot_smuggle(option: str) -> None:
    try:
        _harmless(accept(option.encode(), "gfx1030"))
    except OptionRefused:
        return


def test_every_key_that_miopen_6_4_3_asked_for_passes(shared: Path) -> None:
    with lzma.open(shared / "data" / "keys.gfx1030-sample.tsv.xz") as file:
        count = 0
        for line in file:
            args = line.rstrip(b"\n").split(b"\t", 1)[1]
            assert accept(args, "gfx1030")[-1] == "-mcpu=gfx1030"
            count += 1
    assert count == 20_000


def test_every_sample_option_string_passes(shared: Path) -> None:
    count = 0
    for path in sorted((shared / "reference" / "sample-options").glob("*.txt")):
        text = path.read_text("utf-8")
        if ".mlir.o" in text:  # options of another tool
            continue
        for line in text.splitlines():
            quoted = re.match(r'"([^"]*)"', line)
            if not quoted:
                continue
            args = quoted[1]
            match = re.search(r"-mcpu=(\S+)$", args)
            assert match, (path.name, line)
            if ":" in match[1]:
                with pytest.raises(OptionRefused, match="-mcpu"):
                    accept(args.encode(), match[1].split(":")[0])
            else:
                accept(args.encode(), match[1])
            count += 1
    assert count > 100


def test_rows_of_a_published_kdb(shared: Path) -> None:
    """320 of the 321 have a target id in -mcpu, which MIOpen never asks for."""
    database = sqlite3.connect(f"file:{shared / 'data' / 'gfx942.kdb'}?mode=ro&immutable=1", uri=True)
    try:
        rows = database.execute("SELECT kernel_args FROM kern_db").fetchall()
    finally:
        database.close()
    refused = 0
    for (args,) in rows:
        try:
            accept(args.encode(), "gfx942")
        except OptionRefused as error:
            assert error.option == b"-mcpu=gfx942:xnack-"
            refused += 1
    assert (len(rows), refused) == (321, 320)
