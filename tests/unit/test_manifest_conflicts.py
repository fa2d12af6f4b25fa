"""Manifests that do not agree: what each says, with its file and line, and what is done about it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kdbtool.manifest import Asker, Hashes, Key, Manifest, Note, parse_manifest, write_manifest
from kdbtool.manifest.collect import merged_askers
from kdbtool.manifest.conflicts import MAX_TOLD, Conflict, Said, differing, merged_profile, sources, told

CAT = Key(b"MIOpenCat.cpp.o", b" -mcpu=gfx1030", "gfx1030")
GLU = Key(b"MIOpenGLU.cpp.o", b" -mcpu=gfx1030", "gfx1030")
RunCli = Callable[..., Any]


def written(path: Path, miopen: str | None = "6.4.3", **hashes: str) -> Path:
    """A manifest of CAT and GLU; `hashes`: a digit for each."""
    made = Manifest(miopen=miopen, keys={CAT: Note(), GLU: Note()})
    names = {"cat": "MIOpenCat.cpp", "glu": "MIOpenGLU.cpp"}
    made.hashes = {names[name]: Hashes(digit * 64) for name, digit in hashes.items()}
    path.write_bytes(write_manifest(made))
    return path


def test_other_hashes_of_a_source_are_refused_with_files_and_lines(run_cli: RunCli, tmp_path: Path) -> None:
    one, two = written(tmp_path / "1", cat="a", glu="c"), written(tmp_path / "2", cat="b", glu="c")
    out = tmp_path / "out"
    ended = run_cli("manifest", one, two, "-o", out)
    said = f"source MIOpenCat.cpp: {one} line 6: sha256:{'a' * 64}; {two} line 6: sha256:{'b' * 64}"
    assert (ended.code, ended.out, out.exists()) == (2, "", False)
    assert said in ended.err and ended.err.count("\n") == 1
    assert "--miopen PATH or --sources DIR" in ended.err


@pytest.mark.parametrize("command", ["manifest", "merge"])
def test_every_conflict_has_its_line(run_cli: RunCli, tmp_path: Path, command: str) -> None:
    paths = [written(tmp_path / digit, cat=digit, glu=digit) for digit in "abb"[:2]]
    ended = run_cli(command, *paths, "-o", tmp_path / "out")
    assert ended.code == 2 and not (tmp_path / "out").exists()
    lines = ended.err.splitlines()
    assert len(lines) == 3 and "different kernel sources: 2 conflicts" in lines[2]
    assert [line.split(": ")[1:3] for line in lines[:2]] == [
        ["conflict", "source MIOpenCat.cpp"],
        ["conflict", "source MIOpenGLU.cpp"],
    ]


def test_sources_that_are_given_decide(run_cli: RunCli, tmp_path: Path) -> None:
    one, two = written(tmp_path / "1", cat="a"), written(tmp_path / "2", cat="b")
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "MIOpenCat.cpp").write_text("x")
    ended = run_cli("manifest", one, two, "--sources", folder)
    assert ended.code == 0
    (hashes,) = parse_manifest(ended.out.encode(), "m").hashes.values()
    assert hashes.source not in ("a" * 64, "b" * 64)


def test_three_versions_each_once_and_one_that_is_unknown(run_cli: RunCli, tmp_path: Path) -> None:
    named = ["6.4.3", "6.2.2", "6.4.3", "7.2.4"]
    paths = [written(tmp_path / str(n), miopen) for n, miopen in enumerate([None, *named])]
    ended = run_cli("manifest", *paths)
    assert ended.code == 2 and ended.err.count(" line 2: ") == 3
    assert f"{paths[3]} line" not in ended.err and f"{paths[0]} line" not in ended.err


def test_a_comment_is_no_header(run_cli: RunCli, tmp_path: Path) -> None:
    one, two = written(tmp_path / "1"), written(tmp_path / "2", "7.2.4")
    text = one.read_bytes()
    one.write_bytes(text.replace(b"miopen", b"# miopen 6.4.3, so far\nmiopen", 1))
    ended = run_cli("manifest", one, two)
    assert ended.code == 2 and f"{one} line 3: 6.4.3; {two} line 2: 7.2.4" in ended.err


def test_a_source_that_one_has_no_hash_of_is_no_conflict(run_cli: RunCli, tmp_path: Path) -> None:
    ended = run_cli("manifest", written(tmp_path / "1", cat="a"), written(tmp_path / "2", glu="b"))
    assert ended.code == 0 and len(parse_manifest(ended.out.encode(), "m").hashes) == 2


def test_hashes_of_headers_count_too() -> None:
    texts = [Hashes("a" * 64, "b" * 64), Hashes("a" * 64, "c" * 64), Hashes("a" * 64)]
    made = [Manifest(hashes={"x.cl": h}, path=str(n)) for n, h in enumerate(texts)]
    (found,) = sources(made)
    assert [said.path for said in found.said] == ["0", "1", "2"]
    assert f"headers sha256:{'c' * 64}" in str(found)
    assert sources(made[:1] * 2) == []


def profiled(path: str, **profile: str) -> Manifest:
    return Manifest(profile=profile, path=path)


def test_profiles_keep_what_all_agree_on() -> None:
    a = profiled("a", cu="36", MIOPEN_DEBUG_CONV_WINOGRAD="0")
    b = profiled("b", cu="40", MIOPEN_DEBUG_CONV_WINOGRAD="0", MIOPEN_FIND_MODE="1")
    none, no_units = Manifest(path="c"), profiled("d", MIOPEN_DEBUG_CONV_WINOGRAD="0")
    for order in itertools.permutations([a, b, none]):
        merged, found = merged_profile(order)
        assert merged == {"MIOPEN_DEBUG_CONV_WINOGRAD": "0"}
        assert [c.what for c in found] == ["profile MIOPEN_FIND_MODE", "profile cu"]
    assert str(merged_profile([a, b])[1][0]) == "profile MIOPEN_FIND_MODE: a: not set; b: 1; left out"
    # units that one does not have are not known there: no conflict
    assert merged_profile([a, no_units]) == (a.profile, [])
    assert merged_profile([]) == ({}, [])


def test_the_line_of_a_profile(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path, count in zip(paths, ("36", "40"), strict=True):
        path.write_text(f"# cu.gfx1030 is below\nx\nprofile cu.gfx1030 {count}\n")
    made = [
        Manifest(profile={"cu.gfx1030": u}, path=str(p)) for p, u in zip(paths, ("36", "40"), strict=True)
    ]
    (found,) = merged_profile(made)[1]
    assert [(said.value, said.line) for said in found.said] == [("36", 3), ("40", 3)]


def test_what_differs() -> None:
    said = [Said("1", "a", 3), Said("1", "b"), Said("2", "c")]
    assert differing("x", said[:2]) is None
    assert differing("x", []) is None
    assert str(differing("x", said, "took 1")) == "x: a line 3: 1; c: 2; took 1"


def test_no_more_lines_than_somebody_reads() -> None:
    many = [Conflict(f"x{n}", (Said("1", "a"), Said("2", "b")), "took 1") for n in range(MAX_TOLD + 7)]
    assert len(told(many)) == MAX_TOLD + 1 and told(many)[-1] == "7 more conflicts"
    assert len(told(many[:MAX_TOLD])) == MAX_TOLD and told([]) == []


def test_conflicts_are_in_the_json_account(
    run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the text is."""
    from kdbtool.manifest import reader

    real = reader.read_manifest

    def read(path: Path) -> Manifest:
        made = real(path)
        made.profile = {"cu": "36" if path.name == "1" else "40"}
        return made

    monkeypatch.setattr(reader, "read_manifest", read)
    paths = [written(tmp_path / "1"), written(tmp_path / "2")]
    account = json.loads(run_cli("manifest", *paths, "--json", "-o", tmp_path / "out").out)
    assert f"conflict: profile cu: {paths[0]}: 36; {paths[1]}: 40; left out" in account["notes"]


