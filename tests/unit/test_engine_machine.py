"""The rebuild engine on a machine that fails it: full disks, lost folders, other runs, no home."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.rebuild_bench import GOOD, Bench, bench
from support.rebuilding import TARGET, key

from kdbtool.errors import KdbtoolError
from kdbtool.rebuild import engine
from kdbtool.rebuild.choose import pick_root, pick_sources

__all__ = ["bench"]  # a fixture


def test_a_full_disk_is_one_line_and_leaves_nothing(bench: Bench) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    small = bench.folder / "small"
    small.mkdir()
    bench.output = small / "out.kdb"
    code = (
        "import sys; from kdbtool.cli import main, rebuild; "
        f"rebuild._target = lambda a, l: {TARGET!r}; sys.exit(main(sys.argv[1:], ('rebuild',)))"
    )
    keys = [key(f" -DFAKE=good -DA={n}") for n in range(60)]
    script = 'mount -t tmpfs -o size=160k none "$1" || exit 99; shift; "$@"; code=$?; ls -A "$0"; exit $code'
    for cache in (bench.folder / "cache", small / "cache"):
        arguments = [str(a) for a in bench.arguments(keys, "-q", "--cache", cache)]
        done = subprocess.run(
            [
                "unshare",
                "--mount",
                "sh",
                "-c",
                script,
                str(small),
                str(small),
                sys.executable,
                "-c",
                code,
                *arguments,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 99:
            pytest.skip(f"cannot mount here: {done.stderr}")
        assert done.returncode == 1, done
        assert (done.stderr.count("\n"), "no space left" in done.stderr) == (1, True), done.stderr
        assert done.stdout.split() in ([], ["cache"])


def test_two_runs_at_once_share_a_cache(bench: Bench) -> None:
    keys = [key(f" -DFAKE=slow -DA={n}") for n in range(8)]
    code = (
        "import sys; from kdbtool.cli import main, rebuild; "
        f"rebuild._target = lambda a, l: {TARGET!r}; sys.exit(main(sys.argv[1:], ('rebuild',)))"
    )
    outputs = [bench.folder / name for name in ("a.kdb", "b.kdb")]
    running = []
    for output in outputs:
        bench.output = output
        arguments = [str(a) for a in bench.arguments(keys, "-q")]
        running.append(subprocess.Popen([sys.executable, "-c", code, *arguments]))
    assert [process.wait() for process in running] == [0, 0]
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
    assert not list((bench.folder / "cache" / "work").iterdir())


def test_a_work_folder_that_another_run_took_for_stale_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Path] = []
    real = engine.fcntl.flock

    def flock(handle: int, operation: int) -> None:
        if not taken:
            taken.append(Path(f"/proc/self/fd/{handle}").readlink())
            taken[0].rmdir()
        real(handle, operation)

    monkeypatch.setattr(engine.fcntl, "flock", flock)
    with engine.workspace(tmp_path) as work:
        assert taken
        assert work.is_dir()
        assert work != taken[0]


def test_logs_that_cannot_be_written_cost_no_row(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were written first: a full disk kept the good rows from being published."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("kdbtool.rebuild.logs._save", full)
    done = bench.rebuild([GOOD, key(" -DFAKE=fail")])
    assert done.code == 1
    assert f"{bench.failed}: no space left" in done.err
    assert len(bench.rows()) == 1


def test_no_home_and_no_cache_are_no_traceback(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without an entry in passwd, as in a container, has no home at all."""

    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("XDG_CACHE_HOME", "KDBTOOL_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    monkeypatch.setattr("kdbtool.rebuild.choose.locate_miopen", lambda: None)
    assert pick_root(None, None) is None
    with pytest.raises(KdbtoolError, match="no kernel sources"):
        pick_sources(None, None, None, roots=True)


def test_a_full_cache_is_not_the_compilers_fault(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe of the compiler failed, and "does not say that it is a clang" was the answer."""
    monkeypatch.setattr("kdbtool.rebuild.engine._FULL", 1 << 62)
    done = bench.rebuild([GOOD])
    assert done.code == 1
    assert "no space left" in done.err
    assert not bench.output.exists()
