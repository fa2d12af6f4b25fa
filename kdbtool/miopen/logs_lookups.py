"""From statements to look-ups: nothing counted twice, doubts kept with their line.

One look-up is written several times: `Loading`, the SELECT of each database, the outcome. They are
brought together by their key, in one stream of the log (a process, a thread, where the log tells them
apart): several threads may mix. A key broken over lines is confirmed by its other statements, or
reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kdbtool.miopen.logs_statement import HIT, LOAD, SAVE, SELECT, Statement
from kdbtool.miopen.logs_wrap import Fragment

MAX_OPEN = 64  # look-ups of one stream that wait for their outcome


@dataclass(slots=True, eq=False)
class Asked:
    """One look-up. `key` None: not exact (yet); `rival`: what its SELECT asks for instead."""

    stream: int
    line: int
    key: tuple[bytes, bytes] | None
    fragment: Fragment | None = None
    why: str = ""
    loaded: bool = True  # a Loading line was there
    selects: int = 0
    hit: bool | None = None
    rival: tuple[bytes, bytes] | None = None

    def agrees(self, key: tuple[bytes, bytes] | None, fragment: Fragment | None) -> bool:
        """Whether another statement can be of this look-up."""
        if key is not None and self.key is not None:
            return key in (self.key, self.rival)
        mine = self.fragment or (Fragment.of(*self.key) if self.key else None)
        other = fragment or (Fragment.of(*key) if key else None)
        return mine is not None and other is not None and mine.agrees(other)

    def learn(self, key: tuple[bytes, bytes] | None, fragment: Fragment | None) -> None:
        """What another statement of it, that agrees, adds."""
        if self.key is None:
            if key is not None:
                self.key = key
            elif self.fragment is not None and fragment is not None:
                self.fragment = self.fragment.merged(fragment)
                self.key = self.fragment.key()


@dataclass
class Lookups:
    """All look-ups of a log, in order; `notes`: (line, what is doubtful there)."""

    asked: list[Asked] = field(default_factory=list)
    notes: list[tuple[int, str]] = field(default_factory=list)
    _open: dict[int, list[Asked]] = field(default_factory=dict)
    _ended: dict[int, list[Asked]] = field(default_factory=dict)  # not exact, outcome known
    _same: dict[tuple[bytes, bytes], tuple[bytes, bytes]] = field(default_factory=dict)

    def add(self, stream: int, said: Statement) -> None:
        """One statement, as they stand in the log."""
        key = self._same.setdefault(said.key, said.key) if said.key else None
        waiting = self._open.setdefault(stream, [])
        if said.kind == LOAD:
            self._new(waiting, Asked(stream, said.line, key, said.fragment, said.why))
            return
        found = self._find(waiting, said, key)
        if found is None and said.kind == SAVE:
            found = next((a for a in self._ended.get(stream, ()) if a.agrees(key, said.fragment)), None)
            if found is not None:
                found.learn(key, said.fragment)
            return
        if found is None:
            found = self._without_load(waiting, stream, said, key)
            if found is None:
                return
        found.learn(key, said.fragment)
        if said.kind == SELECT:
            found.selects += 1
            return
        found.hit = said.kind == HIT  # what is saved was missed before
        waiting.remove(found)
        if found.key is None:
            self._ended.setdefault(stream, []).append(found)
            del self._ended[stream][:-MAX_OPEN]

    def _new(self, waiting: list[Asked], asked: Asked) -> None:
        self.asked.append(asked)
        waiting.append(asked)
        if len(waiting) > MAX_OPEN:
            del waiting[0]

    def _find(self, waiting: list[Asked], said: Statement, key: tuple[bytes, bytes] | None) -> Asked | None:
        """The look-up that it belongs to: the oldest of that key for an outcome, the last for a SELECT."""
        order: Iterator[Asked] = reversed(waiting) if said.kind == SELECT else iter(waiting)
        for asked in order:
            if asked.agrees(key, said.fragment):
                both = said.kind == SELECT and not asked.loaded and asked.selects > 1
                return None if both else asked  # two databases were asked: a third SELECT is a new one
        return None

    def _without_load(
        self, waiting: list[Asked], stream: int, said: Statement, key: tuple[bytes, bytes] | None
    ) -> Asked | None:
        """No look-up of that key waits: its Loading line is missing, or says something else."""
        last = waiting[-1] if waiting else None
        if said.kind == SELECT and last is not None and last.loaded and not last.selects:
            if last.key is not None and key is not None:
                why = f"the SELECT in line {said.line} asks for another key than the Loading line"
                last.rival = key  # neither is taken, nor what the outcome says
                self.notes.append((last.line, why))
                return None
            if last.key is None and last.fragment is None and key is not None:
                last.selects += 1  # a Loading line that could not be read, then its SELECT
                last.key = key
                return None
        if key is None and said.fragment is None:
            self.notes.append((said.line, said.why))
            return None
        asked = Asked(stream, said.line, key, said.fragment, said.why, loaded=False)
        self._new(waiting, asked)
        return asked

    def finish(self) -> list[Asked]:
        """Every look-up with an exact key; the others become notes."""
        previous: dict[int, Asked] = {}
        found: list[Asked] = []
        for asked in self.asked:
            if asked.rival is not None:
                continue
            if asked.key is None:
                self.notes.append((asked.line, asked.why))
                continue
            before = previous.get(asked.stream)
            if before is not None and before.hit is None and before.key == asked.key:
                before.hit = asked.hit  # never answered and asked again: one look-up (docs/trace-format.md)
                continue
            previous[asked.stream] = asked
            found.append(asked)
        return found
