"""Keys read back from logs in every spelling, whole and broken over lines: exact or reported, never wrong."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.miopen_logs import (
    SPELLINGS,
    TAG,
    Key,
    folded,
    hard,
    hyphens,
    keys_of,
    loading,
    lookup,
    outcome,
    read,
    sample,
    select,
    trimmed,
    words,
)

from kdbtool.miopen.logs_text import Line
from kdbtool.miopen.logs_wrap import SOFT, Fragment, join
from kdbtool.shim.trace_model import Trace

Wrap = Callable[[bytes, int], list[bytes]]
WRAPS = (hard, trimmed, words, hyphens, folded)


def doubts(trace: Trace) -> list[str]:
    return [note for note in trace.notes if note.startswith("line ")]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_key_of_the_sample(tmp_path: Path, shared: Path, spelling: str) -> None:
    keys = sample(shared)
    assert len(keys) == 20000
    trace = read(tmp_path / "a.log", *(loading(spelling, key) for key in keys))
    assert keys_of(trace) == keys and not trace.notes
    assert {lookup.hit for lookup in trace.lookups} == {None}
    assert [lookup.time_ns for lookup in trace.lookups] == list(range(1, 20001))


def test_whole_look_ups_of_the_sample(tmp_path: Path, shared: Path) -> None:
    keys = sample(shared)[::10]
    lines = [
        line
        for i, key in enumerate(keys)
        for line in lookup(SPELLINGS[i % 3], key, hit=i % 2 == 0, selects=1 + i % 2)
    ]
    trace = read(tmp_path / "a.log", *lines)
    assert keys_of(trace) == keys and not trace.notes
    assert [one.hit for one in trace.lookups] == [i % 2 == 0 for i in range(len(keys))]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("wrap", WRAPS)
def test_wrapped_at_one_width(tmp_path: Path, shared: Path, wrap: Wrap, seed: int) -> None:
    """A third of the look-ups have their Loading line alone, the others all their lines."""
    rng = random.Random(seed)
    width = rng.randint(80, 200)
    _wrapped(tmp_path, shared, wrap, rng, lambda: width)


@pytest.mark.parametrize("wrap", WRAPS)
def test_wrapped_at_any_widths(tmp_path: Path, shared: Path, wrap: Wrap) -> None:
    rng = random.Random(9)
    _wrapped(tmp_path, shared, wrap, rng, lambda: rng.randint(80, 200))


def _wrapped(tmp_path: Path, shared: Path, wrap: Wrap, rng: random.Random, width: Callable[[], int]) -> None:
    keys = rng.sample(sample(shared), 300)
    lines: list[bytes] = []
    starts: dict[int, Key] = {}
    for key in keys:
        starts[len(lines) + 1] = key
        spelling = rng.choice(SPELLINGS)
        whole = [loading(spelling, key)] if rng.random() < 0.33 else lookup(spelling, key)
        for line in whole:
            lines += wrap(line, width())
    trace = read(tmp_path / "a.log", *lines)
    found = {one.time_ns: (one.name, one.args) for one in trace.lookups}
    reported = {int(note.split()[1].rstrip(":")) for note in doubts(trace)}
    for line, key in found.items():
        assert starts[line] == key  # exact, and where it was
    for line, key in starts.items():
        assert line in found or line in reported, key
    if wrap is hard and len({len(line) for line in lines}) and width() == width():
        assert len(found) == len(keys)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), min_size=1, max_size=40),
    st.integers(60, 120),
    st.sampled_from(WRAPS),
    st.sampled_from(SPELLINGS),
    st.booleans(),
)
def test_keys_with_blanks_anywhere(
    tmp_path_factory: pytest.TempPathFactory,
    options: list[tuple[int, int]],
    width: int,
    wrap: Wrap,
    spelling: str,
    whole: bool,
) -> None:
    """Runs of blanks before options: what wraps destroy most easily."""
    args = b"".join(b" " * blanks + b"-DOPTION_%d=%d " % (i, n) for i, (blanks, n) in enumerate(options))
    key = (b"MIOpenConvDirUni.cl.o", args + b"-mcpu=gfx1030")
    lines = lookup(spelling, key) if whole else [loading(spelling, key)]
    broken = [part for line in lines for part in wrap(line, width)]
    trace = read(tmp_path_factory.getbasetemp() / "blanks.log", *broken)
    assert keys_of(trace) in ([key], []) and (trace.lookups or doubts(trace))


KEY: Key = (b"conv3x3.s.o", b" -Wa,-defsym,a=1  -Wa,-defsym,b=2 -Wa,-defsym,c=3 -mcpu=gfx906")


def test_two_statements_tell_where_one_does_not(tmp_path: Path) -> None:
    """A lost blank is known from the SELECT that is broken elsewhere; broken at the same place it is not."""
    text = loading("middle", KEY)
    cut = text.index(b"  -Wa,-defsym,b")
    broken = [text[:cut], text[cut:].lstrip()]
    assert keys_of(read(tmp_path / "a.log", *broken, select(KEY))) == [KEY]
    query = select(KEY)
    at = query.index(b"  -Wa,-defsym,b")
    trace = read(tmp_path / "b.log", *broken, query[:at], query[at:].lstrip())
    assert not trace.lookups and [note.split(":")[0] for note in trace.notes] == ["line 1"]
    at = query.index(b"defsym,c")
    assert keys_of(read(tmp_path / "c.log", *broken, query[:at], query[at:])) == [KEY]


def test_a_hyphen_at_the_end(tmp_path: Path) -> None:
    text = loading("old", KEY)
    cut = text.index(b"-defsym,c") + 1
    trace = read(tmp_path / "a.log", text[:cut], text[cut:], outcome("old", KEY, True))
    assert keys_of(trace) == [KEY] and trace.lookups[0].hit


def test_a_strange_line_is_not_taken_for_the_rest(tmp_path: Path) -> None:
    text = loading("new", KEY)
    for cut in range(len(TAG) + 40, len(text), 3):
        for strange in (b"Epoch 1: loss=0.3", b"1 -mcpu=gfx906", b"30", b"", b"[1,0]<stderr>:x=1"):
            trace = read(tmp_path / "a.log", text[:cut], strange, text[cut:], b"x" * cut)
            assert set(keys_of(trace)) <= {KEY}, (cut, strange, keys_of(trace))
            assert trace.lookups or doubts(trace), (cut, strange)


def test_the_rest_of_another_statement_is_not_taken(tmp_path: Path) -> None:
    """Two threads' wrapped lines, mixed: B1 with A2 would make a key that nobody asked for."""
    other = (KEY[0], KEY[1].replace(b"c=3", b"c=4"))
    width = 110
    a, b = hard(loading("middle", KEY), width), hard(loading("middle", other), width)
    for mixed in ([*a[:1], *b[:1], *a[1:], *b[1:]], [*a[:1], *b, *a[1:]]):
        trace = read(tmp_path / "a.log", *mixed, b"y" * width)
        assert set(keys_of(trace)) <= {KEY, other} and len(doubts(trace)) + len(trace.lookups) >= 2
    assert keys_of(read(tmp_path / "a.log", *a, *b, b"y" * width)) == [KEY, other]


