"""Each reader takes thousands of corrupted files: a finding or a one-line error, and nothing else."""

from __future__ import annotations

import lzma
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest
from support import traces
from support.amdgpu_elf import code_object, hip_bundle, metadata, note
from support.kdb_files import make, row
from support.mutate import Tally, mutations, survives
from support.reader_checks import CHECKS, ERRORS
from support.small_library import library

from kdbtool.kdb.identify import identify
from kdbtool.kdb.reader import KdbReader
from kdbtool.manifest.model import Key, Manifest, Note, Problem
from kdbtool.manifest.writer import write_manifest
from kdbtool.shim._trace import lib

COUNT = 5000
Rows = list[tuple[bytes, bytes, bytes]]


@pytest.fixture(scope="module")
def real_rows(shared: Path) -> Rows:
    """(name, args, object) of the smallest rows of AMD's gfx942 database."""
    with KdbReader(identify(shared / "data" / "gfx942.kdb")) as reader:
        rows = sorted(reader, key=lambda r: (r.blob_size, r.rowid))[:3]
        return [(r.name, r.args, r.object()) for r in rows]


@pytest.fixture(scope="module")
def real_keys(shared: Path) -> list[tuple[bytes, bytes]]:
    """Some of the keys that MIOpen 6.4.3 asked for."""
    with lzma.open(shared / "data" / "keys.gfx1030-sample.tsv.xz") as file:
        lines = file.read().split(b"\n")[:-1:3000]
    pairs = (line.partition(b"\t") for line in lines)
    return [(name, args) for name, _, args in pairs]


def each(originals: list[bytes], seed: int, count: int = COUNT) -> Iterator[bytes]:
    """Mutations of all originals, `count` and more in total, and the originals."""
    yield from originals
    for number, data in enumerate(originals):
        yield from mutations(data, -(-count // len(originals)), seed + number)


def run(kind: str, originals: list[bytes], folder: Path, seed: int = 1) -> Tally:
    """The check of `kind` accepts every original and survives all mutations."""
    check = CHECKS[kind]
    assert survives(check.run, originals, folder, check.suffix, errors=ERRORS) == Tally(len(originals), 0)
    tally = survives(check.run, each(originals, seed), folder, check.suffix, errors=ERRORS)
    assert sum(tally) >= COUNT
    return tally


def test_kernel_databases(real_rows: Rows, tmp_path: Path) -> None:
    real = make(tmp_path / "gfx942.kdb", [row(*columns) for columns in real_rows])
    table = "CREATE TABLE kdbtool_provenance (key TEXT NOT NULL, value TEXT NOT NULL)"
    made = make(
        tmp_path / "gfx1030.kdb",
        after=[table, "INSERT INTO kdbtool_provenance VALUES ('miopen', '6.4.3')"],
    )
    small_pages = make(tmp_path / "pages.kdb", before=["PRAGMA page_size=512"])
    tally = run("kdb", [real.read_bytes(), made.read_bytes(), small_pages.read_bytes()], tmp_path / "in")
    assert tally.refused > 100 and tally.accepted > 100


def test_whatever_is_identified(shared: Path, real_rows: Rows, tmp_path: Path) -> None:
    """What a file is, of any of the field's kinds. Other kinds than a database are refused, by name."""
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4" * 64 + b"\nsize 400027325\n"
    originals = [
        make(tmp_path / "a.kdb", [row(*real_rows[0])]).read_bytes(),
        pointer,
        (shared / "data" / "gfx1030_36.db.bz2").read_bytes()[:9000],
        b"64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP32-F=ConvAsm1x1U:0.1,0,miopenConvolutionFwdAlgoDirect\n",
        b"outs:\n- md5: 0123456789abcdef0123456789abcdef\n  size: 3346112\n  path: gfx942.kdb.bz2\n",
    ]
    check = CHECKS["identify"]
    tally = survives(check.run, each(originals, 2), tmp_path / "in", ".kdb", errors=ERRORS)
    assert tally.refused > COUNT // 2


def test_code_objects(real_rows: Rows, tmp_path: Path) -> None:
    originals = [real_rows[0][2], code_object("gfx942", ("a", "b"), xnack="any", sramecc="any")]
    tally = run("object", originals, tmp_path)
    assert tally.refused > 500 and tally.accepted > 500


def test_offload_bundles(real_rows: Rows, tmp_path: Path) -> None:
    tally = run(
        "bundle", [hip_bundle(real_rows[1][2], "gfx942"), hip_bundle(code_object(), "gfx1030")], tmp_path
    )
    assert tally.refused > 100


def test_metadata_notes(tmp_path: Path) -> None:
    """Msgpack most of all: nested deeply, lengths that lie, keys that are no texts."""
    originals = [
        note(msgpack.packb(metadata("gfx1030", [f"k{n}" for n in range(count)]))) for count in (1, 9)
    ]
    tally = run("notes", originals, tmp_path)
    assert tally.refused > 500 and tally.accepted > 500


def test_manifests(real_keys: list[tuple[bytes, bytes]], tmp_path: Path) -> None:
    manifest = Manifest(miopen="6.4.3", sources="0" * 64, origins={"a trace"})
    manifest.keys = {Key(name, args, "gfx1030"): Note() for name, args in real_keys}
    manifest.keys[Key(b"odd \xff\x00 name", b"'x'\ny", "", "asked-unbuilt")] = Note()
    manifest.problems = {"64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP32-F": Problem()}
    tally = run("manifest", [write_manifest(manifest)], tmp_path)
    assert tally.refused > 500


def test_traces(tmp_path: Path) -> None:
    name, args = b"naive_conv.cpp.o", b" -DA=1 -mcpu=gfx1030"
    parts = (
        traces.header(),
        traces.block(
            traces.key(1, name, args),
            traces.database(1, b"/db/gfx1030.kdb"),
            traces.statement(1, 1, 1),
            traces.step(1, 100),
            traces.record(lib.KDBT_FACT, traces.pair(b"miopen.version", b"3.4.0")),
        ),
        traces.block(traces.kernel(1, b"f"), traces.shape(1, 1), traces.launches((1, 5), (1, 7)), thread=2),
    )
    tally = run("trace", [b"".join(parts)], tmp_path)
    assert tally.refused > 100 and tally.accepted > 500


def test_libraries(tmp_path: Path) -> None:
    cc = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if cc is None:
        pytest.skip("no C compiler")
    bare = ("-nostdlib", "-Wl,--build-id", "-s")  # few sections, each of which is parsed 5,000 times
    extra = (
        'const char t[] = "\\0/usr/share/miopen/db\\0/usr/bin/clang++-21\\0HIP.3_4_0_\\0~/.cache/miopen/";'
    )
    tally = run("library", [library(cc, tmp_path, extra=extra, flags=bare).read_bytes()], tmp_path / "in")
    assert tally.refused > 500 and tally.accepted > 100


def test_embedded_sources(tmp_path: Path) -> None:
    text = b'#include "b.h"\n//inliner-include-optional\n#include <none.h>\n.include "b.h"\nint x;\n'
    run("embed", [text.replace(b".include", b"  .text"), b"\n\n// only comments\n"], tmp_path)


def test_keys(real_keys: list[tuple[bytes, bytes]], tmp_path: Path) -> None:
    run("keys", [b"\n".join(name + b"\t" + args for name, args in real_keys[:1])], tmp_path)
