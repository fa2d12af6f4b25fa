"""csrc/simgpu and code objects: which load, which do not, and none that brings the process down."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from support import simgpu
from support.amdgpu_elf import bundle, code_object, hip_bundle

REPO = Path(__file__).resolve().parents[2]
OK, INVALID, OOM, PITCH, NO_BINARY, IMAGE, HANDLE, NOT_FOUND = 0, 1, 2, 12, 209, 200, 400, 500
GOOD = code_object()


def load(tmp_path: Path, data: bytes, device: str = "gfx1030") -> list[int]:
    """Results of loading `data` from memory, from memory that ends with it, and from a file."""
    script = "done([load(data)[0], load_exact(data)[0], load_file(data)[0]])"
    return list(simgpu.run(script, tmp_path, device=device, data=data))


def test_a_right_object_loads(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD) == [OK] * 3
    assert simgpu.log(tmp_path)[0] == (
        f"module source=memory size={len(GOOD)} target=gfx1030 kernels=1 result=0"
    )
    assert simgpu.log(tmp_path)[-1].startswith(
        "exit launches=0 fatbin_launches=0 modules=3 modules_refused=0"
    )


def test_functions_by_name(tmp_path: Path) -> None:
    script = """
code, m = load(data); ok(code)
out = [function(m, n)[0] for n in ('one', 'two', 'three', 'on', 'one.kd', '', 'x' * 5000)]
_, f = function(m, 'one'); out += [function(m, 'one')[1].value == f.value, hip.hipKernelNameRef(f).decode()]
v = c_int(); ok(hip.hipFuncGetAttribute(byref(v), 1, f)); out.append(v.value)
ok(hip.hipModuleUnload(m))
out += [hip.hipModuleUnload(m), function(m, 'one')[0]]
out.append(hip.hipModuleLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, None, None, None))
out.append(function(None, 'one')[0])
done(out)
"""
    found = simgpu.run(script, tmp_path, data=code_object(kernels=["two", "one"]))
    assert found == [
        *(OK, OK, NOT_FOUND, NOT_FOUND, NOT_FOUND, NOT_FOUND, NOT_FOUND),
        *(True, "one", 256, HANDLE, HANDLE, HANDLE, HANDLE),
    ]


@pytest.mark.parametrize(
    ("device", "data", "want"),
    [
        ("gfx1030", code_object("gfx906"), NO_BINARY),
        ("gfx1031", GOOD, NO_BINARY),
        ("gfx906", code_object("gfx906", xnack="off", sramecc="any"), OK),
        ("gfx906", code_object("gfx906", xnack="on", sramecc="any"), NO_BINARY),
        ("gfx906", code_object("gfx906", xnack="any", sramecc="off"), NO_BINARY),
        ("gfx906", code_object("gfx906", xnack="off", sramecc="on"), OK),
        ("gfx906:xnack+", code_object("gfx906", xnack="off"), NO_BINARY),
        ("gfx906:xnack+", code_object("gfx906", xnack="on"), OK),
        ("gfx1030", code_object(abi=1), OK),
        ("gfx906", code_object("gfx906", abi=1, e_flags=0x12F), NO_BINARY),  # v3: one bit says xnack is on
        ("gfx1030", code_object(abi=0), IMAGE),
        ("gfx1030", code_object(abi=9), IMAGE),
        ("gfx1030", code_object(osabi=0), IMAGE),
        ("gfx1030", code_object(machine=62), IMAGE),
        ("gfx1030", code_object(elf_class=1), IMAGE),
        ("gfx1030", code_object(order=2), IMAGE),
        ("gfx1030", code_object(shnum=0), IMAGE),
        ("gfx1030", code_object(shoff=2**64 - 64), IMAGE),
        ("gfx1030", code_object(shoff=2**63), IMAGE),
        ("gfx1030", code_object(descriptor_address=2**64 - 32), IMAGE),
        ("gfx1030", code_object(descriptor_address=0), IMAGE),
        ("gfx1030", b"not an object", IMAGE),
        ("gfx1030", b"CCOB" + bytes(60), 801),
        ("gfx1030", hip_bundle(GOOD, "gfx1030"), OK),
        ("gfx1030", hip_bundle(GOOD, "gfx906"), NO_BINARY),
        ("gfx906", hip_bundle(code_object("gfx906", xnack="off"), "gfx906:xnack-"), OK),
        ("gfx906", hip_bundle(code_object("gfx906", xnack="on"), "gfx906:xnack+"), NO_BINARY),
        ("gfx1030", hip_bundle(code_object("gfx906"), "gfx1030"), NO_BINARY),
        ("gfx1030", hip_bundle(b"junk", "gfx1030"), IMAGE),
        ("gfx1030", bundle(), IMAGE),
        ("gfx1030", bundle(("x" * 300, GOOD)), IMAGE),
        ("gfx1030", bundle(("hipv4-amdgcn-amd-amdhsa--", GOOD)), NO_BINARY),
        ("gfx1030", bundle(("hipv4-amdgcn-amd-amdhsa--gfx1030", GOOD), count=2**63), IMAGE),
        (
            "gfx1030",
            b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<QQQQ", 1, 2**64 - 8, 2**64 - 8, 4) + b"gfx1",
            IMAGE,
        ),
    ],
)
def test_objects_for_and_not_for_the_device(device: str, data: bytes, want: int, tmp_path: Path) -> None:
    assert load(tmp_path, data, device) == [want] * 3


def test_the_best_entry_of_a_bundle_is_taken(tmp_path: Path) -> None:
    target = "hipv4-amdgcn-amd-amdhsa--gfx906"
    data = bundle(
        (target, code_object("gfx906", ["general"])),
        (f"{target}:xnack-", code_object("gfx906", ["special"], xnack="off")),
        (f"{target}:xnack+", code_object("gfx906", ["other"], xnack="on")),
    )
    script = "_, m = load(data); done([function(m, n)[0] for n in ('general', 'special', 'other')])"
    assert simgpu.run(script, tmp_path, device="gfx906", data=data) == [NOT_FOUND, OK, NOT_FOUND]


@pytest.mark.parametrize("data", [GOOD, bundle(("hip-amdgcn-amd-amdhsa--gfx1030", GOOD), align=8)])
def test_an_object_cut_anywhere_is_refused(data: bytes, tmp_path: Path) -> None:
    script = """
