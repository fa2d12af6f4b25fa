"""Names of MIOpen's database files, both ways.

MIOpen forms a base name from the device (src/target_properties.cpp `InitDbId`,
src/include/miopen/handle.hpp `GetDbBasename`, rocm-5.0.0 to develop of October 2024):
architecture, `_nosramecc` or `_sramecc` (in practice never), `_xnack` where the device reports
xnack+, then the number of compute units: `_` and decimal up to 64, hexadecimal glued on above.
Newer files glue hexadecimal on below 64 too (`gfx115128` is 40 units) and use `_` for the rest.
On RDNA the number counts work group processors: an RX 6800 XT with 72 CUs is `gfx1030_36`. What an
architecture's number counts, and which counts exist, is data in kdbtool/targets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

from kdbtool import targets
from kdbtool.codeobject.flags import ARCHS

# Longest first, so that gfx1030_36 is not read as some gfx10 with a count.
_ARCH = "|".join(sorted(ARCHS, key=lambda a: (-len(a), a)))
_BASE = re.compile(
    rf"(?P<arch>{_ARCH})(?P<ecc>_sramecc|_nosramecc)?(?P<xnack>_xnack)?"
    r"(?:_(?P<dec>[1-9][0-9]{0,3})|(?P<hex>[1-9a-f][0-9a-f]{0,3}))?"
)
# Endings of each kind of file, longest first; `.bz2` may follow any.
_KINDS = (
    (".fdb.txt", "find-db"),
    (".ufdb.txt", "user-find-db"),
    (".udb.txt", "user-perf-db"),
    (".db.txt", "perf-db"),
    (".ukdb", "ukdb"),
    (".kdb", "kdb"),
    (".udb", "user-perf-db"),
    (".db", "perf-db"),
)
# Where targets/ has no data: from gfx10 on hipDeviceAttributeMultiprocessorCount counts WGPs.
_WGP = re.compile(r"gfx1[0-9a-f]{3}")


@dataclass(frozen=True)
class KdbName:
    """What a file name says. `cu` None: no count in the name. `kind`: `kdb`, `ukdb`, `find-db`, ..."""

    arch: str
    cu: int | None
    xnack: bool
    kind: str
    compressed: bool = False
    sramecc: bool | None = None

    @property
    def unit(self) -> str:
        """What the count counts: `WGP` on RDNA, else `CU`."""
        if self.arch in targets.known():
            return targets.load(self.arch).cu_unit
        return "WGP" if _WGP.fullmatch(self.arch) else "CU"

    @property
    def is_known_count(self) -> bool | None:
        """Whether a device with this count exists; None where the name has none or targets/ no such arch.

        One that does not exist is an override or a partition: MIOpen names the file after what HIP reports.
        """
        if self.cu is None or self.arch not in targets.known():
            return None
        return self.cu in targets.load(self.arch).cu_known


def parse_name(name: str | PurePath) -> KdbName | None:
    """What a file name (or path) says, None when it is not a name of MIOpen's.

    >>> parse_name("gfx90878.kdb")
    KdbName(arch='gfx908', cu=120, xnack=False, kind='kdb', compressed=False, sramecc=None)
    """
    text = PurePath(name).name
    compressed = text.endswith(".bz2")
    text = text.removesuffix(".bz2")
    for ending, kind in _KINDS:
        if text.endswith(ending):
            base = text.removesuffix(ending)
            if kind not in ("kdb", "ukdb"):
                base = base.partition(".")[0]  # gfx1030_36.HIP, gfx1030_36.HIP.3_4_0_
            return _parse_base(base, kind, compressed)
    return None


def parse_base(base: str) -> KdbName | None:
    """The same for a base name alone: `gfx90a6e`."""
    return _parse_base(base, "", False)


def _parse_base(base: str, kind: str, compressed: bool) -> KdbName | None:
    # fullmatch backtracks: gfx90a is an architecture, not gfx90 with 10 units; of two readings the
    # longer architecture wins since it stands first.
    match = _BASE.fullmatch(base)
    if match is None:
        return None
    cu = None
    if match["dec"]:
        cu = int(match["dec"])
    elif match["hex"]:
        cu = int(match["hex"], 16)
    sramecc = None if match["ecc"] is None else match["ecc"] == "_sramecc"
    return KdbName(match["arch"], cu, match["xnack"] is not None, kind, compressed, sramecc)


def base_name(arch: str, cu: int | None = None, *, xnack: bool = False) -> str:
    """The base name that MIOpen forms for a device, `gfx90878`; without `cu` the part that names no count."""
    base = arch + ("_xnack" if xnack else "")
    if cu is None:
        return base
    return f"{base}_{cu}" if cu <= 64 else f"{base}{cu:x}"


def file_name(arch: str, cu: int | None = None, *, xnack: bool = False, kind: str = "kdb") -> str:
    """`gfx1030.kdb`, `gfx1030_36.ukdb`."""
    return f"{base_name(arch, cu, xnack=xnack)}.{kind}"


def system_names(arch: str, cu: int, *, xnack: bool = False) -> tuple[str, ...]:
    """The system kdbs that MIOpen tries, in order; it takes the first that exists and no other.

    The second is tried since 5.7 (src/binary_cache.cpp `GetDb`).
    """
    return file_name(arch, cu, xnack=xnack), file_name(arch, xnack=xnack)
