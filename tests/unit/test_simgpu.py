"""csrc/simgpu: the built stand-in, by ctypes: what it reports, and every kind of wrong use."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support import simgpu
from support.amdgpu_elf import code_object

from kdbtool.shim.libs import simgpu_dir

REPO = Path(__file__).resolve().parents[2]
OK, INVALID, OOM, PITCH, NO_BINARY, IMAGE, HANDLE, NOT_FOUND = 0, 1, 2, 12, 209, 200, 400, 500
GOOD = code_object()


def test_exports_are_those_of_the_real_library() -> None:
    want = {
        f"{name}@@{node}"
        for name, node in (
            line.split()
            for line in (REPO / "csrc/simgpu/abi/hip6.exports").read_text().splitlines()
            if not line.startswith("#")
        )
    }
    listing = subprocess.run(
        ["readelf", "-W", "--dyn-syms", simgpu_dir() / "libamdhip64.so.6"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = {
        word for line in listing.splitlines() if " UND " not in line for word in line.split() if "@@" in word
    }
    assert found == want | {"kdbtool_simgpu@@KDBTOOL_1"}
    assert len(want) == 502


def test_it_needs_nothing_but_libc() -> None:
    dynamic = subprocess.run(
        ["readelf", "-W", "-d", simgpu_dir() / "libamdhip64.so.6"], capture_output=True, text=True, check=True
    ).stdout
    needed = {line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "(NEEDED)" in line}
    assert needed <= {"libc.so.6", "libpthread.so.0", "libm.so.6", "ld-linux-x86-64.so.2"}


def test_unversioned_name_is_the_same_device(tmp_path: Path) -> None:
    script = """
both = ctypes.CDLL(sys.argv[1] + '.6')
p = malloc(64); size = c_size_t()
ok(both.hipMemPtrGetInfo(p, byref(size)))
done([size.value, ctypes.cast(hip.hipMalloc, c_void_p).value == ctypes.cast(both.hipMalloc, c_void_p).value])
"""
    assert simgpu.run(script, tmp_path, library="libamdhip64.so") == [64, True]


def test_attributes(tmp_path: Path) -> None:
    script = """
out = []
for a in (63, 10015, 74, 29, 10, 87, 23, 61, 88, 9998):
    v = c_int(); out.append([hip.hipDeviceGetAttribute(byref(v), a, 0), v.value])
done(out)
"""
    cu, physical, lds, grid, cooperative, warp, major, minor, pools, unknown = simgpu.run(script, tmp_path)
    assert [cu, physical, warp, lds] == [[0, 36], [0, 36], [0, 32], [0, 65536]]
    assert [grid, cooperative, major, minor, pools] == [[0, 2**31 - 1], [0, 1], [0, 10], [0, 3], [0, 1]]
    assert unknown[0] == INVALID


def test_old_properties(tmp_path: Path) -> None:
    script = """
p = create_string_buffer(b'\\xee' * 800, 800)
ok(hip.hipGetDeviceProperties(p, 0))
i = lambda o: int.from_bytes(p.raw[o:o+4], 'little')
untouched = p.raw[792:800] == b'\\xee' * 8
done([i(276), i(336), p.raw[396:403].decode(), untouched, hip.hipGetDeviceProperties(p, 1)])
"""
    assert simgpu.run(script, tmp_path) == [32, 36, "gfx1030", True, 101]


def test_memory_is_bounded_and_counted(tmp_path: Path) -> None:
    script = """
