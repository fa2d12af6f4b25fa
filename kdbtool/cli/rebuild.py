"""A manifest in, a kernel database per architecture out: no GPU needed.

  kdbtool rebuild resnet50.kdbmanifest -o gfx1030.kdb
  kdbtool rebuild all.kdbmanifest --arch gfx1030 --arch gfx906 -o databases/

Kernel sources come out of libMIOpen itself (--miopen, else the root's, else this machine's) or from
--sources. The compiler is this machine's, the root's, or --compiler. Finished objects are kept in a cache:
the same command after an interruption compiles only what is missing. A kernel that fails costs its rows
alone: the good rows are written, its log and a script that reproduces it are left in a folder beside the
output, and the exit code is 1. docs/rebuild.md says more.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kdbtool.cli import options
from kdbtool.cli.archs import wanted_archs
from kdbtool.errors import EXIT_DONE, EXIT_PROBLEMS, KdbtoolError, printable
from kdbtool.kdb.names import parse_name
from kdbtool.kdb.provenance import same_release
from kdbtool.manifest import Manifest, read_manifest
from kdbtool.miopen.keys import source_of
from kdbtool.miopen.versions import resolve
from kdbtool.reasons import Reason
from kdbtool.rebuild import logs, publish
from kdbtool.rebuild.backend import Limits
from kdbtool.rebuild.choose import pick_compiler, pick_root, pick_sources
from kdbtool.rebuild.cores import usable
from kdbtool.rebuild.engine import Result
from kdbtool.rebuild.engine import run as build
from kdbtool.rebuild.plan import Plan, make_plan
from kdbtool.rebuild.progress import choose
from kdbtool.rebuild.recipe import for_release
from kdbtool.rebuild.store import Store
from kdbtool.root.paths import cache_dir

HELP = "compile a manifest's kernels into kernel databases"


def prepare(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("manifest", type=Path, metavar="MANIFEST", help="what kdbtool manifest wrote")
    options.output(parser, "a file NAME.kdb, or a folder for the ARCH.kdb of each architecture (default: .)")
    parser.add_argument(
        "--miopen",
        metavar="PATH|VERSION",
        help="the libMIOpen.so whose kernel sources are compiled; a version names the build options only",
    )
    options.sources(parser)
    options.arch(parser)
    options.kernel(parser)
    options.root(parser)
    parser.add_argument(
        "--compiler", type=Path, metavar="PATH", help="the clang to use (inside --root, if given)"
    )
    options.jobs(parser)
    parser.add_argument(
        "--timeout", type=_seconds, default=600.0, metavar="SECONDS", help="per kernel (default: 600)"
    )
    parser.add_argument(
        "--memory",
        type=_gigabytes,
        default=8 << 30,
        metavar="GB",
        help="address space per compiler (default: 8)",
    )
    parser.add_argument(
        "--cache", type=Path, metavar="DIR", help="finished objects (default: kdbtool's cache folder)"
    )
    parser.add_argument(
        "--logs", type=Path, metavar="DIR", help="logs of failed kernels (default: OUTPUT.failed)"
    )
    parser.add_argument(
        "--allow-changed",
        action="store_true",
        help="build from sources other than those that the manifest was made for",
    )
    parser.add_argument(
        "--allow-unknown", action="store_true", help="build rows whose source the manifest has no hash of"
    )
    options.force(parser)
    options.json_output(parser)
    options.verbosity(parser)


def run(args: argparse.Namespace) -> int:
    """Check everything, build, write, account."""
    manifest = read_manifest(args.manifest)
    root = pick_root(args.root, args.compiler)
    library, release = _miopen(args.miopen)
    sources = pick_sources(root, library, args.sources, roots=args.root != "none")
    miopen = _release(manifest, release, None if args.sources else Path(sources.where), args)
    recipe = for_release(miopen)
    backend = pick_compiler(root, args.compiler, recipe)
    plan = make_plan(
        manifest,
        sources,
        recipe,
        _target,
        archs=wanted_archs(args.arch),
        kernel=args.kernel,
        allow_changed=args.allow_changed,
        allow_unknown=args.allow_unknown,
    )
    archs = sorted({job.arch for job in plan.jobs}) or _archs_of_nothing(args, manifest, plan)
    if not archs:
        return _nothing(args, plan)
    paths = publish.outputs({arch: arch for arch in archs}, args.output, force=args.force)
    failed = args.logs or _failed_folder(paths)
    logs.check(failed)
    workers = usable(args.jobs)
    progress = choose(args.quiet, args.verbose > 0)
    if not args.quiet:
        print(printable(f"compiler: {backend.describe()}, {workers} workers"), file=sys.stderr)
        print(printable(f"sources: {sources.where}, recipe {recipe.id}"), file=sys.stderr)
    store, own = _store(args.cache, next(iter(paths.values())))
    limits = Limits(args.timeout, args.memory)
    result = build(plan, backend, sources.headers, store, workers=workers, limits=limits, progress=progress)
    logs.clear(failed)
    allowed = [name for name in ("changed", "unknown") if getattr(args, f"allow_{name}")]
    written = []
    for arch in archs:
        rows = result.rows.get(arch, [])
        if plan.jobs and not rows:
            continue  # all of them failed: an empty file would look like a result
        record = publish.provenance(
            arch,
            result.identity,
            recipe,
            manifest=manifest.digest,
            miopen=miopen,
            sources=sources.set_hash,
            hashes={
                name: plan.hashes[name] for name in sorted({source_of(key.name) or "" for key, _ in rows})
            },
            allowed=allowed,
        )
        written.append(publish.publish(arch, paths[arch], rows, store, record, force=args.force))
    logs.save(failed, result.failures, backend, sources.headers)  # last: they may fill the disk
    if result.compiled:
        store.trim()
    if own and not result.failures:
        store.remove()
    _report(args, plan, result, written, failed if result.failures else None)
    return EXIT_PROBLEMS if result.failures or result.skips else EXIT_DONE


def _miopen(text: str | None) -> tuple[Path | None, str | None]:
    """(library, release) of --miopen."""
    if text is None:
        return None, None
    found = resolve(text)
    return found.path, found.rocm


def _release(manifest: Manifest, asked: str | None, library: Path | None, args: argparse.Namespace) -> str:
    """The MIOpen that the rows are for; a library of another release is refused."""
    have = asked
    if (
        have is None
        and library is not None
        and (manifest.miopen is None or args.allow_changed or args.allow_unknown)
    ):
        have = resolve(str(library)).rocm  # else equal hashes say enough, and reading it again takes a second
    if manifest.miopen is not None and have is not None and not same_release(manifest.miopen, have):
        if not args.allow_changed:
            raise KdbtoolError(
                f"the manifest is for MIOpen {manifest.miopen}, the sources are of {have}",
                where=args.manifest,
                why="a kernel of another MIOpen under the same key can give wrong results",
                hint="give the right library with --miopen PATH, or --allow-changed",
            )
        return have
    known = manifest.miopen or have
    if known is None:
        raise KdbtoolError(
            "it is not known which MIOpen the sources are of",
            where=args.manifest,
            why="the manifest says miopen unknown, and --sources does not say",
            hint="add --miopen RELEASE, such as 6.4.3",
        )
    return known


def _target(arch: str, language: str) -> str:
    from kdbtool import targets

    return targets.load(arch).build_target(language)


def _store(option: Path | None, output: Path) -> tuple[Store, bool]:
    """The cache, and whether it is one of this output alone (no HOME, as on a build machine)."""
    if option is not None:
        return Store(option), False
    try:
        shared = cache_dir() / "objects"
        shared.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(shared, os.W_OK):
            return Store(shared), False
    except (OSError, KdbtoolError):  # no home directory, or none that can be written
        pass
    return Store(output.with_name(output.name + ".work")), True


def _failed_folder(paths: dict[str, Path]) -> Path:
    one = next(iter(paths.values()))
    base = one if len(paths) == 1 else one.parent / "rebuild"
    return base.with_name(base.name + ".failed")


def _archs_of_nothing(args: argparse.Namespace, manifest: Manifest, plan: Plan) -> list[str]:
    """No row to build is an empty database, of the arch that --arch, unbuilt rows or the output name."""
    if plan.skips or plan.filtered:
        return []
    named = parse_name(args.output) if args.output is not None else None
    return sorted(wanted_archs(args.arch) or manifest.archs or ([named.arch] if named else []))


def _nothing(args: argparse.Namespace, plan: Plan) -> int:
    counts = Counter(skip.reason for skip in plan.skips)
    counts += Counter({Reason.FILTER: plan.filtered, Reason.ASKED_UNBUILT: plan.unbuilt})
    why = ", ".join(f"{count} rows {reason.code} ({reason.text})" for reason, count in counts.items())
    raise KdbtoolError(
        "no row to build",
        where=args.manifest,
        why=why or "the manifest has none",
        hint="see --arch, --kernel and --sources (an empty database needs --arch)",
        exit_code=EXIT_PROBLEMS,
    )


def _report(
    args: argparse.Namespace,
    plan: Plan,
    result: Result,
    written: list[publish.Written],
    failed: Path | None,
) -> None:
    reasons: Counter[Reason] = Counter(skip.reason for skip in result.skips)
    for failure in result.failures:
        assert failure.outcome.reason is not None
        reasons[failure.outcome.reason] += len(failure.keys)
    ordered = sorted(reasons.items(), key=lambda item: item[0].order)
    if args.json:
        print(json.dumps(_as_json(plan, result, written, ordered, failed), indent=2))
        return
    for name in sorted({printable(skip.detail) for skip in result.skips if skip.detail}):
        print(f"kdbtool rebuild: skipped: {name}", file=sys.stderr)
    if result.damaged:
        print(f"kdbtool rebuild: {result.damaged} damaged objects in the cache, built again", file=sys.stderr)
    for line in logs.findings(result.failures):
        print(f"kdbtool rebuild: {line}", file=sys.stderr)
    if failed is not None:
        print(
            f"kdbtool rebuild: logs of {len(result.failures)} failed kernels: {printable(failed)}",
            file=sys.stderr,
        )
    if args.quiet:
        return
    table = Table("database", "rows", "objects", "KiB", box=None, pad_edge=False)
    for one in written:
        table.add_row(escape(printable(one.path)), str(one.rows), str(one.objects), f"{one.size / 1024:.0f}")
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    print(f"{result.compiled} objects compiled, {result.reused} taken from the cache")
    for reason, count in ordered:
        print(f"{count} rows not built: {reason.code}: {reason.text}")
    if plan.unbuilt:
        print(f"{plan.unbuilt} rows left out: {Reason.ASKED_UNBUILT.code}: {Reason.ASKED_UNBUILT.text}")
    if plan.filtered:
        print(f"{plan.filtered} rows left out: {Reason.FILTER.code}: {Reason.FILTER.text}")


def _as_json(
    plan: Plan,
    result: Result,
    written: list[publish.Written],
    reasons: list[tuple[Reason, int]],
    failed: Path | None,
) -> dict[str, Any]:
    return {
        "databases": [
            {"arch": w.arch, "path": printable(w.path), "rows": w.rows, "objects": w.objects, "bytes": w.size}
            for w in written
        ],
        "compiler": result.identity.version,
        "recipe": plan.recipe.id,
        "compiled": result.compiled,
        "reused": result.reused,
        "damaged": result.damaged,
        "not_built": {reason.code: count for reason, count in reasons},
        "asked_unbuilt": plan.unbuilt,
        "filtered": plan.filtered,
        "failures": [
            {
                "source": f.task.source,
                "target": f.task.target,
                "reason": f.outcome.reason.code if f.outcome.reason else None,
                "detail": f.outcome.detail,
                "rows": [[printable(key.name), printable(key.args)] for key in f.keys],
            }
            for f in result.failures
        ],
        "findings": logs.findings(result.failures),
        "logs": printable(failed) if failed else None,
    }


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"not a number of seconds: {text!r}")
    return value


def _gigabytes(text: str) -> int:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0625 <= value < 1e6:
        raise argparse.ArgumentTypeError(f"not a number of gigabytes: {text!r}")
    return int(value * (1 << 30))
