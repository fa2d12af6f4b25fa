"""What a command does with the streams that it is given: closed, full, or of a small alphabet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.kdb_files import make, row

COMMANDS = (["info"], ["verify"], ["manifest", "-q"], ["info", "--json"])


def _shell(command: list[str], path: Path, redirect: str, **environment: str) -> tuple[int, str, str]:
    line = f'exec "$0" -m kdbtool {" ".join(command)} "$1" {redirect}'
    done = subprocess.run(
        ["/bin/sh", "-c", line, sys.executable, str(path)],
        capture_output=True,
        check=False,
        timeout=60,
        cwd=Path(__file__).parents[2],
        env={**os.environ, **environment},
    )
    return done.returncode, done.stdout.decode("latin-1"), done.stderr.decode()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("redirect", [">&-", ">/dev/full"])
def test_output_that_nobody_can_read_is_one_line(tmp_path: Path, command: list[str], redirect: str) -> None:
    """A closed standard output ended in a traceback."""
    code, _, err = _shell(command, make(tmp_path / "gfx1030.kdb"), redirect)
    assert code != 0
    assert len(err.splitlines()) == 1
    assert err.startswith(f"kdbtool {command[0]}: ")


def test_a_closed_standard_error_keeps_the_exit_code(tmp_path: Path) -> None:
    assert _shell(["verify"], tmp_path / "nothing.kdb", "2>&-")[0] == 2
    assert _shell(["info"], make(tmp_path / "gfx1030.kdb"), "2>&-")[0] == 0


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("command", ["info", "verify"])
def test_a_terminal_of_a_small_alphabet_sees_escapes(tmp_path: Path, command: str, encoding: str) -> None:
    """A name that it cannot show ended in a traceback."""
    path = make(tmp_path / "gfx\u65e5.kdb", [row("k\u65e5.cl.o")])
    code, out, err = _shell([command], path, "", PYTHONIOENCODING=encoding)
    assert (code, err) == (0, "")
    assert "gfx\\u65e5.kdb" in out


def test_a_reader_that_had_enough_is_no_bad_usage(tmp_path: Path) -> None:
    """`kdbtool list | head` had the exit code of bad usage; it is a shell's for SIGPIPE."""
    path = make(tmp_path / "gfx1030.kdb", [row(f"k{i}.cl.o") for i in range(5000)])
    command = [sys.executable, "-m", "kdbtool", "list", str(path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=Path(__file__).parents[2]
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert (process.stderr.read(), process.wait(60)) == (b"", 141)


def test_bad_usage_is_one_line(tmp_path: Path) -> None:
    for words in (["list", "--no-such"], ["list"], ["no-such"], ["trace", "info", "--top", "x", "t"], []):
        command = [sys.executable, "-m", "kdbtool", *words]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False
        )
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
        assert done.stderr.startswith("kdbtool") and done.stderr.endswith(" --help says more\n")


def test_a_terminated_command_leaves_no_temporary_file(tmp_path: Path) -> None:
    """SIGTERM ended it before it could clean up."""
    script = (
        "import sys, time; from pathlib import Path; import kdbtool.cli as cli; from kdbtool.files import *\n"
        "def main():\n"
        "    with atomic_write(Path(sys.argv[1])) as file:\n"
        "        file.write(b'half'); print('ready', flush=True); time.sleep(60)\n"
        "cli.main = main; cli.entry()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        assert process.wait(20) == 143
    assert not list(tmp_path.iterdir())