free, total = c_size_t(), c_size_t()
def room(): ok(hip.hipMemGetInfo(byref(free), byref(total))); return free.value
start = room(); out = [start == total.value]
p = c_void_p(1)
out += [hip.hipMalloc(byref(p), c_size_t(start + 1)), p.value, hip.hipMalloc(byref(p), c_size_t(2**64 - 1))]
a = malloc(start - 4096)
out += [room(), hip.hipMalloc(byref(p), c_size_t(8192))]
ok(hip.hipFree(a)); out += [room() == start, hip.hipFree(a), hip.hipFree(None)]
out += [hip.hipMalloc(byref(p), c_size_t(0)), p.value, hip.hipMalloc(None, c_size_t(1))]
done(out)
"""
    assert simgpu.run(script, tmp_path) == [
        True,
        OOM,
        None,
        OOM,
        4096,
        OOM,
        True,
        INVALID,
        OK,
        OK,
        None,
        INVALID,
    ]


def test_reserved_memory_is_not_committed(tmp_path: Path) -> None:
    script = """
def resident(): return int(open('/proc/self/statm').read().split()[1]) * 4096
before = resident()
p = malloc(8 << 30); ok(hip.hipMemset(p, 0, c_size_t(8 << 30)))
ok(hip.hipMemcpy(c_void_p(p.value + (7 << 30)), b'abcd', c_size_t(4), 1))
b = create_string_buffer(5); ok(hip.hipMemcpy(b, c_void_p(p.value + (7 << 30)), c_size_t(4), 2))
first = b.value
ok(hip.hipMemset(p, 0, c_size_t(8 << 30)))
ok(hip.hipMemcpy(b, c_void_p(p.value + (7 << 30)), c_size_t(4), 2))
done([resident() - before < 64 << 20, first.decode(), b.raw[:4].hex()])
"""
    assert simgpu.run(script, tmp_path) == [True, "abcd", "00000000"]


def test_copies_and_fills_stay_inside_their_allocations(tmp_path: Path) -> None:
    script = """
