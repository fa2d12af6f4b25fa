"""Field case 14: a raw row with uncompressed_size 0 beside a bzip2 one; written as MIOpen would choose."""

import os
from pathlib import Path

from support.amdgpu_elf import code_object
from support.kdb_files import ARGS, make, row

from kdbtool.kdb.checks import check
from kdbtool.kdb.reader import open_kdb
from kdbtool.kdb.writer import write_kdb

DATA = code_object()
NOISE = code_object(text=os.urandom(4096))


def test_014(tmp_path: Path) -> None:
    path = make(tmp_path / "gfx1030.kdb", [row(b"a.cl.o", blob=DATA, size=0), row(b"b.cl.o")])
    with open_kdb(path) as reader:
        assert [r.object() for r in reader] == [DATA, DATA]
        assert not check(reader).problems


def test_014_written(tmp_path: Path) -> None:
    write_kdb(tmp_path / "gfx1030.kdb", [(b"a.cl.o", ARGS, DATA), (b"b.cl.o", ARGS, NOISE[-64:])], {})
    with open_kdb(tmp_path / "gfx1030.kdb") as reader:
        small, raw = reader
    assert small.uncompressed_size == len(DATA) and small.blob_size < len(DATA)
    assert raw.uncompressed_size in (0, 64)
