"""How many workers to start: what the user, the build system and the machine allow, the smallest of them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path


def usable(asked: int | None = None, environment: Mapping[str, str] | None = None) -> int:
    """`asked` (--jobs) if given; else usable cores, bounded by DEB_BUILD_OPTIONS' parallel=N. At least 1."""
    if asked is not None:
        return asked
    environment = os.environ if environment is None else environment
    limits = [len(os.sched_getaffinity(0))]
    match = re.search(r"(?:^|\s)parallel=(\d{1,6})(?:\s|$)", environment.get("DEB_BUILD_OPTIONS", ""))
    if match:
        limits.append(int(match[1]))
    quota = cgroup_quota()
    if quota is not None:
        limits.append(quota)
    return max(1, min(limits))


def cgroup_quota(base: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int | None:
    """Whole CPUs that this process may use by its cgroup (version 2, or a container's 1); None: no limit."""
    found: list[float] = []
    try:
        line = next(line for line in own.read_text().splitlines() if line.startswith("0::"))
        folder = base / line[3:].lstrip("/")
    except (OSError, StopIteration):
        folder = base
    while True:
        try:
            quota, period = (folder / "cpu.max").read_text().split()
            if quota != "max":
                found.append(int(quota) / int(period))
        except (OSError, ValueError, ZeroDivisionError):
            pass
        if folder == base or base not in folder.parents:
            break
        folder = folder.parent
    try:
        old = int((base / "cpu/cpu.cfs_quota_us").read_text())
        if old > 0:
            found.append(old / int((base / "cpu/cpu.cfs_period_us").read_text()))
    except (OSError, ValueError, ZeroDivisionError):
        pass
    return max(1, int(min(found))) if found else None
