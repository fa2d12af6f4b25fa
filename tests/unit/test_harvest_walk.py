"""The driver, the recorder and the answering library together, over a stand-in libMIOpen."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.standins import compile_standin

from kdbtool.errors import KdbtoolError
from kdbtool.harvest import steps, walk
from kdbtool.harvest.steps import FOUND_BY_FIND, Found
from kdbtool.harvest.wanted import Failure, Wanted, Why
from kdbtool.shim import libs
from kdbtool.targets import split_target

A = "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP32-F"
B = "128-28-28-3x3-64-56-56-2-1x1-2x2-1x1-0-NCHW-FP16-B_g4"
W3 = "8-4-4-4-3x3x3-8-4-4-4-1-1x1x1-1x1x1-1x1x1-0-NCDHW-BF16-W"
REFUSED = "13-8-8-1x1-8-8-8-1-0x0-1x1-1x1-0-NCHW-FP32-F"
# what harvest_miopen.c does by number
IDS = {
    "Dies": 1,
    "Hangs": 2,
    "Unfit": 3,
    "Silent": 4,
    "Fails": 5,
    "Good": 11,
    "Fine": 12,
    "First": 85,
    "Next": 86,
}

Walk = Callable[..., Found]
Asked = set[tuple[int, str, str, str]]  # place, solver, name, arguments


@pytest.fixture(scope="module")
def miopen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stand-in and its SQLite."""
    folder = tmp_path_factory.mktemp("harvest-miopen")
    compile_standin(folder / "libsqlite3.so.0", "sqlite.c", "-Wl,-soname,libsqlite3.so.0")
    hip = libs.simgpu_dir() / "libamdhip64.so.6"
    linked = ["-Wl,--no-as-needed", str(folder / "libsqlite3.so.0"), str(hip)]
    compile_standin(folder / "libMIOpen.so.1", "harvest_miopen.c", "-Wl,-soname,libMIOpen.so.1", *linked)
    return folder


@pytest.fixture
def walked(tmp_path: Path, miopen: Path, monkeypatch: pytest.MonkeyPatch) -> Walk:
    for module in (walk, steps):
        monkeypatch.setattr(module, "solver_ids", lambda: IDS)
    steps._names.cache_clear()
    monkeypatch.setattr(steps, "_names", lambda: {number: name for name, number in IDS.items()})

    def run(*wanted: Wanted, seconds: int = 60) -> Found:
        base = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(miopen)}
        setup = walk.Setup(
            None,
            split_target("gfx1030:36"),
            libs.lib_dir(),
            tmp_path,
            seconds,
            find_db_name="x.ufdb.txt",
            base=base,
        )
        found = walk.walk(setup, wanted)
        assert list(tmp_path.iterdir()) == []
        return found

    return run


def named(found: Found) -> Asked:
    return {
        (place, solver, *(part.decode() for part in found.keys[key])) for place, solver, key in found.asked
    }


def of(
    place: int, solver: str, way: str, number: int, *hows: str, groups: int = 1
) -> set[tuple[int, str, str, str]]:
    own = {(place, solver, f"{way}{number}.cl.o", f" -DBY={how},g{groups} -mcpu=gfx1030") for how in hows}
    return own | {(place, solver, "all.cl.o", " -mcpu=gfx1030")}


def test_each_solver_compiles_and_executes_in_each_direction(walked: Walk) -> None:
    found = walked(
        Wanted(A, "ids", ("Good", "Fine")), Wanted(B, "ids", ("Good",)), Wanted(W3, "ids", ("Good",))
    )
    both = ("compile", "execute")
    assert named(found) == (
        of(0, "Good", "Forward", 11, *both)
        | of(0, "Fine", "Forward", 12, *both)
        | of(1, "Good", "BackwardData", 11, *both, groups=4)
        | of(2, "Good", "BackwardWeights", 11, *both)
    )
    assert (found.failures, found.compilers, found.miopen) == ([], 0, "3.4.0")


def test_find_asks_and_what_it_found_runs(walked: Walk) -> None:
    found = walked(Wanted(A, "find"), Wanted(B, "find"))
    assert named(found) == of(0, FOUND_BY_FIND, "Forward", 9, "find", "run") | of(
        1, FOUND_BY_FIND, "BackwardData", 9, "find", "run", groups=4
    )


def test_what_is_offered_is_asked_for(walked: Walk, monkeypatch: pytest.MonkeyPatch) -> None:
    found = walked(Wanted(A, "offered", record=f"{A}=First:1,0,x"))
    both = ("compile", "execute")
    assert named(found) == of(0, "First", "Forward", 85, *both) | of(0, "Next", "Forward", 86, *both)


def test_one_that_dies_hangs_or_refuses_costs_itself_alone(walked: Walk) -> None:
    found = walked(
        Wanted(A, "ids", ("Good", "Dies", "Silent", "Hangs", "Fine")),
        Wanted(B, "ids", ("Fails", "Unfit", "Good")),
        Wanted(REFUSED, "ids", ("Good",)),
        Wanted(W3, "ids", ("Dies",)),
        seconds=1,
    )
    both = ("compile", "execute")
    assert named(found) == (
        of(0, "Good", "Forward", 11, *both)
        | of(0, "Fine", "Forward", 12, *both)
        | of(1, "Good", "BackwardData", 11, *both, groups=4)
    )
    assert sorted(found.failures) == sorted([
        Failure(A, "Dies", Why.CRASHED, "ended by SIGSEGV"),
        Failure(A, "Silent", Why.NO_KERNEL),
        Failure(A, "Hangs", Why.HUNG, "ended by SIGALRM"),
        Failure(B, "Fails", Why.FAILED, "CompileSolution: unknown error"),
        Failure(B, "Unfit", Why.NOT_APPLICABLE),
        Failure(REFUSED, "", Why.FAILED, "its descriptors: bad parameter"),
        Failure(W3, "Dies", Why.CRASHED, "ended by SIGSEGV"),
    ])  # fmt: skip


def test_the_same_walk_gives_the_same(walked: Walk) -> None:
    wanted = [Wanted(B, "ids", ("Fine", "Good")), Wanted(A, "find"), Wanted(A, "ids", ("Dies", "Good"))]
    assert walked(*wanted) == walked(*wanted)


def test_a_libmiopen_that_is_not_there_is_one_line(
    walked: Walk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(walk, "_SONAME", "libNoSuchMIOpen.so.1")
    with pytest.raises(KdbtoolError) as raised:
        walked(Wanted(A, "find"))
    assert "the harvest's driver cannot run" in raised.value.line()
    assert "libNoSuchMIOpen.so.1: cannot open" in raised.value.line()
