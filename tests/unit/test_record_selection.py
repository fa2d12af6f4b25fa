"""`kdbtool record` and `kdbtool trace` with a selection: what is refused, handed on, and told."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.standins import Standins, standins, traces

from kdbtool.shim.trace import find_traces, read_trace
from kdbtool.shim.trace_model import Trace

__all__ = ["standins", "traces"]  # fixtures

Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--kernel", "("], "kernel"),
        (["--kernel", ""], "kernel: empty"),
        (["--kernel", "ns::f(int)"], "symbols, not demangled ones"),
        (["--kernel", "a\nsignal=10"], "line break"),
        (["--every", "0"], "every"),
        (["--every", "x"], "every"),
        (["--first", "-1"], "first"),
        (["--iterations", "5"], "iterations"),
        (["--iterations", "5:5"], "iterations"),
        (["--device", "gfx1030"], "device"),
        (["--rank", "1-"], "rank"),
        (["--region", ""], "region: empty"),
        (["--region", "r"] * 17, "region: too many"),
        (["--kernel", "a" * 5000], "too long"),
        (["--start-paused"], "nothing would end the pause"),
        (["--start-paused", "--region", "r"], "--signal"),
        (["--signal", "KILL"], "not a signal that can be had"),
        (["--at-limit", "rotate"], "add --max-size"),
        (["--max-size", "4K", "--at-limit", "rotate"], "at least 1048576 bytes"),
        (["--max-size", "100"], "at least"),
        (["--clocks", "often"], "no such interval"),
        (["--clocks", "1ms"], "10ms at least"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(
    run_cli: Run, tmp_path: Path, options: list[str], words: str
) -> None:
    started, out = tmp_path / "started", tmp_path / "t"
    ended = run_cli("record", "--root", "none", "-o", out, *options, "--", "touch", started)
    assert (ended.code, ended.out, started.exists(), out.exists()) == (2, "", False, False)
    assert words in ended.err and ended.err.count("\n") == 1, ended.err


@pytest.mark.parametrize("name", ["kernel", "every", "first", "iterations", "device", "rank"])
def test_a_second_value_does_not_replace_the_first(run_cli: Run, tmp_path: Path, name: str) -> None:
    ended = run_cli("record", f"--{name}", "1", f"--{name}", "2", "--", "touch", tmp_path / "started")
    assert (ended.code, ended.out, (tmp_path / "started").exists()) == (2, "", False)
    assert ended.err == (f"kdbtool record: argument --{name}: given twice: kdbtool record --help says more\n")


def test_an_audit_that_sees_nothing_is_refused(
    run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On aarch64 it did nothing, without a word."""
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    ended = run_cli("record", "--audit", "--", "touch", tmp_path / "started")
    assert (ended.code, (tmp_path / "started").exists()) == (2, False)
    assert "x86-64" in ended.err and ended.err.count("\n") == 1


@pytest.mark.parametrize("options", [["--signal", "USR3"], ["--max-size", "2T"], ["--at-limit", "now"]])
def test_values_of_no_kind(run_cli: Run, tmp_path: Path, options: list[str]) -> None:
    ended = run_cli("record", *options, "--", "touch", tmp_path / "started")
    assert (ended.code, (tmp_path / "started").exists()) == (2, False) and options[1] in ended.err


def record(kdbtool: Run, standins: Standins, traces: Path, *words: object, **env: str) -> Any:
    options, program = list(map(str, words)), [standins.folder / "linked"]
    cut = options.index("--") if "--" in options else len(options)
    return kdbtool(
        *("record", "--root", "none", "-o", traces, *options[:cut], "--", *program, *options[cut + 1 :]),
        env={"LD_LIBRARY_PATH": str(standins.folder), **env},
    )


def only(traces: Path) -> Trace:
    (path,) = find_traces([traces])
    return read_trace(path)


def test_options_reach_the_recorder(kdbtool: Run, standins: Standins, traces: Path) -> None:
    options = (
        *("--kernel", "^[0-3]_", "--iterations", "10:", "--first", "100", "--every", "3"),
        *("--device", "0", "--rank", "2-3"),
    )
    ended = record(kdbtool, standins, traces, *options, "--", "several", 2, 5000, RANK="2")
    assert (ended.code, ended.out, ended.err) == (0, "10000\n", "")
    trace = only(traces)
    assert trace.launches.by_kernel() == {f"{i}_kernel": 34 for i in range(4)}
    assert trace.facts.unselected == 10_000 - 4 * 34
    text = "kernel=^[0-3]_\nevery=3\nfirst=100\niterations=10:\ndevice=0\nrank=2-3\n"
    assert trace.facts.all["select"] == text


