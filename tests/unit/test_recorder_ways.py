"""The linkage matrix: each way into HIP, with and without LD_AUDIT: seen, unchanged, to the right library."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.standins import Standins, compile_standin, python, same, standins, traces

from kdbtool.shim import libs

__all__ = ["standins", "traces"]  # fixtures

PLAIN, AUDIT = False, True
# what is loaded, audited or not, launches that are seen, libraries that are said to be out of reach
MATRIX = [
    (("local", 1), PLAIN, 3, 0),
    (("local", 1), AUDIT, 3, 0),
    (("global", 1), PLAIN, 3, 0),
    (("global", 1), AUDIT, 3, 0),
    (("local", 1, "local", 2), PLAIN, 6, 0),
    (("local", 1, "local", 2), AUDIT, 6, 0),
    (("deepbind", 1), PLAIN, 0, None),  # nothing was seen: no trace
    (("deepbind", 1), AUDIT, 3, 1),
    (("lazy-deepbind", 1), AUDIT, 3, 1),
    (("local", 1, "deepbind", 2), PLAIN, 3, 1),
    (("local", 1, "deepbind", 2), AUDIT, 6, 1),
    (("deepbind", 1, "deepbind", 2), AUDIT, 6, 2),
    (("namespace", 1), PLAIN, 0, None),
    (("namespace", 1), AUDIT, 3, 1),
    (("local", 1, "namespace", 1), PLAIN, 3, 1),
    (("local", 1, "namespace", 1), AUDIT, 6, 1),
    (("namespace", 1, "namespace", 2, "local", 1), AUDIT, 9, 2),
    (("global", 1, "default"), PLAIN, 4, 0),
    (("global", 1, "default"), AUDIT, 4, 0),
    (("local", 1, "default"), PLAIN, 3, 0),  # not in the program's scope
    (("local", 1, "default"), AUDIT, 3, 0),
    (("default",), PLAIN, 0, None),
    (("default",), AUDIT, 0, None),
]


@pytest.fixture(scope="module")
def ways(standins: Standins) -> Path:
    compile_standin(standins.folder / "ways", "ways.c")
    return standins.folder / "ways"


def arguments(standins: Standins, what: tuple[object, ...]) -> list[object]:
    users = {1: standins.folder / "libuser1.so", 2: standins.folder / "other" / "libuser2.so"}
    return [users[x] if isinstance(x, int) else x for x in what]


def audited(on: bool) -> dict[str, str]:
    # Both stand-in HIPs have one soname: each user finds the one beside it.
    return {"LD_LIBRARY_PATH": "-"} | ({"LD_AUDIT": str(libs.audit())} if on else {})


@pytest.mark.parametrize(("what", "audit", "seen", "unreached"), MATRIX)
def test_way(
    standins: Standins,
    ways: Path,
    traces: Path,
    what: tuple[object, ...],
    audit: bool,
    seen: int,
    unreached: int | None,
) -> None:
    ran = same(standins, traces, ways, *arguments(standins, what), env=audited(audit))
    assert ran.code == 0
    if unreached is None:
        assert ran.traces == []
        return
    assert len(ran.trace.launches) == seen
    notes = [note for note in ran.trace.notes if "RTLD_DEEPBIND" in note]
    assert notes == ([note for note in notes if note.startswith(f"{unreached} ")] if unreached else [])
    assert bool(notes) == bool(unreached)


@pytest.mark.parametrize("audit", [PLAIN, AUDIT])
def test_linked_and_by_pointer_is_seen_once(standins: Standins, traces: Path, audit: bool) -> None:
    env = {"LD_AUDIT": str(libs.audit())} if audit else {}
    ran = same(standins, traces, "linked", "linked", env=env)
    assert (len(ran.trace.launches), len(ran.trace.lookups), len(ran.trace.problems)) == (3, 2, 1)
    other = traces.parent / "other"
    other.mkdir()
    ran = same(standins, other, "loader", "dlsym", env=env)
    assert (len(ran.trace.launches), len(ran.trace.lookups), len(ran.trace.problems)) == (3, 2, 1)


@pytest.mark.parametrize("audit", [PLAIN, AUDIT])
@pytest.mark.parametrize(("place", "seen"), [("before", 20), ("after", 10)])
def test_another_preload_is_not_counted_twice(
    standins: Standins, traces: Path, place: str, seen: int, audit: bool
) -> None:
    wrap = str(standins.folder / "libwrap.so")
    env = {"LD_AUDIT": str(libs.audit())} if audit else {}
    ran = standins.run(traces, "linked", "threads", 1, 10, env=env, **{place: wrap})  # type: ignore[arg-type]
    assert (ran.code, ran.out) == (0, "20\n")
    assert len(ran.trace.launches) == seen


@pytest.mark.parametrize("mode", ["RTLD_LOCAL", "RTLD_GLOBAL", "RTLD_LOCAL | os.RTLD_DEEPBIND"])
@pytest.mark.parametrize("audit", [PLAIN, AUDIT])
def test_from_python(standins: Standins, traces: Path, mode: str, audit: bool) -> None:
    user = str(standins.folder / "libuser1.so")
    code = python(f"import ctypes, os; print(ctypes.CDLL({user!r}, os.{mode}).g(3))")
    ran = same(standins, traces, *code, env=audited(audit))
    assert ran.out == "1003\n"
    if "DEEPBIND" in mode and not audit:
        assert ran.traces == []
    else:
        assert len(ran.trace.launches) == 3


@pytest.mark.parametrize("audit", [PLAIN, AUDIT])
def test_weak_reference_in_a_program_without_hip(
    standins: Standins, ways: Path, traces: Path, audit: bool
) -> None:
    """ld.so binds it to the preload whatever we do (docs/recorder.md): the call says that it failed."""
    ran = standins.run(traces, ways, "weak", env=audited(audit))
    assert (ran.code, ran.out, ran.err, ran.traces) == (0, "999\n", "", [])


def test_audit_library_without_the_recorder_is_nothing(standins: Standins, ways: Path) -> None:
    user = standins.folder / "libuser1.so"
    plain = standins.run(None, ways, "deepbind", user, env=audited(PLAIN))
    ran = standins.run(None, ways, "deepbind", user, env=audited(AUDIT))
    assert (ran.code, ran.out, ran.err) == (plain.code, plain.out, plain.err) == (0, "1003\n", "")


def test_inert_recorder_under_audit(standins: Standins, ways: Path, traces: Path) -> None:
    env = audited(AUDIT) | {"KDBTOOL_TRACE_DIR": "-"}
    ran = standins.run(traces, ways, "deepbind", standins.folder / "libuser1.so", "default", env=env)
    assert (ran.code, ran.out, ran.traces) == (0, "1003\nnone error -1\n", [])


def test_more_libraries_than_slots_are_each_forwarded_to(
    standins: Standins, ways: Path, traces: Path, tmp_path: Path
) -> None:
    """Six namespaces, so six HIPs: four are seen under audit, all six get their own calls."""
    folder = tmp_path / "six"
    folder.mkdir()
    user = standins.folder / "libuser1.so"
    what = [x for _ in range(6) for x in ("namespace", user)]
    ran = same(standins, traces, ways, *what, env=audited(AUDIT))
    assert ran.out == "1003\n" * 6  # one HIP for all would have said 1003, 1006, ...
    assert len(ran.trace.launches) == 12


def test_audit_of_a_program_that_is_no_business_of_ours(standins: Standins, traces: Path) -> None:
    assert same(standins, traces, *python("print('no HIP here')"), env=audited(AUDIT)).traces == []