p = malloc(100); h = create_string_buffer(4096)
q = c_void_p(p.value + 90); s = c_size_t
done([hip.hipMemcpy(p, h, s(101), 1), hip.hipMemcpy(q, h, s(11), 1), hip.hipMemcpy(q, h, s(10), 1),
      hip.hipMemcpy(h, p, s(101), 2), hip.hipMemset(q, 1, s(11)), hip.hipMemsetD32(p, 7, s(26)),
      hip.hipMemsetD32(p, 7, s(2**62)), hip.hipMemsetD32(p, 7, s(25)), hip.hipMemcpy(p, h, s(1), 9),
      hip.hipMemcpy(p, None, s(1), 1), hip.hipMemcpy(p, None, s(0), 1),
      hip.hipMemcpy2D(p, s(4), h, s(8), s(5), s(2), 1), hip.hipMemcpy2D(p, s(20), h, s(20), s(10), s(6), 1),
      hip.hipMemcpy2D(p, s(2**63), h, s(2**63), s(10), s(6), 1),
      hip.hipMemcpy2D(p, s(20), h, s(20), s(20), s(5), 1),
      hip.hipMemcpyAsync(p, h, s(1), 1, c_void_p(id(h) // 16 * 16))])
"""
    assert simgpu.run(script, tmp_path) == [
        *(INVALID, INVALID, OK, INVALID, INVALID, INVALID, INVALID, OK, 21, INVALID, OK),
        *(PITCH, INVALID, INVALID, OK, HANDLE),
    ]


def test_pointer_attributes(tmp_path: Path) -> None:
    script = """
a = create_string_buffer(b'\\xee' * 32, 32); out = []
def ask(p):
    code = hip.hipPointerGetAttributes(a, p); i = lambda o, n=4: int.from_bytes(a.raw[o:o+n], 'little')
    return [code, i(0), i(4), i(8, 8) - (p.value or 0), i(16, 8) and i(16, 8) - p.value, i(24), i(28)]
d = malloc(64); out.append(ask(c_void_p(d.value + 63)))
h = c_void_p(); ok(hip.hipHostMalloc(byref(h), c_size_t(10), 2)); out.append(ask(h))
m = c_void_p(); ok(hip.hipMallocManaged(byref(m), c_size_t(10), 1)); out.append(ask(m))
own = create_string_buffer(64); p = c_void_p(ctypes.addressof(own))
out.append(ask(p)[:2])
ok(hip.hipHostRegister(p, c_size_t(64), 0)); out.append(ask(p))
twice = hip.hipHostRegister(p, c_size_t(8), 0)
ok(hip.hipHostUnregister(p))
out.append([twice, hip.hipHostUnregister(p), hip.hipFree(h), hip.hipHostFree(d)])
v = c_size_t(); get = hip.hipPointerGetAttribute
out.append([get(byref(v), 12, d), v.value, get(byref(v), 99, d)])
done(out)
"""
    device, host, managed, foreign, registered, wrong, range_size = simgpu.run(script, tmp_path)
    assert device == [OK, 2, 0, 0, 0, 0, 0]
    assert host == [OK, 1, 0, 0, 0, 0, 2]
    assert managed == [OK, 3, 0, 0, 0, 1, 1]
    assert foreign == [INVALID, 0]
    assert registered == [OK, 1, 0, 0, 0, 0, 0]
    assert wrong == [712, 713, INVALID, INVALID]
    assert range_size == [OK, 64, INVALID]


def test_time_is_the_published_function(tmp_path: Path) -> None:
    script = """
_, m = load(data); out = []
for n in ('fast', 'naive_conv'):
    _, f = function(m, n); a, b, c = event(), event(), event()
    ok(hip.hipEventRecord(a, None))
    ok(hip.hipExtModuleLaunchKernel(f, 1000, 3, 1, 64, 1, 1, c_size_t(0), None, None, None, b, c, 0))
    out += [elapsed(b, c), elapsed(a, c), elapsed(c, a)]
done(out)
"""

    def ms(name: str, items: int) -> float:
        digest = 2166136261
        for byte in name.encode():
            digest = (digest ^ byte) * 16777619 % 2**32
        return (4000 + digest % 1000 + items // 16) * (100 if "naive" in name else 1) / 1e6

    found = simgpu.run(script, tmp_path, data=code_object(kernels=["fast", "naive_conv"]))
    fast, naive = ms("fast", 1024 * 3), ms("naive_conv", 1024 * 3)
    assert found == pytest.approx([fast, fast, 0, naive, naive, 0], rel=1e-6)


def test_launches_that_no_device_takes(tmp_path: Path) -> None:
    script = """
_, m = load(data); _, f = function(m, 'k')
def go(*d, lds=0, stream=None, f=f): return hip.hipModuleLaunchKernel(f, *d, lds, stream, None, None)
x = (c_void_p * 1)(); stale = event(); ok(hip.hipEventDestroy(stale))
done([go(1, 1, 1, 1, 1, 1), go(0, 1, 1, 1, 1, 1), go(1, 1, 1, 0, 1, 1), go(1, 1, 1, 1025, 1, 1),
      go(1, 1, 1, 32, 33, 1), go(1, 1, 1, 1, 1, 1, lds=65537), go(2**31, 1, 1, 2, 1, 1),
      go(1, 1, 1, 1, 1, 1, stream=stale),
      go(1, 1, 1, 1, 1, 1, f=None), go(2**31 - 1, 2**31 - 1, 2**31 - 1, 1, 1, 1),
      hip.hipModuleLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, None, x, x),
      hip.hipExtModuleLaunchKernel(f, 64, 1, 1, 0, 1, 1, c_size_t(0), None, None, None, None, None, 0)])
"""
    assert simgpu.run(script, tmp_path, data=GOOD) == [OK, 9, 9, 9, 9, 9, 9, HANDLE, HANDLE, OK, INVALID, 9]


def test_events_and_streams(tmp_path: Path) -> None:
    script = """
s = c_void_p(); ok(hip.hipStreamCreateWithFlags(byref(s), 1))
flags = c_uint(); ok(hip.hipStreamGetFlags(s, byref(flags))); status = c_int(7)
ok(hip.hipStreamIsCapturing(s, byref(status)))
a, b = event(), event(); quiet = c_void_p(); ok(hip.hipEventCreateWithFlags(byref(quiet), 2)); ms = c_float()
out = [flags.value, status.value, hip.hipEventElapsedTime(byref(ms), a, b)]
ok(hip.hipEventRecord(a, s)); ok(hip.hipEventRecord(b, s)); ok(hip.hipEventRecord(quiet, s))
out += [hip.hipEventElapsedTime(byref(ms), a, b), hip.hipEventElapsedTime(byref(ms), a, quiet)]
called = []
CB = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_void_p); HF = ctypes.CFUNCTYPE(None, c_void_p)
cb = CB(lambda stream, code, user: called.append([stream == s.value, code, user])); hf = HF(called.append)
ok(hip.hipStreamAddCallback(s, cb, c_void_p(5), 0)); ok(hip.hipLaunchHostFunc(s, hf, c_void_p(6)))
out += [called, hip.hipStreamAddCallback(s, cb, None, 1)]
out += [hip.hipStreamSynchronize(s), hip.hipStreamQuery(c_void_p(2))]
ok(hip.hipStreamDestroy(s)); ok(hip.hipEventDestroy(a))
out += [hip.hipStreamDestroy(s), hip.hipStreamSynchronize(s),
        hip.hipEventDestroy(a), hip.hipEventRecord(a, None),
        hip.hipStreamDestroy(None), hip.hipStreamDestroy(c_void_p(1)), hip.hipStreamQuery(b)]
done(out)
"""
    assert simgpu.run(script, tmp_path) == [
        *(1, 0, HANDLE, OK, HANDLE, [[True, 0, 5], 6], INVALID, OK, OK),
        *(HANDLE, HANDLE, HANDLE, HANDLE, HANDLE, HANDLE, HANDLE),
    ]


def test_errors_are_kept_per_thread(tmp_path: Path) -> None:
    script = """
import threading
out = [hip.hipSetDevice(1), hip.hipPeekAtLastError()]
t = threading.Thread(target=lambda: out.append(hip.hipGetLastError())); t.start(); t.join()
out += [hip.hipGetLastError(), hip.hipGetLastError()]
out += [name(101), hip.hipGetErrorString(101).decode(), name(-5)]
done(out)
"""
    assert simgpu.run(script, tmp_path) == [
        *(101, 101, 0, 101, 0, "hipErrorInvalidDevice", "invalid device ordinal", "hipErrorUnknown")
    ]


def test_what_is_not_simulated_says_so_once(tmp_path: Path) -> None:
    script = (
        "g = c_void_p(); done([hip.hipGraphCreate(byref(g), 0) for _ in range(3)] + [hip.hipGetLastError()])"
    )
    assert simgpu.run(script, tmp_path) == [801] * 4
    lines = simgpu.log(tmp_path)
    assert lines[0] == "unsupported function=hipGraphCreate" and len(lines) == 2
    assert lines[1].endswith("unsupported_calls=3")


def test_kernels_of_a_fat_binary_launch_by_name(tmp_path: Path) -> None:
    script = """
reg = getattr(hip, '__hipRegisterFunction'); push = getattr(hip, '__hipPushCallConfiguration')
wrapper = (c_uint * 6)(0x48495046, 1); h = c_void_p(getattr(hip, '__hipRegisterFatBinary')(wrapper))
host = create_string_buffer(8); other = create_string_buffer(8)
reg(h, host, b'k', b'k', 0xffffffff, None, None, None, None, None)
class dim3(ctypes.Structure): _fields_ = [('x', c_uint), ('y', c_uint), ('z', c_uint)]
one = dim3(1, 1, 1)
def go(f): return hip.hipLaunchKernel(f, one, one, None, c_size_t(0), None)
pop = getattr(hip, '__hipPopCallConfiguration'); g, b, n, s = dim3(), dim3(), c_size_t(), c_void_p()
def popped(): return pop(byref(g), byref(b), byref(n), byref(s))
out = [go(host), go(other), push(dim3(7, 8, 9), one, c_size_t(3), None), popped()]
out += [[g.x, g.y, g.z, n.value], popped()]
getattr(hip, '__hipUnregisterFatBinary')(h)
out += [go(host), getattr(hip, '__hipRegisterFatBinary')((c_uint * 6)())]
done(out)
"""
    assert simgpu.run(script, tmp_path) == [OK, 98, OK, OK, [7, 8, 9, 3], 52, 98, None]
    assert "launches=1 fatbin_launches=1" in simgpu.log(tmp_path)[-1]


def test_block_size_that_fills_the_device(tmp_path: Path) -> None:
    """TensorFlow asks before its own kernels and ends the process where that fails."""
    script = """
c, m = load(image); f = function(m, 'k')[1]; grid, block = c_int(), c_int()
fill = hip.hipModuleOccupancyMaxPotentialBlockSize
def ask(of, lds, limit): return fill(byref(grid), byref(block), of, c_size_t(lds), limit)
def best(limit): return [ask(f, 0, limit), grid.value, block.value]
found = [best(0), best(256), ask(f, 40000, 0), ask(f, 0, -1), ask(None, 0, 0)]
hip.hipOccupancyMaxPotentialBlockSize.argtypes = [c_void_p, c_void_p, c_void_p, c_size_t, c_int]
done(found + [hip.hipOccupancyMaxPotentialBlockSize(byref(grid), byref(block), image, 0, 0)])
"""
    found = simgpu.run(script, tmp_path, device="gfx1030:36", image=GOOD)
    assert found == [[OK, 72, 1024], [OK, 288, 256], OK, INVALID, HANDLE, 98]


def test_get_proc_address(tmp_path: Path) -> None:
    script = """
f = c_void_p(); status = c_int()
def ask(n):
    code = hip.hipGetProcAddress(n, byref(f), 604, c_uint64(0), byref(status))
    return [code, status.value, bool(f.value)]
found = ask(b'hipMalloc'); same = f.value == ctypes.cast(hip.hipMalloc, c_void_p).value
done([found, same, ask(b'hipNoSuch'), hip.hipGetProcAddress(None, byref(f), 604, c_uint64(0), None)])
"""
    assert simgpu.run(script, tmp_path) == [[0, 0, True], True, [INVALID, 1, False], INVALID]


def test_threads_and_fork(tmp_path: Path) -> None:
    """Allocation, launch and load from many threads while the process forks: no deadlock, sums right."""
    script = """
import threading, warnings
warnings.simplefilter('ignore', DeprecationWarning)  # Python 3.12 warns of fork beside threads
_, m = load(data); _, f = function(m, 'k')
def work():
    for _ in range(200):
        p = malloc(5000); ok(hip.hipMemset(p, 1, c_size_t(5000))); ok(hip.hipFree(p))
        ok(hip.hipModuleLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, None, None, None))
        code, n = load(data); ok(code); ok(function(n, 'k')[0]); ok(hip.hipModuleUnload(n))
threads = [threading.Thread(target=work) for _ in range(8)]
for t in threads: t.start()
children = []
for _ in range(10):
    pid = os.fork()
    if pid == 0:
        p = malloc(64); ok(hip.hipFree(p)); os._exit(0)
    children.append(os.waitpid(pid, 0)[1])
for t in threads: t.join()
free, total = c_size_t(), c_size_t(); ok(hip.hipMemGetInfo(byref(free), byref(total)))
done([sorted(set(children)), free.value == total.value])
"""
    assert simgpu.run(script, tmp_path, data=GOOD) == [[0], True]
    assert "exit launches=1600 " in simgpu.log(tmp_path)[-1]


def test_a_log_that_cannot_be_written_is_nothing_to_the_program(tmp_path: Path) -> None:
    (tmp_path / "sim.log").mkdir()
    assert simgpu.run("done(hip.hipInit(0))", tmp_path) == OK
