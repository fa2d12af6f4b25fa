"""Makes what a HIP ABI needs beyond the functions that are implemented: stubs and the version map.

`<abi>.exports` lists what the real library exports, "name version" a line. What is implemented is
read from the C sources themselves (`SIM_API(name)`, `SIM_API_OF(type, name)`), so there is no second
list to keep. Every other export becomes a stub that counts itself and returns hipErrorNotSupported:
clients are linked BIND_NOW, so each symbol must exist. Run by setup.py; no import of kdbtool.
"""

from __future__ import annotations

import re
from pathlib import Path

MARKER = "kdbtool_simgpu"
_API = re.compile(r"^SIM_API(?:_OF)?\((?:[\w *]+,\s*)?(\w+)\)", re.MULTILINE)
_EXPORT = re.compile(r"([A-Za-z_]\w*) (hip_\d+\.\d+)")


def read_exports(path: Path) -> dict[str, str]:
    """{function: version node} of one ABI; SystemExit names the line that is no export."""
    exports: dict[str, str] = {}
    for number, line in enumerate(path.read_text("ascii").splitlines(), 1):
        if line.startswith("#"):
            continue
        match = _EXPORT.fullmatch(line)
        if not match or match[1] in exports:
            raise SystemExit(f"{path}:{number}: not an export, or twice: {line!r}")
        exports[match[1]] = match[2]
    return exports


def implemented(sources: Path) -> set[str]:
    """The functions that the C files of a folder define through SIM_API."""
    names = [n for c in sorted(sources.glob("*.c")) for n in _API.findall(c.read_text("utf-8"))]
    twice = {n for n in names if names.count(n) > 1}
    if twice:
        raise SystemExit(f"{sources}: defined twice: {', '.join(sorted(twice))}")
    return set(names)


def stubs_text(names: list[str]) -> str:
    """C of the stubs, one per name, and of the table that the log prints at exit."""
    table = "".join(f'    {{"{name}", 0}},\n' for name in names)
    body = "".join(
        f"SIM_EXPORT int {name}(void);\nint {name}(void) {{ return sim_unsupported(&sim_stubs[{i}]); }}\n"
        for i, name in enumerate(names)
    )
    return (
        "/* Made by csrc/simgpu/abi/generate.py. */\n"
        '#include "internal.h"\n\n'
        f"struct sim_stub sim_stubs[] = {{\n{table}}};\n"
        f"const unsigned sim_stub_count = {len(names)};\n\n{body}"
    )


def map_text(exports: dict[str, str]) -> str:
    """The linker's version script: AMD's nodes, oldest first, and one of ours for the marker."""
    nodes = sorted(set(exports.values()), key=lambda v: [int(n) for n in v.removeprefix("hip_").split(".")])
    text, parent = "", ""
    for node in nodes:
        names = "".join(f"    {n};\n" for n, v in sorted(exports.items()) if v == node)
        local = "" if parent else "  local:\n    *;\n"
        text += f"{node} {{\n  global:\n{names}{local}}}{parent};\n\n"
        parent = f" {node}"
    return text + f"KDBTOOL_1 {{\n  global:\n    {MARKER};\n}}{parent};\n"


def generate(exports: Path, out: Path) -> tuple[Path, Path]:
    """Write stubs and version map for the ABI of `exports` into `out`; (stubs.c, map)."""
    abi = read_exports(exports)
    done = implemented(exports.parent.parent)
    known = {n for other in exports.parent.glob("*.exports") for n in read_exports(other)}
    unknown = done - known
    if unknown:
        raise SystemExit(f"{exports}: no HIP library exports {', '.join(sorted(unknown))}")
    stubs, version_map = out / f"{exports.stem}_stubs.c", out / f"{exports.stem}.map"
    stubs.write_text(stubs_text(sorted(abi.keys() - done)), "ascii")
    version_map.write_text(map_text(abi), "ascii")
    return stubs, version_map
