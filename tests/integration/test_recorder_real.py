"""The recorder on the real MIOpen: its own log and its own databases are the oracle."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import standins

from kdbtool.manifest.join import Join
from kdbtool.root import Root, enter
from kdbtool.shim import launcher, libs
from kdbtool.shim.trace import Trace, find_traces, read_trace
from kdbtool.targets import split_target

CALLS = Path(__file__).resolve().parent.parent / "support" / "miopen_calls.py"
DRIVER = "MIOpenDriver"
SMALL = (DRIVER, "conv", *"-n 2 -c 8 -H 16 -W 16 -k 8 -y 3 -x 3 -p 1 -q 1 -t 1 -V 0 -i 1 -F 0 -G 1".split())
LOADING = re.compile(r'\[LoadBinary\] Loading binary for: "?(.+?)"?; args: (.*)')
ANSWER = re.compile(r'\[LoadBinary\] (Successfully loaded|Unable to load) binary for: "?(.+?)"?; args: (.*)')
KEY = re.compile(r"\[FindRecord(?:Unsafe)?\] Looking for key (\d\S+-[A-Z0-9]+-[FBW]\S*) in ")


class Ran(standins.Ran):
    """One whose program is MIOpen's, with compilers of its own."""

    @property
    def host(self) -> Trace:
        (trace,) = (t for t in self.traces if t.facts.role == "host")
        return trace

    def asked(self) -> list[tuple[str, str]]:
        """(name, args) of each lookup in MIOpen's level-6 log."""
        return [m.groups() for m in map(LOADING.search, self.err.splitlines()) if m]  # type: ignore[misc]


