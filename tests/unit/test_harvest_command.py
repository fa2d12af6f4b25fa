"""`kdbtool harvest`: what it refuses before a process is started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

A = "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP32-F"


@pytest.fixture
def list_of_one(tmp_path: Path) -> Path:
    path = tmp_path / "problems.txt"
    path.write_text(f"{A}\n")
    return path


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no problems given; add --find-db FILE or --problems FILE"),
        (["--problems", "LIST", "--tier", "all"], "--tier all: no find-db"),
        (["--problems", "LIST", "--tier", "best"], "--tier best: no find-db"),
        (["--problems", "LIST", "--tier", "huge"], "invalid choice: 'huge'"),
        (["--problems", "LIST", "--tier", "default", "--full-find"], "not allowed with"),
        (["--problems", "LIST", "--timeout", "0"], "not a whole number of seconds: '0'"),
        (["--problems", "LIST", "--jobs", "0"], "not a positive whole number"),
    ],
)
def test_bad_usage_is_one_line(
    arguments: list[str], said: str, run_cli: Callable[..., Any], list_of_one: Path, tmp_path: Path
) -> None:
    words = [str(list_of_one) if word == "LIST" else word for word in arguments]
    done = run_cli("harvest", "--arch", "gfx1030", "-o", tmp_path / "m", *words)
    assert (done.code, done.err.count("\n"), done.out) == (2, 1, "")
    assert said in done.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["problems.txt"]


@pytest.mark.parametrize("archs", [[], ["all"], ["gfx1030", "gfx906"], ["gfx0"], ["gfx1030:0"], ["../x"]])
def test_one_known_device(
    archs: list[str], run_cli: Callable[..., Any], list_of_one: Path, tmp_path: Path
) -> None:
    words = [word for arch in archs for word in ("--arch", arch)]
    done = run_cli("harvest", "--problems", list_of_one, "-o", tmp_path / "m", *words)
    assert (done.code, done.err.count("\n")) == (2, 1)


def test_an_output_that_exists_is_found_before_the_work(
    run_cli: Callable[..., Any], list_of_one: Path, tmp_path: Path
) -> None:
    (tmp_path / "m").write_text("mine")
    done = run_cli("harvest", "--problems", list_of_one, "--arch", "gfx1030", "-o", tmp_path / "m")
    assert (done.code, done.err) == (
        2,
        f"kdbtool harvest: {tmp_path}/m: output exists; --force replaces it\n",
    )


def test_json_says_the_error_too(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    import json

    done = run_cli("harvest", "--arch", "gfx1030", "-o", tmp_path / "m", "--json")
    assert done.code == 2
    assert "no problems given" in json.loads(done.out)["error"]


def test_switches_of_miopens_do_not_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from kdbtool.cli.harvest import _environment

    monkeypatch.setenv("MIOPEN_FIND_MODE", "1")
    monkeypatch.setenv("HIP_OTHER", "1")
    assert "MIOPEN_FIND_MODE" not in _environment()
    assert _environment()["HIP_OTHER"] == "1"
