"""A stand-in HIP whose calls a host can leave in any way, and a host that does (c/harm.c)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from support.standins import Ran, Standins, compile_standin, standins, traces

__all__ = ["Harm", "harm", "number", "standins", "traces"]


class Harm:
    """`program` does what its first argument names; it is linked to a HIP beside it."""

    def __init__(self, standins: Standins, folder: Path) -> None:
        self.standins, self.folder, self.program = standins, folder, folder / "harm"
        self.hip = folder / "libamdhip64.so.6"
        compile_standin(self.hip, "harm_hip.c", "-Wl,-soname,libamdhip64.so.6")
        self.compile(self.program)

    def compile(self, target: Path, *options: str) -> None:
        compile_standin(target, "harm.c", str(self.hip), f"-Wl,-rpath,{self.folder}", *options)

    def env(self, env: Mapping[str, str] | None) -> dict[str, str]:
        return {"LD_LIBRARY_PATH": str(self.folder), **(env or {})}

    def same(
        self, traces: Path, *argv: object, env: Mapping[str, str] | None = None, program: Path | None = None
    ) -> Ran:
        """Run without and with the recorder: output and end are the same."""
        command = (program or self.program, *argv)
        plain = self.standins.run(None, *command, env=self.env(env))
        ran = self.standins.run(traces, *command, env=self.env(env))
        assert (ran.code, ran.out, ran.err) == (plain.code, plain.out, plain.err)
        return ran


@pytest.fixture(scope="session")
def harm(standins: Standins, tmp_path_factory: pytest.TempPathFactory) -> Harm:
    folder = tmp_path_factory.mktemp("harm")
    folder.chmod(0o755)
    return Harm(standins, folder)


def number(ran: Ran, what: str = "could not be recorded") -> int:
    """The sum of the numbers before the notes that say `what`."""
    return sum(int(n.split()[0]) for t in ran.traces for n in t.notes if what in n)
