"""What traces tell about compiles: their number, COMGR's actions by name, whose a compiler's process is.

COMGR numbers its actions anew in version 3 (`amd_comgr.h`, amd_comgr_action_kind_s: 2 as in ROCm 5.0.0
to 6.0 and the last of 2.x, 3 as in 6.4.3), so a number has a name only with the version in the facts.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kdbtool.shim.trace_model import Compile, Facts, Trace

_BOTH = {0: "SOURCE_TO_PREPROCESSOR", 1: "ADD_PRECOMPILED_HEADERS", 2: "COMPILE_SOURCE_TO_BC"}
_ACTIONS = {
    2: _BOTH
    | {
        3: "ADD_DEVICE_LIBRARIES",
        4: "LINK_BC_TO_BC",
        5: "OPTIMIZE_BC_TO_BC",
        6: "CODEGEN_BC_TO_RELOCATABLE",
        7: "CODEGEN_BC_TO_ASSEMBLY",
        8: "LINK_RELOCATABLE_TO_RELOCATABLE",
        9: "LINK_RELOCATABLE_TO_EXECUTABLE",
        10: "ASSEMBLE_SOURCE_TO_RELOCATABLE",
        11: "DISASSEMBLE_RELOCATABLE_TO_SOURCE",
        12: "DISASSEMBLE_EXECUTABLE_TO_SOURCE",
        13: "DISASSEMBLE_BYTES_TO_SOURCE",
        14: "COMPILE_SOURCE_TO_FATBIN",
        15: "COMPILE_SOURCE_WITH_DEVICE_LIBS_TO_BC",
        16: "COMPILE_SOURCE_TO_RELOCATABLE",
        17: "COMPILE_SOURCE_TO_EXECUTABLE",
        18: "UNBUNDLE",
    },
    3: _BOTH
    | {
        3: "LINK_BC_TO_BC",
        4: "CODEGEN_BC_TO_RELOCATABLE",
        5: "CODEGEN_BC_TO_ASSEMBLY",
        6: "LINK_RELOCATABLE_TO_RELOCATABLE",
        7: "LINK_RELOCATABLE_TO_EXECUTABLE",
        8: "ASSEMBLE_SOURCE_TO_RELOCATABLE",
        9: "DISASSEMBLE_RELOCATABLE_TO_SOURCE",
        10: "DISASSEMBLE_EXECUTABLE_TO_SOURCE",
        11: "DISASSEMBLE_BYTES_TO_SOURCE",
        12: "COMPILE_SOURCE_WITH_DEVICE_LIBS_TO_BC",
        13: "COMPILE_SOURCE_TO_RELOCATABLE",
        14: "COMPILE_SOURCE_TO_EXECUTABLE",
        15: "UNBUNDLE",
        16: "COMPILE_SPIRV_TO_RELOCATABLE",
        19: "TRANSLATE_SPIRV_TO_BC",
    },
}
_COMPILING = ("COMPILE_", "ASSEMBLE_SOURCE_")
LINK = 1  # the action of a hipRTC event that links


def action_name(facts: Facts, compile: Compile) -> str | None:
    """What a COMGR event did, without AMD_COMGR_ACTION_; None: another event, or an unknown number."""
    major = facts.all.get("comgr.version", "").partition(".")[0]
    if compile.by != "comgr" or major not in ("2", "3"):
        return None
    return _ACTIONS[int(major)].get(compile.action)


def compiled(trace: Trace) -> int:
    """How many sources the process compiled: 1 for a compiler driver; else the compiles of hipRTC and COMGR
    that are not part of another one. Failed ones count; links and other actions do not."""
    if trace.facts.role != "host":
        return int(trace.facts.role == "compiler")
    return sum(_compiles_a_source(trace.facts, one) for one in trace.compiles if not one.nested)


def _compiles_a_source(facts: Facts, one: Compile) -> bool:
    if one.by == "hiprtc":
        return one.action != LINK
    return (action_name(facts, one) or "").startswith(_COMPILING)


def children(traces: Iterable[Trace]) -> dict[Path, list[Trace]]:
    """Each program's compiler drivers, by the path of the program's trace, in order of their begin.

    A driver names the pid that started it. Of several programs with that pid on that host, or parts of
    one trace, it is the last that had begun; a trace begins with its first event. A driver whose
    program left no trace is not in it.
    """
    traces = list(traces)
    hosts: dict[tuple[str, int], list[Trace]] = {}
    for trace in traces:
        if trace.facts.role == "host":
            hosts.setdefault((trace.facts.host, trace.facts.pid), []).append(trace)
    found: dict[Path, list[Trace]] = {}
    drivers = [trace for trace in traces if trace.facts.role == "compiler"]
    for driver in sorted(drivers, key=lambda trace: (trace.facts.start_ns, str(trace.path))):
        starter = next((one.starter for one in driver.compiles if one.by == "process"), None)
        same = sorted(hosts.get((driver.facts.host, starter or 0), ()), key=lambda host: host.facts.start_ns)
        if same:
            before = [host for host in same if host.facts.start_ns <= driver.facts.start_ns]
            found.setdefault((before or same[:1])[-1].path, []).append(driver)
    return found
