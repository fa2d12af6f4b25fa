"""`kdbtool manifest`'s filters: what stays is byte-equal to the input's rows, what goes has a reason."""

from __future__ import annotations

import bz2
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import kdb_files
from support.amdgpu_elf import code_object
from support.kernel_traces import asked, compiled, loaded, program

from kdbtool.explain.options import solvers_of
from kdbtool.manifest import Asker, Key, Manifest, Note, Problem, parse_manifest, write_manifest
from kdbtool.manifest.choose import Choice, choose
from kdbtool.manifest.choose_cost import Loss, asked_loss, assembly_loss
from kdbtool.manifest.choose_rank import ORDERS
from kdbtool.manifest.choose_size import Sizes, file_size, of_source
from kdbtool.manifest.choose_usage import Usage, Use, of_key
from kdbtool.manifest.collect import Collected
from kdbtool.miopen.classes import asm_class_of_solver
from kdbtool.miopen.finddb import FindSolution
from kdbtool.miopen.solvers import solver_ids
from kdbtool.reasons import Reason

ARCH = "gfx1030"
CPU = b" -mcpu=gfx1030"
LIST = (
    b" -DMIOPEN_USE_FP16=0 -DMIOPEN_USE_FP16x4=0 -DMIOPEN_USE_FP16x8=0 -DMIOPEN_USE_FP32=1"
    b" -DMIOPEN_USE_INT8=0 -DMIOPEN_USE_BFP16=0 -DMIOPEN_USE_INT32=0 -DMIOPEN_USE_RNE_BFLOAT16=1"
    b" -DMIOPEN_FP8_IEEE_EXPONENT_BIAS=0 -DMIOPEN_FP8_CLIPPING=1"
)
NAMES = (
    b"naive_conv.cpp.o",
    b"MIOpenConvDirUni.cl.o",
    b"MIOpenSoftmax.cl.o",
    b"conv1x1u.s.o",
    b"igemm_fwd_gtc.s.o",
    b"Conv_Winograd_v21.s.o",
    b"odd name",
)
FIRST = "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP32-F"
SECOND = "32-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP32-F"


def collected(*keys: Key, missed: bool = False) -> Collected:
    out = Collected()
    for key in keys:
        out.add(key, missed=missed)
    return out


def file_of(path: Path, *keys: Key) -> Path:
    """A manifest of these keys."""
    path.write_bytes(write_manifest(Manifest(keys={key: Note() for key in keys})))
    return path


def key(name: bytes, args: bytes = b"") -> Key:
    return Key(name, args + CPU, ARCH)


def sources(text: str) -> list[bytes]:
    return sorted(one.name for one in parse_manifest(text.encode(), "m").keys)


SOFT, ASM, GEN, DIS = key(NAMES[2]), key(NAMES[3]), key(NAMES[4]), key(NAMES[5])


@pytest.fixture
def some(tmp_path: Path) -> Path:
    return file_of(tmp_path / "m", SOFT, ASM, GEN, DIS, key(NAMES[0], LIST))


def test_each_class_of_assembly_goes_under_its_reason(some: Path, run_cli: Callable[..., Any]) -> None:
    for reason, gone in (("asm-handwritten", ASM), ("asm-generated", GEN), ("asm-disassembled", DIS)):
        ended = run_cli("manifest", some, "--drop", reason)
        assert ended.code == 0 and gone.name not in sources(ended.out)
        assert f"1 out: {reason}" in ended.err and "5 kept" not in ended.err
    ended = run_cli("manifest", some, "--drop", "asm-generated", "--drop", "asm", "-v")
    assert sources(ended.out) == [SOFT.name, NAMES[0], NAMES[0]]
    assert "3 out: asm:" in ended.err and "0 out: asm-generated (and 1 counted above)" in ended.err
    assert run_cli("manifest", some, "--drop", "ams").code == 2


def test_sources_are_dropped_and_spared_by_expression(some: Path, run_cli: Callable[..., Any]) -> None:
    ended = run_cli(
        "manifest", some, "--drop-source", "^MIOpen", "--drop-source", "naive", "--json", "-o", some / "../o"
    )
    assert ended.code == 0
    account = json.loads(ended.out)
    assert account["dropped_sources"] == {
        "MIOpenSoftmax.cl": {"source-dropped": 1},
        "naive_conv.cpp": {"source-dropped": 1},
    }
    assert (account["distinct"], account["kept"], account["dropped"]) == (5, 3, 2)
    ended = run_cli("manifest", some, "--drop", "asm", "--drop-source", ".", "--keep-source", "1x1u")
    assert sources(ended.out) == [ASM.name]
    # What is chosen otherwise is not spared.
    ended = run_cli("manifest", some, "--keep-source", ".", "--language", "opencl")
    assert sources(ended.out) == [SOFT.name] and "4 out: filter" in ended.err


