"""The rows of a manifest that another architecture's MIOpen asks for in the same words.

A key that moves is never wrong code: `rebuild` compiles it for the new architecture, and MIOpen takes it only
if it asks with these very bytes. What can go wrong is a row that is never asked for. So a row moves only if
nothing in it can follow the device: a kernel source that is written for no family of architectures, and
options each of which is known (kdbtool/explain/data/options.tsv, read in MIOpen's sources) to depend on the
problem, its types or the build alone. What is not known stays.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from kdbtool import __version__
from kdbtool.explain.options import BUILD as OF_BUILD
from kdbtool.explain.options import DEVICE, LANGUAGE, SETTING, SHAPE, TUNING, TYPE, meaning, options_of
from kdbtool.manifest.model import BUILD, Key, Manifest, Note, Problem
from kdbtool.miopen.keys import MCPU, language, source_of, split_mcpu
from kdbtool.reasons import Reason, first

# Sources whose solvers are applicable, or whose options are chosen, by architecture: matrix instructions, dot
# products, and the composable kernels, whose device defines follow it (src/include/miopen/solver/
# ck_utility_common.hpp, implicitgemm_util.hpp).
_OF_ARCH = re.compile(
    r"static_kernel_|static_composable|composable|xdlops|_xdl|wmma|dlops|gridwise_", re.IGNORECASE
)
# Not read in the sources, but in the same words on four families of devices (docs/choosing.md).
_SEEN_EQUAL = re.compile(r"USE_IM_OFF_GUARD|SUBTENSOR_OP_WITH_SCALAR\w*|WORK_LENGTH_[0-4]")
_FREE = frozenset({SHAPE, SETTING, TYPE, OF_BUILD, LANGUAGE})
_BY_MEANING = {DEVICE: Reason.ARCH_OPTION, TUNING: Reason.TUNED_OPTION, None: Reason.UNKNOWN_OPTION}


@dataclass(frozen=True)
class Left:
    """A row that stays behind, all its reasons, and the options that are why."""

    key: Key
    reasons: tuple[Reason, ...]
    options: tuple[str, ...]


@dataclass
class Retargeted:
    """What became of each row of the input; `there`: rows that were for the architecture, as they stood."""

    arch: str
    manifest: Manifest
    rows: int = 0
    moved: int = 0
    there: int = 0
    twins: int = 0  # moved onto a row that was there, or that another one moved to
    left: list[Left] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def counted(self) -> Counter[Reason]:
        """Rows left behind, each under the first of its reasons."""
        return Counter(first(one.reasons) for one in self.left)


def judge(key: Key) -> tuple[list[Reason], list[str]]:
    """Why a row's key may follow its architecture, and the options that say so; nothing where it moves."""
    reasons: set[Reason] = set()
    named: dict[str, None] = {}
    source = source_of(key.name)
    split = split_mcpu(key.args)
    if key.state != BUILD:
        reasons.add(Reason.ASKED_UNBUILT)
    if source is None:
        reasons.add(Reason.NO_DOT_O)
    elif language(source) not in ("hip", "opencl") or _OF_ARCH.search(source):
        reasons.add(Reason.ARCH_SOURCE)
    if split is None:
        return sorted(reasons | {Reason.NO_MCPU}, key=lambda one: one.order), []
    if split[1] != key.arch:
        reasons.add(Reason.TARGET_ID if ":" in split[1] else Reason.FOREIGN_MCPU)
    words = iter(split[0].split(b" "))
    for word in words:
        found = _judged(word + b" " + next(words, b"") if word == b"-mllvm" else word)
        if found is not None:
            reasons.add(found[0])
            named[found[1]] = None
    return sorted(reasons, key=lambda one: one.order), list(named)


@functools.lru_cache(1 << 16)
def _judged(word: bytes) -> tuple[Reason, str] | None:
    """Why an option may follow the device, and its name; None where it cannot. Millions share few words."""
    for option in options_of(word):
        known = meaning(option.kind, option.name)
        if known is None and _SEEN_EQUAL.fullmatch(option.name):
            continue
        depends = known.depends if known else None
        if depends not in _FREE or "gfx" in f"{option.name}={option.value}".lower():
            return _BY_MEANING.get(depends, Reason.ARCH_OPTION), option.name
    return None


def retarget(manifest: Manifest, arch: str) -> Retargeted:
    """`manifest` for another architecture; what belongs to the old device (askers, tuning) is left out."""
    out = Manifest(
        miopen=manifest.miopen,
        sources=manifest.sources,
        comments=manifest.comments,
        trailing=manifest.trailing,
        problems={problem: Problem(known.note) for problem, known in manifest.problems.items()},
    )
    done = Retargeted(arch, out, rows=len(manifest.keys))
    for key in (one for one in sorted(manifest.keys) if one.arch == arch):
        out.keys[key] = manifest.keys[key]
        done.there += 1
    archs = set()
    for key in (one for one in sorted(manifest.keys) if one.arch != arch):
        reasons, options = judge(key)
        if reasons:
            done.left.append(Left(key, tuple(reasons), tuple(options)))
            continue
        split = split_mcpu(key.args)
        assert split is not None  # judged
        moved = replace(key, args=split[0] + MCPU + arch.encode("ascii"), arch=arch)
        archs.add(key.arch)
        done.moved += 1
        if moved in out.keys:
            done.twins += 1
            continue
        out.keys[moved] = Note(comments=manifest.keys[key].comments)
    blocks = {(key.state, key.name) for key in out.keys}
    out.blocks = {block: note for block, note in manifest.blocks.items() if block in blocks}
    used = {source_of(key.name) for key in out.keys}
    out.hashes = {source: hashes for source, hashes in manifest.hashes.items() if source in used}
    out.origins = manifest.origins | {
        f"moved from {old} to {arch}, not asked for there, by kdbtool {__version__}" for old in archs
    }
    done.notes += _left_out(manifest)
    return done


def _left_out(manifest: Manifest) -> Iterator[str]:
    if any(known.solutions or known.tuned for known in manifest.problems.values()):
        yield "solutions and tuned parameters of the problems are another device's, they are left out"
    if any(manifest.asked_by.values()):
        yield "who asked for a key is not known for another device, it is left out"
    if manifest.profile or manifest.find_db:
        yield "key profile and find-db of the header are another device's, they are left out"
