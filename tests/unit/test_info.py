"""`kdbtool info`: of any file what it is, of those of this field what is in it."""

from __future__ import annotations

import bz2
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import traces as t
from support.kdb_files import make

from kdbtool.manifest import Key, Manifest, write_manifest
from kdbtool.manifest.model import Hashes, Note
from kdbtool.shim._trace import ffi, lib

ARGS = b" -DA=1 -mcpu=gfx1030"
HOSTILE = b"\x1b[2J\n\xff\t"
PROBLEM = b"64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP32-"


def trace(path: Path, role: int = lib.KDBT_ROLE_HOST, host: bytes = b"node") -> Path:
    """Two keys; one missed, then found; one never answered. Problems in two directions, a module."""
    module = t.record(lib.KDBT_MODULE, t.struct("module", size=7, source=lib.KDBT_FROM_MEMORY), id=20)
    problems = [
        t.record(lib.KDBT_PROBLEM, t.struct("problem", key=key, api=15, algorithm=-1)) for key in (30, 31, 31)
    ]
    t.read(
        path,
        t.header(role=role, host=host),
        t.block(
            t.key(1, b"a.cpp.o", ARGS), t.key(2, HOSTILE + b".cl.o", ARGS),
            t.database(3, b"/u/gfx1030_36.ukdb"),
            t.statement(4, 1, 3), t.step(4, 101), t.statement(5, 1, 3), t.step(5, 100), t.statement(6, 2, 3),
            t.record(lib.KDBT_API, b"miopenConvolutionForward", id=15),
            t.record(lib.KDBT_PROBLEM_KEY, PROBLEM + b"F", id=30),
            t.record(lib.KDBT_PROBLEM_KEY, PROBLEM + b"W_g2", id=31),
            module, *problems, t.kernel(40, b"k", 20), t.shape(41, 40), t.launches((41, 1), (41, 1)),
        ),
    )  # fmt: skip
    return path


def document(run_cli: Callable[..., Any], *paths: Path, code: int = 0) -> Any:
    ended = run_cli("info", *paths, "--json")
    assert ended.code == code
    found = json.loads(ended.out)["files"]
    return found if len(paths) > 1 else found[0]


