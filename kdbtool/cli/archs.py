"""`--arch A[:CU]|native|all`, resolved: one meaning for every command that has it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kdbtool import targets
from kdbtool.errors import KdbtoolError
from kdbtool.miopen.keys import is_arch

_CU = re.compile(r"[1-9][0-9]{0,3}")


def wanted_archs(values: Iterable[str] | None) -> set[str] | None:
    """Bare architectures, None for all. `native` asks the devices present and fails where it cannot."""
    if values is None:
        return None
    out: set[str] = set()
    for value in values:
        arch, colon, cu = value.partition(":")
        if value == "all":
            return None
        if value == "native":
            out |= {device.partition(":")[0] for device in _native()}
        elif is_arch(arch) and (not colon or _CU.fullmatch(cu)):
            out.add(arch)
        else:
            if cu.endswith(("+", "-")) and arch in targets.known():
                targets.split_target(value)  # a target id: it says which features there are
            raise KdbtoolError(
                f"not an architecture: {value[:40]}",
                where="--arch",
                why="expected one such as gfx1030 or gfx1030:36, native, or all",
            )
    return out


def one_target(values: list[str] | None) -> targets.Target:
    """The one device that `--arch` names, for a command that works for one; else KdbtoolError."""
    if values == ["native"]:
        values = sorted(_native())
    if not values or len(values) != 1 or values[0] == "all":
        why = f"--arch names {', '.join(values)[:80]}" if values else None
        hint = "name one with --arch A[:CU], e.g. --arch gfx1030:36"
        raise KdbtoolError("one device is wanted", why=why, hint=hint)
    return targets.split_target(values[0])


def _native() -> set[str]:
    """The devices present, as `gfx1030:36`."""
    hint = "name the architecture instead, such as --arch gfx1030"
    try:
        found = {f"{arch}:{cu}" for name, cu in _devices() if is_arch(arch := name.partition(":")[0])}
    except ModuleNotFoundError:
        why, hint = "hip-python is not installed", f"pip install 'kdbtool[gpu]', or {hint}"
    except Exception as error:  # hip-python opens the runtime at the first call, and fails in its own ways
        why = str(error)[:100]
    else:
        if found:
            return found
        raise KdbtoolError("no AMD GPU is present", where="--arch native", hint=hint)
    raise KdbtoolError("cannot ask for the devices present", where="--arch native", why=why, hint=hint)


def _devices() -> list[tuple[str, int]]:
    """gcnArchName (`gfx90a:sramecc+:xnack-`) and units of every device; whatever hip-python raises."""
    from hip import hip

    status, count = hip.hipGetDeviceCount()
    names = []
    for device in range(count if int(status) == 0 else 0):
        properties = hip.hipDeviceProp_t()
        (status,) = hip.hipGetDeviceProperties(properties, device)
        if int(status) == 0:
            name = bytes(properties.gcnArchName).partition(b"\0")[0].decode("ascii", "replace")
            names.append((name, int(properties.multiProcessorCount)))
    return names
