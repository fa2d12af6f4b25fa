"""A row's blob as far as verify looks into it, here or in worker processes: the dear part of a pass."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Generic, TypeVar

from kdbtool.codeobject import CodeObject, CodeObjectError, parse
from kdbtool.codeobject.check import check_parsed, damage_finding
from kdbtool.kdb.blob import unpack
from kdbtool.kdb.findings import Code, Finding

T = TypeVar("T")
AHEAD = 4  # blobs per worker that are under way: what bounds memory
WORTH = 500  # rows from which on workers are started


@dataclass(frozen=True)
class Decoded:
    """What is said of a blob. `found`: the object without its bytes and metadata, None where it cannot be."""

    findings: tuple[Finding, ...]
    found: CodeObject | None = None
    size: int = 0  # bytes of the object


def decode(blob: bytes, digest: str, size: int, arch: str | None, target: str | None) -> Decoded:
    """Unpack and judge a blob with its kernel_hash and uncompressed_size, under a key for `arch`.

    `target`: the target id of the devices (kdbtool.codeobject.check).
    """
    data, findings = unpack(blob, digest, size)
    if data is None:
        return Decoded(tuple(findings))
    if not data:
        return Decoded((*findings, Finding(Code.NOT_ELF, "empty")))
    try:
        parsed = parse(data, arch)
    except CodeObjectError as error:
        return Decoded((*findings, damage_finding(error)))
    findings += check_parsed(parsed, arch, target)
    slim = replace(parsed, elf=b"", metadata=None, metadata_kernels=(), descriptors={})
    return Decoded(tuple(findings), slim, len(data))


class Pool(Generic[T]):
    """Decodes blobs in order, in `jobs` processes; one job is this process. A context manager.

    What is `put` comes back from `done` in the same order with its answer; at most a few blobs for each
    process are under way.
    """

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self._waiting: deque[tuple[T, Decoded | Future[Decoded]]] = deque()
        self._executor: ProcessPoolExecutor | None = None
        if jobs > 1:
            # Not forked: a child must not hold the open database.
            context = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(jobs, mp_context=context)

    def __enter__(self) -> Pool[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)

    def submit(self, arguments: tuple[bytes, str, int, str | None, str | None]) -> Decoded | Future[Decoded]:
        """The answer, or the promise of one."""
        return decode(*arguments) if self._executor is None else self._executor.submit(decode, *arguments)

    def put(self, item: T, answer: Decoded | Future[Decoded]) -> None:
        """Something that waits for an answer of `submit`."""
        self._waiting.append((item, answer))

    def done(self, *, everything: bool = False) -> Iterator[tuple[T, Decoded]]:
        """Items whose turn it is, with their answer."""
        room = 0 if everything or self._executor is None else AHEAD * self.jobs
        while len(self._waiting) > room:
            item, answer = self._waiting.popleft()
            yield item, answer if isinstance(answer, Decoded) else answer.result()
