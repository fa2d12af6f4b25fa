"""Field case 2 (MIOpen#1563, #1651; rocm-libraries#12088): units glued on in hexadecimal."""

import pytest

from kdbtool.kdb.names import parse_base, parse_name


@pytest.mark.parametrize(
    ("base", "arch", "cu"),
    [
        ("gfx90878", "gfx908", 120),
        ("gfx90a6e", "gfx90a", 110),
        ("gfx90a68", "gfx90a", 104),
        ("gfx942130", "gfx942", 304),
        ("gfx942e4", "gfx942", 228),
        ("gfx950100", "gfx950", 256),
        ("gfx906_60", "gfx906", 60),
        ("gfx900_56", "gfx900", 56),
        ("gfx115128", "gfx1151", 40),
        ("gfx120020", "gfx1200", 32),
        ("gfx942_64", "gfx942", 64),
        ("gfx90a", "gfx90a", None),
    ],
)
def test_002(base: str, arch: str, cu: int | None) -> None:
    for name in (parse_base(base), parse_name(f"{base}.kdb"), parse_name(f"{base}.HIP.fdb.txt")):
        assert name is not None
        assert (name.arch, name.cu, name.xnack) == (arch, cu, False)
