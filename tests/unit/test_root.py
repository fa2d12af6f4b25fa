"""Roots: the host's archive, the lock, a make that is cut off anywhere, and removing safely."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import fake_debian

from kdbtool import root as root_package
from kdbtool.errors import KdbtoolError
from kdbtool.root import choose_root, enter, locking, make, manage, mirror, open_root, privilege, recipe
from kdbtool.root.paths import RootPaths

NEEDS = recipe.load().needs


# -- the host's archive


def sources(etc: Path, **files: str) -> Path:
    (etc / "sources.list.d").mkdir(parents=True)
    for name, text in files.items():
        path = etc / "sources.list" if name == "main" else etc / "sources.list.d" / name.replace("__", ".")
        path.write_text(text)
    return etc


def test_mirror_of_a_deb822_file_with_comments_inside_and_disabled_entries(tmp_path: Path) -> None:
    etc = sources(
        tmp_path,
        a__sources="Types: deb\nURIs: https://vendor.example/apt\nSuites: nodistro\nComponents: main\n\n"
        "Enabled: no\nTypes: deb\nURIs: http://off.example/debian\nSuites: trixie\nComponents: main\n",
        debian__sources="Types: deb deb-src\n# a comment\nURIs:\n http://one.example/debian/\n"
        "Suites: trixie\n trixie-updates\nComponents: main contrib\n\n",
    )
    assert mirror.host_mirror(etc) == "http://one.example/debian"


def test_mirror_of_a_one_line_file_passes_over_security_and_sources(tmp_path: Path) -> None:
    etc = sources(
        tmp_path,
        main="# deb http://no.example/debian sid main\ndeb-src http://src.example/debian bookworm main\n"
        "deb http://sec.example/debian-security bookworm-security main\n"
        "deb [arch=amd64 signed-by=/k.gpg] http://two.example/debian bookworm main non-free # the one\n",
    )
    assert mirror.host_mirror(etc) == "http://two.example/debian"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "deb http://u.example/ubuntu jammy main\n",
        "deb\n",
        "\x00\xff garbage",
        "deb http://x.example/debian bookworm contrib\n",
    ],
)
def test_no_archive_names_the_option(tmp_path: Path, text: str) -> None:
    with pytest.raises(KdbtoolError, match="--mirror URL"):
        mirror.host_mirror(sources(tmp_path, main=text))


@pytest.mark.parametrize("uri", ["", "debian", "ftp://x/d", 'http://x" sid main', "http://x y", "http://x\n"])
def test_mirror_option_that_is_no_address(uri: str) -> None:
    with pytest.raises(KdbtoolError, match="not a mirror address"):
        mirror.checked_mirror(uri)


def test_apt_settings_carry_no_hook() -> None:
    assert mirror._CARRIED.match("Acquire::http::Proxy")
    assert not mirror._CARRIED.match("APT::Update::Pre-Invoke")
    assert not mirror._CARRIED.match("Acquire::http::Proxy-Auto-Detect")


# -- the lock


def package(**changes: object) -> dict[str, object]:
    row = {
        "name": "a",
        "version": "1",
        "arch": "amd64",
        "file": "a_1_amd64.deb",
        "size": 1,
        "sha256": "0" * 64,
        "pool": "pool/a.deb",
    }
    return row | changes


def test_lock_round_trip(tmp_path: Path) -> None:
    lock = locking.Lock("6.4.3", "sid", (locking.Package(**package()),))  # type: ignore[arg-type]
    (tmp_path / "lock").write_text(lock.dump())
    assert locking.read_lock(tmp_path / "lock") == lock


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 100_000,
        '{"format": 2, "packages": []}',
        '{"format": 1, "packages": []}',
        *(
            json.dumps({"format": 1, "packages": [row]})
            for row in (
                {"name": "a"},
                package(extra=1),
                package(name=3),
                package(size="1"),
                package(sha256="zz"),
                package(file="../../etc/passwd"),
                package(file="x/y.deb"),
                package(file="-o.deb"),
                package(pool="../../x"),
                package(pool="http://elsewhere.example/x"),
            )
        ),
    ],
)
def test_lock_with_bad_fields_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "lock").write_text(text)
    with pytest.raises(KdbtoolError, match="not a usable root lock") as caught:
        locking.read_lock(tmp_path / "lock")
    assert "\n" not in caught.value.line()


# -- making


@pytest.fixture
def maker(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`maker("make", ...)`: `python -m kdbtool.root` with the fake Debian, on tmp_path/r."""
    env = {**os.environ, **fake_debian.install(tmp_path / "home", NEEDS)}
    env["PYTHONPATH"] = str(Path(root_package.__file__).parents[2])

    def run(action: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "kdbtool.root", action, "--root", str(tmp_path / "r"), *arguments],
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


MIRROR = ("--mirror", "file:///no-archive")
Maker = Callable[..., subprocess.CompletedProcess[str]]


