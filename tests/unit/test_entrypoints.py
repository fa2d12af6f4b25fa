"""Entry points of kernel sources: certain, possible, or said not to be known; never guessed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdbtool.miopen.entrypoints import Entries, EntryPoints
from kdbtool.miopen.sources import SourceSet


def entries(text: str, args: bytes = b"", name: str = "a.cl", **headers: str) -> EntryPoints:
    sources = SourceSet({name: text.encode()}, {f"{n}.h": t.encode() for n, t in headers.items()}, "here")
    found = Entries(sources).of(name, args)
    assert found is not None
    return found


# (what, text, options, certain, possible, complete)
OPENCL: list[tuple[str, str, bytes, str, str, bool]] = [
    ("plain", "__kernel void a(int x) {}", b"", "a", "a", True),
    ("without underscores", "kernel void a(int x) {}", b"", "a", "a", True),
    (
        "attribute before",
        "__attribute__((reqd_work_group_size(A, 1, 1))) __kernel void\na(int x) {}",
        b"",
        "a",
        "a",
        True,
    ),
    (
        "attribute between",
        "__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void a(int x) {}",
        b"",
        "a",
        "a",
        True,
    ),
    ("commented out", "// __kernel void a(int x) {}\n/* __kernel void b() {} */", b"", "", "", True),
    ("in a string", 'constant char* t = "__kernel void a(";', b"", "", "", True),
    ("continued line", "__kernel \\\nvoid a(int x) {}", b"", "a", "a", True),
    ("after a function", "void f(int x) { return; }\n__kernel void a(int x) {}", b"", "a", "a", True),
    (
        "#if of an option",
        "#if MLO_A == 1\n__kernel void a() {}\n#else\n__kernel void b() {}\n#endif",
        b" -DMLO_A=1",
        "a",
        "a",
        True,
    ),
    (
        "the other value",
        "#if MLO_A == 1\n__kernel void a() {}\n#else\n__kernel void b() {}\n#endif",
        b" -DMLO_A=2",
        "b",
        "b",
        True,
    ),
    ("an option not given is 0", "#if MLO_A\n__kernel void a() {}\n#endif", b"", "", "", True),
    ("of an unknown macro", "#if FOO\n__kernel void a() {}\n#endif", b"", "", "a", True),
    ("of a builtin macro", "#ifdef __AMDGCN__\n__kernel void a() {}\n#endif", b"", "", "a", True),
    ("unknown and false", "#if FOO && MLO_A\n__kernel void a() {}\n#endif", b" -DMLO_A=0", "", "", True),
    ("unknown or true", "#if FOO || MLO_A\n__kernel void a() {}\n#endif", b" -DMLO_A=1", "a", "a", True),
    (
        "behind an unknown branch",
        "#if FOO\n#elif MLO_A\n__kernel void a() {}\n#endif",
        b" -DMLO_A=1",
        "",
        "a",
        True,
    ),
    ("after a true branch", "#if 1\n#elif FOO\n__kernel void a() {}\n#endif", b"", "", "", True),
    (
        "nested in a false one",
        "#if 0\n#if 1\n__kernel void a() {}\n#endif\n#else\n__kernel void b() {}\n#endif",
        b"",
        "b",
        "b",
        True,
    ),
    (
        "defined in the text",
        "#ifndef MLO_B\n#define MLO_B 2\n#endif\n#if MLO_B * 2 == 4\n__kernel void a() {}\n#endif",
        b"",
        "a",
        "a",
        True,
    ),
    (
        "default under an unknown",
        "#if FOO\n#define MLO_B 1\n#endif\n#if MLO_B\n__kernel void a() {}\n#endif",
        b"",
        "",
        "a",
        True,
    ),
    (
        "as text, not as a value",
        "#define MLO_B 1 + 1\n#if MLO_B * 2 == 3\n__kernel void a() {}\n#endif",
        b"",
        "a",
        "a",
        True,
    ),
    ("name is an option", "__kernel void NAME(int x) {}", b" -DNAME=a", "a", "a", True),
    ("name is a macro", "#define NAME a\n__kernel void NAME(int x) {}", b"", "a", "a", True),
    (
        "name is an unknown macro",
        "#if FOO\n#define NAME a\n#endif\n__kernel void NAME(int x) {}",
        b"",
        "",
        "",
        False,
    ),
    ("pasted", "#define K(n) __kernel void a_##n(int x) {}\nK(x1)\nK(2)", b"", "a_2 a_x1", "a_2 a_x1", True),
    (
        "pasted twice over",
        "#define K(n) __kernel void a_##n##_z(int x) {}\n#define L(n) K(n)\nL(b)",
        b"",
        "a_b_z",
        "a_b_z",
        True,
    ),
    (
        "pasted under an unknown",
        "#define K(n) __kernel void a_##n() {}\n#if FOO\nK(x)\n#endif",
        b"",
        "",
        "a_x",
        True,
    ),
    (
        "macro defined under an unknown",
        "#if FOO\n#define K(n) __kernel void a_##n() {}\n#endif\nK(x)",
        b"",
        "",
        "",
        False,
    ),
    ("wrong number of arguments", "#define K(n) __kernel void a_##n() {}\nK(x, y)", b"", "", "", False),
    (
        "declaration across #if",
        "__kernel\n#if FOO\nvoid a(int x) {}\n#else\nvoid a(float x) {}\n#endif",
        b"",
        "",
        "a",
        True,
    ),
    ("unclosed", "#if 1\n__kernel void a(", b"", "a", "a", True),
    ("divided by nothing", "#if 1 / 0\n__kernel void a() {}\n#endif", b"", "", "a", True),
    ("no expression", "#if )(\n__kernel void a() {}\n#endif", b"", "", "a", True),
    ("#elif without #if", "#elif 1\n#endif\n__kernel void a() {}", b"", "a", "a", True),
    ("macro of itself", "#define MLO_A MLO_A\n#if MLO_A\n__kernel void a() {}\n#endif", b"", "", "a", True),
    ("kernels without end", "#define K K K __kernel\nK", b"", "", "", False),
]


@pytest.mark.parametrize(
    ("text", "args", "certain", "possible", "complete"), [c[1:] for c in OPENCL], ids=[c[0] for c in OPENCL]
)
def test_opencl(text: str, args: bytes, certain: str, possible: str, complete: bool) -> None:
    found = entries(text, args)
    assert found == EntryPoints(frozenset(certain.split()), frozenset(possible.split()), complete)


HIP: list[tuple[str, str, str, bool]] = [
    ("plain", 'extern "C" __global__ void a(int* x) {}', "a", True),
    ("bounds", 'extern "C" __global__ void __launch_bounds__(256, 2) a(int* x) {}', "a", True),
    ("bounds before void", 'extern "C" __global__\n__launch_bounds__(256) void a(int* x) {}', "a", True),
    ("mangled", "__global__ void a(int* x) {}", "", False),
    ("template", "template <typename T> __global__ void a(T* x) {}", "", False),
    (
        "declared and defined",
        'extern "C" __global__ void a(int);\nextern "C" __global__ void a(int) {}',
        "a",
        True,
    ),
    ("in a known header", '#include "k.h"\nDEFINE(a)', "a", True),
    ("in a header with a guard", '#include "g.h"\nDEFINE(a)', "a", True),
    ("in an unknown header", '#include "other.h"\nDEFINE(a)', "", True),
]
K = '#define DEFINE(n) extern "C" __global__ void n(int x) {}\n'


@pytest.mark.parametrize(("text", "certain", "complete"), [c[1:] for c in HIP], ids=[c[0] for c in HIP])
def test_hip(text: str, certain: str, complete: bool) -> None:
    found = entries(text, b"", "a.cpp", k=f"#pragma once\n{K}", g=f"#ifndef G_H\n#define G_H\n{K}#endif\n")
    assert found == EntryPoints(frozenset(certain.split()), frozenset(certain.split()), complete)


def test_what_a_header_defines_is_not_known() -> None:
    text = '#include "h.h"\n#if MLO_X\n__kernel void a() {}\n#endif'
    assert entries(text, b" -DMLO_X=1").certain == {"a"}
    found = entries(text, b" -DMLO_X=1", h="#undef MLO_X\n")
    assert (found.certain, found.possible) == (frozenset(), {"a"})


ASM: list[tuple[str, str, str, str, bool]] = [
    ("plain", ".text\na:\n s_endpgm\n.amdhsa_kernel a\n.end_amdhsa_kernel\n", "a", "a", True),
    ("under .if", ".if ROCM_METADATA_VERSION == 5\n.amdhsa_kernel a\n.endif\n", "", "a", True),
    ("after .if", ".if 1\n.endif\n.amdhsa_kernel a\n", "a", "a", True),
    ("in a macro", ".macro m name\n.amdhsa_kernel \\name\n.endm\n", "", "", False),
    ("commented out", "/*\n.amdhsa_kernel a\n*/\n", "", "", True),
    ("of version 2", ".amdgpu_hsa_kernel a\n", "", "a", True),
]


@pytest.mark.parametrize(
    ("text", "certain", "possible", "complete"), [c[1:] for c in ASM], ids=[c[0] for c in ASM]
)
def test_assembly(text: str, certain: str, possible: str, complete: bool) -> None:
    found = entries(text, b"", "a.s")
    assert found == EntryPoints(frozenset(certain.split()), frozenset(possible.split()), complete)


def test_a_source_that_is_not_there_and_one_of_no_language() -> None:
    sources = SourceSet({"a.mlir": b"x"}, {}, "here")
    assert Entries(sources).of("b.cl", b"") is None
    found = Entries(sources).of("a.mlir", b"")
    assert found is not None and not found.told


@given(
    st.lists(
        st.sampled_from(
            [
                "#if X\n",
                "#else\n",
                "#endif\n",
                "#define X ",
                "K(",
                ")",
                "__kernel ",
                "void ",
                "a",
                "{",
                "}",
                "##",
                ",",
                "#elif ",
                "(",
                "\\\n",
                "/*",
                "*/",
                '"',
                "#define K(n) ",
                "#undef X\n",
                "1",
                "\n",
                "&&",
                "\0",
            ]
        ),
        max_size=60,
    )
)
@settings(max_examples=300, deadline=None)
def test_any_text_is_taken(parts: list[str]) -> None:
    found = entries("".join(parts), b" -DX=1")
    assert found.certain <= found.possible
