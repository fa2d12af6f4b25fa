"""Kernel sources and the headers they include: out of libMIOpen itself, or from a folder.

A MIOpen up to 7.2 exports each embedded text as the array MIOPEN_KERNEL_<NAME>, a header as
MIOPEN_KERNEL_<NAME>_INCLUDE, each with a 64-bit ..._SIZE (addkernels/addkernels.cpp); NAME is the file's
name in capitals without its extension. The extension comes from the file names in the library and its
kernel texts, from the known lists, at last from the text itself; what stays unsure is an error, not a guess.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kdbtool.errors import KdbtoolError, from_oserror, printable
from kdbtool.miopen.config import config_beside
from kdbtool.miopen.elfread import Library, Symbol
from kdbtool.miopen.embed import NotEmbeddable, embed
from kdbtool.miopen.keys import is_source
from kdbtool.miopen.versions import (
    MiopenBuild,
    kernel_lists,
    known_headers,
    known_kernels,
    known_releases,
    release_for,
)

PREFIX = "MIOPEN_KERNEL_"
KERNEL_SUFFIXES = (".cpp", ".cl", ".s")
HEADER_SUFFIXES = (".hpp", ".h", ".inc")
MAX_TEXT = 64 << 20  # bytes of one source
MAX_ALL = 1 << 30
MAX_FILES = 50_000

_NAME = re.compile(rb"(?<=\0)[A-Za-z0-9_][A-Za-z0-9_.+-]{0,200}\.(?:cpp|cl|s|hpp|h|inc)(?=\0)")
_INCLUDE = re.compile(rb'^[ \t]*(?:#[ \t]*|\.)include[ \t]*(?:["<]([^">\n]*)[">]|(\S+))', re.MULTILINE)
_VERSION = re.compile(rb", MIOpen version (\d{1,2}\.\d{1,3}\.\d{1,3})\.")
_HIP = re.compile(rb", HIP version (\d{1,2}\.\d{1,2}\.\d{1,6})\0")


@dataclass(frozen=True)
class SourceSet:
    """Texts by file name. `where` names the library or folder they came from."""

    kernels: dict[str, bytes]
    headers: dict[str, bytes]
    where: str

    def hash_of(self, kernel: str) -> tuple[str, str]:
        """(sha256 of the text, sha256 of the headers that it may include); KeyError for an unknown kernel.

        The second is the sha256 of what `sha256sum` prints for those headers, sorted by name.
        """
        return _sha256(self.kernels[kernel]), _listing({h: self.headers[h] for h in self.headers_of(kernel)})

    def headers_of(self, kernel: str) -> list[str]:
        """Headers that the kernel may include, through others too; all where an include is computed."""
        found: set[str] = set()
        todo = [self.kernels[kernel]]
        while todo:
            names = _includes(todo.pop())
            if names is None:
                return sorted(self.headers)
            for name in names & self.headers.keys() - found:
                found.add(name)
                todo.append(self.headers[name])
        return sorted(found)

    @cached_property
    def set_hash(self) -> str:
        """sha256 of what `sha256sum` prints for all texts, sorted by name."""
        return _listing({**self.headers, **self.kernels})


def from_library(path: Path) -> SourceSet:
    """The kernels and headers embedded in the libMIOpen at `path`; KdbtoolError where it has none."""
    with Library(path) as library:
        return _sources(library)


def build_of_library(path: Path) -> MiopenBuild:
    """The MIOpen build that the library at `path` is, with its own kernel list."""
    with Library(path) as library:
        return build_and_sources(library)[0]


def build_and_sources(library: Library) -> tuple[MiopenBuild, SourceSet]:
    """What an open libMIOpen is, and its texts; KdbtoolError where it is none, or of an unknown version."""
    sources = _sources(library)
    version = _text(library, _VERSION)
    if version is None:
        raise KdbtoolError(
            "no MIOpen version in the library",
            where=library.path,
            why="it lacks the text ', MIOpen version X.Y.Z.'",
            hint="name the release with --miopen VERSION",
        )
    hip = hip_version(library)
    release = release_for(version, hip.rpartition(".")[0] if hip else None)
    if release is None:
        raise KdbtoolError(
            f"unknown MIOpen version {version}",
            where=library.path,
            why=f"known ROCm releases: {', '.join(known_releases())}",
            hint="name the nearest with --miopen VERSION",
        )
    kernels = frozenset(sources.kernels)
    # A library says its ROCm release only by major and minor; a distributor's known list says the rest.
    rocm, distributor = release.rocm, None
    if release.distributor and kernels == kernel_lists()[release.kernels]:
        rocm, distributor = release.kernels.partition("-")[2], release.distributor
    label = f"MIOpen {version} of ROCm {rocm}, {len(kernels)} kernels out of {printable(library.path.name)}"
    config = config_beside(library.path, version, hip)
    options = config.key_options if config else {}
    epoch = release.epoch.with_options(options)
    headers = frozenset(sources.headers)
    build = MiopenBuild(rocm, version, kernels, epoch, label, library.path, distributor, headers, options)
    return build, sources


def hip_version(library: Library) -> str | None:
    """The HIP that the library was built with (6.4.43484); None where it does not say (2.15)."""
    return _text(library, _HIP)


def build_id_of(path: Path) -> str | None:
    """The GNU build-id of the library at `path`."""
    with Library(path) as library:
        return library.build_id()


def from_directory(path: Path) -> SourceSet:
    """The kernel sources of a folder: an unpacked MIOpen tree, or files of any layout.

    Symbolic links are not followed. In a MIOpen tree only src/kernels and src/composable_kernel are read. Two
    different files of one name are an error. The texts are those that MIOpen's build would embed: the
    includes of .cl and .s files are put in place.
    """
    if not path.is_dir():
        raise KdbtoolError(
            "not a folder", where=path, why="--sources takes a MIOpen source tree or a folder of kernels"
        )
    roots = [path]
    for tree in (path, path / "projects" / "miopen"):
        if (tree / "src" / "kernels").is_dir():
            roots = [tree / "src" / "kernels", tree / "src" / "composable_kernel"]
            break
    texts: dict[str, tuple[bytes, str]] = {}
    total = 0
    for root in roots:
        for folder, folders, files in os.walk(root):
            folders.sort()
            for name in sorted(files):
                if not name.endswith(KERNEL_SUFFIXES + HEADER_SUFFIXES) or not is_source(name):
                    continue
                text = _read_regular(Path(folder) / name)
                if text is None:
                    continue
                total += len(text)
                if len(texts) >= MAX_FILES or total > MAX_ALL:
                    raise KdbtoolError(
                        "too many kernel sources",
                        where=path,
                        why=f"at most {MAX_FILES} files, {MAX_ALL} bytes",
                    )
                place = os.path.relpath(os.path.join(folder, name), path)  # noqa: PTH118
                have = texts.setdefault(name, (text, place))
                # In a tree src/kernels comes first: MIOpen's build takes its copies.
                if have[0] != text and (
                    len(roots) == 1 or root == roots[0] or not _under(have[1], roots[0], path)
                ):
                    raise KdbtoolError(
                        f"two different files named {name}",
                        where=path,
                        why=f"{have[1]} and {place}",
                        hint="leave one of them",
                    )
    raw = {name: text for name, (text, _) in sorted(texts.items())}
    kernels = {n: _as_embedded(n, t, raw) for n, t in raw.items() if n.endswith(KERNEL_SUFFIXES)}
    headers = {n: _as_embedded(n, t, raw) for n, t in raw.items() if n.endswith(HEADER_SUFFIXES)}
    if not kernels:
        raise KdbtoolError(
            "no kernel source in the folder",
            where=path,
            why=f"no {', '.join(KERNEL_SUFFIXES)} file in it",
            hint="name a MIOpen source tree, its src/kernels, or a libMIOpen.so",
        )
    return SourceSet(kernels, headers, str(path))


def _sources(library: Library) -> SourceSet:
    symbols = {s.name: s for s in library.symbols(PREFIX)}
    kernels: dict[str, bytes] = {}
    headers: dict[str, bytes] = {}
    total = 0
    for name, symbol in symbols.items():
        if name.endswith("_SIZE") and name[: -len("_SIZE")] in symbols:
            continue
        text = _embedded(library, symbol, symbols.get(f"{name}_SIZE"))
        total += len(text)  # symbols may overlap: a small file can promise any amount
        if total > MAX_ALL:
            raise KdbtoolError(
                "damaged library", where=library.path, why=f"more than {MAX_ALL} bytes of kernel sources"
            )
        stem = name[len(PREFIX) :]
        if stem.endswith("_INCLUDE"):
            headers[stem[: -len("_INCLUDE")]] = text
        else:
            kernels[stem] = text
    if not kernels:
        raise KdbtoolError(
            "no kernel sources in the library",
            where=library.path,
            why=f"it exports no {PREFIX}* symbol: not a libMIOpen, or one that hides them",
            hint="give the kernel sources with --sources DIR",
        )
    inside = {m.group().decode("ascii") for m in library.search(_NAME)}
    for text in (*kernels.values(), *headers.values()):
        inside |= _includes(text) or set()
    by_stem: dict[str, set[str]] = {}
    for name in inside:
        if is_source(name):  # it becomes a file in the compiler's folder
            by_stem.setdefault(name.rpartition(".")[0].upper(), set()).add(name)
    return SourceSet(
        _named(library, kernels, by_stem, known_kernels(), KERNEL_SUFFIXES, _kernel_suffix),
        _named(library, headers, by_stem, known_headers(), HEADER_SUFFIXES, lambda text: None),
        str(library.path),
    )


def _embedded(library: Library, symbol: Symbol, size_symbol: Symbol | None) -> bytes:
    """The text of one array. Its SIZE is checked against the symbol's own, which may count a final NUL."""
    size = symbol.size
    if size_symbol is not None:
        size = int.from_bytes(library.read(size_symbol.address, 8), "little")
    if symbol.size and not symbol.size - 1 <= size <= symbol.size:
        raise KdbtoolError(
            "damaged library",
            where=library.path,
            why=f"{symbol.name}_SIZE says {size} bytes, the symbol has {symbol.size}",
            hint="install the package that it came from again",
        )
    if size > MAX_TEXT:
        raise KdbtoolError("damaged library", where=library.path, why=f"{symbol.name} has {size} bytes")
    return library.read(symbol.address, size)


