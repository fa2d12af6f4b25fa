"""What kdbtool says of find-dbs, perf-dbs and solvers is what the real MIOpen 6.4.3 does with them.

On a simulated gfx1030 of 36 units. Its own code tells which solvers it has; a find-db entry is asked for by
immediate mode; a perf-db's parameters are read off the kernel keys that they change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kdbtool import tuned
from kdbtool.manifest import Manifest, Problem, Solution
from kdbtool.miopen import finddb, perfdb, textdb, userdbs
from kdbtool.miopen.finddb import Damaged
from kdbtool.miopen.solvers import SolverSet, from_library, solver_ids, solver_set
from kdbtool.miopen.userdbs import Library
from kdbtool.miopen.versions import resolve
from kdbtool.rebuild.databases import perf_form, write_find_db, write_perf_db
from kdbtool.shim.trace import Trace, find_traces, read_trace
from kdbtool.shim.trace_write import write_trace

DRIVER = "/usr/libexec/rocm/libmiopen1-tests/MIOpenDriver"
USER_DB = "gfx1030_36.HIP.3_4_0_.ufdb.txt"  # 6.4.3 ignores a system find-db: MIOPEN_DISABLE_SYSDB
CRASHING_LINE = 8667  # of gfx1030_36's find-db: ConvOclDirectFwdFused alone
SHAPE = "100 128 10 10 256 3 3 5 5 0 2".split()  # its problem, for ASK
KEY = "128-10-10-3x3-256-5-5-100-0x0-2x2-1x1-0-NCHW-FP32-F"
GEMM = "GemmFwdRest:0.5,1,miopenConvolutionFwdAlgoGEMM"
WAY = "miopenConvolutionFwdAlgo"

# Name, whether it has code for immediate mode, of every solver in the library's registry.
REGISTRY = """
import ctypes
lib = ctypes.CDLL("libMIOpen.so.1")
for value in range(1, 400):
    own, text, solver = (ctypes.create_string_buffer(64) for _ in range(3))
    lib._ZN6miopen6solver2IdC1Em(own, ctypes.c_uint64(value))
    if own.raw[8]:
        lib._ZNK6miopen6solver2Id8ToStringB5cxx11Ev(text, own)
        at, length = ctypes.cast(text, ctypes.POINTER(ctypes.c_uint64))[0:2]
        lib._ZNK6miopen6solver2Id9GetSolverEv(solver, own)
        print(value, ctypes.string_at(at, length).decode(), int(any(solver.raw[:8])))
"""

# Immediate mode for one forward convolution: N C H W, K R S, P Q, pad, stride.
ASK = """
import ctypes, sys
n, c, h, w, k, r, s, p, q, pad, stride = map(int, sys.argv[1:12])
lib = ctypes.CDLL("libMIOpen.so.1")

class Solution(ctypes.Structure):
    _fields_ = [("time", ctypes.c_float), ("workspace", ctypes.c_size_t), ("id", ctypes.c_uint64),
                ("algorithm", ctypes.c_int)]

def made(create):
    handle = ctypes.c_void_p()
    assert create(ctypes.byref(handle)) == 0
    return handle

def tensor(*sizes):
    desc = made(lib.miopenCreateTensorDescriptor)
    assert lib.miopenSet4dTensorDescriptor(desc, 1, *sizes) == 0
    return desc

