"""--json is one document of every command, also when the command fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ABSENT = "absent"
FAILING = {
    "verify": [ABSENT],
    "info": [ABSENT],
    "list": [ABSENT],
    "list --sources": ["--sources", ABSENT],
    "explain": [ABSENT, "--kernel", "x"],
    "diff": [ABSENT, ABSENT],
    "merge": [ABSENT, ABSENT, "-o", "out.kdb"],
    "fix": [ABSENT, "--dry-run"],
    "salvage": [ABSENT, "-o", "out.kdb"],
    "manifest": [ABSENT, "-o", "out.kdbmanifest"],
    "manifest --spdx": [ABSENT, "--spdx", "out.json"],
    "retarget": [ABSENT, "--arch", "gfx906", "-o", "out.kdbmanifest"],
    "rebuild": [ABSENT, "-o", "out.kdb"],
    "trace": ["import", ABSENT, "-o", "out.kdbtrace"],
    "finddb prune": ["prune", ABSENT, "--miopen", "6.4.3", "-o", "out.txt"],
    "finddb list": ["list", ABSENT],
    "perfdb convert": ["convert", ABSENT, "-o", "out.db.txt"],
    "perfdb list": ["list", ABSENT],
    "miopen": ["1.2.3"],
}


@pytest.mark.parametrize("command", FAILING)
def test_a_failure_is_a_document_too(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_cli: Callable[..., Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_cli(command.partition(" ")[0], *FAILING[command], "--json")
    assert done.code == 2 and done.err.count("\n") == 1
    said = json.loads(done.out)
    line = done.err.partition(": ")[2].strip()
    assert json.dumps(line)[1:-1] in json.dumps(said)
    assert list(tmp_path.iterdir()) == []
