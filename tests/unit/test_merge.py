"""`kdbtool merge`: nothing lost, nothing guessed, the same bytes in any order."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import traces as t
from support.amdgpu_elf import code_object
from support.kdb_files import make, row

from kdbtool.cli import main
from kdbtool.kdb.blob import md5
from kdbtool.kdb.reader import open_kdb
from kdbtool.kdb.writer import write_kdb

CPU = b" -mcpu=gfx1030"
ONE, TWO, THREE = (code_object(kernels=(name,)) for name in ("one", "two", "three"))
ABI4 = code_object(kernels=("one",), abi=2)  # the code of ONE, in another code object version


def args(number: int) -> bytes:
    return b" -DN=%d" % number + CPU


def content(path: Path) -> dict[tuple[bytes, bytes], str]:
    with open_kdb(path) as reader:
        return {(r.name, r.args): r.hash for r in reader}


@pytest.fixture
def ab(tmp_path: Path) -> tuple[Path, Path]:
    """Two databases with one row of each alone, and one in both."""
    a = make(tmp_path / "a.kdb", [row(args=args(1), data=ONE), row(args=args(2), data=TWO)])
    b = make(tmp_path / "b.kdb", [row(args=args(2), data=TWO), row(args=args(3), data=THREE)])
    return a, b


def test_rows_of_both_once(ab: tuple[Path, Path], run_cli: Callable[..., Any], tmp_path: Path) -> None:
    out, back = tmp_path / "gfx1030.kdb", tmp_path / "back.kdb"
    ended = run_cli("merge", *ab, "-o", out)
    assert ended.code == 0 and ended.out == "" and "1 equal to another one" in ended.err
    assert sorted(content(out).values()) == sorted(map(md5, (ONE, TWO, THREE)))
    assert run_cli("merge", *reversed(ab), "-o", back, "-q") == (0, "", "")
    assert back.read_bytes() == out.read_bytes()
    assert run_cli("verify", out).code == 0


SPOILED = {
    "hash": lambda: row(data=ONE, digest="0" * 32),
    "bz2": lambda: row(data=ONE, blob=b"BZh9" + bytes(20)),
    "size": lambda: row(data=ONE, size=-7),
    "raw-not-elf": lambda: row(data=b"no code object"),
    "other-arch": lambda: row(data=code_object("gfx906")),
    "no-kernels": lambda: row(data=code_object(kernels=())),
    "empty": lambda: row(data=b""),
    "blob-name": lambda: (sqlite3.Binary(b"a.cpp.o"), *row(data=ONE)[1:]),
    "nul": lambda: ("a\0b.cpp.o", *row(data=ONE)[1:]),
}


@pytest.mark.parametrize("kind", SPOILED)
def test_a_damaged_row_is_refused_or_left_out(
    kind: str, ab: tuple[Path, Path], run_cli: Callable[..., Any], tmp_path: Path
) -> None:
    bad = make(tmp_path / "bad.kdb", [SPOILED[kind](), row(args=args(9), data=THREE)])
    out = tmp_path / "o.kdb"
    ended = run_cli("merge", ab[0], bad, "-o", out)
    assert ended.code == 1 and not out.exists()
    assert f"damaged: {bad} row " in ended.err and f"kdbtool fix {bad}" in ended.err
    ended = run_cli("merge", ab[0], bad, "-o", out, "--skip-damaged")
    assert ended.code == 0 and "left out: " in ended.err and "1 damaged rows" in ended.err
    assert len(content(out)) == 3
    good = make(tmp_path / "good.kdb", [row(data=ONE), row(args=args(9), data=THREE)])
    assert run_cli("merge", ab[0], good, "-o", tmp_path / "p.kdb", "-q") == (0, "", "")


def test_a_sound_row_takes_the_place_of_a_damaged_one(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    bad = make(tmp_path / "bad.kdb", [row(data=ONE, digest="0" * 32)])
    good = make(tmp_path / "good.kdb", [row(data=TWO)])
    out = tmp_path / "o.kdb"
    assert run_cli("merge", bad, good, "-o", out, "--skip-damaged", "-q").code == 0
    assert list(content(out).values()) == [md5(TWO)]


def test_conflicts_are_all_listed(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    a = make(tmp_path / "a.kdb", [row(args=args(n), data=ONE) for n in range(15)])
    b = make(tmp_path / "b.kdb", [row(args=args(n), data=TWO) for n in range(14)])
    out = tmp_path / "o.kdb"
    ended = run_cli("merge", a, b, "-o", out)
    assert ended.code == 1 and not out.exists() and "--prefer first" in ended.err
    assert sum(line.startswith("conflict: ") for line in ended.err.splitlines()) == 14
    ended = run_cli("merge", a, b, "-o", out, "--json", "-q")
    found = json.loads(ended.out)
    assert (ended.code, found["conflicts"], found["written"]) == (1, 14, False)
    for prefer, want in (("first", ONE), ("last", TWO)):
        ended = run_cli("merge", a, b, "-o", out, "--prefer", prefer, "--force")
        assert ended.code == 0 and "14 keys with objects of different code: decided" in ended.err
        assert sum(line.startswith(f"took {md5(want)}") for line in ended.err.splitlines()) == 14
        assert sorted(content(out).values()) == sorted([md5(want)] * 14 + [md5(ONE)])


def test_the_same_code_is_no_conflict(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    assert md5(ONE) != md5(ABI4)
    a, b = (make(tmp_path / f"{n}.kdb", [row(data=d)]) for n, d in enumerate((ONE, ABI4)))
    out, back = tmp_path / "o.kdb", tmp_path / "p.kdb"
    ended = run_cli("merge", a, b, "-o", out)
    assert ended.code == 0 and "1 keys with several objects of the same code" in ended.err
    assert run_cli("merge", b, a, "-o", back).code == 0
    assert back.read_bytes() == out.read_bytes() and list(content(out).values()) == [min(md5(ONE), md5(ABI4))]
    ended = run_cli("merge", a, b, "-o", out, "--prefer", "last", "--force", "-v")
    assert list(content(out).values()) == [md5(ABI4)] and "took " in ended.err


def test_two_rows_of_one_key_in_one_file(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    path = make(tmp_path / "a.kdb", [row(data=ONE), row(data=TWO)], index=None)
    out = tmp_path / "o.kdb"
    assert run_cli("merge", path, "-o", out).code == 1
    assert run_cli("merge", path, "-o", out, "--prefer", "last").code == 0
    assert list(content(out).values()) == [md5(TWO)]


def test_raw_and_compressed_are_one_object(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    big = code_object(kernels=tuple(f"k{n}" for n in range(50)))
    a = make(tmp_path / "a.kdb", [row(data=big)])
    b = make(tmp_path / "b.kdb", [row(data=big, blob=big, size=0)])
    one, two = tmp_path / "1.kdb", tmp_path / "2.kdb"
    assert run_cli("merge", a, b, "-o", one).code == run_cli("merge", b, a, "-o", two).code == 0
    assert one.read_bytes() == two.read_bytes()


def test_archs_need_a_folder(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    other = code_object("gfx906", xnack="off")
    a = make(tmp_path / "a.kdb", [row(data=ONE), row(args=b" -mcpu=gfx906", data=other)])
    ended = run_cli("merge", a, "-o", tmp_path / "o.kdb")
    assert ended.code == 2 and "rows of several architectures" in ended.err and "folder" in ended.err
    folder = tmp_path / "f"
    folder.mkdir()
    assert run_cli("merge", a, "-o", folder).code == 0
    assert sorted(p.name for p in folder.iterdir()) == ["gfx1030.kdb", "gfx906.kdb"]
    assert list(content(folder / "gfx906.kdb").values()) == [md5(other)]
    assert run_cli("merge", a, "-o", folder).code == 2  # exists
    ended = run_cli("merge", make(tmp_path / "b.kdb"), "-o", tmp_path / "gfx906.kdb")
    assert ended.code == 2 and "a name for gfx906" in ended.err
    nameless = make(tmp_path / "n.kdb", [row(b"a.mlir.o", b" -x", data=ONE)])
    assert run_cli("merge", nameless, "-o", folder, "--force").code == 2
    assert run_cli("merge", nameless, "-o", tmp_path / "n2.kdb").code == 0
    named = make(tmp_path / "gfx1030.kdb", [row(b"a.mlir.o", b" -x", data=ONE)])
    assert run_cli("merge", named, make(tmp_path / "d.kdb"), "-o", tmp_path / "n3.kdb").code == 0


def test_xnack_stays_apart(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    a, b = make(tmp_path / "gfx90a.kdb", []), make(tmp_path / "gfx90a_xnack.kdb", [])
    ended = run_cli("merge", a, b, "-o", tmp_path / "o.kdb")
    assert ended.code == 2 and "xnack+" in ended.err


def test_provenance(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    def built(name: str, number: int, **says: str) -> Path:
        path = tmp_path / name
        write_kdb(path, [(b"x.cpp.o", args(number), ONE), (b"y%d.cl.o" % number, CPU, ONE)], says)
        return path

    a = built(
        "a", 1, miopen="6.4.3", compiler="c", manifest="m1", **{"source y1.cl": "1", "source x.cpp": "x"}
    )
    b = built(
        "b", 2, miopen="6.4.3", compiler="c", manifest="m2", **{"source y2.cl": "2", "source x.cpp": "x"}
    )
    out = tmp_path / "o.kdb"
    assert run_cli("merge", a, b, "-o", out, "-q") == (0, "", "")
    with open_kdb(out) as reader:
        said = reader.provenance() or {}
    assert said["miopen"] == "6.4.3" and said["compiler"] == "c" and "manifest" not in said
    assert said["source y1.cl"] == "1" and said["source y2.cl"] == "2" and said["source x.cpp"] == "x"
    assert said["merged"].count("sha256:") == 2 and said["rows"] == "4"
    for other in (built("c", 3, miopen="7.2.4"), built("d", 3, miopen="6.4.3", **{"source x.cpp": "z"})):
        ended = run_cli("merge", a, other, "-o", out, "--force")
        assert ended.code == 2 and "--allow-mixed" in ended.err and "databases of different" in ended.err
        ended = run_cli("merge", a, other, "-o", out, "--force", "--allow-mixed")
        assert ended.code == 0 and "note: databases of different" in ended.err
    ended = run_cli("merge", a, make(tmp_path / "e.kdb"), "-o", out, "--force")
    assert ended.code == 0 and "does not say which MIOpen" in ended.err
    with open_kdb(out) as reader:
        assert "miopen" not in (reader.provenance() or {})
    with sqlite3.connect(b) as db:
        db.execute("DELETE FROM kern_db WHERE id = 1")
    db.close()
    ended = run_cli("merge", b, "-o", out, "--force")
    assert ended.code == 0 and "written for other rows" in ended.err


def test_a_mix_is_what_manifest_makes_of_it(
    ab: tuple[Path, Path], run_cli: Callable[..., Any], tmp_path: Path
) -> None:
    trace = tmp_path / "t.kdbtrace"
    t.read(trace, t.header(), t.block(t.key(1, b"z.cpp.o", CPU), t.database(2, b"x"), t.statement(3, 1, 2)))
    want, out = tmp_path / "want", tmp_path / "m"
    assert run_cli("manifest", trace, *ab, "-o", want).code == 0
    for inputs in ((trace, *ab), (*ab, trace), (want, ab[0])):
        assert run_cli("merge", *inputs, "-o", out, "--force").code == 0
        assert out.read_bytes() == want.read_bytes()
    for option in ("--prefer=first", "--skip-damaged", "--allow-mixed"):
        ended = run_cli("merge", trace, ab[0], "-o", out, "--force", option)
        assert ended.code == 2 and option.partition("=")[0] in ended.err
    dashed = tmp_path / "-x"
    dashed.write_bytes(want.read_bytes())
    assert run_cli("merge", dashed, "-o", out, "--force", "-q") == (0, "", "")


def test_bad_usage(ab: tuple[Path, Path], run_cli: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "o.kdb"
    text = tmp_path / "text"
    text.write_text("hello\n" * 200)
    assert run_cli("merge", *ab).code == 2
    ended = run_cli("merge", ab[0], text, "-o", out)
    assert ended.code == 2 and "not an SQLite file" in ended.err and ended.err.count("\n") == 1
    assert run_cli("merge", tmp_path / "none", "-o", out).code == 2
    assert run_cli("merge", *ab, "-o", out, "--miopen", "6.4.3").code == 2
    assert run_cli("merge", *ab, "-o", tmp_path / "no" / "o.kdb").code == 2
    out.write_text("mine")
    assert run_cli("merge", *ab, "-o", out).code == 2 and out.read_text() == "mine"
    assert run_cli("merge", *ab, "-o", ab[0], "--force").code == 0  # over one of the inputs
    assert len(content(ab[0])) == 3


def test_hostile_names_stay_on_their_line(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    name = b"x\x1b[2J\n" + b"y" * (1 << 20) + b".cpp.o"
    a, b = (make(tmp_path / f"{n}.kdb", [row(name, data=d)]) for n, d in enumerate((ONE, TWO)))
    ended = run_cli("merge", a, b, "-o", tmp_path / "o.kdb")
    assert ended.code == 1 and all(c.isprintable() or c == "\n" for c in ended.err)
    assert sum(line.startswith("conflict: ") for line in ended.err.splitlines()) == 1


def test_no_rows(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "o.kdb"
    assert run_cli("merge", make(tmp_path / "a.kdb", []), "-o", out).code == 0 and content(out) == {}


KEYS = st.tuples(
    st.binary(min_size=1, max_size=6).filter(lambda b: b"\0" not in b),
    st.binary(max_size=6).filter(lambda b: b"\0" not in b),
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.dictionaries(KEYS, st.sampled_from([ONE, TWO, THREE]), max_size=8),
    parts=st.lists(st.sets(st.integers(0, 7)), min_size=1, max_size=4),
    random=st.randoms(use_true_random=False),
)
def test_any_parts_in_any_order_give_the_same_file(
    tmp_path: Path, rows: dict[tuple[bytes, bytes], bytes], parts: list[set[int]], random: Any
) -> None:
    flat = [(name + b".cpp.o", b" " + more + CPU, data) for (name, more), data in rows.items()]
    files = []
    for number, part in enumerate(parts):
        path = tmp_path / f"{number}.kdb"
        write_kdb(path, [flat[i] for i in sorted(part) if i < len(flat)], {"miopen": "6.4.3"}, force=True)
        files.append(str(path))
    made = []
    for _ in range(3):
        out = tmp_path / "o.kdb"
        assert main(["merge", *files, "-o", str(out), "--force", "-q"]) == 0
        made.append(out.read_bytes())
        random.shuffle(files)
    assert made[0] == made[1] == made[2]
    whole = set().union(*parts)
    want = {(name, more): md5(data) for i, (name, more, data) in enumerate(flat) if i in whole}
    assert content(tmp_path / "o.kdb") == want


def test_what_stands_in_the_way_of_a_missing_input_is_that_it_is_missing(
    run_cli: Callable[..., Any], tmp_path: Path
) -> None:
    """Not that an option does not fit what it is not."""
    ended = run_cli("merge", tmp_path / "none.kdb", "-o", tmp_path / "o.kdb", "--skip-damaged")
    assert ended.code == 2 and "no such file" in ended.err and "--skip-damaged" not in ended.err


def test_the_hint_for_rows_of_no_architecture_works(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    """An MLIR kernel's key names none: one hint led to a folder, and that one back to a file."""
    rows = [row(data=ONE), row(name="x.mlir.o", args=" --op", data=TWO)]
    path = make(tmp_path / "a.kdb", rows)
    for output in (tmp_path / "o.kdb", tmp_path):
        ended = run_cli("merge", path, "-o", output)
        assert ended.code == 2 and ended.err.endswith("for one (gfx1030.kdb)\n")
    path.rename(tmp_path / "gfx1030.kdb")
    assert run_cli("merge", tmp_path / "gfx1030.kdb", "-o", tmp_path / "o.kdb").code == 0
    assert len(content(tmp_path / "o.kdb")) == 2


