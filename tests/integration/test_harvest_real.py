"""The harvest over the real libMIOpen 6.4.3: complete, the same each time, and what MIOpen then finds.

The find-db is AMD's for gfx1030_36, every 400th problem of it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kdbtool.harvest.record import Record
from kdbtool.harvest.wanted import Why
from kdbtool.manifest import ASKED_UNBUILT, Manifest, read_manifest
from kdbtool.miopen import textdb
from kdbtool.miopen.keys import find_repeat, source_of, split_arch
from kdbtool.miopen.spelling import other_spelling

DRIVER = "/usr/libexec/rocm/libmiopen1-tests/MIOpenDriver"
CRASHING_LINE = 8667  # ConvOclDirectFwdFused alone
STEP = 400
CONVOLUTIONS = [
    "conv -n 2 -c 8 -H 16 -W 16 -k 8 -y 3 -x 3 -p 1 -q 1",
    "conv -n 4 -c 16 -H 14 -W 14 -k 32 -y 1 -x 1",
    "convfp16 -n 2 -c 8 -H 16 -W 16 -k 8 -y 3 -x 3 -p 1 -q 1 -I NHWC -O NHWC -f NHWC",
]


@pytest.fixture(scope="module")
def find_db(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("find-db") / "gfx1030_36.HIP.fdb.txt"
    source = shared / "data" / "gfx1030_36.HIP.fdb.txt.bz2"
    lines = [
        line.text for line in textdb.lines(source) if line.number % STEP == 0 or line.number == CRASHING_LINE
    ]
    path.write_bytes(textdb.encode("".join(f"{line}\n" for line in lines)))
    return path


Harvest = Callable[..., dict[str, Any]]


@pytest.fixture
def harvest(kdbtool: Callable[..., Any], root: Path) -> Harvest:
    def run(output: Path, *arguments: object, code: int = 0, arch: str = "gfx1030:36") -> dict[str, Any]:
        done = kdbtool("harvest", "--root", root, "--arch", arch, "-o", output, "--json", *arguments)
        assert (done.code, done.err) == (code, done.err), done.err
        found: dict[str, Any] = json.loads(done.out)
        assert found["compilers"] == 0
        return found

    return run


def keys(manifest: Manifest) -> set[tuple[bytes, bytes]]:
    return {(key.name, key.args) for key in manifest.keys}


def test_all_tiers_of_a_find_db(find_db: Path, harvest: Harvest, tmp_path: Path) -> None:
    found = {}
    for tier in ("all", "offered", "best", "default"):
        account = harvest(tmp_path / tier, "--find-db", find_db, "--tier", tier)
        assert account["keys"] > 0
        assert account["problems"]["read"] == 266
        found[tier] = read_manifest(tmp_path / tier)
    whole = keys(found["all"])
    assert keys(found["offered"]) < whole
    assert keys(found["best"]) < whole
    assert len(keys(found["best"])) < len(whole) / 2
    for name, args in whole:  # both spellings of every key that has two
        other = other_spelling(name, args)
        assert other is None or (name, other) in whole
    assert any(find_repeat(split_arch(args)[0]) for _, args in whole)  # type: ignore[index]
    # assembly is asked for, though this library has none
    unbuilt = {source_of(key.name) for key in found["all"].keys if key.state == ASKED_UNBUILT}
    assert unbuilt
    assert all(str(name).endswith(".s") for name in unbuilt)
    with Record.open(tmp_path / "all.harvest") as record:
        reasons = {failure.why for failure in record.failures()}
        assert {Why.WITHOUT_CODE, Why.NO_SOLUTION, Why.NO_KERNEL, Why.NOT_APPLICABLE} == reasons
        for number, key in record.each_key():
            assert record.askers(number), key


def test_full_find_asks_for_more_than_default(find_db: Path, harvest: Harvest, tmp_path: Path) -> None:
    some = tmp_path / "some"
    some.write_bytes(b"".join(find_db.read_bytes().splitlines(keepends=True)[::10]))
    harvest(tmp_path / "d", "--find-db", some, "--tier", "default")
    harvest(tmp_path / "f", "--find-db", some, "--full-find")
    assert len(keys(read_manifest(tmp_path / "f"))) > 2 * len(keys(read_manifest(tmp_path / "d")))


def test_the_same_bytes_with_one_worker_and_two_and_after_a_kill(
    find_db: Path, harvest: Harvest, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--find-db", find_db, "--askers"]
    harvest(tmp_path / "1", *arguments, "--jobs", 1)
    harvest(tmp_path / "2", *arguments, "--jobs", 2)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    text = (tmp_path / "1").read_text()
    assert text.count("# asked for by ConvOclDirectFwd: ") > 10
    lines = text.split("\n")
    keys_of = [n for n, line in enumerate(lines) if re.match(r" [^ #]|  key ", line)]
    assert len(keys_of) > 250  # a row is both spellings of a key
    assert all(lines[n - 1].lstrip(" ").startswith("# asked for by ") for n in keys_of)
    assert (tmp_path / "1.harvest").read_bytes() == (tmp_path / "2.harvest").read_bytes()
    # small chunks, so that there is something to be killed between
    small = (
        "import sys; from kdbtool.harvest import run; from kdbtool.cli import main; run.CHUNK = 20; main()"
    )
    output = tmp_path / "3"
    words = ["harvest", "--root", root, "--arch", "gfx1030:36", "-o", output, *arguments, "--json"]
    command = [sys.executable, "-c", small, *map(str, words)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **quiet) as one:  # type: ignore[call-overload]
        while one.poll() is None and _chunks(tmp_path / "3.harvest") < 3:
            time.sleep(0.05)
        os.kill(one.pid, signal.SIGKILL)
    assert not output.exists()
    done = subprocess.run(command, capture_output=True, check=False, timeout=300)
    assert json.loads(done.stdout)["problems"]["resumed"] >= 60
    assert keys(read_manifest(output)) == keys(read_manifest(tmp_path / "1"))


def _chunks(path: Path) -> int:
    try:
        with Record.open(path) as record:
            return len(record.chunks())
    except Exception:
        return 0


def test_a_solver_that_kills_miopen_costs_one_problem_named(
    find_db: Path, harvest: Harvest, tmp_path: Path, root: Path
) -> None:
    """As if nobody had known: the plan takes the name for a usable one."""
    fused = [line for line in find_db.read_text().splitlines() if "ConvOclDirectFwdFused" in line]
    good = find_db.read_text().splitlines()[:20]
    path = tmp_path / "db.HIP.fdb.txt"
    path.write_text("\n".join([*good[:10], *fused, *good[10:]]) + "\n")
    code = """
