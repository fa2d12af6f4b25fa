"""What a harvest asks for: tiers, what is left out beforehand and why, damaged lines."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kdbtool.errors import KdbtoolError
from kdbtool.harvest import wanted
from kdbtool.harvest.wanted import ALL, BEST, DEFAULT, FULL_FIND, OFFERED, Why, from_find_db, from_problems
from kdbtool.miopen.solvers import SolverSet

SOLVERS = SolverSet(
    frozenset({"ConvDirectNaiveConvFwd", "ConvOclDirectFwd", "GemmFwd1x1_0_1"}),
    frozenset({"ConvOclDirectFwdFused"}),
    frozenset({"ConvMlirIgemmFwd"}),
)
A = "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP32-F"
B = "3-8-8-3x3-4-8-8-2-1x1-1x1-1x1-0-NCHW-FP32-F"
INT8X4 = "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-INT8x4-F"
NAIVE = "ConvDirectNaiveConvFwd:3.5,0,miopenConvolutionFwdAlgoDirect"
OCL = "ConvOclDirectFwd:0.5,0,miopenConvolutionFwdAlgoDirect"
LEGACY = "miopenConvolutionFwdAlgoGEMM:GemmFwd1x1_0_1,0.25,0,miopenConvolutionFwdAlgoGEMM,x"


def find_db(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "gfx1030_36.HIP.fdb.txt"
    path.write_text("".join(line + "\n" for line in lines))
    return path


def test_all_asks_for_every_entry_best_for_the_fastest(tmp_path: Path) -> None:
    path = find_db(tmp_path, f"{A}={NAIVE};{OCL}", f"{B}={LEGACY}")
    plan = from_find_db(path, ALL, SOLVERS)
    assert [(w.key, w.action, w.solvers) for w in plan.wanted] == [
        (A, "ids", ("ConvDirectNaiveConvFwd", "ConvOclDirectFwd")),
        (B, "ids", ("GemmFwd1x1_0_1",)),
    ]
    assert (plan.read, plan.entries, plan.failures) == (2, 3, [])
    assert from_find_db(path, BEST, SOLVERS).wanted[0].solvers == ("ConvOclDirectFwd",)


def test_offered_hands_over_the_record_in_the_form_that_is_read_today(tmp_path: Path) -> None:
    (one,) = from_find_db(
        find_db(tmp_path, f"{A}={LEGACY};ConvOclDirectFwdFused:0.1,0,x"), OFFERED, SOLVERS
    ).wanted
    assert one.action == "offered"
    assert one.record == f"{A}=GemmFwd1x1_0_1:0.25,0,miopenConvolutionFwdAlgoGEMM"


@pytest.mark.parametrize("tier", [DEFAULT, FULL_FIND])
def test_find_needs_no_solver_of_the_find_db(tier: str, tmp_path: Path) -> None:
    plan = from_find_db(find_db(tmp_path, f"{A}={OCL}", f"{B}=Gone:1,0,x"), tier, SOLVERS)
    assert [(w.key, w.action, w.solvers) for w in plan.wanted] == [(A, "find", ()), (B, "find", ())]


def test_solvers_that_would_kill_or_are_not_there_are_named(tmp_path: Path) -> None:
    way = "miopenConvolutionFwdAlgoDirect"
    rest = f"ConvOclDirectFwdFused:0.1,0,{way};ConvMlirIgemmFwd:0.2,0,{way};Nobody:0.3,0,{way}"
    plan = from_find_db(find_db(tmp_path, f"{A}={rest};{OCL}", f"{B}={rest}"), ALL, SOLVERS)
    assert [w.solvers for w in plan.wanted] == [("ConvOclDirectFwd",)]
    assert Counter(f.why for f in plan.failures) == {
        Why.WITHOUT_CODE: 2, Why.LEFT_OUT: 2, Why.UNKNOWN: 2, Why.NO_SOLUTION: 1,
    }  # fmt: skip
    assert plan.failures[-1] == (B, "", Why.NO_SOLUTION, "")


def test_damage_is_counted_by_line_and_the_rest_goes_on(tmp_path: Path) -> None:
    lines = ["no equals", "what=ConvOclDirectFwd:1,0,x", f"{A}={OCL};broken", f"{B}={OCL}", f"{A}={NAIVE}"]
    plan = from_find_db(find_db(tmp_path, *lines), ALL, SOLVERS)
    assert [w.key for w in plan.wanted] == [A, B]  # of two lines of one problem MIOpen takes the first
    assert [d.line for d in plan.damage] == [1, 2, 3]
    assert plan.damaged.total() == 3


def test_no_file_no_find_db(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(KdbtoolError):
            from_find_db(path, ALL, SOLVERS)


def test_only_some_problems_and_those_that_the_find_db_lacks(tmp_path: Path) -> None:
    plan = from_find_db(find_db(tmp_path, f"{A}={OCL}", f"{B}={OCL}"), ALL, SOLVERS, frozenset({B, INT8X4}))
    assert [w.key for w in plan.wanted] == [B]
    assert plan.failures == [(INT8X4, "", Why.NO_SOLUTION, "not in the find-db")]
    assert plan.read == 1


def test_problems_that_cannot_be_put_to_miopen_are_named() -> None:
    plan = from_problems([A, INT8X4, A], DEFAULT)
    assert [w.key for w in plan.wanted] == [A]
    assert plan.failures == [(INT8X4, "", Why.UNSPEAKABLE, "data type INT8x4")]


def test_every_reason_of_the_pruner_has_one_here() -> None:
    from kdbtool.miopen.prune import Why as Pruned

    assert {str(why) for why in Pruned} <= {str(why) for why in wanted.Why}
