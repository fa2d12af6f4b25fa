"""Numbers about traces for `kdbtool trace info`: what `trace_summary` leaves out, and what only several
traces tell together: parts of one process, compilers and their starters, ranks that are missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from kdbtool.shim import ranks
from kdbtool.shim.compiles import children, compiled
from kdbtool.shim.trace_model import Facts, Trace
from kdbtool.shim.trace_regions import Regions
from kdbtool.shim.trace_summary import Totals, summary


def details(trace: Trace, top: int) -> dict[str, Any]:
    """`summary` and more; `top`: of how many kernels, functions and ranges the numbers are told."""
    found = summary(trace)
    facts = trace.facts
    closed = Regions(trace.ranges).ends
    opened = [one for one in trace.ranges if one.op in ("push", "start")]
    marks = sum(one.op == "mark" for one in trace.ranges)
    outer = [one for one in trace.compiles if not one.nested]
    failed = sum(bool(one.result or one.exit_code) for one in outer)
    known = [one.kernels for one in trace.graphs if one.kernels is not None]
    last = _last_ns(trace)
    process = found["process"] | {
        "ranks": facts.ranks, "rank_local": facts.rank_local, "part": facts.part,
        "seconds": None if last is None else round(max(0, last - facts.start_ns) / 1e9, 6),
    }  # fmt: skip
    return found | {
        "path": str(trace.path),
        "process": process,
        "selection": facts.all.get("select"),
        "unselected": facts.unselected,
        "calls": {
            "total": len(trace.calls),
            "failed": sum(one.result != 0 for one in trace.calls),
            "top": Counter(one.api for one in trace.calls).most_common(top),
        },
        "compiles": {
            "sources": compiled(trace),
            "total": len(outer),
            "failed": failed,
            "seconds": round(sum(one.duration_ns for one in outer) / 1e9, 6),
        },
        "graphs": {
            "launches": len(trace.graphs),
            "kernels": sum(known),
            "uncounted": len(trace.graphs) - len(known),
        },
        "ranges": {
            "total": len(opened),
            "open": len(opened) - len(closed),
            "marks": marks,
            "top": Counter(one.name for one in opened).most_common(top),
        },
        "samples": {"total": len(trace.samples), "devices": len({one.device for one in trace.samples})},
        "gates": len(trace.gates),
        "launches": found["launches"] | {"top": Counter(trace.launches.by_kernel()).most_common(top)},
    }


def _last_ns(trace: Trace) -> int | None:
    """When the last event ended."""
    moments: tuple[list[Any], ...] = (trace.lookups, trace.ranges, trace.samples, trace.graphs)
    lasting: tuple[list[Any], ...] = (trace.problems, trace.calls, trace.compiles)
    ends = [one.time_ns for events in moments for one in events]
    ends += [one.time_ns + one.duration_ns for events in lasting for one in events]
    last = trace.launches.last_ns()
    return max(ends if last is None else [*ends, last], default=None)


@dataclass
class Run:
    """All traces of a run; fed one at a time, of each little is kept."""

    top: int
    totals: Totals = field(default_factory=Totals)
    kernels: Counter[str] = field(default_factory=Counter)
    sums: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    _traces: list[Trace] = field(default_factory=list)

    def add(self, trace: Trace) -> dict[str, Any]:
        """One more; its `details`."""
        found = details(trace, self.top)
        self.totals.add(trace, found)
        self.kernels.update(trace.launches.by_kernel())
        for name in ("calls", "ranges", "samples"):
            self.sums[name] += found[name]["total"]
        self.sums["graphs"] += found["graphs"]["launches"]
        self.sums["sources"] += found["compiles"]["sources"]
        self.sums["unselected"] += trace.facts.unselected
        if trace.facts.role in ("host", "compiler"):  # a driver waits for its frontend and linker
            self.seconds += found["compiles"]["seconds"]
        own = trace.compiles[:1] if trace.facts.role != "host" else []
        self._traces.append(Trace(trace.path, replace(trace.facts, all={}), compiles=own))
        return found

    def json(self) -> dict[str, Any]:
        """The sum."""
        facts = [trace.facts for trace in self._traces]
        joined = children(self._traces)
        compilers = sum(one.role == "compiler" for one in facts)
        return self.totals.json() | {
            "calls": self.sums["calls"],
            "compiles": {"sources": self.sums["sources"], "seconds": round(self.seconds, 6)},
            "graphs": self.sums["graphs"],
            "ranges": self.sums["ranges"],
            "samples": self.sums["samples"],
            "unselected": self.sums["unselected"],
            "kernels": self.kernels.most_common(self.top),
            "ranks": sorted({one.rank for one in facts if one.rank is not None}),
            "missing_ranks": [{"ranks": n, "missing": gaps} for n, gaps in ranks.missing(facts).items()],
            "compilers": [{"path": str(p), "compilers": len(some)} for p, some in sorted(joined.items())],
            "compilers_of_nobody": compilers - sum(map(len, joined.values())),
            "parts": [
                {
                    "host": some[0].facts.host,
                    "pid": some[0].facts.pid,
                    "paths": [str(one.path) for one in some],
                }
                for some in parts(self._traces)
            ],
            "notes": self.notes(),
        }

    def notes(self) -> list[str]:
        """What is missing, in words."""
        facts = [trace.facts for trace in self._traces]
        found = ranks.told(ranks.missing(facts))
        if self.sums["graphs"]:
            found.append(f"{self.sums['graphs']} launches of graphs: their kernels are not seen")
        return found


def parts(traces: Iterable[Trace]) -> list[list[Trace]]:
    """Traces that are parts of one process' trace, in their order; a process with one is not in it. Pids
    are given again: a number that does not follow the last one begins another process."""
    groups: list[list[Trace]] = []
    last: dict[tuple[str, int, str], list[Trace]] = {}
    for trace in sorted(traces, key=lambda one: (one.facts.start_ns, one.facts.part, str(one.path))):
        key = trace.facts.host, trace.facts.pid, trace.facts.role
        group = last.get(key)
        if group is None or trace.facts.part != group[-1].facts.part + 1:
            group = last[key] = []
            groups.append(group)
        group.append(trace)
    return [group for group in groups if len(group) > 1]


def named(facts: Facts) -> str:
    """A process in few words."""
    rank = "" if facts.rank is None else f"rank {facts.rank}, "
    part = f", part {facts.part}" if facts.part else ""
    return f"{rank}{facts.exe} {facts.pid} on {facts.host} ({facts.role}{part})"
