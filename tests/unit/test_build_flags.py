"""A packager's flags do not make of the libraries what would harm the program that they are loaded into."""

import os
import subprocess
import sys
from pathlib import Path

from elftools.elf.elffile import ELFFile

REPO = Path(__file__).resolve().parents[2]
DENORMAL = """#include <stdio.h>
int main(void) { volatile float small = 1e-38f; printf("%g\\n", small * 0.1f); return 0; }
"""


def test_fast_math_of_a_build_is_not_the_hosts(tmp_path: Path) -> None:
    """gcc 12 links crtfastmath.o into shared objects: whoever loads one computes without denormals."""
    flags = "-Ofast -funsafe-math-optimizations -fvisibility=default -ftls-model=global-dynamic -flto"
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "-b", tmp_path / "lib", "-t", tmp_path / "temp"],
        cwd=REPO,
        env={**os.environ, "CFLAGS": flags},
        check=True,
        capture_output=True,
    )
    source, host = tmp_path / "host.c", tmp_path / "host"
    source.write_text(DENORMAL)
    subprocess.run(["gcc", "-O0", source, "-o", host], check=True)
    folder = tmp_path / "lib/kdbtool/shim/lib"
    for library in ("libkdbshim.so", "libkdbaudit.so", "simgpu/6/libamdhip64.so.6"):
        ran = subprocess.run(
            [host], env={"LD_PRELOAD": str(folder / library)}, capture_output=True, text=True, check=True
        )
        assert (library, ran.stdout, ran.stderr) == (library, "1e-39\n", "")
    with (folder / "libkdbshim.so").open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
        shown = {s.name for s in symbols if s["st_shndx"] != "SHN_UNDEF" and s.name.startswith("kdb")}
    assert shown == {"kdb_audit_anchor"}
