"""kdbtool.codeobject.compare on AMD's own objects, each changed in one place; and on damaged ones."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path

import pytest
from support.amdgpu_elf import bundle, code_object, hip_bundle, metadata
from support.mutate import mutations, survives

from kdbtool.codeobject import CodeObject, CodeObjectError, check_object, parse
from kdbtool.codeobject.compare import SHARED, Resources, code_identity, digests, kernels, summary
from kdbtool.codeobject.descriptor import accum_offset, sgprs, version_of, vgprs
from kdbtool.codeobject.elf import Elf
from kdbtool.codeobject.image import Image
from kdbtool.kdb.reader import open_kdb


@pytest.fixture(scope="module")
def real(shared: Path) -> dict[str, bytes]:
    """An assembly object and the one HIP object of AMD's database, by kind."""
    found: dict[str, bytes] = {}
    with open_kdb(shared / "data" / "gfx942.kdb") as reader:
        for row in reader:
            if row.name.endswith(b".cpp.o"):
                found["hip"] = row.object()
            elif row.name.startswith(b"igemm_wrw"):
                found.setdefault("asm", row.object())
    return found


def edit(data: bytes, section: str, at: int, new: bytes) -> CodeObject:
    """The object with `new` written `at` bytes into a section."""
    elf = bytearray(parse(data).elf)
    start = next(offset for name, offset, _ in _sections(bytes(elf)) if name == section) + at
    elf[start : start + len(new)] = new
    return parse(bytes(elf))


def _sections(data: bytes) -> list[tuple[str, int, int]]:
    elf = Elf(data)
    raw = elf.sections()
    return [(n, int(s.sh_offset), int(s.sh_size)) for n, s in zip(elf.section_names(raw), raw, strict=True)]


@pytest.mark.parametrize("kind", ["asm", "hip"])
def test_the_comment_and_a_bundle_do_not_count(real: dict[str, bytes], kind: str) -> None:
    one = parse(real[kind])
    (comment,) = [s for s in _sections(one.elf) if s[0] == ".comment"]
    producer = one.elf[comment[1] : comment[1] + comment[2]]
    other = edit(real[kind], ".comment", 0, producer.swapcase())
    assert other.elf != one.elf and code_identity(other) == code_identity(one)
    wrapped = parse(hip_bundle(one.elf, one.target_id))
    assert wrapped.container == "bundle" and code_identity(wrapped) == code_identity(one)


@pytest.mark.parametrize("kind", ["asm", "hip"])
def test_code_descriptor_name_and_target_count(real: dict[str, bytes], kind: str) -> None:
    one = parse(real[kind])
    same = code_identity(one)
    name, image = one.kernels[0], Image(one.elf)
    sections = {s.name: s for s in image.sections}
    function = next(f for f in image.functions if f.name == name)
    first = bytes((function.code[0] ^ 1,))
    changed = edit(real[kind], ".text", function.address - sections[".text"].address, first)
    assert code_identity(changed) != same
    assert [k for k in digests(one) if digests(one)[k] != digests(changed)[k]] == [name]

    at = image.address_of(f"{name}.kd")
    assert at is not None
    registers = bytes((one.descriptors[name].compute_pgm_rsrc1 & 0xFF ^ 1,))  # one granule
    other = edit(real[kind], ".rodata", at - sections[".rodata"].address + 48, registers)
    assert other.descriptors[name] != one.descriptors[name] and code_identity(other) != same

    renamed = parse(one.elf.replace(name.encode(), (name[:-1] + "Z").encode()))
    assert code_identity(renamed) != same and set(kernels(renamed)) != set(kernels(one))
    foreign = parse(one.elf[:48] + b"\x4f" + one.elf[49:])  # e_flags: gfx950
    assert foreign.mach == "gfx950" and code_identity(foreign) != same


