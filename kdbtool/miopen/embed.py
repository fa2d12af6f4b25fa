"""A kernel file as MIOpen's build embeds it, so that a source tree and a library give equal hashes.

addkernels (addkernels/include_inliner.cpp, develop of October 2024) puts the `#include`s of a .cl and the
`.include`s of a .s in place, leaves .cpp and headers alone, and loses empty lines at the very beginning.
"""

from __future__ import annotations

from collections.abc import Mapping

_DIRECTIVES = {".cl": b"#include", ".s": b".include"}
_OPTIONAL = b"//inliner-include-optional"
MAX_DEPTH = 256  # as in addkernels
MAX_EMBEDDED = 64 << 20  # bytes


class NotEmbeddable(Exception):
    """The file cannot be embedded: an include is missing, odd, too deep or too large."""


def embed(name: str, text: bytes, files: Mapping[str, bytes]) -> bytes:
    """`text` of file `name` as a library would have it; includes are looked up in `files` by base name."""
    suffix = name[name.rfind(".") :]
    if suffix not in (".cpp", ".hpp", *_DIRECTIVES):
        return text
    out: list[bytes] = []
    _lines(text, _DIRECTIVES.get(suffix), files, out, [0], 0)
    return b"\n".join(out)


def _lines(
    text: bytes,
    directive: bytes | None,
    files: Mapping[str, bytes],
    out: list[bytes],
    size: list[int],
    depth: int,
) -> None:
    if depth >= MAX_DEPTH:
        raise NotEmbeddable("includes too deep")
    optional = False
    for line in text.split(b"\n"):
        word = line.split(None, 1)[0].lower() if line.strip() else b""
        was_optional, optional = optional, False
        if word == _OPTIONAL and directive:
            optional = True
        elif directive and word == directive:
            included = files.get(_target(line, directive))
            if included is not None:
                _lines(included, directive, files, out, size, depth + 1)
            elif not was_optional:
                raise NotEmbeddable(f"{line.decode('utf-8', 'replace').strip()} names no file here")
        elif out or line:  # nothing is written, not even a line end, before the first text
            out.append(line)
            size[0] += len(line) + 1
            if size[0] > MAX_EMBEDDED:
                raise NotEmbeddable("too large with its includes")


def _target(line: bytes, directive: bytes) -> str:
    """Base name of the included file: in quotes, for OpenCL in angle brackets too."""
    for left, right in ((b'"', b'"'), (b"<", b">")) if directive == b"#include" else ((b'"', b'"'),):
        start = line.find(left)
        end = line.find(right, start + 1) if start >= 0 else -1
        if end > 0:
            return line[start + 1 : end].decode("utf-8", "replace").rpartition("/")[2]
    raise NotEmbeddable("an include that names no file")
