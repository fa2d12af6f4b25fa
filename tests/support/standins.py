"""Stand-in HIP, SQLite and MIOpen libraries, built once per test session, and programs that use them."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from kdbtool.shim import libs
from kdbtool.shim.trace import Trace, find_traces, read_trace

C = Path(__file__).resolve().parent / "c"


@dataclass(frozen=True)
class Ran:
    """How a program ended, and the traces it left."""

    code: int
    out: str
    err: str
    traces: list[Trace]

    @property
    def trace(self) -> Trace:
        """The only one."""
        (trace,) = self.traces
        return trace


def compile_standin(target: Path, source: str, *options: str) -> None:
    compiler = shlex.split(os.environ.get("CC", "gcc"))
    command = [*compiler, "-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]
    shared = ["-shared", "-fPIC"] if ".so" in target.name else []
    command += [*shared, str(C / source), "-o", str(target), "-Wl,-rpath,$ORIGIN", *options]
    subprocess.run(command, check=True, capture_output=True, text=True)


class Standins:
    """`folder` holds everything; `folder/other` a second HIP with a user of its own."""

    def __init__(self, folder: Path) -> None:
        # A copy: another user's process cannot read one in a private clone.
        self.folder, self.recorder = folder, Path(shutil.copy(libs.recorder(), folder))
        for place, tag in ((folder, 1), (folder / "other", 2)):
            place.mkdir(exist_ok=True)
            hip = place / "libamdhip64.so.6"
            compile_standin(
                hip,
                "hip.c",
                f"-DTAG={tag}",
                "-Wl,-soname,libamdhip64.so.6",
                f"-Wl,--version-script={C}/hip.map",
            )
            compile_standin(place / f"libuser{tag}.so", "user.c", f"-DTAG={tag}", str(hip))
        sqlite, hip = folder / "libsqlite3.so.0", folder / "libamdhip64.so.6"
        miopen = folder / "libMIOpen.so.1"
        compile_standin(sqlite, "sqlite.c", "-Wl,-soname,libsqlite3.so.0")
        compile_standin(folder / "libroctx64.so.4", "roctx.c", "-Wl,-soname,libroctx64.so.4")
        names = [
            "-Wl,-soname,libMIOpen.so.1",
            "-Wl,--build-id=0x0123456789abcdef",
            f"-Wl,--version-script={C}/miopen.map",
        ]
        compile_standin(miopen, "miopen.c", *names, str(sqlite), str(hip))
        for name in ("wrap", "dlsym", "pages"):
            compile_standin(folder / f"lib{name}.so", f"{name}.c")
        compile_standin(folder / "linked", "host.c", "-DLINKED", str(miopen), str(hip))
        compile_standin(folder / "loader", "host.c")

    def run(
        self,
        traces: Path | None,
        *argv: object,
        env: Mapping[str, str] | None = None,
        before: str = "",
        after: str = "",
        uid: int | None = None,
        timeout: float = 60,
    ) -> Ran:
        """A program (a name in the folder, or a path) under the recorder; traces None: without it.
        `before` and `after`: other preloads."""
        program, *rest = map(str, argv)
        if "/" not in program:
            program = str(self.folder / program)
        whole = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LD_LIBRARY_PATH": str(self.folder)}
        preloads = [before, str(self.recorder) if traces else "", after]
        if any(preloads):
            whole["LD_PRELOAD"] = ":".join(filter(None, preloads))
        if traces:
            whole["KDBTOOL_TRACE_DIR"] = str(traces)
        whole.update(env or {})
        done = subprocess.run(
            [program, *rest],
            env={k: v for k, v in whole.items() if v != "-"},
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=timeout,
            check=False,
            user=uid,
        )
        found = [read_trace(p) for p in find_traces([traces])] if traces and traces.is_dir() else []
        return Ran(done.returncode, done.stdout, done.stderr, found)


@pytest.fixture(scope="session")
def standins(tmp_path_factory: pytest.TempPathFactory) -> Standins:
    folder = tmp_path_factory.mktemp("standins")
    folder.chmod(0o755)
    return Standins(folder)


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    return folder


def same(standins: Standins, traces: Path, *argv: object, env: Mapping[str, str] | None = None) -> Ran:
    """Run without and with the recorder: output and exit code are the same."""
    plain, ran = standins.run(None, *argv, env=env), standins.run(traces, *argv, env=env)
    assert (ran.code, ran.out, ran.err) == (plain.code, plain.out, plain.err)
    return ran


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


# For a script that has imported os and resource: no descriptor is left, `held` has them.
NO_DESCRIPTORS = """
resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))
held = []
try:
    while True: held.append(os.dup(0))
except OSError: pass
"""
