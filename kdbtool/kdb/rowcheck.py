"""One row's blob and object, judged for writers: what would be carried into a new file, or why it would not.

`fix` and `salvage` carry a row only when nothing that verify calls a problem is left in its blob, hash,
size and object; a wrong row is worse than a missing one. Some damage of the three blob columns is repaired,
each only where the object itself is proven by its MD5 (kernel_hash, whatever its spelling).
"""

from __future__ import annotations

import bz2
import enum
import hashlib
from collections.abc import Set
from dataclasses import dataclass

from kdbtool.codeobject.check import check_object, device_target
from kdbtool.kdb.blob import Packed, md5, unpack
from kdbtool.kdb.digest import digest_of
from kdbtool.kdb.findings import Code, Finding
from kdbtool.kdb.sqlite import MAX_VALUE
from kdbtool.miopen.keys import is_arch, split_mcpu

_MLIR = (b".mlir.o", b".mlir")
_MEASURED = 64 << 20  # bytes of an object whose size is not known; MIOpen's are under 10 MB


class BlobRepair(enum.Enum):
    """What can be put right in the blob columns: name for `--only`, and the text."""

    HASH_CASE = ("hash-case", "kernel_hash written in lower case")
    HASH_OF_COMPRESSED = ("hash-of-compressed", "kernel_hash of the object instead of the compressed bytes")
    SIZE = ("size", "uncompressed_size of the object whose MD5 kernel_hash is")
    TAIL = ("bz2-tail", "bytes after the end of the bzip2 stream cut off")

    def __init__(self, code: str, text: str) -> None:
        self.code = code
        self.text = text


_CODES = {
    Code.HASH_CASE: BlobRepair.HASH_CASE,
    Code.HASH_OF_COMPRESSED: BlobRepair.HASH_OF_COMPRESSED,
    Code.SIZE_LARGE: BlobRepair.SIZE,
    Code.BZ2_TAIL: BlobRepair.TAIL,
}


@dataclass(frozen=True)
class Verdict:
    """What is known of a blob. `size`, `tail`: the right uncompressed_size, bytes to cut off the blob's end.

    With `problems` the row must not be carried. `notes`: found, harmless, and not put right.
    """

    md5: str
    size: int
    tail: int
    repairs: tuple[BlobRepair, ...]
    problems: tuple[Finding, ...]
    notes: tuple[Finding, ...]

    def packed(self, blob: bytes) -> Packed:
        """The columns to write for the `blob` that was judged."""
        return Packed(blob[: len(blob) - self.tail], self.md5, self.size)


def row_arch(name: bytes, args: bytes, arch: str | None) -> str | None:
    """The bare architecture that the arguments name at their end, None without one.

    A `.mlir` kernel names none: MIOpen takes it for `arch`, that of the database.
    """
    split = split_mcpu(args)
    if split is None and name.endswith(_MLIR):
        return arch
    bare = split[1].partition(":")[0] if split else ""
    return bare if is_arch(bare) else None


class Judge:
    """Judges blobs, each distinct one once; `xnack`: the file is for devices that report xnack+."""

    def __init__(self, *, xnack: bool = False, repairs: Set[BlobRepair] = frozenset(BlobRepair)) -> None:
        self._xnack, self._repairs = xnack, repairs
        self._known: dict[bytes, Verdict] = {}

    def __call__(self, blob: bytes, digest: str, size: int, arch: str | None) -> Verdict:
        """The verdict on a row's blob, kernel_hash and uncompressed_size under a key for `arch`."""
        identity = digest_of(blob, digest.encode(), str(size).encode(), str(arch).encode())
        known = self._known.get(identity)
        if known is None:
            known = self._known[identity] = self._judge(blob, digest, size, arch)
        return known

    def _judge(self, blob: bytes, digest: str, size: int, arch: str | None) -> Verdict:
        data, found = unpack(blob, digest, size)
        repairs: list[BlobRepair] = []
        if BlobRepair.SIZE in self._repairs and (
            any(f.code in (Code.BAD_SIZE, Code.SIZE_SMALL) for f in found)
            or (size == 0 and blob.startswith(b"BZh") and data is not None and found)
        ):
            measured = measure(blob, digest)
            if measured is not None:
                size = measured
                repairs.append(BlobRepair.SIZE)
                data, found = unpack(blob, digest, size)
        problems = [f for f in found if f.is_problem and _CODES.get(f.code) not in self._repairs]
        repairs += [_CODES[f.code] for f in found if _CODES.get(f.code) in self._repairs]
        notes = [f for f in found if not f.is_problem and _CODES.get(f.code) not in self._repairs]
        if data is None or problems:
            return Verdict("", 0, 0, (), tuple(problems or found), ())
        for finding in (
            check_object(data, arch, self._target(arch)) if data else [Finding(Code.NOT_ELF, "empty")]
        ):
            (problems if finding.is_problem else notes).append(finding)
        tail = _tail(blob) if BlobRepair.TAIL in repairs else 0
        size = 0 if size == 0 else len(data) if BlobRepair.SIZE in repairs else size
        return Verdict(md5(data), size, tail, tuple(dict.fromkeys(repairs)), tuple(problems), tuple(notes))

    def _target(self, arch: str | None) -> str | None:
        target = device_target(arch) if arch is not None else None
        return target.replace(":xnack-", ":xnack+") if target is not None and self._xnack else target


def measure(blob: bytes, digest: str) -> int | None:
    """The size of the object in the bzip2 stream `blob` if its MD5 is `digest`; None for any other.

    Nothing is kept, and nothing past 64 MiB is decoded.
    """
    stream, sum_, size = bz2.BZ2Decompressor(), hashlib.md5(usedforsecurity=False), 0
    feed = blob
    try:
        while not stream.eof and size <= _MEASURED:
            data = stream.decompress(feed, max_length=1 << 20)
            feed = b""
            sum_.update(data)
            size += len(data)
            if not data and stream.needs_input:
                return None
    except (OSError, ValueError, EOFError):
        return None
    right = stream.eof and 0 < size <= min(_MEASURED, MAX_VALUE) and sum_.hexdigest() == digest.lower()
    return size if right else None


def _tail(blob: bytes) -> int:
    stream, feed = bz2.BZ2Decompressor(), blob
    while not stream.eof:
        stream.decompress(feed, max_length=1 << 20)
        feed = b""
    return len(stream.unused_data)