import dataclasses, sys
from kdbtool.cli import harvest, main
own = harvest.solver_set
def more(build):
    found = own(build)
    return dataclasses.replace(found, usable=found.usable | found.without_code, without_code=frozenset())
harvest.solver_set = more
sys.exit(main())
"""
    words = [
        "harvest",
        "--root",
        root,
        "--arch",
        "gfx1030:36",
        "-o",
        tmp_path / "m",
        "--find-db",
        path,
        "--json",
    ]
    command = [sys.executable, "-c", code, *map(str, words)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=300)
    assert done.returncode == 1, done.stderr
    account = json.loads(done.stdout)
    assert {(f["solver"], f["reason"]) for f in account["failures"]} == {("ConvOclDirectFwdFused", "crashed")}
    assert len(account["failures"]) == len(fused)
    assert all("SIGSEGV" in f["detail"] for f in account["failures"])
    assert account["problems"]["walked"] == 20 + len(fused)
    harvest(tmp_path / "without", "--find-db", path)
    assert keys(read_manifest(tmp_path / "without")) == keys(read_manifest(tmp_path / "m"))


def test_a_perf_db_changes_the_keys_of_tuned_problems(harvest: Harvest, tmp_path: Path, shared: Path) -> None:
    """AMD's, SQLite: this build wants text. As many keys, some of them with other parameters."""
    perf_db = shared / "data" / "gfx1030_36.db.bz2"
    numbers = range(0, 200_000, 997)
    source = shared / "data" / "gfx1030_36.HIP.fdb.txt.bz2"
    lines = [line.text + "\n" for line in textdb.lines(source) if line.number in numbers]
    find_db = tmp_path / "db.HIP.fdb.txt"
    find_db.write_bytes(textdb.encode("".join(lines)))
    harvest(tmp_path / "without", "--find-db", find_db)
    harvest(tmp_path / "with", "--find-db", find_db, "--perf-db", perf_db)
    without, tuned = keys(read_manifest(tmp_path / "without")), keys(read_manifest(tmp_path / "with"))
    assert 0 < len(tuned - without) < len(without) / 5
    # a record is of one harvest: with another perf-db it is another
    account = harvest(tmp_path / "without", "--find-db", find_db, "--perf-db", perf_db, "--force")
    assert account["problems"]["resumed"] == 0


