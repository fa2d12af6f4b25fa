"""`kdbtool list`: every key on a line of its own, exact where asked for, whatever bytes it has."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import traces as t
from support.kdb_files import make, row

from kdbtool.manifest import Key, Manifest, write_manifest
from kdbtool.manifest.model import Note
from kdbtool.manifest.quote import QUOTED, unquote
from kdbtool.miopen.classes import CLASSES, class_of, classes_of
from kdbtool.miopen.versions import kernel_lists

CPU = b" -mcpu=gfx1030"
HOSTILE = b"x\x1b[31m\t\r\n\xff\xc3\x28.cpp.o"
ROWS = (
    (b"naive_conv.cpp.o", b" -DA=1  -DB=2" + CPU),
    (b"Conv_Winograd_Fury_v2_4_1_fp16_fp16acc_f2x3_c16_stride1.s.o", b"-mcumode" + CPU),
    (b"igemm_fwd_gtcx3_nhwc_fp32.s.o", b" -mcpu=gfx906"),
    (b"MIOpenIm2d2Col.cl.o", CPU),
)


@pytest.fixture
def kdb(tmp_path: Path) -> Path:
    return make(tmp_path / "any.kdb", [row(name, args) for name, args in ROWS])


def trace(path: Path) -> Path:
    t.read(
        path,
        t.header(),
        t.block(
            t.key(1, *ROWS[0]), t.key(2, *ROWS[3]), t.database(3, b"/u/gfx1030_36.ukdb"),
            t.statement(4, 1, 3), t.step(4, 101), t.statement(5, 1, 3), t.step(5, 100), t.statement(6, 2, 3),
        ),
    )  # fmt: skip
    return path


def exact(text: str) -> list[tuple[bytes, ...]]:
    return [tuple(unquote(m[1]) for m in re.finditer(QUOTED, line)) for line in text.splitlines()]


def test_keys_are_exact(kdb: Path, run_cli: Callable[..., Any]) -> None:
    ended = run_cli("list", kdb, "--keys")
    assert ended.code == 0 and sorted(exact(ended.out)) == sorted(ROWS)


def test_the_same_keys_from_a_manifest(kdb: Path, run_cli: Callable[..., Any], tmp_path: Path) -> None:
    made = tmp_path / "m"
    assert run_cli("manifest", kdb, "--spellings", "asked", "-o", made).code == 0
    ended = run_cli("list", made, "--keys")
    assert sorted(exact(ended.out)) == sorted(ROWS)


def test_a_trace_lists_each_key_once_with_its_lookups(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    path = trace(tmp_path / "a.kdbtrace")
    trace(tmp_path / "b.kdbtrace")
    ended = run_cli("list", path)
    assert [line.split()[:4] for line in ended.out.splitlines()] == [
        ["naive_conv.cpp", "gfx1030", "hit", "2x"],
        ["MIOpenIm2d2Col.cl", "gfx1030", "unanswered", "1x"],
    ]
    ended = run_cli("list", tmp_path, "--json")
    assert [(k["state"], k["lookups"]) for k in json.loads(ended.out)["keys"]] == [
        ("hit", 4),
        ("unanswered", 2),
    ]


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        (("--kernel", "naive|Im2d"), (0, 3)),
        (("--args", "-DB=2 "), (0,)),
        (("--args", "^ -mcpu"), (2, 3)),
        (("--arch", "gfx906"), (2,)),
        (("--arch", "all"), (0, 1, 2, 3)),
        (("--language", "hip", "--language", "opencl"), (0, 3)),
        (("--class", "asm-generated"), (2,)),
        (("--class", "winograd"), (1,)),
        (("--class", "asm-disassembled", "--class", "hip"), (0, 1)),
        (("--state", "stored", "--kernel", "s$"), (1, 2)),
        (("--state", "miss"), ()),
        (("--kernel", "^nothing"), ()),
    ],
)
def test_filters(
    kdb: Path, run_cli: Callable[..., Any], options: tuple[str, ...], numbers: tuple[int, ...]
) -> None:
    ended = run_cli("list", kdb, "--keys", *options)
    assert ended.code == 0 and sorted(exact(ended.out)) == sorted(ROWS[n] for n in numbers)
    assert ("none of 4 keys" in ended.err) == (not numbers)


@pytest.mark.parametrize(
    "options",
    [("--kernel", "("), ("--args", "["), ("--class", "asm"), ("--state", "x"), ("--arch", "volta"),
     ("--keys", "--json"), ("--keys", "--sources"), ("--language", "c")],
)  # fmt: skip
def test_bad_options(kdb: Path, run_cli: Callable[..., Any], options: tuple[str, ...]) -> None:
    assert run_cli("list", kdb, *options).code == 2


def test_several_inputs_say_which(kdb: Path, run_cli: Callable[..., Any], tmp_path: Path) -> None:
    path = trace(tmp_path / "a.kdbtrace")
    ended = run_cli("list", kdb, path)
    assert [line.partition(": ")[0] for line in ended.out.splitlines()] == [str(kdb)] * 4 + [str(path)] * 2


def test_sources(kdb: Path, run_cli: Callable[..., Any], tmp_path: Path) -> None:
    path = trace(tmp_path / "a.kdbtrace")
    ended = run_cli("list", kdb, path, "--sources")
    lines = [line.split() for line in ended.out.splitlines()]
    assert lines[0] == ["keys", "look-ups", "stored", "class", "arch", "source"]
    assert lines[2][:2] == ["2", "2"] and "(1 stored, 1 hit)" in ended.out
    found = json.loads(run_cli("list", kdb, "--sources", "--json").out)["sources"]
    assert tuple(found[0][k] for k in ("source", "class", "winograd")) == (
        "Conv_Winograd_Fury_v2_4_1_fp16_fp16acc_f2x3_c16_stride1.s", "asm-disassembled", True
    )  # fmt: skip


def test_hostile_names_stay_on_one_line(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    long = b"y" * (1 << 20) + b".cpp.o"
    keys = [(HOSTILE, b"\x07" + CPU), (long, b"\xe2\x80\xa8'\"\\" + CPU)]
    path = make(tmp_path / "h.kdb", [])
    with sqlite3.connect(path) as db:
        for name, args in keys:
            db.execute(
                "INSERT INTO kern_db VALUES (NULL, CAST(? AS TEXT), CAST(? AS TEXT), x'00', '\x1b', -5)",
                (name, args),
            )
    db.close()
    assert sorted(exact(run_cli("list", path, "--keys").out)) == sorted(keys)
    for form in ((), ("--sources",), ("-v",)):
        ended = run_cli("list", path, *form)
        assert ended.code == 0
        assert all(c.isprintable() or c == "\n" for c in ended.out)
        assert len(ended.out.splitlines()) == 2 + (form == ("--sources",))
    found = json.loads(run_cli("list", path, "--json").out)["keys"]
    assert bytes.fromhex(found[0]["name_hex"]) == HOSTILE and "name_hex" not in found[1]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "an empty file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "Git LFS pointer"),
        (b"kdbtool-manifest format 0\nmiopen x\n", "not a version"),
        (b"SQLite format 3\0" + bytes(600), "damaged"),
    ],
)
def test_another_input_is_one_line(
    tmp_path: Path, run_cli: Callable[..., Any], content: bytes, words: str
) -> None:
    path = tmp_path / "x.kdb"
    path.write_bytes(content)
    for form in ((), ("--keys",), ("--sources",)):
        ended = run_cli("list", path, *form)
        assert ended.code == 2 and ended.out == "" and words in ended.err and ended.err.count("\n") == 1
    assert words in json.loads(run_cli("list", path, "--json").out)["error"]


def test_no_writer_waits_for_a_reader_that_is_not_done(tmp_path: Path) -> None:
    """The pipe is full and the reader asleep: a writer of the same .ukdb commits at once."""
    path = make(
        tmp_path / "gfx1030_36.ukdb", [row(b"a%05d.cpp.o" % n, b" -DX=" + b"y" * 300) for n in range(3000)]
    )
    reader = subprocess.Popen([sys.executable, "-m", "kdbtool", "list", path], stdout=subprocess.PIPE)
    assert reader.stdout is not None
    with reader:
        reader.stdout.readline()
        with sqlite3.connect(path, timeout=0) as db:
            db.execute("DELETE FROM kern_db WHERE id = 1")
        db.close()
        assert sum(1 for _ in reader.stdout) == 2999
    assert reader.returncode == 0


def test_head_is_no_error(tmp_path: Path) -> None:
    path = make(tmp_path / "a.kdb", [row(b"a%05d.cpp.o" % n) for n in range(3000)])
    words = [sys.executable, "-m", "kdbtool", "list", path]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as done:
        assert done.stdout is not None and done.stderr is not None
        assert done.stdout.readline().startswith(b"a00000.cpp")
        done.stdout.close()
        assert done.stderr.read() == b""


def test_every_kernel_of_every_release_has_a_class() -> None:
    found: dict[str, set[str]] = {}
    for names in kernel_lists().values():
        for name in names:
            for kind in classes_of(name):
                found.setdefault(kind, set()).add(name)
    assert "unknown" not in found and set(found) == set(CLASSES) - {"unknown", "mlir"}
    assert "conv1x1u.s" in found["asm-handwritten"] and "xform_out.s" in found["winograd"]
    assert all(name.startswith("igemm_") for name in found["asm-generated"])
    assert class_of("x.mlir") == "mlir" and class_of("nothing") == "unknown" and class_of("") == "unknown"


def test_states_of_a_manifest(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    keys = {Key(*ROWS[0], "gfx1030"): Note(), Key(*ROWS[1], "gfx1030", "asked-unbuilt"): Note()}
    path = tmp_path / "m"
    path.write_bytes(write_manifest(Manifest(keys=keys)))
    ended = run_cli("list", path, "--state", "asked-unbuilt", "--json")
    (found,) = json.loads(ended.out)["keys"]
    assert found["winograd"] and found["line"] > 1 and found["state"] == "asked-unbuilt"


def test_sources_as_one_document_even_where_an_input_is_missing(
    tmp_path: Path, run_cli: Callable[..., Any]
) -> None:
    path = make(tmp_path / "a.kdb", [row(b"a.cpp.o")])
    ended = run_cli("list", path, tmp_path / "none", "--sources", "--json")
    found = json.loads(ended.out)
    assert ended.code == 2 and "no such file" in found["error"] and found["sources"][0]["keys"] == 1
    assert "error" not in json.loads(run_cli("list", path, "--sources", "--json").out)
