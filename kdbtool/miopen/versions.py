"""MIOpen builds by ROCm release or by library: which kernel sources one has and how it spells keys.

The facts are data (versions.toml, kernels.tsv, igemm.tsv.xz, headers.tsv), read from MIOpen's tags 5.0 to
6.2, its branch 6.3, `develop` of 2024-10-24, and Debian's libraries 6.4.3 and 7.2.4, which embed no assembly.
"""

from __future__ import annotations

import functools
import lzma
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path

from kdbtool.errors import KdbtoolError

_VERSION = re.compile(r"(?:rocm-)?([0-9]{1,2})\.([0-9]{1,2})(?:\.([0-9]{1,3}))?\Z")


@dataclass(frozen=True)
class Epoch:
    """One spelling of the data type list; a define's value is None where the data type decides it."""

    name: str
    defines: tuple[tuple[str, str | None], ...]
    optional: frozenset[str]  # options that may stand behind the list

    def with_options(self, options: Mapping[str, str]) -> Epoch:
        """The list as a build with these values of MIOpen's CMake options spells it; itself where equal."""
        defines = tuple((n, v if v is None else options.get(n, v)) for n, v in self.defines)
        return (
            self if defines == self.defines else replace(self, name=f"{self.name} changed", defines=defines)
        )

    def matches(self, options: bytes) -> bool:
        """Whether `options`, a run of data type defines, begins with the list as this epoch writes it."""
        tokens = options.decode("ascii", "replace").split(" ")[1:]
        if len(tokens) < len(self.defines):
            return False
        for token, (name, value) in zip(tokens, self.defines, strict=False):
            have = token.removeprefix(f"-D{name}=")
            if have == token or (have != value if value is not None else have not in ("0", "1")):
                return False
        return all(token in self.optional for token in tokens[len(self.defines) :])


@dataclass(frozen=True)
class MiopenBuild:
    """One MIOpen that rows are judged against.

    `rocm` is what a manifest names (6.4.3); `version` is MIOpen's own (3.4.0); `label` is both, for people,
    with whatever has to be said about the kernel list. `path` is the library, None for a release.
    `headers` are what kernels may include. `options` are the build options that shape keys, as an installed
    config.h has them; empty where nothing says them and `epoch` holds what the release sets by default.
    """

    rocm: str
    version: str
    kernels: frozenset[str]
    epoch: Epoch
    label: str
    path: Path | None = None
    distributor: str | None = None
    headers: frozenset[str] = frozenset()
    options: Mapping[str, str] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Release:
    """One entry of data/versions.toml."""

    rocm: str
    miopen: str
    epoch: Epoch
    kernels: str
    distributor: str | None


def resolve(text: str) -> MiopenBuild:
    """The build that `text` names: a ROCm release (6.4.3, 6.2, develop) or the path of a libMIOpen.so.

    A text with a `/`, or that is an existing file, is a path. KdbtoolError for an unknown release or a file
    that is no libMIOpen.
    """
    if "/" in text or (_VERSION.match(text) is None and text != "develop" and Path(text).is_file()):
        from kdbtool.miopen.sources import build_of_library

        return build_of_library(Path(text))
    if text == "develop":
        release = _releases()["develop"]
        return _build(
            release, "develop", "MIOpen develop of 2024-10-24, an approximation of upstream 6.4 and later"
        )
    match = _VERSION.match(text)
    release_or_none = _releases().get(f"{match[1]}.{match[2]}") if match else None
    if match is None or release_or_none is None:
        raise KdbtoolError(
            f"unknown MIOpen version {text[:60]}",
            why=f"known ROCm releases: {', '.join(_releases())}",
            hint="name one of them, or the path of a libMIOpen.so",
        )
    return _build(release_or_none, text.removeprefix("rocm-"))


def by_miopen_version(version: str) -> MiopenBuild | None:
    """The build whose own version is `version` (3.4.0), the newest release if several share it; else None."""
    found = [r for r in _releases().values() if r.miopen == version and r.rocm != "develop"]
    return _build(found[-1], found[-1].rocm) if found else None


def releases() -> dict[str, Release]:
    """What is known of each release, by ROCm minor version, oldest first, `develop` last."""
    return dict(_releases())


