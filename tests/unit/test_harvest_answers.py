"""csrc/harvest: look-ups of kernels are answered, nothing else is touched; the stand-in on the device."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support import simgpu
from support.standins import compile_standin

from kdbtool.codeobject.standin import stand_in
from kdbtool.errors import KdbtoolError
from kdbtool.harvest.walk import answer
from kdbtool.shim import libs
from kdbtool.targets import load, split_target

LOOKUP = (
    "SELECT kernel_blob, kernel_hash, uncompressed_size FROM kern_db "
    "WHERE (kernel_name = 'a.cl.o') AND (kernel_args = ' -DA=1 -mcpu=gfx1030');"
)
OTHERS = [
    "SELECT solver, params FROM perf_db INNER JOIN config;",
    "INSERT OR REPLACE INTO kern_db(kernel_name) VALUES('a')",
    "CREATE TABLE IF NOT EXISTS kern_db (id INTEGER);",
    "SELECT 1 WHERE 'x FROM kern_db' = 'y'",
    "SELECT",
    "",
]
NOT_FOUND, HANDLE = 500, 400


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("asker")
    sqlite = folder / "libsqlite3.so.0"
    compile_standin(sqlite, "asker.c", "-DSQLITE", "-Wl,-soname,libsqlite3.so.0")
    compile_standin(folder / "asker", "asker.c", str(sqlite), str(libs.answers()))
    return folder / "asker"


def ask(asker: Path, *words: str, answered: str | None = "SELECT x'7f', 'md5', 0") -> list[str]:
    env = {"PATH": os.environ["PATH"], "LD_PRELOAD": str(libs.answers())}
    if answered is not None:
        env["KDBTOOL_HARVEST_ANSWER"] = answered
    done = subprocess.run([asker, *words], env=env, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


def test_a_look_up_is_answered_and_counted(asker: Path) -> None:
    assert ask(asker, LOOKUP) == [
        "prepare SELECT x'7f', 'md5', 0",
        f"7 tail {len(LOOKUP)}",  # what SQLite says, and all of the statement was taken
        "answered 1 blas 0 1 0",
    ]


def test_without_an_answer_nothing_is_changed(asker: Path) -> None:
    assert ask(asker, LOOKUP, answered=None) == [f"prepare {LOOKUP}", "7 tail 1", "answered 0 blas 0 1 0"]


@pytest.mark.parametrize("sql", OTHERS)
def test_other_statements_pass_by(sql: str, asker: Path) -> None:
    assert ask(asker, sql) == [f"prepare {sql}", "7 tail 1", "answered 0 blas 0 1 0"]


def test_a_length_that_ends_before_the_table_is_no_look_up(asker: Path) -> None:
    assert ask(asker, f"!{LOOKUP}")[0] == f"prepare {LOOKUP[:20]}"


def test_the_user_database_is_opened_once_others_each_time(asker: Path) -> None:
    words = ["open /u/gfx1030_36.ukdb", "close"] * 2 + ["open /s/gfx1030.kdb", "close"] * 2
    assert ask(asker, *words)[:-1] == [
        *("open /u/gfx1030_36.ukdb 6", "0", "0", "0", "0"),
        *(2 * ["open /s/gfx1030.kdb 6", "0", "close it", "0"]),
    ]


def test_a_user_database_that_does_not_open_is_not_kept(asker: Path) -> None:
    words = ["open /missing.ukdb", "open /missing.ukdb"]
    assert ask(asker, *words)[:-1] == ["open /missing.ukdb 6", "14"] * 2


@pytest.mark.parametrize("arch", ["gfx1030", "gfx906", "gfx90a", "gfx942"])
def test_the_device_has_every_function_of_a_stand_in(arch: str, tmp_path: Path) -> None:
    script = """
code, m = load_exact(data); ok(code)
out = [function(m, n)[0] for n in ('one', 'two', '', 'x' * 70000)]
_, f = function(m, 'one'); out += [function(m, 'one')[1].value == f.value, hip.hipKernelNameRef(f).decode()]
out.append(hip.hipModuleLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, None, None, None))
ok(hip.hipModuleUnload(m))
out += [hip.hipModuleLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, None, None, None), function(m, 'one')[0]]
done(out)
"""
    found = simgpu.run(script, tmp_path, device=arch, data=stand_in(load(arch).elf_mach))
    assert found == [0, 0, 0, NOT_FOUND, True, "one", 0, HANDLE, HANDLE]


def test_a_stand_in_is_for_its_architecture_and_nothing_less_is_one(tmp_path: Path) -> None:
    good = stand_in(load("gfx1030").elf_mach)
    others = [
        stand_in(load("gfx906").elf_mach),  # another device's
        good[:63],
        good.replace(b"kdbtool", b"kdbtoo1"),
        good[:60] + b"\1\0" + good[62:],  # a section, which is not there
    ]
    for data in others:
        (code,) = simgpu.run("done([load_exact(data)[0]])", tmp_path, data=data)
        assert code != 0


def test_the_answer_has_the_columns_that_miopen_reads() -> None:
    import hashlib
    import sqlite3

    ((blob, digest, size),) = sqlite3.connect(":memory:").execute(answer(split_target("gfx1030:36")))
    assert (digest, size) == (hashlib.md5(blob, usedforsecurity=False).hexdigest(), 0)
    assert len(blob) == 64


def driver(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [libs.harvest_driver(), *arguments],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_driver_without_its_library_says_so() -> None:
    done = driver("libNoSuchMIOpen.so.1", "1")
    assert (done.returncode, done.stdout) == (3, "")
    assert "libNoSuchMIOpen.so.1" in done.stderr
    assert driver().returncode == 2


def test_what_is_not_built_is_named(tmp_path: Path) -> None:
    with pytest.raises(KdbtoolError, match="is not built"):
        libs.answers(within=tmp_path)
