"""What the engine asks of anything that can compile a kernel. No back end may need a GPU.

A back end is made in the main process, copied into every worker by fork, and used there: `enter`
once, then `probe` or `compile`. Everything that crosses between processes is a frozen dataclass.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kdbtool.reasons import Reason
from kdbtool.rebuild.recipe import Recipe


@dataclass(frozen=True)
class Limits:
    """Per kernel: wall seconds and address space in bytes."""

    seconds: float = 600.0
    memory: int = 8 << 30


@dataclass(frozen=True)
class Task:
    """One object to make. `text` is the source as it is compiled, `options` are on the allow-list."""

    digest: str  # of everything that decides the object
    source: str  # file name
    text: bytes
    language: str  # hip, opencl, asm
    options: tuple[str, ...]
    arch: str
    target: str  # target id, gfx906:xnack-


@dataclass(frozen=True)
class Outcome:
    """`code` is the object, or None with `reason` and `detail` (one line)."""

    digest: str
    code: bytes | None = None
    reason: Reason | None = None
    detail: str = ""
    log: str = ""
    argv: tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class Toolchain:
    """What decides the objects of one language for one target. `why` is set where it cannot be built here."""

    libraries: str = ""  # sha256 of the device libraries
    headers: str = ""  # sha256 of the compiler's and the system's headers
    why: str | None = None


@dataclass(frozen=True)
class Identity:
    """A compiler, without any path in it: the same compiler elsewhere has the same identity."""

    backend: str
    version: str  # as the compiler says it
    major: int
    tools: Mapping[tuple[str, str], Toolchain] = field(default_factory=dict)  # by (language, target)

    def digest(self, language: str, target: str) -> str:
        """sha256 of what decides an object of `language` for `target` beside its source and options."""
        tool = self.tools[language, target]
        parts = (self.backend, self.version, tool.libraries, tool.headers)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def missing(self, language: str, target: str) -> str | None:
        """Why `language` cannot be built for `target` here; None if it can."""
        tool = self.tools.get((language, target))
        return tool.why if tool else "this back end does not know the language"


class Backend(ABC):
    """One way to compile. `recipe` holds MIOpen's hidden options."""

    recipe: Recipe

    @abstractmethod
    def describe(self) -> str:
        """What and where, for people; may hold paths."""

    @abstractmethod
    def enter(self, work: Path, headers: Mapping[str, bytes]) -> None:
        """In a worker, once: `work` is an empty folder of its own."""

    @abstractmethod
    def probe(self, targets: Mapping[str, list[str]], limits: Limits) -> Identity:
        """In a worker: who compiles, and which of the languages (each with its target ids) can be built."""

    @abstractmethod
    def compile(self, task: Task, identity: Identity, limits: Limits) -> Outcome:
        """In a worker: one object. Never raises for what a compiler or a source can do."""

    @abstractmethod
    def reproduce(self, outcome: Outcome) -> str:
        """A shell script that runs a failed compilation again in a folder with its files."""
