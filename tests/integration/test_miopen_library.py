"""The real libMIOpen 6.4.3: what it says of itself, and what is made of it cut in pieces."""

from __future__ import annotations

import json
import lzma
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from support.mutate import survives
from support.reader_checks import CHECKS, ERRORS

from kdbtool.miopen.history import releases_with
from kdbtool.miopen.installed import Installed, inspect
from kdbtool.miopen.solvers import solvers_of
from kdbtool.miopen.versions import header_lists, kernel_lists


class Result(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def library(request: pytest.FixtureRequest) -> Path:
    opened = request.getfixturevalue("opened_root")
    return Path(opened.miopen)


@pytest.fixture(scope="module")
def found(library: Path) -> Installed:
    return inspect(library)


def test_its_lists_are_those_of_the_data(found: Installed) -> None:
    assert found.build.kernels == kernel_lists()["debian-6.4.3"]
    assert found.build.headers == header_lists()["debian-6.4.3"]
    assert (found.build.rocm, found.build.distributor, found.build.epoch.name) == ("6.4.3", "Debian", "E4")
    assert all("6.4" in releases_with(kernel) for kernel in found.build.kernels)


def test_what_it_says(found: Installed, root: Path) -> None:
    said = {fact.name: fact.value for fact in found.facts}
    assert said["version"] == "3.4.0" and str(said["hip"]).startswith("6.4.")
    assert said["compiles"] == "all by compilers that it starts"
    assert (
        said["compilers"] == "/build/reproducible-path/miopen-6.4.3+dfsg/build/clang-21, /usr/bin/clang++-21"
    )
    assert said["system databases in"] == str(root / "usr/lib/share/miopen/db")
    assert said["kernel cache in"] == "~/.cache/miopen/3.4.0."
    assert said["sqlite"] == "dynamic, libsqlite3.so.0" and said["perf-db"] == "text (.db.txt)"
    assert str(said["system databases"]).startswith("built with MIOPEN_DISABLE_SYSDB")
    assert int(str(said["solvers"]).split()[0]) == len(solvers_of(found.build)) > 50


def test_the_options_that_it_assumes_are_those_of_its_keys(found: Installed, shared: Path) -> None:
    """No text of the library says them; the keys that this very library asked for do."""
    with lzma.open(shared / "data" / "keys.gfx1030-sample.tsv.xz") as file:
        keys = file.read()
    for fact in found.facts:
        if fact.name.startswith(("MIOPEN_USE_RNE", "MIOPEN_FP8")):
            assert f" -D{fact.name}={fact.value} ".encode() in keys
            assert f" -D{fact.name}={1 - int(str(fact.value))} ".encode() not in keys


def test_its_changes_since_another_release_are_printed(run_cli: Callable[..., Result], library: Path) -> None:
    document = json.loads(run_cli("miopen", "5.7", library, "--json").out)["difference"]
    assert document["renamed"]["MIOpenCheckNumerics.cl"] == ["MIOpenCheckNumerics.cpp"]
    assert document["keys_differ"] and document["not_compared"][0].startswith("assembly")


def test_it_is_read_or_refused_however_it_is_damaged(library: Path, tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        data, rng = library.read_bytes(), random.Random(5)
        yield data
        for _ in range(6):
            yield data[: rng.randrange(len(data))]
        for _ in range(6):  # a page zeroed, the tables at either end hit
            out = bytearray(data)
            for _ in range(50):
                at = rng.choice(
                    (rng.randrange(len(out)), rng.randrange(4096), len(out) - rng.randrange(1, 4096))
                )
                out[at] ^= 1 << rng.randrange(8)
            start = rng.randrange(0, len(out), 4096)
            out[start : start + 4096] = bytes(len(out[start : start + 4096]))
            yield bytes(out)

    tally = survives(CHECKS["library"].run, pieces(), tmp_path, ".so", errors=ERRORS)
    assert tally.refused >= 6 and tally.accepted >= 1
