"""Where the databases go, what they say of their making, and the writing of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kdbtool import __version__
from kdbtool.errors import EXIT_PROBLEMS, KdbtoolError
from kdbtool.files import check_output
from kdbtool.kdb.blob import Packed
from kdbtool.kdb.provenance import source_records
from kdbtool.kdb.writer import write_kdb
from kdbtool.manifest import Key
from kdbtool.rebuild.backend import Identity
from kdbtool.rebuild.recipe import Recipe
from kdbtool.rebuild.store import Store


@dataclass(frozen=True)
class Written:
    """One database."""

    arch: str
    path: Path
    rows: int
    objects: int
    size: int


def outputs(names: Mapping[str, str], option: Path | None, *, force: bool) -> dict[str, Path]:
    """The file of each arch (`names`: arch to name without .kdb), checked before the work begins.

    `option` (-o) is a file if it ends in .kdb and one database is written, else a folder, made if need be.
    """
    folder = option if option is not None else Path()
    if option is not None and len(names) == 1 and option.suffix == ".kdb" and not option.is_dir():
        found = dict.fromkeys(names, option)
    else:
        if option is not None and (option.suffix == ".kdb" or option.exists()) and not option.is_dir():
            raise KdbtoolError(
                "not a folder",
                where=option,
                why=f"to be written: {', '.join(f'{name}.kdb' for name in names.values())}",
                hint="name a folder, or a file that ends in .kdb with one --arch",
            )
        folder.mkdir(parents=True, exist_ok=True)
        found = {arch: folder / f"{name}.kdb" for arch, name in names.items()}
    for path in found.values():
        check_output(path, force=force)
    return found


def provenance(
    arch: str,
    identity: Identity,
    recipe: Recipe,
    *,
    manifest: str,
    miopen: str,
    sources: str,
    hashes: Mapping[str, tuple[str, str]],
    allowed: list[str],
) -> dict[str, str]:
    """What a kdb says of its making: hashes and versions, no time and no path, so that same is same.

    `hashes`: of each kernel source that a row was built from (SourceSet.hash_of).
    """
    record = {
        "kdbtool": __version__,
        "manifest": f"sha256:{manifest}",
        "miopen": miopen,
        "sources": f"sha256:{sources}",
        "recipe": f"{recipe.id} sha256:{recipe.digest}",
        "compiler": identity.version,
    }
    for (language, target), tool in sorted(identity.tools.items()):
        if target.split(":")[0] == arch and tool.why is None:
            record[f"toolchain {language} {target}"] = f"sha256:{identity.digest(language, target)}"
    record |= source_records(hashes)
    if allowed:
        record["allowed"] = " ".join(sorted(allowed))
    return record


def publish(
    arch: str,
    path: Path,
    rows: list[tuple[Key, str]],
    store: Store,
    record: Mapping[str, str],
    *,
    force: bool,
) -> Written:
    """Write the database of one arch, whole or not at all."""

    def objects() -> Iterator[tuple[bytes, bytes, Packed]]:
        for key, digest in rows:
            packed = store.get(digest)
            if packed is None:
                raise KdbtoolError(
                    "a finished object is gone",
                    where=store.path(digest),
                    why="someone emptied the cache meanwhile",
                    hint="run the same command again",
                    exit_code=EXIT_PROBLEMS,
                )
            yield key.name, key.args, packed

    write_kdb(path, objects(), record, force=force)
    return Written(arch, path, len(rows), len({digest for _, digest in rows}), path.stat().st_size)
