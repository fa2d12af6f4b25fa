"""kdbtool.files: the whole new file or the old one, and nothing beside it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kdbtool.errors import KdbtoolError
from kdbtool.files import atomic_path, atomic_write, check_output, write_bytes


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_writes_with_exact_mode_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        write_bytes(tmp_path / "a", b"x")
    finally:
        os.umask(old)
    assert (tmp_path / "a").read_bytes() == b"x"
    assert (tmp_path / "a").stat().st_mode & 0o7777 == 0o644
    assert names(tmp_path) == ["a"]


def test_existing_output_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(KdbtoolError, match="output exists; --force") as caught:
        write_bytes(tmp_path / "a", b"new")
    assert caught.value.exit_code == 2
    assert (tmp_path / "a").read_bytes() == b"old"
    write_bytes(tmp_path / "a", b"new", force=True)
    assert (tmp_path / "a").read_bytes() == b"new"
    assert names(tmp_path) == ["a"]


def test_output_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    with pytest.raises(KdbtoolError, match="output exists"), atomic_write(tmp_path / "a") as file:
        file.write(b"mine")
        (tmp_path / "a").write_bytes(b"theirs")
    assert (tmp_path / "a").read_bytes() == b"theirs"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt()])
def test_exception_in_the_body_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(type(error)), atomic_write(tmp_path / "a", force=True) as file:
        file.write(b"half")
        raise error
    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_full_disk_is_one_line_exit_1_and_nothing_left(tmp_path: Path) -> None:
    with pytest.raises(KdbtoolError, match="no space left") as caught, atomic_write(tmp_path / "a") as file:
        file.write(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.exit_code == 1
    assert str(tmp_path / "a") in caught.value.line()
    assert names(tmp_path) == []


def test_missing_folder_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(KdbtoolError, match="folder does not exist; mkdir -p"):
        write_bytes(tmp_path / "no" / "a", b"")


def test_never_replaces_what_is_no_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "dir").mkdir()
    (tmp_path / "null").symlink_to("/dev/null")
    for name in ("fifo", "dir", "null"):
        with pytest.raises(KdbtoolError, match="cannot write"):
            write_bytes(tmp_path / name, b"x", force=True)
    assert names(tmp_path) == ["dir", "fifo", "null"]


def test_symlink_stays_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    write_bytes(tmp_path / "link", b"x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"x"


def test_longest_file_name(tmp_path: Path) -> None:
    write_bytes(tmp_path / ("n" * 255), b"x")
    assert names(tmp_path) == ["n" * 255]


def test_temporary_file_is_beside_the_output(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "a") as temp:
        assert temp.parent == tmp_path
        temp.write_bytes(b"x")
    assert check_output(tmp_path / "b") == tmp_path / "b"
