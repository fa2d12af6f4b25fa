"""What verify finds no fault with, the simulated device loads: both refuse the same headers."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from support import simgpu
from support.amdgpu_elf import code_object, hip_bundle

from kdbtool.codeobject.check import check_object

GOOD = code_object(kernels=("one", "two"))
LOAD = """
out = []
for n in range(count):
    with open(f"{objects}/{n}", "rb") as f: out.append(load_exact(f.read())[0])
done(out)
"""


def headers(data: bytes) -> list[tuple[int, int]]:
    """(offset, size) of ELF header, program headers, section headers, what is before them, everything."""
    base = data.index(b"\x7fELF")
    at = base + struct.unpack_from("<Q", data, base + 40)[0]
    return [(base, 64), (base + 64, 2 * 56), (at, 7 * 64), (0, base or 64), (0, len(data))]


def damaged(data: bytes, chance: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        start, size = chance.choice(headers(data))
        at = start + chance.randrange(size)
        if chance.random() < 0.3:
            value = chance.choice((0, 1, len(data), len(data) + 1, 1 << 32, 1 << 63, (1 << 64) - 1))
            out[at : at + 8] = struct.pack("<Q", value)[: len(out) - at]
        else:
            out[at] = chance.choice((0, 255, out[at] ^ 1 << chance.randrange(8)))
    return bytes(out)


@pytest.mark.parametrize("good", [GOOD, hip_bundle(GOOD, "gfx1030")], ids=["elf", "bundle"])
def test_what_passes_loads(good: bytes, tmp_path: Path) -> None:
    chance = random.Random(6)
    inputs = [good, *(damaged(good, chance) for _ in range(1500))]
    for n, data in enumerate(inputs):
        (tmp_path / str(n)).write_bytes(data)
    results = simgpu.run(LOAD, tmp_path, count=len(inputs), objects=str(tmp_path))
    passes = [not any(f.is_problem for f in check_object(data, "gfx1030")) for data in inputs]
    assert passes[0] and results[0] == 0
    assert [n for n, result in enumerate(results) if result and passes[n]] == []
    assert sum(passes) > 300 and sum(map(bool, results)) > 300


@pytest.mark.parametrize(
    ("offset", "value", "what"),
    [
        (16, b"\1\0", "not linked: type 1"),
        (20, b"\2\0\0\0", "not linked: type 3, ELF version 2"),
        (64 + 8, b"\xff" * 7 + b"\0", "a segment ends past"),
        (64 + 32, b"\xff\xff\0\0", "a segment ends past"),
        (64 + 40, b"\1\0\0\0\0\0\0\0", "larger in the file"),
    ],
)
def test_headers_that_no_loader_takes(offset: int, value: bytes, what: str) -> None:
    assert not [f for f in check_object(GOOD, "gfx1030") if f.is_problem]
    bad = GOOD[:offset] + value + GOOD[offset + len(value) :]
    (found,) = check_object(bad, "gfx1030")
    assert found.code.code == "bad-elf" and what in found.detail