def test_every_object_of_a_real_database_has_its_own_identity(shared: Path) -> None:
    """321 objects of other code; none falls together with another."""
    seen = {}
    with open_kdb(shared / "data" / "gfx942.kdb") as reader:
        for row in reader:
            found = summary(parse(row.object()))
            seen[found.identity] = row.name
            assert found.digests.keys() == {SHARED, *found.kernels}
            for taken in found.kernels.values():
                assert taken.vgpr and taken.code_bytes and taken.wave == 64
    assert len(seen) == 321


def test_resources_come_from_the_descriptor_where_the_metadata_is_silent() -> None:
    with_meta = kernels(parse(code_object()))["k"]
    assert with_meta == Resources(4, 16, None, 256, 0, 32, None, 8)
    bare = kernels(parse(code_object(no_meta=True)))["k"]
    assert bare == Resources(8, None, None, 256, 0, 32, None, 8)  # wave32: granules of 8


def test_granules_by_architecture() -> None:
    found = parse(code_object("gfx1030")).descriptors["k"]
    assert vgprs(found, "gfx1030") == 8 and vgprs(found, "gfx900") == 4
    assert vgprs(found, "gfx90a") == 8 and vgprs(found, "gfx90c") == 4
    assert sgprs(found, "gfx906") == 8 and sgprs(found, "gfx1100") is None
    assert accum_offset(found, "gfx942") == 4 and accum_offset(found, "gfx908") is None
    assert vgprs(found, None) is None and version_of("gfx10-3-generic") == (10, 3, 0)
    assert version_of("gfx9-4-generic") == (9, 4, 0) and version_of("nvptx") is None


def test_of_two_device_entries_the_generic_one_is_taken() -> None:
    one, other = (
        code_object("gfx906", xnack="off", sramecc="any"),
        code_object("gfx906", xnack="any", sramecc="any"),
    )
    entries = ("hipv4-amdgcn-amd-amdhsa--gfx906:xnack-", one), ("hipv4-amdgcn-amd-amdhsa--gfx906", other)
    for order in itertools.permutations(entries):
        assert parse(bundle(*order), "gfx906").bundle_target == "gfx906"
    assert parse(bundle(entries[0]), "gfx1030").bundle_target == "gfx906:xnack-"


def test_a_compressed_bundle_is_named() -> None:
    with pytest.raises(CodeObjectError, match=r"compressed offload bundle \(version 2, zstd\)"):
        parse(b"CCOB\x02\x00\x01\x00" + bytes(64))
    assert "compressed" in check_object(b"CCOB", "gfx906")[0].detail


def test_overlapping_functions_are_bounded() -> None:
    """65,536 symbols over one section would be gigabytes of code."""
    names = [f"k{n}" for n in range(2000)]
    whole = code_object(kernels=names, text=bytes(65536), symbol_suffix="")
    data = bytearray(whole)
    table = next(s for s in _sections(whole) if s[0] == ".dynsym")
    text_at = _text_address(whole).to_bytes(8, "little")
    for at in range(table[1] + 24, table[1] + table[2], 24):
        data[at + 4] = 0x12  # STT_FUNC
        data[at + 8 : at + 16] = text_at
        data[at + 16 : at + 24] = (65536).to_bytes(8, "little")
    with pytest.raises(CodeObjectError, match="functions of more than"):
        Image(bytes(data))


def _text_address(data: bytes) -> int:
    return next(s.address for s in Image(data).sections if s.name == ".text")


@pytest.mark.parametrize("kind", ["asm", "hip"])
def test_damaged_objects_bring_nothing_but_a_code_object_error(
    real: dict[str, bytes], kind: str, tmp_path: Path
) -> None:
    def check(path: Path) -> None:
        found = parse(path.read_bytes(), "gfx942")
        summary(found)
        check_object(path.read_bytes(), "gfx942")

    data = real[kind]
    seed = int(hashlib.md5(data, usedforsecurity=False).hexdigest()[:6], 16)
    tally = survives(check, [data], tmp_path / "good")
    assert tally.accepted == 1
    count = 4400 if kind == "asm" else 700
    tally = survives(check, mutations(data, count, seed), tmp_path / "bad", errors=(CodeObjectError,))
    assert tally.refused > count / 10


