"""Field case 7: a `.ukdb` in WAL mode renamed to `.kdb` in a 0555 folder, read by nobody (65534)."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.kdb_files import make


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody may enter, pytest's own are private."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        yield path
        path.chmod(0o755)


def as_nobody(action: Callable[[], str]) -> str:
    """What `action` returns in a process of uid 65534 (of one's own, where that is not root's)."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
            os.write(write, action().encode())
        except BaseException as error:
            os.write(write, f"failed: {error!r}".encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


def test_007(folder: Path, tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    live = make(folder / "gfx1030_36.ukdb", before=["PRAGMA journal_mode=wal"])
    path = live.rename(folder / "gfx1030.kdb")
    path.chmod(0o644)
    folder.chmod(0o555)

    def verify() -> str:
        done = run_cli("verify", "--json", path)
        return json.dumps([done.code, json.loads(done.out), done.err])

    # Loads what nobody cannot read in a private clone.
    run_cli("verify", "--json", make(tmp_path / "gfx1030.kdb"))
    code, document, err = json.loads(as_nobody(verify))
    found = {f["code"]: f for f in document["files"][0]["findings"]}
    assert code == 1 and err == "" and document["files"][0]["rows"] == 1
    assert "immutable=1" in found["journal=wal"]["detail"]
    assert found["journal=wal"]["severity"] == "problem"
    assert found["journal=wal"]["consequence"] == "throws"
    assert [p.name for p in folder.iterdir()] == ["gfx1030.kdb"]
