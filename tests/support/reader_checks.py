"""What is done with a corrupted file, by kind: everything that a command would do when it reads one.

Used by the mutation tests and by scripts/fuzz. A check lets only the reader's declared errors out (`ERRORS`);
where the reader accepts the bytes, it also asserts what must then hold.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kdbtool.codeobject.bundle import entries
from kdbtool.codeobject.check import check_object
from kdbtool.codeobject.model import CodeObjectError
from kdbtool.codeobject.notes import kernels_of, metadata_of, notes, target_of
from kdbtool.codeobject.parse import parse
from kdbtool.errors import KdbtoolError
from kdbtool.kdb.checks import check
from kdbtool.kdb.identify import identify
from kdbtool.kdb.names import parse_name
from kdbtool.kdb.reader import KdbReader
from kdbtool.manifest.choose_usage import Usage
from kdbtool.manifest.reader import read_manifest
from kdbtool.manifest.retarget import retarget
from kdbtool.manifest.spdx import spdx_document
from kdbtool.manifest.writer import write_manifest
from kdbtool.miopen.embed import NotEmbeddable, embed
from kdbtool.miopen.installed import inspect
from kdbtool.miopen.keys import collapse, define_lists, find_repeat, language, source_of, split_arch
from kdbtool.miopen.liveness import judge, repair
from kdbtool.miopen.spelling import other_spelling
from kdbtool.miopen.versions import resolve
from kdbtool.shim.trace import read_trace

ERRORS = (KdbtoolError, CodeObjectError, NotEmbeddable)


class Check(NamedTuple):
    """`run` reads the file; `suffix` is what its name must end in."""

    run: Callable[[Path], object]
    suffix: str


def _identify(path: Path) -> None:
    kind = identify(path)
    parse_name(path)
    if not kind.is_kdb:
        raise kind.error()


def _kdb(path: Path) -> None:
    kind = identify(path)
    if not kind.is_kdb:
        raise kind.error()
    with KdbReader(kind) as reader:
        for finding in check(reader).findings:
            finding.json(path)
        reader.provenance()
        _ = reader.has_index, len(reader)
        for row in reader:
            with contextlib.suppress(KdbtoolError):
                row.object()
        for name, args in reader.keys():  # noqa: SIM118
            assert isinstance(name, bytes) and isinstance(args, bytes)


def _code_object(path: Path) -> None:
    data = path.read_bytes()
    check_object(data, "gfx942")
    found = parse(data, "gfx942")
    assert "\n" not in found.target_id


def _notes(path: Path) -> None:
    section = path.read_bytes()
    for _ in notes(section):
        pass
    metadata = metadata_of(section)
    if metadata is not None:
        target_of(metadata)
        kernels_of(metadata)


def _manifest(path: Path) -> None:
    manifest = read_manifest(path)
    list(manifest.variants())
    text = write_manifest(manifest)
    path.write_bytes(text)
    assert write_manifest(read_manifest(path)) == text
    json.loads(spdx_document(manifest, text, None))
    done = retarget(manifest, "gfx906")
    assert done.moved + done.there + len(done.left) == len(manifest.keys)
    write_manifest(done.manifest)


def _trace(path: Path) -> None:
    trace = read_trace(path)
    assert sum(trace.launches.by_kernel().values()) == sum(1 for _ in trace.launches)
    usage = Usage()
    usage.add(trace)
    usage.finish()
    assert sum(use.launches for use in usage.kernels.values()) <= usage.launches == len(trace.launches)


def _library(path: Path) -> None:
    found = inspect(path)
    assert found.build.kernels == frozenset(found.sources.kernels)
    assert all(fact.how.isprintable() and (fact.value or "").isprintable() for fact in found.facts)
    for kernel in found.sources.kernels:
        found.sources.hash_of(kernel)


def _embed(path: Path) -> None:
    text = path.read_bytes()
    files = {"a.inc": text, "b.h": b"b\n", "input.cl": text}
    for name in ("input.cl", "input.s", "input.cpp"):
        embed(name, text, files)


def _keys(path: Path) -> None:
    """A line is a name, a tab and arguments, all bytes."""
    builds = None, resolve("6.2"), resolve("6.4.3")
    for line in path.read_bytes().split(b"\n")[:20]:
        name, _, args = line.partition(b"\t")
        source = source_of(name)
        if source is not None:
            language(source)
            assert "/" not in source and not source.startswith((".", "-"))
        split_arch(args)
        define_lists(args)
        repeat = find_repeat(args)
        if repeat is not None:
            assert repeat.prefix + repeat.block * repeat.count + repeat.suffix == args
            assert collapse(args) == repeat.once
        for build in builds:
            judge(name, args, "gfx1030", build)
        repaired = repair(name, args, "gfx1030")
        assert repair(*repaired, "gfx1030") == repaired
        other = other_spelling(name, args)
        assert other is None or other_spelling(name, other) == args


def _bundle(path: Path) -> None:
    data = path.read_bytes()
    for entry in entries(data):
        assert 0 <= entry.offset <= entry.offset + entry.size <= len(data)
    _code_object(path)


CHECKS = {
    "identify": Check(_identify, ""),
    "kdb": Check(_kdb, ".kdb"),
    "object": Check(_code_object, ".o"),
    "bundle": Check(_bundle, ".o"),
    "notes": Check(_notes, ".note"),
    "manifest": Check(_manifest, ".kdbm"),
    "trace": Check(_trace, ".kdbtrace"),
    "library": Check(_library, ".so"),
    "embed": Check(_embed, ".cl"),
    "keys": Check(_keys, ".tsv"),
}
