"""Worker processes that take one message at a time; a worker that dies costs one message, not the run.

Processes, not threads: later back ends compile inside the worker behind a lock of the whole process.
Workers are forked, so what they need is there without being sent, and end with their parent, even
when that is killed. `Executor` is what the engine needs; a cluster can be another one.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

from kdbtool.errors import KdbtoolError
from kdbtool.rebuild.place import end_on_sigterm

T = TypeVar("T")
R = TypeVar("R")
Handler = Callable[[T], R]

GRACE = 5.0  # seconds that a worker has to end what it started

_fork = multiprocessing.get_context("fork")


class Executor(ABC, Generic[T, R]):
    """Messages in, replies out in any order; None as the reply to one that killed two workers."""

    @abstractmethod
    def map(self, messages: Iterable[T]) -> Iterator[tuple[T, R | None]]:
        """Every message with its reply, as they come."""

    @abstractmethod
    def close(self) -> None:
        """End all workers at once."""


class _Worker:
    def __init__(self, number: int, setup: Callable[[int], Handler[Any, Any]], others: list[_Worker]) -> None:
        self.pipe, theirs = _fork.Pipe()
        close = [self.pipe, *(worker.pipe for worker in others)]
        self.process = _fork.Process(target=_serve, args=(number, setup, theirs, close), daemon=True)
        self.process.start()
        theirs.close()
        self.number = number
        self.message: Any = None

    def end(self) -> None:
        self.process.terminate()  # it holds nothing: finished objects are on disk
        self.process.join(GRACE)
        self.process.kill()
        self.process.join()
        self.pipe.close()


class Pool(Executor[T, R]):
    """`size` workers on this machine; each calls `setup(number)` once and serves with what that returns."""

    def __init__(self, size: int, setup: Callable[[int], Handler[T, R]]) -> None:
        self.setup = setup
        self.workers: list[_Worker] = []
        for number in range(size):
            self.workers.append(_Worker(number, setup, self.workers))

    def map(self, messages: Iterable[T]) -> Iterator[tuple[T, R | None]]:
        waiting = iter(messages)
        again: list[T] = []
        tried: list[T] = []
        busy: dict[Connection, _Worker] = {}
        for worker in list(self.workers):
            self._next(worker, again, waiting, busy)
        while busy:
            for pipe in multiprocessing.connection.wait(list(busy)):
                assert isinstance(pipe, Connection)
                worker = busy.pop(pipe)
                message = worker.message
                try:
                    kind, reply = pipe.recv()
                except (EOFError, OSError):
                    worker = self._replace(worker)
                    if message in tried:
                        yield message, None
                    else:
                        tried.append(message)
                        again.append(message)
                else:
                    if kind == "error":
                        raise _unpack(reply)
                    yield message, reply
                self._next(worker, again, waiting, busy)

    def close(self) -> None:
        for worker in self.workers:
            worker.end()
        self.workers.clear()

    def __enter__(self) -> Pool[T, R]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next(
        self, worker: _Worker, again: list[T], waiting: Iterator[T], busy: dict[Connection, _Worker]
    ) -> None:
        for message in [again.pop()] if again else waiting:
            worker.message = message
            with contextlib.suppress(OSError):  # a dead worker is found when its reply is read
                worker.pipe.send(message)
            busy[worker.pipe] = worker
            return

    def _replace(self, worker: _Worker) -> _Worker:
        worker.end()
        self.workers.remove(worker)
        new = _Worker(worker.number, self.setup, self.workers)
        self.workers.append(new)
        return new


def _serve(
    number: int, setup: Callable[[int], Handler[Any, Any]], pipe: Connection, close: list[Connection]
) -> None:
    end_on_sigterm()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    for connection in close:  # or a worker would keep the pipes of the others open
        connection.close()
    handler: Handler[Any, Any] | None = None
    while True:
        try:
            message = pipe.recv()
        except EOFError:
            return
        try:
            if handler is None:
                handler = setup(number)
            answer = ("done", handler(message))
        except (KdbtoolError, OSError) as error:
            answer = ("error", _pack(error))
        pipe.send(answer)


def _pack(error: KdbtoolError | OSError) -> dict[str, Any]:
    if isinstance(error, OSError):
        return {"errno": error.errno, "filename": error.filename}
    where = None if error.where is None else str(error.where)
    return {**vars(error), "where": where}


def _unpack(fields: dict[str, Any]) -> Exception:
    if "errno" in fields:
        number = fields["errno"] or 0
        return OSError(number, os.strerror(number), fields["filename"])
    return KdbtoolError(fields.pop("what"), **fields)
