"""A small shared library that exports kernel texts as a libMIOpen does, made by the C compiler."""

from __future__ import annotations

import subprocess
from pathlib import Path

KERNELS = {
    "MIOPEN_KERNEL_NAIVE_CONV": '#include "stride_array.hpp"\n__global__ void f() {}\n',
    "MIOPEN_KERNEL_MIOPENPOOLING": "__kernel void g() {}\n",
    "MIOPEN_KERNEL_STRIDE_ARRAY_INCLUDE": "#pragma once\n",
}
BANNER = "MD version \\0, HIP version 6.4.43484\\0, MIOpen version 3.4.0.\\0"


def library(
    cc: str,
    folder: Path,
    texts: dict[str, str] | None = None,
    *,
    banner: str = BANNER,
    extra: str = "",
    flags: tuple[str, ...] = (),
) -> Path:
    """A shared library that exports these texts as addkernels does: NUL behind, SIZE beside."""
    source = folder / "lib.c"
    lines = ["#include <stddef.h>", f'const char banner[] = "{banner}";', extra]
    for name, text in (KERNELS if texts is None else texts).items():
        data = text.encode()
        lines.append(f"const char {name}[] = {{{','.join(map(str, data))}{',' if data else ''}0}};")
        lines.append(f"const size_t {name}_SIZE = {len(data)};")
    source.write_text("\n".join(lines))
    out = folder / "libMIOpen.so.1.0"
    subprocess.run([cc, "-shared", "-fPIC", *flags, "-o", out, source], check=True, timeout=60)
    return out
