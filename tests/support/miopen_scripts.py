"""Fixtures: Python that calls a stand-in libMIOpen with all of MIOpen's functions, under the recorder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support import miopen_standin as standin
from support.standins import Ran, Standins, compile_standin, python

Script = Callable[..., Ran]
PRELUDE = """
import ctypes, threading
from support.miopen_standin import Api
api = Api({path!r})
def array(*values, type=ctypes.c_void_p):
    kept.append((type * len(values))(*values))
    return ctypes.addressof(kept[-1])
kept = []
X, W, Y, Z = (api.tensor(0x1000 * i, 1, *lens) for i, lens in
              enumerate([(2, 8, 16, 16), (4, 8, 3, 3), (2, 4, 14, 14), (1, 4, 1, 1)], 1))
"""


@pytest.fixture(scope="session")
def built(standins: Standins, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """libMIOpen.so.1 in `plain` and, with getters, in `getters`; a program that calls all of it."""
    folder = tmp_path_factory.mktemp("all-of-miopen")
    folder.chmod(0o755)
    for name in ("plain", "getters"):
        (folder / name).mkdir()
        source = folder / name / "miopen.c"
        source.write_text(standin.library(name == "getters"))
        library = folder / name / "libMIOpen.so.1"
        compile_standin(library, str(source), "-Wl,-soname,libMIOpen.so.1")
    (folder / "calls.c").write_text(standin.program())
    library = folder / "plain" / "libMIOpen.so.1"
    compile_standin(folder / "calls", str(folder / "calls.c"), str(library), f"-Wl,-rpath,{library.parent}")
    return folder


@pytest.fixture
def script(standins: Standins, traces: Path, built: Path) -> Script:
    """Python that calls the stand-in: `script(code, getters=True)`."""

    def run(code: str, getters: bool = False, **env: str) -> Ran:
        path = str(built / ("getters" if getters else "plain") / "libMIOpen.so.1")
        env |= {"PYTHONPATH": str(standin.REPO / "tests")}
        ran = standins.run(traces, *python(PRELUDE.format(path=path) + code), env=env)
        assert (ran.code, ran.err) == (0, "")
        return ran

    return run
