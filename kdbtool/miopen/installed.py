"""What an installed libMIOpen says of itself, each fact with how it is known; what it does not say as well.

Everything is read from the file: symbols, linked libraries, texts that stand in it as whole C strings.
Nothing is disassembled, so an option that only decides a branch stays unknown unless config.h is installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kdbtool.errors import KdbtoolError
from kdbtool.miopen.config import KEY_OPTIONS, Config, config_beside
from kdbtool.miopen.elfread import Library
from kdbtool.miopen.solvers import solver_set
from kdbtool.miopen.sources import SourceSet, build_and_sources, hip_version
from kdbtool.miopen.versions import MiopenBuild

MAX_TEXTS = 20  # of one kind; a real library has one or two
_TEXT = "text in the library"


def _literal(pattern: bytes) -> re.Pattern[bytes]:
    """A whole C string, as compilers leave it between two NULs."""
    return re.compile(rb"(?<=\0)" + pattern + rb"(?=\0)")


_COMPILER = _literal(rb"/[!-~]{0,300}/(?:amd)?(?:clang(?:\+\+|-ocl|-offload-bundler)?(?:-[0-9]{1,2})?|hipcc)")
_SYSTEM_DB = _literal(rb"(?:/[!-~]{0,300}/)?share/miopen/db/?")
_HOME = _literal(rb"~/[!-~]{1,200}")
_USER_SUFFIX = _literal(rb"HIP\.[0-9]{1,2}_[0-9]{1,3}_[0-9]{1,3}(?:_[0-9A-Za-z.-]{0,60})?")
_MISSING = _literal(rb"Missing system database file: ")
_TEXT_PERF_DB = _literal(rb"\.db\.txt")
_KERNEL_TABLE = _literal(rb"kern_db")


@dataclass(frozen=True)
class Fact:
    """`value` None: it cannot be told; `how` then says why. `name` is stable, for `--json`."""

    name: str
    value: str | None
    how: str


@dataclass(frozen=True)
class Installed:
    """One library: the build for judging rows, its texts, and what else it says."""

    build: MiopenBuild
    sources: SourceSet
    facts: tuple[Fact, ...]


def inspect(path: Path) -> Installed:
    """Read the libMIOpen at `path`; KdbtoolError (exit code 2) where it is none."""
    with Library(path) as library:
        build, sources = build_and_sources(library)
        hip = hip_version(library)
        config = config_beside(path, build.version, hip)
        facts = [*_identity(library, build, hip), *_back_end(library), *_places(library, path)]
        facts += [*_databases(library), _solvers(build), *_key_options(build, config)]
    return Installed(build, sources, tuple(facts))


def user_database_suffix(path: Path) -> str:
    """The part of a user find-db's name that says which MIOpen it is for (`HIP.3_4_0_`); KdbtoolError where
    the library at `path` does not tell."""
    with Library(path) as library:
        found = _texts(library, _USER_SUFFIX)
    if len(found) != 1:
        raise KdbtoolError("the name of its user databases cannot be told", where=path)
    return found[0]


def user_database_folder(path: Path) -> str | None:
    """The folder of user find-dbs and perf-dbs in the words of the library at `path` (`~/.config/miopen/`),
    None where it does not tell."""
    with Library(path) as library:
        found = _user_folders(library)
    return found[0] if len(found) == 1 else None


def reads_text_perf_db(path: Path) -> bool:
    """Whether the library at `path` reads perf-dbs as text, not as SQLite."""
    with Library(path) as library:
        return bool(_texts(library, _TEXT_PERF_DB))


def _identity(library: Library, build: MiopenBuild, hip: str | None) -> Iterator[Fact]:
    yield Fact("version", build.version, _TEXT)
    if build.distributor:
        yield Fact("rocm", build.rocm, f"its kernels are those of {build.distributor}'s {build.rocm}")
    else:
        how = "by the HIP version, the patch release is not said" if hip else "the release of this version"
        yield Fact("rocm", build.rocm, how)
    yield Fact("hip", hip, _TEXT if hip else "the library does not say")
    build_id = library.build_id()
    yield Fact("build-id", build_id, "note in the library" if build_id else "the library has none")


def _back_end(library: Library) -> Iterator[Fact]:
    wanted = library.undefined()
    how = "its undefined symbols"
    if not any(name.startswith("hip") for name in wanted):
        yield Fact("compiles", None, "it is linked to no HIP, or has no symbols")
    else:
        hip = "hipRTC" if any(name.startswith("hiprtc") for name in wanted) else None
        rest = "COMGR" if "amd_comgr_do_action" in wanted else None
        parts = [
            f".cpp by {hip}" if hip else "",
            f"{'.cl and .s' if hip else 'all'} by {rest}" if rest else "",
        ]
        value = ", ".join(filter(None, parts)) or "all by compilers that it starts"
        yield Fact("compiles", value, how)
    paths = _texts(library, _COMPILER)
    yield Fact("compilers", ", ".join(paths) or None, _TEXT if paths else "no path of one is a text in it")


def _places(library: Library, path: Path) -> Iterator[Fact]:
    """Where it looks for databases, src/db_path.cpp.in and src/binary_cache.cpp."""
    folders = _texts(library, _SYSTEM_DB)
    absolute = [folder for folder in folders if folder.startswith("/")]
    if absolute:
        yield Fact(
            "system databases in", absolute[0].rstrip("/"), f"{_TEXT}; MIOPEN_SYSTEM_DB_PATH overrides"
        )
    elif folders:
        folder = path.resolve().parent.parent / "share/miopen/db"
        how = f"{_TEXT}, beside the library's folder; MIOPEN_SYSTEM_DB_PATH overrides"
        yield Fact("system databases in", str(folder), how)
    else:
        yield Fact("system databases in", None, "no such text in the library")
    caches = [home for home in _texts(library, _HOME) if "cache" in home]
    suffixes = _texts(library, _USER_SUFFIX)
    yield _one("user databases in", _user_folders(library), f"{_TEXT}; MIOPEN_USER_DB_PATH overrides")
    yield _one("user database suffix", suffixes, _TEXT)
    tweak = _tweak(suffixes)
    if len(caches) == 1 and tweak is not None:
        how = f"{_TEXT}, and its version; MIOPEN_CUSTOM_CACHE_DIR overrides"
        yield Fact("kernel cache in", f"{caches[0].rstrip('/')}/{tweak}", how)
    else:
        yield _one("kernel cache in", [], "")


def _user_folders(library: Library) -> list[str]:
    homes = _texts(library, _HOME)
    return [home for home in homes if "config" in home] or [h for h in homes if "cache" not in h]


def _tweak(suffixes: list[str]) -> str | None:
    """`3.4.0.` of HIP.3_4_0_: the cache folder's name has an empty last part where no git hash was known."""
    if len(suffixes) != 1 or suffixes[0].count("_") < 3:
        return None
    return suffixes[0].removeprefix("HIP.").replace("_", ".", 3)


