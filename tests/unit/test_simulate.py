"""kdbtool.shim.simulate: the built device takes what it writes, and nothing that is cut or changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import simgpu

from kdbtool import targets
from kdbtool.errors import KdbtoolError
from kdbtool.shim import libs
from kdbtool.shim.simulate import device_spec, simulated_environment

ASK = """
p = create_string_buffer(1472); count = c_int(-1)
codes = [hip.hipInit(0), hip.hipGetDeviceCount(byref(count)), hip.hipGetDevicePropertiesR0600(p, 0)]
at = lambda o: int.from_bytes(p.raw[o:o+4], 'little')
arch = p.raw[1160:1416].split(b'\\0')[0].decode()
memory = int.from_bytes(p.raw[288:296], 'little')
done([codes, count.value, arch, at(308), at(360), at(364), at(388), memory, at(296)])
"""


@pytest.mark.parametrize("arch", targets.known())
def test_the_device_takes_every_known_architecture(arch: str, tmp_path: Path) -> None:
    t = targets.load(arch)
    want = [t.device, t.wave_size, *t.version, t.cu, t.memory_bytes, t.lds_bytes]
    assert simgpu.run(ASK, tmp_path, device=arch) == [[0, 0, 0], 1, *want]


def test_units_and_features_reach_the_device(tmp_path: Path) -> None:
    found = simgpu.run(ASK, tmp_path, device="gfx90a:xnack+:110")
    assert (found[2], found[6]) == ("gfx90a:sramecc+:xnack+", 110)


SPEC = device_spec(targets.load("gfx1030"))


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        ";",
        "gfx1030",
        SPEC[: len(SPEC) // 2],
        SPEC.replace("cu=36", "cu=0"),
        SPEC.replace("cu=36", "cu=99999"),
        SPEC.replace("cu=36", "cu=3x"),
        SPEC.replace("cu=36", "cu=-36"),
        SPEC.replace("cu=36", "cu="),
        SPEC.replace("cu=36", "cu=36;cu=36"),
        SPEC.replace("cu=36", "units=36"),
        SPEC.replace("warp=32", "warp=48"),
        SPEC.replace("device=gfx1030", "device=gfx1031"),
        SPEC.replace("device=gfx1030", "device=gfx1030:xnack"),
        SPEC.replace("device=gfx1030", "device=gfx1030:xnack+:xnack+"),
        SPEC.replace("arch=gfx1030", "arch=" + "g" * 5000),
        SPEC.replace("mem=", "mem=99999999999999999999"),
        SPEC + ";" + "x" * 100_000,
    ],
)
def test_no_device_without_a_whole_description(text: str | None, tmp_path: Path) -> None:
    codes, count, *_ = simgpu.run(ASK, tmp_path, device=None, raw=text)
    assert (codes, count) == ([100, 100, 100], 0)  # hipErrorNoDevice
    assert simgpu.log(tmp_path)[0].startswith('no-device why="KDBTOOL_SIMGPU')


def test_environment(tmp_path: Path) -> None:
    env = simulated_environment(targets.load("gfx1030"), libs.lib_dir(), log=tmp_path / "log")
    assert env == {
        "LD_LIBRARY_PATH": str(libs.lib_dir() / "simgpu" / "6"),
        "KDBTOOL_SIMGPU": SPEC,
        "KDBTOOL_SIMGPU_LOG": str(tmp_path / "log"),
    }


def test_libraries_that_are_not_built_are_named(tmp_path: Path) -> None:
    with pytest.raises(KdbtoolError, match="the simulated device is not built; build it: pip install"):
        simulated_environment(targets.load("gfx1030"), tmp_path)
