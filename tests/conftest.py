"""Fixtures for all tests: shared test data, a root with the real MIOpen, the command line.

What is absent on a developer's machine skips with the reason; in CI (`$CI` set) it fails, so that a
green run means that it ran.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest

from kdbtool.cli import main
from kdbtool.root import Root, default_root, enter, open_root

REPO = Path(__file__).resolve().parent.parent


class Result(NamedTuple):
    """How a command ended: exit code (negative: signal), standard output, standard error."""

    code: int
    out: str
    err: str


def absent(reason: str) -> NoReturn:
    """Skip; in CI fail."""
    if os.environ.get("CI"):
        pytest.fail(f"in CI this must be there: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The shared test data: `$KDBTOOL_SHARED`, default ../shared beside the repository."""
    path = Path(os.environ.get("KDBTOOL_SHARED") or REPO.parent / "shared")
    if not (path / "data").is_dir():
        absent(f"no test data at {path} (set KDBTOOL_SHARED)")
    return path


def _root(version: str) -> Root:
    path = default_root(version)
    if not path.is_dir():
        absent(f"no root at {path} (make one: scripts/rocm-root make)")
    return open_root(path)


@pytest.fixture(scope="session")
def opened_root() -> Root:
    """The root with MIOpen 6.4.3, opened: path, recipe, environment."""
    return _root("6.4.3")


@pytest.fixture(scope="session")
def root(opened_root: Root) -> Path:
    """Folder of the root with MIOpen 6.4.3."""
    return opened_root.path


@pytest.fixture
def run_cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """`run_cli("info", path)`: kdbtool in this process, arguments turned to text."""

    def run(*arguments: object) -> Result:
        capsys.readouterr()
        try:
            code: Any = main([str(a) for a in arguments])
        except SystemExit as stop:  # argparse
            code = stop.code
        captured = capsys.readouterr()
        return Result(0 if code is None else int(code), captured.out, captured.err)

    return run


@pytest.fixture
def kdbtool() -> Callable[..., Result]:
    """`kdbtool("record", ..., cwd=, env=)`: the command as a process of its own; env is added."""

    def run(
        *arguments: object,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 300,
    ) -> Result:
        done = subprocess.run(
            [sys.executable, "-m", "kdbtool", *(str(a) for a in arguments)],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": _import_path(), **(env or {})},
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


def _import_path() -> str:
    """This very kdbtool for a child in another folder; empty entries would mean its folder."""
    import kdbtool as package

    own = str(Path(package.__file__).parent.parent)
    return ":".join([own, *filter(None, os.environ.get("PYTHONPATH", "").split(":"))])


@pytest.fixture
def run_in_root(opened_root: Root) -> Callable[..., Result]:
    """`run_in_root("clang-21", "--version", env=, cwd=, binds=)`: a program inside the root."""

    def run(
        *argv: object,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        binds: tuple[Path, ...] = (),
        timeout: float = 300,
    ) -> Result:
        process = enter.popen(
            [str(a) for a in argv],
            root=opened_root.path,
            env={**opened_root.environment(), **(env or {})},
            cwd=cwd,
            binds=binds,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with process:
            try:
                out, err = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return Result(process.returncode, out.decode(), err.decode())

    return run


@pytest.fixture
def record(kdbtool: Callable[..., Result], opened_root: Root) -> Callable[..., Result]:
    """`record(traces, argv..., arch="gfx1030:36", env=)`: a simulated run inside the root."""

    def run(
        traces: Path, *argv: object, arch: str = "gfx1030:36", env: Mapping[str, str] | None = None, **kw: Any
    ) -> Result:
        return kdbtool(
            "record", "--simulate", arch, "-o", traces, "--root", opened_root.path, "--", *argv, env=env, **kw
        )

    return run
