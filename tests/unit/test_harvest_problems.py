"""Problems out of lists, commands, traces and manifests; lines that are none."""

from __future__ import annotations

import bz2
from pathlib import Path

import pytest
from support import kdb_files, traces

from kdbtool.errors import KdbtoolError
from kdbtool.harvest.problems import read_problems
from kdbtool.manifest import Manifest, Problem, write_manifest
from kdbtool.miopen.textdb import Damage

A = "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP32-F"
B = "3-8-8-3x3-4-8-8-2-1x1-1x1-1x1-0-NCHW-FP32-F"
COMMAND = "conv -n 2 -c 3 -H 8 -W 8 -k 4 -y 3 -x 3 -p 1 -q 1 -F 1"


def read(tmp_path: Path, text: str | bytes) -> tuple[list[str], list[Damage]]:
    path = tmp_path / "problems.txt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    damage: list[Damage] = []
    return read_problems(path, (3, 4, 0), damage.append), damage


def test_keys_commands_and_find_db_lines_each_once(tmp_path: Path) -> None:
    text = f"# mine\n\n{A}\n{A}=ConvOclDirectFwd:1,0,x\n./bin/MIOpenDriver {COMMAND}\n  {COMMAND}\r\n"
    assert read(tmp_path, text) == ([A, B], [])


def test_an_environment_may_stand_before_a_command(tmp_path: Path) -> None:
    assert read(tmp_path, f"MIOPEN_FIND_MODE=1 MIOpenDriver {COMMAND} 2>&1 | tail\n") == ([B], [])


def test_all_directions_of_a_command(tmp_path: Path) -> None:
    found, _ = read(tmp_path, COMMAND.replace("-F 1", "-F 0") + "\n")
    assert [key[-1] for key in found] == ["F", "B", "W"]


@pytest.mark.parametrize(
    "line",
    ["what", "conv -n", "conv -n 2 -y x", "MIOpenDriver bnorm -n 2", f"{A}x", "pooling conv", "\udcff\udc80"],
)
def test_a_line_that_is_none_is_told_and_the_rest_goes_on(line: str, tmp_path: Path) -> None:
    found, damage = read(tmp_path, f"{A}\n{line}\n{B}\n".encode("utf-8", "surrogateescape"))
    assert found == [A, B]
    assert [d.line for d in damage] == [2]


def test_a_compressed_list(tmp_path: Path) -> None:
    assert read(tmp_path, bz2.compress(f"{A}\n".encode() * 3)) == ([A], [])


@pytest.mark.parametrize("text", ["", "\n\n", "nothing\nhere\n", b"\x7fELF\0\0"])
def test_nothing_in_it_is_one_line(text: str | bytes, tmp_path: Path) -> None:
    with pytest.raises(KdbtoolError) as raised:
        read(tmp_path, text)
    assert raised.value.exit_code == 2
    assert "\n" not in raised.value.line()


def test_a_manifest_gives_its_problems_a_kdb_has_none(tmp_path: Path) -> None:
    path = tmp_path / "m.kdbmanifest"
    path.write_bytes(write_manifest(Manifest(problems={A: Problem(), B: Problem()})))
    assert sorted(read_problems(path, None, lambda damage: None)) == sorted([A, B])
    kdb = kdb_files.make(tmp_path / "gfx1030.kdb")
    with pytest.raises(KdbtoolError, match="names no problem"):
        read_problems(kdb, None, lambda damage: None)


def test_a_trace_without_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "one.kdbtrace"
    path.write_bytes(traces.header())
    with pytest.raises(KdbtoolError, match="no convolution problem"):
        read_problems(path, None, lambda damage: None)
