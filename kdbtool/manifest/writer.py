"""Manifest to text, format 1: the same manifest gives the same bytes, and adding keys adds lines.

A kernel's keys are rows of a schema where kdbtool has one for the names of their options
(kdbtool.manifest.rules), both spellings in one row; any other key is a line of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kdbtool.errors import KdbtoolError
from kdbtool.manifest import rows
from kdbtool.manifest.model import ASKED_UNBUILT, BUILD, Comments, Key, Manifest, Problem, options_of
from kdbtool.manifest.quote import quote
from kdbtool.manifest.reader import MAX_LINE
from kdbtool.manifest.rules import schemas
from kdbtool.manifest.schema import VALUE, Schema
from kdbtool.miopen.finddb import FindSolution
from kdbtool.miopen.keys import find_repeat, source_of

_PIECE = 1000  # lines
_HEADS = {BUILD: "kernel", ASKED_UNBUILT: "unbuilt"}


def write_manifest(manifest: Manifest) -> bytes:
    """The text of `manifest`, ASCII but for its comments, every line ending in a newline."""
    return b"".join(pieces(manifest))


def pieces(manifest: Manifest) -> Iterator[bytes]:
    """`write_manifest` piece by piece: the keys of a whole GPU are hundreds of megabytes."""
    out = ["kdbtool-manifest format 1"]
    out += manifest.comments
    out.append(f"miopen {manifest.miopen or 'unknown'}")
    out.append(f"sources {_hash(manifest.sources)}")
    if manifest.find_db:
        out.append(f"find-db {_hash(manifest.find_db)}")
    out += [f"profile {name} {_word(value)}" for name, value in sorted(manifest.profile.items())]
    out += [f"arch {arch}" for arch in manifest.archs]
    out += [f"origin {quote(origin.encode('utf-8'))}" for origin in sorted(manifest.origins)]
    yield _encoded(out)
    blocks: dict[tuple[str, bytes], list[Key]] = {}
    for key in manifest.keys:
        blocks.setdefault((key.state, key.name), []).append(key)
    known = schemas(manifest.miopen)
    for head, (state, name) in sorted((_head(*block), block) for block in blocks):
        lines = _block(manifest, head, state, name, blocks.pop((state, name)), known.get(name, {}))
        for at in range(0, len(lines), _PIECE):
            yield _encoded(lines[at : at + _PIECE])
    if manifest.problems:
        out = [""]
        for text, problem in sorted(manifest.problems.items()):
            out += _problem(text, problem)
        yield _encoded(out)
    yield _encoded(manifest.trailing)


def _block(
    manifest: Manifest,
    head: str,
    state: str,
    name: bytes,
    keys: list[Key],
    known: dict[tuple[str, ...], Schema],
) -> list[str]:
    note = manifest.blocks.get((state, name))
    out = ["", *(note.comments if note else ()), head]
    source = source_of(name)
    hashes = manifest.hashes.get(source) if source and state == BUILD else None
    if hashes and hashes.source:
        out.append(f"  source {_hash(hashes.source)}")
    if hashes and hashes.headers:
        out.append(f"  headers {_hash(hashes.headers)}")
    plain, sections = _sorted_out(keys, known)
    for line, comments in sorted((key_line(key), manifest.keys[key].comments) for key in plain):
        out += [*_indented(comments, 2), line]
    for shape, variants in sorted(sections.items()):
        out += ["  schema", *(f"    {rows.option_line(option)}" for option in known[shape].options)]
        out += _rows(manifest, known[shape], variants)
    return out


Variants = dict[tuple[str, ...], dict[str, list[tuple[Key, bool]]]]  # by values, then arch; True: list twice


def _sorted_out(
    keys: list[Key], known: dict[tuple[str, ...], Schema]
) -> tuple[list[Key], dict[tuple[str, ...], Variants]]:
    """(keys that are lines of their own, the others by shape)."""
    plain: list[Key] = []
    sections: dict[tuple[str, ...], Variants] = {}
    good: set[str] = set()  # values that may stand in a row
    for key in keys:
        found = parts_of(key) if known else None
        if found is not None and found.shape in known and not good.issuperset(found.values):
            good.update(value for value in found.values if VALUE.match(value))
        if found is None or found.shape not in known or not good.issuperset(found.values):
            plain.append(key)
        else:
            of_arch = sections.setdefault(found.shape, {}).setdefault(found.values, {})
            of_arch.setdefault(key.arch, []).append((key, found.twice))
    return plain, sections


def parts_of(key: Key) -> rows.Parts | None:
    """The options of a key that can be in a row."""
    options, ends = options_of(key)
    return rows.parts(options.decode("ascii")) if ends and key.arch and options.isascii() else None


def _rows(manifest: Manifest, schema: Schema, variants: Variants) -> list[str]:
    texts = rows.encode(schema, list(variants))
    sections: dict[tuple[str, ...], list[tuple[str, Comments]]] = {}
    has_two = rows.run_of(schema.shape) is not None
    for text, by_arch in zip(texts, variants.values(), strict=True):
        marks: dict[str, list[str]] = {}
        for arch, keys in by_arch.items():
            mark = ""
            if has_two and len(keys) == 1:
                mark = f" {rows.TWICE if keys[0][1] else rows.ONCE}"
            marks.setdefault(mark, []).append(arch)
        for mark, archs in marks.items():
            notes = [manifest.keys[key].comments for arch in archs for key, _ in by_arch[arch]]
            comments = (
                tuple(dict.fromkeys(comment for some in notes for comment in some)) if any(notes) else ()
            )
            sections.setdefault(tuple(sorted(archs)), []).append((f" {text}{mark}", comments))
    out = []
    for archs_of, lines in sorted(sections.items()):
        out.append(f"  rows {' '.join(archs_of)}")
        for line, comments in sorted(lines):
            out += [*_indented(comments, 1), line]
    return out


def _problem(key: str, problem: Problem) -> list[str]:
    out = [*problem.note.comments, f"problem {key}"]
    out += [f"  {_solution(solution)}" for solution in problem.solutions]
    out += [f"  tuned {solver} {_word(values)}" for solver, values in sorted(problem.tuned.items())]
    return out


def _solution(solution: FindSolution) -> str:
    return f"find {solution.solver} {solution.time} {solution.workspace} {solution.algorithm}"


def _word(text: str) -> str:
    return text if VALUE.match(text) else quote(text.encode("utf-8"))


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


def _indented(comments: Comments, blanks: int) -> list[str]:
    return [f"{' ' * blanks}{comment}" for comment in comments]
