"""Ask the real libMIOpen for every kernel that given problems need, without compiling one and without a GPU.

  kdbtool harvest --find-db gfx1030_36.HIP.fdb.txt --arch gfx1030:36 -o gfx1030.kdbmanifest
  kdbtool harvest --problems resnet50.txt --arch gfx906 -o resnet50.kdbmanifest

The library walks the problems on a simulated device; look-ups of kernels are answered with a stand-in, so
no compiler runs, and each is noted. --tier chooses how much: `default` (what MIOpen asks for out of the box,
by Find, without a find-db), `best` (the first solution of each problem in the find-db), `offered` (all that
GetSolution offers by the find-db), `all` (everything that any solution of the find-db asks for: the default
with --find-db); --full-find is what MIOPEN_FIND_MODE=1 tries. What was asked for by whom, and what failed and
why, is kept in OUTPUT.harvest; the same command goes on where it was interrupted. docs/harvest.md has the
whole of it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from kdbtool.cli import options
from kdbtool.cli.archs import one_target
from kdbtool.errors import EXIT_DONE, EXIT_PROBLEMS, KdbtoolError, printable
from kdbtool.files import atomic_write, check_output
from kdbtool.harvest import wanted
from kdbtool.harvest.assemble import manifest_of
from kdbtool.harvest.problems import read_problems
from kdbtool.harvest.progress import choose
from kdbtool.harvest.record import Record
from kdbtool.harvest.run import Outcome, begin, harvest
from kdbtool.harvest.walk import Setup, quick_folder
from kdbtool.harvest.wanted import FULL_FIND, OF_FIND_DB, OFFERED, TIERS, Plan, Why
from kdbtool.manifest.model import ASKED_UNBUILT, Manifest
from kdbtool.manifest.writer import pieces
from kdbtool.miopen import perfdb, textdb
from kdbtool.miopen.elfread import Library
from kdbtool.miopen.installed import reads_text_perf_db, user_database_suffix
from kdbtool.miopen.keys import shown_source
from kdbtool.miopen.solvers import solver_set
from kdbtool.miopen.sources import build_and_sources
from kdbtool.miopen.versions import MiopenBuild
from kdbtool.rebuild.cores import usable
from kdbtool.root import Root, choose_root, locate_miopen
from kdbtool.shim import libs
from kdbtool.shim.launcher import Workspace
from kdbtool.targets import Target

HELP = "ask the real libMIOpen which kernels problems need, without compiling one"
_MEMORY = 1 << 40  # a find-db may be of a card of the same architecture with more; nothing is committed
SHOWN = 20  # failures, damaged lines and sources told without -v


def prepare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    options.find_db(parser, "its problems")
    parser.add_argument(
        "--problems",
        type=Path,
        metavar="FILE",
        help="problems out of a list of keys or MIOpenDriver commands, a trace, a log or a manifest; "
        "with --find-db: only those of its problems",
    )
    parser.add_argument(
        "--perf-db",
        type=Path,
        metavar="FILE",
        help="a perf-db (text or SQLite, also .bz2) that MIOpen shall take tuned parameters from",
    )
    options.arch(parser, "the device, one: an architecture and its compute units; native: the one present")
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--tier",
        choices=TIERS,
        help="how much is asked for (default: all with --find-db, else default)",
    )
    group.add_argument("--full-find", action="store_true", help="ask for all that MIOPEN_FIND_MODE=1 tries")
    options.output(parser, "the manifest to write", required=True)
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="the harvest's own record (default: OUTPUT.harvest)"
    )
    parser.add_argument(
        "--askers", action="store_true", help="write into the manifest who asked for each key"
    )
    parser.add_argument(
        "--timeout", type=_seconds, default=60, metavar="SECONDS", help="for one problem (default: 60)"
    )
    options.root(parser)
    options.jobs(parser)
    options.force(parser)
    options.json_output(parser)
    options.verbosity(parser)


def run(args: argparse.Namespace) -> int:
    """Plan, walk, write, account."""
    check_output(args.output, force=args.force)
    record_path = args.record or args.output.with_name(args.output.name + ".harvest")
    target = replace(one_target(args.arch), memory_bytes=_MEMORY)
    tier = _tier(args)
    root = choose_root(args.root, simulated=True)
    library = _library(root)
    with Library(library) as opened:
        build, sources = build_and_sources(opened)
        build_id = opened.build_id() or ""
    plan = _plan(args, tier, build)
    if not plan.wanted:
        _account(args, plan, None, None, None)
        where = args.find_db or args.problems
        why = f"{len(plan.failures)} problems or solvers cannot be asked for" if plan.failures else None
        raise KdbtoolError("no problem to ask for", where=where, why=why, exit_code=EXIT_PROBLEMS)
    meta = {
        "miopen": build.rocm,
        "build-id": build_id,
        "device": f"{target.device}:{target.cu}",
        "perf-db": _sha256(args.perf_db) if args.perf_db else "",
        "find-db": _sha256(args.find_db) if args.find_db else "",
    }
    space = Workspace(base=quick_folder())
    progress = choose(args.quiet)
    try:
        setup = Setup(
            root,
            target,
            space.reachable(libs.answers().parent.parent),
            space.path,
            seconds=args.timeout,
            system=_system(args.perf_db, space, target, library),
            tier=tier,
            find_db_name=_find_db_name(target, library) if tier == OFFERED else "",
            base=root.environment(_environment()) if root else _environment(),
        )
        with begin(record_path, plan, meta, force=args.force) as record:
            with progress:
                outcome = harvest(plan, setup, record, workers=usable(args.jobs), progress=progress.show)
            manifest = manifest_of(record, sources, target, askers=args.askers)
            with atomic_write(args.output, force=args.force) as file:
                file.writelines(pieces(manifest))
            return _account(args, plan, record, manifest, outcome)
    finally:
        space.remove()


def _tier(args: argparse.Namespace) -> str:
    if args.find_db is None and args.problems is None:
        raise KdbtoolError("no problems given", hint="add --find-db FILE or --problems FILE")
    if args.full_find:
        return FULL_FIND
    tier: str = args.tier or (wanted.ALL if args.find_db else wanted.DEFAULT)
    if tier in OF_FIND_DB and args.find_db is None:
        why = "which solvers there are is the find-db's to say"
        raise KdbtoolError("no find-db", where=f"--tier {tier}", why=why, hint="add --find-db FILE")
    return tier


def _library(root: Root | None) -> Path:
    library = root.miopen if root else locate_miopen()
    if library is None:
        raise KdbtoolError(
            "this machine has no libMIOpen", hint="run: kdbtool root make, or name a --root DIR"
        )
    return library


def _plan(args: argparse.Namespace, tier: str, build: MiopenBuild) -> Plan:
    only: list[str] | None = None
    damage: list[textdb.Damage] = []
    if args.problems is not None:
        version = tuple(int(part) for part in (build.version or "").split(".") if part.isdigit())
        only = read_problems(args.problems, version or None, damage.append)
    if args.find_db is not None:
        plan = wanted.from_find_db(
            args.find_db, tier, solver_set(build), frozenset(only) if only is not None else None
        )
    else:
        plan = wanted.from_problems(only or [], tier)
    for one in damage:
        plan.report(one)
    return plan


def _find_db_name(target: Target, library: Path) -> str:
    return f"{target.kdb_names[0]}.{user_database_suffix(library)}.ufdb.txt"


def _system(path: Path | None, space: Workspace, target: Target, library: Path) -> Path:
    """A folder of system databases: nothing but the perf-db, in the form that this MIOpen reads."""
    folder = space.path / "system"
    folder.mkdir()
    if path is not None:
        ending = ".db.txt" if reads_text_perf_db(library) else ".db"
        done = perfdb.convert(path, folder / f"{target.kdb_names[0]}{ending}")
        if not done.rows:
            raise KdbtoolError("no row that this MIOpen can read", where=path, exit_code=EXIT_PROBLEMS)
    return folder


def _environment() -> dict[str, str]:
    """This machine's, without switches of MIOpen's: they would change what it asks for."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MIOPEN_")}


