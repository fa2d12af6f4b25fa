"""Logs whose lines look whole or look like a wrap, and are neither: nobody's key comes of them."""

from pathlib import Path

import pytest

from kdbtool.miopen.logs import read_log
from kdbtool.shim.trace import read_trace
from kdbtool.shim.trace_model import Trace
from kdbtool.shim.trace_write import write_trace

LOAD = b'MIOpen(HIP): Info2 [LoadBinary] Loading binary for: "x.cpp.o"; args: '
ARGS = b" -DA=1  -DBATCH=1  -DC=1  -mcpu=gfx1030"


def read(path: Path, *lines: bytes, end: bytes = b"\n") -> Trace:
    path.write_bytes(b"\n".join(lines) + end)
    return read_log(path)


def doubtful(trace: Trace) -> bool:
    return not trace.lookups and any(note.startswith("line 1: ") for note in trace.notes)


@pytest.mark.parametrize("indent", [b" ", b"    "])
@pytest.mark.parametrize("cut", [b"  -DBATCH", b" -DBATCH", b"-DBATCH", b"TCH", b"  -mcpu", b" -mcpu"])
def test_an_indent_is_not_taken_for_blanks_of_the_key(tmp_path: Path, indent: bytes, cut: bytes) -> None:
    """One continuation, as wide as the log: LDIF's folding, `fold -s` in a quoted block."""
    at = (LOAD + ARGS).rindex(cut)
    broken = [(LOAD + ARGS)[:at], indent + (LOAD + ARGS)[at:]]
    for line in (broken, [indent + part for part in broken]):
        assert doubtful(read(tmp_path / "a.log", *line, b"x" * len(line[0])))


def test_indents_of_different_depths(tmp_path: Path) -> None:
    """`fold -s` breaks between two blanks: then the pieces do not begin with equally many."""
    text = LOAD + ARGS
    first, second = text.index(b"-DBATCH"), text.rindex(b" -mcpu")
    parts = [text[:first], text[first:second], text[second:]]
    assert doubtful(read(tmp_path / "a.log", *(b"  " + part for part in parts)))


def test_a_blank_that_an_editor_took_from_the_end_of_a_line(tmp_path: Path) -> None:
    """One blank before the option is there, the other may be gone; a broken word shows that none is."""
    text = LOAD + ARGS
    at = text.index(b" -DBATCH")
    assert doubtful(read(tmp_path / "a.log", text[:at].rstrip(), text[at:], b"x" * (at - 1)))
    whole = LOAD + ARGS.replace(b"  -DBATCH", b" -DBATCH") + b"\n"
    width = whole.index(b" -DBATCH")
    longer = whole[:-1].replace(b" -mcpu", b" -DVALUE=%s -mcpu" % (b"1" * width), 1)
    parts = [longer[i : i + width] for i in range(0, len(longer), width)]
    (lookup,) = read(tmp_path / "b.log", *parts).lookups
    assert lookup.args == longer[len(LOAD) :]


def test_pieces_with_a_mark_before_each(tmp_path: Path) -> None:
    """What `diff`, a list or a define puts before a line stands within the joined words."""
    text = LOAD + ARGS
    for mark in (b"-", b"+", b"- ", b"-D"):
        for at in range(len(LOAD) - 20, len(text)):
            parts = [text[:at], mark + text[at:]]
            trace = read(tmp_path / "a.log", *parts, b"x" * at)
            assert [one.args for one in trace.lookups] in ([], [ARGS]), parts


@pytest.mark.parametrize("words", [b"Epoch 1 loss=0.3 ", b"WARNING: hi ", b"100%|###| 3/3 "])
def test_words_of_another_program_within_a_line(tmp_path: Path, words: bytes) -> None:
    at = len(LOAD) + ARGS.index(b"TCH")
    assert doubtful(read(tmp_path / "a.log", (LOAD + ARGS)[:at] + words + (LOAD + ARGS)[at:]))


def test_a_number_written_into_a_name_before_a_line_end(tmp_path: Path) -> None:
    """The only line of that width: not a wrap. Read twice, the broken name is no surer."""
    text = LOAD + ARGS
    at = text.index(b".cpp")
    longer = (text[:at] + b"2", text[at:] + b" ")
    assert doubtful(read(tmp_path / "a.log", *longer))
    assert doubtful(read(tmp_path / "b.log", *longer, *longer))
    hit = (longer[0].replace(b"Loading", b"Successfully loaded"), longer[1])
    assert doubtful(read(tmp_path / "c.log", *longer, *hit)) is True


