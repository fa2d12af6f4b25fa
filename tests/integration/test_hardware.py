"""What only a real GPU can show; listed in docs/hardware-checks.md, skipped elsewhere with the reason."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kdbtool import tuned
from kdbtool.manifest import read_manifest
from kdbtool.miopen import finddb, perfdb
from kdbtool.root import locate_miopen
from kdbtool.shim.trace import find_traces, read_trace

DRIVERS = ("MIOpenDriver", "/usr/libexec/rocm/libmiopen1-tests/MIOpenDriver", "/opt/rocm/bin/MIOpenDriver")
CONV = "conv -n 2 -c 8 -H 16 -W 16 -k 8 -y 3 -x 3 -p 1 -q 1 -t 1 -i 1 -F 1".split()


@pytest.fixture
def driver() -> str:
    """MIOpenDriver of a machine that has an AMD GPU."""
    if not Path("/dev/kfd").exists():
        pytest.skip("no AMD GPU (/dev/kfd)")
    found = next((path for name in DRIVERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no MIOpenDriver beside the GPU")
    return found


def test_record_on_a_real_device(driver: str, kdbtool: Callable, tmp_path: Path) -> None:
    done = kdbtool("record", "-o", tmp_path / "traces", "--root", "none", "--", driver, *CONV, "-V", "1")
    assert done.code == 0, done.err
    traces = [read_trace(path) for path in find_traces([tmp_path / "traces"])]
    host = next(trace for trace in traces if trace.lookups)
    assert not host.facts.simulated
    assert host.facts.device
    assert host.problems
    assert len(host.launches)


def test_clocks_of_a_real_card(driver: str, kdbtool: Callable, tmp_path: Path) -> None:
    """That they agree with rocm-smi under load is for whoever runs this to see."""
    options = ("record", "--clocks", "20ms", "-o", tmp_path / "traces", "--root", "none", "--")
    assert kdbtool(*options, driver, *CONV, "-V", "0", "-i", "2000").code == 0
    traces = [read_trace(path) for path in find_traces([tmp_path / "traces"])]
    samples = [sample for trace in traces if trace.facts.role == "sampler" for sample in trace.samples]
    assert len(samples) > 2
    assert any(sample.sclk_mhz for sample in samples) and any(sample.temperature_c for sample in samples)


def test_rebuilt_kdb_gives_the_same_numbers(driver: str, kdbtool: Callable, tmp_path: Path) -> None:
    library = locate_miopen()
    assert library is not None
    empty = {"HOME": str(tmp_path), "MIOPEN_CUSTOM_CACHE_DIR": str(tmp_path / "cache")}
    record = ("record", "--root", "none", "-o")
    done = kdbtool(*record, tmp_path / "cold", "--", driver, *CONV, "-V", "1", env=empty)
    assert done.code == 0, done.err
    manifest = tmp_path / "m.kdbmanifest"
    assert kdbtool("manifest", tmp_path / "cold", "--miopen", library, "-o", manifest).code == 0
    outputs = ("-o", tmp_path / "system", "--cache", tmp_path / "objects")
    done = kdbtool("rebuild", manifest, *outputs, "--miopen", library, "--root", "none")
    assert done.code == 0, done.err
    warm = {
        "HOME": str(tmp_path / "other"),
        "MIOPEN_CUSTOM_CACHE_DIR": str(tmp_path / "cache2"),
        "MIOPEN_SYSTEM_DB_PATH": str(tmp_path / "system"),
    }
    done = kdbtool(*record, tmp_path / "warm", "--", driver, *CONV, "-V", "1", env=warm)
    # -V 1: the driver compares with its own reference and says so in its exit code and text.
    assert done.code == 0, done.out + done.err
    assert "FAILED" not in done.out
    traces = [read_trace(path) for path in find_traces([tmp_path / "warm"])]
    assert not [trace for trace in traces if trace.facts.role == "compiler"]


def test_a_harvest_has_every_key_that_a_real_device_asks_for(
    driver: str, kdbtool: Callable, tmp_path: Path
) -> None:
    empty = {
        "HOME": str(tmp_path),
        "MIOPEN_CUSTOM_CACHE_DIR": str(tmp_path / "cache"),
        "MIOPEN_FIND_MODE": "1",
    }
    traces = tmp_path / "traces"
    done = kdbtool("record", "--root", "none", "-o", traces, "--", driver, *CONV, "-V", "0", env=empty)
    assert done.code == 0, done.err
    asked = {(k.name, k.args) for path in find_traces([traces]) for k in read_trace(path).lookups}
    manifest = tmp_path / "m.kdbmanifest"
    options = ("--root", "none", "--arch", "native", "--problems", traces, "--full-find")
    done = kdbtool("harvest", *options, "-o", manifest)
    assert done.code == 0, done.err
    assert asked <= {(key.name, key.args) for key in read_manifest(manifest).keys}


def test_what_a_real_device_tuned_lies_beside_the_trace(
    driver: str, kdbtool: Callable, tmp_path: Path
) -> None:
    env = {"MIOPEN_USER_DB_PATH": str(tmp_path / "user"), "MIOPEN_FIND_ENFORCE": "search"}
    command = ("record", "-v", "-o", tmp_path / "traces", "--root", "none", "--", driver, *CONV, "-V", "0")
    done = kdbtool(*command, env=env)
    assert done.code == 0 and "copied beside the trace" in done.err
    host = next(path for path in find_traces([tmp_path / "traces"]) if read_trace(path).problems)
    asked = {problem.key for problem in read_trace(host).problems}
    copied = tuned.beside(host)
    assert copied.find_db is not None and copied.perf_db is not None
    assert {record.key for record in finddb.read(copied.find_db)} <= asked
    assert list(perfdb.read(copied.perf_db))
