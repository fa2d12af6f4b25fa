"""Ties samples of the clocks to ROCTx ranges and to kernels, by time alone.

A sample counts for a span if it was taken in it. A span shorter than the interval may have none: then
the nearest one before it counts, if that is no older than `STALE_NS`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kdbtool.shim.trace_model import Range, Sample, Trace
from kdbtool.shim.trace_regions import Regions

STALE_NS = 2_000_000_000


@dataclass(frozen=True)
class Span:
    """A ROCTx range that was opened and closed."""

    name: str
    thread: int
    begin_ns: int
    end_ns: int


def spans(ranges: Sequence[Range]) -> list[Span]:
    """Push with its pop (of one thread, nested), start with its stop (by id), in order of their ends.

    What was never closed, or closed and never opened, is left out.
    """
    closed = Regions(ranges).ends.items()
    return [Span(ranges[n].name, ranges[n].thread, ranges[n].time_ns, end_ns) for n, end_ns in closed]


class Clocks:
    """The samples of one card, in order of time."""

    def __init__(self, samples: Iterable[Sample], device: int) -> None:
        self.samples: Sequence[Sample] = sorted(
            (s for s in samples if s.device == device), key=lambda s: s.time_ns
        )
        self._times = [s.time_ns for s in self.samples]

    def at(self, time_ns: int) -> Sample | None:
        """The last sample before or at a moment; None where it is older than STALE_NS."""
        i = bisect_right(self._times, time_ns)
        return self.samples[i - 1] if i and time_ns - self._times[i - 1] <= STALE_NS else None

    def during(self, begin_ns: int, end_ns: int) -> list[Sample]:
        """Those of [begin, end]; if there are none, the one before."""
        inside = self.samples[bisect_left(self._times, begin_ns) : bisect_right(self._times, end_ns)]
        before = self.at(begin_ns)
        return list(inside) or ([before] if before else [])


def sclk_by_region(trace: Trace, clocks: Clocks) -> dict[str, float]:
    """Mean MHz of the samples during each region; a region without one is left out."""
    values: dict[str, list[float]] = {}
    for span in spans(trace.ranges):
        known = [s.sclk_mhz for s in clocks.during(span.begin_ns, span.end_ns) if s.sclk_mhz is not None]
        values.setdefault(span.name, []).extend(known)
    return {name: sum(known) / len(known) for name, known in values.items() if known}


def sclk_by_kernel(trace: Trace, clocks: Clocks) -> dict[str, float]:
    """Mean MHz over each kernel's launches, each with the sample at its launch."""
    sums: dict[str, tuple[float, int]] = {}
    for launch in trace.launches:
        sample = None if launch.captured else clocks.at(launch.time_ns)
        if sample and sample.sclk_mhz is not None:
            total, count = sums.get(launch.kernel, (0.0, 0))
            sums[launch.kernel] = (total + sample.sclk_mhz, count + 1)
    return {name: total / count for name, (total, count) in sums.items()}