def test_a_trace(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    found = document(run_cli, trace(tmp_path / "a.kdbtrace"))
    assert found["kind"] == "trace" and found["process"]["role"] == "host"
    assert found["lookups"] == {"total": 3, "hit": 1, "missed": 1, "unanswered": 1}
    assert found["keys"] == {"distinct": 2, "hit": 1, "missed": 0, "unanswered": 1}
    assert found["problems"] == {"calls": 3, "distinct": 2, "forward": 1, "backward": 0, "weights": 2}
    assert found["modules"] == {"loaded": 1, "failed": 0, "distinct": 1, "bytes": 7}
    assert found["launches"] == {"total": 2, "kernels": 1}
    assert found["databases"][0]["name"]["cu"] == 36 and found["notes"] == []


def test_a_folder_counts_each_key_once_and_compilers(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    for name in ("a", "b"):
        trace(tmp_path / f"{name}.kdbtrace")
    t.read(tmp_path / "c.kdbtrace", t.header(role=lib.KDBT_ROLE_COMPILER, exe=b"clang"))
    found = document(run_cli, tmp_path)
    assert (found["processes"], found["compilers_started"]) == (3, 1)
    assert found["lookups"]["total"] == 6 and found["keys"]["distinct"] == 2
    assert found["problems"]["calls"] == 6 and found["problems"]["distinct"] == 2
    shown = run_cli("info", tmp_path).out
    assert "compilers started: 1" in shown and "clang" in shown


def test_hostile_text_stays_on_its_line(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    path = trace(tmp_path / "a\n\x1b.kdbtrace", host=b"\x1b]0;x\x07\xff")
    for what in (path, tmp_path):
        ended = run_cli("info", what)
        assert ended.code == 0 and all(c.isprintable() or c == "\n" for c in ended.out)
        json.loads(run_cli("info", what, "--json").out)


def test_a_manifest(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    keys = [
        Key(b"naive_conv.cpp.o", ARGS, "gfx1030"),
        Key(b"igemm_x.s.o", ARGS, "gfx1030", "asked-unbuilt"),
        Key(HOSTILE, b"x", ""),
    ]
    path = tmp_path / "m"
    made = Manifest(
        miopen="6.4.3", keys={key: Note() for key in keys}, hashes={"naive_conv.cpp": Hashes("0" * 64)},
        origins={"one", "two"},
    )  # fmt: skip
    path.write_bytes(write_manifest(made))
    found = document(run_cli, path)
    assert (found["kind"], found["miopen"], found["rows"]) == ("manifest", "6.4.3", 3)
    assert found["states"] == {"asked-unbuilt": 1, "build": 2}
    assert found["classes"] == {"asm-generated": 1, "hip": 1, "unknown": 1}
    assert found["archs"] == {"gfx1030": 2, "unknown": 1} and found["hashed_sources"] == 1
    shown = run_cli("info", path).out
    assert "origin:" in shown and all(c.isprintable() or c == "\n" for c in shown)


def test_find_db(shared: Path, run_cli: Callable[..., Any]) -> None:
    found = document(run_cli, shared / "data" / "gfx942130.HIP.fdb.txt.bz2")
    assert found["kind"] == "find-db" and found["problems"] > 9_000
    shown = run_cli("info", shared / "data" / "gfx942130.HIP.fdb.txt.bz2")
    assert shown.code == 0 and "solvers:" in shown.out


def test_perf_db(shared: Path, run_cli: Callable[..., Any], tmp_path: Path) -> None:
    packed = shared / "data" / "gfx942130.db.bz2"
    plain = tmp_path / "gfx942130.db"
    plain.write_bytes(bz2.decompress(packed.read_bytes()))
    one, other = document(run_cli, packed, plain)
    assert one["kind"] == other["kind"] == "perf-db"
    skip = ("path", "size", "text")
    assert {k: v for k, v in one.items() if k not in skip} == {
        k: v for k, v in other.items() if k not in skip
    }
    assert "solvers:" in run_cli("info", packed).out


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "an empty file, not a database"),
        (b"\x7fELF" + bytes(600), "an ELF file"),
        (b"hello\n" * 200, "not an SQLite file"),
        (b"KDBTRACE" + bytes(5000), "damaged trace header"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "Git LFS pointer"),
    ],
)
def test_anything_else_is_one_line(
    tmp_path: Path, run_cli: Callable[..., Any], content: bytes, words: str
) -> None:
    path = tmp_path / "f"
    path.write_bytes(content)
    ended = run_cli("info", path)
    assert ended.code == 2 and ended.out == "" and words in ended.err and ended.err.count("\n") == 1


def test_damaged_and_right_files_together(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    bad = tmp_path / "bad.kdbtrace"
    bad.write_bytes(b"KDBTRACX" + bytes(5000))
    good = make(tmp_path / "gfx1030.kdb")
    first, second = document(run_cli, bad, good, code=2)
    assert "error" in first and second["rows"] == 1
    assert document(run_cli, tmp_path, code=2)["error"].startswith(str(bad))
    assert document(run_cli, tmp_path / "none", code=2)["error"].endswith("no such file")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "no trace in the folder" in run_cli("info", empty).err


def test_a_time_that_no_calendar_has(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    path = tmp_path / "a.kdbtrace"
    t.read(path, t.header(start_realtime_ns=(1 << 63) - 1))
    assert document(run_cli, path)["process"]["start"].startswith("2262")
    limit = ffi.new("uint64_t *", (1 << 64) - 1)[0]
    t.read(path, t.header(start_realtime_ns=limit))
    assert run_cli("info", path).code == 0
