"""Rebuild with the root's clang, held against the real MIOpen: its commands, objects, and loading of ours."""

from __future__ import annotations

import io
import json
import lzma
import re
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from kdbtool.codeobject import parse
from kdbtool.codeobject.compare import code_identity
from kdbtool.kdb.blob import unpack
from kdbtool.kdb.reader import Row, open_kdb
from kdbtool.manifest import Key, Manifest, write_manifest
from kdbtool.manifest.model import Note
from kdbtool.manifest.target import hashes_of
from kdbtool.miopen.sources import from_library
from kdbtool.root import Root

SUPPORT = Path(__file__).resolve().parent.parent / "support"
CONV = "MIOpenDriver conv -n 2 -c 8 -H 16 -W 16 -k 8 -y 3 -x 3 -p 1 -q 1 -t 1 -V 0 -i 1 -F 1"
NAIVE = f"MIOPEN_DEBUG_CONV_IMPLICIT_GEMM=0 MIOPEN_DEBUG_CONV_GEMM=0 {CONV}"
# What runs on which device: on gfx906 the static CK kernels do not link with LLVM 21.
RUNS = {
    "gfx1030:36": f"{CONV} && {NAIVE}",
    "gfx906:60": "MIOpenDriver glu -V 0 && MIOpenDriver softmax -n 2 -V 0",
}
E4 = (
    " -DMIOPEN_USE_FP16=0 -DMIOPEN_USE_FP16x4=0 -DMIOPEN_USE_FP16x8=0 -DMIOPEN_USE_FP32=1 -DMIOPEN_USE_INT8=0"
    " -DMIOPEN_USE_BFP16=0 -DMIOPEN_USE_INT32=0 -DMIOPEN_USE_RNE_BFLOAT16=1"
    " -DMIOPEN_FP8_IEEE_EXPONENT_BIAS=0 -DMIOPEN_FP8_CLIPPING=1"
)


@dataclass(frozen=True)
class RealRun:
    """What the real MIOpen did: its compilers' arguments, the kernel database it wrote."""

    device: str
    commands: list[list[str]]
    database: Path

    @property
    def arch(self) -> str:
        """gfx1030"""
        return self.device.partition(":")[0]


@pytest.fixture(params=sorted(RUNS))
def real(request: pytest.FixtureRequest, record: Callable[..., Any], tmp_path: Path) -> RealRun:
    """A few problems on a simulated device, everything compiled by MIOpen itself."""
    device = request.param
    log, cache = tmp_path / "argv", tmp_path / "ukdb"
    script = tmp_path / "log-compilers.sh"
    shutil.copy(SUPPORT / "log-compilers.sh", script)
    done = record(tmp_path / "traces", "sh", script, log, cache, "sh", "-c", RUNS[device], arch=device)
    assert done.code == 0, done.err
    commands = [block.splitlines() for block in log.read_text().split("\n\n") if block.strip()]
    (database,) = cache.glob("*.ukdb")
    return RealRun(device, commands, database)


def sections(code: bytes) -> dict[str, bytes]:
    """Code, constants, descriptors and metadata of an object, bare or bundled.

    The distance from a descriptor to its code is left out: the symbol __hip_cuid_... of their objects, which
    holds nothing, moves it.
    """
    elf = ELFFile(io.BytesIO(code[code.find(b"\x7fELF") :]))
    found = {
        s.name: bytearray(s.data()) for s in elf.iter_sections() if s.name in (".text", ".rodata", ".note")
    }
    rodata = elf.get_section_by_name(".rodata")
    for symbol in elf.get_section_by_name(".dynsym").iter_symbols():
        if symbol.name.endswith(".kd"):
            start = symbol["st_value"] - rodata["sh_addr"] + 16
            found[".rodata"][start : start + 8] = bytes(8)
    return {name: bytes(data) for name, data in found.items()}


def rows_of(path: Path) -> dict[tuple[bytes, bytes], bytes]:
    with open_kdb(path) as database:
        return {(row.name, row.args): _object(row) for row in database}


def _object(row: Row) -> bytes:
    code, findings = unpack(row.blob(), row.hash, row.uncompressed_size)
    assert code is not None and not findings
    return code