def _headers(data: bytes) -> list[tuple[int, str, int]]:
    """(offset in the file, type, bytes in the file) of each program header."""
    elf = Elf(data)
    size, at = elf.header.e_phentsize, elf.header.e_phoff
    return [(at + n * size, s.p_type, int(s.p_filesz)) for n, s in enumerate(elf.segments())]


@pytest.mark.parametrize("kind", ["asm", "hip"])
def test_what_is_loaded_counts_not_what_the_sections_say(real: dict[str, bytes], kind: str) -> None:
    data = parse(real[kind]).elf
    same = code_identity(parse(data))
    code = next(s for s in _sections(data) if s[0] == ".text")
    moved = 0
    for at, what, size in _headers(data):
        start = int.from_bytes(data[at + 8 : at + 16], "little")
        if what == "PT_LOAD" and size and start <= code[1] < start + size:
            other = bytearray(data)
            other[at + 8 : at + 16] = (start + 4).to_bytes(
                8, "little"
            )  # the loader takes other bytes as code
            assert code_identity(parse(bytes(other))) != same
            moved += 1
    assert moved == 1
    # Bytes that are loaded and that no section tells of: behind the last function.
    number = [name for name, *_ in _sections(data)].index(".text")
    at = Elf(data).header.e_shoff + 64 * number + 32
    short = data[:at] + (code[2] - 64).to_bytes(8, "little") + data[at + 8 :]
    last = code[1] + code[2] - 4
    changed = short[:last] + b"\x01\x02\x03\x04" + short[last + 4 :]
    assert code_identity(parse(short)) != code_identity(parse(changed))


def test_the_descriptor_that_the_loader_takes_counts(real: dict[str, bytes]) -> None:
    """.dynsym leads to another kernel's descriptor; .symtab, which no loader reads, as before."""
    data = bytearray(parse(real["hip"]).elf)
    elf = Elf(bytes(data))
    raw = elf.sections()
    table = next(s for s in raw if s.sh_type == "SHT_DYNSYM")
    found = [
        int(table.sh_offset) + 24 * n + 8
        for n, (name, _) in enumerate(elf.symbols(raw, table))
        if name.endswith(b".kd")
    ]
    same = code_identity(parse(bytes(data)))
    for one, other in itertools.pairwise(found):
        swapped = bytearray(data)
        swapped[one : one + 8], swapped[other : other + 8] = data[other : other + 8], data[one : one + 8]
        assert code_identity(parse(bytes(swapped))) != same


@pytest.mark.parametrize(("field", "value"), [(".kind", "init"), (".args", None)])
def test_metadata_that_a_runtime_acts_by_counts(field: str, value: str | None) -> None:
    meta = metadata("gfx1030", ["k"])
    (kernel,) = meta["amdhsa.kernels"]
    kernel[".args"] = [
        {".size": 4, ".offset": 0, ".value_kind": "dynamic_shared_pointer", ".pointee_align": 4}
    ]
    one = code_identity(parse(code_object(meta=meta)))
    if value is None:
        kernel[".args"][0][".pointee_align"] = 16
    else:
        kernel[field] = value
    assert code_identity(parse(code_object(meta=meta))) != one
    if value is not None:
        kernel[field] = "normal"  # what is meant where nothing is said
        assert code_identity(parse(code_object(meta=meta))) == one


def test_the_distances_in_code_are_bounded(monkeypatch: pytest.MonkeyPatch, real: dict[str, bytes]) -> None:
    elf = bytearray(parse(real["asm"]).elf)
    _, at, size = next(s for s in _sections(bytes(elf)) if s[0] == ".text")
    reference = bytes.fromhex("001c80be 00ff0080 04000000 01ff0182 00000000")
    elf[at : at + size] = (reference * (size // len(reference) + 1))[:size]
    code_identity(parse(bytes(elf)))
    monkeypatch.setattr("kdbtool.codeobject.image.MAX_REFERENCES", 3)
    with pytest.raises(CodeObjectError, match="over 3 distances"):
        code_identity(parse(bytes(elf)))
