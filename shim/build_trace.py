"""Builds `kdbtool.shim._trace` out of csrc/trace_format.h, so that C and Python share one definition.

The header is a subset that cffi reads as it is, once the preprocessor's lines are gone. The checks
(crc32 over a record) are the recorder's own code.
"""

from __future__ import annotations

from pathlib import Path

from cffi import FFI

# shim/ in the tree, kdbtool/shim/ in a source distribution, where links are folders.
ROOT = next(folder for folder in Path(__file__).resolve().parents if (folder / "csrc").is_dir())
HEADER = ROOT / "csrc" / "trace_format.h"


def declarations(text: str) -> str:
    """The header's text without preprocessor lines: what `FFI.cdef` takes."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


ffi = FFI()
ffi.cdef(declarations(HEADER.read_text(encoding="ascii")))
ffi.set_source(
    "kdbtool.shim._trace",
    '#include "trace_format.h"',
    sources=["csrc/recorder/crc.c"],
    include_dirs=["csrc"],
    extra_compile_args=["-std=c11", "-O2"],
)
