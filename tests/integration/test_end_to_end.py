"""The product in one sentence, with the real libMIOpen: record, manifest, rebuild, nothing compiled.

A small network (a forward and both backward convolutions) is enough for every step; scripts/demo
does the same with ResNet-50.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from kdbtool.kdb.reader import open_kdb
from kdbtool.manifest import read_manifest
from kdbtool.miopen.spelling import other_spelling
from kdbtool.root import Root
from kdbtool.shim.trace import Trace, find_traces, read_trace

DRIVER = "/usr/libexec/rocm/libmiopen1-tests/MIOpenDriver"
CONV = "conv -n 2 -c 8 -H 16 -W 16 -k 8 -y 3 -x 3 -p 1 -q 1 -t 1 -V 0 -i 1 -F {}".split()
DIRECTIONS = (1, 2, 4)  # MIOpenDriver's -F: forward, backward data, backward weights
WARNING = re.compile(rb"MIOpen\(HIP\): (Warning|Error)[^\n]*(database|kdb|Missing system)", re.IGNORECASE)


class Cold(NamedTuple):
    """What the first run left: its traces, and the manifest made of them."""

    traces: list[Trace]
    manifest: Path


def _driver(direction: int) -> list[str]:
    return [DRIVER, *(word.format(direction) for word in CONV)]


def _compilers(traces: list[Trace]) -> int:
    return sum(trace.facts.role == "compiler" for trace in traces)


def _run(record: Callable, folder: Path, **kw: object) -> list[Trace]:
    for direction in DIRECTIONS:
        done = record(folder, *_driver(direction), **kw)
        assert done.code == 0, done.err
        assert not WARNING.search(done.err.encode()), done.err
    return [read_trace(path) for path in find_traces([folder])]


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("end-to-end")


@pytest.fixture
def cold(workdir: Path, record: Callable, kdbtool: Callable, opened_root: Root) -> Cold:
    """Made once per module: the cold run and its manifest."""
    traces, manifest = workdir / "cold", workdir / "small.kdbmanifest"
    if not manifest.exists():
        _run(record, traces)
        done = kdbtool("manifest", traces, "--miopen", opened_root.miopen, "-o", manifest)
        assert done.code == 0, done.err
    return Cold([read_trace(path) for path in find_traces([traces])], manifest)


def _rebuild(kdbtool: Callable, root: Root, manifest: Path, output: Path, *more: object) -> Path:
    output.parent.mkdir(parents=True, exist_ok=True)
    # A cache of its own: the user's is neither filled nor takes the work off the compiler.
    cache = () if "--cache" in more else ("--cache", output.parent.parent / "cache")
    arguments = ("-o", output, "--root", root.path, "--miopen", root.miopen, *cache)
    done = kdbtool("rebuild", manifest, *arguments, *more)
    assert done.code == 0, done.err
    return output


def test_recorded_rebuilt_and_nothing_is_compiled(
    cold: Cold, workdir: Path, record: Callable, kdbtool: Callable, opened_root: Root
) -> None:
    assert _compilers(cold.traces) > 0, "the cold run must compile, or the warm one shows nothing"
    kdb = _rebuild(kdbtool, opened_root, cold.manifest, workdir / "system" / "gfx1030.kdb")
    warm = _run(record, workdir / "warm", env={"MIOPEN_SYSTEM_DB_PATH": str(kdb.parent)})
    assert _compilers(warm) == 0
    assert sum(len(trace.modules) for trace in warm) > 0
    hosts = [trace for trace in warm if trace.facts.role == "host"]
    assert [lookup for trace in hosts for lookup in trace.lookups if lookup.hit]
    # Without its kernels nothing would run: what the cold run launched, the warm one launches.
    assert all(len(trace.launches) for trace in hosts)


def test_the_next_process_asks_for_the_other_spelling_and_finds_it(
    cold: Cold, workdir: Path, record: Callable, kdbtool: Callable, opened_root: Root
) -> None:
    kdb = _rebuild(kdbtool, opened_root, cold.manifest, workdir / "next" / "gfx1030.kdb")
    twice = f"{DRIVER} {' '.join(_driver(1)[1:])}; " * 2
    done = record(
        *(workdir / "twice", "sh", "-c", f"{twice}true"), env={"MIOPEN_SYSTEM_DB_PATH": str(kdb.parent)}
    )
    assert done.code == 0, done.err
    traces = [read_trace(path) for path in find_traces([workdir / "twice"])]
    asked = [{(lookup.name, lookup.args) for lookup in trace.lookups} for trace in traces if trace.lookups]
    assert len(asked) == 2
    assert asked[0] != asked[1], "the second process reads the first one's find-db"
    assert _compilers(traces) == 0


def test_every_key_of_the_traces_is_in_the_manifest(cold: Cold) -> None:
    asked = {(lookup.name, lookup.args) for trace in cold.traces for lookup in trace.lookups}
    written = {(key.name, key.args) for key in read_manifest(cold.manifest).expand()}
    assert asked <= written
    assert all((name, other_spelling(name, args)) in asked for name, args in written - asked)


def test_the_database_has_both_spellings_with_one_object(
    cold: Cold, workdir: Path, kdbtool: Callable, opened_root: Root
) -> None:
    kdb = _rebuild(kdbtool, opened_root, cold.manifest, workdir / "spellings" / "gfx1030.kdb")
    hashes = {}
    with open_kdb(kdb) as reader:
        for row in reader:
            hashes[row.name, row.args] = row.hash
    doubled = [v for v in read_manifest(cold.manifest).variants() if len(v.spellings) > 1]
    assert any(variant.source == "naive_conv.cpp" for variant in doubled)
    for variant in doubled:
        assert len({hashes[key.name, key.args] for key in variant.spellings}) == 1


def test_rebuilt_twice_in_two_folders_with_one_and_two_workers_identical(
    cold: Cold, tmp_path: Path, kdbtool: Callable, opened_root: Root
) -> None:
    files = [
        _rebuild(
            *(kdbtool, opened_root, cold.manifest, tmp_path / f"{jobs}" / "gfx1030.kdb"),
            *("--jobs", jobs, "--cache", tmp_path / f"cache{jobs}"),
        )
        for jobs in (1, 2)
    ]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_the_rebuilt_database_passes_verify(
    cold: Cold, workdir: Path, kdbtool: Callable, opened_root: Root
) -> None:
    kdb = _rebuild(kdbtool, opened_root, cold.manifest, workdir / "verified" / "gfx1030.kdb")
    done = kdbtool("verify", kdb, "--json")
    assert done.code == 0, done.out
    assert json.loads(done.out)


def test_a_manifest_says_that_it_was_simulated(cold: Cold) -> None:
    assert any("simulated" in origin for origin in read_manifest(cold.manifest).origins)


def test_an_empty_manifest_is_an_empty_database(tmp_path: Path, kdbtool: Callable, opened_root: Root) -> None:
    manifest = tmp_path / "none.kdbmanifest"
    manifest.write_text("kdbtool-manifest format 0\nmiopen 6.4.3\nsources unknown\n")
    kdb = _rebuild(kdbtool, opened_root, manifest, tmp_path / "gfx1030.kdb")
    with open_kdb(kdb) as reader:
        assert len(reader) == 0


def test_assembly_that_this_build_lacks_is_listed_apart_and_skipped(
    tmp_path: Path, record: Callable, kdbtool: Callable, opened_root: Root
) -> None:
    # With an assembler MIOpen takes Winograd for applicable, whose sources Debian has removed.
    winograd = [DRIVER, *"conv -n 2 -c 16 -H 16 -W 16 -k 16 -y 3 -x 3 -p 1 -q 1 -V 0 -i 1 -F 1".split()]
    done = record(
        tmp_path / "traces", *winograd, env={"MIOPEN_EXPERIMENTAL_GCN_ASM_PATH": "/usr/bin/clang-21"}
    )
    assert done.code != 0, "MIOpenDriver's own exit code, which record hands on"
    manifest = tmp_path / "m.kdbmanifest"
    assert kdbtool("manifest", tmp_path / "traces", "-o", manifest).code == 0
    unbuilt = {key.name for key in read_manifest(manifest).expand() if key.state == "asked-unbuilt"}
    assert unbuilt
    assert all(name.endswith(b".s.o") for name in unbuilt)
    kdb = _rebuild(kdbtool, opened_root, manifest, tmp_path / "gfx1030.kdb")
    with open_kdb(kdb) as reader:
        assert not unbuilt & {row.name for row in reader}
