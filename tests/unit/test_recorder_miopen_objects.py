"""Convolutions by MIOpen's own key, whatever call they come by: fusion plans and Find 2.0 too."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import miopen_standin as standin
from support.miopen_scripts import Script, built, script
from support.standins import standins, traces

__all__ = ["built", "script", "standins", "traces"]  # fixtures

KEY = "8-16-16-3x3-4-14-14-2-0x0-1x1-1x1-0-NCHW-FP32-F"
CONV = """
C = 0x5000
api('miopenInitConvolutionDescriptor', conv_desc=C, stride_h=1, stride_w=1, dilation_h=1, dilation_w=1)
def make(name, address, **named):
    api.set('standin_made', address)
    api(name, **named, **{'fuse_plan_desc' if 'Plan' in name else 'problem': array(0)})
    api.set('standin_made', 0)
"""


def test_every_call_of_a_convolution(script: Script) -> None:
    """25 of them, one problem each, in the direction that the name says."""
    names = [h.name for h in standin.HOOKS if h.form in standin.CONVOLUTIONS]
    code = f"""
for name in {names}:
    arguments = [standin.name_of(p) for p in api.hooks[name].parameters]
    known = dict(conv_desc=C, x_desc=X, dx_desc=X, w_desc=W, dw_desc=W, y_desc=Y, dy_desc=Y)
    known |= dict(algo=3, solution_id=77, space_bytes=128, size=array(0))
    api(name, **dict((k, v) for k, v in known.items() if k in arguments))
"""
    ran = script(CONV + "from support import miopen_standin as standin" + code)
    problems = ran.trace.problems
    assert [p.api for p in problems] == names and len(names) == 25
    for p in problems:
        data = "BackwardData" in p.api
        assert p.direction == ("B" if data else "W" if "BackwardWeights" in p.api else "F")
    assert {p.key for p in problems if p.direction == "F"} == {KEY}


FIND = """
make('miopenCreateConvProblem', 0x7000, operator_desc=C, direction={direction})
for id, desc in ((1, X), (2, W), (3, Y)):
    api('miopenSetProblemTensorDescriptor', problem=0x7000, id=id, descriptor=desc)
api.set('standin_made', 0x8000)
api('miopenFindSolutions', problem=0x7000, solutions=array(0, 0), num_solutions=array(0), max_solutions=2)
api('miopenDestroyProblem', problem=0x7000)
api('miopenRunSolution', solution=0x8000, space_bytes=64)
api('miopenGetSolutionSolverId', solution=0x8001, solver_id=array(0))
api('miopenRunSolution', solution=0x8001, space_bytes=64)
api('miopenDestroySolution', solution=0x8000)
api('miopenRunSolution', solution=0x8000)
"""


@pytest.mark.parametrize(("direction", "letter"), [(0, "F"), (1, "B"), (2, "W")])
def test_find_2(script: Script, direction: int, letter: str) -> None:
    """A solution is known by its problem, also when that is gone; its solver once the program asked."""
    ran = script(CONV + FIND.format(direction=direction))
    found = [(p.api, p.direction, p.solution, p.workspace) for p in ran.trace.problems]
    assert found == [
        ("miopenFindSolutions", letter, None, 0),
        ("miopenRunSolution", letter, None, 64),
        ("miopenRunSolution", letter, 77, 64),
    ]
    assert len({p.key for p in ran.trace.problems}) == 1
    assert [(c.api, c.detail) for c in ran.trace.calls] == [("miopenRunSolution", "about=?")]


def test_find_2_of_a_transposed_convolution(script: Script) -> None:
    """MIOpen turns the direction round, and the sides with it."""
    code = (
        "api('miopenInitConvolutionDescriptor', conv_desc=C, c_mode=1, stride_h=1, stride_w=1, dilation_h=1,"
    )
    ran = script(CONV + code + " dilation_w=1)\nX, Y = Y, X\n" + FIND.format(direction=0))
    assert {p.key for p in ran.trace.problems} == {"4-14-14-3x3-8-16-16-2-0x0-1x1-1x1-0-NCHW-FP32-B"}


def test_fused_problems(script: Script) -> None:
    """The convolution's own output is what MIOpen works out of x and w."""
    code = """
make('miopenCreateConvProblem', 0x7000, operator_desc=C)
make('miopenCreateBiasProblem', 0x7100)
make('miopenCreateActivationProblem', 0x7200)
api('miopenSetProblemTensorDescriptor', problem=0x7000, id=1, descriptor=X)
api('miopenSetProblemTensorDescriptor', problem=0x7000, id=2, descriptor=W)
api('miopenSetProblemTensorDescriptor', problem=0x7100, id=43, descriptor=Z)
api('miopenFuseProblems', problem1=0x7000, problem2=0x7100)
api('miopenFuseProblems', problem1=0x7000, problem2=0x7200)
api('miopenFindSolutions', problem=0x7000)
"""
    (problem,) = script(CONV + code).trace.problems
    assert (problem.api, problem.key) == ("miopenFindSolutions", KEY)


