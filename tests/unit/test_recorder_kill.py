"""kill -9 at 200 random moments: every event whose hook returned is in the trace."""

from __future__ import annotations

import mmap
import random
import subprocess
import time
from pathlib import Path

import pytest
from support.harming import Harm, harm, standins, traces
from support.standins import compile_standin

from kdbtool.shim.trace import Trace, find_traces, read_trace

__all__ = ["harm", "standins", "traces"]  # fixtures

THREADS = 3


@pytest.fixture(scope="session")
def acknowledging(harm: Harm) -> Path:
    """A program whose threads count, in memory that outlives it, each launch that has returned."""
    target = harm.folder / "acknowledge"
    compile_standin(target, "acknowledge.c", str(harm.hip), f"-Wl,-rpath,{harm.folder}")
    return target


def killed(
    harm: Harm, program: Path, traces: Path, after: float, pace: str, env: dict[str, str]
) -> list[int]:
    """Launches that had returned, per thread, `after` seconds after the first of them (or, negative, so
    long after the process was started)."""
    counters = traces.parent / "counters"
    counters.write_bytes(bytes(4096))
    whole = {"LD_PRELOAD": str(harm.standins.recorder), "KDBTOOL_TRACE_DIR": str(traces), **env}
    with counters.open("r+b") as file, mmap.mmap(file.fileno(), 4096) as shared:
        with subprocess.Popen([program, counters, str(THREADS), pace], env=whole) as process:
            give_up = time.monotonic() + 20
            while after >= 0 and not shared[0] and time.monotonic() < give_up:
                time.sleep(0)
            time.sleep(abs(after))
            process.kill()
        words = memoryview(shared).cast("Q")
        counts = [words[8 * i] for i in range(THREADS)]
        words.release()
    return counts


def seen(found: list[Trace]) -> list[list[int]]:
    """Per thread of the host, which names itself in the grid: what else the grid says, in order."""
    grids: list[list[int]] = [[] for _ in range(THREADS)]
    for trace in found:
        for x in trace.launches:
            grids[x.grid[1] - 1].append(x.grid[0])
    return grids


def turns(first: int, end: int) -> list[int]:
    return [1 + k % 5 for k in range(first, end)]


def test_every_launch_that_returned_is_there(
    harm: Harm, acknowledging: Path, traces: Path, tmp_path: Path
) -> None:
    """Seeded; a few of the kills fall into the making of the file."""
    moments = random.Random(4)
    with_file = 0
    for round_ in range(200):
        after = -moments.uniform(0.0005, 0.006) if round_ % 5 == 4 else moments.uniform(0, 0.003)
        folder = traces / str(round_)
        folder.mkdir()
        counts = killed(harm, acknowledging, folder, after, "slow", {})
        found = [read_trace(p) for p in find_traces([folder])]
        with_file += len(found)
        assert len(found) == 1 or not any(counts)
        for count, grids in zip(counts, seen(found), strict=True):
            assert count <= len(grids) <= count + 1, (round_, counts)
            assert grids == turns(0, len(grids))
        assert [t.notes for t in found] in ([], [[]])
    assert with_file > 100


def test_killed_while_the_trace_is_rotated(harm: Harm, acknowledging: Path, traces: Path) -> None:
    """Whatever parts are there: the launches of each thread are the last ones, in order, without a gap."""
    moments = random.Random(5)
    env = {"KDBTOOL_TRACE_LIMIT": f"{1 << 20}:rotate"}
    removed = 0
    for round_ in range(12):
        folder = traces / str(round_)
        folder.mkdir()
        counts = killed(harm, acknowledging, folder, moments.uniform(0.005, 0.03), "fast", env)
        found = sorted((read_trace(p) for p in find_traces([folder])), key=lambda t: t.facts.part)
        removed += found[0].facts.part > 0
        assert len(found) in range(1, 5)
        assert [t.facts.part for t in found] == [found[0].facts.part + i for i in range(len(found))]
        for trace in found:
            assert not [n for n in trace.notes if "removed" not in n and "could not" not in n]
        lost = sum(int(n.split()[0]) for t in found for n in t.notes if "could not" in n)
        for count, grids in zip(counts, seen(found), strict=True):
            ends = (count, count + 1)  # the last one may not have been acknowledged any more
            assert lost or any(grids == turns(end - len(grids), end) for end in ends), (round_, counts)
    assert removed > 3


def test_no_file_of_a_program_that_used_nothing(harm: Harm, traces: Path) -> None:
    ran = harm.same(traces, "nothing")
    assert (ran.out, list(traces.iterdir())) == ("nothing\n", [])