def _databases(library: Library) -> Iterator[Fact]:
    linked = [name for name in library.needed() if name.startswith("libsqlite3")]
    if linked:
        yield Fact("sqlite", f"dynamic, {linked[0]}", "the libraries it is linked to")
    elif _texts(library, _KERNEL_TABLE):
        how = "it is linked to no SQLite but has the table's name; a recorder then sees no look-ups"
        yield Fact("sqlite", "static", how)
    else:
        yield Fact("sqlite", None, "neither linked nor a kernel table's name in it")
    # A .kdb's warning is compiled only where system databases are on (src/include/miopen/sqlite_db.hpp).
    on = bool(_texts(library, _MISSING))
    how = f"the warning of a missing database is {'a' if on else 'no'} text in it"
    value = "read" if on else "built with MIOPEN_DISABLE_SYSDB: find-db and perf-db are not read, a .kdb is"
    yield Fact("system databases", value, how)
    # src/include/miopen/execution_context.hpp: the other name, .db, is too short to be found.
    text = bool(_texts(library, _TEXT_PERF_DB))
    how = "the name .db.txt is a text in it" if text else "the name .db.txt is no text in it: SQLite, or 5.x"
    yield Fact("perf-db", "text (.db.txt)" if text else None, how)


def _solvers(build: MiopenBuild) -> Fact:
    try:
        found = solver_set(build)
    except KdbtoolError as error:
        return Fact("solvers", None, error.why or error.what)
    more = len(found.without_code) + len(found.left_out)
    return Fact("solvers", f"{len(found.usable)} of {len(found.usable) + more} names", "types in the library")


def _key_options(build: MiopenBuild, config: Config | None) -> Iterator[Fact]:
    defines = dict(build.epoch.defines)
    for name in KEY_OPTIONS:
        if name not in defines:
            continue
        if config is not None and name in build.options:
            how = f"{config.path}, of the same MIOpen and HIP versions"
        else:
            how = (
                "assumed: the release's default; the library does not say, and no config.h of it is installed"
            )
        yield Fact(name, defines[name], how)


def _one(name: str, found: list[str], how: str) -> Fact:
    if len(found) == 1:
        return Fact(name, found[0], how)
    return Fact(name, None, "several such texts in the library" if found else "no such text in the library")


def _texts(library: Library, pattern: re.Pattern[bytes]) -> list[str]:
    """The distinct strings, sorted; of a hostile file at most MAX_TEXTS."""
    found: set[str] = set()
    for match in library.search(pattern):
        found.add(match.group().decode("ascii"))
        if len(found) >= MAX_TEXTS:
            break
    return sorted(found)
