"""The main job, shown: ResNet-50's convolutions on a simulated GPU, cold and with our own kdb.

1. Cold: MIOpenDriver runs every convolution of the network, forward and both backward directions,
   fp32, one process each, with an empty HOME; `kdbtool record` writes traces.
2. `kdbtool manifest` and `kdbtool rebuild` make a kdb of them.
3. Again, with an empty HOME and that kdb as the system database.

Ends in a table; exit code 1 when the second cold start compiled anything, loaded nothing, or made
MIOpen complain. The list is one of those that libmiopen1-tests ships (AMD's perf_models).
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

NETWORK = "Resnet50_v1_FP32_BS128"
ARCH = "gfx1030:36"
# One timed iteration, no check against the CPU, buffers filled on the device (that is: not at all).
DRIVER_FLAGS = ("-i", "1", "-t", "1", "-V", "0", "-G", "1")
_COMPLAINT = re.compile(r"(?i)warning.*(database|\bdb\b|\.kdb|sqlite|corrupt)|corruption|readonly database")
_FAILURE = re.compile(
    r"(?i)MIOpenDriver Error|MIOpen Error|^FAILED|RunForwardGPU\(\) failed|failed, rc", re.M
)


def convolutions(text: str) -> list[list[str]]:
    """Arguments of MIOpenDriver, one list per distinct line of a perf_models file."""
    lines = dict.fromkeys(line.strip() for line in text.splitlines() if "MIOpenDriver" in line)
    return [[*shlex.split(line)[1:], *DRIVER_FLAGS] for line in lines]


@dataclass
class Run:
    """What one pass over the network did."""

    name: str
    compiled: int
    loaded: int
    seconds: float
    complaints: list[str]
    failures: list[str]


def drive(commands: Path, logs: Path) -> int:
    """Inside the recorded program (the root's python3, standard library only): each convolution a
    process of its own, its output in a log."""
    rows = [shlex.split(line) for line in commands.read_text().splitlines()]
    failed = 0
    for number, row in enumerate(rows, 1):
        with (logs / f"{number:03}.log").open("wb") as log:
            code = subprocess.run(
                ["MIOpenDriver", *row], stdout=log, stderr=subprocess.STDOUT, check=False
            ).returncode
            if code:
                log.write(f"\nMIOpenDriver Error: exit code {code}\n".encode())
                failed += 1
        if sys.stderr.isatty():
            print(f"\r  {number}/{len(rows)} convolutions", end="", file=sys.stderr, flush=True)
        elif number % 20 == 0 or number == len(rows):
            print(f"  {number}/{len(rows)} convolutions", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return 1 if failed else 0


def main() -> int:
    """The three steps and the table."""
    from kdbtool.root import choose_root, locate_miopen
    from kdbtool.shim.trace import find_traces, read_trace

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", default=NETWORK, help="a perf_models list (default: %(default)s)")
    parser.add_argument("--arch", default=ARCH, help="the simulated GPU (default: %(default)s)")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N convolutions")
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("build/demo"),
        help="folder; an earlier demo in it is removed (default: %(default)s)",
    )
    args = parser.parse_args()

    root = choose_root(None, simulated=True)
    base = root.path if root else Path("/")
    models = base / "usr/share/doc/libmiopen1-tests/perf_models/perf_models"
    source = models / f"{args.network}.txt.gz"
    if not source.is_file():
        known = ", ".join(sorted(p.name.removesuffix(".txt.gz") for p in models.glob("*.gz"))[:8])
        print(f"demo: {source}: no such network list; there are: {known}, ...", file=sys.stderr)
        return 2
    rows = convolutions(gzip.decompress(source.read_bytes()).decode())[: args.limit]
    library = root.miopen if root else locate_miopen()
    work = args.work.absolute()
    if work.exists() and not (work / "commands").is_file() and any(work.iterdir()):
        print(f"demo: {work}: holds something else than a demo; name another folder", file=sys.stderr)
        return 2
    if work.exists():
        shutil.rmtree(work)
    work.mkdir(parents=True)
    commands = work / "commands"
    commands.write_text("".join(shlex.join(row) + "\n" for row in rows))

    def run(name: str, **environment: str) -> Run:
        print(f"{name}: {len(rows)} convolutions of {args.network} on simulated {args.arch}", file=sys.stderr)
        traces, logs = work / name / "traces", work / name / "logs"
        logs.mkdir(parents=True)
        env = {k: v for k, v in os.environ.items() if not k.startswith("MIOPEN_")} | environment
        started = time.monotonic()
        done = subprocess.run(
            [
                *(
                    sys.executable,
                    "-m",
                    "kdbtool",
                    "record",
                    "--simulate",
                    args.arch,
                    "-o",
                    str(traces),
                    "-q",
                ),
                *("--", "python3", "-I", str(Path(__file__).resolve()), "drive", str(commands), str(logs)),
            ],
            env=env,
            check=False,
        )
        seconds = time.monotonic() - started
        compiled = loaded = 0
        for path in find_traces([traces]):
            trace = read_trace(path)
            compiled += trace.facts.role == "compiler"
            loaded += sum(1 for lookup in trace.lookups if lookup.hit)
        texts = {p.name: p.read_text("utf-8", "replace") for p in sorted(logs.glob("*.log"))}
        complaints = [
            f"{file}: {line.strip()}"
            for file, t in texts.items()
            for line in t.splitlines()
            if _COMPLAINT.search(line)
        ]
        failures = [f"{file}: {m[0].strip()}" for file, t in texts.items() if (m := _FAILURE.search(t))]
        if done.returncode and not failures:
            failures.append(f"kdbtool record ended with {done.returncode}")
        return Run(name, compiled, loaded, seconds, complaints, failures)

    def kdbtool(*arguments: object) -> float:
        command = [sys.executable, "-m", "kdbtool", *map(str, arguments)]
        print(f"kdbtool {shlex.join(command[3:])}", file=sys.stderr)
        started = time.monotonic()
        if subprocess.run(command, check=False).returncode != 0:
            raise SystemExit(f"demo: kdbtool {arguments[0]} failed")
        return time.monotonic() - started

    cold = run("cold")
    manifest, database = work / "resnet50.kdbmanifest", work / "db" / f"{args.arch.partition(':')[0]}.kdb"
    database.parent.mkdir()
    steps = kdbtool("manifest", work / "cold" / "traces", "--miopen", library, "-o", manifest)
    steps += kdbtool(
        *("rebuild", manifest, "--miopen", library, "--root", root.path if root else "none", "-o", database),
        *("--cache", work / "cache"),  # what an earlier demo built would flatter this one
    )
    warm = run("kdb", MIOPEN_SYSTEM_DB_PATH=str(database.parent))
    table([cold, warm], steps, manifest, database)

    faults = [f"failed: {line}" for line in [*cold.failures, *warm.failures]]
    faults += [f"MIOpen complained: {line}" for line in warm.complaints]
    if warm.compiled:
        faults.append(f"the second run started {warm.compiled} compilers")
    if not warm.loaded:
        faults.append("the second run loaded no kernel")
    if not cold.compiled:
        faults.append("the first run compiled nothing: it was not cold")
    for fault in faults[:20]:
        print(f"demo: {fault}", file=sys.stderr)
    return 1 if faults else 0


def table(runs: list[Run], steps: float, manifest: Path, database: Path) -> None:
    """What was measured, on standard output."""
    from rich.console import Console
    from rich.table import Table

    names = {"cold": "cold (empty HOME, no kdb)", "kdb": "empty HOME, rebuilt kdb"}
    shown = Table()
    for column in ("run", "kernels compiled", "kernels loaded", "wall seconds"):
        shown.add_column(column, justify="left" if column == "run" else "right")
    for run in runs:
        shown.add_row(names[run.name], str(run.compiled), str(run.loaded), f"{run.seconds:.1f}")
    console = Console()
    console.print(shown)
    console.print(
        f"manifest {manifest.stat().st_size:,} bytes ({_short(manifest)})\n"
        f"kdb {database.stat().st_size:,} bytes ({_short(database)}), manifest and rebuild {steps:.1f} s",
        soft_wrap=True,
        highlight=False,
    )


def _short(path: Path) -> Path:
    """`path` as one would type it here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


if __name__ == "__main__":
    if sys.argv[1:2] == ["drive"] and len(sys.argv) == 4:
        sys.exit(drive(Path(sys.argv[2]), Path(sys.argv[3])))
    sys.exit(main())
