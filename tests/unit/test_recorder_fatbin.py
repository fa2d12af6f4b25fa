"""Which code object of a fat binary a launch ran: named where it is certain, else not at all."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import pytest
from support.amdgpu_elf import bundle, code_object
from support.hip_calls import hip_program
from support.standins import Standins, standins, traces

from kdbtool.shim.trace import Module

__all__ = ["standins", "traces"]  # fixtures

OBJECTS = {arch: code_object(arch, ["host_kernel"]) for arch in ("gfx906", "gfx1030", "gfx90a")}
OBJECTS["gfx90a:xnack-"] = code_object("gfx90a", ["host_kernel"], xnack="off")
OBJECTS["gfx90a:xnack+"] = code_object("gfx90a", ["host_kernel"], xnack="on")
SEE = "for n in {}: call('hipGetDevicePropertiesR0600', c.create_string_buffer(1472), n)\n"


def fat(*targets: str) -> bytes:
    entries = [(f"hipv4-amdgcn-amd-amdhsa--{t}", OBJECTS[t]) for t in targets]
    return bundle(("host-x86_64-unknown-linux-gnu-", b""), *entries)


def module(standins: Standins, traces: Path, image: bytes, before: str = "", wrapper: str = "") -> Module:
    file = traces.parent / "image"
    file.write_bytes(image)
    code = f"""
image = open({str(file)!r}, "rb").read()
class Wrapper(c.Structure):
    _fields_ = [("magic", c.c_uint), ("version", c.c_uint), ("image", c.c_char_p), ("x", P)]
wrapper = Wrapper({wrapper or "0x48495046, 1, image"})
{before}
register(image=c.byref(wrapper))
call("hipLaunchKernel", HOST, G, B, None, c.c_size_t(0), None)
"""
    (launch,) = hip_program(standins, traces, code).trace.launches
    assert launch.kernel == "host_kernel" and launch.module is not None and launch.module.source == "fatbin"
    return launch.module


@pytest.mark.parametrize(
    ("targets", "devices", "chosen"),
    [
        (["gfx906"], (), "gfx906"),  # HIP took it, whatever the device
        (["gfx906", "gfx1030"], (0,), "gfx1030"),
        (["gfx906", "gfx1030"], (), None),
        (["gfx906", "gfx1030"], (0, 1), None),
        (["gfx90a", "gfx90a:xnack-", "gfx90a:xnack+"], (1,), "gfx90a:xnack-"),
        (["gfx906", "gfx90a:xnack+"], (1,), None),
        (["gfx1030", "gfx1030"], (0,), None),
    ],
)
def test_object(
    standins: Standins, traces: Path, targets: list[str], devices: tuple[int, ...], chosen: str | None
) -> None:
    found = module(standins, traces, fat(*targets), SEE.format(devices))
    data = OBJECTS[chosen] if chosen else b""
    md5 = hashlib.md5(data).hexdigest() if chosen else ""
    assert (found.md5, found.size, found.target) == (md5, len(data), chosen)


def test_large_object_is_not_hashed(standins: Standins, traces: Path) -> None:
    large = code_object("gfx1030", ["host_kernel"], text=bytes(17 << 20))
    found = module(standins, traces, bundle(("hipv4-amdgcn-amd-amdhsa--gfx1030", large)))
    assert (found.md5, found.size) == ("", 0)


ENTRY = struct.Struct("<QQQ")
ID = b"hip-amdgcn-amd-amdhsa--gfx1030"
HEAD = b"__CLANG_OFFLOAD_BUNDLE__"
BAD = {
    "compressed": b"CCOB" + bytes(4096),
    "empty": b"",
    "no entries": HEAD + bytes(8),
    "cut": HEAD,
    "many entries": HEAD + struct.pack("<Q", 1 << 40) + bytes(64),
    "long id": HEAD + struct.pack("<Q", 1) + ENTRY.pack(4096, 64, 1 << 40) + ID,
    "far away": HEAD + struct.pack("<Q", 1) + ENTRY.pack(1 << 46, 4096, len(ID)) + ID,
    "beyond everything": HEAD + struct.pack("<Q", 1) + ENTRY.pack((1 << 63) - 1, 4096, len(ID)) + ID,
    "negative": HEAD + struct.pack("<Q", 1) + ENTRY.pack((1 << 64) - 64, 4096, len(ID)) + ID,
    "no object": HEAD + struct.pack("<Q", 1) + ENTRY.pack(128, 4096, len(ID)) + ID + bytes(8192),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_bundle(standins: Standins, traces: Path, what: str) -> None:
    found = module(standins, traces, BAD[what])
    assert (found.md5, found.size, found.target) == ("", 0, None)


@pytest.mark.parametrize("wrapper", ["0x48495047, 1, image", "0x48495046, 2, image", "0x48495046, 1, None"])
def test_unknown_wrapper(standins: Standins, traces: Path, wrapper: str) -> None:
    assert module(standins, traces, fat("gfx1030"), wrapper=wrapper).size == 0