def test_commands_and_code_are_those_of_the_real_miopen(
    real: RealRun, opened_root: Root, kdbtool: Callable[..., Any], tmp_path: Path
) -> None:
    manifest, output = tmp_path / "m.kdbmanifest", tmp_path / "out.kdb"
    done = kdbtool("manifest", real.database, "--miopen", opened_root.miopen, "-o", manifest)
    assert done.code == 0, done.err
    done = kdbtool(
        "rebuild", manifest, "-o", output, "--root", opened_root.path, "--cache", tmp_path / "cache"
    )
    assert done.code == 0, done.err + done.out
    theirs, ours = rows_of(real.database), rows_of(output)
    assert ours.keys() == theirs.keys() and ours
    for key, code in theirs.items():
        if key[0].endswith(b".cl.o"):
            assert ours[key] == code, key
        assert sections(ours[key]) == sections(code), key
        assert code_identity(parse(ours[key])) == code_identity(parse(code)), key
    _same_commands(real, manifest)


def _same_commands(real: RealRun, manifest: Path) -> None:
    """The arguments that a plan gives to clang, but for what recipes/offline.toml names as ours."""
    from kdbtool import targets
    from kdbtool.manifest import read_manifest
    from kdbtool.miopen.keys import language
    from kdbtool.rebuild.options import accept
    from kdbtool.rebuild.recipe import for_release

    recipe = for_release("6.4.3")
    wanted = set()
    for variant in read_manifest(manifest).variants():
        assert variant.source
        lang = language(variant.source)
        assert lang
        target = targets.load(real.arch).build_target(lang)
        for key in variant.spellings:
            words = recipe.arguments(
                lang, accept(key.args, key.arch), target, 21, source=variant.source, output="OUT"
            )
            wanted.add(tuple(sorted(set(words) - {"-fuse-cuid=none", "-I.", "-o", "OUT"})))
    seen = set()
    for command in real.commands:
        text = " ".join(command).replace("-isystem /usr/include ", "")
        words = re.sub(r"-o \S+$", "", text).split()
        if "-S" not in words and "/dev/null" not in text:  # not a probe of the compiler
            seen.add(tuple(sorted(set(words) - {"-I."})))
    assert seen <= wanted
    assert {w for words in seen for w in words} == {w for words in wanted for w in words}


def _real_manifest(path: Path, shared: Path, library: Path) -> list[Key]:
    """Few keys of each kind that 6.4.3 asked for, gfx1030 and gfx906."""
    keys = []
    for arch in ("gfx1030", "gfx906"):
        keys += [Key(b"naive_conv.cpp.o", f"{E4 * n} -mcpu={arch}".encode(), arch) for n in (1, 2)]
    taken: dict[bytes, int] = {}
    with lzma.open(shared / "data" / "keys.gfx1030-sample.tsv.xz") as file:
        for line in file:
            name, args = line.rstrip(b"\n").split(b"\t", 1)
            wanted = name in (
                b"MIOpenConvDirUni.cl.o",
                b"MIOpenIm2d2Col.cl.o",
                b"static_kernel_gridwise_convolution_implicit_gemm_v4r4_nchw_kcyx_nkhw.cpp.o",
            )
            if wanted and taken.setdefault(name, 0) < 1:
                taken[name] += 1
                keys.append(Key(name, args, "gfx1030"))
                if name.endswith(b".cl.o"):
                    keys.append(Key(name, args.replace(b"gfx1030", b"gfx906"), "gfx906"))
    assert len(taken) == 3
    sources = from_library(library)
    manifest = Manifest(
        miopen="6.4.3",
        sources=sources.set_hash,
        keys={key: Note() for key in keys},
        hashes=hashes_of(sources, keys),
    )
    path.write_bytes(write_manifest(manifest))
    return keys


def test_two_archs_same_bytes_whatever_folder_and_workers(
    shared: Path, opened_root: Root, kdbtool: Callable[..., Any], tmp_path: Path
) -> None:
    manifest = tmp_path / "m.kdbmanifest"
    keys = _real_manifest(manifest, shared, opened_root.miopen)
    found = []
    for folder, jobs in ((tmp_path / "one", 1), (tmp_path / "another folder", 2)):
        done = kdbtool(
            *("rebuild", manifest, "-o", folder, "--root", opened_root.path, "-j", jobs, "--json"),
            *("--cache", folder / "cache"),
            env={"TMPDIR": str(tmp_path), "HOME": "/nonexistent"},
        )
        assert done.code == 0, done.err
        report = json.loads(done.out)
        assert report["reused"] == 0
        assert {d["arch"]: (d["rows"], d["objects"]) for d in report["databases"]} == {
            "gfx1030": (5, 4),
            "gfx906": (4, 3),
        }
        found.append({a: (folder / f"{a}.kdb").read_bytes() for a in ("gfx1030", "gfx906")})
    assert found[0] == found[1]
    for arch in ("gfx1030", "gfx906"):
        rows = rows_of(tmp_path / "one" / f"{arch}.kdb")
        assert set(rows) == {(key.name, key.args) for key in keys if key.arch == arch}
        for code in rows.values():
            assert str(tmp_path).encode() not in code and b"/mnt" not in code
            assert not re.search(rb"__hip_cuid_[0-9a-f]", code)  # a hash of path and options


