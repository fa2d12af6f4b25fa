"""Names of database files, both ways (field cases 1 and 2 are tests of their own)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
