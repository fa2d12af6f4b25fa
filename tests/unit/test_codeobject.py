"""kdbtool.codeobject: what an object says, and that no bytes bring anything but a CodeObjectError."""

from __future__ import annotations

import struct
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.amdgpu_elf import MACH, bundle, code_object, hip_bundle, metadata, note

from kdbtool.codeobject import CodeObjectError, check_object, parse
from kdbtool.codeobject import flags as amdgpu

GOOD = code_object()
BUNDLE = hip_bundle(code_object("gfx906", xnack="off", sramecc="any"), "gfx906:xnack-")


def codes(data: bytes, arch: str | None = "gfx1030", target: str | None = "gfx1030") -> list[str]:
    return [f.code.code for f in check_object(data, arch, target)]


def test_a_right_object_has_no_finding_and_says_all() -> None:
    found = parse(GOOD)
    assert (found.container, found.elf_class, found.machine, found.mach) == ("elf", 64, 224, "gfx1030")
    assert (found.xnack, found.sramecc, found.code_object_version) == ("unsupported", "unsupported", 5)
    assert found.kernels == ("k",) and found.target == "gfx1030" == found.target_id
    assert found.descriptors["k"].group_segment_fixed_size == 256 and found.descriptors["k"].wave32
    kernel = found.metadata_kernels[0]
    assert (kernel.lds, kernel.vgpr, kernel.sgpr, kernel.wavefront_size) == (256, 4, 16, 32)
    assert codes(GOOD) == []


def test_the_device_part_of_a_bundle_is_found() -> None:
    found = parse(BUNDLE)
    assert found.container == "bundle" and found.bundle_target == "gfx906:xnack-" == found.target_id
    assert codes(BUNDLE, "gfx906", "gfx906:xnack-") == ["features-explicit"]


def test_of_a_bundle_for_several_devices_the_asked_one_is_taken() -> None:
    parts = [(f"hipv4-amdgcn-amd-amdhsa--{a}", code_object(a)) for a in ("gfx900", "gfx1030")]
    assert parse(bundle(*parts), "gfx1030").mach == "gfx1030"
    assert parse(bundle(*parts), "gfx900").mach == "gfx900"


def test_generic_target_of_the_old_bundle_spelling() -> None:
    data = bundle(("hip-amdgcn-amd-amdhsa-gfx1030", GOOD))
    assert parse(data).bundle_target == "gfx1030"


@pytest.mark.parametrize(("abi", "version"), [(0, 2), (1, 3), (2, 4), (3, 5), (4, 6), (5, None)])
def test_code_object_version(abi: int, version: int | None) -> None:
    assert parse(code_object(abi=abi)).code_object_version == version


@pytest.mark.parametrize("xnack", ["any", "off", "on"])
@pytest.mark.parametrize("sramecc", ["any", "off", "on"])
def test_features_since_version_4(xnack: str, sramecc: str) -> None:
    found = parse(code_object("gfx906", xnack=xnack, sramecc=sramecc))
    assert (found.xnack, found.sramecc) == (xnack, sramecc)


def test_features_of_version_3_are_on_or_off_where_supported() -> None:
    assert parse(code_object(abi=1)).target_id == "gfx1030"
    assert parse(code_object("gfx906", abi=1)).target_id == "gfx906:sramecc-:xnack-"
    word = MACH["gfx906"] | 0x300
    assert parse(code_object("gfx906", abi=1, e_flags=word)).target_id == "gfx906:sramecc+:xnack+"


def test_every_architecture_number_is_named_once() -> None:
    assert len(set(amdgpu.MACH.values())) == len(amdgpu.MACH)
    assert {"gfx900", "gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"} <= amdgpu.ARCHS
    covered = {a for archs in amdgpu.GENERIC.values() for a in archs}
    assert covered <= amdgpu.ARCHS and set(amdgpu.GENERIC) <= set(amdgpu.NUMBER)