def test_who_asked_is_joined_for_the_keys_that_stay() -> None:
    one, two = Asker("S", "p"), Asker("T", "p")
    made = [Manifest(asked_by={CAT: {one}, GLU: {one}}), Manifest(asked_by={CAT: {two, one}}), Manifest()]
    assert merged_askers(made, {CAT}) == {CAT: {one, two}}
    assert made[0].asked_by == {CAT: {one}, GLU: {one}}
    assert merged_askers([], {CAT}) == merged_askers(made, set()) == {}


@pytest.mark.parametrize(("second", "kept"), [("a", "a"), ("b", None), (None, None)])
def test_the_find_db_is_named_where_all_name_it(
    run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: str | None, kept: str | None
) -> None:
    """Whatever the text is."""
    from kdbtool.cli import manifest as command
    from kdbtool.manifest import reader

    real, seen = reader.read_manifest, []

    def read(path: Path) -> Manifest:
        made = real(path)
        made.find_db = "a" if path.name == "1" else second
        return made

    def write(made: Manifest) -> bytes:
        seen.append(made.find_db)
        return write_manifest(made)

    monkeypatch.setattr(reader, "read_manifest", read)
    monkeypatch.setattr(command, "write_manifest", write)
    assert run_cli("manifest", written(tmp_path / "1"), written(tmp_path / "2")).code == 0
    assert seen == [kept]
