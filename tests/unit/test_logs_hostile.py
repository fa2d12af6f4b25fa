"""Logs that are meant to hurt: mutated, huge lines, bombs, noise. One-line errors or doubts, no wrong key."""

import bz2
import gzip
import lzma
import random
from pathlib import Path

import pytest
from support.miopen_logs import FP32, NAIVE, SPELLINGS, TAG, hard, keys_of, loading, lookup, read
from support.mutate import mutations, survives

from kdbtool.errors import KdbtoolError
from kdbtool.kdb.identify import identify
from kdbtool.miopen.logs import read_log
from kdbtool.shim.trace import read_trace
from kdbtool.shim.trace_write import write_trace

COMMAND = (
    b"MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 2 -c 3 -H 8 -W 8 -k 4 "
    b"-y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1"
)
FACTS = (
    b"MIOpen(HIP): Info [get_device_name] Raw device name: gfx1030",
    b"MIOpen(HIP): Info [AmdRocmMetadataVersionDetect] HIP version 6.4.43484, MIOpen version 3.4.0.",
    TAG + b'[FindRecord] Looking for key 3-8-8-3x3-4-8-8-2-1x1-1x1-1x1-0-NCHW-FP32-F in file ""',
)


def _log() -> bytes:
    lines = [*FACTS, COMMAND]
    for i in range(6):
        key = (b"MIOpenIm2d2Col.cl.o", b" -DLOCAL_MEM_SIZE=%d" % i + FP32)
        whole = lookup(SPELLINGS[i % 3], key, hit=i % 2 == 0)
        lines += whole if i % 2 else [part for line in whole for part in hard(line, 100)]
    return b"".join(line + b"\n" for line in lines)


def _everything(path: Path) -> None:
    identify(path)
    trace = read_log(path)
    if path.stat().st_size % 64:
        return  # to write a file waits for the disk
    out = path.with_suffix(".kdbtrace")
    write_trace(out, trace, force=True)
    again = read_trace(out)
    assert again.lookups == trace.lookups and again.problems == trace.problems
    assert again.facts == trace.facts


def test_mutations(tmp_path: Path) -> None:
    tally = survives(_everything, mutations(_log(), 5000, 31), tmp_path, ".log")
    assert tally.accepted > 1000


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_mutations_of_compressed_logs(tmp_path: Path, pack: object) -> None:
    assert callable(pack)
    data = pack(_log())
    tally = survives(lambda path: read_log(path) and None, mutations(data, 700, 7), tmp_path, ".log")
    assert tally.refused


def test_bytes_cut_out_of_a_key_are_noticed_or_another_statement_disagrees(tmp_path: Path) -> None:
    """A line that lost bytes: its SELECT says otherwise, so no key comes of it that nobody asked for."""
    rng = random.Random(3)
    for _ in range(300):
        lines = lookup("new", NAIVE)
        at = rng.randrange(len(TAG) + 60, len(lines[0]))
        lines[0] = lines[0][:at] + lines[0][at + rng.randrange(1, 30) :]
        assert set(keys_of(read(tmp_path / "a.log", *lines))) <= {NAIVE}


def test_a_line_of_ten_megabytes(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    for huge in (
        b"x" * 10_000_000,
        loading("new", (b"k.cl.o", b" -DA" * 2_500_000)),
        COMMAND + b" 1" * 5_000_000,
    ):
        trace = read(path, *lookup("new", NAIVE), huge, *lookup("new", NAIVE))
        assert keys_of(trace) == [NAIVE, NAIVE]
    assert any("driver command" in note for note in trace.notes)


def test_a_statement_over_a_million_lines(tmp_path: Path) -> None:
    start = loading("new", NAIVE)[:100]
    trace = read(tmp_path / "a.log", start, *[b"-DA=1"] * 300_000, *lookup("new", NAIVE))
    assert keys_of(trace) == [NAIVE] and trace.notes[0].startswith("line 1: ")


def test_many_streams(tmp_path: Path) -> None:
    lines = [b"%d " % i + loading("new", NAIVE) for i in range(1, 9000)]
    trace = read(tmp_path / "a.log", *lines)
    assert max(one.thread for one in trace.lookups) <= 4100


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_bomb(tmp_path: Path, pack: object) -> None:
    """300 MB of nothing in a few kB (gzip: 300 kB, no bomb)."""
    assert callable(pack)
    path = tmp_path / "a.log"
    path.write_bytes(pack(b"\n".join(lookup("new", NAIVE)) + bytes(300 << 20)))
    try:
        read_log(path)
    except KdbtoolError as error:
        assert "unpacks to more than" in error.line()


def test_many_doubtful_lines(tmp_path: Path) -> None:
    trace = read(tmp_path / "a.log", *[loading("new", NAIVE)[:150]] * 5000)
    assert len(trace.notes) == 1001 and trace.notes[-1] == "4000 more doubtful lines"
