"""`kdbtool manifest --from-kdb`: traces without look-ups, joined by the MD5 of what was loaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import kdb_files, traces
from support.amdgpu_elf import code_object

from kdbtool.kdb.blob import md5
from kdbtool.manifest import parse_manifest
from kdbtool.shim._trace import lib

CPU = b" -mcpu=gfx1030"
A, B, C = code_object(kernels=["a"]), code_object(kernels=["b"]), code_object(kernels=["c"])


def fact(name: bytes, value: bytes) -> bytes:
    return traces.record(lib.KDBT_FACT, traces.pair(name, value))


def module(data: bytes | None, id: int, *, result: int = 0) -> bytes:
    digest = bytes.fromhex(md5(data)) if data is not None else bytes(16)
    loaded = traces.struct(
        "module", md5=digest, size=len(data or b""), source=lib.KDBT_FROM_MEMORY, result=result
    )
    return traces.record(lib.KDBT_MODULE, loaded, id=id)


def asked(name: bytes, args: bytes) -> tuple[bytes, ...]:
    return (
        traces.key(50, name, args),
        traces.database(51, b"/x.kdb"),
        traces.statement(52, 50, 51),
        traces.step(52, 100),
    )


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Path]:
    """`made("x", record, ...)`: a trace of one process with these records."""

    def make(name: str, *records: bytes, **header: Any) -> Path:
        path = tmp_path / f"{name}.kdbtrace"
        device = fact(b"device.0", b"gfx1030")
        traces.read(path, traces.header(**header), traces.block(device, *records))
        return path

    return make


@pytest.fixture
def kdb(tmp_path: Path) -> Path:
    rows = [
        kdb_files.row(b"One.cl.o", CPU, A),
        kdb_files.row(b"Two.cl.o", b" -DX=1" + CPU, B),
        kdb_files.row(b"Two.cl.o", b" -DX=2" + CPU, B),
        kdb_files.row(b"Never.cl.o", CPU, code_object(kernels=["n"])),
    ]
    return kdb_files.make(tmp_path / "gfx1030_36.ukdb", rows)


def keys(text: str) -> list[tuple[bytes, bytes]]:
    return [(key.name, key.args) for key in parse_manifest(text.encode(), "m").expand()]


def test_loads_become_keys_and_those_that_nobody_knows_are_listed(
    made: Callable[..., Path], kdb: Path, run_cli: Callable[..., Any], tmp_path: Path
) -> None:
    trace = made(
        "t", module(A, 1), module(A, 2), module(B, 3), module(C, 4), module(None, 5), module(C, 6, result=1)
    )
    assert keys(run_cli("manifest", trace).out) == []
    ended = run_cli("manifest", trace, "--from-kdb", kdb, "-v")
    assert ended.code == 0
    assert keys(ended.out) == [
        (b"One.cl.o", CPU),
        (b"Two.cl.o", b" -DX=1" + CPU),
        (b"Two.cl.o", b" -DX=2" + CPU),
    ]
    assert ended.out.count("# one of 2 keys of the object that was loaded") == 2
    assert "2 of 3 loaded objects of 1 process joined by MD5" in ended.err
    assert f"not in a database: {md5(C)}, {len(C)} bytes, from memory" in ended.err
    out = tmp_path / "o.kdbmanifest"
    told = json.loads(run_cli("manifest", trace, "--from-kdb", kdb, "--json", "-o", out).out)["join"]
    assert told == {
        "processes": 1, "objects": 3, "joined": 2, "ambiguous": 1, "without_md5": 1,
        "unknown": [{"arch": "gfx1030", "md5": md5(C), "bytes": len(C), "source": "memory"}],
    }  # fmt: skip


def test_a_process_with_look_ups_is_not_joined_in_any_of_its_parts(
    made: Callable[..., Path], kdb: Path, run_cli: Callable[..., Any]
) -> None:
    first = made("p0", *asked(b"One.cl.o", CPU), module(A, 1), module(B, 2))
    second = made("p1", module(B, 2))
    for inputs in ((first, second), (second, first)):
        assert keys(run_cli("manifest", *inputs, "--from-kdb", kdb).out) == [(b"One.cl.o", CPU)]
    other = made("p2", module(B, 2), pid=101)
    assert len(keys(run_cli("manifest", first, second, other, "--from-kdb", kdb).out)) == 3


def test_an_object_of_another_architecture_is_no_match(
    made: Callable[..., Path], run_cli: Callable[..., Any], tmp_path: Path
) -> None:
    other = kdb_files.make(tmp_path / "gfx906_60.ukdb", [kdb_files.row(b"One.cl.o", CPU, A)])
    ended = run_cli("manifest", made("t", module(A, 1)), "--from-kdb", other)
    assert keys(ended.out) == [] and "0 of 1 loaded objects of 1 process joined" in ended.err


def test_what_is_no_database_is_one_line(made: Callable[..., Path], run_cli: Callable[..., Any]) -> None:
    trace = made("t", module(A, 1))
    for path in (trace, trace.parent / "none"):
        ended = run_cli("manifest", trace, "--from-kdb", path)
        assert ended.code == 2 and ended.err.count("\n") == 1, ended.err
