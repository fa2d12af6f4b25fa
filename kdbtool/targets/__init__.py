"""What kdbtool knows of each architecture, one `<arch>.toml` beside this file.

`elf_mach` and `features` are LLVM's (AMDGPU usage document; the numbers were read off objects of clang
21). Unit counts are what hipDeviceProp_t.multiProcessorCount reports (work group processors on RDNA).
Clocks, bus widths, caches and memory only make a simulated device plausible: they are round figures,
and nothing that is written to a database depends on them. docs/adding-an-arch.md: how to add one.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kdbtool.errors import KdbtoolError, printable

_FOLDER = Path(__file__).resolve().parent
_ARCH = re.compile(r"gfx([1-9][0-9]?)([0-9])([0-9a-f])")
_FILE_LIMIT = 65536
_LANGUAGES = ("hip", "opencl", "asm")
# In the order of AMD's target ids.
_FEATURES = ("sramecc", "xnack")


@dataclass(frozen=True)
class Target:
    """One device: an architecture, its features, and how many units it has.

    `device`: gcnArchName, e.g. `gfx906:sramecc+:xnack-`. `cu`: what HIP reports, in `cu_unit` ("CU" or
    "WGP"); `cu_known`: the counts of devices that exist. Memory in bytes, clocks in kHz.
    """

    arch: str
    name: str
    elf_mach: int
    features: tuple[str, ...]
    device: str
    cu_unit: str
    cu_default: int
    cu_known: tuple[int, ...]
    wave_size: int
    memory_bytes: int
    lds_bytes: int
    clock_khz: int
    memory_clock_khz: int
    memory_bus_bits: int
    l2_bytes: int
    integrated: bool
    build_targets: Mapping[str, str] = field(default_factory=dict, compare=False)
    cu: int = 0

    @property
    def version(self) -> tuple[int, int]:
        """(major, minor) of the architecture: gfx1030 is 10.3, gfx90a 9.0."""
        match = _ARCH.fullmatch(self.arch)
        assert match  # checked when it was loaded
        return int(match[1]), int(match[2])

    @property
    def kdb_names(self) -> tuple[str, str]:
        """Base names that MIOpen looks for: with the count (decimal up to 64, else hex), and without."""
        from kdbtool.kdb.names import base_name  # late: names reads the data of this package

        xnack = "xnack+" in self.device
        return base_name(self.arch, self.cu, xnack=xnack), base_name(self.arch, xnack=xnack)

    def build_target(self, language: str) -> str:
        """The target id to compile `hip`, `opencl` or `asm` for: generic, but for named exceptions."""
        if language not in _LANGUAGES:
            raise KdbtoolError(f"no such kernel language: {language}", why="known: " + ", ".join(_LANGUAGES))
        return self.build_targets.get(language, self.arch)


@functools.cache
def known() -> tuple[str, ...]:
    """All architectures with data, by version: gfx900 before gfx1030."""
    return tuple(sorted((p.stem for p in _FOLDER.glob("gfx*.toml")), key=lambda a: (len(a), a)))


def load(arch: str) -> Target:
    """The architecture's default device. KdbtoolError names the known ones, or the file's bad field."""
    if arch not in known():
        raise KdbtoolError(
            f"unknown architecture: {printable(arch[:40])}",
            why="known: " + ", ".join(known()),
            hint="docs/adding-an-arch.md says how to add one",
        )
    return _load(_FOLDER / f"{arch}.toml")


@functools.cache
def _load(path: Path) -> Target:
    return read_target(path)


def split_target(text: str) -> Target:
    """The device of `gfx1030`, `gfx1030:36`, `gfx906:sramecc+:xnack-`, or features and then a count.

    Features that are not named are those of the architecture's default device.
    """
    arch, *parts = text.split(":")
    target = load(arch)
    if parts and parts[-1].isascii() and parts[-1].isdigit():
        target = with_cu(target, int(parts.pop()[:9]), text[:80])
    return replace(target, device=_device(target, parts, text)) if parts else target


def with_cu(target: Target, cu: int, where: str | None = None) -> Target:
    """The device with another number of units, 1 to 4096."""
    if not 1 <= cu <= 4096:
        raise KdbtoolError("not a number of compute units", where=where, why="expected 1 to 4096")
    return replace(target, cu=cu)


def _device(target: Target, parts: list[str], text: str) -> str:
    """gcnArchName with the settings `parts` over the default ones."""
    settings = {p[:-1]: p[-1] for p in target.device.split(":")[1:]}
    seen: set[str] = set()
    for part in parts:
        name, sign = part[:-1], part[-1:]
        if name not in _FEATURES or sign not in ("+", "-"):
            raise KdbtoolError(
                f"not a target: {printable(text[:80])}",
                why="expected ARCH[:FEATURE+|-]...[:UNITS], such as gfx1030:36 or gfx906:sramecc+:xnack-",
            )
        if name not in target.features:
            legal = ", ".join(target.features) or "none"
            raise KdbtoolError(f"{target.arch} has no {name}", where=text[:80], why=f"its features: {legal}")
        if name in seen:
            raise KdbtoolError(f"{name} is given twice", where=text[:80])
        seen.add(name)
        settings[name] = sign
    return ":".join([target.arch, *(f + settings[f] for f in _FEATURES if f in settings)])


# Field of the file: type, and for numbers the smallest and largest value.
_FIELDS: dict[str, tuple[type[object], int, int]] = {
    "arch": (str, 0, 0),
    "name": (str, 0, 0),
    "elf_mach": (int, 1, 0xFF),
    "features": (list, 0, 0),
    "device": (str, 0, 0),
    "cu_unit": (str, 0, 0),
    "cu_default": (int, 1, 4096),
    "cu_known": (list, 0, 0),
    "wave_size": (int, 32, 64),
    "memory_bytes": (int, 1 << 20, 1 << 46),
    "lds_bytes": (int, 1024, 1 << 20),
    "clock_khz": (int, 1, 100_000_000),
    "memory_clock_khz": (int, 1, 100_000_000),
    "memory_bus_bits": (int, 1, 65536),
    "l2_bytes": (int, 0, 1 << 30),
    "integrated": (bool, 0, 0),
}


def read_target(path: Path) -> Target:
    """One file, checked field by field; KdbtoolError says which is missing, unknown or wrong."""
    try:
        with path.open("rb") as file:
            data = file.read(_FILE_LIMIT + 1)
        if len(data) > _FILE_LIMIT:
            raise KdbtoolError("not an architecture file", where=path, why=f"over {_FILE_LIMIT} bytes")
        raw: dict[str, Any] = tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise KdbtoolError("not TOML", where=path, why=str(error)[:200]) from None
    except OSError as error:
        raise KdbtoolError("cannot be read", where=path, why=error.strerror) from None
    build = raw.pop("build_target", {})
    if missing := sorted(_FIELDS.keys() - raw.keys()):
        raise _bad(path, missing[0], "missing")
    if unknown := sorted(raw.keys() - _FIELDS.keys()):
        raise _bad(path, unknown[0], "unknown field")
    for name, (kind, low, high) in _FIELDS.items():
        value = raw[name]
        if type(value) is not kind:
            raise _bad(path, name, f"expected {kind.__name__}, found {type(value).__name__}")
        if type(value) is int and not low <= value <= high:
            raise _bad(path, name, f"expected {low} to {high}")
    return _checked(path, raw, build)


def _checked(path: Path, raw: dict[str, Any], build: Any) -> Target:
    """The rules that join fields."""
    arch, features, counts = raw["arch"], raw["features"], raw["cu_known"]
    if not _ARCH.fullmatch(arch) or arch != path.stem:
        raise _bad(path, "arch", f"expected {path.stem}, as the file is named")
    if not re.fullmatch(r"[ -:<-~]{1,100}", raw["name"]):
        raise _bad(path, "name", "expected 1 to 100 printable characters, none of them ';'")
    if [f for f in _FEATURES if f in features] != features:
        raise _bad(path, "features", f"expected some of {', '.join(_FEATURES)}, in this order")
    device = "".join(rf":{f}[+-]" for f in features)
    if not re.fullmatch(arch + device, raw["device"]):
        raise _bad(path, "device", f"expected {arch} with a setting for each feature")
    if raw["cu_unit"] not in ("CU", "WGP"):
        raise _bad(path, "cu_unit", "expected CU or WGP")
    if raw["wave_size"] not in (32, 64):
        raise _bad(path, "wave_size", "expected 32 or 64")
    if not all(type(c) is int and 1 <= c <= 4096 for c in counts) or sorted(set(counts)) != counts:
        raise _bad(path, "cu_known", "expected rising counts, 1 to 4096")
    if raw["cu_default"] not in counts:
        raise _bad(path, "cu_default", "not among cu_known")
    if not isinstance(build, dict) or not all(
        language in _LANGUAGES and isinstance(target, str) and _is_build_target(arch, features, target)
        for language, target in build.items()
    ):
        raise _bad(path, "build_target", f"expected target ids of {arch} by {', '.join(_LANGUAGES)}")
    lists = {"features": tuple(features), "cu_known": tuple(counts)}
    return Target(**{**raw, **lists}, build_targets=dict(build), cu=raw["cu_default"])


def _is_build_target(arch: str, features: list[str], target: str) -> bool:
    return bool(re.fullmatch(arch + "".join(rf"(:{f}[+-])?" for f in features), target))


def _bad(path: Path, name: str, why: str) -> KdbtoolError:
    return KdbtoolError(f"field {printable(name[:60])}", where=path, why=why)
