"""Field case 31 (MIOpen#3860): Loading line, SELECT, time and outcome of one look-up."""

from pathlib import Path

from support.miopen_logs import read

ARGS = (
    b" -DMIOPEN_USE_FP16=1 -DMIOPEN_USE_FP16x4=0 -DMIOPEN_USE_FP16x8=0 -DMIOPEN_USE_FP32=0 "
    b"-DMIOPEN_USE_INT8=0 -DMIOPEN_USE_BFP16=0 -DMIOPEN_USE_INT32=0 -DMIOPEN_USE_RNE_BFLOAT16=1 "
    b"-DMIOPEN_FP8_IEEE_EXPONENT_BIAS=0 -DMIOPEN_FP8_CLIPPING=1 -mcpu=gfx1150"
)
TAG = b"MIOpen(HIP): Info2 "
LINES = [
    TAG + b'[LoadBinary] Loading binary for: "naive_conv.cpp.o"; args: ' + ARGS,
    TAG + b"[Prepare] SELECT kernel_blob, kernel_hash, uncompressed_size FROM kern_db WHERE "
    b"(kernel_name = 'naive_conv.cpp.o') AND (kernel_args = '" + ARGS + b"');",
    TAG + b"[Measure] Db::FindRecord time: 6.9904 ms",
    TAG + b'[LoadBinary] Successfully loaded binary for: "naive_conv.cpp.o"; args: ' + ARGS,
]


def test_031(tmp_path: Path) -> None:
    trace = read(tmp_path / "a.log", *LINES)
    assert [(one.name, one.args, one.hit) for one in trace.lookups] == [(b"naive_conv.cpp.o", ARGS, True)]
    assert not trace.notes


def test_031_when_the_lines_disagree(tmp_path: Path) -> None:
    lines = [LINES[0], LINES[1].replace(b"= ' -D", b"= '-D"), *LINES[2:]]
    trace = read(tmp_path / "a.log", *lines)
    assert not trace.lookups and trace.notes[0].startswith(
        "line 1: the SELECT in line 2 asks for another key"
    )
