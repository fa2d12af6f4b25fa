"""The lock of a root: every package with version, file and SHA-256; and the packages, kept.

The lock is JSON, one package a line, sorted: two locks compare with diff. The kept packages are a
local apt repository, from which the same root is made again without the archive.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from kdbtool.errors import KdbtoolError

FORMAT = 1
_SIZE_LIMIT = 16 << 20
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_~%-]*\.deb\Z")


@dataclass(frozen=True, order=True)
class Package:
    """One installed package. `file` is a bare name in the package folder, `pool` its path on a mirror
    (empty when not known)."""

    name: str
    version: str
    arch: str
    file: str
    size: int
    sha256: str
    pool: str = ""


@dataclass(frozen=True)
class Lock:
    """What a root was made of."""

    miopen: str
    suite: str
    packages: tuple[Package, ...]

    def dump(self) -> str:
        """The lock's text; the same lock gives the same bytes."""
        head = {"format": FORMAT, "miopen": self.miopen, "suite": self.suite}
        rows = ",\n".join("  " + json.dumps(asdict(p)) for p in sorted(self.packages))
        return json.dumps(head)[:-1] + ',\n "packages": [\n' + rows + "\n]}\n"

    def versions(self) -> dict[str, str]:
        """Version by package name."""
        return {p.name: p.version for p in self.packages}

    def missing(self, folder: Path) -> list[Package]:
        """Packages that are not kept in `folder`, or whose kept file is another one."""
        return [p for p in self.packages if not _is(folder / p.file, p)]


def _is(path: Path, package: Package) -> bool:
    return path.is_file() and path.stat().st_size == package.size and sha256(path) == package.sha256


def sha256(path: Path) -> str:
    """Of a whole file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_lock(path: Path) -> Lock:
    """A lock file, checked field by field; KdbtoolError says what is wrong with it."""

    def bad(why: str) -> KdbtoolError:
        return KdbtoolError(
            "not a usable root lock", where=path, why=why, hint="run: kdbtool root make --update"
        )

    if path.stat().st_size > _SIZE_LIMIT:
        raise bad("larger than 16 MiB")
    try:
        data = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise bad(f"no JSON: {error}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise bad(f"format is not {FORMAT}")
    if not isinstance(data.get("packages"), list) or not data["packages"]:
        raise bad("no packages")
    packages = []
    for row in data["packages"]:
        try:
            package = Package(**row)
        except TypeError:
            raise bad(f"fields of a package: {str(row)[:80]}") from None
        if not all(
            isinstance(getattr(package, f), str)
            for f in ("name", "version", "arch", "file", "sha256", "pool")
        ):
            raise bad(f"fields of a package: {str(row)[:80]}")
        # The name becomes a path and an address: nothing but a bare file name may pass.
        if not _FILE.match(package.file) or not re.fullmatch(r"[0-9a-f]{64}", package.sha256):
            raise bad(f"file name or hash of {package.name}")
        if not re.fullmatch(r"[A-Za-z0-9.+_~%/-]*", package.pool) or ".." in package.pool:
            raise bad(f"pool path of {package.name}")
        if not isinstance(package.size, int):
            raise bad(f"size of {package.name}")
        packages.append(package)
    return Lock(str(data.get("miopen")), str(data.get("suite")), tuple(sorted(packages)))


def deb_name(name: str, version: str, arch: str) -> str:
    """The file name that apt and debootstrap give a fetched package."""
    return f"{name}_{version.replace(':', '%3a')}_{arch}.deb"


def write_repository(folder: Path, lock: Lock) -> None:
    """Make `folder` an apt repository of just the locked packages (dists/<suite>/..., unsigned).

    apt and debootstrap both read it by a file: address; every stanza carries the lock's SHA-256.
    """
    stanzas = []
    for package in sorted(lock.packages):
        done = subprocess.run(
            ["dpkg-deb", "--field", str(folder / package.file)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise KdbtoolError(
                "no Debian package", where=folder / package.file, why=done.stderr.strip()[:200]
            )
        where = f"Filename: {package.file}\nSize: {package.size}\nSHA256: {package.sha256}\n"
        # debootstrap takes note of a package at the empty line behind it, of the last one too.
        stanzas.append(f"{done.stdout.rstrip()}\n{where}\n")
    text = "".join(stanzas)
    dist = folder / "dists" / lock.suite
    binary = dist / "main" / "binary-amd64"
    binary.mkdir(parents=True, exist_ok=True)
    (binary / "Packages").write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    (dist / "Release").write_text(
        f"Suite: {lock.suite}\nCodename: {lock.suite}\nArchitectures: amd64\nComponents: main\n"
        f"SHA256:\n {digest} {len(text.encode())} main/binary-amd64/Packages\n"
    )


def prune(folder: Path, lock: Lock) -> None:
    """Drop packages that the lock does not name: superseded versions would only grow."""
    kept = {p.file for p in lock.packages}
    for path in folder.glob("*.deb"):
        if path.name not in kept:
            path.unlink()


def sync_text(path: Path, text: str) -> None:
    """Write a small file so that after a crash it is either the old or the new one."""
    temp = path.with_name(f".{path.name}.{os.getpid()}")
    with temp.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temp.replace(path)
