"""Which convolution solvers a MIOpen has, by release and out of an installed libMIOpen.

A find-db names solvers. MIOpen knows a name from its registry (src/solver.cpp `SolverRegistrar`), and keeps
code for immediate mode only for those that `RegisterWithSolver` put there: an `AnySolver`. A name without one
(fusion, since ROCm 5.5) is taken for valid and then called through a null pointer (src/ocl/convolutionocl.cpp
`GetSolutions`). A solver whose back end (MLIR, Composable Kernel) was left out of the build is registered
with code that applies to nothing.

In a library, stripped or not, every `AnySolver` leaves the name of its type; nothing is executed to read it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from itertools import islice
from pathlib import Path

from kdbtool.errors import KdbtoolError
from kdbtool.miopen.elfread import Library
from kdbtool.miopen.versions import MiopenBuild

MAX_NAMES = 20_000

_ANY_SOLVER = re.compile(
    rb"(?<=\0)N6miopen6solver9AnySolver14AnySolver_tmplIN(?:S[0-9A-Z]*_)([0-9A-Za-z_]{1,200})EEE\0"
)
# The text that SolverDbId is cut out of (src/include/miopen/type_name.hpp; `T` from 6.4 on).
_TYPE_NAME = re.compile(
    rb"type_name\(\) \[(?:with )?(?:T|MIOpen_Private_TypeName_) = miopen::solver::"
    rb"((?:\w{1,60}::){0,3}\w{1,100}(?:<[0-9u, ]{1,60}>)?)[;\]]"
)
_APPLICABLE = "_ZNK6miopen6solver"
# endbr64; xor eax, eax; ret: an IsApplicable that is `return false`
_FALSE = (b"\x31\xc0\xc3", b"\xf3\x0f\x1e\xfa\x31\xc0\xc3")
_LENGTH = re.compile(r"[1-9][0-9]{0,2}")
_ARGUMENT = re.compile(r"L[a-z]([0-9]{1,9})E")
# Where SolverDbId is not the name of the class (src/include/miopen/conv/solvers.hpp, from 5.3 on).
RENAMED = {"ConvBinWinoRxS<2-3>": "ConvBinWinogradRxSf2x3", "ConvBinWinoRxS<3-2>": "ConvBinWinogradRxSf3x2"}
_MLIR = re.compile(r"ConvMlirIgemm")
_CK = re.compile(r"ConvHipImplicitGemm(?:Group|3DGroup|F16F8F16)?(?:Fwd|Bwd|Wrw)Xdlops\Z")
_BACK_ENDS = ((_MLIR, (b"MIIR_BUILD_FAILURE",)), (_CK, (b"2ck16tensor_operation", b"libMIOpenCK")))


@dataclass(frozen=True)
class SolverSet:
    """Names of solvers. No name is in two of them."""

    usable: frozenset[str]  # with code for immediate mode
    without_code: frozenset[str]  # valid names that crash when a find-db brings them up
    left_out: frozenset[str]  # their back end was not built in: never applicable


def solvers_of(build: MiopenBuild) -> frozenset[str]:
    """The convolution solvers that `build` can run when a find-db names them."""
    return solver_set(build).usable


def solver_set(build: MiopenBuild) -> SolverSet:
    """The solvers of a release (as data) or of a library (read out of it); KdbtoolError where it has none."""
    if build.path is not None:
        return from_library(build.path)
    name = build.rocm if build.rocm == "develop" else ".".join(build.rocm.split(".")[:2])
    if name not in _lists():
        raise KdbtoolError(
            f"no list of solvers for MIOpen {name}",
            why=f"known: {', '.join(_lists())}",
            hint="name one of them, or the path of a libMIOpen.so",
        )
    return _lists()[name]


@functools.cache
def solver_ids() -> dict[str, int]:
    """The number of each solver name that any known release has, as the API's solution_id."""
    return {name: int(number) for name, number, *_ in _rows()}