@pytest.mark.parametrize(
    ("code", "detail"),
    [
        (
            "api('miopenSetSoftmaxDescriptor', softmax_desc=9, alpha=0.1, beta=0.5, algorithm=2, mode=1)\n"
            "make('miopenCreateSoftmaxProblem', 0x7000, operator_desc=9, direction=1)\n"
            "api('miopenSetProblemTensorDescriptor', problem=0x7000, id=45, descriptor=X)",
            "op1=softmax direction=backward softmax=log mode=channel alpha=0.1 beta=0.5 y=FP32[2,8,16,16]",
        ),
        (
            "api('miopenSetMhaDescriptor', mha_desc=9, scale=0.125)\n"
            "make('miopenCreateMhaProblem', 0x7000, operator_desc=9)\n"
            "for id in range(4, 37):\n"
            "    api('miopenSetProblemTensorDescriptor', problem=0x7000, id=id, descriptor=Z)",
            "op1=mha direction=forward mha_scale=0.125 k=FP32[1,4,1,1] q=FP32[1,4,1,1]",
        ),
        (
            "make('miopenCreateBatchnormProblem', 0x7000, mode=1, running_mean_variance=True, direction=4)",
            "op1=batchnorm direction=inference batchnorm=spatial running=1",
        ),
        ("make('miopenCreateMhaProblem', 0x7000, operator_desc=11)", "op1=mha direction=forward"),
    ],
)
def test_problems_that_are_no_convolution(script: Script, code: str, detail: str) -> None:
    (call,) = script(CONV + code + "\napi('miopenFindSolutions', problem=0x7000)").trace.calls
    assert call.detail.startswith(detail) and (call.detail == detail or "mha_scale" in detail)


def test_a_loaded_solution_is_not_known(script: Script) -> None:
    code = """
api.set('standin_made', 0x8000)
api('miopenFindSolutions', problem=0x7000, solutions=array(0, 0), num_solutions=array(0), max_solutions=2)
api('miopenLoadSolution', solution=array(0), size=5)
api('miopenRunSolution', solution=0x8000)
"""
    calls = script(CONV + code).trace.calls
    assert [c.detail for c in calls] == ["about=?", "size=5", "about=?"]


PLAN = """
make('miopenCreateFusionPlan', 0x7000, input_desc=X)
{ops}
api('miopenCompileFusionPlan', fuse_plan_desc=0x7000)
api('miopenFusionPlanGetWorkSpaceSize', fuse_plan_desc=0x7000, size=array(4096))
api('miopenExecuteFusionPlan', fuse_plan_desc=0x7000, input_desc=X)
api('miopenExecuteFusionPlan_v2', fuse_plan_desc=0x7000, input_desc=X, space_bytes=32)
api('miopenDestroyFusionPlan', fuse_plan_desc=0x7000)
api('miopenCompileFusionPlan', fuse_plan_desc=0x7000)
"""


def test_a_fusion_plan_with_a_convolution(script: Script) -> None:
    ops = """
api('miopenCreateOpConvForward', fuse_plan_desc=0x7000, conv_desc=C, w_desc=W)
api('miopenCreateOpBiasForward', fuse_plan_desc=0x7000, b_desc=Z)
api('miopenCreateOpActivationForward', fuse_plan_desc=0x7000, mode=3)
"""
    ran = script(CONV + PLAN.format(ops=ops))
    assert [(p.api, p.key, p.workspace) for p in ran.trace.problems] == [
        ("miopenCompileFusionPlan", KEY, 0),
        ("miopenFusionPlanGetWorkSpaceSize", KEY, 4096),
        ("miopenExecuteFusionPlan", KEY, 0),
        ("miopenExecuteFusionPlan_v2", KEY, 32),
    ]
    assert [c.detail for c in ran.trace.calls] == ["about=?"]


def test_a_fusion_plan_without(script: Script) -> None:
    ops = """
api('miopenCreateOpBatchNormInference', fuse_plan_desc=0x7000, bn_mode=1, bn_scale_bias_mean_var_desc=Z)
api('miopenCreateOpActivationForward', fuse_plan_desc=0x7000, mode=8)
"""
    ran = script(CONV + PLAN.format(ops=ops))
    assert ran.trace.problems == []
    said = (
        "input=FP32[2,8,16,16] op1=batchnorm direction=inference mode1=spatial"
        " op2=activation direction=forward mode2=leaky-relu"
    )
    assert [c.detail for c in ran.trace.calls] == [said] * 4 + ["about=?"]


@pytest.mark.parametrize(
    ("spoiled", "calls", "note"),
    [
        ("api('miopenDestroyTensorDescriptor', tensor_desc=W)", [], 4),  # before the plan saw it
        ("\n".join(["api('miopenCreateOpBiasForward', fuse_plan_desc=0x7000)"] * 9), ["about=?"] * 5, 0),
    ],
)
def test_a_plan_that_cannot_be_known(script: Script, spoiled: str, calls: list[str], note: int) -> None:
    ops = spoiled + "\napi('miopenCreateOpConvForward', fuse_plan_desc=0x7000, conv_desc=C, w_desc=W)"
    ran = script(CONV + PLAN.format(ops=ops))
    assert [c.detail for c in ran.trace.calls] == (calls or ["about=?"])
    notes = [f"{note} calls of a convolution whose descriptors were set out of sight"] if note else []
    assert (ran.trace.problems, ran.trace.notes) == ([], notes)


def test_what_a_convolution_makes_of_its_input(script: Script, traces: Path) -> None:
    """Stride, dilation and padding; channels last stays so; 8-bit integers make 32-bit ones."""
    code = """
api('miopenInitConvolutionDescriptor', conv_desc=C, pad_h=2, pad_w=1, stride_h=2, stride_w=1, dilation_h=1,
    dilation_w=2)
api.tensor(X, 3, 2, 8, 15, 16, strides=(1920, 1, 128, 8))
api.tensor(W, 3, 4, 8, 3, 5, strides=(120, 1, 40, 8))
make('miopenCreateFusionPlan', 0x7000, input_desc=X)
api('miopenCreateOpConvForward', fuse_plan_desc=0x7000, conv_desc=C, w_desc=W)
api('miopenCompileFusionPlan', fuse_plan_desc=0x7000)
"""
    (problem,) = script(CONV + code).trace.problems
    assert problem.key == "8-15-16-3x5-4-9-10-2-2x1-2x1-1x2-0-NHWC-NHWC-NHWC-INT8INT8INT32-F"