def _named(
    library: Library,
    texts: dict[str, bytes],
    inside: dict[str, set[str]],
    known: dict[str, tuple[str, ...]],
    suffixes: tuple[str, ...],
    by_text: Callable[[bytes], str | None],
) -> dict[str, bytes]:
    """`texts` by real file name instead of capitals, sorted."""
    out: dict[str, bytes] = {}
    for stem, text in texts.items():
        names = {n for n in inside.get(stem, ()) if n.endswith(suffixes)}
        if len(names) != 1:
            names = names or set(known.get(stem, ()))
            suffix = by_text(text)
            if len(names) > 1 and suffix:
                names = {n for n in names if n.endswith(suffix)}
        if len(names) != 1:
            raise KdbtoolError(
                f"cannot tell the file name of {PREFIX}{stem}",
                where=library.path,
                why=f"it could be {' or '.join(sorted(names))}" if names else "no such kernel is known",
                hint="give the kernel sources with --sources DIR",
            )
        out[names.pop()] = text
    return dict(sorted(out.items()))


def _kernel_suffix(text: bytes) -> str | None:
    """The extension that the text itself gives away."""
    if b"__global__" in text:
        return ".cpp"
    if re.search(rb"\b(?:__kernel|__attribute__\(\(reqd_work_group_size)", text):
        return ".cl"
    if re.search(
        rb"^\s*\.(?:amdgcn_target|amdhsa_kernel|hsa_code_object|text|include|macro)", text, re.MULTILINE
    ):
        return ".s"
    return None


