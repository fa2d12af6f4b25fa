"""Faults that a review of the simulated device found; each test is named for one."""

from __future__ import annotations

import struct
from pathlib import Path

from support import amdgpu_elf as elf
from support.simgpu import log, run


def test_zeroing_at_an_odd_address_wrote_past_the_end(tmp_path: Path) -> None:
    """Whole pages are given back; the rest was filled by whole elements, up to three bytes too many."""
    run(
        """
p = malloc(1 << 20)
ctypes.memset(p, 0xff, 1 << 20)
for name, size in (('D8', 1), ('D16', 2), ('D32', 4)):
    for shift in range(4):
        start, count = p.value + shift, 262144 // size
        ctypes.memset(p, 0xff, 1 << 20)
        ok(getattr(hip, 'hipMemset' + name)(c_void_p(start), 0, c_size_t(count)))
        assert ctypes.string_at(p.value, shift) == b'\\xff' * shift
        assert ctypes.string_at(start, 262144) == bytes(262144)
        assert ctypes.string_at(start + 262144, 64) == b'\\xff' * 64, (name, shift)
done(0)
""",
        tmp_path,
    )


def test_many_symbols_of_one_huge_name(tmp_path: Path) -> None:
    """Each symbol measured the name that all share: hours for one module of 100 MB."""
    count, huge = 200_000, 4 << 20
    strings = b"\0" + b"x" * huge + b"\0"
    symbol = struct.pack("<IBBHQQ", 1, 1, 0, 1, 0, 0)
    symbols = bytes(24) + symbol * count
    at = 64 + 3 * 64
    sections = [
        bytes(64),
        struct.pack("<IIQQQQIIQQ", 0, 11, 2, 0, at, len(symbols), 2, 1, 8, 24),
        struct.pack("<IIQQQQIIQQ", 0, 3, 2, 0, at + len(symbols), len(strings), 0, 0, 1, 0),
    ]
    header = b"\x7fELF\x02\x01\x01\x40\x02" + bytes(7)
    header += struct.pack("<HHIQQQIHHHHHH", 3, 224, 1, 0, 0, 64, elf.flags("gfx1030"), 64, 56, 0, 64, 3, 0)
    data = header + b"".join(sections) + symbols + strings
    (tmp_path / "huge").write_bytes(data)
    run(
        """
code, m = load(open(sys.argv[2] + '/huge', 'rb').read())
assert name(code) == 'hipErrorInvalidImage'
done(0)
""",
        tmp_path,
    )
    assert "a symbol name is too long" in log(tmp_path)[0]
