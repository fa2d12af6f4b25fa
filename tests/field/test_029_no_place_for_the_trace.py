"""Field case 29 (voicebox#865, LUMI#81, MIOpen#291): no HOME, folders that cannot be written, planted links.

The program runs as without the recorder, which says one line at most and follows no link."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.standins import Standins, python, same, standins, traces

__all__ = ["standins", "traces"]  # fixtures


def test_home_unset_and_root(standins: Standins, traces: Path) -> None:
    for home in ("-", "/"):
        same(standins, traces, "linked", "linked", env={"HOME": home})


def test_unwritable_folder(standins: Standins, tmp_path: Path) -> None:
    folder = tmp_path / "readonly"
    folder.mkdir(mode=0o555)
    for parent in [tmp_path, *tmp_path.parents]:
        if parent != Path("/tmp") and parent.stat().st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    uid = 65534 if os.getuid() == 0 else None
    ran = standins.run(folder, "linked", "linked", uid=uid)
    assert (ran.code, ran.out, ran.err, ran.traces) == (0, "42 3\n", "", [])
    loud = standins.run(folder, "linked", "linked", uid=uid, env={"KDBTOOL_VERBOSE": "1"})
    assert loud.out == "42 3\n"
    assert loud.err.count("\n") == 1 and "unrecorded" in loud.err


@pytest.mark.parametrize("kind", ["absent", "file", "dangling"])
def test_no_folder(standins: Standins, tmp_path: Path, kind: str) -> None:
    place = tmp_path / "place"
    if kind == "file":
        place.write_text("mine")
    elif kind == "dangling":
        place.symlink_to(tmp_path / "nowhere")
    same(standins, place, "linked", "linked")
    assert kind != "file" or place.read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


def test_symlink_over_the_trace(standins: Standins, traces: Path, tmp_path: Path) -> None:
    """Once recording, a link laid over the trace's name gets nothing: recording stops."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    code = f"""
import ctypes, os, pathlib
user = ctypes.CDLL({str(standins.folder / "libuser1.so")!r})
user.g(1)
(trace,) = pathlib.Path({str(traces)!r}).glob("*.kdbtrace")
os.rename(trace, {str(tmp_path / "moved.kdbtrace")!r})
os.symlink({str(victim)!r}, trace)
print(user.g(100000))
"""
    ran = standins.run(tmp_path, *python(code), env={"KDBTOOL_TRACE_DIR": str(traces)})
    assert ran.out == "101001\n"
    assert victim.read_bytes() == b"precious"
    assert 1 <= len(ran.trace.launches) < 100001
    assert any("recording stopped" in note for note in ran.trace.notes)
