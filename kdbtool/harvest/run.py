"""Walks a plan chunk by chunk on all cores, each finished chunk into the record, and goes on where one ended.

The chunks depend on the plan alone, and what a problem asks for not on its chunk (wanted.company_of): so the
record and what is made of it are the same with any number of workers, and a tier is a part of a larger one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kdbtool.errors import EXIT_PROBLEMS, KdbtoolError
from kdbtool.harvest.record import Packed, Record, pack
from kdbtool.harvest.steps import Found
from kdbtool.harvest.walk import Setup, walk
from kdbtool.harvest.wanted import Failure, Plan, Wanted, Why
from kdbtool.miopen import textdb
from kdbtool.rebuild.pool import Pool

CHUNK = 500  # problems of one process: seconds of work, megabytes of keys

Progress = Callable[[int, int, int], None]  # problems done, of so many, keys


@dataclass
class Outcome:
    """What this run did. `compilers`: processes that MIOpen started in spite of the answers."""

    walked: int = 0
    resumed: int = 0  # problems that an earlier run had done
    compilers: int = 0


def digest(plan: Plan) -> str:
    """sha256 of what is wanted: two plans with one digest ask for the same."""
    text = hashlib.sha256(f"{plan.tier} {CHUNK}\n".encode())
    for one in plan.wanted:
        text.update(textdb.encode(f"{one.key} {one.action} {','.join(one.solvers)} {one.record}\n"))
    return text.hexdigest()


def begin(path: Path, plan: Plan, meta: dict[str, str], *, force: bool) -> Record:
    """The record of this plan at `path`, new or to be gone on with."""
    problems = dict.fromkeys([one.key for one in plan.wanted] + [f.key for f in plan.failures])
    record = Record.begin(path, meta | {"plan": digest(plan), "tier": plan.tier}, problems, force=force)
    record.fail(plan.failures, record.problem_numbers())
    return record


def harvest(plan: Plan, setup: Setup, record: Record, *, workers: int, progress: Progress) -> Outcome:
    """Ask for all that the record does not have. KdbtoolError where MIOpen cannot be asked at all."""
    numbers = record.problem_numbers()
    done = record.chunks()
    all_chunks = list(_chunks(plan.wanted))
    out = Outcome(resumed=sum(len(chunk) for number, chunk in all_chunks if number in done))
    left = [(number, chunk) for number, chunk in all_chunks if number not in done]
    total = len(plan.wanted)
    progress(out.resumed, total, record.counts()["key"])
    if not left:
        return out
    keys = record.counts()["key"]

    def start(_: int) -> Callable[[tuple[int, list[Wanted]]], Packed]:
        return lambda message: pack(walk(setup, message[1]))

    with Pool[tuple[int, list[Wanted]], Packed](min(workers, len(left)), start) as pool:
        for number, chunk, packed in in_order(pool.map(left), [n for n, _ in left]):
            if packed is None:
                packed = _given_up(chunk)
            _check(packed.found, record)
            record.add(number, [numbers[one.key] for one in chunk], packed, numbers)
            out.walked += len(chunk)
            out.compilers += packed.found.compilers
            keys = record.counts()["key"]
            progress(out.resumed + out.walked, total, keys)
    return out


def _chunks(wanted: Sequence[Wanted]) -> Iterator[tuple[int, list[Wanted]]]:
    """The problems of each process, numbered: those of one company, in the plan's order."""
    companies: dict[int, list[Wanted]] = {}
    for one in wanted:
        companies.setdefault(one.company, []).append(one)
    number = 0
    for _, some in sorted(companies.items()):
        for begin_at in range(0, len(some), CHUNK):
            yield number, some[begin_at : begin_at + CHUNK]
            number += 1


def in_order(
    replies: Iterator[tuple[tuple[int, list[Wanted]], Packed | None]], order: list[int]
) -> Iterator[tuple[int, list[Wanted], Packed | None]]:
    """The replies in the order of their chunks: numbers in the record must not depend on who was first."""
    waiting: dict[int, tuple[list[Wanted], Packed | None]] = {}
    wanted = iter(order)
    next_number = next(wanted, None)
    for (number, chunk), packed in replies:
        waiting[number] = chunk, packed
        while next_number is not None and next_number in waiting:
            chunk, packed = waiting.pop(next_number)
            yield next_number, chunk, packed
            next_number = next(wanted, None)


def _given_up(chunk: list[Wanted]) -> Packed:
    """Of a chunk whose worker was killed twice: memory, as a rule."""
    found = Found(
        failures=[Failure(one.key, "", Why.CRASHED, "its worker was killed twice") for one in chunk]
    )
    return pack(found)


def _check(found: Found, record: Record) -> None:
    wanted = record.meta().get("build-id")
    if found.build_id and wanted and found.build_id != wanted:
        raise KdbtoolError(
            "another libMIOpen answered than the one that was looked into",
            where=record.path,
            why=f"build-id {found.build_id}, not {wanted}",
            hint="see LD_LIBRARY_PATH, or name a root with --root",
            exit_code=EXIT_PROBLEMS,
        )