@pytest.mark.parametrize(
    "words",
    [
        ("--drop-source", "("), ("--keep-source", "*"), ("--top", "0"), ("--top", "-1"), ("--top", "x"),
        ("--top", "1", "--top", "2"), ("--max-size", "0"), ("--max-size", "5X"), ("--max-size", ""),
        ("--top-by", "launches"), ("--top-by", "size", "--top", "1"), ("--language", "c"),
        ("--used-by", "/none"), ("--drop", "asm", "--find-db", "/none"), ("--top", "1"),
        ("--top", "1", "--top-by", "compile-seconds"),
    ],
)  # fmt: skip
def test_bad_usage_is_one_line(words: tuple[str, ...], some: Path, run_cli: Callable[..., Any]) -> None:
    ended = run_cli("manifest", some, *words, "-o", some / "../out")
    assert ended.code == 2 and ended.out == "" and ended.err.count("\n") == 1
    assert [p.name for p in some.parent.iterdir()] == ["m"]


def test_a_filter_that_keeps_nothing_says_so(some: Path, run_cli: Callable[..., Any], tmp_path: Path) -> None:
    program(tmp_path / "t.kdbtrace", asked(10, b"other.cl.o", CPU, hit=True, at=3000))
    program(tmp_path / "e.kdbtrace")
    for words in (("--drop-source", ""), ("--used-by", tmp_path / "t.kdbtrace"), ("--max-size", "1")):
        ended = run_cli("manifest", some, *words)
        assert ended.code == 0 and sources(ended.out) == []
        assert "5 out: " in ended.err and "nothing is left, the manifest is empty" in ended.err
    ended = run_cli("manifest", some, "--used-by", tmp_path / "e.kdbtrace")
    assert ended.code == 0 and "used no kernel that is known" in ended.err


