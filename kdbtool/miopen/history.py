"""One kernel key over MIOpen's releases: where its source exists, what became of it, where it is live.

Releases are ROCm's, by minor version (5.0 to 7.2, and `develop` of October 2024). The lists of 6.4 and 7.2
are Debian's, which has no assembly: of a `.s` source nothing is known there (`listed`).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib import resources

from kdbtool.miopen.keys import SUFFIX, define_lists, source_of
from kdbtool.miopen.liveness import full_lists, judge
from kdbtool.miopen.versions import MiopenBuild, epochs, kernel_lists, releases, resolve
from kdbtool.reasons import Reason


@dataclass(frozen=True)
class Rename:
    """From `release` on MIOpen asks for `new` where it asked for `old`; its arguments may differ too.

    `archs` limits it: to the named ones, or with `others` to all but those. Empty: everywhere.
    """

    release: str
    old: str
    new: str
    archs: frozenset[str] = frozenset()
    others: bool = False

    def holds(self, arch: str | None) -> bool:
        """Whether it holds on `arch`; None asks for any."""
        return arch is None or not self.archs or (arch in self.archs) != self.others


@functools.cache
def renames() -> tuple[Rename, ...]:
    """data/renames.tsv, in its order: oldest release first."""
    text = (resources.files("kdbtool.miopen") / "data" / "renames.tsv").read_text("ascii")
    out = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            release, old, new, *rest = line.split("\t")
            limit = rest[0] if rest else ""
            archs = frozenset(limit.removeprefix("not ").split(",")) - {""}
            out.append(Rename(release, old, new, archs, limit.startswith("not ")))
    return tuple(out)


def listed(source: str, release: str) -> bool:
    """Whether the release's kernel list can say anything about `source`: Debian's say nothing of assembly."""
    return not (releases()[release].distributor and source.endswith(".s"))


def releases_with(source: str) -> list[str]:
    """The releases whose list has the kernel source `source` (`naive_conv.cpp`), oldest first."""
    lists = kernel_lists()
    return [rocm for rocm, release in releases().items() if source in lists[release.kernels]]


def absence(source: str, build: MiopenBuild | None = None) -> str:
    """What is known of a kernel source that `build`, or a source tree, lacks: who has it, in a few words."""
    have = [release for release in releases_with(source) if release != "develop"]
    known = [release for release in releases() if release != "develop"]
    if not have:
        return f"no MIOpen from {known[0]} to {known[-1]} has it"
    text = f"MIOpen has it from {have[0]} to {have[-1]}" if len(have) > 1 else f"only MIOpen {have[0]} has it"
    if have[-1] == known[-1] and build is None:
        return f"{text}, so a newer one removed it"
    after = renamed(source, build) if build is not None else None
    return f"{text}, then it is {after}" if after is not None else text


def successors(source: str, build: MiopenBuild, arch: str | None = None) -> tuple[str, ...]:
    """The kernel sources of `build` that took the place of `source`, which it has no more, sorted.

    Several where the new choice depends on more than the architecture, or where `arch` is None.
    """
    todo, seen = [source], {source}
    while todo:
        name = todo.pop()
        for step in renames():
            if step.old == name and step.holds(arch) and step.new != "-" and step.new not in seen:
                seen.add(step.new)
                todo.append(step.new)
    return tuple(sorted(seen & build.kernels)) if source not in build.kernels else ()


def renamed(source: str, build: MiopenBuild, arch: str | None = None) -> str | None:
    """The one name that took the place of `source` in `build`; None where it has none, several, or itself."""
    found = successors(source, build, arch)
    return found[0] if len(found) == 1 else None


def epoch_of(args: bytes) -> str | None:
    """E1 to E4 by the data type lists of `args`; None without a whole list, or with ones of no one epoch."""
    lists = [one for run in define_lists(args) for one in full_lists(run)]
    if not lists:
        return None
    return next((name for name, epoch in epochs().items() if all(map(epoch.matches, lists))), None)


def live_in(name: bytes, args: bytes, arch: str | None) -> dict[str, list[Reason]]:
    """By release: why a row of this key is dead there, empty where it is live. `judge` on every release.

    A `.s` source is not called missing where the list says nothing of assembly.
    """
    source = source_of(name if name.endswith(SUFFIX) else name + SUFFIX)
    out = {}
    for release in releases():
        reasons = judge(name, args, arch, resolve(release))
        if source is not None and not listed(source, release):
            reasons = [r for r in reasons if r is not Reason.NO_SOURCE]
        out[release] = reasons
    return out
