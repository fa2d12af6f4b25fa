"""`kdbtool manifest --spdx`: the sources behind a manifest, their licences, the same bytes each time."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdbtool.manifest import Hashes, Key, Manifest, Note, write_manifest
from kdbtool.manifest.spdx import spdx_document
from kdbtool.miopen.sources import SourceSet

CPU = b" -mcpu=gfx1030"
ARCH = "gfx1030"
GRANT = (
    b"// Permission is hereby granted, free of charge, to any\n"
    b"// person obtaining a copy\n//  of this software\n"
)
NAMES = (b"a.cpp.o", b"b.cl.o", b"igemm_x.s.o", b"Conv_Winograd_v21.s.o", b"conv1x1u.s.o", b"odd \xff name")


def made(*names: bytes, state: str = "build") -> Manifest:
    return Manifest(keys={Key(name, CPU, ARCH, state): Note() for name in names}, miopen="6.4.3")


def document(manifest: Manifest, sources: SourceSet | None = None) -> dict[str, Any]:
    return dict(json.loads(spdx_document(manifest, write_manifest(manifest), sources)))


def declared(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {one["name"]: (one["licenseDeclared"], one["comment"]) for one in found["packages"]}


def test_classes_stand_apart_and_each_source_below_its_own() -> None:
    found = document(made(*NAMES))
    names = {one["SPDXID"]: one["name"] for one in found["packages"]}
    links = [
        (names.get(one["spdxElementId"]), one["relationshipType"], names[one["relatedSpdxElement"]])
        for one in found["relationships"]
    ]
    top = "kernel manifest for gfx1030, MIOpen 6.4.3"
    assert links[0] == (None, "DESCRIBES", top)
    for group, source in (("hip", "a.cpp"), ("opencl", "b.cl"), ("asm-generated", "igemm_x.s"),
                          ("asm-disassembled", "Conv_Winograd_v21.s"), ("asm-handwritten", "conv1x1u.s"),
                          ("unknown", r"odd \xff name")):  # fmt: skip
        assert (top, "DEPENDS_ON", f"MIOpen kernels: {group}") in links
        assert (f"MIOpen kernels: {group}", "CONTAINS", source) in links
    assert len(links) == 1 + 2 * len(NAMES)
    licences = declared(found)
    assert licences[r"odd \xff name"][0] == licences["MIOpen kernels: unknown"][0] == "NOASSERTION"
    assert "480" in licences["MIOpen kernels: asm-disassembled"][1]


def test_a_licence_is_what_the_text_says_else_miopens() -> None:
    texts = {
        "a.cpp": b"int x;",
        "b.cl": GRANT,
        "conv1x1u.s": b"/* SPDX-License-Identifier: BSD-3-Clause */\n",
        "igemm_x.s": b"; SPDX-License-Identifier: MIT\n" + GRANT,
    }
    found = declared(document(made(*NAMES), SourceSet(texts, {}, "here")))
    assert found["a.cpp"] == ("MIT", "1 row to build; MIOpen's licence; the text itself names none")
    assert found["b.cl"] == ("MIT", "1 row to build; its text carries this licence")
    assert found["conv1x1u.s"][0] == "BSD-3-Clause"
    assert found["igemm_x.s"][0] == "MIT" and "names this licence" in found["igemm_x.s"][1]
    assert "not at hand" in found["Conv_Winograd_v21.s"][1]
    evil = SourceSet({"a.cpp": b'// SPDX-License-Identifier: MIT", "x": "\n'}, {}, "here")
    assert declared(document(made(b"a.cpp.o"), evil))["a.cpp"][0] == "MIT"


def test_hashes_and_states_are_the_manifests() -> None:
    manifest = made(b"a.cpp.o")
    manifest.keys[Key(b"b.s.o", CPU, ARCH, "asked-unbuilt")] = Note()
    manifest.hashes = {"a.cpp": Hashes("c" * 64)}
    found = document(manifest)
    sums = {one["name"]: one.get("checksums", [{}])[0].get("checksumValue") for one in found["packages"]}
    assert sums["a.cpp"] == "c" * 64 and sums["b.s"] is None
    assert hashlib.sha256(write_manifest(manifest)).hexdigest() in sums.values()
    assert "0 rows to build, 1 asked for without a source" in declared(found)["b.s"][1]


@given(st.sets(st.sampled_from(NAMES) | st.binary(min_size=1, max_size=20), max_size=8), st.randoms())
def test_any_keys_give_one_valid_document_whatever_their_order(names: set[bytes], random: Any) -> None:
    order = sorted(names)
    first = spdx_document(made(*order), b"text", None)
    random.shuffle(order)
    assert spdx_document(made(*order), b"text", None) == first
    found = json.loads(first)
    ids = [one["SPDXID"] for one in found["packages"]]
    assert len(set(ids)) == len(ids) and all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", one) for one in ids)
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", found["documentNamespace"])
    for one in found["relationships"]:
        assert one["relatedSpdxElement"] in ids and one["spdxElementId"] in [*ids, "SPDXRef-DOCUMENT"]


def test_the_time_is_given_or_none(
    monkeypatch: pytest.MonkeyPatch, run_cli: Callable[..., Any], tmp_path: Path
) -> None:
    source, out = tmp_path / "m", tmp_path / "x.json"
    source.write_bytes(write_manifest(made(b"a.cpp.o")))
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert run_cli("manifest", source, "--spdx", out, "-q").code == 0
    plain = out.read_bytes()
    assert json.loads(plain)["creationInfo"]["created"] == "1970-01-01T00:00:00Z"
    assert run_cli("manifest", source, "--spdx", out, "-q").code == 2  # it exists
    assert run_cli("manifest", source, "--spdx", out, "-q", "--force").code == 0 and out.read_bytes() == plain
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1234567890")
    run_cli("manifest", source, "--spdx", out, "-q", "--force")
    dated = json.loads(out.read_bytes())
    assert dated["creationInfo"]["created"] == "2009-02-13T23:31:30Z"
    assert dated["documentNamespace"] != json.loads(plain)["documentNamespace"]
    for bad in ("", "-1", "now", "9" * 13, "253402300800", "1.5"):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", bad)
        ended = run_cli("manifest", source, "--spdx", tmp_path / "n", "-o", tmp_path / "o")
        assert ended.code == 2 and ended.err.count("\n") == 1 and "SOURCE_DATE_EPOCH" in ended.err
        assert sorted(p.name for p in tmp_path.iterdir()) == ["m", "x.json"]


def test_texts_of_a_folder_are_read(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "b.cl").write_bytes(GRANT)
    (tmp_path / "m").write_bytes(write_manifest(made(b"b.cl.o")))
    words = ("--sources", tmp_path / "src", "--spdx", tmp_path / "x", "-o", tmp_path / "o", "-q")
    assert run_cli("manifest", tmp_path / "m", *words).code == 0
    found = json.loads((tmp_path / "x").read_text())
    assert "carries this licence" in declared(found)["b.cl"][1]
    sums = {one["name"]: one.get("checksums", [{}])[0].get("checksumValue") for one in found["packages"]}
    assert sums["b.cl"] == hashlib.sha256(GRANT).hexdigest()
    assert (
        sums["kernel manifest for gfx1030, MIOpen 6.4.3"]
        == hashlib.sha256((tmp_path / "o").read_bytes()).hexdigest()
    )


def test_one_file_is_not_two_outputs(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(write_manifest(made(b"b.cl.o")))
    for spdx in (tmp_path / "o", tmp_path / "." / "none" / ".." / "o"):
        ended = run_cli("manifest", tmp_path / "m", "-o", tmp_path / "o", "--spdx", spdx)
        assert ended.code == 2 and ended.err.count("\n") == 1 and not (tmp_path / "o").exists()
    ended = run_cli("manifest", tmp_path / "m", "--spdx", tmp_path / "none" / "x")
    assert ended.code == 2 and ended.out == "" and ended.err.count("\n") == 1
