"""Where several inputs say different things of one fact: what each says, with its file and line.

Two facts decide whether rows may stand in one manifest at all, and nothing can choose between them: the
MIOpen version and the hashes of a kernel source. The rest has a rule (docs/commands-on-files.md, "merge").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kdbtool.errors import KdbtoolError
from kdbtool.manifest.model import BUILD, Hashes, Manifest
from kdbtool.miopen.keys import source_of

_HEADER_BYTES = 1 << 20  # of a file that are looked through for a header's line
MAX_TOLD = 50
UNITS = "cu"


@dataclass(frozen=True)
class Said:
    """A value, and where it stands; `line` 0: not at a line of its own."""

    value: str
    path: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.path}{f' line {self.line}' if self.line else ''}: {self.value}"


@dataclass(frozen=True)
class Conflict:
    """Different values of one fact, each as the first input has it; `taken` None: nothing decides."""

    what: str
    said: tuple[Said, ...]
    taken: str | None = None

    def __str__(self) -> str:
        end = f"; {self.taken}" if self.taken is not None else ""
        return f"{self.what}: {'; '.join(map(str, self.said))}{end}"


class Refused(KdbtoolError):
    """Inputs that cannot be joined. With several conflicts the line does not hold them: show `conflicts`."""

    def __init__(
        self, what: str, conflicts: Sequence[Conflict], *, hint: str, why: str | None = None
    ) -> None:
        super().__init__(what, why=why, hint=hint)
        self.conflicts = tuple(conflicts)


def differing(what: str, said: Iterable[Said], taken: str | None = None) -> Conflict | None:
    """The conflict of these, None where all have one value."""
    first: dict[str, Said] = {}
    for one in said:
        first.setdefault(one.value, one)
    return Conflict(what, tuple(first.values()), taken) if len(first) > 1 else None


def versions(manifests: Iterable[Manifest]) -> Conflict | None:
    """Manifests for different MIOpen versions; one that names none has no part in it."""
    named = [m for m in manifests if m.miopen]
    if len({m.miopen for m in named}) < 2:
        return None
    said = (Said(m.miopen or "", m.path, _header_line(m, f"miopen {m.miopen}")) for m in named)
    return differing("MIOpen", said)


def sources(manifests: Sequence[Manifest]) -> list[Conflict]:
    """Kernel sources of which manifests have different hashes, by name."""
    by_source: dict[str, list[Manifest]] = {}
    for manifest in manifests:
        for source in manifest.hashes:
            by_source.setdefault(source, []).append(manifest)
    found = []
    for source, some in sorted(by_source.items()):
        if len({m.hashes[source] for m in some}) < 2:
            continue
        said = [Said(_hashes(m.hashes[source]), m.path, _block_line(m, source)) for m in some]
        conflict = differing(f"source {source}", said)
        if conflict is not None:
            found.append(conflict)
    return found


def merged_profile(manifests: Iterable[Manifest]) -> tuple[dict[str, str], list[Conflict]]:
    """What all manifests with a profile agree on, and where they differ: that is left out.

    A variable of the environment that one of them does not have was not set there; units that it does not
    have are not known.
    """
    some = [m for m in manifests if m.profile]
    out: dict[str, str] = {}
    found = []
    for name in sorted({name for m in some for name in m.profile}):
        units = name.partition(".")[0] == UNITS
        said = [
            Said(m.profile.get(name, "not set"), m.path, _header_line(m, name))
            for m in some
            if not units or name in m.profile
        ]
        conflict = differing(f"profile {name}", said, "left out")
        if conflict is None:
            out[name] = said[0].value
        else:
            found.append(conflict)
    return out, found


def refusal(what: str, conflicts: Sequence[Conflict], hint: str) -> Refused:
    """The error, exit code 2, of conflicts that nothing decides."""
    if len(conflicts) == 1:
        return Refused(what, conflicts, why=str(conflicts[0]), hint=hint)
    return Refused(what, conflicts, why=f"{len(conflicts)} conflicts", hint=hint)


def told(conflicts: Sequence[Conflict]) -> list[str]:
    """A line for each conflict that a rule decided, the first MAX_TOLD of them, and how many more."""
    lines = [f"conflict: {conflict}" for conflict in conflicts[:MAX_TOLD]]
    return lines + ([f"{len(conflicts) - MAX_TOLD} more conflicts"] if len(conflicts) > MAX_TOLD else [])


def _hashes(hashes: Hashes) -> str:
    source = f"sha256:{hashes.source}" if hashes.source else "unknown"
    return f"{source}, headers sha256:{hashes.headers}" if hashes.headers else source


def _block_line(manifest: Manifest, source: str) -> int:
    lines = (n.line for (state, name), n in manifest.blocks.items() if state == BUILD and n.line and
             source_of(name) == source)  # fmt: skip
    return min(lines, default=0)


def _header_line(manifest: Manifest, text: str) -> int:
    """The first line of the manifest's file with this text outside comments, 0 where there is none."""
    try:
        with Path(manifest.path).open("rb") as file:
            head = file.read(_HEADER_BYTES)
    except (OSError, ValueError):
        return 0
    wanted = text.encode("utf-8", "surrogateescape")
    for number, line in enumerate(head.splitlines(), 1):
        if wanted in line and not line.lstrip().startswith(b"#"):
            return number
    return 0
