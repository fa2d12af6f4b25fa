"""`kdbtool record` around real programs: what it must not change, and what it must leave."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kdbtool.root import Root
from kdbtool.shim import launcher
from kdbtool.shim.trace import find_traces, read_trace

DRIVER = (
    *("MIOpenDriver", "conv", "-n", "2", "-c", "8", "-H", "16", "-W", "16", "-k", "8", "-y", "3", "-x", "3"),
    *("-p", "1", "-q", "1", "-t", "1", "-V", "0", "-i", "1", "-F", "1"),
)
Kdbtool = Callable[..., Any]


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    return tmp_path / "traces"


def digest(*folders: Path) -> dict[str, str]:
    """SHA-256 of every file below, with mode and time of change."""
    found = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            state = path.lstat()
            content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            found[str(path)] = f"{content} {state.st_mode:o} {state.st_mtime_ns}"
    return found


# -- on the host, no MIOpen needed


def host(kdbtool: Kdbtool, traces: Path, *argv: object, **keywords: object) -> Any:
    return kdbtool("record", "--root", "none", "-o", traces, "--", *argv, **keywords)


@pytest.mark.parametrize("code", [0, 1, 2, 77, 127, 255])
def test_exit_code_is_the_programs(kdbtool: Kdbtool, traces: Path, code: int) -> None:
    assert host(kdbtool, traces, "sh", "-c", f"exit {code}") == (code, "", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGPIPE])
def test_death_by_signal_is_passed_on(kdbtool: Kdbtool, traces: Path, number: int) -> None:
    assert host(kdbtool, traces, "sh", "-c", f"kill -{int(number)} $$").code == -number


def test_signal_sent_to_record_reaches_the_program(tmp_path: Path) -> None:
    script = "trap 'echo got; exit 5' TERM; echo ready; while :; do sleep 0.05; done"
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "kdbtool", "record", "--root", "none", "-o", str(tmp_path / "t")),
            *("--", "sh", "-c", script),
        ],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=60)[0] == "got\n"
    assert process.returncode == 5


def test_signal_while_the_program_starts_is_not_lost() -> None:
    script = (
        "import os, signal, subprocess; from kdbtool.cli.record import _Relay; relay = _Relay()\n"
        "os.kill(os.getpid(), signal.SIGTERM); process = subprocess.Popen(['sleep', '60'])\n"
        "relay.started(process); print(process.wait())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "-15\n"


def test_output_bytes_and_input_are_the_programs(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "kdbtool",
        "record",
        "--root",
        "none",
        "-o",
        str(tmp_path / "t"),
        "--",
        "cat",
    ]
    data = bytes(range(256)) * 300
    done = subprocess.run(command, input=data, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, data, b"")


def test_open_descriptors_and_dispositions_are_handed_down(tmp_path: Path) -> None:
    read, write = os.pipe()
    plain = subprocess.run(
        ["sh", "-c", "grep SigIgn /proc/self/status"], capture_output=True, text=True, check=True
    ).stdout
    done = subprocess.run(
        [
            *(sys.executable, "-m", "kdbtool", "record", "--root", "none", "-o", str(tmp_path / "t")),
            *("--", "sh", "-c", f"echo x >/dev/fd/{write}; grep SigIgn /proc/self/status"),
        ],
        pass_fds=[write],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(write)
    assert os.read(read, 9) == b"x\n"
    os.close(read)
    assert done.stdout == plain


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no program given"),
        (["--", "/no/such/program"], "no such program"),
        (["--", "no-such-program-anywhere"], "no such program"),
        (["--", "/etc/passwd"], "cannot be executed"),
        (["--", "/"], "cannot be executed"),
        (["--simulate", "gfx9999", "--", "touch", "started"], "gfx1030"),
        (["--simulate", "gfx1030:0", "--", "touch", "started"], "gfx1030"),
        (["--simulate", "gfx1030:x", "--", "touch", "started"], "gfx1030"),
        (["-o", "/proc/nothing", "--", "touch", "started"], "/proc/nothing"),
        (["-o", "a-file", "--", "touch", "started"], "a-file"),
        (["--root", "/no/root", "--", "touch", "started"], "/no/root"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(
    kdbtool: Kdbtool, tmp_path: Path, arguments: list[str], words: str
) -> None:
    (tmp_path / "a-file").touch()
    extra = [] if "--root" in arguments else ["--root", "none"]
    code, out, err = kdbtool("record", *extra, *arguments, cwd=tmp_path)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1, err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a-file"]


def test_folder_of_the_traces_is_made_at_need_only(kdbtool: Kdbtool, tmp_path: Path) -> None:
    assert kdbtool("record", "--root", "none", "--", "true", cwd=tmp_path).code == 0
    assert not (tmp_path / "kdbtool-traces").exists()  # no event, no litter


def test_private_folders_of_a_killed_run_go_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(launcher.tempfile, "tempdir", None)
    own = launcher.Workspace()
    dead = own.path.with_name(own.path.name.rpartition("-")[0] + "-1")  # this pid, another start
    busy = own.path.with_name(f"{dead.name.rpartition('-')[0]}-2")
    elsewhere = own.path.with_name("run-1-1-1")  # of another pid namespace
    for path in (dead, busy, elsewhere):
        path.mkdir()
    (busy / "program").write_text(f"{os.getpid()} {own.path.name.rpartition('-')[2]}")
    own.remove()
    again = launcher.Workspace()
    assert sorted(p.name for p in again.path.parent.iterdir()) == sorted(
        [again.path.name, busy.name, elsewhere.name]
    )


def test_kept_folders_are_not_swept_by_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(launcher.tempfile, "tempdir", None)
    kept = launcher.Workspace(keep=True)
    launcher.Workspace().remove()
    assert kept.path.is_dir()


def test_temporary_folder_laid_by_somebody_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(launcher.tempfile, "tempdir", None)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"kdbtool-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Exception, match="not this user's own folder"):
        launcher.Workspace()


def test_library_path_that_ld_preload_cannot_hold_gets_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(launcher.tempfile, "tempdir", None)
    (tmp_path / "my libs").mkdir()
    space = launcher.Workspace()
    link = space.reachable(tmp_path / "my libs")
    assert " " not in str(link) and link.resolve() == tmp_path / "my libs"
    assert space.reachable(tmp_path) == tmp_path


# -- in the root, with the real MIOpen


def test_simulated_run_leaves_the_users_files_and_the_mounts_as_they_are(
    record: Kdbtool, tmp_path: Path, traces: Path, root: Path
) -> None:
    home = tmp_path / "home"
    for place in (".cache/miopen/3.4.0./x.ukdb", ".config/miopen/y.ufdb.txt", ".profile"):
        (home / place).parent.mkdir(parents=True, exist_ok=True)
        (home / place).write_text("mine")
    watched = [
        home,
        *(p for p in (Path.home() / ".cache/miopen", Path.home() / ".config/miopen") if p.exists()),
    ]
    before, mounts = digest(*watched), Path("/proc/mounts").read_text()
    code, out, err = record(traces, *DRIVER, env={"HOME": str(home), "MIOPEN_USER_DB_PATH": str(home / "db")})
    assert code == 0, err
    assert "conv" in out
    assert digest(*watched) == before
    assert Path("/proc/mounts").read_text() == mounts
    assert not list(Path(launcher._parent(Path(tempfile.gettempdir()))).glob(f"run-*-{os.getpid()}-*"))
    found = [read_trace(p) for p in find_traces([traces])]
    hosts = [t for t in found if t.facts.role == "host"]
    assert len(hosts) == 1 and hosts[0].facts.simulated
    assert sum(t.facts.role == "compiler" for t in found) >= 1
    assert any(lookup.hit is False for lookup in hosts[0].lookups)


def test_inside_the_root_folder_arguments_and_environment_are_the_callers(
    record: Kdbtool, tmp_path: Path, traces: Path
) -> None:
    odd = tmp_path / "a folder, with: odd = names"
    odd.mkdir()
    (odd / "file").write_text("seen")
    script = 'pwd; cat file; printf "%s|" "$@" "$ODD"; readlink -f /usr/bin/python3; echo written > made'
    code, out, err = record(
        traces, "sh", "-c", script, "sh", "", "two words", "-- $x", cwd=odd, env={"ODD": "a\nb=c"}
    )
    assert code == 0, err
    assert out.startswith(f"{odd}\nseen|two words|-- $x|a\nb=c|/usr/bin/python3.")
    assert (odd / "made").read_text() == "written\n"


def test_what_is_written_to_the_roots_system_is_thrown_away(
    record: Kdbtool, traces: Path, root: Path
) -> None:
    code, _, err = record(traces, "sh", "-c", "echo x > /etc/kdbtool-litter && cat /etc/kdbtool-litter")
    assert code == 0, err
    assert not (root / "etc/kdbtool-litter").exists()


def test_program_that_the_root_lacks(record: Kdbtool, traces: Path) -> None:
    code, out, err = record(traces, "/opt/none/prog")
    assert (code, out) == (2, "")
    assert "in the root" in err and err.count("\n") == 1


def test_death_by_signal_inside_the_root(record: Kdbtool, traces: Path) -> None:
    assert record(traces, "sh", "-c", "kill -9 $$").code == -9


def simulated(root: Root, traces: Path) -> list[str]:
    """`kdbtool record` of the small convolution, for a process that a test starts itself."""
    options = ("--simulate", "gfx1030:36", "--root", str(root.path), "-o", str(traces))
    return [sys.executable, "-m", "kdbtool", "record", *options, "--", *DRIVER]


def test_two_runs_at_once_keep_apart(opened_root: Root, tmp_path: Path) -> None:
    command = simulated(opened_root, tmp_path / "t")
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(2)]
    for process in running:
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
    found = [read_trace(p) for p in find_traces([tmp_path / "t"])]
    hosts = [t for t in found if t.facts.role == "host"]
    assert len(hosts) == 2
    # Private databases: each was cold, neither found what the other had compiled.
    assert [sum(x.hit is False for x in t.lookups) for t in hosts] == [
        sum(x.hit is False for x in hosts[0].lookups)
    ] * 2


def test_traces_are_whole_when_record_itself_is_killed(opened_root: Root, tmp_path: Path) -> None:
    command = simulated(opened_root, tmp_path / "t")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("t/*.kdbtrace")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.wait()
    for path in find_traces([tmp_path / "t"]):
        read_trace(path)


def test_keep_leaves_the_private_folders_and_says_where(
    kdbtool: Kdbtool, traces: Path, opened_root: Root
) -> None:
    code, out, err = kdbtool(
        *("record", "--simulate", "gfx1030", "--keep", "--root", opened_root.path, "-o", traces),
        *("--", "sh", "-c", "echo $HOME"),
    )
    assert code == 0, err
    kept = Path(err.strip().rpartition(": ")[2])
    assert out.strip() == str(kept / "home") and kept.is_dir()
    for path in sorted(kept.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    kept.rmdir()


# -- roots that are real


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_remove_refuses_a_root_with_a_real_mount(tmp_path: Path) -> None:
    fake = tmp_path / "r"
    (fake / "etc").mkdir(parents=True)
    (fake / "host").mkdir()
    (fake / "etc/kdbtool-root.json").write_text("{}")
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data").write_text("x")
    script = 'mount --bind "$1" "$2/host"; shift; exec "$2" -m kdbtool.root remove --root "$1"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", str(precious), str(fake), sys.executable],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "mounted in it" in done.stderr
    assert (precious / "data").exists() and fake.exists()


def test_the_root_passes_its_own_check(run_cli: Kdbtool, opened_root: Root) -> None:
    code, out, err = run_cli("root", "check", "--root", opened_root.path)
    assert (code, err) == (0, ""), out