def _sha256(path: Path) -> str:
    """Of the text, compressed or not."""
    digest = hashlib.sha256()
    for data in textdb.chunks(path):
        digest.update(data)
    return digest.hexdigest()


def _account(
    args: argparse.Namespace,
    plan: Plan,
    record: Record | None,
    manifest: Manifest | None,
    outcome: Outcome | None,
) -> int:
    failures = list(record.failures()) if record else plan.failures
    reasons = Counter(failure.why for failure in failures)
    bad = sum(count for why, count in reasons.items() if why in wanted.PROBLEMS) + plan.damaged.total()
    code = EXIT_PROBLEMS if bad or (outcome and outcome.compilers) else EXIT_DONE
    if args.json:
        print(json.dumps(_as_json(args, plan, failures, record, manifest, outcome), indent=2))
        return code
    for damage in plan.damage if args.verbose else plan.damage[:SHOWN]:
        where = args.problems if args.problems and not args.find_db else args.find_db
        print(f"kdbtool harvest: {printable(where)}: {damage.describe()}", file=sys.stderr)
    worst = [failure for failure in failures if failure.why in wanted.PROBLEMS]
    for failure in worst if args.verbose else worst[:SHOWN]:
        solver = f" {failure.solver}" if failure.solver else ""
        print(
            printable(f"kdbtool harvest: {failure.key}{solver}: {failure.why}: {failure.detail}"),
            file=sys.stderr,
        )
    if len(worst) > SHOWN and not args.verbose:
        print(f"kdbtool harvest: and {len(worst) - SHOWN} more (-v shows all)", file=sys.stderr)
    if outcome and outcome.compilers:
        print(
            f"kdbtool harvest: {outcome.compilers} compiler processes ran in spite of the answers",
            file=sys.stderr,
        )
    if args.quiet or manifest is None:
        return code
    _print(args, plan, failures, manifest)
    return code


