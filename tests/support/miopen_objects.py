"""Runs inside the root, by its own python3: convolutions by Find 2.0 and by fusion plans.

Prints the status of each call that looks for, compiles or runs something, and the find-db keys' order is that
of the calls: forward, backward, weights, transposed forward by Find 2.0, then fused.
"""

import ctypes
from typing import Any

lib = ctypes.CDLL("libMIOpen.so.1", ctypes.RTLD_LOCAL)
hip = ctypes.CDLL("libamdhip64.so.6", ctypes.RTLD_LOCAL)


class Argument(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("descriptor", ctypes.c_void_p), ("buffer", ctypes.c_void_p))


def made(name: str, *arguments: Any) -> ctypes.c_void_p:
    """What a function that makes an object makes."""
    made = ctypes.c_void_p()
    status = getattr(lib, name)(ctypes.byref(made), *arguments)
    if status:
        raise SystemExit(f"{name}: {status}")
    return made


def say(name: str, *arguments: Any) -> int:
    status = getattr(lib, name)(*arguments)
    print(name, status, flush=True)
    return int(status)


def tensor(*lens: int) -> ctypes.c_void_p:
    desc = made("miopenCreateTensorDescriptor")
    lib.miopenSetTensorDescriptor(desc, 1, len(lens), (ctypes.c_int * len(lens))(*lens), None)
    return desc


def buffer() -> ctypes.c_void_p:
    held = ctypes.c_void_p()
    hip.hipMalloc(ctypes.byref(held), ctypes.c_size_t(1 << 20))
    return held


def convolution(mode: int = 0) -> ctypes.c_void_p:
    desc = made("miopenCreateConvolutionDescriptor")
    lib.miopenInitConvolutionDescriptor(desc, mode, 1, 1, 1, 1, 1, 1)
    return desc


def problem(kind: str, *arguments: Any, **tensors: ctypes.c_void_p) -> ctypes.c_void_p:
    found = made(f"miopenCreate{kind}Problem", *arguments)
    ids = {"x": 1, "w": 2, "y": 3, "bias": 43}
    for name, desc in tensors.items():
        lib.miopenSetProblemTensorDescriptor(found, ids[name], desc)
    return found


def find_and_run(handle: ctypes.c_void_p, found: ctypes.c_void_p, *ids: int) -> None:
    """The best solution, once as it is and once saved and loaded."""
    solutions, count = (ctypes.c_void_p * 4)(), ctypes.c_size_t()
    say("miopenFindSolutions", handle, found, None, solutions, ctypes.byref(count), ctypes.c_size_t(4))
    lib.miopenDestroyProblem(found)
    if not count.value:
        return
    best, solver, size = ctypes.c_void_p(solutions[0]), ctypes.c_uint64(), ctypes.c_size_t()
    lib.miopenGetSolutionSolverId(best, ctypes.byref(solver))
    arguments = (Argument * len(ids))(*(Argument(i, None, buffer()) for i in ids))
    space = buffer(), ctypes.c_size_t(1 << 20)
    say("miopenRunSolution", handle, best, ctypes.c_size_t(len(ids)), arguments, *space)
    lib.miopenGetSolutionSize(best, ctypes.byref(size))
    data = ctypes.create_string_buffer(size.value)
    say("miopenSaveSolution", best, data)
    loaded = ctypes.c_void_p()
    say("miopenLoadSolution", ctypes.byref(loaded), data, size)
    say("miopenRunSolution", handle, loaded, ctypes.c_size_t(len(ids)), arguments, *space)
    for i in range(count.value):
        lib.miopenDestroySolution(ctypes.c_void_p(solutions[i]))


def main() -> None:
    handle = made("miopenCreate")
    x, w, y, bias = tensor(2, 8, 16, 16), tensor(4, 8, 3, 3), tensor(2, 4, 16, 16), tensor(1, 4, 1, 1)
    for direction in range(3):
        find_and_run(handle, problem("Conv", convolution(), direction, x=x, w=w, y=y), 1, 2, 3)
    turned = problem("Conv", convolution(1), 0, x=x, w=tensor(8, 4, 3, 3), y=y)
    find_and_run(handle, turned, 1, 2, 3)

    activation = made("miopenCreateActivationDescriptor")
    lib.miopenSetActivationDescriptor(activation, 3, *map(ctypes.c_double, (1, 1, 1)))
    fused = problem("Conv", convolution(), 0, x=x, w=w)
    lib.miopenFuseProblems(fused, problem("Bias", 0, bias=bias))
    lib.miopenFuseProblems(fused, problem("Activation", activation, 0))
    find_and_run(handle, fused, 1, 2, 43, 38)

    softmax = made("miopenCreateSoftmaxDescriptor")
    lib.miopenSetSoftmaxDescriptor(softmax, ctypes.c_float(1), ctypes.c_float(0), 1, 1)
    found = made("miopenCreateSoftmaxProblem", softmax, 0)
    for i in (44, 45):
        lib.miopenSetProblemTensorDescriptor(found, i, x)
    find_and_run(handle, found, 44, 45)

    one, none = ctypes.c_float(1), ctypes.c_float(0)
    scales, reals = (ctypes.byref(one), ctypes.byref(none)), [ctypes.c_double(1)] * 3
    for kind in ("conv", "batchnorm"):
        plan, arguments = made("miopenCreateFusionPlan", 0, x), made("miopenCreateOperatorArgs")
        op, active = ctypes.c_void_p(), ctypes.c_void_p()
        if kind == "conv":
            lib.miopenCreateOpConvForward(plan, ctypes.byref(op), convolution(), w)
            lib.miopenSetOpArgsConvForward(arguments, op, *scales, buffer())
            lib.miopenCreateOpBiasForward(plan, ctypes.byref(op), bias)
            lib.miopenSetOpArgsBiasForward(arguments, op, *scales, buffer())
        else:
            lib.miopenCreateOpBatchNormInference(plan, ctypes.byref(op), 1, tensor(1, 8, 1, 1))
            held = [buffer() for _ in range(4)]
            lib.miopenSetOpArgsBatchNormInference(arguments, op, *scales, *held, ctypes.c_double(1e-5))
        lib.miopenCreateOpActivationForward(plan, ctypes.byref(active), 3)
        lib.miopenSetOpArgsActivForward(arguments, active, *scales, *reals)
        if say("miopenCompileFusionPlan", handle, plan) == 0:
            out = y if kind == "conv" else x
            say("miopenExecuteFusionPlan", handle, plan, x, buffer(), out, buffer(), arguments)
        lib.miopenDestroyFusionPlan(plan)


main()
