"""Field case 1 (MIOpen#1606), the part about names: `gfx1030_36.kdb`, a GPU with 40 units."""

from kdbtool.kdb.names import parse_name, system_names


def test_001() -> None:
    name = parse_name("gfx1030_36.kdb")
    assert name is not None
    assert (name.arch, name.cu, name.kind) == ("gfx1030", 36, "kdb")
    assert system_names("gfx1030", 40) == ("gfx1030_40.kdb", "gfx1030.kdb")