BAD: list[tuple[str, bytes, str]] = [
    ("nothing", b"", "not-elf"),
    ("text", b"int main", "not-elf"),
    ("only the magic", b"\x7fELF", "bad-elf"),
    ("class 32 cut", code_object(elf_class=1)[:51], "bad-elf"),
    ("class 32", code_object(elf_class=1), "elf-class"),
    ("class 9", code_object(elf_class=9), "bad-elf"),
    ("big-endian", code_object(order=2), "elf-class"),
    ("x86-64", code_object(machine=62), "elf-machine"),
    ("OS ABI of Linux", code_object(osabi=3), "elf-machine"),
    ("gfx1100", code_object("gfx1100"), "elf-arch"),
    ("unknown arch", code_object(e_flags=0xFE), "elf-arch"),
    ("version 7", code_object(abi=5), "object-version"),
    ("version 3", code_object(abi=1), "object-old"),
    ("no kernel", code_object(kernels=()), "no-kernels"),
    ("symbol without .kd", code_object(symbol_suffix=""), "no-kernels"),
    ("no metadata", code_object(no_meta=True), "no-metadata"),
    ("metadata of another kernel", code_object(meta=metadata("gfx1030", ("k", "l"))), "metadata-no-kernel"),
    ("kernel without metadata", code_object(meta=metadata("gfx1030", ())), "kernel-no-metadata"),
    ("metadata of another target", code_object(meta=metadata("gfx1031", ("k",))), "target-disagrees"),
    ("metadata is text", code_object(meta=b"\xa3abc"), "bad-metadata"),
    ("metadata cut", code_object(meta=b"\x81\xa3a"), "bad-metadata"),
    ("metadata of 4 G entries", code_object(meta=b"\xdd\xff\xff\xff\xff"), "bad-metadata"),
    ("metadata nested 100000 deep", code_object(meta=b"\x91" * 100_000), "bad-metadata"),
    ("metadata not UTF-8", code_object(meta=b"\x81\xa1a\xa1\xff"), "bad-metadata"),
    ("kernels no list", code_object(meta={"amdhsa.kernels": 1}), "bad-metadata"),
    ("kernel no map", code_object(meta={"amdhsa.kernels": [1]}), "bad-metadata"),
    ("kernel without name", code_object(meta={"amdhsa.kernels": [{}]}), "bad-metadata"),
    ("target no text", code_object(meta={"amdhsa.target": 1}), "bad-metadata"),
    ("target of nvidia", code_object(meta={"amdhsa.target": "nvptx64"}), "bad-metadata"),
    ("descriptor outside", code_object(descriptor_address=1 << 40), "bad-descriptor"),
    ("code outside", code_object(entry=1 << 40), "bad-descriptor"),
    ("code before the file", code_object(entry=-(1 << 40)), "bad-descriptor"),
    ("sections outside", code_object(shoff=1 << 40), "bad-elf"),
    ("65535 sections", code_object(shnum=65535), "bad-elf"),
    ("xnack on", code_object("gfx1030", xnack="on"), "features-foreign"),
    ("compressed bundle", b"CCOB" + b"\0" * 100, "bad-bundle"),
    ("bundle without entries", bundle(), "bad-bundle"),
    ("bundle of the host alone", bundle(("host-x86_64-unknown-linux-gnu-", b"")), "bad-bundle"),
    ("bundle of 2**60 entries", bundle(("a", b""), count=1 << 60), "bad-bundle"),
    ("bundle cut", BUNDLE[:40], "bad-bundle"),
    ("bundle with text inside", hip_bundle(b"hello", "gfx1030"), "not-elf"),
    ("bundle named for another", hip_bundle(GOOD, "gfx1031"), "bundle-target"),
]


