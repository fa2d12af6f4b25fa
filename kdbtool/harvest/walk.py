"""Walks a few hundred problems through MIOpen in a process of its own, and reads what it asked for.

The driver (csrc/harvest/driver.c) runs in the root, on a simulated device, behind the recorder and the
library that answers look-ups. A process that dies or hangs costs the solver that it was at, named, and
another one goes on behind it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kdbtool.codeobject.standin import stand_in
from kdbtool.errors import EXIT_PROBLEMS, KdbtoolError
from kdbtool.harvest.lines import line
from kdbtool.harvest.steps import Collector, Found, Steps, ended
from kdbtool.harvest.wanted import ASK_OFFERED, FULL_FIND, Wanted
from kdbtool.miopen import textdb
from kdbtool.miopen.problems import parse_problem
from kdbtool.miopen.solvers import solver_ids
from kdbtool.root import Root, enter
from kdbtool.shim import libs
from kdbtool.shim.launcher import make_private, recorded_environment, user_databases
from kdbtool.targets import Target

_SONAME = "libMIOpen.so.1"
_SHARED_MEMORY = Path("/dev/shm")
_ROOM = 256 << 20  # bytes that must be free there
_LOG_BYTES = 4096  # of MIOpen's last words, kept of a failure


@dataclass(frozen=True)
class Setup:
    """What every walk shares. `folder`: to work in; `seconds`: time limit of a problem; `system`: a folder of
    system databases; `find_db_name`: of a user find-db, for ASK_OFFERED."""

    root: Root | None
    target: Target
    libraries: Path
    folder: Path
    seconds: int = 60
    system: Path | None = None
    tier: str = ""
    find_db_name: str = ""
    base: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


def walk(setup: Setup, wanted: Sequence[Wanted]) -> Found:
    """Ask for everything in `wanted`. KdbtoolError where the driver cannot run."""
    out = Collector(wanted)
    folder = Path(tempfile.mkdtemp(prefix="walk-", dir=setup.folder))
    left = [(place, one) for place, one in enumerate(wanted)]
    while left:  # each turn is done with one solver at least
        turn = folder / "turn"
        turn.mkdir()
        left = _turn(setup, turn, left, out)
        shutil.rmtree(turn)
    folder.rmdir()
    return out.done()


def quick_folder() -> Path | None:
    """Memory, where there is some: MIOpen opens and closes three files for each step. None: $TMPDIR it is."""
    try:
        space = os.statvfs(_SHARED_MEMORY)
        if space.f_bavail * space.f_frsize >= _ROOM and os.access(_SHARED_MEMORY, os.W_OK | os.X_OK):
            return _SHARED_MEMORY
    except OSError:
        pass
    return None


def _turn(
    setup: Setup, folder: Path, left: list[tuple[int, Wanted]], out: Collector
) -> list[tuple[int, Wanted]]:
    """One process; what it did not come to."""
    ids = solver_ids()
    text = "".join(
        line(
            place, setup.seconds, parse_problem(one.key), one.action, (ids[solver] for solver in one.solvers)
        )
        + "\n"
        for place, one in left
    )
    (folder / "in").write_text(text, "ascii")
    traces = folder / "traces"
    traces.mkdir()
    private = make_private(folder / "private")
    records = [one.record + "\n" for _, one in left if one.action == ASK_OFFERED]
    if records:
        (user_databases(private) / setup.find_db_name).write_bytes(textdb.encode("".join(records)))
    code = _run(setup, folder, traces, private)
    steps = Steps((folder / "out").read_text("ascii"))
    words = _tail(folder / "err")
    if not steps.begun and code:
        raise KdbtoolError(
            "the harvest's driver cannot run",
            where=_SONAME,
            why=f"{ended(code)}: {words}" if words else ended(code),
            exit_code=EXIT_PROBLEMS,
        )
    out.take(steps, traces)
    if code == 0:
        return []
    return out.blame(steps, code, words, left)


def _run(setup: Setup, folder: Path, traces: Path, private: Path) -> int:
    env = recorded_environment(
        setup.base,
        library_dir=setup.libraries,
        trace_dir=traces,
        target=setup.target,
        private=private,
    )
    env["LD_PRELOAD"] = f"{env['LD_PRELOAD']}:{libs.answers(within=setup.libraries)}"
    env["KDBTOOL_HARVEST_ANSWER"] = answer(setup.target)
    env["MIOPEN_COMPILE_PARALLEL_LEVEL"] = "1"  # look-ups in one order
    env["MIOPEN_LOG_LEVEL"] = "3"  # errors: the last words of what fails
    env["MIOPEN_SYSTEM_DB_PATH"] = str(setup.system or private)
    if setup.tier == FULL_FIND:
        env["MIOPEN_FIND_MODE"] = "1"
    with (
        (folder / "in").open("rb") as source,
        (folder / "out").open("wb") as steps,
        (folder / "err").open("wb") as err,
    ):
        binds = [setup.libraries, folder, *filter(None, [setup.system])]
        process = enter.popen(
            [str(libs.harvest_driver(within=setup.libraries)), _SONAME, str(steps.fileno())],
            root=setup.root.path if setup.root else None,
            env=env,
            binds=binds,
            stdin=source,
            stdout=err,
            stderr=err,
            pass_fds=[steps.fileno()],
            start_new_session=True,
        )
        try:
            return process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise


def answer(target: Target) -> str:
    """The statement that answers a look-up, with the columns of KernDb::FindRecord
    (src/include/miopen/kern_db.hpp, 2.15 to 3.5): blob, its MD5, and size 0 where nothing is compressed."""
    image = stand_in(target.elf_mach)
    digest = hashlib.md5(image, usedforsecurity=False).hexdigest()
    return f"SELECT x'{image.hex()}', '{digest}', 0"


def _tail(path: Path) -> str:
    """The last line of what MIOpen said, one line."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LOG_BYTES))
        text = file.read().decode("utf-8", "replace")
    return next((one.strip()[:300] for one in reversed(text.splitlines()) if one.strip()), "")