class Session:
    """A home of its own for runs in the root on a simulated RX 6800 XT."""

    def __init__(self, root: Root, folder: Path) -> None:
        self.root, self.folder = root, folder
        self.runs = 0
        for place in ("home", "miopen/db", "miopen/cache"):
            (folder / place).mkdir(parents=True)

    def start(self, argv: tuple[str, ...], *, record: bool, env: dict[str, str], **how: Any) -> Any:
        self.runs += 1
        traces = self.folder / f"traces{self.runs}"
        traces.mkdir()
        whole = launcher.recorded_environment(
            self.root.environment(),
            library_dir=libs.lib_dir(),
            trace_dir=traces,
            target=split_target("gfx1030:36"),
            private=self.folder,
        )
        if not record:
            del whole["LD_PRELOAD"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        binds = (libs.lib_dir(), self.folder, CALLS.parent)
        process = enter.popen(argv, root=self.root.path, env=whole | env, binds=binds, **pipes, **how)
        return process, traces

    def run(self, *argv: str, record: bool = True, input: str = "", **env: str) -> Ran:
        process, traces = self.start(argv, record=record, env=env, stdin=subprocess.PIPE)
        with process:
            out, err = process.communicate(input.encode(), timeout=300)
        found = [read_trace(p) for p in find_traces([traces])]
        return Ran(process.returncode, out.decode(), err.decode(), found)


@pytest.fixture
def session(opened_root: Root, tmp_path: Path) -> Session:
    return Session(opened_root, tmp_path / "session")


def pairs(trace: Trace) -> list[tuple[str, str]]:
    return [(x.name.decode(), x.args.decode()) for x in trace.lookups]


def ufdb_keys(folder: Path) -> set[str]:
    return {line.split("=")[0] for p in folder.rglob("*.ufdb.txt") for line in p.read_text().splitlines()}


def test_cold_then_warm(session: Session) -> None:
    """Lookups are those of MIOpen's log, problems those of its find-db, modules those of its cache."""
    cold = session.run(*SMALL, MIOPEN_LOG_LEVEL="6")
    assert cold.code == 0, cold.err[-2000:]
    assert pairs(cold.host) == cold.asked()
    assert len(cold.host.lookups) >= 2
    answers = [m.group(1) == "Successfully loaded" for m in map(ANSWER.search, cold.err.splitlines()) if m]
    assert [x.hit for x in cold.host.lookups] == answers
    assert cold.host.notes == []

    keys = ufdb_keys(session.folder)
    assert {p.key for p in cold.host.problems} == keys and len(keys) == 3
    assert {p.direction for p in cold.host.problems} == {"F", "B", "W"}

    facts = cold.host.facts
    assert (facts.miopen_version, facts.device, facts.cu, facts.simulated) == ("3.4.0", "gfx1030", 36, True)
    assert facts.exe == DRIVER and facts.overrides == {}

    (cache,) = session.folder.rglob("*.ukdb")
    with sqlite3.connect(cache) as db:
        hashes = {h for (h,) in db.execute("SELECT kernel_hash FROM kern_db")}
    assert hashes <= {m.md5 for m in cold.host.modules}
    assert {m.target for m in cold.host.modules} == {"gfx1030"}
    roles = Counter(t.facts.role for t in cold.traces)
    assert roles["compiler"] == len(hashes) == sum(not h for h in answers)

    warm = session.run(*SMALL, MIOPEN_LOG_LEVEL="6")
    assert pairs(warm.host) == warm.asked()
    assert all(x.hit for x in warm.host.lookups)
    assert "compiler" not in {t.facts.role for t in warm.traces}
    assert hashes & {m.md5 for m in warm.host.modules if m.source == "memory"}
    assert len(warm.host.launches) > 10
    assert {"", "kernel"} & set(warm.host.launches.by_kernel()) == set()


def normal(text: str) -> str:
    """Addresses (and halves of them, which it prints uninitialised), times, names of temporary files
    and thread numbers are another every run, recorded or not."""
    text = re.sub(r"0x[0-9a-f]+", "0x", text)
    text = re.sub(r"\d+(\.\d+)?e-?\d+|\d+\.\d+", "N", text)
    text = re.sub(r"/\S*(interim|miopen|tmp)\S*", "T", text)
    return re.sub(r"-?\d{5,}|PID \d+|^\d+:", "T", text, flags=re.M)


@pytest.mark.parametrize(
    "switches",
    [{}, {"MIOPEN_ENABLE_LOGGING": "1"}, {"MIOPEN_ENABLE_LOGGING_CMD": "1"}, {"MIOPEN_LOG_LEVEL": "7"}],
)
def test_output_is_the_same(session: Session, switches: dict[str, str]) -> None:
    session.run(*SMALL, record=False)
    session.run(*SMALL, record=False)
    plain, recorded = session.run(*SMALL, record=False, **switches), session.run(*SMALL, **switches)
    assert (recorded.code, normal(recorded.out)) == (plain.code, normal(plain.out))
    assert normal(recorded.err) == normal(plain.err)
    assert len(recorded.host.problems) >= 6


def nchw(*lens: int) -> dict[str, Any]:
    return {"how": "4d", "type": 1, "lens": list(lens)}


def strided(how: str, type: int, lens: list[int], order: str, gap: int = 1) -> dict[str, Any]:
    """Strides for storage in `order`, a permutation of the dimensions' letters."""
    letters, strides, step = "NCHW" if len(lens) == 4 else "NCDHW", {}, gap
    for letter in reversed(order):
        strides[letter] = step
        step *= lens[letters.index(letter)]
    return {"how": how, "type": type, "lens": lens, "strides": [strides[c] for c in letters]}


def conv2(mode: int = 0, groups: int = 1, pad: int = 1) -> dict[str, Any]:
    return {"pads": [pad, pad], "strides": [1, 1], "dilations": [1, 1], "mode": mode, "groups": groups}


X, W, Y = [4, 16, 14, 12], [32, 16, 3, 3], [4, 32, 14, 12]
CASES: list[dict[str, Any]] = [
    *({"direction": d, "x": nchw(*X), "w": nchw(*W), "y": nchw(*Y), "conv": conv2()} for d in "FBW"),
    *(  # channels last, by strides
        {
            "direction": d,
            **{n: strided("4dEx", 0, lens, "NHWC") for n, lens in zip("xwy", (X, W, Y), strict=True)},
            "conv": conv2(),
        }
        for d in "FBW"
    ),
    *(  # channels last, by name, bfloat16
        {
            "direction": d,
            **{
                n: {"how": "layout", "type": 5, "layout": 1, "lens": v}
                for n, v in zip("xwy", (X, W, Y), strict=True)
            },
            "conv": conv2(),
        }
        for d in "FBW"
    ),
    *(  # transposed: x has the output's channels
        {
            "direction": d,
            "x": nchw(4, 32, 14, 12),
            "w": nchw(32, 16, 3, 3),
            "y": nchw(4, 16, 14, 12),
            "conv": conv2(1),
        }
        for d in "FBW"
    ),
    *(  # groups
        {"direction": d, "x": nchw(*X), "w": nchw(32, 4, 3, 3), "y": nchw(*Y), "conv": conv2(groups=4)}
        for d in "FBW"
    ),
    *(  # three dimensions, packed and channels last
        {
            "direction": d,
            **{
                n: strided("nd", 1, v, order)
                for n, v in zip("xwy", ([2, 8, 6, 7, 8], [4, 8, 3, 3, 3], [2, 4, 6, 7, 8]), strict=True)
            },
            "conv": {"pads": [1, 1, 1], "strides": [1, 1, 1], "dilations": [1, 1, 1]},
        }
        for d in "FBW"
        for order in ("NCDHW", "NDHWC")
    ),
    *(  # each tensor in a layout of its own, and with gaps
        {
            "direction": d,
            "x": strided("v2", 1, X, "NHWC"),
            "w": strided("nd", 1, W, "NCHW"),
            "y": strided("nd", 1, Y, "CHWN", gap=2),
            "conv": conv2(),
        }
        for d in "FBW"
    ),
    *(  # one channel, one pixel: every layout fits
        {
            "direction": d,
            "x": strided("nd", 1, [4, 1, 1, 1], "NHWC"),
            "w": strided("nd", 1, [1, 1, 1, 1], "NHWC"),
            "y": strided("nd", 1, [4, 1, 1, 1], "NHWC"),
            "conv": conv2(pad=0),
        }
        for d in "FBW"
    ),
    {  # integers: three types in the key
        "direction": "F",
        "x": nchw(*X) | {"type": 3},
        "w": nchw(*W) | {"type": 3},
        "y": nchw(*Y) | {"type": 2},
        "conv": conv2(),
    },
    {  # casts
        "direction": "F",
        "x": nchw(*X) | {"type": 0, "cast": 7},
        "w": nchw(*W) | {"type": 0, "cast": 7},
        "y": nchw(*Y) | {"type": 0, "cast": 8},
        "conv": conv2(),
    },
    {  # vectors of channels
        "direction": "F",
        "x": {"how": "layout", "type": 0, "layout": 3, "lens": X},
        "w": {"how": "layout", "type": 0, "layout": 3, "lens": W},
        "y": {"how": "layout", "type": 0, "layout": 3, "lens": Y},
        "conv": conv2(),
    },
    {  # the same with weights as CHWNc4
        "direction": "F",
        "x": {"how": "layout", "type": 0, "layout": 3, "lens": X},
        "w": {"how": "layout", "type": 0, "layout": 5, "lens": W},
        "y": {"how": "layout", "type": 0, "layout": 3, "lens": Y},
        "conv": conv2(),
    },
]


def test_problem_keys_are_miopens_own(session: Session) -> None:
    """Python, RTLD_LOCAL: recorded, unchanged, each key as MIOpen's log spells it."""
    lines = "".join(json.dumps(case) + "\n" for case in CASES)
    python = ("python3", str(CALLS))
    plain = session.run(*python, record=False, input=lines, MIOPEN_LOG_LEVEL="6")
    ran = session.run(*python, input=lines, MIOPEN_LOG_LEVEL="6")
    assert ran.code == 0, ran.err[-2000:]
    assert (ran.code, ran.out) == (plain.code, plain.out)
    own = [p.key for p in ran.host.problems]
    assert len(own) == len(CASES)
    asked = list(dict.fromkeys(m.group(1) for m in map(KEY.search, ran.err.splitlines()) if m))
    assert list(dict.fromkeys(own)) == asked
    assert ran.host.notes == []


def test_lookups_of_python_are_those_of_miopens_log(session: Session) -> None:
    """Python, RTLD_LOCAL: each lookup of the level-6 log, in order, misses as it compiles, then hits."""
    lines = "".join(json.dumps(case | {"compile": 8}) + "\n" for case in CASES[:15])
    for hit in (False, True):
        ran = session.run("python3", str(CALLS), input=lines, MIOPEN_LOG_LEVEL="6")
        assert (ran.code, set(ran.out.split())) == (0, {"0"}), ran.err[-2000:]
        answers = [m.group(1) == "Successfully loaded" for m in map(ANSWER.search, ran.err.splitlines()) if m]
        assert pairs(ran.host) == ran.asked()
        assert [x.hit for x in ran.host.lookups] == answers
        assert answers == [hit] * 3  # naive_conv.cpp for three types
        assert ran.host.notes == []


def test_killed_in_the_middle(session: Session) -> None:
    """Every lookup that the log shows before the kill is in the trace, but for the last one."""
    log = session.folder / "log"
    with log.open("wb") as file:
        process, traces = session.start(SMALL, record=True, env={"MIOPEN_LOG_LEVEL": "6"})
        with process:
            assert process.stderr is not None
            deadline = time.monotonic() + 120
            seen = 0
            for line in process.stderr:
                file.write(line)
                seen += b"[LoadBinary] Loading binary for" in line
                if seen == 3 or time.monotonic() > deadline:
                    break
            process.send_signal(signal.SIGKILL)
            file.write(process.stderr.read())
    assert process.returncode == -signal.SIGKILL
    asked = Ran(0, "", log.read_text(errors="replace"), []).asked()
    (host,) = (t for t in map(read_trace, find_traces([traces])) if t.facts.role == "host")
    assert len(asked) >= 3
    assert pairs(host)[: len(asked) - 1] == asked[:-1]
    assert len(host.lookups) <= len(asked)
    assert not host.notes


def test_loaded_objects_joined_by_md5_give_the_keys_that_were_looked_up(session: Session) -> None:
    """What a MIOpen with static SQLite leaves is a trace without look-ups: here they are taken out."""
    runs = [session.run(*SMALL), session.run(*SMALL)]  # cold: compiled, from files; warm: from memory
    ukdbs = list((session.folder / "miopen").rglob("*.ukdb"))
    assert ukdbs and {m.source for ran in runs for m in ran.host.modules} >= {"file", "memory"}
    for ran in runs:
        join = Join()
        assert join.add(replace(ran.host, lookups=[]))
        join.with_kdbs(ukdbs)
        looked_up = {(x.name, x.args) for x in ran.host.lookups}
        assert {key[:2] for keys in join.found.values() for key in keys} == looked_up
        assert join.ambiguous == 0
        assert len(join.found) + len(join.unknown) == len(join.objects)  # the rest is rocBLAS'