@pytest.mark.parametrize(("data", "code"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_each_bad_way_has_its_finding(data: bytes, code: str) -> None:
    assert code in codes(data)


def test_a_bundle_entry_outside_the_data() -> None:
    data = bytearray(hip_bundle(GOOD, "gfx1030"))
    at = data.index(b"hipv4") - 24
    for offset, size in ((1 << 62, 1), (0, 1 << 62), (len(data) - 1, 2), ((1 << 64) - 1, 5)):
        data[at : at + 16] = struct.pack("<QQ", offset, size)
        with pytest.raises(CodeObjectError, match="bad-bundle"):
            parse(bytes(data))


def test_a_note_of_4_gigabytes() -> None:
    for size in (0xFFFFFFFF, 0xFFFFFFFC, 4000):
        whole = code_object()
        good = note(msgpack.packb(metadata("gfx1030", ("k",))))
        bad = note(msgpack.packb(metadata("gfx1030", ("k",))), size=size)
        assert good in whole
        assert "bad-metadata" in codes(whole.replace(good, bad))


def test_a_symbol_name_without_end_is_not_followed() -> None:
    data = code_object(kernels=("k" * 5000,))
    assert codes(data)[0] == "bad-elf"


def test_a_generic_target_is_a_note() -> None:
    data = code_object(e_flags=amdgpu.NUMBER["gfx10-3-generic"], meta=metadata("gfx10-3-generic", ("k",)))
    assert codes(data) == ["generic-arch"]
    assert codes(data, "gfx1100", "gfx1100") == ["elf-arch"]


def test_features_that_the_devices_have_are_a_note_others_wrong_code() -> None:
    device = "gfx906:sramecc+:xnack-"
    assert codes(code_object("gfx906", xnack="any", sramecc="any"), "gfx906", device) == []
    assert codes(code_object("gfx906", xnack="off", sramecc="any"), "gfx906", device) == ["features-explicit"]
    for xnack, sramecc in (("on", "any"), ("off", "off"), ("on", "on")):
        data = code_object("gfx906", xnack=xnack, sramecc=sramecc)
        assert codes(data, "gfx906", device) == ["features-foreign"]


def test_version_2_kernels_need_no_descriptor_symbol() -> None:
    data = bytearray(code_object(abi=0, symbol_suffix="", no_meta=True))
    data[64 + 56 * 2 + 24 + 4] = 0x1A  # STT_AMDGPU_HSA_KERNEL
    assert parse(bytes(data)).kernels == ("k",)
    assert codes(bytes(data)) == ["object-old"]


@pytest.mark.parametrize("whole", [GOOD, BUNDLE], ids=["elf", "bundle"])
def test_cut_at_every_offset(whole: bytes) -> None:
    for end in range(len(whole)):
        try:
            parse(whole[:end])
        except CodeObjectError:
            continue
        assert whole[:end].startswith(b"__CLANG") or end > len(whole) - 64


def _survives(data: bytes) -> None:
    try:
        found = parse(data, "gfx1030")
    except CodeObjectError as error:
        assert "\n" not in str(error)
        assert check_object(data, "gfx1030", "gfx1030")
    else:
        assert isinstance(found.kernels, tuple)
        check_object(data, "gfx1030", "gfx1030")


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_mutated_objects_raise_nothing_else(data: st.DataObject) -> None:
    raw = bytearray(data.draw(st.sampled_from([GOOD, BUNDLE])))
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(raw) - 1))
        kind = data.draw(st.sampled_from(["flip", "word", "cut", "swap"]))
        if kind == "flip":
            raw[at] ^= 1 << data.draw(st.integers(0, 7))
        elif kind == "word":
            value = data.draw(st.sampled_from([0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 0x80000000]))
            raw[at : at + 4] = struct.pack("<I", value)[: len(raw) - at]
        elif kind == "cut":
            del raw[max(at, 1) :]
        else:
            other = data.draw(st.integers(0, len(raw) - 1))
            raw[at], raw[other] = raw[other], raw[at]
    _survives(bytes(raw))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_any_metadata_bytes(raw: bytes) -> None:
    _survives(code_object(meta=raw))


_VALUES: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(st.fixed_dictionaries({"amdhsa.kernels": _VALUES, "amdhsa.target": _VALUES}))
def test_any_metadata_values(value: dict[str, Any]) -> None:
    _survives(code_object(meta=value))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_any_bundle_bytes(raw: bytes) -> None:
    _survives(b"__CLANG_OFFLOAD_BUNDLE__" + raw)
    _survives(b"\x7fELF" + raw)