def from_library(path: Path) -> SolverSet:
    """The solvers of the libMIOpen at `path`."""
    with Library(path) as library:
        own = {_name(library, mangled) for mangled in _found(library, _ANY_SOLVER)}
        if not own:
            raise KdbtoolError(
                "no solvers in the library",
                where=path,
                why="no type of an AnySolver in it: not a libMIOpen, or built without run-time types",
                hint="name the release with --miopen VERSION",
            )
        left_out = frozenset(_left_out(library, own))
        names = {_plain(text) for text in _found(library, _TYPE_NAME)}
    return SolverSet(frozenset(own) - left_out, frozenset(names - own), left_out)


def _found(library: Library, pattern: re.Pattern[bytes]) -> list[str]:
    """What the pattern's group matched, each once. No match is kept: it would hold the library's map."""
    found = {match[1] for match in islice(library.search(pattern), MAX_NAMES + 1)}
    if len(found) > MAX_NAMES:
        raise library.damaged(ValueError(f"over {MAX_NAMES} solver types"))
    return sorted(mangled.decode("ascii") for mangled in found)


def _left_out(library: Library, own: set[str]) -> Iterator[str]:
    """Solvers whose IsApplicable is just `return false`; by their back ends' marks where it is hidden."""
    seen = set()
    for symbol in library.symbols(_APPLICABLE):
        mangled, found, _ = symbol.name[len(_APPLICABLE) :].partition("12IsApplicableE")
        name = _demangled(mangled) if found else None
        if name in own:
            seen.add(name)
            if 0 < symbol.size <= 16 and library.read(symbol.address, symbol.size).startswith(_FALSE):
                yield name
    for names, marks in _BACK_ENDS:
        hidden = [name for name in own - seen if names.match(name)]
        if hidden and not any(library.map.find(mark) >= 0 for mark in marks):
            yield from hidden


def _plain(text: str) -> str:
    """`fusion::ConvWinoFuryRxSFused<2u, 3u>` as SolverDbId writes it."""
    name = re.sub(r"[u ]", "", text[text.index("<") :]) if "<" in text else ""
    name = text.partition("<")[0].rpartition("::")[2] + name.replace(",", "-")
    return RENAMED.get(name, name)


def _name(library: Library, mangled: str) -> str:
    name = _demangled(mangled)
    if name is None:
        raise library.damaged(ValueError(f"a solver type that cannot be read: {mangled[:80]}"))
    return name


def _demangled(text: str) -> str | None:
    """`4conv14ConvBinWinoRxSILi2ELi3EE` as MIOpen's SolverDbId: the last name, `<2-3>` for arguments.

    Arguments equal to their defaults, the first two, are not written.
    """
    name = arguments = ""
    while text:
        length = _LENGTH.match(text)
        if length is None:
            break
        end = length.end() + int(length[0])
        if end > len(text):
            return None
        name, text = text[length.end() : end], text[end:]
    if text.startswith("I"):
        numbers = _ARGUMENT.findall(text)
        if not numbers or text != "I" + "".join(m[0] for m in _ARGUMENT.finditer(text)) + "E":
            return None
        if len(numbers) == 4 and numbers[:2] == numbers[2:]:
            numbers = numbers[:2]
        arguments, text = f"<{'-'.join(numbers)}>", ""
    if text or not name:
        return None
    return RENAMED.get(name + arguments, name + arguments)


@functools.cache
def _data() -> str:
    return (resources.files("kdbtool.miopen") / "data" / "solvers.tsv").read_text("ascii")


def _rows() -> Iterator[list[str]]:
    for line in _data().splitlines():
        if not line.startswith("#"):
            yield line.split("\t")


@functools.cache
def _lists() -> dict[str, SolverSet]:
    letters = dict(re.findall(r"^# ([a-z]) (\S+)$", _data(), re.MULTILINE))
    sets: dict[str, tuple[set[str], set[str], set[str]]] = {c: (set(), set(), set()) for c in letters}
    for name, _, *columns in _rows():
        for index, column in enumerate(columns):
            for letter in column.strip("-"):
                sets[letter][index].add(name)
    return {letters[key]: SolverSet(*map(frozenset, parts)) for key, parts in sets.items()}