handle, conv = made(lib.miopenCreate), made(lib.miopenCreateConvolutionDescriptor)
assert lib.miopenInitConvolutionDescriptor(conv, 0, pad, pad, stride, stride, 1, 1) == 0
problem = handle, tensor(k, c, r, s), tensor(n, c, h, w), conv, tensor(n, k, p, q)
count, found = ctypes.c_size_t(), (Solution * 64)()
assert lib.miopenConvolutionForwardGetSolutionCount(*problem, ctypes.byref(count)) == 0
print("counted", count.value, flush=True)
code = lib.miopenConvolutionForwardGetSolution(*problem, ctypes.c_size_t(64), ctypes.byref(count), found)
print("failed", code) if code else print("offered", *(found[i].id for i in range(count.value)))
"""


@pytest.fixture(scope="module")
def solvers(library: Path) -> SolverSet:
    return from_library(library)


@pytest.fixture(scope="module")
def library(root: Path) -> Path:
    (found,) = (root / "usr/lib/x86_64-linux-gnu").glob("libMIOpen.so.1.0")
    return found


@pytest.fixture
def ask(record: Callable[..., Any], tmp_path: Path) -> Callable[[bytes], tuple[int, str]]:
    """(exit code, what ASK printed) for a user find-db."""
    (tmp_path / "ask.py").write_text(ASK)
    folder = tmp_path / "user"
    folder.mkdir()

    def run(find_db: bytes) -> tuple[int, str]:
        (folder / USER_DB).write_bytes(find_db)
        done = record(
            tmp_path / "traces", "env", f"MIOPEN_USER_DB_PATH={folder}", "python3", tmp_path / "ask.py",
            *SHAPE, cwd=tmp_path,
        )  # fmt: skip
        return done.code, done.out.replace("\n", " ").strip()

    return run


def test_the_solvers_read_out_of_the_library_are_those_of_its_registry(
    solvers: SolverSet, run_in_root: Callable[..., Any]
) -> None:
    rows = [line.split() for line in run_in_root("python3", "-c", REGISTRY).out.splitlines()]
    assert len(rows) > 150
    assert {name for _, name, code in rows if code == "1"} == solvers.usable | solvers.left_out
    bare = {name for _, name, code in rows if code == "0"}
    assert bare <= solvers.without_code  # which has classes of other operations, too
    assert all(solver_ids()[name] == int(number) for number, name, _ in rows)
    assert {"ConvOclDirectFwdFused", "ConvWinoFuryRxSFused<2-3>"} <= bare
    data = solver_set(resolve("6.4.3"))
    assert data.usable == solvers.usable and data.left_out == solvers.left_out


def test_what_is_left_out_is_mlir_and_composable_kernel(solvers: SolverSet) -> None:
    assert {
        "ConvMlirIgemmFwd",
        "ConvMlirIgemmWrWXdlops",
        "ConvHipImplicitGemmGroupFwdXdlops",
    } < solvers.left_out
    assert len(solvers.left_out) == 14 and len(solvers.usable) == 87


def test_a_find_db_that_crashes_miopen_works_after_prune(
    shared: Path, tmp_path: Path, library: Path, ask: Callable[..., Any], run_cli: Callable[..., Any]
) -> None:
    source = shared / "data" / "gfx1030_36.HIP.fdb.txt.bz2"
    whole = b"".join(textdb.chunks(source))
    line = whole.splitlines()[CRASHING_LINE - 1].decode()
    assert line.startswith(f"{KEY}=") and "ConvOclDirectFwdFused" in line
    assert ask(whole) == (-11, "counted 1")
    pruned = tmp_path / "pruned.HIP.fdb.txt"
    result = run_cli("finddb", "prune", source, "--miopen", library, "-o", pruned)
    assert result.code == 0 and re.search(r"136\s+ConvOclDirectFwdFused", result.out)
    code, said = ask(pruned.read_bytes())
    assert code == 0 and re.fullmatch(r"counted [1-9] offered( \d+)+", said)


# Items beside GEMM's, what the real library does, and what a reader of finddb says.
ITEMS: dict[str, tuple[str, str, Damaged | None]] = {
    "good": (f"ConvDirectNaiveConvFwd:9,0,{WAY}Direct", "counted 2 offered 91 85", None),
    "legacy": (f"{WAY}Direct:ConvDirectNaiveConvFwd,9,0,x,y", "counted 2 offered 91 85", None),
    "carriage return": (f"ConvDirectNaiveConvFwd:9,0,{WAY}Direct\r", "counted 2 offered 91 85", None),
    "no name": ("ConvDirectNaiveConvFwd", "counted 1 offered 91", Damaged.NO_ID),
    "no fields": ("ConvDirectNaiveConvFwd:", "failed 5", Damaged.FIELDS),
    "too few fields": ("ConvDirectNaiveConvFwd:9,0", "failed 5", Damaged.FIELDS),
    "too few, legacy": (f"{WAY}Direct:ConvDirectNaiveConvFwd,9,0", "counted 1 offered 91", Damaged.FIELDS),
    "no numbers": (f"ConvDirectNaiveConvFwd:x,y,{WAY}Direct", "counted 2 offered 85 91", Damaged.NUMBER),
    "other direction": ("fft:9,0,miopenConvolutionBwdDataAlgoFFT", "failed 5", Damaged.ALGORITHM),
    "repeated": (f"GemmFwdRest:9,0,{WAY}GEMM", "counted 1 offered 91", Damaged.REPEATED),
    "unknown": (f"ConvNeverWas:9,0,{WAY}Direct", "counted 2 offered 91", None),
    "left out": (f"ConvMlirIgemmFwd:9,0,{WAY}ImplicitGEMM", "counted 2 offered 91", None),
    "without code": (f"ConvBiasActivAsm1x1U:9,0,{WAY}Direct", "crash", None),
}  # fmt: skip


@pytest.mark.parametrize("name", ITEMS)
def test_what_is_said_of_an_item_is_what_miopen_does(
    tmp_path: Path, library: Path, ask: Callable[..., Any], run_cli: Callable[..., Any], name: str
) -> None:
    item, does, damage = ITEMS[name]
    text = f"{KEY}={GEMM};{item}\n".encode()
    code, said = ask(text)
    assert code == -11 if does == "crash" else (code == 0 and said.endswith(does)), said
    source, pruned = tmp_path / "a.HIP.fdb.txt", tmp_path / "pruned.HIP.fdb.txt"
    source.write_bytes(text)
    wrong: list[str] = []
    list(finddb.read(source, lambda found: wrong.append(found.reason)))
    assert wrong == ([] if damage is None else [damage])
    assert run_cli("finddb", "prune", source, "--miopen", library, "-o", pruned).code == 0
    code, said = ask(pruned.read_bytes())
    counted, offered = re.fullmatch(r"counted (\d) offered (.*)", said).groups()  # type: ignore[union-attr]
    assert code == 0 and int(counted) == len(offered.split()) == pruned.read_text().count(":")


@pytest.mark.parametrize("library_at_hand", [True, False])
def test_what_miopen_found_for_its_user_is_copied(
    tmp_path: Path, root: Path, library: Path, record: Callable[..., Any], library_at_hand: bool
) -> None:
    """MIOpen's own file by its own name. The trace says that it is simulated, but for this test."""
    user, traces = tmp_path / "user", tmp_path / "traces"
    user.mkdir()
    driver = "conv -n 1 -c 8 -H 9 -W 9 -k 8 -y 3 -x 3 -p 1 -q 1 -F 1 -V 0 -i 1 -t 0".split()
    done = record(traces, "env", f"MIOPEN_USER_DB_PATH={user}", DRIVER, *driver, cwd=tmp_path)
    assert done.code == 0 and (user / USER_DB).is_file()
    assert not list(traces.glob("*.txt"))  # simulated: never
    recorded = next(trace for path in find_traces([traces]) if (trace := read_trace(path)).problems)
    assert recorded.facts.simulated
    facts = dict(recorded.facts.all)
    del facts["simulated"]
    real = tmp_path / "real.kdbtrace"
    write_trace(real, Trace(real, replace(recorded.facts, all=facts), problems=recorded.problems))

    def here(path: str) -> Path | None:
        inside = root / path.lstrip("/")
        return inside if inside.is_file() and library_at_hand else Path(path)

    before = (user / USER_DB).read_bytes()
    copied = tuned.copy_beside(real, {"MIOPEN_USER_DB_PATH": str(user)}, here)
    assert copied is not None and copied.find_db is not None
    (found,) = finddb.read(copied.find_db)
    assert found.key in {problem.key for problem in recorded.problems} and found.solvers
    assert (user / USER_DB).read_bytes() == before
    with_library = Library("3.4.0", library)
    assert userdbs.folder_of({"HOME": "/home/u"}, with_library) == Path("/home/u/.config/miopen")


