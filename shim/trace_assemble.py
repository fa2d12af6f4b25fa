"""From the records of a trace to what they mean: dictionaries, facts, look-ups, problems, launches.

A record that names another one which is lost is counted. The rest of the events: trace_events.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from kdbtool.shim._trace import ffi, lib
from kdbtool.shim.trace_file import Raw, Reader
from kdbtool.shim.trace_model import Clock, Facts, Launches, Lookup, Module, Problem, Shape

_ROLES = {
    lib.KDBT_ROLE_HOST: "host",
    lib.KDBT_ROLE_COMPILER: "compiler",
    lib.KDBT_ROLE_FRONTEND: "frontend",
    lib.KDBT_ROLE_LINKER: "linker",
    lib.KDBT_ROLE_BUNDLER: "bundler",
    lib.KDBT_ROLE_WRAPPER: "wrapper",
    lib.KDBT_ROLE_SAMPLER: "sampler",
}
_SOURCES = {lib.KDBT_FROM_MEMORY: "memory", lib.KDBT_FROM_FILE: "file", lib.KDBT_FROM_FATBIN: "fatbin"}
_FORMS = {
    lib.KDBT_LAUNCH_MODULE: "module",
    lib.KDBT_LAUNCH_EXT: "ext",
    lib.KDBT_LAUNCH_COOPERATIVE: "cooperative",
    lib.KDBT_LAUNCH_HOST: "host",
}
_UNKEYED = "of a convolution whose descriptors were set out of sight"
_REMOVED = "in earlier parts that were removed to keep within the size limit"
STOPPED = "recording stopped"  # a note begins with it where the trace ends before its process
_DEEPBOUND = "loaded with RTLD_DEEPBIND or into another namespace: without --audit their calls go unseen"
ROW, DONE = 100, 101  # SQLite's results of a step


@dataclass(slots=True)
class _Statement:
    key: tuple[bytes, bytes]  # the one object of these bytes: told apart by identity
    database: str
    thread: int
    ticks: int
    row: bool = False
    last: int | None = None

    def outcome(self) -> bool | None:
        """A row, no row, or no answer (never stepped, or an error)."""
        if self.row:
            return True
        return False if self.last == DONE else None


class Assembler:
    """From records to what they mean. Dictionaries first: another thread may have written them."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.records = {
            thread: [r for _, block in sorted(blocks, key=lambda b: b[0]) for r in block]
            for thread, blocks in sorted(reader.threads.items())
        }
        self.facts: dict[str, str] = {}
        self.texts: dict[int, str] = {}
        self.keys: dict[int, tuple[bytes, bytes]] = {}
        self.directions: dict[int, str] = {}
        self.modules: dict[int, Module] = {}
        self.kernels: dict[int, tuple[str, int]] = {}
        self.unresolved = self.unkeyed = 0
        self.clock = self._clock()

    def all(self, *kinds: int) -> Iterator[Raw]:
        for records in self.records.values():
            yield from (r for r in records if r.type in kinds)

    def _clock(self) -> Clock:
        header = self.reader.header
        points = [(header.load_ticks, header.load_ns), (header.start_ticks, header.start_ns)]
        points += [(r.ticks, self.reader.view("clock", r.at).ns) for r in self.all(lib.KDBT_CLOCK)]
        return Clock(header.tick_shift, header.start_realtime_ns - header.start_ns, points)

    def text(self, r: Raw, skip: int = 0) -> str:
        return self.reader.take(r.at + skip, r.bytes - skip).decode("utf-8", "surrogateescape")

    def pair(self, r: Raw) -> tuple[bytes, bytes] | None:
        pair = self.reader.view("pair", r.at)
        at, name, value = r.at + ffi.sizeof("struct kdbt_pair"), int(pair.name_bytes), int(pair.value_bytes)
        if name + value != r.bytes - ffi.sizeof("struct kdbt_pair"):
            self.reader.damaged += 1
            return None
        return self.reader.take(at, name), self.reader.take(at + name, value)

    def named(self, id: int) -> str:
        """A text by its id; 0 is none."""
        if id and id not in self.texts:
            self.unresolved += 1
        return self.texts.get(id, "")

    def facts_alone(self) -> Facts:
        """`facts_of` a trace whose dictionaries nobody wants."""
        self._read_facts()
        return self.facts_of()

    def _read_facts(self) -> None:
        for r in self.all(lib.KDBT_FACT):
            if pair := self.pair(r):
                name, value = (part.decode("utf-8", "surrogateescape") for part in pair)
                self.facts.setdefault(name, value)

    def statement_keys(self) -> list[tuple[bytes, bytes]]:
        """The keys that statements name, by time; a key that is lost is counted and left out."""
        self._read_keys()
        found = []
        for r in self.all(lib.KDBT_STATEMENT):
            key = self.keys.get(self.reader.view("statement", r.at).key)
            if key is None:
                self.unresolved += 1
            else:
                found.append((r.ticks, key))
        found.sort(key=lambda pair: pair[0])
        return [key for _, key in found]

    def problem_keys(self) -> frozenset[str]:
        """The keys of all problems in the dictionary."""
        return frozenset(self.text(r) for r in self.all(lib.KDBT_PROBLEM_KEY))

    def _read_keys(self) -> None:
        same: dict[tuple[bytes, bytes], tuple[bytes, bytes]] = {}
        for r in self.all(lib.KDBT_KEY):
            if pair := self.pair(r):
                self.keys[r.id] = same.setdefault(pair, pair)

    def dictionaries(self) -> None:
        texts = (lib.KDBT_DATABASE, lib.KDBT_API, lib.KDBT_PROBLEM_KEY, lib.KDBT_DETAIL, lib.KDBT_RANGE_NAME)
        for r in self.all(*texts):
            self.texts[r.id] = self.text(r)
        self._read_keys()
        self._read_facts()
        for r in self.all(lib.KDBT_MODULE):
            m = self.reader.view("module", r.at)
            self.modules[r.id] = Module(
                md5=bytes(m.md5).hex() if any(m.md5) else "",
                size=int(m.size),
                source=_SOURCES.get(m.source & ~lib.KDBT_FROM_BEFORE, "unknown"),
                target=self.text(r, ffi.sizeof("struct kdbt_module")) or None,
                result=int(m.result),
                thread=r.thread,
                time_ns=self.clock.unix_ns(r.ticks),
                duration_ns=self.clock.span(m.duration),
                before=bool(m.source & lib.KDBT_FROM_BEFORE),
            )
        for r in self.all(lib.KDBT_KERNEL):
            kernel = self.reader.view("kernel", r.at)
            self.kernels[r.id] = (self.text(r, ffi.sizeof("struct kdbt_kernel")), int(kernel.module))

    def lookups(self) -> list[Lookup]:
        """A lookup is the consecutive statements of one key on one thread, until a row ends it or a
        database that has answered is asked again."""
        statements: dict[int, _Statement] = {}
        for r in self.all(lib.KDBT_STATEMENT):
            s = self.reader.view("statement", r.at)
            if s.key not in self.keys:
                self.unresolved += 1
                continue
            database = self.named(s.database)
            statements[r.id] = _Statement(self.keys[s.key], database, r.thread, r.ticks)
        for r in self.all(lib.KDBT_STEP):
            step = self.reader.view("step", r.at)
            if asked := statements.get(step.statement):
                asked.row |= step.result == ROW
                asked.last = int(step.result)
            else:
                self.unresolved += 1
        found: list[Lookup] = []
        group: list[_Statement] = []
        answered: set[str] = set()  # databases that have none for this group's key
        for s in statements.values():  # by thread, in order: as `all` gave them
            if group:
                last = group[-1]
                other = s.thread != last.thread or s.key is not last.key
                if other or last.outcome() or s.database in answered:
                    found.append(self._lookup(group))
                    group, answered = [], set()
            group.append(s)
            if s.outcome() is False:
                answered.add(s.database)
        if group:
            found.append(self._lookup(group))
        return found

    def _lookup(self, group: list[_Statement]) -> Lookup:
        first = group[0]
        files = tuple(dict.fromkeys(g.database for g in group if g.database))
        time_ns = self.clock.unix_ns(first.ticks)
        return Lookup(*first.key, group[-1].outcome(), files, first.thread, time_ns)

    def problems(self) -> list[Problem]:
        found: list[Problem] = []
        for r in self.all(lib.KDBT_PROBLEM):
            p = self.reader.view("problem", r.at)
            key = self.named(p.key)
            if not key:
                self.unkeyed += not p.key
                continue
            if p.key not in self.directions:
                parts = reversed(key.split("-"))
                self.directions[p.key] = next((part[0] for part in parts if part[:1] in ("F", "B", "W")), "")
            found.append(
                Problem(
                    key=key,
                    api=self.named(p.api),
                    direction=self.directions[p.key],
                    algorithm=int(p.algorithm) if p.algorithm >= 0 else None,
                    solution=int(p.solution) or None,
                    workspace=int(p.workspace),
                    result=int(p.result),
                    thread=r.thread,
                    time_ns=self.clock.unix_ns(r.ticks),
                    duration_ns=self.clock.span(p.duration),
                )
            )
        return found

    def launches(self) -> Launches:
        shapes: dict[int, Shape] = {}
        for r in self.all(lib.KDBT_SHAPE):
            s = self.reader.view("shape", r.at)
            name, module = self.kernels.get(s.kernel, ("", 0))
            self.unresolved += s.kernel not in self.kernels or (module != 0 and module not in self.modules)
            gx, gy, gz = s.grid
            bx, by, bz = s.block
            if s.form & ~lib.KDBT_LAUNCH_CAPTURED == lib.KDBT_LAUNCH_EXT:  # that call counts work-items
                gx, gy, gz = (-(-g // max(b, 1)) for g, b in ((gx, bx), (gy, by), (gz, bz)))
            place = (int(s.lds), int(s.device), int(s.stream))
            captured = bool(s.form & lib.KDBT_LAUNCH_CAPTURED)
            form = _FORMS.get(s.form & ~lib.KDBT_LAUNCH_CAPTURED, "unknown")
            blocks = (gx, gy, gz), (bx, by, bz)
            shapes[r.id] = (name, self.modules.get(module), *blocks, *place, form, captured)
        runs = []
        for r in self.all(lib.KDBT_LAUNCHES):
            whole = r.bytes - r.bytes % ffi.sizeof("struct kdbt_launch")
            run = self.reader.data[r.at : r.at + whole].cast("I")  # no copy: they are most of a trace
            runs.append((r.thread, r.ticks, run))
        found = Launches(shapes, runs, self.clock)
        self.unresolved += sum(n for shape, n in found.by_shape().items() if shape not in shapes)
        return found

    def facts_of(self) -> Facts:
        header, get = self.reader.header, self.facts.get
        overrides = {k[4:]: v for k, v in self.facts.items() if k.startswith("env.")}
        device = next((k for k in sorted(self.facts) if k.startswith("device.") and k.count(".") == 1), "")
        return Facts(
            pid=int(header.pid),
            ppid=int(header.ppid),
            host=ffi.string(header.host).decode("utf-8", "surrogateescape"),
            exe=ffi.string(header.exe).decode("utf-8", "surrogateescape"),
            role=_ROLES.get(header.role, "unknown"),
            start_ns=int(header.start_realtime_ns),
            miopen_version=get("miopen.version"),
            miopen_path=get("miopen.path"),
            miopen_build_id=get("miopen.build_id"),
            hip_version=get("hip.version"),
            hip_path=get("hip.path"),
            device=get(device),
            cu=_number(get(f"{device}.cu")),
            simulated=get("simulated") == "1",
            overrides=overrides,
            rank=_number(get("rank")),
            all=dict(self.facts),
            ranks=_number(get("ranks")),
            rank_local=_number(get("rank.local")),
            part=int(header.part),
            unselected=self.reader.unselected,
        )

    def notes(self) -> list[str]:
        header = self.reader.header
        counted = [
            (self.reader.truncated, "truncated record", "truncated records"),
            (self.reader.damaged, "damaged record", "damaged records"),
            (self.reader.unknown, "record of an unknown type", "records of an unknown type"),
            (self.unresolved, "record that names a lost one", "records that name a lost one"),
            (self.unkeyed, f"call {_UNKEYED}", f"calls {_UNKEYED}"),
            (int(header.dropped), "event that could not be recorded", "events that could not be recorded"),
            (
                self.reader.unselected,
                "event that the selection left out",
                "events that the selection left out",
            ),
            (int(header.removed), f"launch {_REMOVED}", f"launches {_REMOVED}"),
            (int(header.deepbound), f"library {_DEEPBOUND}", f"libraries {_DEEPBOUND}"),
        ]
        notes = [f"{n} {one if n == 1 else many}" for n, one, many in counted if n]
        if self.reader.size < header.file_bytes:
            notes.append(f"cut: {self.reader.size} of {header.file_bytes} bytes are here")
        if header.stop_errno == lib.KDBT_STOP_LIMIT:
            notes.append(f"{STOPPED}: size limit")
        elif header.stop_errno:
            known = header.stop_errno < 4096  # no checksum covers this field
            reason = os.strerror(header.stop_errno).lower() if known else f"error {header.stop_errno}"
            notes.append(f"{STOPPED}: {reason}")
        return notes


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None
