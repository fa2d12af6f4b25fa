"""Find-dbs: every line of AMD's comes back byte for byte, damage is named with its line and the rest read."""

from __future__ import annotations

import bz2
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.real_dbs import FIND, FIND_CURRENT, find_lines

from kdbtool.errors import KdbtoolError
from kdbtool.miopen import finddb, textdb
from kdbtool.miopen.finddb import ALGORITHMS, Damaged, FindSolution, format_item, parse_item
from kdbtool.miopen.problems import format_problem
from kdbtool.miopen.textdb import Damage

KEY = "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP32-F"
ITEM = "GemmFwdRest:0.5,1024,miopenConvolutionFwdAlgoGEMM"
LEGACY = "miopenConvolutionFwdAlgoDirect:ConvOclDirectFwd,1.5,0,miopenConvolutionFwdAlgoDirect,<unused>"


def read(path: Path, text: str) -> tuple[list[finddb.FindRecord], list[Damage]]:
    path.write_bytes(textdb.encode(text))
    damaged: list[Damage] = []
    return list(finddb.read(path, damaged.append)), damaged


@pytest.mark.parametrize("name", [FIND, "gfx906_60.HIP.fdb.txt.bz2", FIND_CURRENT])
def test_every_line_and_key_of_amds_files_comes_back_byte_for_byte(shared: Path, name: str) -> None:
    damaged: list[Damage] = []
    text = b"".join(textdb.chunks(shared / "data" / name))
    records = finddb.read(shared / "data" / name, damaged.append)
    for line, record in zip(text.splitlines(), records, strict=True):
        assert textdb.encode(finddb.format_record(record)) == line
        assert format_problem(record.problem) == record.key
    assert damaged == []


def test_both_forms_are_read(tmp_path: Path) -> None:
    ((current, legacy, mixed), damaged) = read(
        tmp_path / "a.ufdb.txt",
        f"{KEY}={ITEM}\n\n{KEY.replace('64', '5', 1)}={LEGACY}\n{KEY.replace('64', '66', 1)}={LEGACY};{ITEM}",
    )
    assert damaged == [] and (current.line, legacy.line, mixed.line) == (1, 3, 4)
    assert (current.form, legacy.form, mixed.form) == ("current", "legacy", "mixed")
    gemm = ("GemmFwdRest", "0.5", "1024", "miopenConvolutionFwdAlgoGEMM", False, "")
    direct = FindSolution(
        "ConvOclDirectFwd", "1.5", "0", "miopenConvolutionFwdAlgoDirect", True,
        ",miopenConvolutionFwdAlgoDirect,<unused>",
    )  # fmt: skip
    assert current.solvers == (gemm,) and mixed.solvers == (direct, gemm)
    assert (direct.milliseconds, current.solvers[0].workspace_bytes) == (1.5, 1024)
    assert format_item(finddb.to_current(direct)) == "ConvOclDirectFwd:1.5,0,miopenConvolutionFwdAlgoDirect"
    assert finddb.format_record(mixed) == f"{mixed.key}={LEGACY};{ITEM}"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("no equals sign", Damaged.NO_KEY),
        ("=" + ITEM, Damaged.NO_KEY),
        (KEY[:-1] + "X=" + ITEM, Damaged.BAD_KEY),
        ("\udcff" + KEY + "=" + ITEM, Damaged.BAD_KEY),
        (KEY + "=", Damaged.NO_ITEMS),
        (KEY + "=" + ITEM + ";", Damaged.NO_ID),
        (KEY + "=" + ITEM + ";noColon", Damaged.NO_ID),
        (KEY + "=" + ITEM + ";:1,2,miopenConvolutionFwdAlgoFFT", Damaged.NO_ID),
        (KEY + "=" + ITEM + ";fft:1,2", Damaged.FIELDS),
        (KEY + "=" + ITEM + ";fft:", Damaged.FIELDS),
        (KEY + "=" + ITEM + ";miopenConvolutionFwdAlgoFFT:fft,1,2", Damaged.FIELDS),
        (KEY + "=" + ITEM + ";miopenConvolutionFwdAlgoFFT:,1,2,x,y", Damaged.NO_ID),
        (KEY + "=" + ITEM + ";fft:one,2,miopenConvolutionFwdAlgoFFT", Damaged.NUMBER),
        (KEY + "=" + ITEM + ";fft:1,-2,miopenConvolutionFwdAlgoFFT", Damaged.NUMBER),
        (KEY + "=" + ITEM + ";fft:nan,2,miopenConvolutionFwdAlgoFFT", Damaged.NUMBER),
        (KEY + "=" + ITEM + ";fft:1,2,miopenConvolutionBwdDataAlgoFFT", Damaged.ALGORITHM),
        (KEY + "=" + ITEM + ";fft:1,2,", Damaged.ALGORITHM),
        (KEY + "=" + ITEM + ";miopenConvolutionBwdDataAlgoFFT:fft,1,2,x,y", Damaged.ALGORITHM),
        (KEY + "=" + ITEM + ";" + ITEM, Damaged.REPEATED),
        (KEY + "=" + ITEM + ";GemmFwdRest:0.1,0,miopenConvolutionFwdAlgoGEMM", Damaged.REPEATED),
    ],
)
def test_damage_is_named_and_the_rest_is_read(tmp_path: Path, line: str, reason: Damaged) -> None:
    other = KEY.replace("64", "7", 1)
    records, damaged = read(tmp_path / "db.HIP.fdb.txt", f"{other}={LEGACY}\n{line}\n{other[:-1]}W=\n")
    assert [(d.line, d.reason) for d in damaged] == [(2, reason), (3, Damaged.NO_ITEMS)]
    assert records[0].key == other and "\n" not in damaged[0].describe()
    if reason not in (Damaged.NO_KEY, Damaged.BAD_KEY, Damaged.NO_ITEMS):
        assert [format_item(s) for s in records[1].solvers] == [ITEM]


