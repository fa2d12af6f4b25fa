"""The selection's grammar, its pattern, and what it keeps of a trace that is read."""

from __future__ import annotations

import argparse
import contextlib
import signal
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.traces import block, header, kernel, launches, pair, read, record, shape, struct

from kdbtool.cli import options
from kdbtool.errors import KdbtoolError
from kdbtool.shim._trace import lib
from kdbtool.shim.selection import Selection, raw_name_only
from kdbtool.shim.trace_model import Clock, Facts, Launches, Shape, Trace


@pytest.mark.parametrize(
    "text",
    [
        "kernel",
        "=x",
        "kernel=",
        "kernel=(",
        "kernel=a\nkernel=b",
        "kernel=[[:nothing:]]",
        "kernel=a\\",
        "kernel=a{2,1}",
        "kernel=" + "a" * 5000,
        "Kernel=a",
        " every=2",
        "every=0",
        "every=-1",
        "every=+1",
        "every= 1",
        "every=1 ",
        "every=1x",
        "every=18446744073709551616",
        "every=99999999999999999999999",
        "first=0",
        "first=",
        "iterations=5",
        "iterations=:",
        "iterations=5:5",
        "iterations=6:5",
        "iterations=-1:5",
        "iterations=1:2:3",
        "iterations=0:99999999999999999999",
        "device=",
        "device=a",
        "device=1,",
        "device=,1",
        "device=1,,2",
        "device=2-1",
        "device=1-",
        "device=0-1-2",
        "device=4294967296",
        "device=" + ",".join(map(str, range(65))),
        "rank=-1",
        "rank=1;2",
        "region=",
        "paused=0",
        "paused=1",
        "paused=yes",
        "signal=0",
        "signal=9",
        "signal=11",
        "signal=19",
        "signal=32",
        "signal=65",
        "signal=USR2",
        "region=r\n" * 17,
        "kernel=a\0b",
    ],
)
def test_what_is_no_selection(text: str) -> None:
    with pytest.raises(KdbtoolError) as error:
        Selection.parse(text)
    assert "\n" not in error.value.line() and len(error.value.line()) < 400


@given(st.text(max_size=60).map(lambda text: f"every={text}") | st.text(max_size=300))
def test_any_text_is_taken_or_refused(text: str) -> None:
    with contextlib.suppress(KdbtoolError, UnicodeEncodeError):
        Selection.parse(text)


def test_text_of_options() -> None:
    made = Selection.of(
        kernel="^a=b", every="2", first="3", iterations="4:", device="0,2-3", rank="1", regions=("x", "y z")
    )
    assert made.text == (
        "kernel=^a=b\nevery=2\nfirst=3\niterations=4:\ndevice=0,2-3\nrank=1\nregion=x\nregion=y z\n"
    )
    assert Selection.parse(made.text) == made and made and not Selection.of()
    with pytest.raises(KdbtoolError, match="line break"):
        Selection.of(regions=("a\nsignal=10",))


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        ("conv", "miopen_conv_1x1", True),
        ("^conv", "miopen_conv_1x1", False),
        ("a|b", "xb", True),
        ("x{2}$", "axx", True),
        ("[[:alpha:]]+_[0-9]", "ab_1", True),
        ("[[:upper:]]", "abc", False),
        ("^.$", "ä", False),  # two bytes in the C locale
        (".", "", False),
        ("", "anything", True),
        ("A", "a", False),
        (r"a\.b", "axb", False),
    ],
)
def test_pattern(pattern: str, name: str, found: bool) -> None:
    assert (Selection.of(kernel=pattern) if pattern else Selection.of()).matches(name) is found


