"""What an AMDGPU code object says about itself, as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from kdbtool.errors import printable

Feature = Literal["unsupported", "any", "off", "on"]


class CodeObjectError(Exception):
    """The bytes are no code object that a loader takes.

    `code` is one of kdbtool.kdb.findings (`not-elf`, `bad-elf`, `bad-bundle`, `bad-metadata`),
    `text` says what is wrong, in a few words.
    """

    def __init__(self, code: str, text: str) -> None:
        self.code, self.text = code, printable(text)  # names in it are the file's
        super().__init__(f"{code}: {self.text}")


@contextmanager
def damage(code: str, what: str) -> Iterator[None]:
    """Whatever a parsing library raises inside becomes one CodeObjectError.

    Hostile bytes make pyelftools, construct and msgpack raise nearly anything (KeyError,
    OverflowError, RecursionError, ...), so the net is wide; the bytes are the only input.
    """
    try:
        yield
    except CodeObjectError:
        raise
    except Exception as error:
        text = str(error).strip().splitlines()
        raise CodeObjectError(code, f"{what}: {text[0] if text else type(error).__name__}"[:200]) from None


@dataclass(frozen=True)
class Descriptor:
    """A kernel descriptor, the 64 bytes at NAME.kd (LLVM AMDGPUUsage, "Kernel Descriptor"), in bytes."""

    group_segment_fixed_size: int
    private_segment_fixed_size: int
    kernarg_size: int
    kernel_code_entry_byte_offset: int
    compute_pgm_rsrc3: int
    compute_pgm_rsrc1: int
    compute_pgm_rsrc2: int
    kernel_code_properties: int
    kernarg_preload: int

    @property
    def wave32(self) -> bool:
        """ENABLE_WAVEFRONT_SIZE32."""
        return bool(self.kernel_code_properties & (1 << 10))


@dataclass(frozen=True)
class KernelArg:
    """One argument of a kernel: where it lies in the kernarg segment, in bytes; "" and None: not said.

    `kind` is LLVM's value_kind (`global_buffer`, `by_value`, `hidden_block_count_x`, ...).
    """

    offset: int | None
    size: int | None
    kind: str
    name: str = ""
    type_name: str = ""
    address_space: str = ""
    pointee_align: int | None = None  # of a `dynamic_shared_pointer`: the runtime aligns its LDS by it


@dataclass(frozen=True)
class KernelMeta:
    """One entry of `amdhsa.kernels`; a number that the note does not give is None. Sizes in bytes."""

    name: str
    symbol: str
    lds: int | None = None
    scratch: int | None = None
    kernarg_size: int | None = None
    vgpr: int | None = None
    agpr: int | None = None
    sgpr: int | None = None
    vgpr_spills: int | None = None
    sgpr_spills: int | None = None
    wavefront_size: int | None = None
    kernarg_align: int | None = None
    max_flat_workgroup_size: int | None = None
    reqd_workgroup_size: tuple[int, ...] | None = None
    uses_dynamic_stack: bool | None = None
    role: str = ""  # `.kind`: "normal", or "init" and "fini", which the loader launches by itself
    args: tuple[KernelArg, ...] = ()


@dataclass(frozen=True)
class CodeObject:
    """One device code object. Of a foreign class or machine only the header fields are filled.

    elf_class          32 or 64
    machine            e_machine; 224 is AMDGPU
    mach               the architecture that EF_AMDGPU_MACH names (`gfx1030`), None if unknown
    xnack, sramecc     what the flags say; "any" loads on either setting of a device
    code_object_version  2 to 6, from EI_ABIVERSION; None if unknown
    kernels            NAME of every NAME.kd symbol (code object 2: of every kernel symbol), sorted
    metadata           the decoded metadata note, None if there is none
    target             `amdhsa.target` of the metadata, without `amdgcn-amd-amdhsa--`
    container          "elf", or "bundle" for an offload bundle
    bundle_target      the target id in the name of the bundle's entry
    elf                the bytes of the ELF itself
    """

    container: Literal["elf", "bundle"]
    bundle_target: str | None
    elf_class: int
    little_endian: bool
    machine: int
    osabi: int
    abi_version: int
    flags: int
    mach: str | None
    xnack: Feature
    sramecc: Feature
    code_object_version: int | None
    kernels: tuple[str, ...] = ()
    descriptors: Mapping[str, Descriptor] = field(default_factory=dict)
    metadata: Mapping[str, Any] | None = None
    metadata_kernels: tuple[KernelMeta, ...] = ()
    target: str | None = None
    elf: bytes = field(default=b"", repr=False)

    @property
    def target_id(self) -> str:
        """`gfx906:xnack-`: the architecture and the features that the object insists on."""
        text = self.mach or "unknown"
        for name, state in (("sramecc", self.sramecc), ("xnack", self.xnack)):
            if state in ("on", "off"):
                text += f":{name}{'+' if state == 'on' else '-'}"
        return text
