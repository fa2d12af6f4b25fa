"""Names of database files, both ways (field cases 1 and 2 are tests of their own)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdbtool import targets
from kdbtool.codeobject.flags import ARCHS
from kdbtool.kdb.names import KdbName, base_name, file_name, parse_base, parse_name, system_names


@given(st.sampled_from(sorted(ARCHS)), st.none() | st.integers(1, 999), st.booleans())
def test_what_miopen_forms_is_read_back(arch: str, cu: int | None, xnack: bool) -> None:
    name = parse_base(base_name(arch, cu, xnack=xnack))
    assert name is not None
    # Two readings can be possible (gfx90 and gfx90a have no common prefix, gfx115 does not exist).
    assert (name.arch, name.cu, name.xnack) == (arch, cu, xnack)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("gfx1030_36.ukdb", "ukdb"),
        ("gfx1030.kdb", "kdb"),
        ("gfx1030_36.db", "perf-db"),
        ("gfx1030_36.db.txt", "perf-db"),
        ("gfx1030_36_1.1.0.udb", None),
        ("gfx1030_36.HIP.fdb.txt", "find-db"),
        ("gfx1030_36.HIP.3_4_0_.ufdb.txt", "user-find-db"),
    ],
)
def test_kinds_by_ending(name: str, kind: str | None) -> None:
    found = parse_name(name)
    assert (found.kind if found else None) == kind


def test_compressed_and_in_a_folder() -> None:
    assert parse_name("/usr/share/miopen/db/gfx90a6e.kdb.bz2") == KdbName("gfx90a", 110, False, "kdb", True)


@pytest.mark.parametrize(
    "base",
    ["", "gfx", "gfx1030_", "gfx1030_036", "gfx1030_0", "gfx1030x", "gfx1030_36_36", "GFX1030", "gfx9999"],
)
def test_no_name_of_miopens(base: str) -> None:
    assert parse_name(f"{base}.kdb") is None


def test_xnack_stands_before_the_count() -> None:
    assert base_name("gfx90a", 104, xnack=True) == "gfx90a_xnack68"
    assert parse_base("gfx90a_xnack68") == KdbName("gfx90a", 104, True, "")
    assert file_name("gfx90a", xnack=True) == "gfx90a_xnack.kdb"


def test_the_count_of_rdna_is_of_work_group_processors() -> None:
    rdna, cdna = parse_base("gfx1030_36"), parse_base("gfx90878")
    assert rdna is not None and rdna.unit == "WGP"
    assert cdna is not None and cdna.unit == "CU"


def test_system_names_in_the_order_of_miopen() -> None:
    assert system_names("gfx942", 304) == ("gfx942130.kdb", "gfx942.kdb")


def test_no_architecture_begins_another_one_so_that_a_name_has_one_reading() -> None:
    assert not [(a, b) for a in ARCHS for b in ARCHS if a != b and b.startswith(a)]
    assert set(targets.known()) <= ARCHS


@pytest.mark.parametrize("arch", targets.known())
def test_each_known_device_both_ways(arch: str) -> None:
    target = targets.load(arch)
    for cu in target.cu_known:
        for ending in ("kdb", "ukdb", "kdb.bz2", "HIP.fdb.txt", "db.txt"):
            name = parse_name(f"{base_name(arch, cu)}.{ending}")
            assert name is not None
            assert (name.arch, name.cu, name.unit, name.is_known_count) == (arch, cu, target.cu_unit, True)
    assert target.kdb_names == (base_name(arch, target.cu), arch)


@pytest.mark.parametrize(
    ("name", "unit", "exists"),
    [
        ("gfx1030_36.kdb", "WGP", True),
        ("gfx1030_14.ukdb", "WGP", False),  # HSA_OVERRIDE_GFX_VERSION (field case 23)
        ("gfx90a6e.kdb", "CU", True),
        ("gfx950100.kdb", "CU", True),
        ("gfx115128.kdb", "WGP", True),
        ("gfx120020.kdb", "WGP", True),
        ("gfx942_64.kdb.bz2", "CU", True),
        ("gfx90a_xnack68.ukdb", "CU", True),
        ("gfx803_36.kdb", "CU", None),
        ("gfx1036_1.ukdb", "WGP", None),
        ("gfx942.kdb", "CU", None),
    ],
)
def test_what_the_count_counts_and_whether_it_exists(name: str, unit: str, exists: bool | None) -> None:
    found = parse_name(name)
    assert found is not None
    assert (found.unit, found.is_known_count) == (unit, exists)
