"""Logs of MIOpen: prefixes, spellings, outcomes, threads, encodings, what is doubtful and what is no log."""

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.miopen_logs import (
    FP32,
    NAIVE,
    SPELLINGS,
    TAG,
    keys_of,
    loading,
    lookup,
    outcome,
    read,
    select,
)

from kdbtool.errors import KdbtoolError
from kdbtool.kdb.identify import FileKind, identify
from kdbtool.miopen.logs import read_log

OTHER = (b"MIOpenIm2d2Col.cl.o", b" -DLOCAL_MEM_SIZE=340" + FP32)

PREFIXES = [
    b"",
    b"INFO - ",
    b"2024-01-02T03:04:05.678901Z ",
    b"Nov 30 23:00:01 node python3[4242]: ",
    b"[1,0]<stderr>:",
    b"worker-1  | ",
    b"0: ",
    b"\x1b[32m2024-01-02\x1b[0m ",
    b"tests/test_conv.py::test_a PASSED  [ 10%] ",
    b"50%|#####     | 5/10\r",
]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_prefixes(tmp_path: Path, prefix: bytes, spelling: str) -> None:
    lines = [prefix + line for line in lookup(spelling, NAIVE, hit=True, selects=2)]
    trace = read(tmp_path / "a.log", *lines)
    assert keys_of(trace) == [NAIVE] and trace.lookups[0].hit and not trace.notes


@pytest.mark.parametrize(
    "tag",
    [
        b"MIOpen: Info2 ",
        b"MIOpen(OpenCL): Info2 ",
        b"31337 MIOpen(HIP): Info2 ",  # MIOPEN_ENABLE_LOGGING_MPMT
        b"MIOpen(HIP)   0.123: Info2 ",  # MIOPEN_ENABLE_LOGGING_ELAPSED_TIME
        b"31337 MIOpen(HIP)12345.678: Info2 ",
    ],
)
def test_tags(tmp_path: Path, tag: bytes) -> None:
    trace = read(tmp_path / "a.log", *(line.replace(TAG, tag) for line in lookup("new", NAIVE)))
    assert keys_of(trace) == [NAIVE] and trace.lookups[0].hit is False and not trace.notes


def test_no_tag_at_all(tmp_path: Path) -> None:
    assert keys_of(read(tmp_path / "a.log", loading("old", NAIVE).replace(TAG, b""))) == [NAIVE]


def test_one_separator_blank(tmp_path: Path) -> None:
    for args in (b"-DA=1 -mcpu=gfx906", b" -DA=1 -mcpu=gfx906", b"  -DA=1  -DB=2 -mcpu=gfx906"):
        key = (b"k.cl.o", args)
        for spelling in SPELLINGS:
            assert keys_of(read(tmp_path / "a.log", *lookup(spelling, key))) == [key]


def test_outcomes(tmp_path: Path) -> None:
    lines = [*lookup("new", NAIVE, hit=False), *lookup("new", NAIVE, hit=True), loading("new", OTHER)]
    trace = read(tmp_path / "a.log", *lines)
    assert [one.hit for one in trace.lookups] == [False, True, None]
    assert [one.time_ns for one in trace.lookups] == [1, 5, 9]


def test_saved_means_missed_where_nothing_says_so(tmp_path: Path) -> None:
    """3.5 and 3.7 write no outcome."""
    saving = loading("old", NAIVE).replace(b"[LoadBinary] Loading", b"[SaveBinary] Saving")
    trace = read(tmp_path / "a.log", loading("old", NAIVE), loading("old", OTHER), saving)
    assert [one.hit for one in trace.lookups] == [False, None]
    assert not read(tmp_path / "b.log", saving).lookups  # by itself no look-up


def test_filtered_logs(tmp_path: Path) -> None:
    """`grep` left some lines only."""
    assert len(read(tmp_path / "a.log", select(NAIVE), select(NAIVE)).lookups) == 1  # user, system
    assert len(read(tmp_path / "a.log", *[select(NAIVE)] * 4).lookups) == 1  # never answered: asked again
    trace = read(tmp_path / "b.log", outcome("new", NAIVE, False), outcome("new", OTHER, True))
    assert [one.hit for one in trace.lookups] == [False, True]


def test_threads_that_mix(tmp_path: Path) -> None:
    a, b = lookup("new", NAIVE, hit=True, selects=2), lookup("new", OTHER, hit=False, selects=2)
    for mixed in (
        [x for pair in zip(a, b, strict=True) for x in pair],
        [a[0], *b[:3], *a[1:4], *b[3:], *a[4:]],
    ):
        trace = read(tmp_path / "a.log", *mixed)
        assert sorted(keys_of(trace)) == sorted([NAIVE, OTHER]) and not trace.notes
        assert {one.name: one.hit for one in trace.lookups} == {NAIVE[0]: True, OTHER[0]: False}