def test_a_carriage_return_is_kept_as_miopen_does_not_mind_it(tmp_path: Path) -> None:
    (record,), damaged = read(tmp_path / "dos.HIP.fdb.txt", f"{KEY}={ITEM}\r\n")
    assert damaged == [] and record.solvers[0].algorithm == "miopenConvolutionFwdAlgoGEMM"
    assert finddb.format_record(record) == f"{KEY}={ITEM}\r"


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (bz2.compress(b"x=y\n" * 999)[:-9], "cut off bzip2"),
        (bz2.compress(b"x=y\n" * 999)[:20] + b"\xff" * 60, "damaged bzip2"),
        (bz2.compress(b"") + b"more", "damaged bzip2"),
        (bz2.compress(b"x" * (3 << 20)), "not a text database"),
        (bz2.compress(b"\n" * (textdb.MAX_LINES + 2)), "not a text database"),
        (bz2.compress(KEY.encode() + b"=" + b";" * (textdb.MAX_DAMAGE + 2)), "not such a database"),
        (bz2.compress(b"") * (textdb.MAX_STREAMS + 1), "damaged bzip2"),
    ],
)
def test_what_is_no_text_ends_in_one_line(tmp_path: Path, data: bytes, what: str) -> None:
    path = tmp_path / "a.HIP.fdb.txt.bz2"
    path.write_bytes(data)
    with pytest.raises(KdbtoolError, match=what) as caught:
        list(finddb.read(path))
    assert caught.value.exit_code == 2 and "\n" not in caught.value.line()


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(KdbtoolError):
            list(finddb.read(path))


def test_several_bzip2_streams_are_one_file(tmp_path: Path) -> None:
    path = tmp_path / "a.HIP.fdb.txt.bz2"
    text = f"{KEY}={ITEM}\n".encode()
    path.write_bytes(bz2.compress(text[:40]) + bz2.compress(text[40:]))
    assert b"".join(textdb.chunks(path)) == text
    assert [r.key for r in finddb.read(path)] == [KEY]


def test_a_summary_counts(shared: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.fdb.txt"
    path.write_bytes(find_lines(shared, FIND, 100, 30) + b"damage\n")
    found = finddb.summary(path)
    assert found["problems"] == 30 and found["forms"] == {"legacy": found["solutions"]}
    assert sum(found["directions"].values()) == 30 and found["damaged"] == {"no key": 1}
    json.dumps(found)


names = st.text(st.characters(codec="ascii", exclude_characters=":;,=\n\r\0"), min_size=1, max_size=30)


@st.composite
def solutions(draw: st.DrawFn) -> FindSolution:
    legacy = draw(st.booleans())
    tail = "," + draw(st.text(st.characters(codec="ascii", exclude_characters=";\n"), max_size=20))
    return FindSolution(
        draw(names.filter(lambda n: not any(n in found for found in ALGORITHMS.values()))),
        draw(st.floats(0, 1e6, width=32).map(lambda f: f"{f:g}")),
        str(draw(st.integers(0, 2**63))),
        draw(st.sampled_from(sorted(ALGORITHMS["F"]))),
        legacy,
        tail if legacy or draw(st.booleans()) else "",
    )


@given(solutions())
def test_any_item_comes_back(solution: FindSolution) -> None:
    assert parse_item(format_item(solution), "F") == solution
