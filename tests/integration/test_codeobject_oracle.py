"""kdbtool.codeobject against llvm-readobj and llvm-objdump, over every real object at hand.

The objects: AMD's gfx942 database, what the real MIOpen compiled just now, and a kernel file of the tests'
own for every architecture and wave size.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kdbtool import targets
from kdbtool.codeobject import CodeObject, parse
from kdbtool.codeobject.compare import kernels
from kdbtool.codeobject.descriptor import directives, version_of
from kdbtool.kdb.reader import open_kdb

SUPPORT = Path(__file__).resolve().parent.parent / "support"
LLVM = "/usr/lib/llvm-21/bin"
RUN = "MIOpenDriver glu -V 0 && MIOpenDriver softmax -n 2 -V 0"
# What objdump prints and `directives` leaves out, as its docstring says.
LEFT_OUT = {
    "reserve_vcc",
    "reserve_flat_scratch",
    "reserve_xnack_mask",
    "enable_private_segment",
    "system_sgpr_private_segment_wavefront_offset",
    "user_sgpr_private_segment_buffer",
    "user_sgpr_flat_scratch_init",
    "user_sgpr_kernarg_preload_length",
    "user_sgpr_kernarg_preload_offset",
}


def test_every_real_object_reads_as_llvm_reads_it(
    shared: Path, record: Callable[..., Any], run_in_root: Callable[..., Any], tmp_path: Path
) -> None:
    raw = _objects(shared / "data" / "gfx942.kdb")
    assert len(raw) == 321
    own = _miopen(record, tmp_path)
    assert {data[:4] for data in own} == {b"\x7fELF", b"__CL"}
    raw += own + _compiled(run_in_root, tmp_path)
    objects = list({parse(data).elf: parse(data) for data in raw}.values())
    machs = Counter(o.mach for o in objects)
    assert set(machs) >= set(targets.known()) and machs["gfx942"] >= 321

    folder = tmp_path / "elf"
    folder.mkdir()
    for number, found in enumerate(objects):
        (folder / f"{number:04}.{found.mach}").write_bytes(found.elf)
    said = _readobj(run_in_root, folder)
    assert len(said) == len(objects)
    for found, document in zip(objects, said, strict=True):
        _same_header(found, document)
        _same_symbols(found, document)
        _same_metadata(found, document)
    assert _same_descriptors(run_in_root, folder, objects, said) >= 400


def _objects(path: Path) -> list[bytes]:
    with open_kdb(path) as reader:
        return [row.object() for row in reader]


def _miopen(record: Callable[..., Any], folder: Path) -> list[bytes]:
    """Objects that the real MIOpen compiles: a bare ELF of a `.cl`, a bundle of a `.cpp`."""
    cache = folder / "ukdb"
    shutil.copy(SUPPORT / "log-compilers.sh", folder)
    script, log = folder / "log-compilers.sh", folder / "argv"
    done = record(folder / "traces", "sh", script, log, cache, "sh", "-c", RUN, arch="gfx906:60")
    assert done.code == 0, done.err
    (database,) = cache.glob("*.ukdb")
    return _objects(database)


def _compiled(run_in_root: Callable[..., Any], folder: Path) -> list[bytes]:
    """The tests' own kernels for every known architecture, both wave sizes, code object versions 4 to 6."""
    work = folder / "own"
    work.mkdir()
    shutil.copy(SUPPORT / "code_objects.cl", work / "k.cl")
    lines = []
    for arch in targets.known():
        waves = ("", "-mwavefrontsize64") if targets.load(arch).wave_size == 32 else ("",)
        lines += [f"-mcpu={arch} {wave} -o {arch}{wave}" for wave in waves]
    lines += [f"-mcpu=gfx906:xnack- -mcode-object-version={v} -o v{v}" for v in (4, 5, 6)]
    common = "-target amdgcn-amd-amdhsa -x cl -cl-std=CL2.0 -w -mllvm -amdgpu-internalize-symbols k.cl"
    script = "".join(f"clang-21 -O{n % 3 + 1} {line} {common}\n" for n, line in enumerate(lines))
    done = run_in_root("sh", "-e", "-c", f"cd {work}\n{script}", binds=(work,))
    assert done.code == 0, done.err
    return [path.read_bytes() for path in sorted(work.iterdir()) if path.name != "k.cl"]