def test_defines_once_or_twice_are_one_object(
    opened_root: Root, kdbtool: Callable[..., Any], tmp_path: Path
) -> None:
    """The claim on which one compilation serves both spellings, put to the compiler itself."""
    sources = from_library(opened_root.miopen)
    objects = []
    for number, args in enumerate((f"{E4} -mcpu=gfx1030", f"{E4} -DX=1{E4} -mcpu=gfx1030")):
        keys = [Key(b"MIOpenCol2Im2d.cl.o", f" -DMIOPEN_USE_64BIT_INDEX=0{args}".encode(), "gfx1030")]
        keys.append(Key(b"naive_conv.cpp.o", args.encode(), "gfx1030"))
        manifest = Manifest(miopen="6.4.3", keys={k: Note() for k in keys}, hashes=hashes_of(sources, keys))
        path, output = tmp_path / f"{number}.kdbmanifest", tmp_path / f"{number}.kdb"
        path.write_bytes(write_manifest(manifest))
        done = kdbtool(
            "rebuild", path, "-o", output, "--root", opened_root.path, "--cache", tmp_path / "cache"
        )
        assert done.code == 0, done.err
        objects.append([code for _, code in sorted(rows_of(output).items())])
    assert objects[0] == objects[1]


def test_assembly_with_include_and_symbols(
    opened_root: Root, kdbtool: Callable[..., Any], tmp_path: Path
) -> None:
    options = {
        "gfx1030": " -Wa,-defsym,BONUS=1 -mcumode -mwavefrontsize64 -mcpu=gfx1030",
        "gfx906": " -Wa,-defsym,BONUS=1 -mcpu=gfx906",
    }
    keys = [Key(b"answer.s.o", args.encode(), arch) for arch, args in options.items()]
    keys.append(Key(b"answer.s.o", b" -mcumode -mwavefrontsize64 -mcpu=gfx1030", "gfx1030"))
    path = tmp_path / "m.kdbmanifest"
    path.write_bytes(write_manifest(Manifest(miopen="6.4.3", keys={k: Note() for k in keys})))
    arguments = (
        "rebuild",
        path,
        "-o",
        tmp_path,
        "--root",
        opened_root.path,
        "--sources",
        SUPPORT / "kernels",
    )
    more = ("--cache", tmp_path / "cache", "--allow-unknown", "--json")
    done = kdbtool(*arguments, *more)
    assert done.code == 1, done.err
    report = json.loads(done.out)
    assert report["not_built"] == {"compile-failed": 1}
    assert "BONUS must be defined" in report["failures"][0]["detail"]
    assert {d["arch"]: d["rows"] for d in report["databases"]} == {"gfx1030": 1, "gfx906": 1}
    for arch in options:
        ((_, code),) = rows_of(tmp_path / f"{arch}.kdb").items()
        # v_mov_b32 v1, 42: the constant is inlined as operand 128 + 42
        assert (0x7E020200 | 128 + 42).to_bytes(4, "little") in sections(code)[".text"]


def test_miopen_loads_what_was_rebuilt_and_compiles_nothing(
    real: RealRun,
    opened_root: Root,
    kdbtool: Callable[..., Any],
    record: Callable[..., Any],
    tmp_path: Path,
) -> None:
    manifest, system = tmp_path / "m.kdbmanifest", tmp_path / "system"
    assert kdbtool("manifest", real.database, "--miopen", opened_root.miopen, "-o", manifest).code == 0
    done = kdbtool(
        "rebuild", manifest, "-o", system, "--root", opened_root.path, "--cache", tmp_path / "cache"
    )
    assert done.code == 0, done.err
    log = tmp_path / "second"
    done = record(
        *(tmp_path / "second-traces", "sh", tmp_path / "log-compilers.sh", log, tmp_path / "empty"),
        *("sh", "-c", RUNS[real.device]),
        arch=real.device,
        env={"MIOPEN_SYSTEM_DB_PATH": str(system), "MIOPEN_LOG_LEVEL": "6"},
    )
    assert done.code == 0, done.err
    assert not log.exists()  # no compiler was started
    assert "Successfully loaded binary" in done.err
    assert not re.search(r"Warning.*(?:database|kern_db)", done.err)
    with sqlite3.connect(f"file:{system / (real.arch + '.kdb')}?mode=ro", uri=True) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("delete",)
