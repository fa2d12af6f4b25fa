"""Check, list and remove roots."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from kdbtool.errors import KdbtoolError
from kdbtool.root import enter, locking, make, open_root, privilege, read_marker
from kdbtool.root.paths import RootPaths, cache_dir

_STATUS_LIMIT = 64 << 20


def check(paths: RootPaths) -> list[str]:
    """What is wrong with a root, one line each; empty when it is whole, entered, and as its lock says."""
    opened = open_root(paths.root)
    found = []
    marker = read_marker(paths.root)
    if marker is None:
        found.append("not finished by `kdbtool root make` (or made by hand)")
    found += [f"missing: /{n}" for n in opened.recipe.needs if not os.path.lexists(paths.root / n)]
    if opened.cures:
        for link, target in opened.recipe.cure_links.items():
            path = paths.root / link.lstrip("/")
            if not path.is_symlink() or str(path.readlink()) != target:
                found.append(f"missing cure: {link} -> {target}")
    found += [f"mounted in it: {m}" for m in privilege.mounts_below(paths.root)]
    if paths.lock.is_file():
        found += _moved_on(paths)
    try:
        with enter.popen(
            ["clang-21", "--version"],
            root=opened.path,
            env=opened.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            code = process.wait()
        if code != 0:
            found.append(f"clang-21 --version ends with {code} in it")
    except (KdbtoolError, OSError) as error:
        found.append(f"cannot be entered: {error}")
    return found


def installed(root: Path) -> dict[str, str]:
    """Version by name of the packages that dpkg calls installed (var/lib/dpkg/status)."""
    path = root / "var/lib/dpkg/status"
    if not path.is_file() or path.stat().st_size > _STATUS_LIMIT:
        return {}
    found = {}
    for stanza in path.read_text("utf-8", "replace").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in stanza.splitlines() if line[:1] != " " and ": " in line)
        if fields.get("Status", "").endswith(" installed"):
            found[fields.get("Package", "")] = fields.get("Version", "")
    return found


def _moved_on(paths: RootPaths) -> list[str]:
    want, have = locking.read_lock(paths.lock).versions(), installed(paths.root)
    differ = sorted(n for n in want.keys() | have.keys() if want.get(n) != have.get(n))
    if not differ:
        return []
    name = differ[0]
    return [
        f"{len(differ)} packages differ from the lock, {name}: {have.get(name, 'absent')} here, "
        f"{want.get(name, 'absent')} in {paths.lock.name}; run: kdbtool root remove, kdbtool root make"
    ]


def remove(paths: RootPaths, *, everything: bool = False) -> bool:
    """Delete a root; with `everything` its packages and lock too. False when there was nothing.

    Refused for a folder that `make` did not make, for a link, and while anything is mounted in it.
    """
    if paths.root.is_symlink():
        raise KdbtoolError("a link, not a root", where=paths.root, hint=f"remove {paths.root.readlink()}")
    targets = [p for p in (paths.root, paths.making) if p.exists()]
    if everything:
        targets += [p for p in (paths.debs,) if p.exists()]
    if paths.root.exists() and read_marker(paths.root) is None:
        raise KdbtoolError(
            "not removed: kdbtool did not make this folder", where=paths.root, hint="remove it by hand"
        )
    for target in targets:
        privilege.refuse_mounts(target)
    if not targets:
        return False
    with make.hold(paths):
        for target in targets:
            privilege.remove_tree(target)
        if everything:
            paths.lock.unlink(missing_ok=True)
    return True


def list_roots(folder: Path | None = None) -> list[tuple[Path, dict[str, object] | None]]:
    """Roots in the cache folder (or `folder`) with how each was made; None for a half-made one."""
    folder = cache_dir() if folder is None else folder
    found: list[tuple[Path, dict[str, object] | None]] = []
    for path in sorted(folder.glob("root-*")):
        if path.is_dir() and path.suffix != ".debs":
            found.append((path, read_marker(path)))
    return found
