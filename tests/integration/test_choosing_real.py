"""What the real MIOpen loads and launches, joined with the keys that it looked up."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kdbtool.inputs import each_input
from kdbtool.manifest import read_manifest
from kdbtool.manifest.choose_cost import assembly_loss, read_solutions
from kdbtool.manifest.choose_usage import Usage
from kdbtool.miopen.classes import asm_class_of_solver
from kdbtool.miopen.keys import language, shown_source
from kdbtool.root import Root
from kdbtool.shim.trace import read_traces

CONV = "MIOpenDriver conv -F 0 -V 0 -n 2 -c 3 -H 16 -W 16 -k 4 -y 3 -x 3".split()


def test_each_key_has_its_own_launches_and_compile(
    record: Callable[..., Any], kdbtool: Callable[..., Any], tmp_path: Path
) -> None:
    traces = tmp_path / "traces"
    assert record(traces, *CONV).code == 0
    usage = Usage()
    for source in each_input(traces):
        usage.add_input(source)
    usage.finish()
    own = 0
    for trace in (one for path in sorted(traces.iterdir()) for one in read_traces(path)):
        counts = trace.launches.by_kernel()
        own += sum(n for name, n in counts.items() if not name.startswith("Cijk_"))  # rocBLAS
    assert usage.asked == set(usage.kernels) and len(usage.asked) >= 4
    assert all(use.launches and use.timed == 1 and use.size for use in usage.kernels.values())
    assert sum(use.launches for use in usage.kernels.values()) == own < usage.launches

    ended = kdbtool(
        "manifest", traces, "--top", 1, "--top-by", "compile-seconds", "--json", "-o", tmp_path / "m"
    )
    account = json.loads(ended.out)
    assert account["kept"] == 1 and "kernel naive_conv.cpp" in (tmp_path / "m").read_text()
    assert account["cost"]["timed_kernels"] == account["dropped"] == len(usage.asked) - 1
    limit = account["kept"] * 60_000  # naive_conv alone is larger
    ended = kdbtool(
        "manifest", traces, "--max-size", limit, "--drop-source", "naive", "--json", "-o", tmp_path / "s"
    )
    estimate = json.loads(ended.out)["estimates"]["gfx1030"]["after"]
    assert 20_000 < estimate <= limit
    assert kdbtool("rebuild", tmp_path / "s", "-o", tmp_path / "db").code == 0
    assert abs((tmp_path / "db" / "gfx1030.kdb").stat().st_size - estimate) < 0.2 * limit


def test_problems_that_lose_assembly_still_have_a_solver(
    kdbtool: Callable[..., Any], opened_root: Root, shared: Path, tmp_path: Path
) -> None:
    """Debian's library has no assembly: what the account says by data, asked of the real one."""
    find_db = shared / "data" / "gfx1030_36.HIP.fdb.txt.bz2"
    solutions = read_solutions(find_db, [])
    lost = [
        problem
        for problem, some in sorted(solutions.items())
        if some and asm_class_of_solver(min(some, key=lambda one: (float(one.time), one.solver)).solver)
    ]
    some = lost[:: len(lost) // 60]
    loss = assembly_loss({problem: solutions[problem] for problem in some}, None, None)
    assert loss.best.total() == len(some) and not loss.without
    (tmp_path / "problems").write_text("".join(f"{problem}\n" for problem in some))
    out = tmp_path / "m"
    words = ("--problems", tmp_path / "problems", "--full-find", "--arch", "gfx1030:36", "-o", out)
    assert kdbtool("harvest", *words, "--root", opened_root.path).code == 0
    record = sqlite3.connect(f"{out}.harvest")
    served = {
        key for (key,) in record.execute("SELECT key FROM problem WHERE id IN (SELECT problem FROM asked)")
    }
    record.close()
    assert served == set(some)
    assert not any(language(shown_source(key.name)) == "asm" for key in read_manifest(out).keys)
