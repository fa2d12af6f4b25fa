"""Keys of the objects that a process loaded, where its look-ups could not be seen.

A libMIOpen that holds SQLite statically hides its statements from the recorder, not what it loads. The
MD5 of a loaded object is the `kernel_hash` of its row: MIOpen stores the MD5 of the very bytes that it
hands to HIP, an offload bundle whole, and refuses a row whose object has another one
(src/include/miopen/kern_db.hpp, 5.0 to 7.2). So a trace without a look-up is joined with the kernel
databases that its objects may have come from, or went into. An object that several keys of a database
share gives all of them: which one was asked for, nobody can tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kdbtool.errors import KdbtoolError, counted, printable
from kdbtool.inputs import arch_of, bare_arch, open_input

if TYPE_CHECKING:
    from kdbtool.shim.trace_model import Module, Trace

Loaded = tuple[str, str]  # bare arch of the device ("" not known), MD5
Process = tuple[str, int, int]  # host, pid, start
Candidate = tuple[bytes, bytes, str]  # name, args, arch


@dataclass
class Join:
    """Objects of traces without look-ups and, after `with_kdbs`, the keys that they may have had."""

    objects: dict[Loaded, Module] = field(default_factory=dict)  # each once, in the order of loading
    without_md5: int = 0  # loads whose bytes were not seen
    processes: int = 0  # that have no look-up and loaded something
    found: dict[Loaded, dict[Candidate, None]] = field(default_factory=dict)
    _asked: set[Process] = field(default_factory=set)
    _loads: dict[Process, dict[Loaded, Module]] = field(default_factory=dict)
    _without: Counter[Process] = field(default_factory=Counter)

    def add(self, trace: Trace) -> bool:
        """Remember what a trace loaded; False for one with look-ups, or without a readable load.

        Parts of one process (a trace that was rotated) count as one: a look-up in any will do.
        """
        process = (trace.facts.host, trace.facts.pid, trace.facts.start_ns)
        if trace.lookups:
            self._asked.add(process)
            return False
        arch = bare_arch(trace.facts.device or "")
        loads = self._loads.setdefault(process, {})
        for module in trace.modules:
            if module.result == 0 and module.md5:
                loads.setdefault((bare_arch(module.target or "") or arch, module.md5), module)
            elif module.result == 0:
                self._without[process] += 1
        return bool(loads)

    def _sum_up(self) -> None:
        for process, loads in self._loads.items():
            if process not in self._asked:
                self.without_md5 += self._without[process]
                self.processes += bool(loads or self._without[process])
                for of, module in loads.items():
                    self.objects.setdefault(of, module)

    def with_kdbs(self, paths: Iterable[Path]) -> None:
        """Look for every object in each kdb or ukdb; only the keys that match are kept."""
        self._sum_up()
        wanted: dict[str, list[str]] = {}
        for arch, md5 in self.objects:
            wanted.setdefault(md5, []).append(arch)
        for path in paths:
            with open_input(path) as source:
                if source.kdb is None:
                    raise KdbtoolError(
                        "not a kernel database",
                        where=path,
                        why=f"it is a {source.kind.value}",
                        hint="--from-kdb takes .kdb and .ukdb files",
                    )
                for row in source.kdb:
                    if row.hash not in wanted:
                        continue
                    of = source.archs[0] if source.archs else arch_of(row.args)
                    for arch in wanted[row.hash]:
                        if not of or not arch or of == arch:
                            key = (row.name, row.args, of or arch)
                            self.found.setdefault((arch, row.hash), {})[key] = None

    @property
    def ambiguous(self) -> int:
        """Objects that several keys share."""
        return sum(len(keys) > 1 for keys in self.found.values())

    @property
    def unknown(self) -> list[tuple[str, Module]]:
        """(arch, module) of each object that no database has: other libraries' kernels, among them."""
        return [(of[0], module) for of, module in self.objects.items() if of not in self.found]

    def notes(self) -> list[str]:
        """What the join did, a line each."""
        of = f"{len(self.objects)} loaded objects of {counted(self.processes, 'process')}"
        lines = [f"{len(self.found)} of {of} joined by MD5"]
        if self.ambiguous:
            lines.append(f"{self.ambiguous} objects have several keys, all are taken")
        if self.unknown:
            lines.append(f"{len(self.unknown)} loaded objects are in none of the databases (-v lists them)")
        if self.without_md5:
            lines.append(f"{self.without_md5} loads have no MD5")
        return lines

    def as_json(self) -> dict[str, object]:
        """The same as one JSON object."""
        return {
            "processes": self.processes,
            "objects": len(self.objects),
            "joined": len(self.found),
            "ambiguous": self.ambiguous,
            "without_md5": self.without_md5,
            "unknown": [
                {"arch": arch or None, "md5": m.md5, "bytes": m.size, "source": m.source}
                for arch, m in self.unknown
            ],
        }

    def listed(self) -> list[str]:
        """A line for each object that is in no database."""
        return [
            printable(f"not in a database: {m.md5}, {m.size} bytes, from {m.source}") for _, m in self.unknown
        ]
