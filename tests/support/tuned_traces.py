"""Traces of a real device, made by hand, and user databases as MIOpen 3.4.0 names and writes them."""

from __future__ import annotations

from pathlib import Path

from support import traces as make
from support.whole_trace import fact

from kdbtool.miopen.perfkey import config_of
from kdbtool.miopen.problems import parse_problem
from kdbtool.shim._trace import lib

BASE = "gfx1030_36"
FIND_DB, PERF_DB = f"{BASE}.HIP.3_4_0_.ufdb.txt", f"{BASE}.HIP.3_4_0_.udb.txt"
A = "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP32-F"
B = "3-8-8-3x3-4-8-8-2-1x1-1x1-1x1-0-NCHW-FP32-F"
OTHER = "8-16-16-3x3-8-16-16-2-1x1-1x1-1x1-0-NCHW-FP32-F"
FACTS = {"miopen.version": "3.4.0", "device.0": "gfx1030", "device.0.cu": "36"}
WAY = "miopenConvolutionFwdAlgo"


def recorded(path: Path, *problems: str, ended: bool = True, **facts: str | None) -> Path:
    """A trace of a process that asked for these problems; `facts` by name, `_` for `.`, None: unknown."""
    known = FACTS | {name.replace("_", "."): value for name, value in facts.items()}
    body = [fact(name, value) for name, value in known.items() if value is not None]
    for at, key in enumerate(problems, 1):
        body.append(make.record(lib.KDBT_PROBLEM_KEY, key.encode("utf-8", "surrogateescape"), id=at))
        body.append(make.record(lib.KDBT_PROBLEM, make.struct("problem", key=at)))
    data = make.header() + make.block(*body)
    path.write_bytes(data if ended else data[:-9])
    return path


def perf_key(problem: str) -> str:
    return str(config_of(parse_problem(problem)))


def found(problem: str, *items: str) -> str:
    """A find-db line, `items` such as `ConvAsm1x1U:0.5,0,Direct`."""
    whole = (f"{head},{WAY}{algorithm}" for head, _, algorithm in (item.rpartition(",") for item in items))
    return f"{problem}={';'.join(whole)}\n"


def databases(folder: Path, find_db: str | None = None, perf_db: str | None = None) -> Path:
    """`folder` with user databases of these texts."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in ((FIND_DB, find_db), (PERF_DB, perf_db)):
        if text is not None:
            (folder / name).write_text(text)
    return folder