def _includes(text: bytes) -> set[str] | None:
    """Base names of what `text` includes; None where one is computed by a macro."""
    names = set()
    for match in _INCLUDE.finditer(text):
        if match[1] is None:
            if match[2].startswith((b"//", b"/*")):
                continue
            return None
        names.add(match[1].decode("utf-8", "replace").rpartition("/")[2])
    return names


def _text(library: Library, pattern: re.Pattern[bytes]) -> str | None:
    match = next(library.search(pattern), None)
    return match[1].decode("ascii") if match else None


def _as_embedded(name: str, text: bytes, files: dict[str, bytes]) -> bytes:
    """The text as a library has it; unchanged where an include is missing: a compiler will tell."""
    try:
        return embed(name, text, files)
    except NotEmbeddable:
        return text


def _under(place: str, root: Path, base: Path) -> bool:
    return (base / place).is_relative_to(root)


def _read_regular(path: Path) -> bytes | None:
    """The bytes of a regular file; None for a link, a pipe or a device."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            return None
        raise from_oserror(error, where=path) from None
    with os.fdopen(fd, "rb") as file:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            return None
        if info.st_size > MAX_TEXT:
            raise KdbtoolError(
                "too large for a kernel source", where=path, why=f"{info.st_size} bytes, at most {MAX_TEXT}"
            )
        return file.read(MAX_TEXT)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _listing(texts: dict[str, bytes]) -> str:
    return _sha256("".join(f"{_sha256(texts[n])}  {n}\n" for n in sorted(texts)).encode())
