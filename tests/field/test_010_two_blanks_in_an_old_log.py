"""Field case 10 (MIOpen#515): an old log, arguments that begin with a blank, wrapped behind a hyphen."""

from pathlib import Path

from support.miopen_logs import keys_of, read

from kdbtool.miopen.keys import language, source_of

ARGS = (
    b" -Wa,-defsym,elements_in_dword=2 -Wa,-defsym,batch_size=256 -Wa,-defsym,img_h=14 -Wa,-defsym,img_w=14 "
    b"-Wa,-defsym,ROCM_METADATA_VERSION=5 -Wa,-defsym,do_not_use_default_acc=1 -mcpu=gfx908"
)
LINE = b"MIOpen(HIP): Info2 [LoadBinary] Loading binary for: conv3x3wrw.s ;args: " + ARGS
SELECT = (
    b"MIOpen(HIP): Info2 [Prepare] SELECT kernel_blob, kernel_hash, uncompressed_size FROM kern_db WHERE "
    b"(kernel_name = 'conv3x3wrw.s.o') AND (kernel_args = '" + ARGS + b"');"
)
KEY = (b"conv3x3wrw.s.o", ARGS)


def test_010(tmp_path: Path) -> None:
    assert b"args:  -Wa" in LINE
    assert keys_of(read(tmp_path / "a.log", LINE)) == [KEY]
    assert language(source_of(KEY[0]) or "") == "asm"
    defines = [word.removeprefix(b"-Wa,-defsym,").split(b"=") for word in ARGS.split() if b"defsym" in word]
    assert defines[0] == [b"elements_in_dword", b"2"] and len(defines) == 6


def test_010_wrapped_behind_a_hyphen(tmp_path: Path) -> None:
    """`-Wa,-` and `defsym`: one break shows no width, so the line is reported; its SELECT confirms it."""
    for at in (i for i in range(90, len(LINE)) if LINE.startswith(b"defsym", i)):
        broken = [LINE[:at], LINE[at:]]
        trace = read(tmp_path / "a.log", *broken, b"MIOpen(HIP): Info [x] " + b"x" * 300)
        assert not trace.lookups and trace.notes[0].startswith("line 1: ")
        assert keys_of(read(tmp_path / "a.log", *broken, SELECT)) == [KEY]