def test_streams_are_told_apart(tmp_path: Path) -> None:
    ranks = [b"[1,%d]<stderr>:" % rank + line for line in lookup("new", NAIVE) for rank in (0, 1)]
    assert sorted(one.thread for one in read(tmp_path / "a.log", *ranks).lookups) == [1, 2]
    threads = [b"%d " % (7000 + i) + line for line in lookup("new", NAIVE) for i in range(3)]
    trace = read(tmp_path / "b.log", *threads)
    assert sorted(one.thread for one in trace.lookups) == [1, 2, 3] and not trace.notes


def test_the_same_key_at_once(tmp_path: Path) -> None:
    one = lookup("new", NAIVE)
    trace = read(tmp_path / "a.log", one[0], one[0], one[1], one[1], one[3], one[3], *lookup("new", NAIVE))
    assert len(trace.lookups) == 3 or [x.hit for x in trace.lookups] == [False, False, False]


def test_lines_that_contradict_each_other(tmp_path: Path) -> None:
    """A mail that makes one blank of two: Loading and SELECT disagree, neither is taken."""
    broken = [line.replace(b"args:  ", b"args: ") for line in lookup("new", NAIVE)]
    trace = read(tmp_path / "a.log", *broken)
    assert not trace.lookups
    assert trace.notes == ["line 1: the SELECT in line 2 asks for another key than the Loading line"]


def test_two_writes_in_one_line(tmp_path: Path) -> None:
    a, b = loading("new", NAIVE), loading("new", OTHER)
    trace = read(tmp_path / "a.log", a[:90] + b, a[90:])
    assert set(keys_of(trace)) <= {OTHER} and any(note.startswith("line 1: ") for note in trace.notes)


@pytest.mark.parametrize("cut", range(60, 330, 9))
def test_a_truncated_last_line(tmp_path: Path, cut: int) -> None:
    whole = b"".join(line + b"\n" for line in lookup("new", OTHER))
    last = loading("new", NAIVE)
    path = tmp_path / "a.log"
    path.write_bytes(whole + last[: min(cut, len(last) - 1)])
    trace = read_log(path)
    assert keys_of(trace) == [OTHER] and [note[:7] for note in trace.notes] == ["line 5:"]
    path.write_bytes(whole + last)
    assert keys_of(read_log(path)) == [OTHER, NAIVE]


ENCODINGS: list[Callable[[bytes], bytes]] = [
    lambda data: data,
    lambda data: data.replace(b"\n", b"\r\n"),
    lambda data: b"\xef\xbb\xbf" + data,
    lambda data: b"\xff\xfe" + data.decode().encode("utf-16-le"),
    lambda data: b"\xfe\xff" + data.decode().encode("utf-16-be"),
    lambda data: data.decode().replace("\n", "\r\n").encode("utf-16-le"),
    lambda data: b"\0" * 5000 + data,
    gzip.compress,
    bz2.compress,
    lzma.compress,
    lambda data: gzip.compress(data[:200]) + gzip.compress(data[200:]),
]


@pytest.mark.parametrize("encode", ENCODINGS)
def test_encodings(tmp_path: Path, encode: Callable[[bytes], bytes]) -> None:
    lines = [*lookup("new", NAIVE, hit=True), *lookup("new", OTHER)]
    path = tmp_path / "a.log"
    path.write_bytes(encode(b"".join(line + b"\n" for line in lines)))
    trace = read_log(path)
    assert keys_of(trace) == [NAIVE, OTHER] and not trace.notes
    assert identify(path).what is FileKind.LOG


def test_facts(tmp_path: Path) -> None:
    trace = read(
        tmp_path / "a.log",
        b"MIOpen(HIP): Info [get_device_name] Raw device name: gfx906:sramecc+:xnack-",
        b"MIOpen(HIP): Info [get_device_name] Raw device name: gfx1030",
        b"MIOpen(HIP): Info [AmdRocmMetadataVersionDetect] ROCm MD version AMDHSA_COv3, "
        b"HIP version 6.4.43484, MIOpen version 3.4.0.",
        b'MIOpen(HIP): Info2 [SQLiteBase] Initializing user database file "/c/gfx906_60.ukdb"',
    )
    facts = trace.facts
    assert (facts.device, facts.cu, facts.miopen_version) == ("gfx906:sramecc+:xnack-", 60, "3.4.0")
    assert facts.hip_version == "6.4.43484" and facts.all["source"] == "log"
    assert facts.all["device.1"] == "gfx1030" and not facts.simulated
    assert trace.notes == ["no look-up of a kernel in it: MIOpen writes them at MIOPEN_LOG_LEVEL=6"]


def test_windows(tmp_path: Path) -> None:
    key = (b"naive_conv.cpp.obj", FP32)
    assert keys_of(read(tmp_path / "a.log", *lookup("new", key))) == [key]


def test_a_kernel_given_as_text(tmp_path: Path) -> None:
    """Up to 6.0: named by the MD5 of its text, with a size that is not part of the name."""
    name = b"0123456789abcdef0123456789abcdef.o"
    line = loading("middle", (name + b" size=4711", b" -mcpu=gfx906"))
    assert keys_of(read(tmp_path / "a.log", line)) == [(name, b" -mcpu=gfx906")]
    line = loading("middle", (b"k.cl.o size=4711", b" -mcpu=gfx906"))
    assert not read(tmp_path / "a.log", line).lookups


