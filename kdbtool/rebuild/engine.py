"""Many compilations at once, each result kept as soon as it is there; one failing kernel stops nothing.

A worker compiles, verifies and stores, so that what was finished survives any end of the run; the
main process hands out work and counts. Objects stay on disk: memory does not grow with rows.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from kdbtool.codeobject import check_object
from kdbtool.errors import KdbtoolError
from kdbtool.manifest import Key
from kdbtool.reasons import Reason
from kdbtool.rebuild.backend import Backend, Identity, Limits, Outcome, Task
from kdbtool.rebuild.plan import Plan, Skip
from kdbtool.rebuild.pool import Pool
from kdbtool.rebuild.store import Store

_FULL = 1 << 20  # bytes; with less a compiler cannot be expected to write its files
_WORK = "kdbtool-"
Probe = dict[str, list[str]]  # target ids by language
Order = tuple[Task, Identity]
Message = Probe | Order
Reply = Identity | Outcome


class Progress(Protocol):
    """Told of every object that a run gets."""

    def start(self, total: int, reused: int) -> None:
        """`total` objects are wanted, `reused` were there."""

    def done(self, task: Task, outcome: Outcome) -> None:
        """One more was tried."""

    def stop(self) -> None:
        """No more come."""


@dataclass(frozen=True)
class Failure:
    """An object that could not be made, and the keys that lack it."""

    task: Task
    outcome: Outcome
    keys: tuple[Key, ...]


@dataclass
class Result:
    """`rows` are the built keys with the digest of their object in the store."""

    identity: Identity
    rows: dict[str, list[tuple[Key, str]]] = field(default_factory=dict)  # by arch
    skips: list[Skip] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    compiled: int = 0
    reused: int = 0
    damaged: int = 0  # stored objects that did not match their own hash


def run(
    plan: Plan,
    backend: Backend,
    headers: Mapping[str, bytes],
    store: Store,
    *,
    workers: int,
    limits: Limits,
    progress: Progress,
) -> Result:
    """Build every job of `plan` that is not in `store` yet.

    KdbtoolError when no job can be built by this back end; OSError when the store cannot be written.
    """
    with workspace(store.folder) as work:

        def setup(number: int) -> Callable[[Message], Reply]:
            return _Worker(backend, headers, store, limits, work / f"worker-{number}").handle

        with Pool[Message, Reply](min(workers, max(1, len(plan.jobs))), setup) as pool:
            return _run(plan, backend, store, pool, progress)


def _run(
    plan: Plan, backend: Backend, store: Store, pool: Pool[Message, Reply], progress: Progress
) -> Result:
    identity = next(iter(pool.map([plan.targets()])))[1]
    if not isinstance(identity, Identity):
        raise KdbtoolError("the compiler's process died", where=backend.describe(), exit_code=1)
    result = Result(identity, skips=list(plan.skips))
    tasks: dict[str, Task] = {}
    keys: dict[str, list[Key]] = {}
    missing: dict[str, None] = {}  # in order, each once
    for job in plan.jobs:
        why = identity.missing(job.language, job.target)
        if why is not None:
            detail = f"{job.language} for {job.target}: {why}"
            missing[detail] = None
            result.skips += [Skip(key, Reason.NO_COMPILER, detail) for key in job.keys]
            continue
        task = plan.task(job, identity)
        tasks.setdefault(task.digest, task)
        keys.setdefault(task.digest, []).extend(job.keys)
    if plan.jobs and not tasks:
        raise KdbtoolError(
            "this compiler builds none of the rows",
            where=backend.describe(),
            why="; ".join(missing),
            hint="kdbtool root make gets one, or name another with --compiler",
        )
    wanted = [task for task in tasks.values() if store.get(task.digest) is None]
    result.reused, result.damaged = len(tasks) - len(wanted), len(store.damaged)
    failed: set[str] = set()
    progress.start(len(tasks), result.reused)
    try:
        for message, reply in pool.map((task, identity) for task in wanted):
            assert isinstance(message, tuple)
            task = message[0]
            if not isinstance(reply, Outcome):
                reply = Outcome(task.digest, None, Reason.COMPILE_KILLED, "its worker died, twice")
            if reply.reason is None:
                result.compiled += 1
            else:
                failed.add(task.digest)
                result.failures.append(Failure(task, reply, tuple(keys[task.digest])))
            progress.done(task, reply)
    finally:
        progress.stop()
    for digest, task in tasks.items():
        if digest not in failed:
            result.rows.setdefault(task.arch, []).extend((key, digest) for key in keys[digest])
    for rows in result.rows.values():
        rows.sort(key=lambda row: (row[0].name, row[0].args))
    result.failures.sort(key=lambda failure: failure.keys[0])
    return result


class _Worker:
    """In a worker process: one back end in one folder."""

    def __init__(
        self, backend: Backend, headers: Mapping[str, bytes], store: Store, limits: Limits, work: Path
    ) -> None:
        self.backend, self.store, self.limits = backend, store, limits
        if work.exists():  # of a worker that died
            shutil.rmtree(work)
        work.mkdir()
        backend.enter(work, headers)

    def handle(self, message: Message) -> Reply:
        if not isinstance(message, tuple):
            self._check_disk("")  # or the compiler is blamed
            return self.backend.probe(message, self.limits)
        task, identity = message
        outcome = self.backend.compile(task, identity, self.limits)
        if outcome.code is not None:
            problems = [f for f in check_object(outcome.code, task.arch, task.target) if f.is_problem]
            if not problems:
                self.store.put(task.digest, outcome.code)
                return replace(outcome, code=None, argv=())
            detail = "; ".join(f"{f.code.code} {f.detail}".strip() for f in problems)
            outcome = replace(outcome, code=None, reason=Reason.BAD_OBJECT, detail=detail)
        self._check_disk(outcome.log)
        return outcome

    def _check_disk(self, log: str) -> None:
        """A full disk is not the kernel's fault, and the next one would fail too: stop the run."""
        left = os.statvfs(self.store.folder)
        if "No space left on device" in log or left.f_bavail * left.f_frsize < _FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.store.folder))


@contextlib.contextmanager
def workspace(folder: Path) -> Iterator[Path]:
    """A folder below `folder` that ends with the run; those of runs that were killed are removed first."""
    base = folder / "work"
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    for stale in base.glob(f"{_WORK}*"):  # the folder may be one of the user's, with a `work` in it
        with contextlib.suppress(OSError):
            handle = os.open(stale, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(stale, ignore_errors=True)
            finally:
                os.close(handle)
    work, handle = _locked_folder(base)
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)
        os.close(handle)


def _locked_folder(base: Path) -> tuple[Path, int]:
    """A new folder and its lock. Another run may take one for stale before the lock: then again."""
    while True:
        work = Path(tempfile.mkdtemp(prefix=_WORK, dir=base))
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(handle, fcntl.LOCK_SH)  # workers inherit it: held until the last of them is gone
            try:
                if os.path.samestat(os.fstat(handle), work.stat()):
                    return work, handle
            except FileNotFoundError:
                pass
            os.close(handle)
