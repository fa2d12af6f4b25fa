"""Builds `kdbtool.shim._trace` out of csrc/trace_format.h and csrc/selection.h, so that C and Python
share one definition.

The headers are a subset that cffi reads as they are, once the preprocessor's lines are gone. The checks
(crc32 over a record) and the matcher are the recorder's own code.
"""

from __future__ import annotations

from pathlib import Path

from cffi import FFI

# shim/ in the tree, kdbtool/shim/ in a source distribution, where links are folders.
ROOT = next(folder for folder in Path(__file__).resolve().parents if (folder / "csrc").is_dir())
HEADERS = ("trace_format.h", "selection.h")


def declarations(text: str) -> str:
    """The header's text without preprocessor lines: what `FFI.cdef` takes."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


ffi = FFI()
for header in HEADERS:
    ffi.cdef(declarations((ROOT / "csrc" / header).read_text(encoding="ascii")))
ffi.set_source(
    "kdbtool.shim._trace",
    "".join(f'#include "{header}"\n' for header in HEADERS),
    sources=["csrc/recorder/crc.c", "csrc/selection.c"],
    include_dirs=["csrc"],
    extra_compile_args=["-std=c11", "-O2"],
)
