"""Field case 34 (MIOpen#515, #427): the old spelling behind `INFO - `, hard-wrapped in mid-token."""

from pathlib import Path

from support.miopen_logs import FP32, hard, keys_of, read, trimmed

KEY = (b"MIOpenConvDirUni.cl.o", b" -DMLO_HW_WAVE_SZ=64  -DMLO_DIR_FORWARD=1" + FP32)
LINE = b"INFO - MIOpen(HIP): Info2 [LoadBinary] Loading binary for: MIOpenConvDirUni.cl ;args: " + KEY[1]
BARE = b"INFO - Loading binary for: MIOpenConvDirUni.cl ;args: " + KEY[1]


def test_034(tmp_path: Path) -> None:
    for line in (LINE, BARE):
        assert keys_of(read(tmp_path / "a.log", line)) == [KEY]


def test_034_wrapped(tmp_path: Path) -> None:
    """At every width: the key, or the line's number; never another key."""
    exact = 0
    for width in range(60, len(LINE) - 1):
        for wrap in (hard, trimmed):
            trace = read(tmp_path / "a.log", *wrap(LINE, width), b"INFO - done")
            assert keys_of(trace) in ([KEY], []), width
            assert trace.lookups or [note[:8] for note in trace.notes[:1]] == ["line 1: "], width
            exact += len(trace.lookups)
    assert exact > 100