@pytest.mark.parametrize(
    "pattern", ["a::b", "f(int, float)", "vector<int>", "operator &", "void f", "a,b", "(x|y):z", "[a]:"]
)
def test_demangled_names_are_refused(pattern: str) -> None:
    with pytest.raises(KdbtoolError, match="symbols"):
        raw_name_only(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["^a(b|c)*$", "[[:alpha:]]x", "a{1,3}", r"\<conv\>", "[^]:]x", "[:, ]?x", "_ZN2ck.*E", "Cijk_+"],
)
def test_names_as_they_stand_are_taken(pattern: str) -> None:
    assert raw_name_only(pattern) == pattern and Selection.of(kernel=pattern)


def test_signals_and_sizes() -> None:
    names = {"USR2": signal.SIGUSR2, "sigusr1": signal.SIGUSR1, "RTMIN+3": signal.SIGRTMIN + 3}
    assert {name: options.signal_number(name) for name in names} == names
    sizes = {"1": 1, "4K": 4096, "500M": 500 << 20, "2g": 2 << 30}
    assert {text: options.byte_size(text) for text in sizes} == sizes
    for wrong in ("", "USR3", "12", "RTMIN+99", "USR1+1", "RTMIN+-1", "SIG", "_IGN", "DFL"):
        with pytest.raises(argparse.ArgumentTypeError):
            options.signal_number(wrong)
    for wrong in ("", "0", "-1", "1.5G", "2 G", "2T", "2GB", "G", "9" * 20, "999999999999999G"):
        with pytest.raises(argparse.ArgumentTypeError):
            options.byte_size(wrong)


# ---- a trace that is read ----


def made_of(*threads: list[tuple[str, int, int]]) -> Launches:
    """Each thread's launches: kernel, device, time (ns)."""
    shapes: dict[tuple[str, int], int] = {}
    runs = []
    for thread, events in enumerate(threads, 1):
        pairs, last = [], 0
        for name, device, time in events:
            pairs += [shapes.setdefault((name, device), len(shapes) + 1), time - last]
            last = time
        data = b"".join(number.to_bytes(4, "little") for number in pairs)
        runs.append((thread, 0, memoryview(data).cast("I")))
    one = (1, 1, 1)
    known: dict[int, Shape] = {
        number: (name, None, one, one, 0, device, 0, "module", False)
        for (name, device), number in shapes.items()
    }
    return Launches(known, runs, Clock(0, 0, [(0, 0), (10**9, 10**9)]))


def whole(launches: Launches) -> Trace:
    unknown = dict.fromkeys(Facts.__dataclass_fields__) | {"unselected": 0, "role": "host"}
    return Trace(Path("x"), Facts(**unknown), launches=launches)  # type: ignore[arg-type]


EVENT = st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(1, 3))
THREADS = st.lists(st.lists(EVENT, max_size=12), min_size=1, max_size=3)
NUMBER = st.none() | st.integers(1, 4)


@settings(max_examples=200, deadline=None)
@given(THREADS, NUMBER, NUMBER, NUMBER, st.sampled_from([None, "a", "."]), st.sampled_from([None, "1-2"]))
def test_what_is_kept_is_what_the_rules_say(
    steps: list[list[tuple[str, int, int]]],
    every: int | None,
    first: int | None,
    begin: int | None,
    pattern: str | None,
    device: str | None,
) -> None:
    """Against the definition, written plainly. No two launches are at one time."""
    threads = []
    for thread, one in enumerate(steps):
        at, events = thread, []
        for name, on, step in one:
            at += step * len(steps)
            events.append((name, on, at))
        threads.append(events)
    iterations = f"{begin}:{begin + 3}" if begin else None
    selection = Selection.of(
        kernel=pattern,
        every=str(every) if every else None,
        first=str(first) if first else None,
        iterations=iterations,
        device=device,
    )
    every_one = sorted((at, t, name, on) for t, one in enumerate(threads, 1) for name, on, at in one)
    passing = [e for e in every_one if (pattern != "a" or e[2] == "a") and (not device or e[3] in (1, 2))]
    expected = []
    for _, group in groupby(sorted(passing, key=lambda e: (e[2], e[3], e[0])), key=lambda e: e[2:]):
        kept = list(group)[begin or 0 : begin + 3 if begin else None]
        expected += kept[: first or None][:: every or 1]
    trace = whole(made_of(*threads))
    got = selection.trace(trace)
    assert sorted((x.time_ns, x.thread, x.kernel, x.device) for x in got.launches) == sorted(expected)
    assert got.facts.unselected == (len(every_one) - len(expected) if selection else 0)