def test_a_find_db_made_of_a_manifest_is_used(tmp_path: Path, ask: Callable[..., Any]) -> None:
    """The two solvers by time, though the manifest has them otherwise; GEMM is 91, the naive kernel 85."""
    solutions = [
        Solution("ConvDirectNaiveConvFwd", "9", "0", f"{WAY}Direct", False),
        Solution("GemmFwdRest", "0.5", "1", f"{WAY}GEMM", False),
    ]
    made = Manifest(problems={KEY: Problem(solutions=solutions)})
    path = tmp_path / USER_DB
    write_find_db(path, made, resolve("6.4.3"))
    assert ask(path.read_bytes()) == (0, "counted 2 offered 91 85")


def test_a_perf_db_made_of_a_manifest_is_used(tmp_path: Path, record: Callable[..., Any]) -> None:
    """The tuned parameters of ConvOclDirectFwd (id 11) reach the kernel's key, out of the system's text."""
    key = "48-35-35-5x5-64-35-35-1-2x2-1x1-1x1-0-NCHW-FP32-F"
    tuned = {"ConvOclDirectFwd": "16,8,16,32,1,4,1,2,1"}
    made = Manifest(problems={key: Problem(tuned=tuned)})
    system = tmp_path / "system"
    system.mkdir()
    assert perf_form(resolve("6.4.3")) == "text"
    write_perf_db(system / "gfx1030_36.db.txt", made, "text")
    driver = "conv -n 1 -c 48 -H 35 -W 35 -k 64 -y 5 -x 5 -p 2 -q 2 -F 1 -V 0 -i 1 -t 0 -G 1 -S 11".split()
    env = {"MIOPEN_SYSTEM_DB_PATH": str(system)}
    assert record(tmp_path / "traces", DRIVER, *driver, env=env, cwd=tmp_path).code == 0
    keys = list(keys_of(tmp_path / "traces"))
    assert keys and all(b" -DMLO_GRP_TILE0=8 " in key for key in keys)


