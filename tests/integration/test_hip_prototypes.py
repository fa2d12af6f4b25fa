"""The recorder's prototypes of HIP are those of the real headers, and the real library has the functions."""

from __future__ import annotations

import re
from pathlib import Path

from support.forwarding import hooks

ABI = Path(__file__).resolve().parents[2] / "csrc" / "simgpu" / "abi"
WORD = 4, ("int", "unsigned", "unsigned int", "uint32_t", "hipDevice_t", "hipStreamCaptureMode", "hipError_t")
LONG = 8, ("size_t", "uint64_t", "unsigned long long")
# Not in the 6.4.3 headers: of the compiler's own interface, or later than these.
ELSEWHERE = {"__hipRegisterFatBinary", "__hipUnregisterFatBinary", "__hipRegisterFunction"}
OF_HIP_7 = {
    *("hipModuleLoadFatBinary", "hipLibraryLoadData", "hipLibraryLoadFromFile", "hipLibraryUnload"),
    *("hipLibraryEnumerateKernels", "hipKernelGetName"),
    *("hipLibraryGetKernel", "hipKernelGetFunction", "hipLaunchKernelExC", "hipDrvLaunchKernelEx"),
    *("hipGetProcAddress_spt", "hipGetDriverEntryPoint", "hipGetDriverEntryPoint_spt"),
}


def passed_as(text: str) -> str:
    """How the ABI passes a parameter: as a pointer, as so many bytes, or as the three of a dim3."""
    text = re.sub(r"__dparm\(.*?\)|=.*|\bconst\b|\bstruct\b", "", text).strip()
    # A name is the last word, unless it is the type itself.
    type = re.sub(r"\s*\b\w+$", "", text) if re.search(r"[\w*]\s+\w+$|\*\w+$", text) else text
    type = " ".join(type.split())
    if "*" in text or re.fullmatch(
        r"hip(Module|Function|Stream|Event|Ctx|Graph|GraphNode|GraphExec)_t", type
    ):
        return "pointer"
    if type in ("dim3", "kdb_dim3"):
        return "dim3"
    for size, names in (WORD, LONG):
        if type in names:
            return f"{size} bytes"
    raise AssertionError(f"unknown type {type!r} of {text!r}")


def signature(params: str) -> list[str]:
    params = " ".join(params.split())
    return [] if params in ("", "void") else [passed_as(p) for p in params.split(",")]


def declared(root: Path) -> dict[str, str]:
    """Parameters by name."""
    found: dict[str, str] = {}
    for header in sorted((root / "usr/include/hip").rglob("*.h")):
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", header.read_text(), flags=re.S)
        for name, params in re.findall(r"hipError_t\s+(\w+)\s*\(([^;{}]*)\)\s*;", text):
            found.setdefault(name, params)
    return found


def test_prototypes(root: Path) -> None:
    headers = declared(root)
    seen = set()
    for hook in hooks("hooks_hip.def"):
        mangled = re.match(r"_Z24(\w{24})P", hook.name)
        name = mangled[1] if mangled else hook.name
        name = name.removesuffix("_spt").replace("R0600", "")  # those are macros there
        if hook.name in ELSEWHERE | OF_HIP_7:
            assert hook.name not in headers
            continue
        assert signature(hook.params) == signature(headers[name]), hook.name
        assert hook.result == "int"
        seen.add(hook.name)
    assert len(seen) > 60


def test_the_library_has_what_is_required() -> None:
    """And whatever the list calls optional, but for what HIP 7 brought."""
    exported = {
        line.split()[0] for line in (ABI / "hip6.exports").read_text().splitlines() if line[:1] != "#"
    }
    assert {h.name for h in hooks("hooks_hip.def")} - exported == OF_HIP_7