def _readobj(run_in_root: Callable[..., Any], folder: Path) -> list[dict[str, Any]]:
    command = f"cd {folder} && {LLVM}/llvm-readobj --elf-output-style=JSON -h -S --notes --dyn-symbols *"
    done = run_in_root("sh", "-c", command, binds=(folder,))
    assert done.code == 0, done.err
    documents: list[dict[str, Any]] = json.loads(done.out)
    return documents


def _same_header(found: CodeObject, document: dict[str, Any]) -> None:
    head = document["ElfHeader"]
    assert head["Ident"]["OS/ABI"]["Value"] == found.osabi and head["Machine"]["Value"] == found.machine
    assert head["Ident"]["ABIVersion"] == found.abi_version and head["Flags"]["Value"] == found.flags
    names = {flag["Name"] for flag in head["Flags"]["Flags"]}
    assert f"EF_AMDGPU_MACH_AMDGCN_{str(found.mach).upper().replace('-', '_')}" in names
    for feature, state in (("XNACK", found.xnack), ("SRAMECC", found.sramecc)):
        assert (f"EF_AMDGPU_FEATURE_{feature}_{state.upper()}_V4" in names) == (state != "unsupported")
        assert sum(name.startswith(f"EF_AMDGPU_FEATURE_{feature}") for name in names) == (
            state != "unsupported"
        )


