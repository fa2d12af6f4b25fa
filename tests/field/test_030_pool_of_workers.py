"""Field case 30 (memray#489, BitBake#33): workers by fork, exec, `_exit`, pids that come again."""

from __future__ import annotations

import os
from pathlib import Path

from support.standins import Standins, same, standins, traces

__all__ = ["standins", "traces"]  # fixtures


def test_pool_of_workers(standins: Standins, traces: Path) -> None:
    """fork, _exit and exec: each process has a file of its own, whole."""
    ran = same(standins, traces, "linked", "pool", 5)
    assert ran.out == "7\n" * 5 + "42 3\n"
    assert len(ran.traces) == 7  # the parent twice: before and after exec
    assert len({t.path.name for t in ran.traces}) == 7
    parent = ran.traces[0].facts.ppid
    assert sum(t.facts.ppid == os.getpid() or t.facts.ppid == parent for t in ran.traces) >= 2
    for trace in ran.traces:
        assert [(x.hit) for x in trace.lookups] == [True, False]
        assert (len(trace.problems), len(trace.launches), trace.notes) == (1, 3, [])
