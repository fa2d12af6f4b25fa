"""Field case 15: a byte flipped in bzip2, a wrong hash, the hash of the compressed bytes."""

import bz2
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.amdgpu_elf import code_object
from support.kdb_files import make, row

from kdbtool.kdb.blob import md5, unpack

DATA = code_object()
PACKED = bz2.compress(DATA, 9)


def test_015(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    flipped = bytearray(PACKED)
    flipped[len(flipped) // 2] ^= 0x10
    rows = [
        row(b"good.cl.o"),
        row(b"flip.cl.o", blob=bytes(flipped)),
        row(b"hash.cl.o", digest=md5(b"something else")),
        row(b"comp.cl.o", digest=md5(PACKED)),
        row(b"last.cl.o"),
    ]
    done = run_cli("verify", "--json", make(tmp_path / "gfx1030.kdb", rows))
    problems = [f for f in json.loads(done.out)["files"][0]["findings"] if f["severity"] == "problem"]
    assert done.code == 1
    assert [(f["row"], f["code"]) for f in problems] == [
        (2, "bad-bz2"),
        (3, "hash-wrong"),
        (4, "hash-of-compressed"),
    ]
    assert {f["consequence"] for f in problems} == {"throws"}


def test_015_every_flipped_byte_is_found_or_changes_nothing(tmp_path: Path) -> None:
    """A flip in the block size of the header or in the padding after the end gives the same object."""
    for at in range(len(PACKED)):
        flipped = bytearray(PACKED)
        flipped[at] ^= 1
        data, findings = unpack(bytes(flipped), md5(DATA), len(DATA))
        assert data == DATA or any(f.is_problem for f in findings), at
