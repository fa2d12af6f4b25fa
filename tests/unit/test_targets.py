"""kdbtool.targets: the data of every architecture, and what its loader refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdbtool import targets
from kdbtool.codeobject import flags
from kdbtool.errors import KdbtoolError

GOOD = (Path(targets.__file__).parent / "gfx906.toml").read_text()


@pytest.mark.parametrize("arch", targets.known())
def test_data_agrees_with_llvms_tables(arch: str) -> None:
    target = targets.load(arch)
    assert flags.MACH[target.elf_mach] == arch
    assert ("xnack" in target.features) == (arch in flags.XNACK_ARCHS)
    assert ("sramecc" in target.features) == (arch in flags.SRAMECC_ARCHS)
    assert target.wave_size == (32 if target.version >= (10, 0) else 64)
    assert target.cu_unit == ("WGP" if target.version >= (10, 0) else "CU")


def test_machs_are_distinct() -> None:
    machs = [targets.load(a).elf_mach for a in targets.known()]
    assert len(set(machs)) == len(machs) >= 11


def test_known_has_what_the_issue_asks_for() -> None:
    wanted = (
        "gfx900 gfx906 gfx908 gfx90a gfx942 gfx1010 gfx1030 gfx1100 gfx1101 gfx1151 gfx1201 gfx950 gfx1200"
    )
    assert set(wanted.split()) <= set(targets.known())
    assert targets.known()[0] == "gfx900"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("gfx908", "gfx90878"),
        ("gfx90a:110", "gfx90a6e"),
        ("gfx90a", "gfx90a68"),
        ("gfx942", "gfx942130"),
        ("gfx942:228", "gfx942e4"),
        ("gfx942:64", "gfx942_64"),
        ("gfx950", "gfx950100"),
        ("gfx906", "gfx906_60"),
        ("gfx900:56", "gfx900_56"),
        ("gfx1030", "gfx1030_36"),
        ("gfx90a:xnack+", "gfx90a_xnack68"),
    ],
)
def test_database_names_of_case_2(text: str, name: str) -> None:
    assert targets.split_target(text).kdb_names[0] == name


@pytest.mark.parametrize("arch", targets.known())
def test_every_known_count_can_be_asked_for(arch: str) -> None:
    target = targets.load(arch)
    assert target.cu == target.cu_default
    for cu in target.cu_known:
        assert targets.split_target(f"{arch}:{cu}").cu == cu


def test_features_not_named_keep_their_default() -> None:
    assert targets.split_target("gfx906:xnack+").device == "gfx906:sramecc+:xnack+"
    assert targets.split_target("gfx906:xnack+:sramecc-:64") == targets.with_cu(
        targets.split_target("gfx906:sramecc-:xnack+"), 64
    )


def test_build_target_is_generic_but_on_gfx906() -> None:
    assert targets.load("gfx906").build_target("asm") == "gfx906:xnack-"
    assert targets.load("gfx906").build_target("hip") == "gfx906:xnack-"
    assert targets.load("gfx906").build_target("opencl") == "gfx906"
    assert {targets.load("gfx90a").build_target(x) for x in ("hip", "opencl", "asm")} == {"gfx90a"}
    with pytest.raises(KdbtoolError, match="no such kernel language: mlir"):
        targets.load("gfx90a").build_target("mlir")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # case 22: the message names the legal features
        ("gfx900:sramecc-:xnack-", "gfx900 has no sramecc: its features: xnack"),
        ("gfx1030:xnack-", "gfx1030 has no xnack: its features: none"),
        ("gfx9999", "unknown architecture: gfx9999: known: gfx900, gfx906"),
        ("", "unknown architecture"),
        (":36", "unknown architecture"),
        ("../gfx906", "unknown architecture"),
        ("gfx906.toml", "unknown architecture"),
        ("GFX906", "unknown architecture"),
        ("gfx906\n", r"unknown architecture: gfx906\\n"),
        ("gfx1030:0", "not a number of compute units"),
        ("gfx1030:4097", "not a number of compute units"),
        ("gfx1030:" + "9" * 5000, "not a number of compute units"),
        ("gfx1030:", "not a target"),
        ("gfx1030:-36", "not a target"),
        ("gfx1030:３６", "not a target"),
        ("gfx906:xnack", "not a target"),
        ("gfx906:xnack+:xnack-", "xnack is given twice"),
        ("gfx906:60:xnack-:", "not a target"),
    ],
)
def test_not_a_target(text: str, message: str) -> None:
    with pytest.raises(KdbtoolError, match=message) as caught:
        targets.split_target(text)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('arch = "gfx906"', 'arch = "gfx90a"', "arch"),
        ('arch = "gfx906"\n', "", "arch"),
        ("elf_mach = 0x2f", "elf_mach = 0x12f", "elf_mach"),
        ("elf_mach = 0x2f", "elf_mach = true", "elf_mach"),
        ("elf_mach = 0x2f", 'elf_mach = "47"', "elf_mach"),
        ('"sramecc", "xnack"', '"xnack", "sramecc"', "features"),
        ('"sramecc", "xnack"', '"xnack"', "device"),
        ('"gfx906:sramecc+:xnack-"', '"gfx906"', "device"),
        ("cu_known = [60, 64]", "cu_known = [64, 60]", "cu_known"),
        ("cu_known = [60, 64]", "cu_known = [60, true]", "cu_known"),
        ("cu_known = [60, 64]", "cu_known = [64]", "cu_default"),
        ("wave_size = 64", "wave_size = 48", "wave_size"),
        ('cu_unit = "CU"', 'cu_unit = "SM"', "cu_unit"),
        ("integrated = false", "integrated = 0", "integrated"),
        ('name = "AMD', 'name = "a;mem=1', "name"),
        ("integrated = false", "integrated = false\ncolour = 1", "colour"),
        ('asm = "gfx906:xnack-"', 'asm = "gfx900"', "build_target"),
        ('asm = "gfx906:xnack-"', 'mlir = "gfx906"', "build_target"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, old: str, new: str, field: str) -> None:
    assert old in GOOD
    path = tmp_path / "gfx906.toml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(KdbtoolError, match=f"field {field}") as caught:
        targets.read_target(path)
    assert caught.value.where == path


@pytest.mark.parametrize(
    "data", [b"\xff\xfe", b"arch = ", b"", b"\0" * 10, b"[" * 5000, b"#" * 70_000, b"a = 1\n[a]\n"]
)
def test_no_bytes_bring_a_traceback(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "gfx906.toml"
    path.write_bytes(data)
    with pytest.raises(KdbtoolError):
        targets.read_target(path)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(KdbtoolError, match="cannot be read"):
        targets.read_target(tmp_path / "gfx906.toml")
    (tmp_path / "gfx900.toml").mkdir()
    with pytest.raises(KdbtoolError, match="cannot be read"):
        targets.read_target(tmp_path / "gfx900.toml")
