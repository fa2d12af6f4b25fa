"""A stand-in libMIOpen made from the recorder's own lists, a program that calls all of it, and Python's
way in.

Each function hashes every argument it was given (a pointer by its place in the program's pool) and gives
back a result that nobody else makes up. Getters are in it where they are asked for.
"""

from __future__ import annotations

import ctypes
import re
import runpy
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[2]
_SCRIPT = runpy.run_path(str(REPO / "scripts" / "update-hooks"))
HOOKS: list[Any] = [h for h in _SCRIPT["hooks"]() if h.library == "MIOPEN"]
EVENTS = {"KDB_OP", "KDB_OP_SET", "KDB_CONVOLUTION", "KDB_WHOLE"}
CONVOLUTIONS = {"KDB_CONVOLUTION"}

_LIBRARY = """
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
char *standin_base;          /* pointers are hashed as offsets from it */
int standin_varied, standin_result, standin_nested;
char *standin_made;          /* what the next function that makes an object makes */
static _Thread_local uint64_t hash;
uint64_t standin_hash(void) { return hash; }
static void begin(void) { hash = 1469598103934665603u; }
static void take(const void *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
}
static void take_pointer(const void *pointer) {
    intptr_t at = pointer ? (const char *)pointer - standin_base : -1;
    take(&at, sizeof at);
}
static int end(void) { return standin_varied ? (int)(hash % 5) * 3 : standin_result; }
"""
_GETTERS = (REPO / "tests" / "support" / "c" / "getters.c").read_text
# What a function does beside: objects are made, version 1 calls version 2, sizes are told.
_MADE = "    if (standin_made)\n        *{} = standin_made;\n"
_BESIDE = {
    "miopenFindSolutions": "    for (size_t i = 0; standin_made && i < 2; i++)\n"
    "        solutions[i] = standin_made + i;\n    if (standin_made)\n        *num_solutions = 2;\n",
    "miopenGetSolutionSolverId": "    if (standin_made)\n        *solver_id = 77;\n",
    "miopenBatchNormalizationForwardTraining": "    if (standin_nested)\n"
    "        return miopenBatchNormalizationForwardTraining_V2(handle, bn_mode, alpha, beta, x_desc, x, "
    "y_desc, y, bn_desc, bn_desc, bn_desc, bn_desc, bn_scale, bn_bias, exp_avg_factor, result_running_mean, "
    "result_running_variance, epsilon, result_save_mean, result_save_inv_variance);\n",
    "miopenConvolutionForwardGetWorkSpaceSize": "    *size = 4096;\n",
}


def name_of(parameter: str) -> str:
    """`const void *x` is x."""
    return re.findall(r"\w+", parameter)[-1]


def _plain(parameter: str) -> str:
    return re.sub(r"struct kdb_\w+", "void", parameter)


def library(getters: bool) -> str:
    """C of the stand-in."""
    declared = "".join(f"int {h.name}({', '.join(map(_plain, h.parameters))});\n" for h in HOOKS)
    parts = [_LIBRARY, declared]
    for hook in HOOKS:
        parts.append(f"int {hook.name}({', '.join(map(_plain, hook.parameters))}) {{\n    begin();\n")
        for p in hook.parameters:
            name = name_of(p)
            parts.append(
                f"    take_pointer({name});\n" if "*" in p else f"    take(&{name}, sizeof {name});\n"
            )
        made = re.search(r"OUT\((\w+)\)", hook.rest)
        parts.append(_MADE.format(made[1]) if made else "")
        parts.append(_BESIDE.get(hook.name, "") + "    return end();\n}\n")
    return "".join(parts) + (_GETTERS() if getters else "")


def program() -> str:
    """C that calls each function, each argument another, and prints what it got and what arrived; then all
    again: exit code 9 if that took memory."""
    parts = [
        "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n",
        "static unsigned long taken;\nvoid *__libc_malloc(size_t);\n",
        "void *malloc(size_t n) {\n    taken++;\n    return __libc_malloc(n);\n}\n",
        "extern char *standin_base;\nextern int standin_varied;\nuint64_t standin_hash(void);\n",
        "static char pool[64 * 4096];\n",
        *(f"int {h.name}({', '.join(map(_plain, h.parameters))});\n" for h in HOOKS),
        "static void all(bool say) {\n    int result;\n",
    ]
    for hook in HOOKS:
        arguments = ", ".join(_argument(i, p) for i, p in enumerate(hook.parameters))
        parts.append(f"    result = {hook.name}({arguments});\n")
        parts.append("    if (say)\n")
        parts.append(
            f'        printf("{hook.name} %d %llx\\n", result, (unsigned long long)standin_hash());\n'
        )
    parts.append("}\nint main(void) {\n    standin_base = pool;\n    standin_varied = 1;\n    all(true);\n")
    parts.append("    taken = 0;\n    all(false);\n    return taken == 0 ? 0 : 9;\n}\n")
    return "".join(parts)


def _argument(i: int, parameter: str) -> str:
    kind = parameter.rsplit(" ", 1)[0]
    if "*" in parameter:
        return f"(void *)(pool + {4096 * i + 8 * i})"
    if kind == "bool":
        return str(i % 2)
    if kind in ("float", "double"):
        return f"({kind}){i}.3125 / 3"
    small = kind in ("int", "unsigned", "int32_t", "uint32_t")  # some count what a pointer points to
    return str(1 + i % 3) if small else f"({kind})0x1234567890{i:02x}"


class Api:
    """The stand-in from Python: `api("miopenSetLRNDescriptor", lrn_desc=1)`; what is not named is 0."""

    _TYPES = {  # noqa: RUF012
        "pointer": ctypes.c_void_p,
        "int": ctypes.c_int,
        "long": ctypes.c_size_t,
        "float": ctypes.c_float,
        "double": ctypes.c_double,
        "bool": ctypes.c_bool,
    }

    def __init__(self, path: str) -> None:
        self.lib = ctypes.CDLL(path, ctypes.RTLD_LOCAL)
        self.hooks = {h.name: h for h in HOOKS}

    def set(self, name: str, value: int) -> None:
        """One of the library's variables."""
        kind = ctypes.c_void_p if name in ("standin_made", "standin_base") else ctypes.c_int
        kind.in_dll(self.lib, name).value = value

    def __call__(self, name: str, **named: Any) -> int:
        hook, call = self.hooks[name], getattr(self.lib, name)
        names = [name_of(p) for p in hook.parameters]
        if not set(named) <= set(names):
            raise TypeError(f"{name} has {names}, not {sorted(set(named) - set(names))}")
        call.argtypes = [self._TYPES[_SCRIPT["passed"](p.replace(" *", "* "))] for p in hook.parameters]
        return int(
            call(
                *(
                    named.get(n) if "*" in p else named.get(n, 0)
                    for n, p in zip(names, hook.parameters, strict=True)
                )
            )
        )

    def tensor(self, desc: int, type: int, *lens: int, strides: tuple[int, ...] = ()) -> int:
        """A descriptor of these lengths; returns `desc`."""
        ints = ctypes.c_int * len(lens)
        steps = ctypes.addressof(keep := ints(*strides)) if strides else None
        self("miopenSetTensorDescriptor", tensor_desc=desc, data_type=type, nb_dims=len(lens),
             dims_a=ctypes.addressof(ints_ := ints(*lens)), strides_a=steps)  # fmt: skip
        del ints_
        if strides:
            del keep
        return desc