def test_make_then_again_is_up_to_date(tmp_path: Path, maker: Maker) -> None:
    done = maker("make", *MIRROR)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    lock = locking.read_lock(tmp_path / "r.lock")
    assert lock.versions() == {"base": "1", "tool": "1:2"}
    assert not lock.missing(tmp_path / "r.debs")
    assert {p.name for p in tmp_path.iterdir()} == {"home", "r", "r.lock", "r.debs", "r.flock"}
    again = maker("make", *MIRROR)
    assert again.returncode == 0
    assert "up to date" in again.stderr
    assert fake_debian.journal(tmp_path / "home").count("debootstrap") == 1


@pytest.mark.parametrize(
    "step", ["debootstrap", "configure", "update", "mend", "install", "query", "show", "clean"]
)
def test_make_killed_at_any_step_completes_when_run_again(tmp_path: Path, maker: Maker, step: str) -> None:
    (tmp_path / "home" / "kill-at").write_text(step)
    killed = maker("make", *MIRROR)
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "r").exists()
    done = maker("make", *MIRROR)
    assert done.returncode == 0, done.stderr
    assert root_package.is_complete(tmp_path / "r")
    assert not (tmp_path / "r.making").exists()
    # Only debootstrap itself starts over.
    count = fake_debian.journal(tmp_path / "home").count("debootstrap")
    assert count == (2 if step == "debootstrap" else 1)


@pytest.mark.parametrize("step", ["debootstrap", "update", "install", "clean"])
def test_make_that_fails_says_so_in_one_line_and_leaves_no_root(
    tmp_path: Path, maker: Maker, step: str
) -> None:
    (tmp_path / "home" / "fail-at").write_text(step)
    done = maker("make", "-q", *MIRROR)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "E: no such thing" in done.stderr
    assert not (tmp_path / "r").exists()


def test_made_again_from_the_kept_packages_without_the_archive(tmp_path: Path, maker: Maker) -> None:
    assert maker("make", *MIRROR).returncode == 0
    assert maker("remove").returncode == 0
    assert not (tmp_path / "r").exists()
    done = maker("make", "--mirror", "file:///gone")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "home" / "journal").read_text()
    assert f"file://{tmp_path}/r.debs" in text
    assert "tool=1:2" in text
    packages = (tmp_path / "r.debs/dists/sid/main/binary-amd64/Packages").read_text()
    assert packages.endswith("\n\n")  # debootstrap overlooks a last package without it


def test_locked_package_that_is_neither_kept_nor_in_the_archive(tmp_path: Path, maker: Maker) -> None:
    assert maker("make", *MIRROR).returncode == 0
    assert maker("remove").returncode == 0
    (tmp_path / "r.debs" / "tool_1%3a2_amd64.deb").write_text("another file of the same name")
    done = maker("make", "-q", "--mirror", "file:///gone")
    assert done.returncode == 2
    assert "tool 1:2" in done.stderr
    assert "--update" in done.stderr


def test_locked_package_that_was_lost_comes_from_the_archive(tmp_path: Path, maker: Maker) -> None:
    assert maker("make", *MIRROR).returncode == 0
    assert maker("remove").returncode == 0
    pool = tmp_path / "archive" / "pool"
    pool.mkdir(parents=True)
    (tmp_path / "r.debs" / "tool_1%3a2_amd64.deb").rename(pool / "tool_2_amd64.deb")
    done = maker("make", "-q", "--mirror", f"file://{tmp_path}/archive")
    assert done.returncode == 0, done.stderr


def test_other_options_than_the_root_was_made_with(maker: Maker) -> None:
    assert maker("make", *MIRROR).returncode == 0
    done = maker("make", "-q", "--no-cures", *MIRROR)
    assert done.returncode == 2
    assert "cures: True" in done.stderr


def test_cures_are_links_and_can_be_left_out(tmp_path: Path, maker: Maker) -> None:
    link = next(iter(recipe.load().cure_links)).lstrip("/")
    assert maker("make", *MIRROR).returncode == 0
    assert (tmp_path / "r" / link).is_symlink()
    assert maker("remove", "--all").returncode == 0
    assert not (tmp_path / "r.debs").exists()
    assert maker("make", "--no-cures", *MIRROR).returncode == 0
    assert not (tmp_path / "r" / link).is_symlink()
    assert not open_root(tmp_path / "r").cures


def test_make_into_a_folder_of_somebody_else(tmp_path: Path, maker: Maker) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "thesis.tex").write_text("x")
    done = maker("make", "-q", *MIRROR)
    assert done.returncode == 2
    assert (tmp_path / "r" / "thesis.tex").exists()


