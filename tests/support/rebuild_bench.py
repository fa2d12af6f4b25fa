"""`bench`: a command line of `kdbtool rebuild` over a fake compiler, sources and a cache."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import NamedTuple

import pytest
from support.rebuilding import TARGET, fake_clang, kernel_folder, key, manifest_file

from kdbtool.cli import main
from kdbtool.manifest import Key

GOOD = key(" -DFAKE=good -DA=1")


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


class Bench:
    """A folder with a fake compiler, sources, a cache, and a command line over them."""

    def __init__(self, folder: Path, shared: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys
        self.compiler = fake_clang(folder / "compiler", shared)
        self.sources = kernel_folder(folder / "sources", "kernel.cl", "other.cl")
        self.output = folder / "out.kdb"
        self.failed = folder / "out.kdb.failed"

    def arguments(self, keys: list[Key] | Path, *more: object) -> list[object]:
        manifest = keys
        if isinstance(keys, list):
            manifest = manifest_file(self.folder / "m.kdbmanifest", keys, self.sources)
        return [
            *("rebuild", manifest, "-o", self.output, "--root", "none", "--compiler", self.compiler),
            *("--sources", self.sources, "--cache", self.folder / "cache", "-j", 2, *more),
        ]

    def run(self, *arguments: object) -> Done:
        self.capsys.readouterr()
        code = main([str(a) for a in arguments], ("rebuild",))
        return Done(code, *self.capsys.readouterr())

    def rebuild(self, keys: list[Key] | Path, *more: object) -> Done:
        return self.run(*self.arguments(keys, *more))

    def rows(self) -> list[tuple[str, str]]:
        database = sqlite3.connect(f"file:{self.output}?mode=ro", uri=True)
        try:
            return database.execute("SELECT kernel_name, kernel_args FROM kern_db ORDER BY id").fetchall()
        finally:
            database.close()


@pytest.fixture
def bench(
    tmp_path: Path, shared: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Bench:
    monkeypatch.setattr("kdbtool.cli.rebuild._target", lambda arch, language: TARGET)
    return Bench(tmp_path, shared, capsys)
