"""Runs a piece of Python in a process that has the built simulated device loaded as `hip`.

The device reads its environment once per process, so each test has a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from kdbtool.shim.libs import simgpu_dir
from kdbtool.shim.simulate import device_spec
from kdbtool.targets import split_target

_HEAD = """
import ctypes, json, os, sys
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p, create_string_buffer
hip = ctypes.CDLL(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
hip.hipGetErrorName.restype = hip.hipGetErrorString.restype = hip.hipKernelNameRef.restype = c_char_p
getattr(hip, '__hipRegisterFatBinary').restype = c_void_p
def name(code): return hip.hipGetErrorName(code).decode()
def ok(code): assert code == 0, name(code)
def malloc(size):
    p = c_void_p(); ok(hip.hipMalloc(byref(p), c_size_t(size))); return p
def load(data):
    m = c_void_p(); return hip.hipModuleLoadData(byref(m), data), m
def load_exact(data):
    # The image ends where readable memory ends: reading past it is a fault.
    libc.mmap.restype = c_void_p
    pages = (len(data) + 4095) // 4096 + 1
    at = libc.mmap(None, c_size_t(pages * 4096), 3, 0x22, -1, 0)
    libc.mprotect(c_void_p(at + (pages - 1) * 4096), c_size_t(4096), 0)
    start = at + (pages - 1) * 4096 - len(data)
    ctypes.memmove(start, data, len(data))
    m = c_void_p(); code = hip.hipModuleLoadData(byref(m), c_void_p(start))
    libc.munmap(c_void_p(at), c_size_t(pages * 4096))
    return code, m
def load_file(data, path=sys.argv[2] + '/object'):
    with open(path, 'wb') as f: f.write(data)
    m = c_void_p(); return hip.hipModuleLoad(byref(m), path.encode()), m
def function(m, text):
    f = c_void_p(); return hip.hipModuleGetFunction(byref(f), m, text.encode()), f
def event():
    e = c_void_p(); ok(hip.hipEventCreate(byref(e))); return e
def elapsed(a, b):
    ms = c_float(); ok(hip.hipEventElapsedTime(byref(ms), a, b)); return ms.value
def done(value): print(json.dumps(value))
"""


def spec(text: str) -> str:
    """`$KDBTOOL_SIMGPU` of `gfx1030:36` and the like."""
    return device_spec(split_target(text))


def run(
    script: str,
    folder: Path,
    *,
    device: str | None = "gfx1030",
    raw: str | None = None,
    library: str = "libamdhip64.so.6",
    **names: Any,
) -> Any:
    """What `script` gave to `done(...)`. `names`: JSON or bytes that it finds as variables; `raw`: the
    environment's text as it is; `folder`: for the log (`sim.log`) and for files."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("KDBTOOL_SIMGPU")}
    if device is not None or raw is not None:
        env["KDBTOOL_SIMGPU"] = raw if raw is not None else spec(str(device))
    env["KDBTOOL_SIMGPU_LOG"] = str(folder / "sim.log")
    given = "".join(f"{key} = {value!r}\n" for key, value in names.items())
    file = folder / "script.py"
    file.write_text(_HEAD + given + script)
    result = subprocess.run(
        [sys.executable, str(file), str(simgpu_dir() / library), str(folder)],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, f"exit {result.returncode}: {result.stderr[-2000:]}"
    assert result.stderr == "", "the device wrote to the program's standard error"
    return json.loads(result.stdout)


def log(folder: Path) -> list[str]:
    """Lines of the device's log, without the pid."""
    return [line.partition(" ")[2] for line in (folder / "sim.log").read_text().splitlines()]
