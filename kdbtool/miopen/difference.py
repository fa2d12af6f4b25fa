"""What changes between two MIOpen builds: kernel sources that came, went, were renamed or rewritten."""

from __future__ import annotations

from dataclasses import dataclass

from kdbtool.miopen.history import successors
from kdbtool.miopen.sources import SourceSet
from kdbtool.miopen.versions import MiopenBuild


@dataclass(frozen=True)
class Difference:
    """From one build to another. `changed` and `same` are None where a text of either is not at hand.

    `changed`: (kernel, whether its own text differs, whether headers that it may include do). A kernel in
    `renamed` (old name, new names) is in neither `added` nor `removed`. `blind` says what was not compared.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    renamed: tuple[tuple[str, tuple[str, ...]], ...]
    changed: tuple[tuple[str, bool, bool], ...] | None
    same: int | None
    headers_added: tuple[str, ...]
    headers_removed: tuple[str, ...]
    keys_differ: bool  # another data type list: no key that has one is shared
    blind: tuple[str, ...]


def compare(
    old: MiopenBuild, new: MiopenBuild, texts: tuple[SourceSet, SourceSet] | None = None
) -> Difference:
    """`texts`: the sources of both, for builds that are libraries."""
    before, after = set(old.kernels), set(new.kernels)
    blind = []
    old_headers, new_headers = set(old.headers), set(new.headers)
    without = [b for b in (old, new) if b.distributor and not any(k.endswith(".s") for k in b.kernels)]
    if len(without) == 1:
        blind.append(f"assembly: {without[0].distributor}'s {without[0].rocm} has none")
        before, after = ({k for k in kernels if not k.endswith(".s")} for kernels in (before, after))
        old_headers, new_headers = ({h for h in b.headers if not h.endswith(".inc")} for b in (old, new))
    moved = {k: found for k in before - after if (found := successors(k, new))}
    if texts is None:
        blind.append("texts: only libraries have them")
    changed = None if texts is None else _changed(*texts)
    same = None if texts is None or changed is None else len(_shared(*texts)) - len(changed)
    return Difference(
        added=tuple(sorted(after - before - {name for names in moved.values() for name in names})),
        removed=tuple(sorted(before - after - moved.keys())),
        renamed=tuple(sorted(moved.items())),
        changed=changed,
        same=same,
        headers_added=tuple(sorted(new_headers - old_headers)),
        headers_removed=tuple(sorted(old_headers - new_headers)),
        keys_differ=old.epoch.defines != new.epoch.defines,
        blind=tuple(blind),
    )


def _shared(old: SourceSet, new: SourceSet) -> list[str]:
    return sorted(old.kernels.keys() & new.kernels.keys())


def _changed(old: SourceSet, new: SourceSet) -> tuple[tuple[str, bool, bool], ...]:
    out = []
    for kernel in _shared(old, new):
        (text, headers), (text_then, headers_then) = old.hash_of(kernel), new.hash_of(kernel)
        if (text, headers) != (text_then, headers_then):
            out.append((kernel, text != text_then, headers != headers_then))
    return tuple(out)