def test_used_by_keeps_both_spellings(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    once, twice = key(NAMES[0], LIST), key(NAMES[0], LIST + LIST)
    text = file_of(tmp_path / "m", once, twice, SOFT)
    trace = program(tmp_path / "t.kdbtrace", asked(10, NAMES[0], LIST + CPU, hit=False, at=3000))
    for extra in ((), ("--spellings", "asked")):
        ended = run_cli("manifest", text, "--used-by", trace, *extra)
        assert sorted(parse_manifest(ended.out.encode(), "m").keys) == sorted([once, twice])
        assert "1 out: unused" in ended.err


def test_used_by_takes_what_was_loaded_where_a_database_knows_it(
    run_cli: Callable[..., Any], tmp_path: Path
) -> None:
    data = code_object(kernels=["soft"])
    trace = program(tmp_path / "t.kdbtrace", loaded(20, data, 1, at=3000))
    kdb = kdb_files.make(
        tmp_path / "gfx1030.kdb", [kdb_files.row(SOFT.name, SOFT.args, data), kdb_files.row()]
    )
    ended = run_cli("manifest", kdb, "--used-by", trace)
    assert list(parse_manifest(ended.out.encode(), "m").keys) == [SOFT]


def trace_of_three(path: Path) -> Path:
    """Softmax: 9 launches, 10 ns; ConvDirUni: 2 launches, 500 ns; conv1x1u: asked for alone."""
    return program(
        path,
        [
            *asked(10, NAMES[2], CPU, hit=False, at=3000),
            compiled(b"MIOpenSoftmax.cl", at=3001, duration=10),
            *loaded(20, code_object(kernels=["a"]), 9, at=3100),
            *asked(30, NAMES[1], b" -DX=1" + CPU, hit=False, at=4000),
            compiled(b"MIOpenConvDirUni.cl", at=4001, duration=500),
            *loaded(40, code_object(kernels=["b"]), 2, at=5000),
            *asked(50, NAMES[3], CPU, hit=False, at=6000),
        ],
    )  # fmt: skip


def test_top_by_launches_and_by_seconds(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    trace = trace_of_three(tmp_path / "t.kdbtrace")
    assert sources(run_cli("manifest", trace, "--top", 1).out) == [NAMES[2]]
    ended = run_cli("manifest", trace, "--top", 1, "--top-by", "compile-seconds")
    assert sources(ended.out) == [NAMES[1]] and "2 out: not-top" in ended.err
    assert sources(run_cli("manifest", trace, "--top", 99).out) == sorted(NAMES[1:3])
    ended = run_cli("manifest", trace, "--top", 1, "--keep-source", "1x1u", "--json", "-o", tmp_path / "o")
    account = json.loads(ended.out)
    assert sources((tmp_path / "o").read_text()) == sorted([NAMES[2], NAMES[3]])
    assert (account["cost"]["timed_kernels"], account["cost"]["launches"]) == (1, 2)
    assert account["reasons"]["not-top"]["counted"] == 1


def test_a_size_drops_the_least_launched_and_is_kept(run_cli: Callable[..., Any], tmp_path: Path) -> None:
    trace = trace_of_three(tmp_path / "t.kdbtrace")
    kept, limit = [], 1 << 30
    for _ in range(4):
        ended = run_cli("manifest", trace, "--max-size", limit, "--json", "--force", "-o", tmp_path / "o")
        estimate = json.loads(ended.out)["estimates"].get(ARCH, {"after": 0, "before": 0})
        assert estimate["after"] <= limit
        kept.append(sources((tmp_path / "o").read_text()))
        limit = max(estimate["after"] - 1, 1)
    assert kept == [sorted(NAMES[1:4]), sorted(NAMES[1:3]), [NAMES[2]], []]
    ended = run_cli("manifest", trace, "--max-size", "1G")
    assert "estimate: gfx1030.kdb of" in ended.err and "2 loaded" in ended.err
    ended = run_cli("manifest", trace, "--max-size", "1K", "--keep-source", ".")
    assert "3 kept" in ended.err and "--keep-source alone are over --max-size" in ended.err


def test_a_size_without_traces_is_by_key_and_says_so(some: Path, run_cli: Callable[..., Any]) -> None:
    first = run_cli("manifest", some, "--max-size", "60K")
    assert first.code == 0 and "no trace says what is used" in first.err
    assert run_cli("manifest", some, "--max-size", "60K") == first


def test_sizes_come_from_the_best_that_is_known(tmp_path: Path) -> None:
    stored, seen, like, table, unknown = (
        key(b"a.cl.o", b" -DX=%d" % n) if n < 3 else key((NAMES[2], b"b.s.o")[n - 3]) for n in range(5)
    )
    usage = Usage(kernels={of_key(seen): Use(1, size=30_000)}, packed={of_key(stored): 5000})
    sizes = Sizes(usage)
    sizes.prepare([stored, seen, like, table, unknown])
    opencl = of_source("a.cl")
    assert sizes.object(stored) == (5000, "stored")
    assert sizes.object(seen) == (30_000 * opencl.packed // opencl.loaded, "loaded")
    assert sizes.object(like) == (min(5000, sizes.object(seen)[0]), "source")
    assert sizes.object(table) == (of_source("MIOpenSoftmax.cl").packed, "data")
    assert sizes.object(unknown) == (of_source("nothing").packed, "language")
    assert sizes.row(Key(b"b.s.o", CPU, ARCH, "asked-unbuilt")) == 0


def test_the_estimate_of_a_real_database(shared: Path, run_cli: Callable[..., Any], tmp_path: Path) -> None:
    kdb = shared / "data" / "gfx942.kdb"
    out = run_cli("manifest", kdb, "--max-size", "1G", "--json", "-o", tmp_path / "o").out
    estimate = json.loads(out)["estimates"]["gfx942"]
    assert estimate["before"] == estimate["after"] == pytest.approx(kdb.stat().st_size, rel=0.05)


PARTS = st.sampled_from([b"", b" -DX=1", b" -DX=2  -DY", LIST, LIST + LIST, b" -DX=1" + LIST])
KEYS = st.lists(
    st.builds(lambda n, a, arch: Key(n, a + b" -mcpu=" + arch.encode(), arch),
              st.sampled_from(NAMES), PARTS, st.sampled_from([ARCH, "gfx906"])),
    unique=True, max_size=25,
)  # fmt: skip
CHOICES = st.builds(
    Choice,
    drop_asm=st.booleans(),
    drop_classes=st.sets(st.sampled_from(["asm-generated", "asm-disassembled", "asm-handwritten"])),
    drop_sources=st.lists(st.sampled_from([re.compile(r"Soft"), re.compile(r"\.s$")]), max_size=2),
    keep_sources=st.lists(st.sampled_from([re.compile(r"igemm"), re.compile(r"naive")]), max_size=1),
    languages=st.none() | st.sets(st.sampled_from(["hip", "opencl", "asm"]), min_size=1),
    top=st.none() | st.integers(1, 9),
    max_size=st.none() | st.integers(1, 200_000),
    order=st.sampled_from(ORDERS),
    both_spellings=st.booleans(),
)


@given(KEYS, CHOICES, st.randoms(use_true_random=False))
def test_filters_commute_with_expansion(keys: list[Key], choice: Choice, random: Any) -> None:
    usage = Usage(kernels={of_key(one): Use(random.randrange(5), random.randrange(9)) for one in keys})
    kept, report = choose(collected(*keys), choice, usage)
    plain = {one for one in kept if one in set(keys)}
    assert len(kept) == report.kept + report.unbuilt + report.added
    assert len(plain) + report.dropped == len(keys) and report.added == len(kept) - len(plain)
    assert sorted(report.gone) == sorted(set(keys) - plain)
    assert sum(found.total() for found in report.by_source.values()) == report.dropped
    # What is written and read again is what stays, and a second time nothing goes.
    back = parse_manifest(write_manifest(Manifest(keys=dict(kept))), "m").keys
    assert set(back) == set(kept)
    again, second = choose(collected(*sorted(kept, reverse=True)), choice, usage)
    assert set(again) == set(kept) and not second.dropped
    # Spellings stay or go together, where only kernels are chosen.
    kernels = {of_key(one) for one in kept}
    assert all((one in kept) == (of_key(one) in kernels) for one in keys)
    if choice.max_size is not None and not choice.keep_sources:
        assert all(one.after <= choice.max_size for one in report.estimates.values())


def solution(solver: str, time: str) -> FindSolution:
    return FindSolution(solver, time, "0", "miopenConvolutionFwdAlgoDirect", False)


def test_what_problems_lose() -> None:
    some = [
        solution("ConvAsm1x1U", "1"),
        solution("ConvBinWinogradRxSf2x3", "2"),
        solution("GemmFwdRest", "3"),
    ]
    known = {FIRST: some, SECOND: some[:2]}
    every = assembly_loss(known, None, None)
    assert (every.problems, every.best, every.without, every.median) == (2, {"ConvAsm1x1U": 2}, [SECOND], 3.0)
    hand = assembly_loss(known, {"asm-handwritten"}, None)
    assert (hand.without, hand.median) == ([], 2.0)
    assert assembly_loss(known, {"asm-generated"}, None).best == {}
    inputs = collected(ASM)
    inputs.manifests = [
        Manifest(asked_by={ASM: {Asker("ConvAsm1x1U", FIRST), Asker("ConvAsm1x1U", "unknown")}})
    ]
    loss = asked_loss(inputs, known, [ASM], [])
    assert loss is not None and (loss.problems, loss.unknown, loss.best.total()) == (2, 1, 1)
    assert asked_loss(inputs, known, [ASM], [ASM]) == Loss()
    assert asked_loss(collected(ASM), known, [ASM], []) is None


def test_assembly_in_a_find_db(run_cli: Callable[..., Any], some: Path, tmp_path: Path) -> None:
    way = "miopenConvolutionFwdAlgoDirect"
    find = tmp_path / "gfx1030_36.HIP.fdb.txt.bz2"
    find.write_bytes(bz2.compress(
        f"{FIRST}=ConvAsm1x1U:1.5,0,{way};ConvDirectNaiveConvFwd:3,0,{way}\nbroken\n{SECOND}=ConvAsm1x1U:1,0,{way}\n".encode()
    ))  # fmt: skip
    ended = run_cli("manifest", some, "--drop", "asm", "--find-db", find)
    assert (
        "of 2 problems looked at, without assembly, 2 lose their fastest solver, 1 have none left"
        in ended.err
    )
    assert "by data, not run" in ended.err and "1 damaged lines or items" in ended.err
    ended = run_cli("manifest", some, "--drop", "asm", "--find-db", find, "--json", "-o", tmp_path / "o")
    found = json.loads(ended.out)["cost"]["problems_by_assembly"]
    assert found["without_a_solver"] == [SECOND] and found["next_best_times_as_long"] == 2.0


def test_problems_of_the_input_are_looked_at_alone() -> None:
    from kdbtool.manifest.choose_cost import known_solutions

    inputs = collected(ASM)
    inputs.problems = {FIRST: Problem(solutions=[solution("GemmFwdRest", "1")]), SECOND: Problem()}
    known, without = known_solutions(inputs, {"another": [solution("x", "1")]})
    assert (list(known), without) == ([FIRST], 1)


def test_solvers_of_assembly_are_those_whose_kernels_are() -> None:
    """Against explain's solver-files.tsv, as far as it knows a solver."""
    rows = Path(solvers_of.__code__.co_filename).parent / "data" / "solver-files.tsv"
    with_asm, without = set(), set()
    for line in rows.read_text().splitlines():
        if not line.startswith("#"):
            source, _, classes = line.split("\t")
            group = with_asm if source.endswith((".s", "*")) else without
            group.update(filter(None, classes.split(",")))
    known = {name for name in solver_ids() if name.startswith("Conv")}
    assert {n for n in known if n.partition("<")[0] in with_asm and not asm_class_of_solver(n)} == set()
    only_others = {n for n in known if n.partition("<")[0] in without - with_asm and asm_class_of_solver(n)}
    # Its .cpp is the cast behind the assembly, whose names are made at run time.
    assert only_others == {"ConvAsmImplicitGemmV4R1DynamicWrw"}


def test_every_reason_has_a_text_of_its_own() -> None:
    assert len({reason.text for reason in Reason}) == len(Reason)
    assert file_size(0, 0) > 0