def test_a_record_of_another_harvest_is_not_gone_on_with(
    find_db: Path, kdbtool: Callable[..., Any], root: Path, tmp_path: Path
) -> None:
    problems = tmp_path / "p.txt"
    problems.write_text(f"{CONVOLUTIONS[0]} -F 1\n")
    command = ("harvest", "--root", root, "--record", tmp_path / "r", "--problems", problems, "-q")
    assert kdbtool(*command, "--arch", "gfx1030:36", "-o", tmp_path / "a").code == 0
    done = kdbtool(*command, "--arch", "gfx906:60", "-o", tmp_path / "b")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "the record of another harvest: other device; name another file with --record" in done.err
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(("arch", "device"), [("gfx1030:36", "gfx1030"), ("gfx906:60", "gfx906")])
def test_what_was_harvested_is_what_miopen_finds(
    arch: str,
    device: str,
    harvest: Harvest,
    kdbtool: Callable[..., Any],
    record: Callable[..., Any],
    tmp_path: Path,
    root: Path,
) -> None:
    """Problems named as MIOpenDriver's commands: harvested, rebuilt, run with an empty HOME: 0 compiled."""
    problems = tmp_path / "problems.txt"
    problems.write_text("".join(f"MIOpenDriver {line} -F 1\n" for line in CONVOLUTIONS))
    # LLVM 21 cannot link the static CK of gfx9
    switch = {"MIOPEN_DEBUG_CONV_IMPLICIT_GEMM": "0"} if device == "gfx906" else {}
    harvest(tmp_path / "m.kdbmanifest", "--problems", problems, arch=arch)
    (tmp_path / "db").mkdir()
    done = kdbtool("rebuild", tmp_path / "m.kdbmanifest", "-o", tmp_path / f"db/{device}.kdb", "--root", root)
    assert done.code == 0, done.err
    for number, line in enumerate(CONVOLUTIONS):
        traces = tmp_path / f"traces{number}"
        env = {"MIOPEN_SYSTEM_DB_PATH": str(tmp_path / "db"), **switch}
        ran = record(traces, DRIVER, *line.split(), "-F", "1", "-V", "0", "-i", "1", arch=arch, env=env)
        assert ran.code == 0, ran.err
        account = kdbtool("trace", "info", "--json", traces)
        assert _misses(traces) == [], account.out


def _misses(traces: Path) -> list[tuple[bytes, bytes]]:
    from kdbtool.shim.trace import find_traces, read_trace

    found = [read_trace(path) for path in find_traces([traces])]
    assert not any(trace.facts.role == "compiler" for trace in found)
    return [
        (k.name, k.args)
        for trace in found
        for k in trace.lookups
        if not k.hit and not k.name.endswith(b".s.o")
    ]