def _symbols(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {s["Symbol"]["Name"]["Name"]: s["Symbol"] for s in document["DynamicSymbols"]}


def _same_symbols(found: CodeObject, document: dict[str, Any]) -> None:
    symbols = _symbols(document)
    assert found.kernels == tuple(sorted(n.removesuffix(".kd") for n in symbols if n.endswith(".kd")))
    taken = kernels(found)
    for name in found.kernels:
        size = symbols[name]["Size"]
        assert taken[name].code_bytes == size or size == 0, name


def _same_metadata(found: CodeObject, document: dict[str, Any]) -> None:
    (note,) = [
        n for s in document["NoteSections"] for n in s["NoteSection"]["Notes"] if n["Owner"] == "AMDGPU"
    ]
    said = _yaml(note["AMDGPU Metadata"])
    assert said == found.metadata
    assert said.get("amdhsa.target", "").removeprefix("amdgcn-amd-amdhsa--") == (found.target or "")
    assert len(said["amdhsa.kernels"]) == len(found.metadata_kernels)
    for row, kernel in zip(said["amdhsa.kernels"], found.metadata_kernels, strict=True):
        fields = {
            ".name": kernel.name,
            ".symbol": kernel.symbol,
            ".vgpr_count": kernel.vgpr,
            ".sgpr_count": kernel.sgpr,
            ".agpr_count": kernel.agpr,
            ".vgpr_spill_count": kernel.vgpr_spills,
            ".sgpr_spill_count": kernel.sgpr_spills,
            ".group_segment_fixed_size": kernel.lds,
            ".private_segment_fixed_size": kernel.scratch,
            ".kernarg_segment_size": kernel.kernarg_size,
            ".kernarg_segment_align": kernel.kernarg_align,
            ".wavefront_size": kernel.wavefront_size,
            ".max_flat_workgroup_size": kernel.max_flat_workgroup_size,
            ".reqd_workgroup_size": list(kernel.reqd_workgroup_size) if kernel.reqd_workgroup_size else None,
            ".uses_dynamic_stack": kernel.uses_dynamic_stack,
        }
        assert {key: row.get(key) for key in fields} == fields
        arguments = [
            (a[".offset"], a[".size"], a[".value_kind"], a.get(".name", ""), a.get(".type_name", ""),
             a.get(".address_space", ""))
            for a in row.get(".args", [])
        ]  # fmt: skip
        ours = [(a.offset, a.size, a.kind, a.name, a.type_name, a.address_space) for a in kernel.args]
        assert arguments == ours


def _same_descriptors(
    run_in_root: Callable[..., Any], folder: Path, objects: list[CodeObject], said: list[dict[str, Any]]
) -> int:
    """Every directive that objdump prints, and how many descriptors it printed."""
    for path, found, document in zip(sorted(folder.iterdir()), objects, said, strict=True):
        if (version_of(found.mach) or (0,))[0] >= 10:
            path.write_bytes(_without_sgprs(found, document))
    # A process for each: it takes the first file's architecture for all.
    command = f"cd {folder}; for f in *; do {LLVM}/llvm-objdump -D -j .rodata $f || exit; done"
    done = run_in_root("sh", "-c", command, binds=(folder,))
    assert done.code == 0, done.err
    blocks = re.split(r"^(\d{4})\.\S+:\s+file format", done.out, flags=re.MULTILINE)[1:]
    seen = 0
    for number, text in zip(blocks[::2], blocks[1::2], strict=True):
        found = objects[int(number)]
        printed: dict[str, dict[str, int]] = {}
        for name, body in re.findall(
            r"^\.amdhsa_kernel (\S+)\n(.*?)^\.end_amdhsa_kernel", text, re.DOTALL | re.MULTILINE
        ):
            pairs = re.findall(r"^\s+\.amdhsa_(\w+) (\d+)$", body, re.MULTILINE)
            printed[name] = {key: int(value) for key, value in pairs if key not in LEFT_OUT}
        assert printed.keys() == found.descriptors.keys()
        for name, wanted in printed.items():
            ours = directives(found.descriptors[name], found.mach)
            if (version_of(found.mach) or (0,))[0] >= 10:
                wanted.pop("next_free_sgpr")  # the same for every wave, so not in the descriptor
            if found.code_object_version == 4:
                ours.pop("uses_dynamic_stack")  # since version 5
            assert ours == wanted, (found.mach, name)
        seen += len(printed)
    return seen


def _without_sgprs(found: CodeObject, document: dict[str, Any]) -> bytes:
    """LLVM 21 writes a count of SGPRs that gfx10 has no use for, and its own objdump then decodes nothing."""
    data = bytearray(found.elf)
    (rodata,) = [s["Section"] for s in document["Sections"] if s["Section"]["Name"]["Name"] == ".rodata"]
    for name, symbol in _symbols(document).items():
        if name.endswith(".kd"):
            at = symbol["Value"] - rodata["Address"] + rodata["Offset"] + 48
            word = int.from_bytes(data[at : at + 4], "little") & ~0x3C0
            data[at : at + 4] = word.to_bytes(4, "little")
    return bytes(data)


def _yaml(text: str) -> Any:
    """The small YAML that llvm-readobj prints: maps, lists, one scalar a line."""
    lines = [line for line in text.splitlines() if line not in ("---", "...")]
    flat = [line for line in lines if line.strip()]
    value, end = _block(flat, 0, _indent(flat[0]))
    assert end == len(flat)
    return value


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _block(lines: list[str], at: int, indent: int) -> tuple[Any, int]:
    if lines[at].lstrip().startswith("- "):
        items = []
        while at < len(lines) and _indent(lines[at]) == indent and lines[at].lstrip().startswith("- "):
            rest = lines[at].lstrip()[2:]
            if re.match(r"\S+:(\s|$)", rest):
                lines[at] = " " * (indent + 2) + rest
                item, at = _block(lines, at, indent + 2)
            else:
                item, at = _scalar(rest), at + 1
            items.append(item)
        return items, at
    out: dict[str, Any] = {}
    while at < len(lines) and _indent(lines[at]) == indent and not lines[at].lstrip().startswith("- "):
        key, _, rest = lines[at].strip().partition(":")
        at += 1
        if rest.strip():
            out[key] = _scalar(rest.strip())
        else:
            out[key], at = _block(lines, at, _indent(lines[at]))
    return out, at


def _scalar(text: str) -> Any:
    text = text.removeprefix("!str ")  # before a text that older YAML takes for a boolean, such as y
    if text[:1] in "'\"":
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    if text == "[]":
        return []
    return int(text, 0) if re.fullmatch(r"-?\d+|0x[0-9A-Fa-f]+", text) else text
