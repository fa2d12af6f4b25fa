"""Writes, out of the recorder's own lists, a library that hashes the arguments of each hooked function, and a
program that calls each and compares."""

from __future__ import annotations

import re
from pathlib import Path

LISTS = Path(__file__).resolve().parents[2] / "csrc" / "recorder"
_HOOK = re.compile(r"^KDB_HOOK\((\w+), (?:REQUIRED|OPTIONAL), (\w+), \((.*)\), (.+?)\)(?: /\*.*)?$", re.M)

_HEAD = """
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
struct kdb_dim3 { uint32_t x, y, z; };
static inline uint64_t hash(uint64_t h, const void *data, size_t bytes) {
    const unsigned char *p = data;
    while (bytes--)
        h = (h ^ *p++) * 0x100000001b3u;
    return h;
}
extern uint64_t forward_hash, forward_calls, forward_result;
"""
_DRIVER = """
static char zone[4096][16]; /* 1 KiB for each argument that is a pointer */
static unsigned wrong;
static void compare(const char *name, const char *how, uint64_t want, uint64_t calls, uint64_t result,
                    uint64_t got) {
    if (forward_hash == want && forward_calls == calls + 1 && got == result)
        return;
    printf("%s %s: arguments %d, calls %d, result %llx of %llx\\n", name, how, forward_hash == want,
           (int)(forward_calls - calls), (unsigned long long)got, (unsigned long long)result);
    wrong++;
}
"""


class Hook:
    """One entry of a list."""

    def __init__(self, library: str, name: str, params: str, result: str) -> None:
        self.library, self.name, self.result = library, name, result
        self.params = params
        pairs = (
            [] if params == "void" else [re.fullmatch(r"(.*?)(\w+)", p.strip()) for p in params.split(",")]
        )
        self.args = [(m[1].strip(), m[2]) for m in pairs if m]


def hooks(*files: str) -> list[Hook]:
    """The entries of some lists."""
    text = "".join((LISTS / f).read_text() for f in files)
    found = [Hook(*m) for m in _HOOK.findall(text)]
    assert len(found) == len(re.findall(r"^KDB_HOOK\(", text, re.M))
    return found


def library(functions: list[Hook]) -> str:
    """C of the stand-in: each notes a hash of what it got and returns `forward_result`."""
    parts = [_HEAD, "uint64_t forward_hash, forward_calls, forward_result;\n"]
    for n, f in enumerate(functions):
        steps = "".join(f"    h = hash(h, &{name}, sizeof {name});\n" for _, name in f.args)
        back = "" if f.result == "void" else f"    return ({f.result})forward_result;\n"
        parts.append(
            f"{f.result} {f.name}({f.params}) {{\n    uint64_t h = {n}u + 77;\n{steps}"
            f"    forward_hash = h;\n    forward_calls++;\n{back}}}\n"
        )
    return "".join(parts)


def _values(f: Hook, how: str) -> list[str]:
    values = []
    for k, (type, _) in enumerate(f.args):
        if how == "null":
            values.append("{0}" if type.startswith("struct") else "0")
        elif type.startswith("struct"):
            values.append(f"{{0x1{k}1u, 0x1{k}2u, 0x1{k}3u}}")
        elif type == "const char *":
            values.append(f'"text {k}"')
        elif type.endswith("*"):
            values.append(f"({type})zone[{64 * (k + 1)}]")
        elif "size_t" in type or "64" in type or "long long" in type:
            values.append(f"0x123456789abc{k:02x}u")
        else:
            values.append(f"{k + 1}")
    return values


def driver(functions: list[Hook]) -> str:
    """C of the program: each function refused (an unusual result), taken (0), and taken with NULLs."""
    parts = [
        _HEAD,
        *(f"{f.result} {f.name}({f.params});\n" for f in functions),
        _DRIVER,
        "int main(void) {\n",
    ]
    for n, f in enumerate(functions):
        for how, result in (("refused", 0x4D5A), ("taken", 0), ("null", 0)):
            sets = "".join(
                f"        {type} {name} = {value};\n        h = hash(h, &{name}, sizeof {name});\n"
                for (type, name), value in zip(f.args, _values(f, how), strict=True)
            )
            call = f"{f.name}({', '.join(name for _, name in f.args)})"
            got = f"{call};\n        got = want" if f.result == "void" else f"got = (uint64_t){call}"
            parts.append(
                f"    {{\n        uint64_t h = {n}u + 77, calls = forward_calls, got;\n"
                f"        uint64_t want = {result};\n{sets}"
                f"        forward_result = want;\n        memset(zone, 0, sizeof zone);\n        {got};\n"
                f'        compare("{f.name}", "{how}", h, calls, want, got);\n    }}\n'
            )
    parts.append(
        f'    printf("{len(functions)} functions, %u wrong\\n", wrong);\n    return wrong != 0;\n}}\n'
    )
    return "".join(parts)