def test_check_tells_a_root_whose_packages_moved_on(tmp_path: Path, maker: Maker) -> None:
    assert maker("make", *MIRROR).returncode == 0
    (tmp_path / "r/var/lib/dpkg/status").write_text(
        "Package: base\nStatus: install ok installed\nVersion: 2\n\n"
        "Package: tool\nStatus: install ok installed\nVersion: 1:2\n"
    )
    found = manage.check(RootPaths(tmp_path / "r"))
    assert any("base: 2 here, 1 in r.lock" in line for line in found)


# -- removing


def test_remove_refuses_a_folder_that_kdbtool_did_not_make(tmp_path: Path, maker: Maker) -> None:
    (tmp_path / "r").mkdir()
    done = maker("remove")
    assert done.returncode == 2
    assert "did not make" in done.stderr
    assert (tmp_path / "r").exists()


def test_remove_refuses_a_link(tmp_path: Path) -> None:
    (tmp_path / "r").symlink_to(tmp_path)
    with pytest.raises(KdbtoolError, match="a link"):
        manage.remove(RootPaths(tmp_path / "r"))


def test_remove_refuses_while_something_is_mounted(
    tmp_path: Path, maker: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert maker("make", *MIRROR).returncode == 0
    inside = str(tmp_path / "r" / "dev")
    monkeypatch.setattr(privilege, "mounts_below", lambda path: [inside] if path.name == "r" else [])
    with pytest.raises(KdbtoolError, match="something is mounted in it"):
        manage.remove(RootPaths(tmp_path / "r"))
    assert (tmp_path / "r").exists()


def test_mounts_below_reads_octal_escapes_and_is_no_prefix_match(tmp_path: Path) -> None:
    info = tmp_path / "mountinfo"
    info.write_bytes(
        b"1 0 0:1 / / rw - ext4 x rw\n"
        b"2 1 0:1 / /a\\040b/r/proc rw - proc p rw\n"
        b"3 1 0:1 / /a\\040b/rest rw - tmpfs t rw\n"
        b"garbage\n\n"
    )
    assert privilege.mounts_below(Path("/a b/r"), info) == ["/a b/r/proc"]
    assert privilege.mounts_below(Path("/a b/re"), info) == []


# -- choosing and entering


def test_root_none_forbids_and_a_named_root_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDBTOOL_ROOT", str(tmp_path / "absent"))
    assert choose_root("none", simulated=True) is None
    with pytest.raises(KdbtoolError, match="no such root"):
        choose_root(None, simulated=False)
    with pytest.raises(KdbtoolError, match="without libMIOpen"):
        choose_root(str(tmp_path), simulated=False)


def test_without_any_miopen_the_error_names_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KDBTOOL_ROOT", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(root_package, "locate_miopen", lambda: None)
    with pytest.raises(KdbtoolError, match="run: kdbtool root make"):
        choose_root(None, simulated=True)
    assert choose_root(None, simulated=False) is None
    monkeypatch.setattr(root_package, "locate_miopen", lambda: Path("/opt/rocm/lib/libMIOpen.so.1"))
    assert choose_root(None, simulated=True) is None


def test_the_host_is_not_laid_over_the_roots_own_system(tmp_path: Path) -> None:
    (tmp_path / "usr/share").mkdir(parents=True)
    wanted = [Path(p) for p in ("/", "/usr/share", "/usr/include", "/proc/self", "/tmp", "/tmp", "/no/such")]
    assert enter._bindable([*wanted, Path("/usr/include/linux")], tmp_path) == [
        Path("/tmp"),
        Path("/usr/include"),
    ]


def test_environment_inside_has_no_host_rocm_and_keeps_the_users_cure() -> None:
    inside = enter.environment(
        {"ROCM_PATH": "/opt/rocm", "PATH": "/host", "CURE": "mine"},
        ["/tests"],
        {"CURE": "ours", "OTHER": "ours"},
    )
    assert "ROCM_PATH" not in inside
    assert inside["PATH"].endswith(":/tests") and "/host" not in inside["PATH"]
    assert inside["CURE"] == "mine" and inside["OTHER"] == "ours"


def test_recipe_of_an_unknown_version() -> None:
    with pytest.raises(KdbtoolError, match=r"known: 6\.4\.3"):
        recipe.load("../6.4.3")


def test_marker_with_garbage_is_no_complete_root(tmp_path: Path) -> None:
    marker = RootPaths(tmp_path).marker
    marker.parent.mkdir()
    for text in ("", "{", "[]", "\xff"):
        marker.write_text(text, "latin-1")
        assert not root_package.is_complete(tmp_path)
    assert make.STAGES[0] == "bootstrap"


@pytest.mark.parametrize(
    "command", [("root", "list"), ("root", "path"), ("record", "--simulate", "gfx1030", "--", "true")]
)
def test_a_user_without_a_home_is_one_line(
    command: tuple[str, ...], run_cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("HOME", "XDG_CACHE_HOME", "KDBTOOL_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setattr("kdbtool.root.locate_miopen", lambda: None)
    done = run_cli(*command)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "this user has no home" in done.err
