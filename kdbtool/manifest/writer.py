"""Manifest to text, format 0: the same manifest gives the same bytes, and adding keys only adds lines.

Each key is one line of its own, so that a second network, which may bring only the other spelling
of a doubled key, never changes a line that was there (docs/manifest-format.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kdbtool.errors import KdbtoolError
from kdbtool.manifest.model import ASKED_UNBUILT, BUILD, Comments, Key, Manifest, options_of
from kdbtool.manifest.quote import quote
from kdbtool.manifest.reader import MAX_LINE
from kdbtool.miopen.keys import find_repeat, source_of

_PIECE = 1000  # lines
_HEADS = {BUILD: "kernel", ASKED_UNBUILT: "unbuilt"}


def write_manifest(manifest: Manifest) -> bytes:
    """The text of `manifest`, ASCII but for its comments, every line ending in a newline."""
    return b"".join(pieces(manifest))


def pieces(manifest: Manifest) -> Iterator[bytes]:
    """`write_manifest` block by block: the text of a whole GPU is hundreds of megabytes."""
    out = ["kdbtool-manifest format 0"]
    out += manifest.comments
    out.append(f"miopen {manifest.miopen or 'unknown'}")
    out.append(f"sources {_hash(manifest.sources)}")
    out += [f"arch {arch}" for arch in manifest.archs]
    out += [f"origin {quote(origin.encode('utf-8'))}" for origin in sorted(manifest.origins)]
    yield _encoded(out)
    blocks: dict[tuple[str, bytes], list[Key]] = {}
    for key in manifest.keys:
        blocks.setdefault((key.state, key.name), []).append(key)
    for head, (state, name) in sorted((_head(*block), block) for block in blocks):
        lines = _block(manifest, head, state, name, blocks[state, name])
        for at in range(0, len(lines), _PIECE):
            yield _encoded(lines[at : at + _PIECE])
    if manifest.problems:
        out = [""]
        for problem in sorted(manifest.problems):
            out += manifest.problems[problem].note.comments
            out.append(f"problem {problem}")
        yield _encoded(out)
    yield _encoded(manifest.trailing)


def _block(manifest: Manifest, head: str, state: str, name: bytes, keys: list[Key]) -> list[str]:
    note = manifest.blocks.get((state, name))
    out = ["", *(note.comments if note else ()), head]
    source = source_of(name)
    hashes = manifest.hashes.get(source) if source and state == BUILD else None
    if hashes and hashes.source:
        out.append(f"  source {_hash(hashes.source)}")
    if hashes and hashes.headers:
        out.append(f"  headers {_hash(hashes.headers)}")
    for line, comments in sorted((key_line(key), manifest.keys[key].comments) for key in keys):
        out += _indented(comments)
        out.append(line)
    return out


def _encoded(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8")


def key_line(key: Key) -> str:
    """The one line of a key, indent included."""
    options, ends = options_of(key)
    word = "key" if ends else "exact"
    repeat = find_repeat(options)
    if repeat:
        text = f"{quote(repeat.prefix)} {repeat.count}*{quote(repeat.block)} {quote(repeat.suffix)}"
    else:
        text = quote(options)
    line = f"  {word} {key.arch or '-'} {text}"
    if len(line) > MAX_LINE:
        raise KdbtoolError(
            f"key of {len(key.args)} bytes",
            where=key.name[:80].decode("latin-1"),
            why=f"a manifest line has at most {MAX_LINE} characters",
            hint="drop the row with --kernel",
        )
    return line


def _head(state: str, name: bytes) -> str:
    return f"{_HEADS[state]} {source_of(name) or quote(name)}"


def _hash(digest: str | None) -> str:
    return f"sha256:{digest}" if digest else "unknown"


def _indented(comments: Comments) -> list[str]:
    return [f"  {comment}" for comment in comments]