def test_one_statement_written_into_another(tmp_path: Path) -> None:
    """The end that is left over says so."""
    other = b" -DFIRST=1 -DSECOND=22 -mcpu=gfx1030"
    at = other.index(b"2 -mcpu")
    lines = [LOAD + ARGS[: ARGS.index(b"=1  -DC")] + other[at:], ARGS[ARGS.index(b"=1  -DC") :]]
    assert doubtful(read(tmp_path / "a.log", *lines))


def test_a_target_id_that_may_be_cut(tmp_path: Path) -> None:
    """At the end of the file, or with an empty line within; gfx1030 has no features to be lost."""
    whole = LOAD + b" -DA=1 -mcpu=gfx90a:sramecc+:xnack-"
    for cut in (b":sramecc", b":xnack"):
        at = whole.index(cut)
        assert doubtful(read(tmp_path / "a.log", whole[:at], end=b""))
        assert doubtful(read(tmp_path / "b.log", whole[:at], b"", whole[at:]))
    assert len(read(tmp_path / "c.log", whole, end=b"").lookups) == 1
    assert len(read(tmp_path / "d.log", LOAD + ARGS, end=b"").lookups) == 1


def test_a_hyphen_behind_the_architecture(tmp_path: Path) -> None:
    query = b"SELECT kernel_blob, kernel_hash, uncompressed_size FROM kern_db WHERE (kernel_name = 'x.cpp.o')"
    line = b"MIOpen(HIP): Info2 [Prepare] " + query + b" AND (kernel_args = '" + ARGS + b"-');"
    assert doubtful(read(tmp_path / "a.log", line))


COMMAND = b"MIOpenDriver conv -n 2 -c 8 -H 14 -W 14 -k 8 -y 3 -x 3 -p 1 -q 1"
WRITTEN = b"MIOpen(HIP): Command [LogCmdConvolution] ./bin/" + COMMAND
WRITTEN += b" -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1"


@pytest.mark.parametrize("mark", [b"", b"    ", b"> "])
def test_a_broken_command_is_not_filled_up_with_defaults(tmp_path: Path, mark: bytes) -> None:
    """Of what stands in the next line, or nowhere, the driver's defaults would make another problem."""
    for whole in (COMMAND + b" -F 1", WRITTEN):
        (right,) = {problem.key for problem in read(tmp_path / "a.log", whole).problems}
        for cut in range(whole.index(b"-n"), len(whole)):
            lines = [mark + whole[:cut], mark + whole[cut:], b"x" * 200]
            trace = read(tmp_path / "a.log", *lines)
            keys = {problem.key for problem in trace.problems}
            lost = whole[cut:].lstrip(b" ")
            assert keys <= {right}, lines[:2]
            assert keys or trace.notes[0].startswith("line 1: driver command: "), (cut, lost)
    cut = WRITTEN.index(b" -W")
    assert not read(tmp_path / "b.log", WRITTEN[:cut]).problems
    assert not read(tmp_path / "c.log", COMMAND, b"MIOpen: Info ".ljust(len(COMMAND), b"x")).problems


def test_a_line_of_nothing_but_beginnings(tmp_path: Path) -> None:
    """Bounded: each beginning would copy what follows it."""
    trace = read(tmp_path / "a.log", *[b"MIOpen(HIP): Info2 [x] " * 11000] * 40)
    assert len(trace.notes) == 41 and trace.notes[0].startswith("line 1: more lines of MIOpen's in one")
    joined = b"".join(LOAD + ARGS.replace(b"A=1", b"A=%d" % n) for n in range(20))
    assert len(read(tmp_path / "b.log", joined).lookups) == 20


def test_a_broken_device_is_no_device(tmp_path: Path) -> None:
    text = b"MIOpen(HIP): Info [Handle] Raw device name: gfx90a:sramecc+:xnack-"
    assert read(tmp_path / "a.log", text).facts.device == "gfx90a:sramecc+:xnack-"
    for cut in range(text.index(b"0a:"), len(text)):
        trace = read(tmp_path / "b.log", text[:cut], text[cut:], b"x" * cut)
        assert trace.facts.device is None, cut


def test_threads_stand_as_the_written_trace_has_them(tmp_path: Path) -> None:
    lines = [b"%d " % (7 + n % 2) + LOAD + ARGS.replace(b"A=1", b"A=%d" % n) for n in range(6)]
    trace = read(tmp_path / "a.log", *lines)
    write_trace(tmp_path / "a.kdbtrace", trace)
    assert read_trace(tmp_path / "a.kdbtrace").lookups == trace.lookups
    assert [lookup.thread for lookup in trace.lookups] == [1, 1, 1, 2, 2, 2]
