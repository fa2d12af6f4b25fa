"""Runs inside the root, by its own python3: MIOpen through ctypes, RTLD_LOCAL, as PyTorch loads it.

Reads lines of JSON from standard input, one convolution each, and asks MIOpen for its solutions:
{"direction": "F", "x": tensor, "w": tensor, "y": tensor, "conv": {...}}; a tensor is {"how": setter,
"type": n, "lens": [...], "strides": [...], "layout": n, "cast": n}. With "compile": n the first n solutions
are compiled, too, which looks their kernels up. Prints the status of each call.
"""

import ctypes
import json
import sys

lib = ctypes.CDLL("libMIOpen.so.1", ctypes.RTLD_LOCAL)


def check(status: int) -> None:
    if status:
        raise SystemExit(f"status {status}")


def ints(values: list[int]) -> ctypes.Array[ctypes.c_int]:
    return (ctypes.c_int * len(values))(*values)


def tensor(
    how: str, type: int, lens: list[int], strides: list[int] | None = None, layout: int = 0, cast: int = -1
):
    desc = ctypes.c_void_p()
    check(lib.miopenCreateTensorDescriptor(ctypes.byref(desc)))
    if how == "4d":
        check(lib.miopenSet4dTensorDescriptor(desc, type, *lens))
    elif how == "4dEx":
        check(lib.miopenSet4dTensorDescriptorEx(desc, type, *lens, *strides))
    elif how == "nd":
        check(
            lib.miopenSetTensorDescriptor(
                desc, type, len(lens), ints(lens), ints(strides) if strides else None
            )
        )
    elif how == "v2":
        sizes = (ctypes.c_size_t * len(lens))(*lens)
        steps = (ctypes.c_size_t * len(lens))(*strides) if strides else None
        check(lib.miopenSetTensorDescriptorV2(desc, type, len(lens), sizes, steps))
    elif how == "layout":
        check(lib.miopenSetNdTensorDescriptorWithLayout(desc, type, layout, ints(lens), len(lens)))
    if cast >= 0:
        check(lib.miopenSetTensorCastType(desc, cast))
    return desc


def convolution(pads, strides, dilations, mode=0, groups=1):  # type: ignore[no-untyped-def]
    desc = ctypes.c_void_p()
    check(lib.miopenCreateConvolutionDescriptor(ctypes.byref(desc)))
    if len(pads) == 2:
        check(lib.miopenInitConvolutionDescriptor(desc, mode, *pads, *strides, *dilations))
    else:
        check(
            lib.miopenInitConvolutionNdDescriptor(
                desc, len(pads), ints(pads), ints(strides), ints(dilations), mode
            )
        )
    if groups != 1:
        check(lib.miopenSetConvolutionGroupCount(desc, groups))
    return desc


def main() -> None:
    handle = ctypes.c_void_p()
    check(lib.miopenCreate(ctypes.byref(handle)))
    solutions, count = ctypes.create_string_buffer(32 * 8), ctypes.c_size_t()
    for line in sys.stdin:
        case = json.loads(line)
        x, w, y = (tensor(**case[t]) for t in "xwy")
        conv = convolution(**case["conv"])
        order = {
            "F": ("ForwardGetSolution", w, x, conv, y),
            "B": ("BackwardDataGetSolution", y, w, conv, x),
            "W": ("BackwardWeightsGetSolution", y, x, conv, w),
        }
        name, *descs = order[case["direction"]]
        call = getattr(lib, "miopenConvolution" + name)
        print(call(handle, *descs, ctypes.c_size_t(8), ctypes.byref(count), solutions), flush=True)
        for at in range(min(case.get("compile", 0), count.value)):
            solution = ctypes.c_uint64.from_buffer(
                solutions, 32 * at + 16
            )  # miopenConvSolution_t.solution_id
            build = getattr(lib, "miopenConvolution" + name.replace("GetSolution", "CompileSolution"))
            print(build(handle, *descs, solution), flush=True)
        for desc in (x, w, y):
            lib.miopenDestroyTensorDescriptor(desc)
        lib.miopenDestroyConvolutionDescriptor(conv)


main()