@functools.cache
def epochs() -> dict[str, Epoch]:
    """The spellings of the data type list by name, E1 the oldest."""
    return dict(_data()[0])


def known_releases() -> list[str]:
    """ROCm releases that `resolve` knows, by minor version, oldest first, `develop` last."""
    return list(_releases())


def release_for(miopen: str, rocm: str | None) -> Release | None:
    """The entry for a library that says these versions of itself; either may miss a known one."""
    if rocm is not None and rocm in _releases():
        return _releases()[rocm]
    found = [r for r in _releases().values() if r.miopen == miopen and r.rocm != "develop"]
    return found[-1] if found else None


@functools.cache
def kernel_lists() -> dict[str, frozenset[str]]:
    """Kernel source names by list (5.0, ..., develop, debian-6.4.3)."""
    return _lists("kernels.tsv", "igemm.tsv.xz")


@functools.cache
def header_lists() -> dict[str, frozenset[str]]:
    """Names of the headers that kernels include, by the same lists."""
    return _lists("headers.tsv")


@functools.cache
def known_kernels() -> dict[str, tuple[str, ...]]:
    """Kernel source names of any release, by upper-case name without extension (as in MIOPEN_KERNEL_*)."""
    return _by_stem(kernel_lists())


@functools.cache
def known_headers() -> dict[str, tuple[str, ...]]:
    """Header names of any release, by upper-case name without extension."""
    return _by_stem(header_lists())


def _lists(*files: str) -> dict[str, frozenset[str]]:
    lists: dict[str, set[str]] = {}
    for file in files:
        data = (resources.files("kdbtool.miopen") / "data" / file).read_bytes()
        text = (lzma.decompress(data) if file.endswith(".xz") else data).decode("ascii")
        letters: dict[str, set[str]] = {}
        for line in text.splitlines():
            if line.startswith("#"):
                parts = line.split()
                if len(parts) == 3 and len(parts[1]) == 1:
                    letters[parts[1]] = lists.setdefault(parts[2], set())
                continue
            name, _, have = line.partition("\t")
            for letter in have:
                letters[letter].add(name)
    return {name: frozenset(names) for name, names in lists.items()}


def _by_stem(lists: dict[str, frozenset[str]]) -> dict[str, tuple[str, ...]]:
    out: dict[str, set[str]] = {}
    for names in lists.values():
        for name in names:
            out.setdefault(name.rpartition(".")[0].upper(), set()).add(name)
    return {stem: tuple(sorted(names)) for stem, names in out.items()}


@functools.cache
def _data() -> tuple[dict[str, Epoch], dict[str, Release]]:
    text = (resources.files("kdbtool.miopen") / "data" / "versions.toml").read_text("utf-8")
    table = tomllib.loads(text)
    epochs = {}
    for name, entry in table["epochs"].items():
        defines = _defines("MIOPEN_USE_", entry["list"]) + _defines("MIOPEN_FP8_", entry.get("fp8", ""))
        optional = frozenset(f"-DMIOPEN_USE_{token}" for token in entry["optional"])
        epochs[name] = Epoch(name, defines, optional)
    releases = {
        r["rocm"]: Release(
            r["rocm"], r["miopen"], epochs[r["epoch"]], r.get("kernels", r["rocm"]), r.get("distributor")
        )
        for r in table["release"]
    }
    return epochs, releases


def _defines(prefix: str, text: str) -> tuple[tuple[str, str | None], ...]:
    pairs = (part.split("=") for part in text.split())
    return tuple((prefix + name, None if value == "?" else value) for name, value in pairs)


def _releases() -> dict[str, Release]:
    return _data()[1]


def _build(release: Release, rocm: str, label: str | None = None) -> MiopenBuild:
    if label is None:
        label = f"MIOpen {release.miopen} of ROCm {rocm}"
        if release.distributor:
            label += (
                f", kernel list of {release.distributor}'s {release.kernels.partition('-')[2]} (no assembly)"
            )
    return MiopenBuild(
        rocm,
        release.miopen,
        kernel_lists()[release.kernels],
        release.epoch,
        label,
        None,
        release.distributor,
        header_lists()[release.kernels],
    )
