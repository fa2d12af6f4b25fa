"""`kdbtool diff` of two rebuilds with different LLVM versions: each kernel's registers and LDS in both."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import absent

from kdbtool.codeobject import parse
from kdbtool.kdb.reader import open_kdb
from kdbtool.manifest import Key, Manifest, write_manifest
from kdbtool.manifest.model import Note
from kdbtool.root import Root

SUPPORT = Path(__file__).resolve().parent.parent / "support"
ARCHS = ("gfx906", "gfx1030")


@pytest.fixture
def old_clang(tmp_path: Path) -> Path:
    """clang 18 out of ziglang, with a small device library."""
    found = importlib.util.find_spec("ziglang")
    if found is None or not found.submodule_search_locations:
        absent("no second LLVM: the Python package ziglang is not installed (extra `test`)")
    folder, package = tmp_path / "old-compiler", Path(found.submodule_search_locations[0])
    shutil.copytree(SUPPORT / "old-compiler", folder)
    for name, target in (("zig", package / "zig"), ("lib", package / "lib"), ("ld.lld", Path("clang"))):
        (folder / name).symlink_to(target)
    common = (
        "-nogpulib -target amdgcn-amd-amdhsa -mcode-object-version=4 -x cl -cl-std=CL2.0 -cl-no-stdinc -O2"
    )
    subprocess.run(
        [folder / "zig", "clang", "-resource-dir", folder / "lib", *common.split(), "-emit-llvm", "-c",
         folder / "library.cl", "-o", folder / "library.bc"],
        check=True,
        env={**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(tmp_path / "zig")},
    )  # fmt: skip
    return folder / "clang"


def test_registers_and_lds_of_each_kernel_before_and_after(
    old_clang: Path, opened_root: Root, kdbtool: Callable[..., Any], tmp_path: Path
) -> None:
    sources, manifest = tmp_path / "sources", tmp_path / "m.kdbmanifest"
    sources.mkdir()
    shutil.copy(SUPPORT / "code_objects.cl", sources / "kernels.cl")
    keys = [Key(b"kernels.cl.o", f" -DX=1 -mcpu={arch}".encode(), arch) for arch in ARCHS]
    manifest.write_bytes(write_manifest(Manifest(miopen="6.4.3", keys={key: Note() for key in keys})))
    common = ("rebuild", manifest, "--sources", sources, "--allow-unknown")
    for name, compiler in (
        ("old", ("--compiler", old_clang)),
        ("new", ("--root", opened_root.path)),
        ("again", ("--root", opened_root.path)),
    ):
        done = kdbtool(*common, *compiler, "--cache", tmp_path / f"cache-{name}", "-o", tmp_path / name)
        assert done.code == 0, done.err
    for arch in ARCHS:
        old, new = tmp_path / "old" / f"{arch}.kdb", tmp_path / "new" / f"{arch}.kdb"
        done = kdbtool("diff", old, new)
        assert done.code == 1, done.err
        assert "compiler: clang version 18." in done.out and "-> clang version 21." in done.out
        assert "1 other code" in done.out

        document = json.loads(kdbtool("diff", old, new, "--by", "code", "--json").out)
        (row,) = document["rows"]
        assert row["verdict"] == "other-code" and row["targets"] == [arch, arch]
        text = {line.split()[0]: line for line in done.out.splitlines() if line.startswith("    ")}
        for path, side in ((old, "before"), (new, "after")):
            with open_kdb(path) as reader:
                (stored,) = [parse(r.object()) for r in reader]
            metadata = {k.name: k for k in stored.metadata_kernels}
            assert [change["kernel"] for change in row["kernels"]] == sorted(metadata) == ["one", "two"]
            for change in row["kernels"]:
                kernel, said = metadata[change["kernel"]], change[side]
                assert (said["vgpr"], said["sgpr"]) == (kernel.vgpr, kernel.sgpr)
                assert (said["lds"], said["scratch"]) == (kernel.lds, kernel.scratch)
        for change in row["kernels"]:
            before, after = change["before"], change["after"]
            assert before["code_bytes"] != after["code_bytes"]
            assert f"{before['code_bytes']}->{after['code_bytes']}" in text[change["kernel"]]
            assert str(before["lds"]) in text[change["kernel"]]
        one = row["kernels"][0]
        assert f"{one['before']['vgpr']}->{one['after']['vgpr']}" in text["one"]

        done = kdbtool("diff", new, tmp_path / "again" / f"{arch}.kdb")
        assert done.code == 0 and "1 same object" in done.out
