"""The parts of a rebuild that need no compiler: progress, worker pool, object store, number of workers."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.rebuilding import ARCH, TARGET

from kdbtool.errors import KdbtoolError
from kdbtool.reasons import Reason
from kdbtool.rebuild import logs
from kdbtool.rebuild.backend import Outcome, Task
from kdbtool.rebuild.cores import cgroup_quota, usable
from kdbtool.rebuild.engine import workspace
from kdbtool.rebuild.place import Root
from kdbtool.rebuild.pool import Pool
from kdbtool.rebuild.progress import choose
from kdbtool.rebuild.recipe import for_release
from kdbtool.rebuild.store import Store


def test_progress_on_a_terminal_and_in_a_log() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    task = Task("0" * 64, "kernel.cl", b"", "opencl", (), ARCH, TARGET)
    failed = Outcome(task.digest, None, Reason.COMPILE_FAILED, "bad \x1b[31m\n[bold]")
    for stream, quiet in ((Terminal(), False), (io.StringIO(), False), (io.StringIO(), True)):
        progress = choose(quiet, False, stream)
        progress.start(3, 1)
        progress.done(task, Outcome(task.digest))
        progress.done(task, failed)
        progress.stop()
        said = stream.getvalue()
        assert "kernel.cl for gfx942:xnack-: compile-failed: bad \\x1b[31m\\n[bold]" in said
        assert ("3/3" in said) == stream.isatty()
        assert ("3 objects to build, 1 of them built before" in said) == (not quiet and not stream.isatty())


def test_a_worker_that_dies_costs_one_message() -> None:
    def setup(number: int) -> Callable[[int], int]:
        def handle(message: int) -> int:
            if message == 3:
                os._exit(1)
            return message * 2

        return handle

    with Pool[int, int](2, setup) as pool:
        replies = dict(pool.map(range(6)))
    assert replies == {0: 0, 1: 2, 2: 4, 3: None, 4: 8, 5: 10}


def test_a_workers_error_reaches_the_caller() -> None:
    def setup(number: int) -> Callable[[int], int]:
        raise PermissionError(13, "Permission denied", "/somewhere")

    with Pool[int, int](1, setup) as pool, pytest.raises(PermissionError) as caught:
        list(pool.map([1]))
    assert caught.value.filename == "/somewhere"


def test_store_keeps_the_most_recently_used(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for n in range(4):
        digest = f"{n:064x}"
        store.put(digest, os.urandom(1000))
        os.utime(store.path(digest), (n, n))
    (tmp_path / "00" / ".abandoned.tmp").write_bytes(b"x")
    os.utime(tmp_path / "00" / ".abandoned.tmp", (0, 0))
    assert store.get(f"{0:064x}") is not None  # used now
    assert store.trim(2 * 1200 + 100) == 2
    assert [store.get(f"{n:064x}") is not None for n in range(4)] == [True, False, False, True]
    assert not list(tmp_path.rglob(".*.tmp"))


def test_a_cache_folder_of_the_users_keeps_what_is_theirs(tmp_path: Path) -> None:
    """`--cache ~` removed the folders in ~/work, and old files in any folder with a name of two letters."""
    theirs = [tmp_path / name for name in ("work/mine/a", "fr/photo", "ab/notes", "work/tmpabc/b")]
    for path in theirs:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * 5000)
    stale = tmp_path / "work" / "kdbtool-killed"
    stale.mkdir()
    with workspace(tmp_path) as work:
        assert work.is_dir()
    store = Store(tmp_path)
    store.put("ab" * 32, os.urandom(1000))
    assert store.trim(0) == 1
    store.remove()
    assert all(path.exists() for path in theirs)
    assert not stale.exists()


def test_a_folder_with_headers_of_the_users_takes_no_logs(tmp_path: Path) -> None:
    """`--logs .` removed ./headers before it wrote its own."""
    logs.check(tmp_path / "new")
    (tmp_path / "headers").mkdir()
    with pytest.raises(KdbtoolError, match="headers"):
        logs.check(tmp_path)
    (tmp_path / "0123456789ab-kernel.cl").mkdir()
    logs.check(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(KdbtoolError, match="not a directory"):
        logs.check(tmp_path / "file")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_compilers_children_end_with_the_run(tmp_path: Path, number: signal.Signals) -> None:
    """Below a wrapper script they went on after Ctrl-C, SIGTERM and SIGKILL."""
    script = (
        "import sys; from pathlib import Path; from kdbtool.rebuild.place import Place;"
        "from kdbtool.rebuild.pool import Pool\n"
        "def setup(n):\n"
        "    place = Place(); place.enter(Path(sys.argv[1]))\n"
        "    command = ['/bin/sh', '-c', 'sleep 300 & echo $! >pid; mv pid child; wait']\n"
        "    return lambda m: place.run(command, timeout=60, memory=1 << 32)\n"
        "with Pool(1, setup) as pool:\n"
        "    print('ready', flush=True); list(pool.map([0]))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        child = tmp_path / "child"
        assert _soon(child.exists)
        process.send_signal(number)
        process.wait(20)
        status = Path(f"/proc/{child.read_text().strip()}/stat")
        assert _soon(lambda: not status.exists() or status.read_text().rpartition(")")[2].split()[0] in "ZX")
    finally:
        process.kill()
        process.communicate()


def _soon(true: Callable[[], bool]) -> bool:
    for _ in range(400):
        if true():
            return True
        time.sleep(0.05)
    return False


def test_jobs_follow_the_build_system(tmp_path: Path) -> None:
    assert usable(7) == 7
    assert usable(None, {"DEB_BUILD_OPTIONS": "nocheck parallel=1"}) == 1
    assert usable(None, {"DEB_BUILD_OPTIONS": "parallel=0"}) == 1
    assert usable(None, {"DEB_BUILD_OPTIONS": "parallel=x"}) >= 1
    (tmp_path / "a" / "b").mkdir(parents=True)
    own = tmp_path / "own"
    own.write_text("0::/a/b\n")
    assert cgroup_quota(tmp_path, own) is None
    (tmp_path / "a" / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "a" / "b" / "cpu.max").write_text("max 100000\n")
    assert cgroup_quota(tmp_path, own) == 1
    (tmp_path / "a" / "cpu.max").write_text("nonsense\n")
    assert cgroup_quota(tmp_path, own) is None


def test_recipe_of_each_release() -> None:
    assert {for_release(r).id for r in ("5.0", "5.7.1")} == {"offline-5.0"}
    assert for_release("6.0.2").id == "offline-6.0"
    assert {for_release(r).id for r in ("6.1", "6.4.3", "7.2.4")} == {"offline-6.1"}
    assert for_release("6.4").hip_version == 6004043484
    for bad in ("8.0", "4.5", "develop", "6", "", "6.4.3/../..", "6\n.4"):
        with pytest.raises(KdbtoolError, match="no build recipe"):
            for_release(bad)


def test_recipe_fills_in_target_standard_and_what_a_clang_knows() -> None:
    recipe = for_release("6.4.3")

    def words(language: str, options: tuple[str, ...], target: str, clang: int = 21) -> tuple[str, ...]:
        return recipe.arguments(language, options, target, clang, source="k", output="o")

    assert "--std=c++17" in words("hip", ("-DA=1", "-mcpu=gfx906"), "gfx906:xnack-")
    assert "--cuda-gpu-arch=gfx906:xnack-" in words("hip", (), "gfx906:xnack-")
    assert "-mcpu=gfx906:xnack-" in words("asm", ("-mcpu=gfx906",), "gfx906:xnack-")
    assert "-mcpu=gfx906" not in words("asm", ("-mcpu=gfx906",), "gfx906:xnack-")
    own = words("hip", ("--std=c++14",), "gfx1030")
    assert [w for w in own if "std=" in w] == ["--std=c++14"]
    assert "-fno-offload-uniform-block" in own
    assert "-fno-offload-uniform-block" not in words("hip", (), "gfx1030", clang=16)
    define = "-DCK_AMD_BUFFER_ATOMIC_FADD_RETURNS_FLOAT=1"
    assert define in words("hip", (), "gfx908") and define not in words("hip", (), "gfx90a")
    assert not any("{" in w for language in ("hip", "opencl", "asm") for w in words(language, (), "gfx1030"))


def test_a_root_follows_its_own_links(tmp_path: Path) -> None:
    (tmp_path / "usr" / "bin").mkdir(parents=True)
    (tmp_path / "usr" / "bin" / "real").write_text("")
    (tmp_path / "usr" / "bin" / "absolute").symlink_to("/usr/bin/real")
    (tmp_path / "usr" / "bin" / "relative").symlink_to("../bin/absolute")
    (tmp_path / "usr" / "bin" / "escape").symlink_to("../../../../../usr/bin/real")
    (tmp_path / "usr" / "bin" / "loop").symlink_to("loop")
    outside = Root(tmp_path).outside
    for name in ("real", "absolute", "relative", "escape"):
        assert outside(f"/usr/bin/{name}") == tmp_path / "usr" / "bin" / "real", name
    assert outside("/usr/bin/loop").is_relative_to(tmp_path)
    assert outside("/../../etc") == tmp_path / "etc"
