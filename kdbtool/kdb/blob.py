"""A row's blob: the object compressed with bzip2, or raw where that is no smaller.

src/bz2.cpp and src/kern_db.cpp (rocm-5.0.0 to develop of October 2024): one call of libbz2, block
size 9, into a buffer as large as the object; what does not fit is stored raw with
uncompressed_size 0. A reader decompresses into a buffer of exactly uncompressed_size bytes (a longer
object throws, a shorter one passes) and then compares the MD5.
"""

from __future__ import annotations

import bz2
import hashlib
import io
from dataclasses import dataclass

from kdbtool.kdb.findings import Code, Finding
from kdbtool.kdb.sqlite import MAX_VALUE

LEVEL = 9
_PIECE = 1 << 20
_TAIL = 48 << 20  # bytes past the size that are decoded and dropped: one block is at most 46 MB


@dataclass(frozen=True)
class Packed:
    """A row's three columns for one object. Made where the object was: compressing is the dear part."""

    blob: bytes
    md5: str
    uncompressed_size: int  # 0: raw

    @property
    def size(self) -> int:
        """Bytes of the object."""
        return self.uncompressed_size or len(self.blob)


def md5(data: bytes) -> str:
    """MIOpen's kernel_hash; no security hangs on it."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def pack(data: bytes) -> Packed:
    """The columns that MIOpen itself would store for the object `data`."""
    if not data:
        raise ValueError("an empty object: its size 0 would mean that the blob is raw")
    small = bz2.compress(data, LEVEL)
    if len(small) <= len(data):
        return Packed(small, md5(data), len(data))
    return Packed(data, md5(data), 0)


def unpack(blob: bytes, digest: str, size: int) -> tuple[bytes | None, list[Finding]]:
    """(the object or None, what is wrong) of a row's blob, kernel_hash and uncompressed_size.

    At most `size` bytes and one more are ever kept.
    """
    if size == 0:
        return blob, _hash(blob, blob, digest)
    if not 0 < size <= MAX_VALUE:
        return None, [Finding(Code.BAD_SIZE, f"{size}")]
    stream = bz2.BZ2Decompressor()
    try:
        data = _decompress(stream, blob, size + 1)
        # The object may be out while the end mark is not; and one that goes on past its size may be
        # damaged rather than larger, which the checksum at the end of the block tells.
        more = len(data) - size
        while not stream.eof and not stream.needs_input and more < _TAIL:
            more += len(stream.decompress(b"", max_length=1 << 20))
    except (OSError, ValueError, EOFError) as error:
        return None, [Finding(Code.BAD_BZ2, str(error).lower())]
    if more > 0:
        return None, [Finding(Code.SIZE_SMALL, f"more than the {size} bytes of uncompressed_size")]
    if not stream.eof:
        return None, [Finding(Code.BAD_BZ2, f"it ends early, after {len(data)} of {size} bytes")]
    findings = []
    if len(data) < size:
        findings.append(Finding(Code.SIZE_LARGE, f"{len(data)} bytes, uncompressed_size {size}"))
    if stream.unused_data:
        findings.append(Finding(Code.BZ2_TAIL, f"{len(stream.unused_data)} bytes"))
    return data, findings + _hash(data, blob, digest)


def _decompress(stream: bz2.BZ2Decompressor, blob: bytes, limit: int) -> bytes:
    """At most `limit` bytes of the stream. bz2 itself would hold them twice, in pieces and joined."""
    out, feed = io.BytesIO(), blob
    while out.tell() < limit and not stream.eof:
        piece = stream.decompress(feed, max_length=min(_PIECE, limit - out.tell()))
        feed = b""
        if not piece and stream.needs_input:
            break
        out.write(piece)
    return out.getvalue()


def _hash(data: bytes, blob: bytes, digest: str) -> list[Finding]:
    right = md5(data)
    if digest == right:
        return []
    if digest.lower() == right:
        return [Finding(Code.HASH_CASE, digest)]
    if blob is not data and digest.lower() == md5(blob):
        return [Finding(Code.HASH_OF_COMPRESSED, digest)]
    return [Finding(Code.HASH_WRONG, f"{digest[:64]}, the object's is {right}")]