codes = [[load_exact(data[:n])[0], load_file(data[:n])[0]] for n in range(len(data) + 1)]
done([sorted({c for pair in codes[:-1] for c in pair}), codes[-1]])
"""
    cut, whole = simgpu.run(script, tmp_path, data=data)
    assert whole == [OK, OK]
    assert cut == [IMAGE]


def test_no_changed_byte_brings_the_process_down(tmp_path: Path) -> None:
    script = """
seen = set()
for n in range(len(data)):
    for value in (0, 0xff, data[n] ^ 0x80, data[n] ^ 1):
        changed = data[:n] + bytes([value]) + data[n + 1:]
        code, m = load_exact(changed)
        seen.add(code)
        if code == 0: ok(hip.hipModuleUnload(m))
free, total = c_size_t(), c_size_t(); ok(hip.hipMemGetInfo(byref(free), byref(total)))
done([sorted(seen), free.value == total.value])
"""
    seen, all_freed = simgpu.run(script, tmp_path, data=GOOD)
    assert set(seen) <= {OK, OOM, NO_BINARY, IMAGE} and all_freed


def test_files_that_are_no_modules(tmp_path: Path) -> None:
    script = """
m = c_void_p(7); os.mkfifo(sys.argv[2] + '/fifo')
paths = ('/nonexistent', '/', sys.argv[2] + '/fifo', '/dev/null')
data = hip.hipModuleLoadData
done([hip.hipModuleLoad(byref(m), p.encode()) for p in paths]
     + [hip.hipModuleLoad(byref(m), None), data(None, b''), data(byref(m), None),
        data(byref(m), c_void_p(16)), m.value])
"""
    want = [301, IMAGE, IMAGE, IMAGE, INVALID, INVALID, INVALID, IMAGE, None]
    assert simgpu.run(script, tmp_path) == want