def test_far_apart_launches_keep_their_times() -> None:
    """What is left out between two may be more than a delta can say."""
    far = 3_000_000_000
    events = [("a" if i % 3 == 0 else "b", 0, i * far) for i in range(1, 10)]
    trace = whole(made_of(events))
    got = Selection.of(kernel="a").launches(trace)
    assert [x.time_ns for x in got] == [3 * far, 6 * far, 9 * far] and len(got) == 3


def test_a_million_launches_of_four_threads() -> None:
    events = [[("ab"[i % 2], 0, 4 * i + t) for i in range(1, 250_001)] for t in range(4)]
    got = Selection.of(every="100").launches(whole(made_of(*events)))
    assert got.by_kernel() == {"a": 5000, "b": 5000}


def ranged(op: int, name: int = 0, id: int = 0, *, ticks: int) -> bytes:
    return record(lib.KDBT_RANGE, struct("range", op=op, name=name, id=id), ticks=ticks)


NAMES = [record(lib.KDBT_RANGE_NAME, text, id=i) for i, text in ((1, b"train"), (2, b"eval"), (3, b"train2"))]
SHAPES = [kernel(10, b"k"), shape(11, 10)]


def at(*ticks: int) -> bytes:
    return b"".join(launches((11, 0), ticks=one) for one in ticks)


def test_regions_count_ranges_of_all_threads(tmp_path: Path) -> None:
    """A pop closes its own thread's; a name must be the whole name; what is never closed stays open."""
    trace = read(
        tmp_path / "x.kdbtrace",
        header(),
        block(*NAMES, *SHAPES, at(3000), ranged(lib.KDBT_RANGE_PUSH, 1, ticks=3100),
              at(3150), ranged(lib.KDBT_RANGE_PUSH, 2, ticks=3200), ranged(lib.KDBT_RANGE_POP, ticks=3300),
              at(3350), ranged(lib.KDBT_RANGE_POP, ticks=3400), ranged(lib.KDBT_RANGE_POP, ticks=3410),
              at(3450, 3550, 3650, 3750), thread=1),
        block(ranged(lib.KDBT_RANGE_START, 1, 7, ticks=3500), ranged(lib.KDBT_RANGE_PUSH, 3, ticks=3520),
              ranged(lib.KDBT_RANGE_STOP, 0, 7, ticks=3600), ranged(lib.KDBT_RANGE_START, 1, 8, ticks=3700),
              thread=2),
    )  # fmt: skip
    assert [o.op for o in trace.ranges if o.thread == 1] == ["push", "push", "pop", "pop", "pop"]
    begin = next(iter(trace.launches)).time_ns - 3000
    got = Selection.of(regions=("train",)).trace(trace)
    assert [x.time_ns - begin for x in got.launches] == [3150, 3350, 3550, 3750]
    assert got.facts.unselected == 3
    assert len(Selection.of(regions=("nothing",)).launches(trace)) == 0
    both = Selection.of(regions=("train", "train2")).launches(trace)
    assert [x.time_ns - begin for x in both] == [3150, 3350, 3550, 3650, 3750]


@pytest.mark.parametrize(("rank", "count"), [("0", 0), ("1-3", 2), ("3", 2)])
def test_another_rank_holds_nothing(tmp_path: Path, rank: str, count: int) -> None:
    trace = read(
        tmp_path / "x.kdbtrace",
        header(),
        block(record(lib.KDBT_FACT, pair(b"rank", b"3")), *SHAPES, at(3000, 3001)),
    )
    got = Selection.of(rank=rank).trace(trace)
    assert (len(got.launches), got.facts.unselected) == (count, 2 - count)