def test_a_filter_that_kept_nothing_is_told(kdbtool: Run, standins: Standins, traces: Path) -> None:
    ended = record(kdbtool, standins, traces, "-q", "--kernel", "gemn", "--", "several", 1, 100)
    told = "the selection matched nothing (kernel=gemn): no launch was kept, 100 events left out"
    assert (ended.code, ended.out, ended.err) == (0, "100\n", f"kdbtool record: {told}\n")


def test_a_rank_that_there_is_not_is_told(kdbtool: Run, standins: Standins, traces: Path) -> None:
    ended = record(kdbtool, standins, traces, "--rank", "7", "--", "several", 1, 100, RANK="0")
    assert (ended.code, ended.err.count("\n"), find_traces([traces])) == (0, 1, [])
    assert "no process of such a rank" in ended.err


def test_the_exit_code_stays_the_programs(kdbtool: Run, traces: Path) -> None:
    ended = kdbtool("record", "--root", "none", "-o", traces, "--rank", "7", "--", "sh", "-c", "exit 77")
    assert ended.code == 77


def test_a_signal_to_record_goes_on_and_pauses(standins: Standins, traces: Path) -> None:
    import os

    command = (sys.executable, "-m", "kdbtool", "record", "--root", "none", "-o", traces, "--start-paused",
               "--signal", "RTMIN+3", "--", standins.folder / "linked", "forever")  # fmt: skip
    env = os.environ | {"LD_LIBRARY_PATH": str(standins.folder)}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "begun\n"
        for _ in range(4):
            time.sleep(0.1)
            process.send_signal(signal.SIGRTMIN + 3)
        time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
    assert process.returncode == -signal.SIGTERM
    trace = only(traces)
    assert [g.open for g in trace.gates] == [False, True, False, True, False]
    assert trace.lookups and trace.facts.unselected


@pytest.mark.parametrize("at", ["stop", "rotate"])
def test_size(kdbtool: Run, standins: Standins, traces: Path, at: str) -> None:
    options = ("--max-size", "1M", "--at-limit", at)
    ended = record(kdbtool, standins, traces, *options, "--", "several", 1, 400_000)
    assert ended.code == 0
    files = list(traces.glob("*.kdbtrace"))
    assert sum(path.stat().st_size for path in files) <= 2 << 20
    assert len(files) == (1 if at == "stop" else 4)
    said = "kdbtool record: recording stopped in 1 trace: kdbtool trace info says why\n"
    assert ended.err == (said if at == "stop" else "")


def test_audit_and_clocks_are_handed_on(kdbtool: Run, standins: Standins, traces: Path) -> None:
    ended = record(kdbtool, standins, traces, "--audit", "--clocks", "10ms", "--", "several", 1, 100)
    assert (ended.code, ended.out) == (0, "100\n")
    found = [read_trace(path) for path in find_traces([traces])]
    (host,) = (trace for trace in found if trace.facts.role == "host")
    assert len(host.launches) == 100
    samplers = [trace for trace in found if trace.facts.role == "sampler"]
    assert samplers or "no AMD card" in ended.err


def test_the_same_options_while_reading(
    kdbtool: Run, run_cli: Run, standins: Standins, traces: Path, tmp_path: Path
) -> None:
    assert record(kdbtool, standins, traces, "--", "several", 1, 1000).code == 0
    options = ("--kernel", "^[02]_", "--every", "10")
    info = json.loads(run_cli("trace", "info", traces, *options, "--json").out)
    assert (info["launches"], info["unselected"]) == (40, 960)
    lines = run_cli("trace", "list", traces, *options, "--what", "launches").out.splitlines()
    assert len(lines) == 40
    done = run_cli("trace", "export", traces, *options, "-o", tmp_path / "x.sqlite", "--json")
    assert json.loads(done.out)["rows"]["launches"] == 40
    ended = run_cli("trace", "info", traces, "--kernel", "nothing")
    assert (ended.code, ended.err.count("\n")) == (0, 1) and "1000 events left out" in ended.err
    for action in ("info", "list"):
        ended = run_cli("trace", action, traces, "--iterations", "2:1")
        assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert run_cli("trace", "info", traces, "--start-paused").code == 2  # has no meaning there
