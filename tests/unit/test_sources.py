"""Kernel sources out of libraries and folders, hostile ones included."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
from pathlib import Path

import pytest
from support.small_library import KERNELS, library

from kdbtool.errors import KdbtoolError
from kdbtool.miopen.embed import NotEmbeddable, embed
from kdbtool.miopen.sources import SourceSet, build_of_library, from_directory, from_library
from kdbtool.miopen.versions import resolve


@pytest.fixture(scope="session")
def cc() -> str:
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found is None:
        pytest.skip("no C compiler")
    return found


def refused(path: Path) -> str:
    with pytest.raises(KdbtoolError) as caught:
        from_library(path)
    line = caught.value.line()
    assert caught.value.exit_code == 2 and "\n" not in line and line.startswith(str(path))
    return line


def test_texts_come_out_under_their_real_names(cc: str, tmp_path: Path) -> None:
    sources = from_library(library(cc, tmp_path))
    # MIOpenPooling is a .cl in some releases and a .cpp in others: the text decides.
    assert sorted(sources.kernels) == ["MIOpenPooling.cl", "naive_conv.cpp"]
    assert sources.headers == {"stride_array.hpp": b"#pragma once\n"}
    assert sources.kernels["MIOpenPooling.cl"] == b"__kernel void g() {}\n"


def test_a_file_name_in_the_library_names_an_unknown_kernel(cc: str, tmp_path: Path) -> None:
    texts = {"MIOPEN_KERNEL_MYOWN_KERNEL": ".text\n"}
    assert "cannot tell the file name of MIOPEN_KERNEL_MYOWN_KERNEL" in refused(library(cc, tmp_path, texts))
    named = library(cc, tmp_path, texts, extra='const char n[] = "\\0MyOwn_kernel.s";')
    assert list(from_library(named).kernels) == ["MyOwn_kernel.s"]


def test_hashes_are_those_of_sha256sum(cc: str, tmp_path: Path) -> None:
    sources = from_library(library(cc, tmp_path))
    text, headers = sources.hash_of("naive_conv.cpp")
    assert text == hashlib.sha256(KERNELS["MIOPEN_KERNEL_NAIVE_CONV"].encode()).hexdigest()
    listing = f"{hashlib.sha256(b'#pragma once' + bytes([10])).hexdigest()}  stride_array.hpp\n"
    assert headers == hashlib.sha256(listing.encode()).hexdigest()
    assert sources.hash_of("MIOpenPooling.cl")[1] == hashlib.sha256(b"").hexdigest()


def test_headers_are_followed_through_headers_and_cycles() -> None:
    headers = {
        "a.hpp": b'#include "b.hpp"\n',
        "b.hpp": b'  #  include <dir/a.hpp>\n#include "absent.hpp"\n',
        "c.inc": b"",
        "d.hpp": b"// nobody\n",
    }
    kernels = {
        "k.cpp": b'#include "a.hpp"\n',
        "m.cpp": b"#include HEADER_NAME\n",
        "s.s": b'.include "c.inc"\n',
        "n.cl": b"int include;\n",
    }
    sources = SourceSet(kernels, headers, "x")
    assert sources.headers_of("k.cpp") == ["a.hpp", "b.hpp"]
    assert sources.headers_of("m.cpp") == sorted(headers)
    assert sources.headers_of("s.s") == ["c.inc"]
    assert sources.headers_of("n.cl") == []


def test_one_changed_header_changes_the_hash_of_its_kernels_alone() -> None:
    kernels = {"k.cpp": b'#include "a.hpp"\n', "n.cpp": b""}
    one, two = SourceSet(kernels, {"a.hpp": b"1"}, ""), SourceSet(kernels, {"a.hpp": b"2"}, "")
    assert one.hash_of("k.cpp") != two.hash_of("k.cpp")
    assert one.hash_of("n.cpp") == two.hash_of("n.cpp")
    assert one.set_hash != two.set_hash


def test_a_build_is_known_by_what_the_library_says_of_itself(cc: str, tmp_path: Path) -> None:
    build = build_of_library(library(cc, tmp_path))
    assert (build.rocm, build.version, build.epoch.name, build.distributor) == ("6.4", "3.4.0", "E4", None)
    assert build.kernels == {"naive_conv.cpp", "MIOpenPooling.cl"}


@pytest.mark.parametrize(
    ("banner", "words"),
    [("", "no MIOpen version in the library"), (", MIOpen version 1.0.0.", "unknown MIOpen version 1.0.0")],
)
def test_a_library_of_unknown_version_is_one_line(cc: str, tmp_path: Path, banner: str, words: str) -> None:
    with pytest.raises(KdbtoolError, match=words) as caught:
        resolve(str(library(cc, tmp_path, banner=banner)))
    assert "--miopen VERSION" in caught.value.line()


def test_a_library_without_kernel_symbols_is_refused(cc: str, tmp_path: Path) -> None:
    line = refused(library(cc, tmp_path, {}))
    assert "exports no MIOPEN_KERNEL_* symbol" in line and "--sources DIR" in line


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"#!/bin/sh\n" * 20, b"\x7fELF\x01\x01" + b"\0" * 90])
def test_what_is_no_elf_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "libMIOpen.so"
    path.write_bytes(data)
    assert "not an ELF shared library" in refused(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    assert "there is no such file" in refused(tmp_path / "none.so")
    assert "it is a folder" in refused(tmp_path)


def test_a_library_cut_anywhere_is_refused_in_one_line(cc: str, tmp_path: Path) -> None:
    whole = library(cc, tmp_path).read_bytes()
    path = tmp_path / "cut.so"
    for size in range(64, len(whole) - 1, len(whole) // 60):
        path.write_bytes(whole[:size])
        refused(path)


def test_a_library_with_any_byte_of_its_tables_changed_never_ends_in_a_traceback(
    cc: str, tmp_path: Path
) -> None:
    path = library(cc, tmp_path)
    whole = path.read_bytes()
    sections = struct.unpack_from("<Q", whole, 0x28)[0]
    spots = [*range(16, 64), *range(64, 64 + 56 * 4, 3), *range(sections, len(whole), 7)]
    for at in spots:
        for value in (0, 0x7F, 0xFF):
            path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
            try:
                from_library(path)
            except KdbtoolError as error:
                assert error.exit_code == 2 and "\n" not in error.line()


def test_section_headers_stripped_away_say_what_to_do(cc: str, tmp_path: Path) -> None:
    path = library(cc, tmp_path)
    data = bytearray(path.read_bytes())
    data[0x28:0x30] = bytes(8)  # e_shoff
    data[0x3C:0x40] = bytes(4)  # e_shnum, e_shstrndx
    path.write_bytes(data)
    line = refused(path)
    assert "no dynamic symbol table" in line and "--sources DIR" in line


def test_a_size_that_disagrees_with_its_symbol_is_refused(cc: str, tmp_path: Path) -> None:
    lie = (
        'const char MIOPEN_KERNEL_NAIVE_CONV[] = "x"; const size_t MIOPEN_KERNEL_NAIVE_CONV_SIZE = 1UL << 40;'
    )
    assert "MIOPEN_KERNEL_NAIVE_CONV_SIZE says" in refused(library(cc, tmp_path, {}, extra=lie))


def test_a_header_whose_name_is_no_source_name_is_refused(cc: str, tmp_path: Path) -> None:
    """`.object` is what the compiler writes: the name became a file in its folder."""
    texts = {
        "MIOPEN_KERNEL_NAIVE_CONV": '#include ".object.hpp"\n__global__ void k();\n',
        "MIOPEN_KERNEL_YOBJECT_INCLUDE": "x",
    }
    path = library(cc, tmp_path, texts)
    path.write_bytes(path.read_bytes().replace(b"KERNEL_YOBJECT", b"KERNEL_.OBJECT"))
    assert "cannot tell the file name" in refused(path)


def test_symbols_that_overlap_cannot_promise_any_amount(
    cc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdbtool.miopen.sources.MAX_ALL", 100)
    path = library(cc, tmp_path, {f"MIOPEN_KERNEL_K{n}": "x" * 60 for n in range(2)})
    assert "more than 100 bytes of kernel sources" in refused(path)


def test_debians_library_has_133_kernels_and_171_headers(root: Path) -> None:
    path = root / "usr/lib/x86_64-linux-gnu/libMIOpen.so.1"
    sources = from_library(path)
    assert (len(sources.kernels), len(sources.headers)) == (133, 171)
    assert sources.kernels.keys() == resolve("6.4.3").kernels
    assert sources.headers_of("naive_conv.cpp") == [
        "miopen_cstdint.hpp",
        "miopen_limits.hpp",
        "stride_array.hpp",
    ]
    assert all(b"\0" not in text for text in (*sources.kernels.values(), *sources.headers.values()))
    build = resolve(str(path))
    assert (build.rocm, build.version, build.distributor) == ("6.4.3", "3.4.0", "Debian")


def test_a_flat_folder_is_a_source_set(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "k.s").write_text('.text\n.include "k.inc"\n')
    (tmp_path / "sub" / "k.inc").write_text("\n")
    (tmp_path / "README").write_text("no kernel")
    sources = from_directory(tmp_path)
    assert sources.kernels == {"k.s": b".text\n\n\n"} and list(sources.headers) == ["k.inc"]


FILES = {
    "a.inc": b"A\n",
    "deep.inc": b'  .INCLUDE "a.inc"\n',
    "loop.inc": b'.include "loop.inc"\n',
    "a.h": b"H",
    "bomb.h": b'#include "bomb2.h"\n' * 64,
    "bomb2.h": b"x" * 100_000,
}


@pytest.mark.parametrize(
    ("name", "text", "want"),
    [
        ("k.s", b'\n\n.include "deep.inc"\nB', b"A\n\n\nB"),
        ("k.s", b"", b""),
        ("k.cl", b'#include "x/a.h"\n#include <a.h>\n', b"H\nH\n"),
        ("k.cl", b'# include "a.h"', b'# include "a.h"'),  # addkernels knows the plain spelling only
        ("k.cl", b'//inliner-include-optional\n#include "none.h"\nB', b"B"),
        ("k.cpp", b'\n#include "a.h"\r\n', b'#include "a.h"\r\n'),
        ("a.inc", b'\n.include "a.inc"', b'\n.include "a.inc"'),
    ],
)
def test_a_file_is_embedded_as_miopens_build_does(name: str, text: bytes, want: bytes) -> None:
    assert embed(name, text, FILES) == want


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("k.s", b'.include "none.inc"'),
        ("k.s", b".include <a.inc>"),
        ("k.cl", b"#include"),
        ("k.cl", b'#include "a.h'),
        ("k.s", b'.include "loop.inc"'),
        ("k.cl", b'#include "bomb.h"\n' * 64),
    ],
)
def test_a_file_that_cannot_be_embedded_stays_as_it_is(name: str, text: bytes, tmp_path: Path) -> None:
    with pytest.raises(NotEmbeddable):
        embed(name, text, FILES)
    for other, data in {**FILES, name: text}.items():
        (tmp_path / other).write_bytes(data)
    assert from_directory(tmp_path).kernels[name] == text


def test_of_a_miopen_tree_only_the_kernels_are_read(tmp_path: Path) -> None:
    for name in ("src/kernels/a.cl", "src/composable_kernel/x/b.hpp", "src/handle.cpp", "test/c.cpp"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    sources = from_directory(tmp_path)
    assert (list(sources.kernels), list(sources.headers)) == (["a.cl"], ["b.hpp"])


def test_in_a_tree_the_copy_in_src_kernels_wins(tmp_path: Path) -> None:
    for name in ("src/kernels/b.hpp", "src/kernels/a.cl", "src/composable_kernel/x/b.hpp"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    assert from_directory(tmp_path).headers == {"b.hpp": b"src/kernels/b.hpp"}
    (tmp_path / "src/kernels/sub").mkdir()
    (tmp_path / "src/kernels/sub/b.hpp").write_text("third")
    with pytest.raises(KdbtoolError, match=r"two different files named b\.hpp"):
        from_directory(tmp_path)


def test_links_pipes_and_bad_names_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "secret.cpp"
    outside.write_text("secret")
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "k.cpp").write_text("")
    (folder / "link.cpp").symlink_to(outside)
    (folder / "dangling.cpp").symlink_to(tmp_path / "nowhere")
    (folder / "up").symlink_to(tmp_path)
    (folder / "-rf.cpp").write_text("")
    (folder / ".hidden.cpp").write_text("")
    (folder / "a b.cpp").write_text("")
    os.mkfifo(folder / "pipe.cpp")
    assert list(from_directory(folder).kernels) == ["k.cpp"]


def test_two_different_files_of_one_name_are_refused_equal_ones_not(tmp_path: Path) -> None:
    for name, text in (("a/k.cpp", "1"), ("b/k.cpp", "1")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    assert list(from_directory(tmp_path).kernels) == ["k.cpp"]
    (tmp_path / "b/k.cpp").write_text("2")
    with pytest.raises(KdbtoolError, match=r"two different files named k\.cpp.*a/k\.cpp and b/k\.cpp"):
        from_directory(tmp_path)


def test_a_folder_without_kernels_and_a_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(KdbtoolError, match="no kernel source in the folder"):
        from_directory(tmp_path)
    (tmp_path / "x").write_text("")
    with pytest.raises(KdbtoolError, match="not a folder"):
        from_directory(tmp_path / "x")
