"""Programs that call the stand-in HIP and ROCTx through ctypes, so through pointers out of dlsym."""

from __future__ import annotations

from pathlib import Path

from support.standins import Ran, Standins, python, same

_PRELUDE = """
import ctypes as c, threading
hip, roctx = c.CDLL({hip!r}), c.CDLL({roctx!r})
roctx.roctxRangeStartA.restype, roctx.roctxRangeStop.argtypes = c.c_uint64, [c.c_uint64]
hip.__hipRegisterFatBinary = hip["__hipRegisterFatBinary"]
hip.__hipRegisterFatBinary.restype = c.c_void_p
P, IMAGE = c.c_void_p, bytes([127, 69, 76, 70, 2, 1, 1]) + bytes(57)
class dim3(c.Structure): _fields_ = [(n, c.c_uint32) for n in "xyz"]
class HostLaunch(c.Structure):  # hipLaunchParams
    _fields_ = [("f", P), ("grid", dim3), ("block", dim3), ("args", P), ("lds", c.c_size_t), ("stream", P)]
class ModuleLaunch(c.Structure):  # hipFunctionLaunchParams
    _fields_ = [("f", P), ("grid", dim3), ("block", dim3), ("lds", c.c_uint32), ("stream", P), ("args", P)]
class HostConfig(c.Structure):  # hipLaunchConfig_t
    _fields_ = [("grid", dim3), ("block", dim3), ("lds", c.c_size_t), ("stream", P), ("attrs", P)]
class DriverConfig(c.Structure):  # HIP_LAUNCH_CONFIG
    _fields_ = [("grid", dim3), ("block", dim3), ("lds", c.c_uint), ("stream", P), ("attrs", P)]
G, B, S = dim3(4, 3, 2), dim3(64, 2, 1), P(0x5000)
GB = (4, 3, 2, 64, 2, 1)
HOST = P(0x7000)
def call(name, *args, want=0):
    result = hip[name](*args)
    assert result == want, (name, result)
def new(name, *args):
    handle = P()
    call(name, c.byref(handle), *args)
    return handle
def function(name, module=None):
    return new("hipModuleGetFunction", module or new("hipModuleLoadData", IMAGE), name.encode())
def register(name=b"host_kernel", host=HOST, image=None):
    fat = P(hip.__hipRegisterFatBinary(image))
    hip["__hipRegisterFunction"](fat, host, None, name, 0, None, None, None, None, None)
    return fat
def launch(f, stream=None, grid=1, want=0):
    call("hipModuleLaunchKernel", f, grid, 1, 1, 64, 1, 1, 0, stream, None, None, want=want)
"""


def hip_program(
    standins: Standins,
    traces: Path,
    code: str,
    *,
    tag: int = 1,
    env: dict[str, str] | None = None,
    notes: str = "",
) -> Ran:
    """Run `code` after the prelude, with and without the recorder: nothing changed, nothing lost.
    `tag` 2: the HIP that launches as HIP 5 did. `notes`: what each note of a trace must have."""
    folder = standins.folder if tag == 1 else standins.folder / "other"
    prelude = _PRELUDE.format(
        hip=str(folder / "libamdhip64.so.6"), roctx=str(standins.folder / "libroctx64.so.4")
    )
    # Without LD_LIBRARY_PATH: the stand-ins share a soname.
    ran = same(standins, traces, *python(prelude + code), env={"LD_LIBRARY_PATH": "-", **(env or {})})
    assert (ran.code, ran.err) == (0, "")
    for trace in ran.traces:
        assert all(notes and notes in note for note in trace.notes), trace.notes
    return ran
