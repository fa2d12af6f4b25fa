"""Where the built C parts are: the recorder, its audit library, the simulated device, the harvest's parts."""

from __future__ import annotations

from pathlib import Path

from kdbtool.errors import KdbtoolError

HINT = "build it: pip install . (in the tree: python3 setup.py build_ext --inplace)"


def lib_dir() -> Path:
    """Folder of all built libraries; it need not exist."""
    return Path(__file__).resolve().parent / "lib"


def recorder() -> Path:
    """The preload library; KdbtoolError when it is not built."""
    return _built(lib_dir() / "libkdbshim.so", "the recorder")


def audit() -> Path:
    """The library for LD_AUDIT, of use beside the recorder alone; KdbtoolError when it is not built."""
    return _built(lib_dir() / "libkdbaudit.so", "the audit library")


def answers(*, within: Path | None = None) -> Path:
    """The library that answers a harvest's look-ups, of use behind the recorder alone; KdbtoolError when it
    is not built. `within`: what `lib_dir` is by another name."""
    return _built((within or lib_dir()) / "harvest" / "libkdbanswer.so", "the harvest's library")


def harvest_driver(*, within: Path | None = None) -> Path:
    """The program that walks problems through libMIOpen; KdbtoolError when it is not built."""
    return _built((within or lib_dir()) / "harvest" / "kdbharvest", "the harvest's driver")


def simgpu_dir(major: int = 6, *, within: Path | None = None) -> Path:
    """Folder of the simulated device for one HIP ABI; KdbtoolError when it is not built. `within`: what
    `lib_dir` is by another name."""
    folder = (within or lib_dir()) / "simgpu" / str(major)
    _built(folder / f"libamdhip64.so.{major}", "the simulated device")
    return folder


def _built(path: Path, what: str) -> Path:
    if not path.is_file():
        raise KdbtoolError(f"{what} is not built", where=path, hint=HINT)
    return path