def test_no_name_for_xnack_devices_over_rows_for_others(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    """An object that is not for such a device would be wrong code under that name."""
    off = [row(args=" -mcpu=gfx90a", data=code_object("gfx90a", xnack="off", sramecc="any"))]
    plain = make(tmp_path / "gfx90a.kdb", off)
    ended = run_cli("merge", plain, "-o", tmp_path / "gfx90a_xnack.kdb")
    assert ended.code == 2 and "a name for devices with xnack+" in ended.err
    nameless = make(tmp_path / "a.kdb", off)
    ended = run_cli("merge", nameless, "-o", tmp_path / "gfx90a_xnack.kdb")
    assert ended.code == 1 and f"damaged: {nameless} row 1" in ended.err
    assert run_cli("merge", nameless, "-o", tmp_path / "b.kdb").code == 0
    anywhere = [row(args=" -mcpu=gfx90a", data=code_object("gfx90a", xnack="any", sramecc="any"))]
    plus = make(tmp_path / "gfx90a_xnack.kdb", anywhere)
    ended = run_cli("merge", plus, "-o", plain, "--force")
    assert ended.code == 2 and "a name for other devices than xnack+" in ended.err
    assert run_cli("merge", plus, "-o", tmp_path / "c.kdb").code == 0


@pytest.mark.parametrize("name", ["gfx1030.kdb.bz2", "all.kdbmanifest"])
def test_no_database_under_the_name_of_something_else(
    name: str, ab: tuple[Path, Path], run_cli: Callable[..., Any], tmp_path: Path
) -> None:
    ended = run_cli("merge", *ab, "-o", tmp_path / name)
    assert ended.code == 2 and "a database is made" in ended.err and not (tmp_path / name).exists()


def test_the_commands_that_repair_work_as_they_stand(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    """Blanks in a name; two inputs, each with its own output."""
    bad = [make(tmp_path / f"{n} b.kdb", [row(data=ONE, size=-7)]) for n in "ab"]
    ended = run_cli("merge", *bad, "-o", tmp_path / "o.kdb")
    commands = re.findall(r"kdbtool (fix .*?\.kdb' -o new\d*\.kdb)", ended.err)
    assert len(commands) == 2
    made = []
    for command in commands:
        words = shlex.split(command)
        made.append(tmp_path / words[-1])
        assert run_cli(*words[:-1], made[-1]).code == 0
    assert run_cli("merge", *made, "-o", tmp_path / "o.kdb").code == 0
