"""Whatever holds keys is opened the same way, and damage is one declared error in every command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import traces as t
from support.kdb_files import make, row
from support.mutate import mutations, survives

from kdbtool.cli.info import describe
from kdbtool.cli.list import key_line
from kdbtool.errors import KdbtoolError
from kdbtool.inputs import each_input, open_input
from kdbtool.kdb.identify import FileKind, identify
from kdbtool.kdb.merge import Merge
from kdbtool.manifest import Key, Manifest, parse_manifest, write_manifest
from kdbtool.manifest.model import Note

ARGS = b" -DMIOPEN_USE_FP16=1 -DMIOPEN_USE_FP32=0 -mcpu=gfx1150"
WINOGRAD = b"Conv_Winograd_Fury_v2_4_1_fp16_fp16acc_f2x3_c16_stride1.s.o"
LOG = b"".join(
    b'MIOpen(HIP): Info2 [LoadBinary] Loading binary for: "%s"; args: %s\n' % key
    for key in ((b"naive_conv.cpp.o", ARGS), (WINOGRAD, b"-mcumode -mwavefrontsize64 -mcpu=gfx1150"))
)


def trace(path: Path) -> Path:
    t.read(path, t.header(), t.block(t.key(1, b"a.cpp.o", ARGS), t.database(2, b"x"), t.statement(3, 1, 2)))
    return path


def entries(path: Path) -> list[tuple[bytes, bytes, str, str]]:
    with open_input(path) as found:
        return sorted((e.name, e.args, e.arch, e.state) for e in found.entries())


def test_one_key_out_of_each_kind(tmp_path: Path) -> None:
    name, args = b"a.cpp.o", b" -DA=1 -mcpu=gfx1030"
    kdb = make(tmp_path / "any.kdb", [row(name, args)])
    manifest = tmp_path / "m"
    manifest.write_bytes(write_manifest(Manifest(keys={Key(name, args, "gfx1030"): Note()})))
    assert entries(kdb) == [(name, args, "gfx1030", "stored")]
    assert entries(manifest) == [(name, args, "gfx1030", "build")]
    assert entries(trace(tmp_path / "t.kdbtrace")) == [(name, ARGS, "gfx1150", "unanswered")]
    log = tmp_path / "run.log"
    log.write_bytes(LOG)
    assert [(e[0], e[2], e[3]) for e in entries(log)] == [
        (WINOGRAD, "gfx1150", "unanswered"),
        (b"naive_conv.cpp.o", "gfx1150", "unanswered"),
    ]
    kinds = []
    for path in (kdb, manifest, tmp_path / "t.kdbtrace", log, tmp_path):
        with open_input(path) as found:
            kinds.append(found.kind)
    assert kinds == [FileKind.KDB, FileKind.MANIFEST, FileKind.TRACE, FileKind.LOG, FileKind.DIRECTORY]


def test_a_kdb_s_name_says_the_arch_of_its_rows(tmp_path: Path) -> None:
    path = make(tmp_path / "gfx906.kdb", [row(), row(b"a.mlir.o", b" -x")])
    assert {e[2] for e in entries(path)} == {"gfx906"}
    with open_input(path) as found:
        bare = [(e.name, e.row) for e in found.entries(rows=False)]
    assert sorted(bare) == [(b"MIOpenSoftmax.cl.o", None), (b"a.mlir.o", None)]


def test_a_folder_is_opened_trace_by_trace(tmp_path: Path) -> None:
    for name in "ab":
        trace(tmp_path / f"{name}.kdbtrace")
    assert [[len(i.traces), i.path.name] for i in each_input(tmp_path)] == [
        [1, "a.kdbtrace"],
        [1, "b.kdbtrace"],
    ]
    with open_input(tmp_path) as found:
        (entry,) = found.entries()
    assert entry.count == 2


def test_a_log_through_every_command(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    log = tmp_path / "run.log"
    log.write_bytes(LOG + b'MIOpen(HIP): Info2 [LoadBinary] Loading binary for: "x.cl.o"; args: -DA\x1b[2J')
    made, merged = tmp_path / "m", tmp_path / "m2"
    assert run_cli("manifest", log, "--miopen", "6.4.3", "-o", made).code == 0
    back = parse_manifest(made.read_bytes(), "m")
    assert {key.name: key.state for key in back.keys}[WINOGRAD] == "asked-unbuilt"
    assert any(origin.startswith("read from a log of") for origin in back.origins)
    assert run_cli("merge", log, made, "-o", merged, "--miopen", "6.4.3").code == 0
    assert run_cli("list", log, "--class", "winograd", "--json").code == 0
    found = json.loads(run_cli("info", log, "--json").out)["files"][0]
    assert found["kind"] == "log" and found["log"] == "run.log" and found["keys"]["distinct"] >= 2
    shown = run_cli("info", log).out
    assert "of the log run.log" in shown and all(c.isprintable() or c == "\n" for c in shown)


@pytest.mark.parametrize("kind", ["kdb", "manifest", "trace", "log"])
def test_every_command_survives_damage(kind: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    if kind == "kdb":
        data = make(source / "gfx1030.kdb", [row(), row(b"a.mlir.o", b" -x")]).read_bytes()
    elif kind == "manifest":
        data = write_manifest(Manifest(keys={Key(b"a.cpp.o", ARGS, "gfx1150"): Note()}))
    elif kind == "trace":
        data = trace(source / "a.kdbtrace").read_bytes()
    else:
        data = LOG

    def check(path: Path) -> None:
        found = identify(path)
        if not found.is_kdb:  # what info does with one is verify's reading, tested with it
            describe(found)
        with open_input(path) as opened:
            for entry in opened.entries():
                assert "\n" not in key_line(entry)
            if opened.kdb is not None:
                merge = Merge([opened.kdb, opened.kdb])
                merge.survey()

    suffix = {"trace": ".kdbtrace", "kdb": ".kdb"}.get(kind, "")
    inputs = [data, *mutations(data, 600, 7)]
    tally = survives(check, inputs, tmp_path / "in", suffix, errors=(KdbtoolError,))
    assert sum(tally) == len(inputs) and tally.accepted and tally.refused
    assert survives(check, [data], tmp_path / "in", suffix, errors=(KdbtoolError,)) == (1, 0)