def keys_of(traces: Path) -> Iterator[bytes]:
    for path in traces.glob("*.kdbtrace"):
        for lookup in read_trace(path).lookups:
            if lookup.name == b"MIOpenConvDirUni.cl.o":
                yield lookup.args


def test_a_converted_perf_db_is_used(shared: Path, tmp_path: Path, record: Callable[..., Any]) -> None:
    """The tuned parameters 16,8,16,32,1,4,1,2,1 of ConvOclDirectFwd (id 11) reach the kernel's key."""
    source = shared / "data" / "gfx1030_36.db.bz2"
    (tuned,) = (
        r
        for r in perfdb.read(source)
        if r.solver == "ConvOclDirectFwd"
        and r.key == "2x48x35x35x1x5x5x1x64x1x2x2x0x1x1x0x1x1x0x0x1xNCHWxFP32xF"
    )
    assert tuned.params == "16,8,16,32,1,4,1,2,1"
    driver = "conv -n 1 -c 48 -H 35 -W 35 -k 64 -y 5 -x 5 -p 2 -q 2 -F 1 -V 0 -i 1 -t 0 -G 1 -S 11".split()
    keys: dict[str, list[bytes]] = {}
    for name in ("none", "gfx1030_36.db", "gfx1030_36.db.txt"):
        system = tmp_path / name / "system"
        system.mkdir(parents=True)
        if name != "none":
            perfdb.convert(source, system / name)
        env = {"MIOPEN_SYSTEM_DB_PATH": str(system), "MIOPEN_LOG_LEVEL": "6"}
        done = record(tmp_path / name / "traces", DRIVER, *driver, env=env, cwd=tmp_path)
        assert done.code == 0
        loaded = "Perf Db: record loaded: ConvOclDirectFwd" in done.err + done.out
        assert loaded == (name == "gfx1030_36.db.txt")  # Debian's 6.4.3 reads text only
        keys[name] = sorted(set(keys_of(tmp_path / name / "traces")))
    assert keys["none"] == keys["gfx1030_36.db"] != keys["gfx1030_36.db.txt"]
    assert all(b" -DMLO_GRP_TILE0=16 " in key for key in keys["none"])
    assert keys["gfx1030_36.db.txt"] and all(
        b" -DMLO_GRP_TILE0=8 " in key for key in keys["gfx1030_36.db.txt"]
    )