def test_indented_pieces(tmp_path: Path) -> None:
    parts = hard(loading("new", KEY), 60)
    indented = [parts[0], *(b"    " + part for part in parts[1:])]
    trace = read(tmp_path / "a.log", *indented)
    assert not trace.lookups and doubts(trace)


def test_the_features_of_a_target_id_on_the_next_line(tmp_path: Path) -> None:
    text = loading("new", (KEY[0], KEY[1].replace(b"gfx906", b"gfx90a:sramecc+:xnack-")))
    cut = text.index(b":sramecc")
    trace = read(tmp_path / "a.log", text[:cut], text[cut:], b"z" * cut)
    assert [args[-21:] for _, args in keys_of(trace)] == [b"gfx90a:sramecc+:xnack-"[-21:]]
    trace = read(tmp_path / "a.log", text[:cut], text[cut:], b"z" * 300)  # no wrap of that width
    assert not trace.lookups and doubts(trace)


def test_fragments() -> None:
    lines = [Line(1, b"a" * 50), Line(2, b"b")]
    assert SOFT in join(lines, [b"-DA=1", b"-DB=2"], 50, True)
    assert join(lines, [b"-DA=1 ", b"-DB=2"], 50, True) == b"-DA=1 -DB=2"
    assert SOFT in join(lines, [b"-DA=1 ", b"-DB=2"], 50, False)
    one = Fragment.of(b"k.o", b" -DA\0-DB -DC")
    two = Fragment.of(b"k.o", b" -DA  -DB\0-DC")
    assert one.key() is None and one.agrees(two) and one.merged(two).key() == (b"k.o", b" -DA  -DB -DC")
    assert not one.agrees(Fragment.of(b"k.o", b"-DA -DB -DC"))
    assert not one.agrees(Fragment.of(b"l.o", b" -DA -DB -DC"))
