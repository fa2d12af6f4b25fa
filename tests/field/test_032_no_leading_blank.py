"""Field case 32 (MIOpen#3860): a Winograd kernel whose arguments begin without a blank."""

from pathlib import Path

from support.miopen_logs import keys_of, read

from kdbtool.miopen.keys import language, source_of

NAME = b"Conv_Winograd_Fury_v2_4_1_fp16_fp16acc_f2x3_c16_stride1.s.o"
ARGS = b"-Wa,-defsym,ROCM_METADATA_VERSION=5 -mcumode -mwavefrontsize64 -mcpu=gfx1150"
LINE = b'MIOpen(HIP): Info2 [LoadBinary] Loading binary for: "' + NAME + b'"; args: ' + ARGS


def test_032(tmp_path: Path) -> None:
    assert keys_of(read(tmp_path / "a.log", LINE)) == [(NAME, ARGS)]
    source = source_of(NAME) or ""
    assert language(source) == "asm" and source.startswith("Conv_Winograd_")
