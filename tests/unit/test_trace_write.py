"""Traces written of what a log says: they read back equal."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import traces
from support.miopen_logs import FP32, NAIVE, loading, lookup, read

from kdbtool.errors import KdbtoolError
from kdbtool.shim._trace import lib
from kdbtool.shim.trace import read_trace
from kdbtool.shim.trace_model import Facts, Lookup, Problem, Trace
from kdbtool.shim.trace_write import write_trace


def facts(values: dict[str, str], start: int = 0) -> Facts:
    return Facts(
        pid=0, ppid=0, host="", exe="", role="host", start_ns=start,
        miopen_version=values.get("miopen.version"), miopen_path=values.get("miopen.path"),
        miopen_build_id=None, hip_version=None, hip_path=None, device=values.get("device.0"), cu=None,
        simulated=False, overrides={}, rank=None, all=values,
    )  # fmt: skip


names = st.binary(min_size=1, max_size=40)
lookups = st.builds(
    Lookup,
    name=names,
    args=st.binary(max_size=3000),
    hit=st.sampled_from([True, False]),
    databases=st.just(()),
    thread=st.integers(1, 5),
    time_ns=st.integers(0, 1 << 40),
)
problems = st.builds(
    Problem,
    key=st.sampled_from(["3-8-8-3x3-4-8-8-2-1x1-1x1-1x1-0-NCHW-FP32-F"]),
    api=st.text(max_size=20),
    direction=st.just("F"),
    algorithm=st.none() | st.integers(0, 9),
    solution=st.none() | st.integers(1, 1000),
    workspace=st.integers(0, 1 << 60),
    result=st.integers(-5, 9),
    thread=st.integers(1, 5),
    time_ns=st.integers(0, 1 << 40),
    duration_ns=st.integers(0, 1 << 40),
)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(lookups, max_size=30),
    st.lists(problems, max_size=5),
    st.dictionaries(st.text(min_size=1), st.text()),
)
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory,
    asked: list[Lookup],
    called: list[Problem],
    values: dict[str, str],
) -> None:
    asked.sort(key=lambda one: one.thread)
    called.sort(key=lambda one: one.thread)
    values = {k: v for k, v in values.items() if "." not in k and k not in ("simulated", "rank")}
    path = tmp_path_factory.getbasetemp() / "round.kdbtrace"
    write_trace(path, Trace(path, facts(values), asked, called), force=True)
    again = read_trace(path)
    assert again.lookups == asked and again.problems == called and again.facts == facts(values)
    assert not again.notes and not again.modules and not len(again.launches)


def test_same_input_same_bytes(tmp_path: Path) -> None:
    trace = read(tmp_path / "a.log", *lookup("new", NAIVE), loading("old", NAIVE))
    for name in ("a", "b"):
        write_trace(tmp_path / f"{name}.kdbtrace", trace)
    assert (tmp_path / "a.kdbtrace").read_bytes() == (tmp_path / "b.kdbtrace").read_bytes()
    assert (tmp_path / "a.kdbtrace").stat().st_mode & 0o777 == 0o600
    assert read_trace(tmp_path / "a.kdbtrace").facts.all["source"] == "log"


def test_blocks_of_a_megabyte(tmp_path: Path) -> None:
    """More than one block per thread; a record larger than a block has one of its own."""
    keys = [(b"k%d.cl.o" % i, b" -DA=" + b"1" * 900 + FP32) for i in range(3000)]
    asked = [Lookup(*key, False, ("/a.ukdb", "/b.kdb"), 1 + i % 2, i) for i, key in enumerate(keys)]
    asked.append(Lookup(b"huge.cl.o", b"x" * 3_000_000, True, (), 3, 9))
    asked.sort(key=lambda one: one.thread)
    path = tmp_path / "a.kdbtrace"
    write_trace(path, Trace(path, facts({}), asked))
    assert read_trace(path).lookups == asked


def test_launches_are_not_lost_silently(tmp_path: Path) -> None:
    made = traces.read(
        tmp_path / "a.kdbtrace",
        traces.header(),
        traces.block(traces.kernel(1, b"k"), traces.shape(2, 1), traces.launches((2, 0))),
    )
    with pytest.raises(KdbtoolError, match="cannot write a trace with launches"):
        write_trace(tmp_path / "b.kdbtrace", made)


def test_other_events_are_not_lost_silently(tmp_path: Path) -> None:
    sample = traces.record(lib.KDBT_SAMPLE, traces.struct("sample", valid=1))
    made = traces.read(tmp_path / "a.kdbtrace", traces.header(), traces.block(sample))
    with pytest.raises(KdbtoolError, match="cannot write"):
        write_trace(tmp_path / "b.kdbtrace", made)


def test_an_empty_trace(tmp_path: Path) -> None:
    path = tmp_path / "a.kdbtrace"
    write_trace(path, Trace(path, facts({"source": "log"})))
    assert read_trace(path).facts.all == {"source": "log"}
