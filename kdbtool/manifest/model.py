"""What a manifest says, apart from how it is written.

A manifest is a set of kernel keys, each with the architecture of the database that it belongs to
and a state, and, per kernel source, the hashes of the texts that it was made for. Keys are bytes
and are never normalised (design.md, law 1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kdbtool.miopen.finddb import FindSolution
from kdbtool.miopen.keys import collapse, find_repeat, source_of, split_arch

BUILD = "build"
ASKED_UNBUILT = "asked-unbuilt"

Comments = tuple[str, ...]  # whole lines without the indent, each beginning with '#'


@dataclass(frozen=True, order=True)
class Key:
    """One row of a kernel database. `arch` is the database's (gfx1030), "" where it is not known."""

    name: bytes
    args: bytes
    arch: str
    state: str = BUILD


@dataclass(frozen=True)
class Hashes:
    """sha256 (64 lower-case hex digits) of a kernel's text and of the headers that it may include."""

    source: str | None = None
    headers: str | None = None


@dataclass
class Note:
    """Where an entry was read (0: nowhere) and the comments directly above it."""

    line: int = 0
    comments: Comments = ()


Solution = FindSolution  # one entry of a find-db, as texts


@dataclass
class Problem:
    """A convolution problem, and what the tuning databases say of it, where that was asked for.

    `solutions` in the order of the find-db's line. `tuned`: perf-db values by solver, as texts.
    """

    note: Note = field(default_factory=Note)
    solutions: list[Solution] = field(default_factory=list)
    tuned: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, order=True)
class Asker:
    """Who asked for a key: a solver, for a problem (its key in MIOpen's find-db spelling)."""

    solver: str
    problem: str


@dataclass(frozen=True)
class Variant:
    """Keys that one compilation serves: equal but for how often the data type list is repeated."""

    source: str | None  # None: the kernel name follows no convention, so nothing can be compiled
    arch: str
    args_once: bytes  # the options without the trailing ` -mcpu=<arch>`, the data type list once
    spellings: tuple[Key, ...]
    line: int  # of the first spelling in the file, 0 for a manifest that was not read from one
    hashes: Hashes


@dataclass
class Manifest:
    """Header fields and entries. `miopen` is a ROCm release (6.4.3), None where it is unknown.

    `find_db`: sha256 of the find-db that it was harvested from. `profile`: what else decides which keys
    MIOpen asks for, by name: the compute units (`cu` or, of one of several archs, `cu.gfx1030`), and the
    environment that was set (`MIOPEN_DEBUG_...`).
    """

    miopen: str | None = None
    sources: str | None = None  # sha256 of the whole source set
    origins: set[str] = field(default_factory=set)
    keys: dict[Key, Note] = field(default_factory=dict)
    hashes: dict[str, Hashes] = field(default_factory=dict)  # by source name
    blocks: dict[tuple[str, bytes], Note] = field(default_factory=dict)  # by (state, kernel name)
    problems: dict[str, Problem] = field(default_factory=dict)  # by key, in the find-db's spelling
    asked_by: dict[Key, set[Asker]] = field(default_factory=dict)  # written where it is not empty
    find_db: str | None = None
    profile: dict[str, str] = field(default_factory=dict)
    comments: Comments = ()  # of the header
    trailing: Comments = ()  # after the last entry
    path: str = ""
    digest: str = ""  # sha256 of the text that it was read from

    @property
    def archs(self) -> list[str]:
        """Every architecture that a key belongs to, sorted."""
        return sorted({key.arch for key in self.keys if key.arch})

    def expand(self) -> Iterator[Key]:
        """Every key, sorted by bytes."""
        return iter(sorted(self.keys))

    def variants(self) -> Iterator[Variant]:
        """The `build` keys grouped by what is compiled, sorted; every key is in exactly one."""
        groups: dict[tuple[bytes, str, bytes, bool], list[Key]] = {}
        for key in sorted(self.keys):
            if key.state != BUILD:
                continue
            options, ends = options_of(key)
            groups.setdefault((key.name, key.arch, collapse(options), ends), []).append(key)
        for (name, arch, once, _), keys in sorted(groups.items()):
            source = source_of(name)
            lines = [line for key in keys if (line := self.keys[key].line)]
            yield Variant(
                source,
                arch,
                once,
                tuple(keys),
                min(lines, default=0),
                self.hashes.get(source, Hashes()) if source else Hashes(),
            )

    def doubled(self) -> int:
        """How many keys repeat their data type list."""
        return sum(1 for key in self.keys if find_repeat(options_of(key)[0]))


def options_of(key: Key) -> tuple[bytes, bool]:
    """(the options, whether ` -mcpu=` and the key's own arch followed them)."""
    split = split_arch(key.args)
    if split is not None and split[1] == key.arch:
        return split[0], True
    return key.args, False
