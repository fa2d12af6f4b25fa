"""What a writer writes, its reader reads: databases, bundles, code objects, traces, embedded texts, keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import traces
from support.amdgpu_elf import bundle, code_object, note

from kdbtool.codeobject.bundle import entries
from kdbtool.codeobject.notes import metadata_of, notes
from kdbtool.codeobject.parse import parse
from kdbtool.kdb.blob import pack
from kdbtool.kdb.identify import identify
from kdbtool.kdb.reader import KdbReader
from kdbtool.kdb.writer import write_kdb
from kdbtool.miopen.embed import embed
from kdbtool.miopen.history import epoch_of
from kdbtool.miopen.keys import MCPU, collapse, find_repeat, source_of, split_arch
from kdbtool.miopen.liveness import judge
from kdbtool.miopen.spelling import other_spelling
from kdbtool.miopen.versions import Epoch, epochs, known_releases, resolve
from kdbtool.shim._trace import lib

WITHOUT_NUL = st.binary(max_size=40).filter(lambda data: b"\0" not in data)
KEYS = st.tuples(WITHOUT_NUL.filter(bool), WITHOUT_NUL)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.$]{0,20}", fullmatch=True)
OPTION = st.from_regex(r" -D[A-Z]{1,6}_X(?:=[0-9a-z]{0,4})?", fullmatch=True).map(str.encode)

# A file per example: the folder is the test's, the file is written anew.
in_folder = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@given(
    st.dictionaries(KEYS, st.binary(min_size=1, max_size=200), max_size=8),
    st.dictionaries(NAMES, st.text(max_size=20), max_size=3),
)
@in_folder
def test_databases(tmp_path: Path, rows: dict[tuple[bytes, bytes], bytes], said: dict[str, str]) -> None:
    said = {
        f"x-{key}": value.replace("\0", "").encode("utf-8", "replace").decode() for key, value in said.items()
    }
    path = tmp_path / "gfx1030.kdb"
    write_kdb(path, ((name, args, data) for (name, args), data in rows.items()), said, force=True)
    with KdbReader(identify(path)) as reader:
        assert {(row.name, row.args): row.object() for row in reader} == rows
        assert all(row.key_is_text for row in reader)
        assert sorted(reader.keys()) == sorted(rows)
        assert {k: v for k, v in (reader.provenance() or {}).items() if k in said} == said
        packed = {key: pack(data) for key, data in rows.items()}
        for row in reader:
            assert (row.hash, row.blob()) == (packed[row.name, row.args].md5, packed[row.name, row.args].blob)


@given(
    st.lists(st.tuples(NAMES, st.binary(max_size=300)), min_size=1, max_size=5), st.sampled_from([1, 8, 4096])
)
@settings(deadline=None)
def test_bundles(parts: list[tuple[str, bytes]], align: int) -> None:
    data = bundle(*parts, align=align)
    found = [(entry.name, data[entry.offset : entry.offset + entry.size]) for entry in entries(data)]
    assert found == parts


@given(
    st.lists(NAMES, min_size=1, max_size=6, unique=True),
    st.sampled_from(["gfx906", "gfx90a", "gfx942"]),
    st.sampled_from(["any", "off", "on"]),
    st.sampled_from(["any", "off", "on"]),
    st.binary(min_size=4, max_size=64),
)
@settings(deadline=None)
def test_code_objects(names: list[str], arch: str, xnack: str, sramecc: str, text: bytes) -> None:
    found = parse(code_object(arch, names, xnack=xnack, sramecc=sramecc, text=text))
    assert sorted(found.kernels) == sorted(names) == sorted(k.name for k in found.metadata_kernels)
    assert (found.mach, found.xnack, found.sramecc) == (arch, xnack, sramecc)
    assert set(found.descriptors) == set(names)


VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@given(
    st.dictionaries(st.text(max_size=8), VALUES, max_size=4),
    st.lists(st.tuples(st.binary(min_size=1, max_size=9), st.binary(max_size=40)), max_size=3),
)
@settings(deadline=None)
def test_notes(value: dict[str, Any], others: list[tuple[bytes, bytes]]) -> None:
    section = b"".join(note(desc, owner=owner + b"\0", kind=7) for owner, desc in others)
    section += note(msgpack.packb(value))
    assert [(owner, kind) for owner, kind, _ in notes(section)][-1] == (b"AMDGPU\0", 32)
    assert metadata_of(section) == value


LOOKUP = st.tuples(KEYS, st.sampled_from([100, 101, 5]))


@given(
    st.lists(LOOKUP, max_size=10, unique_by=lambda lookup: lookup[0]),
    st.dictionaries(NAMES, st.text("abc/. ", max_size=20), max_size=3),
)
@in_folder
def test_traces(tmp_path: Path, asked: list[tuple[tuple[bytes, bytes], int]], said: dict[str, str]) -> None:
    records = [traces.database(1, b"/db/gfx1030.kdb")]
    for number, ((name, args), result) in enumerate(asked, 1):
        records += [
            traces.key(number, name, args),
            traces.statement(number, number, 1),
            traces.step(number, result),
        ]
    records += [traces.record(lib.KDBT_FACT, traces.pair(k.encode(), v.encode())) for k, v in said.items()]
    found = traces.read(tmp_path / "x.kdbtrace", traces.header(), traces.block(*records))
    hits = {100: True, 101: False, 5: None}
    assert [(x.name, x.args, x.hit) for x in found.lookups] == [(n, a, hits[r]) for (n, a), r in asked]
    assert found.notes == [] and {k: found.facts.all[k] for k in said} == said


LINES = st.lists(st.sampled_from([b"", b"int x;", b"  y", b"// include", b"#define A", b"\xff"]), max_size=6)


@given(LINES, LINES, LINES)
def test_embedded_texts(before: list[bytes], inside: list[bytes], after: list[bytes]) -> None:
    """A text without includes loses only empty lines at its begin; an include becomes the lines it names."""
    text, header = b"\n".join(before + after), b"\n".join(inside)
    plain = embed("a.cl", text, {})
    assert plain == text.lstrip(b"\n") or (not plain and not text.strip(b"\n"))
    whole = b"\n".join([*before, b'#include "d/h.h"', *after])
    assert embed("a.cl", whole, {"h.h": header}) == embed("a.cl", b"\n".join([*before, header, *after]), {})
    assert embed("a.cpp", whole, {}) == whole.lstrip(b"\n")
    assert embed("a.hpp", whole, {}) == whole.lstrip(b"\n") and embed("a.h", whole, {}) == whole


def spelled(epoch: Epoch, data_type: str) -> bytes:
    """The list as MIOpen writes it for one data type."""
    options = ((n, v if v is not None else str(int(n.endswith(f"_{data_type}")))) for n, v in epoch.defines)
    return b"".join(f" -D{name}={value}".encode() for name, value in options)


@given(
    st.sampled_from(sorted(epochs())),
    st.sampled_from(["FP16", "FP32", "INT8", "BFP16"]),
    st.lists(OPTION, max_size=4),
    st.lists(OPTION, max_size=4),
    st.sampled_from([1, 2]),
)
@settings(deadline=None)
def test_keys(epoch: str, data_type: str, before: list[bytes], after: list[bytes], times: int) -> None:
    """A key put together as MIOpen does falls into its parts again, and is live just where its epoch is."""
    one = spelled(epochs()[epoch], data_type)
    options = b"".join(before) + one * times + b"".join(after)
    args = options + MCPU + b"gfx1030"
    assert split_arch(args) == (options, "gfx1030") and source_of(b"naive_conv.cpp.o") == "naive_conv.cpp"
    assert epoch_of(args) == epoch
    assert collapse(options) == b"".join(before) + one + b"".join(after)
    assert (find_repeat(options) is not None) == (times == 2)
    other = other_spelling(b"naive_conv.cpp.o", args)
    assert other is not None and other_spelling(b"naive_conv.cpp.o", other) == args
    live = {r for r in known_releases() if not judge(b"naive_conv.cpp.o", args, "gfx1030", resolve(r))}
    assert live == {r for r in known_releases() if resolve(r).epoch.name == epoch}


@pytest.mark.parametrize("suffix", [".cl", ".s", ".cpp"])
def test_an_empty_text_is_embedded_as_nothing(suffix: str) -> None:
    assert embed(f"a{suffix}", b"", {}) == b""
