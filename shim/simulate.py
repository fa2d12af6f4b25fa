"""The environment in which a process sees a simulated device (csrc/simgpu).

The device is described by one text, `$KDBTOOL_SIMGPU`: the C side parses no TOML. Its items and their
limits are csrc/simgpu/spec.c's; a test asks the built library whether it takes every known device.
"""

from __future__ import annotations

from pathlib import Path

from kdbtool.shim import libs
from kdbtool.targets import Target


def device_spec(target: Target) -> str:
    """`$KDBTOOL_SIMGPU` for a device: `name=value` joined by `;`."""
    major, minor = target.version
    items = {
        "arch": target.arch,
        "device": target.device,
        "name": target.name,
        "mem": target.memory_bytes,
        "mach": target.elf_mach,
        "cu": target.cu,
        "warp": target.wave_size,
        "lds": target.lds_bytes,
        "major": major,
        "minor": minor,
        "clock_khz": target.clock_khz,
        "mem_clock_khz": target.memory_clock_khz,
        "bus_bits": target.memory_bus_bits,
        "l2": target.l2_bytes,
        "integrated": int(target.integrated),
    }
    return ";".join(f"{name}={value}" for name, value in items.items())


def simulated_environment(target: Target, lib_dir: Path, *, log: Path | None = None) -> dict[str, str]:
    """What to add to a process's environment. `lib_dir`: the folder of the built libraries, as the
    process will see it. `LD_LIBRARY_PATH` is to be put before the process's own. `log`: a file to
    which the device appends module loads and counts."""
    folder = libs.simgpu_dir(within=lib_dir)
    env = {"LD_LIBRARY_PATH": str(folder), "KDBTOOL_SIMGPU": device_spec(target)}
    if log is not None:
        env["KDBTOOL_SIMGPU_LOG"] = str(log)
    return env
