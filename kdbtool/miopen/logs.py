"""A log of MIOpen, read as a trace: look-ups, problems, and what it tells of the process.

`read_log` takes what `MIOPEN_LOG_LEVEL=6` and `MIOPEN_ENABLE_LOGGING_CMD=1` write (docs/logs.md), of
any version, behind any prefix, plain or compressed. A log has no clock and no ids: `time_ns` is the
line's number, `thread` a number per stream that the log tells apart. Lines that are doubtful are in
`Trace.notes` with their number; none becomes a key.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kdbtool.errors import KdbtoolError, printable
from kdbtool.kdb.names import parse_name
from kdbtool.miopen.driver import Command, parse_command
from kdbtool.miopen.logs_lookups import Lookups
from kdbtool.miopen.logs_statement import LOAD, SELECT, Widest, find_head, parse
from kdbtool.miopen.logs_text import Line, read_lines
from kdbtool.miopen.problems import is_problem
from kdbtool.shim.trace_model import Facts, Lookup, Problem, Trace

MAX_NOTES = 1000
MAX_PIECES = 256  # lines that one statement can be broken over
MAX_PARTS = 64  # lines of MIOpen's that others' writing has joined into one
MAX_STREAMS = 4096
_TAINT = 60  # lines after a broken statement in which its rest may turn up within another
_LEVELS = b"Fatal|Error|Warning|Info2|Info|Trace|Command|MIOpenDriver"
# src/logger.cpp `LoggingPrefix`: the thread (MIOPEN_ENABLE_LOGGING_MPMT), the back end, the elapsed time.
_TAG = re.compile(rb"MIOpen(?:\([A-Za-z]{1,12}\))?(?: *[0-9]+\.[0-9]{3})?: (?=" + _LEVELS + rb")")
_THREAD = re.compile(rb"(?<![0-9A-Za-z_.:-])([1-9][0-9]{0,9}) \Z")
# What launchers put before a line to tell processes apart: mpirun, docker compose, journald, srun.
_WHOSE = re.compile(
    rb"(?P<mpi>\[[0-9]+,[0-9]+\](?:<std(?:err|out)>)?:)|^ *(?P<compose>[A-Za-z0-9_.-]{1,64}) +\| "
    rb"|(?P<journal>[A-Za-z0-9_.@-]{1,64}\[[0-9]+\]): |^ *(?P<srun>[0-9]{1,6}): "
)
_FUNCTIONS = (b"[LoadBinary]", b"[SaveBinary]")
_PREPARE = re.compile(rb"\[Prepare\] ?(.*)\Z", re.DOTALL)
_LOOKING = re.compile(rb"\[FindRecord(?:Unsafe)?\] Looking for key ([A-Za-z0-9_-]{10,400}) in ")
_FILE = re.compile(rb'(?:for|database) file "?([^"\s]{1,4096})"?')
_DEVICE = re.compile(rb"Raw device name: (gfx[0-9a-z-]{2,24}(?::[a-z]+[-+])*)\s*\Z")
_VERSION = re.compile(rb"MIOpen version ([0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3})")
_HIP = re.compile(rb"HIP version ([0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,8})")
_DRIVER = re.compile(rb"MIOpenDriver(?:\.exe)?\"? +(conv[a-z0-9]* .*)\Z", re.DOTALL)
# A command that somebody broke goes on: with an option, a value and an option, or a number.
_GOES_ON = re.compile(
    rb"[ \t>|*#+]*(?:--?[A-Za-z_!@#$%^]|[0-9A-Za-z]{1,12} +--?[A-Za-z_!@#$%^]|-?[0-9]+ *\Z)"
)
_CAST = re.compile(r"_c[iwo][A-Z0-9]+")
_COMMAND = re.compile(rb"Command \[([A-Za-z0-9_]{1,64})\] ")


def read_log(path: Path) -> Trace:
    """The log as a trace. KdbtoolError (exit code 2) for a file that is no log of MIOpen."""
    path = Path(path)
    reader = _Reader(path)
    for line in read_lines(path):
        reader.line(line)
    return reader.trace()


@dataclass
class _Reader:
    path: Path
    lookups: Lookups = field(default_factory=Lookups)
    problems: list[Problem] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    notes: list[tuple[int, str]] = field(default_factory=list)
    streams: dict[bytes, int] = field(default_factory=dict)
    lines: int = 0
    tagged: int = 0  # lines that MIOpen wrote
    _devices: frozenset[bytes] = frozenset()
    _looked: dict[str, int] = field(default_factory=dict)  # problem keys by find-db look-ups: first line
    _stated: dict[str, int] = field(default_factory=dict)  # by a command line that is not MIOpen's
    _group: list[Line] = field(default_factory=list)  # a statement and the lines that may belong to it
    _stream: int = 1
    _command_line: Line | None = None  # somebody's command, until the next line shows that it ends
    _taint: int = 0
    _widest: Widest | None = None

    def line(self, line: Line) -> None:
        """The next line."""
        text = line.text
        self.lines = line.number
        self._ends_command(text)
        if b"MIOpen" in text or b" binary for: " in text or b"FROM kern_db" in text:
            tag = _TAG.search(text)
            head = find_head(text)
            if tag or head:
                self._starts(line, tag, head)
                return
            if _DRIVER.search(text):
                self._command_line = line
        if self._group and len(self._group) < MAX_PIECES:
            self._group.append(line)

    def _starts(self, line: Line, tag: re.Match[bytes] | None, head: re.Match[bytes] | None) -> None:
        """A line that MIOpen began; another thread may have written into it."""
        self._flush(head is not None and tag is None)
        self.tagged += 1
        more = _another(line.text, tag)
        parts = 0
        while tag is not None and more is not None:
            parts += 1
            if parts > MAX_PARTS:
                self.notes.append((line.number, "more lines of MIOpen's in one than can be told apart"))
                return
            self._one(Line(line.number, line.text[: more.start()], False, line.whole), tag, None)
            self._flush(False)
            line = Line(line.number, line.text[more.start() :], line.ended, line.whole)
            tag = _TAG.match(line.text)
            more = _another(line.text, tag)
            head = find_head(line.text)
        self._one(line, tag, head)

    def _one(self, line: Line, tag: re.Match[bytes] | None, head: re.Match[bytes] | None) -> None:
        text = line.text
        said = text[tag.end() :] if tag else text
        self._stream = self._number(text[: tag.start()] if tag else b"")
        prepare = _PREPARE.search(said)
        unfinished = b"] " not in said and line.width >= 40
        query = prepare is not None and (
            not prepare[1].strip() or prepare[1].startswith(b"SELECT kern"[: len(prepare[1])])
        )
        if find_head(text) or any(f in said for f in _FUNCTIONS) or query or unfinished:
            self._group = [line]
        else:
            self._other(line, said)

    def _number(self, before: bytes) -> int:
        """The stream of a line, by what stands before MIOpen's own: its process, and its thread."""
        whose = _WHOSE.search(before) if before else None
        thread = _THREAD.search(before[-24:]) if before else None
        name = (whose.group() if whose else b"") + b" " + (thread[1] if thread else b"")
        if len(self.streams) >= MAX_STREAMS and name not in self.streams:
            name = b" "
        return self.streams.setdefault(name, len(self.streams) + 1)

    def _flush(self, by_head: bool) -> None:
        """The statement that was being gathered. `by_head`: its end may be what comes next."""
        group, self._group = self._group, []
        if not group:
            return
        last = group[-1].number
        said = parse(group, self._devices, self._log_widest, last > self._taint)
        if said is None:
            if any(f in group[0].text for f in _FUNCTIONS) and not by_head:
                self.notes.append((group[0].number, "it is cut off before its key"))
            return
        if said.key is None and said.fragment is None and said.kind in (LOAD, SELECT):
            self._taint = last + _TAINT
        self.lookups.add(self._stream, said)

    def _log_widest(self) -> Widest:
        """No terminal that broke lines was wider than the longest. Read at need, once."""
        if self._widest is None:
            widths = Counter(line.width for line in read_lines(self.path))
            columns = max(widths, default=0)
            self._widest = Widest(columns, widths[columns])
        return self._widest

    def _other(self, line: Line, said: bytes) -> None:
        """Facts and problems."""
        if found := _LOOKING.search(said):
            key = found[1].decode("ascii")
            if key not in self._looked and is_problem(key):
                self._looked[key] = line.number
        elif found := _COMMAND.match(said):
            self._command(line, said, found[1].decode("ascii"))
        elif found := _DEVICE.search(said):
            if line.width != self._log_widest().wrap:  # else the name may go on in the next line
                self._device(found[1])
        elif b"version" in said:
            for name, pattern in (("miopen.version", _VERSION), ("hip.version", _HIP)):
                if version := pattern.search(said):
                    self.facts.setdefault(name, version[1].decode("ascii"))
        if b" file " in said and (named := _FILE.search(said)):
            of = parse_name(named[1].decode("utf-8", "replace").replace("\\", "/"))
            if of is not None and of.cu is not None:
                self.facts.setdefault("device.0.cu", str(of.cu))

    def _device(self, device: bytes) -> None:
        text = device.decode("ascii")
        names = [self.facts[k] for k in self.facts if k.startswith("device.") and k.count(".") == 1]
        if text not in names:
            self.facts[f"device.{len(names)}"] = text
            self._devices |= {device.partition(b":")[0]}

    def _command(self, line: Line, said: bytes, function: str) -> None:
        """A line of MIOPEN_ENABLE_LOGGING_CMD: a call of MIOpen's interface, as a driver command."""
        found = _DRIVER.search(said)
        if found is None:
            return  # not of a convolution
        command = self._parsed(line, found[1], logged=True)
        if command is None:
            return
        for _, key in command.keys:
            letter = _direction(key)  # of a transposed convolution not the call's
            place = (self._stream, line.number, 0)
            self.problems.append(Problem(key, function, letter, None, command.solution, 0, 0, *place))

    def _ends_command(self, following: bytes) -> None:
        """A MIOpenDriver command that somebody else wrote: a script, the driver's own first line.

        Every option has a default: of a command that is broken or cut the rest would be taken for that.
        """
        line, self._command_line = self._command_line, None
        found = _DRIVER.search(line.text) if line else None
        if line is None or found is None:
            return
        if _GOES_ON.match(following) or line.width == self._log_widest().wrap:
            self.notes.append((line.number, "driver command: it is cut off, or goes on in the next line"))
            return
        command = self._parsed(line, found[1])
        for _, key in command.keys if command else ():
            self._stated.setdefault(key, line.number)

    def _parsed(self, line: Line, text: bytes, logged: bool = False) -> Command | None:
        said = self.facts.get("miopen.version")
        version = tuple(map(int, said.split("."))) if said else None
        try:
            return parse_command(text.decode("ascii", "backslashreplace"), version=version, logged=logged)
        except KdbtoolError as error:
            self.notes.append((line.number, f"driver command: {error.what}"))
            return None

    # ---- the end

    def trace(self) -> Trace:
        """What was read."""
        self._ends_command(b"")
        self._flush(False)
        lookups = [
            Lookup(*asked.key, asked.hit, (), asked.stream, asked.line)
            for asked in self.lookups.finish()
            if asked.key is not None
        ]
        if not self.tagged and not self._stated and not self.notes:
            raise KdbtoolError(
                "not a log of MIOpen",
                where=self.path,
                why="no line of MIOpen in it",
                hint="docs/logs.md says how to make one",
            )
        lookups.sort(key=lambda lookup: lookup.thread)  # as a trace has them: thread by thread
        problems = sorted(self._problems(), key=lambda problem: problem.thread)
        notes = sorted(self.notes + self.lookups.notes, key=lambda note: note[0])
        texts = [f"line {number}: {printable(text)}" for number, text in notes[:MAX_NOTES]]
        if len(notes) > MAX_NOTES:
            texts.append(f"{len(notes) - MAX_NOTES} more doubtful lines")
        if not self.lookups.asked and self.tagged:
            texts.append("no look-up of a kernel in it: MIOpen writes them at MIOPEN_LOG_LEVEL=6")
        return Trace(self.path, self._facts(), lookups, problems, notes=texts)

    def _problems(self) -> Iterator[Problem]:
        """Calls as they are; a key that is stated elsewhere alone, once. A command of the driver has one
        word for several data types: where the find-db was asked for another, that one counts."""
        known: set[str] = set()
        typed = {_untyped(key): key for key in self._looked}
        for problem in self.problems:
            other = typed.get(_untyped(problem.key))
            if problem.key not in self._looked and other is not None:
                self.notes.append((problem.time_ns, f"the command says {problem.key}, the look-up {other}"))
                continue
            known.add(problem.key)
            yield problem
        elsewhere = [(key, line, "find-db look-up") for key, line in self._looked.items()]
        elsewhere += [
            (key, line, "MIOpenDriver") for key, line in self._stated.items() if _untyped(key) not in typed
        ]
        for key, line, api in sorted(elsewhere, key=lambda e: e[1]):
            if key not in known:
                known.add(key)
                yield Problem(key, api, _direction(key), None, None, 0, 0, 1, line, 0)

    def _facts(self) -> Facts:
        facts = {
            "source": "log",
            "source.file": self.path.name,
            "source.lines": str(self.lines),
            **self.facts,
        }
        cu = facts.get("device.0.cu")
        return Facts(
            pid=0, ppid=0, host="", exe="", role="host", start_ns=0,
            miopen_version=facts.get("miopen.version"), miopen_path=None, miopen_build_id=None,
            hip_version=facts.get("hip.version"), hip_path=None,
            device=facts.get("device.0"), cu=int(cu) if cu else None,
            simulated=False, overrides={}, rank=None, all=facts,
        )  # fmt: skip


def _another(text: bytes, tag: re.Match[bytes] | None) -> re.Match[bytes] | None:
    """A second line of MIOpen's within one."""
    if tag is None or (text.find(b"MIOpen(", tag.end()) < 0 and text.find(b"MIOpen: ", tag.end()) < 0):
        return None
    return _TAG.search(text, tag.end())


def _untyped(key: str) -> str:
    """A problem key without its data type and cast types."""
    plain = _CAST.sub("", key)
    fields = plain.split("-")
    at = next((i for i in range(len(fields) - 1, 0, -1) if fields[i][:1] in ("F", "B", "W")), 0)
    return "-".join(fields[: at - 1] + fields[at:]) if at else plain


def _direction(key: str) -> str:
    return next((part[0] for part in reversed(key.split("-")) if part[:1] in ("F", "B", "W")), "")
