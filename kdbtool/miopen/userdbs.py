"""Where a MIOpen keeps what it tuned and found for its user: the folder, and the names of the files.

Folder: MIOPEN_USER_DB_PATH, else what the library says, else ~/.config/miopen (src/db_path.cpp.in; `~` is
$HOME, src/expanduser.cpp). Names: `<base>.<suffix>.ufdb.txt`, and `<base>.<suffix>.udb.txt` or, of a build
that tunes into SQLite, `<base>_1.1.0.udb` (src/include/miopen/execution_context.hpp, find_db.hpp). The
suffix, `HIP.3_4_0_`, is MIOpen's version and its git hash, if it was built with one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kdbtool.errors import KdbtoolError, from_oserror
from kdbtool.inputs import bare_arch
from kdbtool.kdb.names import base_name
from kdbtool.miopen import installed

DEFAULT_FOLDER = "~/.config/miopen"
SCHEMA = "1.1.0"  # of an SQLite perf-db: src/include/miopen/sqlite_db.hpp, 5.0 to 7.2
_VERSION = re.compile(r"[0-9]{1,2}\.[0-9]{1,3}\.[0-9]{1,3}")


@dataclass(frozen=True)
class Library:
    """The MIOpen that wrote them. `path`: its libMIOpen, None where it is not at hand."""

    version: str  # 3.4.0
    path: Path | None = None


@dataclass(frozen=True)
class UserDatabases:
    """The files that exist; None for one that does not."""

    find_db: Path | None
    perf_db: Path | None


def base_of(device: str, units: int, overrides: Mapping[str, str]) -> str | None:
    """`gfx1030_36`: what MIOpen names the files of a device after; None for what is no architecture.

    `device`: as HIP says it (gfx90a:sramecc+:xnack-); `units`: its multiprocessors. `overrides`: the
    environment, in which MIOPEN_DEVICE_ARCH and MIOPEN_DEVICE_CU count more.
    """
    arch = bare_arch(overrides.get("MIOPEN_DEVICE_ARCH") or device)
    asked = overrides.get("MIOPEN_DEVICE_CU", "")
    count = int(asked) if asked.isascii() and asked.isdecimal() and len(asked) < 5 else units
    if not arch or not 0 < count < 10_000:
        return None
    return base_name(arch, count, xnack=":xnack+" in device)


def folder_of(environment: Mapping[str, str], library: Library) -> Path | None:
    """The folder that a program with this environment uses; None where it has no home for it."""
    text = environment.get("MIOPEN_USER_DB_PATH") or _said(library) or DEFAULT_FOLDER
    if text.startswith("~"):
        home = environment.get("HOME", "")
        if not home or text[1:2] not in ("", "/"):
            return None
        text = home + text[1:]
    return Path(text) if text.startswith("/") else None


def find(folder: Path, base: str, library: Library) -> UserDatabases:
    """The databases of this device and this MIOpen in `folder`.

    KdbtoolError where several files may be meant: rows of another MIOpen are worse than none.
    """
    version = _VERSION.fullmatch(library.version)
    if version is None:
        raise KdbtoolError("which MIOpen wrote them is not known", where=folder)
    try:
        names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    except OSError as error:
        raise from_oserror(error, where=folder) from None
    suffix = re.escape(_suffix(library) or "") or rf"HIP\.{library.version.replace('.', '_')}_[0-9A-Za-z.-]*"
    start = rf"{re.escape(base)}\.{suffix}\."
    found = [name for name in names if re.fullmatch(rf"{start}ufdb\.txt", name)]
    texts = [name for name in names if re.fullmatch(rf"{start}udb\.txt", name)]
    lite = [name for name in names if name == f"{base}_{SCHEMA}.udb"]
    if library.path is not None and (texts and lite):
        texts, lite = (texts, []) if installed.reads_text_perf_db(library.path) else ([], lite)
    return UserDatabases(_one(folder, found, "find-db"), _one(folder, texts + lite, "perf-db"))


def _one(folder: Path, names: list[str], what: str) -> Path | None:
    if len(names) > 1:
        why = f"{', '.join(names)}: which of them this MIOpen wrote cannot be told"
        raise KdbtoolError(f"several user {what}s", where=folder, why=why)
    return folder / names[0] if names else None


def _said(library: Library) -> str | None:
    if library.path is None:
        return None
    try:
        return installed.user_database_folder(library.path)
    except KdbtoolError:
        return None


def _suffix(library: Library) -> str | None:
    if library.path is None:
        return None
    try:
        return installed.user_database_suffix(library.path)
    except KdbtoolError:  # the version and any hash will do
        return None
