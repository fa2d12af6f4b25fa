"""verify --symbols on objects of the real MIOpen and of our rebuild: no false alarm, and all is told.

The entry points are read out of the kernel sources of the very library that compiled the objects.
"""

from __future__ import annotations

import json
import lzma
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kdbtool.kdb.against import of_sources
from kdbtool.kdb.checks import Report, check
from kdbtool.kdb.findings import Code
from kdbtool.kdb.reader import open_kdb
from kdbtool.manifest import Key, Manifest, write_manifest
from kdbtool.manifest.model import Note
from kdbtool.manifest.target import hashes_of
from kdbtool.miopen.entrypoints import Entries
from kdbtool.miopen.keys import collapse, source_of
from kdbtool.miopen.sources import SourceSet, from_library
from kdbtool.miopen.versions import resolve
from kdbtool.root import Root

CONV = "MIOpenDriver conv -n 2 -c 8 -H 16 -W 16 -k 8 -y 3 -x 3 -p 1 -q 1 -t 1 -V 0 -i 1 -F 1"
RUN = f"{CONV} && MIOpenDriver softmax -n 2 -V 0 && MIOpenDriver glu -V 0"
# Compiled in a second or two each; the slower ones are compiled by the run of MIOpen itself.
QUICK = re.compile(r".*\.cl|naive_conv\.cpp|batched_transpose\.cpp|general_tensor_reorder.*\.cpp")


def _judge(path: Path, sources: SourceSet, root: Root) -> Report:
    with open_kdb(path) as reader:
        return check(
            reader,
            build=resolve(str(root.miopen)),
            entries=Entries(sources),
            against=[of_sources("6.4.3", sources)],
        )


def test_what_miopen_compiled(record: Callable[..., Any], opened_root: Root, tmp_path: Path) -> None:
    cache = tmp_path / "ukdb"
    script = tmp_path / "log-compilers.sh"
    shutil.copy(Path(__file__).resolve().parent.parent / "support" / "log-compilers.sh", script)
    done = record(tmp_path / "t", "sh", script, tmp_path / "argv", cache, "sh", "-c", RUN)
    assert done.code == 0, done.err
    (database,) = cache.glob("*.ukdb")
    report = _judge(database, from_library(opened_root.miopen), opened_root)
    problems = [f for f in report.findings if f.is_problem]
    assert problems == [] and Code.SYMBOL_EXTRA not in {f.code for f in report.findings}
    assert (report.told, report.untold) == (report.stats.rows, 0) and report.told >= 5


def test_what_we_rebuilt(
    kdbtool: Callable[..., Any], shared: Path, opened_root: Root, tmp_path: Path
) -> None:
    """Two variants of each source that the harvested keys have, judged by the library they are of."""
    sources = from_library(opened_root.miopen)
    chosen: dict[str, dict[bytes, Key]] = {}
    with lzma.open(shared / "data" / "keys.gfx1030-sample.tsv.xz") as lines:
        for line in lines:
            name, _, args = line.rstrip(b"\n").partition(b"\t")
            source = source_of(name) or ""
            of_source = chosen.setdefault(source, {})
            if QUICK.fullmatch(source) and len(of_source) < 2:
                of_source.setdefault(collapse(args), Key(name, args, "gfx1030"))
    keys = {key: Note() for of_source in chosen.values() for key in of_source.values()}
    manifest = Manifest(miopen="6.4.3", keys=keys, hashes=hashes_of(sources, keys))
    path = tmp_path / "m.kdbmanifest"
    path.write_bytes(write_manifest(manifest))
    out = tmp_path / "gfx1030.kdb"
    done = kdbtool(
        "rebuild", path, "--root", opened_root.path, "-o", out, "--cache", tmp_path / "cache", "-j", 2
    )
    assert done.code == 0, done.err
    done = kdbtool("verify", out, "--against", opened_root.miopen, "--against", path, "--json")
    document = json.loads(done.out)["files"][0]
    assert done.code == 0 and document["problems"] == 0, document["findings"]
    assert {f["code"] for f in document["findings"]} <= {"repeated-defines"}
    assert document["symbols"] == {"compared": len(keys), "cannot_tell": 0} and len(keys) >= 20
    # The reverse: judged by a text that has one kernel more, every object of it lacks that kernel.
    (one, *_) = sorted(source for source, found in chosen.items() if found and source.endswith(".cl"))
    more = {**sources.kernels, one: sources.kernels[one] + b"\n__kernel void one_more(int x) {}\n"}
    report = _judge(out, SourceSet(more, sources.headers, "changed"), opened_root)
    missing = {f.name for f in report.findings if f.code is Code.SYMBOL_MISSING}
    assert missing == {f.name for f in report.findings if f.code is Code.STALE} == {f"{one}.o".encode()}
