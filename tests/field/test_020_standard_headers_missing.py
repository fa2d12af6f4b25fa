"""Field case 20 (MIOpen#2049): kernels that fail because the machine lacks the C++ standard headers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.rebuilding import fake_clang, kernel_folder, key, manifest_file

FINDING = (
    "C++ standard headers missing (limits): not the kernels' fault, 2 of them; "
    "install g++ (Debian, Ubuntu) or gcc-c++ (Fedora)"
)


def test_020(tmp_path: Path, shared: Path, run_cli: Callable[..., Any]) -> None:
    compiler = fake_clang(tmp_path / "bin", shared)
    sources = kernel_folder(tmp_path / "kernels", "one.cl", "two.cl", "three.cl")
    keys = [
        key("-DFAKE=headers", "one.cl"),
        key("-DFAKE=headers -DN=1", "two.cl"),
        key("-DFAKE=fail", "three.cl"),
    ]
    manifest = manifest_file(tmp_path / "m.kdbm", keys, sources)
    command = ["rebuild", manifest, "--sources", sources, "--compiler", compiler]
    command += ["--cache", tmp_path / "cache"]
    done = run_cli(*command, "-o", tmp_path / "a.kdb")
    assert done.code == 1
    assert done.err.count("standard headers missing") == 1 and FINDING in done.err
    told = json.loads(run_cli(*command, "-o", tmp_path / "b.kdb", "--json").out)
    assert told["findings"] == [FINDING]
    # a kernel that is itself wrong is no such finding
    manifest = manifest_file(tmp_path / "n.kdbm", keys[2:], sources)
    done = run_cli("rebuild", manifest, *command[2:], "-o", tmp_path / "c.kdb")
    assert done.code == 1 and "headers missing" not in done.err
