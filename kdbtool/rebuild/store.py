"""Finished objects on disk, by the digest of everything that decides them.

One file per object: a line with the sha256 of what follows, a line with the columns of a row, the blob
as MIOpen stores it. It is written under a temporary name and renamed, so that any number of processes
share a store, and one that is killed leaves finished objects and at most a temporary file, which `trim`
removes. An entry that does not match its own hash is removed, counted, and built again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
import time
from pathlib import Path

from kdbtool.kdb.blob import Packed, pack

_MAGIC = b"kdbtool object 1 "
_HEADER = len(_MAGIC) + 64 + 1
_OURS = re.compile(r"[0-9a-f]{2}/(?:[0-9a-f]{62}|\.[^/]*\.tmp)")
_STALE = 24 * 3600  # seconds after which a temporary file has no writer any more
DEFAULT_LIMIT = 4 << 30  # bytes


class Store:
    """Objects under `folder`, which is made when the first one is put."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.damaged: list[str] = []

    def path(self, digest: str) -> Path:
        """The file of an entry."""
        return self.folder / digest[:2] / digest[2:]

    def get(self, digest: str) -> Packed | None:
        """The object, or None where there is none that can be trusted."""
        path = self.path(digest)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        body = data[_HEADER:]
        if data[:_HEADER] == _header(body):
            with contextlib.suppress(OSError):
                os.utime(path)  # trim removes what was not used for longest
            columns, _, blob = body.partition(b"\n")
            md5, size = columns.decode().split()
            return Packed(blob, md5, int(size))
        self.damaged.append(digest)
        with contextlib.suppress(OSError):
            path.unlink()
        return None

    def put(self, digest: str, code: bytes) -> None:
        """Keep an object; OSError when it cannot be written."""
        packed = pack(code)
        body = f"{packed.md5} {packed.uncompressed_size}\n".encode() + packed.blob
        path = self.path(digest)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_header(body) + body)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def trim(self, limit: int = DEFAULT_LIMIT) -> int:
        """Remove the entries used longest ago until at most `limit` bytes are left; returns how many."""
        entries: list[tuple[float, int, Path]] = []
        for path in self.folder.glob("??/*"):
            if not _OURS.fullmatch(f"{path.parent.name}/{path.name}"):
                continue  # the folder may be one of the user's
            with contextlib.suppress(OSError):
                status = path.stat()
                if path.name.startswith("."):
                    if time.time() - status.st_mtime > _STALE:
                        path.unlink()
                else:
                    entries.append((status.st_mtime, status.st_size, path))
        total, removed = sum(size for _, size, _ in entries), 0
        for _, size, path in sorted(entries):
            if total <= limit:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                removed += 1
            total -= size
        return removed

    def remove(self) -> None:
        """The whole store; what is not ours stays, and the folder with it."""
        for path in self.folder.glob("??/*"):
            if _OURS.fullmatch(f"{path.parent.name}/{path.name}"):
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            for folder in self.folder.iterdir():
                with contextlib.suppress(OSError):
                    folder.rmdir()
            self.folder.rmdir()


def _header(body: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n"