def test_mlir_has_no_mcpu(tmp_path: Path) -> None:
    key = (b"mlir_gen_igemm_conv2d_cpp_v4r4_fwd0.mlir.o", b" --operation conv2d --kernel_id 0")
    for spelling in SPELLINGS:
        assert keys_of(read(tmp_path / "a.log", *lookup(spelling, key))) == [key]


def test_quotes_in_the_arguments(tmp_path: Path) -> None:
    """MIOpen pastes them into its SQL unescaped; the Loading line and the SELECT still agree."""
    for part in (b"-DS='a'", b'-DS="a"', b"-DS='a');"):
        key = (b"k.cpp.o", part + b" -mcpu=gfx906")
        assert keys_of(read(tmp_path / "a.log", loading("new", key), select(key))) == [key]


@pytest.mark.parametrize(
    "text",
    [
        b"k.cl.o; args: -DA=1 -mcpu=gfx10",
        b"k.cl.o; args: -DA=1",
        b"k.cl.o; args: -mcpu=gfx906 -DA=1",
        b"k.cl.o; args: -mcpu=gfx906 -mcpu=gfx906",
        b"k.cl.o; args:-DA=1 -mcpu=gfx906",
        b"k.cl.o;args: -DA=1 -mcpu=gfx906",
        b"k.cl; args: -DA=1 -mcpu=gfx906",
        b"../k.cl.o; args: -DA=1 -mcpu=gfx906",
        b'"k.cl.o; args: -DA=1 -mcpu=gfx906',
        b'"a b.cl.o"; args: -DA=1 -mcpu=gfx906',
        b"k.cl.o; args: -DA=1\t-mcpu=gfx906",
        b"k.cl.o; args: -DA=\xff -mcpu=gfx906",
        b"k.cl.o; args: -DA=\0 -mcpu=gfx906",
        b"k.cl.o; args: -DA=1 -mcpu=gfx906 INFO done",
        b"k.cl.o; args: -DA=1 -mcpu=gfx906INFO",
        b"; args: -mcpu=gfx906",
        b"",
    ],
)
def test_doubtful_lines(tmp_path: Path, text: bytes) -> None:
    line = TAG + b"[LoadBinary] Loading binary for: " + text
    trace = read(tmp_path / "a.log", b"x", line, b"MIOpen(HIP): Info [x] y")
    assert not trace.lookups and [note[:8] for note in trace.notes if note[:5] == "line "] == ["line 2: "]


def test_an_architecture_that_the_log_names(tmp_path: Path) -> None:
    key = (b"k.cl.o", b" -mcpu=gfx1999")
    assert not read(tmp_path / "a.log", loading("new", key)).lookups
    device = b"MIOpen(HIP): Info [get_device_name] Raw device name: gfx1999"
    assert keys_of(read(tmp_path / "a.log", device, loading("new", key))) == [key]
    assert keys_of(read(tmp_path / "a.log", loading("new", key), select(key))) == [key]


def test_no_log(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    for text in (
        b"",
        b"hello\n" * 1000,
        b"SELECT name FROM people WHERE (name = 'x') AND (args = 'y');\n" * 1000,
        bytes(range(256)) * 100,
    ):
        path.write_bytes(text)
        with pytest.raises(KdbtoolError, match="not a log of MIOpen"):
            read_log(path)
        assert identify(path).what is not FileKind.LOG
    with pytest.raises(KdbtoolError, match="not a regular file"):
        read_log(tmp_path)
    with pytest.raises(KdbtoolError, match="no such file"):
        read_log(tmp_path / "none")


def test_tables_of_others(tmp_path: Path) -> None:
    """SQL of MIOpen's own other tables is no look-up of a kernel."""
    lines = [
        TAG + b"[Prepare] SELECT solver, params FROM perf_db INNER JOIN (SELECT id FROM config WHERE x);"
    ]
    assert not read(tmp_path / "a.log", *lines * 100).lookups


def test_command(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    log = tmp_path / "a.log"
    read(log, *lookup("new", NAIVE), loading("new", OTHER)[:-3])
    out = tmp_path / "a.kdbtrace"
    done = run_cli("trace", "import", log, "-o", out)
    assert done.code == 1 and f"{log}: line 5: " in done.err and "1 look-ups of 1 keys" in done.out
    assert run_cli("trace", "import", log, "-o", out).code == 2  # it is there
    assert run_cli("trace", "import", log, "-o", tmp_path / "b.txt").code == 2
    assert run_cli("trace", "import", log, log, "-o", tmp_path).code == 2
    other = tmp_path / "b.log"
    read(other, *lookup("new", OTHER))
    done = run_cli("trace", "import", log, other, "-o", tmp_path, "--json")
    assert done.code == 1 and (tmp_path / "b.log.kdbtrace").is_file() and '"misses": 1' in done.out
    assert run_cli("trace", "import", other, "-o", out, "--force").code == 0
    assert "read from a log" in run_cli("manifest", out).out
