"""kdbtool.codeobject.compare on objects of a real compiler: what is the same code and what is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kdbtool.codeobject import parse
from kdbtool.codeobject.compare import SHARED, code_identity, digests
from kdbtool.codeobject.image import Image

# A device table, a variable, a function that is not inlined: all reached by distances.
HIP = """
#define G __attribute__((global))
#define D __attribute__((device))
D const int table[7] = {1, 2, 3, 5, 8, 13, 21};
D int counter;
EXTRA
D __attribute__((noinline)) int twist(int a) { return a * CONSTANT + table[a & 3]; }
extern "C" G void NAME(int *x) { x[0] = twist(x[1]) + counter; counter = table[x[2] & 3]; }
extern "C" G void other(int *x) { x[0] = twist(x[5]); }
"""
BASE = {"EXTRA": "", "CONSTANT": "3", "NAME": "first"}


@pytest.fixture
def compiled(run_in_root: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """`compiled(arch, cuid=, options=, **changes)`: the object of HIP with words replaced."""
    count = 0

    def build(arch: str, cuid: str = "1", options: str = "", **changes: str) -> Any:
        nonlocal count
        count += 1
        text = HIP
        for word, value in {**BASE, **changes}.items():
            text = text.replace(word, value)
        source, output = tmp_path / f"{count}.cpp", tmp_path / f"{count}.o"
        source.write_text(text)
        done = run_in_root(
            *"clang-21 -x hip -nogpuinc -nogpulib --cuda-device-only -O2 --no-gpu-bundle-output".split(),
            *("--offload-arch=" + arch, f"-cuid={cuid}", *options.split(), source, "-o", output),
            binds=(tmp_path,),
        )
        assert done.code == 0, done.err
        return parse(output.read_bytes())

    return build


@pytest.mark.parametrize("arch", ["gfx906", "gfx90a", "gfx1030", "gfx1100", "gfx1201"])
def test_cuid_and_layout_do_not_count_but_code_does(compiled: Callable[..., Any], arch: str) -> None:
    one = compiled(arch)
    again = compiled(arch, cuid="0123456789abcdef")
    assert one.elf != again.elf and b"__hip_cuid_" in again.elf
    assert code_identity(one) == code_identity(again)
    # The linker puts code elsewhere: no byte of a distance stays, and the code is the same.
    apart = compiled(arch, options="-Xoffload-linker -Ttext=0x40000")
    moved = {f.name: f.code for f in Image(apart.elf).functions}
    assert any(f.code != moved[f.name] for f in Image(one.elf).functions)
    assert code_identity(one) == code_identity(apart)

    for changes in (
        {"CONSTANT": "7"},  # an instruction of a function that a kernel calls
        {"NAME": "renamed"},
        {"EXTRA": "D int unused[3] __attribute__((used));"},
        {"21": "22"},  # a constant, the code as it was
    ):
        other = compiled(arch, **changes)
        assert code_identity(other) != code_identity(one), changes
    assert digests(compiled(arch, **{"21": "22"}))["first"] == digests(one)["first"]
    assert digests(compiled(arch, **{"21": "22"}))[SHARED] != digests(one)[SHARED]


def test_the_target_and_the_launch_metadata_count(compiled: Callable[..., Any]) -> None:
    assert code_identity(compiled("gfx906")) != code_identity(compiled("gfx906:xnack-"))
    assert code_identity(compiled("gfx1030")) != code_identity(compiled("gfx1031"))
    limited = compiled("gfx906", options="--gpu-max-threads-per-block=64")
    assert code_identity(compiled("gfx906")) != code_identity(limited)


FUNCTION = "D __attribute__((noinline)) int {0}(int a) {{ return a * a + a; }}\n"
KERNEL = 'extern "C" G void k_{0}(int *x) {{ {1} x[0] = {0}(x[1]); }}\n'


@pytest.mark.parametrize("arch", ["gfx906", "gfx1030", "gfx1201"])
def test_order_counts_only_where_code_may_reach_others_by_unknown_ways(
    compiled: Callable[..., Any], arch: str
) -> None:
    def pair(asm: str) -> tuple[str, str]:
        parts = [FUNCTION.format(name) + KERNEL.format(name, asm) for name in ("turn", "wind")]
        one, other = (compiled(arch, EXTRA="".join(order)) for order in (parts, parts[::-1]))
        assert _order(one) != _order(other)
        return code_identity(one), code_identity(other)

    one, other = pair("")
    assert one == other
    one, other = pair('asm volatile("s_getpc_b64 s[4:5]" ::: "s4", "s5");')
    assert one != other  # nobody knows what is added to it


def _order(found: Any) -> list[str]:
    return [f.name for f in sorted(Image(found.elf).functions, key=lambda f: f.address)]


def test_variables_that_change_places_count(compiled: Callable[..., Any]) -> None:
    one = compiled("gfx906", EXTRA="D int up = 1; D int down = 2;")
    other = compiled("gfx906", EXTRA="D int down = 1; D int up = 2;")
    held = [dict(Image(found.elf).data({})) for found in (one, other)]
    assert held[0][".data"] == held[1][".data"]
    assert code_identity(one) != code_identity(other)
