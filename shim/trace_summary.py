"""Numbers about traces: what `kdbtool info` says of one process and of a folder of them.

Pure arithmetic on what the reader gives; compilers started are the traces of role `compiler`
(docs/trace-format.md), so only a folder knows their number.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kdbtool.shim.trace_model import Facts, Lookup, Trace

# Switches that make a device another one than it is: ROCr's, and MIOpen's own (src/handle.cpp,
# src/target_properties.cpp). Keys recorded with one may never be asked for on the device that they name.
DEVICE_OVERRIDES = (
    "HSA_OVERRIDE_GFX_VERSION",
    "MIOPEN_DEVICE_ARCH",
    "MIOPEN_DEVICE_CU",
    "MIOPEN_DEBUG_ENFORCE_DEVICE",
)
_ANSWERS = {True: "hit", False: "missed", None: "unanswered"}
DIRECTIONS = {"F": "forward", "B": "backward", "W": "weights"}


def device_overrides(overrides: Iterable[str]) -> tuple[str, ...]:
    """Those of the recorded switches that make the device another one, in a fixed order."""
    have = set(overrides)
    return tuple(name for name in DEVICE_OVERRIDES if name in have)


def flags(facts: Facts) -> list[str]:
    """`simulated`: no real device; `override`: the device was called something else than it is."""
    found = ["simulated"] if facts.simulated else []
    return [*found, "override"] if device_overrides(facts.overrides) else found


def summary(trace: Trace) -> dict[str, Any]:
    """One trace. Keys are counted once; a key that was found once counts as hit."""
    facts = trace.facts
    asked = Counter(_ANSWERS[lookup.hit] for lookup in trace.lookups)
    keys = Counter(_ANSWERS[hit] for hit in _distinct(trace.lookups).values())
    directions = Counter(problem.direction for problem in trace.problems)
    loaded = [module for module in trace.modules if module.result == 0]
    kernels = trace.launches.by_kernel()
    return {
        "log": facts.all.get("source.file") if facts.all.get("source") == "log" else None,
        "process": {
            "host": facts.host,
            "pid": facts.pid,
            "ppid": facts.ppid,
            "exe": facts.exe,
            "role": facts.role,
            "start": _time(facts.start_ns),
            "rank": facts.rank,
        },
        "miopen": {
            "version": facts.miopen_version,
            "path": facts.miopen_path,
            "build_id": facts.miopen_build_id,
        },
        "hip": {"version": facts.hip_version, "path": facts.hip_path},
        "device": facts.device,
        "cu": facts.cu,
        "simulated": facts.simulated,
        "overrides": dict(sorted(facts.overrides.items())),
        "flags": flags(facts),
        "databases": sorted({file for lookup in trace.lookups for file in lookup.databases}),
        "lookups": {"total": len(trace.lookups), **_counts(asked)},
        "keys": {"distinct": keys.total(), **_counts(keys)},
        "problems": {
            "calls": len(trace.problems),
            "distinct": len({problem.key for problem in trace.problems}),
            **{name: directions[letter] for letter, name in DIRECTIONS.items()},
        },
        "modules": {
            "loaded": len(loaded),
            "failed": len(trace.modules) - len(loaded),
            "distinct": len({module.md5 for module in loaded}),
            "bytes": sum(module.size for module in loaded),
        },
        "launches": {"total": sum(kernels.values()), "kernels": len(kernels)},
        "notes": list(trace.notes),
    }


@dataclass
class Totals:
    """A folder of traces; fed one at a time, so that no two need be in memory."""

    roles: Counter[str] = field(default_factory=Counter)
    devices: Counter[str] = field(default_factory=Counter)
    flags: Counter[str] = field(default_factory=Counter)
    lookups: Counter[str] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    modules: int = 0
    launches: int = 0
    noted: int = 0
    _keys: dict[tuple[bytes, bytes], bool | None] = field(default_factory=dict)
    _problems: set[str] = field(default_factory=set)

    def add(self, trace: Trace, found: dict[str, Any]) -> None:
        """One more trace and its `summary`."""
        self.roles[trace.facts.role] += 1
        if trace.facts.device:
            cu = f":{trace.facts.cu}" if trace.facts.cu else ""
            self.devices[trace.facts.device + cu] += 1
        self.flags.update(found["flags"])
        self.lookups.update({k: v for k, v in found["lookups"].items() if k != "total"})
        self.problems.update({k: v for k, v in found["problems"].items() if k != "distinct"})
        self.modules += found["modules"]["loaded"]
        self.launches += found["launches"]["total"]
        self.noted += bool(trace.notes)
        self._problems.update(problem.key for problem in trace.problems)
        for key, hit in _distinct(trace.lookups).items():
            self._keys[key] = _better(self._keys.get(key), hit)

    def json(self) -> dict[str, Any]:
        """As `info --json` shows it."""
        keys = Counter(_ANSWERS[hit] for hit in self._keys.values())
        return {
            "processes": self.roles.total(),
            "roles": dict(sorted(self.roles.items())),
            "compilers_started": self.roles["compiler"],
            "devices": dict(sorted(self.devices.items())),
            "flags": dict(sorted(self.flags.items())),
            "lookups": {"total": self.lookups.total(), **_counts(self.lookups)},
            "keys": {"distinct": keys.total(), **_counts(keys)},
            "problems": {
                "calls": self.problems["calls"],
                "distinct": len(self._problems),
                **{name: self.problems[name] for name in DIRECTIONS.values()},
            },
            "modules": self.modules,
            "launches": self.launches,
            "traces_with_notes": self.noted,
        }


def mixed_devices(facts: Iterable[Facts]) -> Iterator[str]:
    """A warning per architecture that was recorded both on devices called so and on true ones."""
    found: dict[str, tuple[set[str], set[bool]]] = {}
    for one in facts:
        arch = (one.device or "").partition(":")[0]
        overridden = device_overrides(one.overrides)
        names, kinds = found.setdefault(arch, (set(), set()))
        names.update(overridden)
        kinds.add(bool(overridden))
    for arch, (names, kinds) in sorted(found.items()):
        if arch and len(kinds) == 2:
            switches = ", ".join(name for name in DEVICE_OVERRIDES if name in names)
            yield f"keys of true {arch} devices and of ones made {arch} by {switches} are merged"


def _distinct(lookups: Iterable[Lookup]) -> dict[tuple[bytes, bytes], bool | None]:
    found: dict[tuple[bytes, bytes], bool | None] = {}
    for lookup in lookups:
        key = (lookup.name, lookup.args)
        found[key] = _better(found.get(key), lookup.hit)
    return found


def _better(one: bool | None, other: bool | None) -> bool | None:
    """A hit, else a miss, else no answer."""
    return True if one or other else False if False in (one, other) else None


def _counts(counter: Counter[str]) -> dict[str, int]:
    return {answer: counter[answer] for answer in _ANSWERS.values()}


def _time(ns: int) -> str | None:
    """UTC, to the second; None for a time that no calendar has."""
    try:
        moment = datetime.datetime.fromtimestamp(ns // 1_000_000_000, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ") if ns else None