def _print(args: argparse.Namespace, plan: Plan, failures: list[wanted.Failure], manifest: Manifest) -> None:
    unbuilt = sum(key.state == ASKED_UNBUILT for key in manifest.keys)
    print(f"{plan.read} problems, {len(plan.wanted)} of them asked for; {len(manifest.keys)} keys")
    if unbuilt:
        print(f"{unbuilt} keys unbuilt: this MIOpen has no source for them (assembly that was not shipped)")
    by_source = Counter(shown_source(key.name) for key in manifest.keys)
    table = Table("source", "keys", box=None, pad_edge=False)
    for source, count in by_source.most_common() if args.verbose else by_source.most_common(SHOWN):
        table.add_row(printable(source), str(count))
    Console(highlight=False, soft_wrap=True, markup=False).print(table)
    if len(by_source) > SHOWN and not args.verbose:
        print(f"and {len(by_source) - SHOWN} more sources (-v shows all)")
    by_solver = Counter((failure.why, failure.solver) for failure in failures)
    for why in Why:
        named = [(solver, count) for (reason, solver), count in by_solver.most_common() if reason is why]
        if named:
            print(f"{sum(count for _, count in named):>9}  {why}")
        for solver, count in named if args.verbose else named[:5]:
            if solver:
                print(f"{count:>13}  {printable(solver)}")


def _as_json(
    args: argparse.Namespace,
    plan: Plan,
    failures: list[wanted.Failure],
    record: Record | None,
    manifest: Manifest | None,
    outcome: Outcome | None,
) -> dict[str, Any]:
    by_source = Counter(shown_source(key.name) for key in manifest.keys) if manifest else Counter()
    return {
        "output": printable(args.output),
        "record": printable(record.path) if record else None,
        "miopen": manifest.miopen if manifest else None,
        "tier": plan.tier,
        "problems": {
            "read": plan.read,
            "asked_for": len(plan.wanted),
            "walked": outcome.walked if outcome else 0,
            "resumed": outcome.resumed if outcome else 0,
        },
        "keys": len(manifest.keys) if manifest else 0,
        "unbuilt": sum(key.state == ASKED_UNBUILT for key in manifest.keys) if manifest else 0,
        "askings": record.counts()["asked"] if record else 0,
        "compilers": outcome.compilers if outcome else 0,
        "sources": dict(by_source.most_common()),
        "damaged": dict(plan.damaged.most_common()),
        "reasons": {
            why.name.lower().replace("_", "-"): {
                "text": str(why),
                "count": sum(f.why is why for f in failures),
                "solvers": dict(
                    Counter(f.solver for f in failures if f.why is why and f.solver).most_common()
                ),
            }
            for why in Why
            if any(f.why is why for f in failures)
        },
        "failures": [
            {"problem": f.key, "solver": printable(f.solver), "reason": f.why.name.lower().replace("_", "-"),
             "detail": printable(f.detail)}
            for f in failures
            if f.why in wanted.PROBLEMS
        ],
    }  # fmt: skip


def _seconds(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text) or not int(text):
        raise argparse.ArgumentTypeError(f"not a whole number of seconds: {text!r}")
    return int(text)
