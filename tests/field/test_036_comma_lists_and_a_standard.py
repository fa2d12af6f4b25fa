"""Field case 36 (MIOpen#2095): `-DCK_PARAM_...=1,1,1,128,1` is one value, `--std=c++17` the only standard."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.kdb_files import make, row

from kdbtool.kdb.reader import open_kdb
from kdbtool.manifest import read_manifest
from kdbtool.rebuild.options import accept
from kdbtool.rebuild.recipe import for_release

NAME = b"convolution_forward_implicit_gemm_v6r1_dlops_nchw_kcyx_nkhw.cpp.o"
LISTS = {"CK_PARAM_AThreadTransferDstScalarPerVector_GK1": "1,1,1,128,1", "CK_PARAM_GN0": "4,2"}
OPTIONS = " --std=c++17" + "".join(f" -D{name}={value}" for name, value in LISTS.items())
LONG = f"{OPTIONS}{' -DCK_PARAM_GM1PerBlockGM11=1' * 1500} -mcpu=gfx1030".encode()


def test_036_lists_are_one_value_in_every_command(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    path, manifest = make(tmp_path / "gfx1030.kdb", [row(NAME, LONG)]), tmp_path / "m.kdbmanifest"
    assert run_cli("manifest", path, "--miopen", "6.2.2", "-o", manifest).code == 0
    ((key, _),) = read_manifest(manifest).keys.items()
    assert (key.name, key.args) == (NAME, LONG)
    with open_kdb(path) as reader:
        assert [stored.args for stored in reader] == [LONG]
    (document,) = json.loads(run_cli("explain", manifest, "--kernel", "dlops", "--json").out)["keys"]
    values = {o["name"]: o["value"] for o in document["options"]}
    assert {name: values[name] for name in LISTS} == LISTS and values["--std=c++17"] is None
    assert document["solvers"][0]["classes"] == ["ConvCkIgemmFwdV6r1DlopsNchw"]
    assert not document["releases"]["6.2"]


@pytest.mark.parametrize(
    ("release", "own"), [("5.4", "--std=c++11"), ("6.0", "--std=c++17"), ("6.4.3", "--std=c++17")]
)
def test_036_a_standard_in_the_key_is_the_only_one(release: str, own: str) -> None:
    def standards(options: str) -> list[str]:
        taken = accept(f"{options} -mcpu=gfx1030".encode(), "gfx1030")
        words = for_release(release).arguments("hip", taken, "gfx1030", 21, source="a.cpp", output="o")
        assert (
            not LISTS.items() - dict(w[2:].split("=", 1) for w in words if "=" in w and w[:2] == "-D").items()
        )
        return [word for word in words if "std=" in word]

    assert standards(OPTIONS) == ["--std=c++17"]
    assert standards(OPTIONS.replace("--std=c++17", "-std=c++14")) == ["-std=c++14"]
    assert standards(OPTIONS.replace(" --std=c++17", "")) == [own]
