"""The closed list of what `kdbtool verify` can find, and what each finding means to MIOpen.

Every finding has a code, a severity (a *problem* makes verify exit with 1, a *note* does not), what
is wrong, what MIOpen does about it, and the next command. What MIOpen does was read in
src/kern_db.cpp, src/include/miopen/{kern_db,sqlite_db}.hpp, src/bz2.cpp and src/sqlite_db.cpp
(rocm-5.0.0 to develop of October 2024) and seen with 6.4.3. docs/kdb-format.md holds the same table.
"""

from __future__ import annotations

import enum
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kdbtool.errors import printable
from kdbtool.reasons import Reason


class Severity(enum.Enum):
    """Whether a finding makes the file unfit."""

    PROBLEM = "problem"
    NOTE = "note"


class Consequence(enum.Enum):
    """What MIOpen does when it meets the row or the file."""

    THROWS = "throws"  # the API call fails; MIOpen does not fall back to compiling
    NEVER_HIT = "never hit"  # MIOpen compiles the kernel as if the row were not there
    WRONG_CODE = "wrong code"  # code for other devices: refused by a driver that checks, else wrong results
    HARMLESS = "harmless"


_REBUILD = "kdbtool manifest {file} -o new.kdbmanifest, then kdbtool rebuild new.kdbmanifest"
_DROP = "kdbtool manifest {file} --drop dead --miopen VERSION -o new.kdbmanifest, then kdbtool rebuild it"
_FIX = "kdbtool fix {file} -o new.kdb"
_SALVAGE = "get the file again, or: kdbtool salvage {file} -o new.kdb"
_RENAME = "rename it to ARCH.kdb"
_NONE = "nothing to do"
_FETCH = "get the file again from where it came"

_P, _N = Severity.PROBLEM, Severity.NOTE
_T, _NEVER, _W, _H = Consequence.THROWS, Consequence.NEVER_HIT, Consequence.WRONG_CODE, Consequence.HARMLESS


class Code(enum.Enum):
    """code, severity, reason, consequence, next command."""

    # The file.
    MALFORMED = ("malformed", _P, "SQLite finds the file damaged", _T, _SALVAGE)
    UNREADABLE = (
        "unreadable-rows",
        _P,
        "a damaged page holds the rows, or the blob of the row: SQLite cannot read them",
        _T,
        _SALVAGE,
    )
    JOURNAL = (
        "journal=wal",
        _P,
        "the file is in WAL mode: MIOpen cannot open it in a folder that is not writable",
        _T,
        _FIX,
    )
    SIDE_FILES = (
        "side-files",
        _P,
        "rows may still be in the -wal or -journal beside it",
        _NEVER,
        _FIX,
    )
    NO_COLUMN = ("no-column", _P, "the table lacks a column that MIOpen reads", _T, _FETCH)
    NO_INDEX = ("no-index", _N, "no index on the key: every look-up reads the whole table", _H, _FIX)
    DUPLICATE_KEY = (
        "duplicate-key",
        _P,
        "several rows have this key, and MIOpen takes whichever SQLite gives first",
        _W,
        _FIX,
    )
    EXTRA_COLUMN = ("extra-column", _N, "a column that MIOpen does not know", _H, _NONE)
    EXTRA_TABLE = ("extra-table", _N, "a table that neither MIOpen nor kdbtool makes", _H, _NONE)
    USER_VERSION = ("user-version", _N, "user_version or application_id is not 0", _H, _NONE)
    ENCODING = ("encoding", _N, "the text encoding is not UTF-8", _H, _FIX)
    PAGE_SIZE = ("page-size", _N, "the page size is not 4096", _H, _NONE)
    FREE_PAGES = ("free-pages", _N, "the file holds unused pages", _H, _FIX)
    FILE_NAME = (
        "file-name",
        _N,
        "MIOpen opens no kernel database of this name",
        _NEVER,
        _RENAME,
    )
    SHADOWS = (
        "shadows",
        _N,
        "a name with a CU count hides ARCH.kdb from devices of that count, and from others this file",
        _H,
        "rename it to ARCH.kdb (MIOpen 5.7 or newer)",
    )
    FILE_MODE = ("file-mode", _N, "other users cannot read the file", _H, "chmod 644 {file}")
    NO_PROVENANCE = ("no-provenance", _N, "nothing says which MIOpen the rows were built for", _H, _NONE)
    BAD_PROVENANCE = (
        "bad-provenance",
        _P,
        "the rows are not those that the provenance table was written for",
        _W,
        _REBUILD,
    )
    # The key of a row.
    QUOTE = ("unreachable-quote", _P, Reason.QUOTE.text, _NEVER, _DROP)
    NOT_TEXT = ("unreachable-type", _P, "the key is not stored as text, or holds a NUL", _NEVER, _FIX)
    NO_DOT_O = ("unreachable-no-dot-o", _P, Reason.NO_DOT_O.text, _NEVER, _FIX)
    NO_MCPU = ("unreachable-no-mcpu", _P, Reason.NO_MCPU.text, _NEVER, _FIX)
    FOREIGN_MCPU = ("unreachable-foreign-mcpu", _P, Reason.FOREIGN_MCPU.text, _NEVER, _DROP)
    TARGET_ID = ("unreachable-target-id", _P, Reason.TARGET_ID.text, _NEVER, _FIX)
    NO_SOURCE = ("unreachable-no-source", _P, Reason.NO_SOURCE.text, _NEVER, _DROP)
    EPOCH = ("unreachable-epoch", _P, Reason.EPOCH.text, _NEVER, _DROP)
    TWIN = ("twin", _N, "once repaired, the key is that of another row", _H, _DROP)
    REPEATED_DEFINES = (
        "repeated-defines",
        _N,
        "a definition is repeated: MIOpen asks so on some paths (the doubled spelling)",
        _H,
        _NONE,
    )
    # Where a row comes from, against the MIOpen, manifest or database that it is compared with.
    OTHER_MIOPEN = (
        "other-miopen",
        _P,
        "the file was built for another MIOpen, whose host code may launch the kernels differently",
        _W,
        _REBUILD,
    )
    STALE = (
        "stale",
        _P,
        "the row was built from another text of the source or its headers",
        _W,
        _REBUILD,
    )
    UNPROVED = (
        "source-unknown",
        _N,
        "nothing says which text of the source the row was built from: it may be stale",
        _H,
        _REBUILD,
    )
    MISSING_ROW = (
        "missing-row",
        _P,
        "the row is there, not here",
        _NEVER,
        "kdbtool rebuild MANIFEST -o new.kdb",
    )
    EXTRA_ROW = ("extra-row", _N, "the row is here, not there", _H, _NONE)
    OTHER_CODE = ("other-code", _P, "the row has other code there", _W, "kdbtool diff {file} OTHER")
    OTHER_BYTES = ("other-bytes", _N, "the same code in other bytes there", _H, _NONE)
    # The blob of a row.
    BAD_BZ2 = ("bad-bz2", _P, "the blob is no bzip2 stream that decodes", _T, _REBUILD)
    BZ2_TAIL = ("bz2-tail", _N, "bytes follow the end of the bzip2 stream", _H, _FIX)
    SIZE_SMALL = ("size-small", _P, "the object is larger than uncompressed_size", _T, _FIX)
    SIZE_LARGE = ("size-large", _N, "the object is smaller than uncompressed_size", _H, _FIX)
    BAD_SIZE = (
        "bad-size",
        _P,
        "uncompressed_size is no size: MIOpen allots it modulo 2**32 bytes, or throws",
        _T,
        _FIX,
    )
    HASH_WRONG = ("hash-wrong", _P, "kernel_hash is not the MD5 of the object", _T, _REBUILD)
    HASH_OF_COMPRESSED = (
        "hash-of-compressed",
        _P,
        "kernel_hash is the MD5 of the compressed bytes, not of the object",
        _T,
        _FIX,
    )
    HASH_CASE = ("hash-case", _P, "kernel_hash is right but not in lower-case hexadecimal", _T, _FIX)
    # The object.
    NOT_ELF = ("not-elf", _P, "the object is neither an ELF nor an offload bundle", _T, _REBUILD)
    BAD_ELF = ("bad-elf", _P, "the ELF is cut or damaged", _T, _REBUILD)
    BAD_BUNDLE = ("bad-bundle", _P, "the offload bundle is cut, damaged or without device code", _T, _REBUILD)
    BUNDLE_TARGET = (
        "bundle-target",
        _P,
        "the offload bundle announces another target than its ELF was built for",
        _T,
        _REBUILD,
    )
    BUNDLE_LANGUAGE = (
        "bundle-language",
        _N,
        "an offload bundle of a kernel that is not HIP: MIOpen makes none, but loads it",
        _H,
        _NONE,
    )
    ELF_CLASS = ("elf-class", _P, "the ELF is not 64-bit little-endian", _T, _REBUILD)
    ELF_MACHINE = ("elf-machine", _P, "the ELF is not for AMD GPUs under HSA", _T, _REBUILD)
    ELF_ARCH = ("elf-arch", _P, "the ELF is for another architecture than -mcpu says", _T, _REBUILD)
    GENERIC_ARCH = (
        "generic-arch",
        _N,
        "built for a generic target that covers the architecture: MIOpen never builds so",
        _H,
        _NONE,
    )
    FEATURES_FOREIGN = (
        "features-foreign",
        _P,
        "built for a setting of xnack or sramecc that the devices do not have",
        _W,
        _REBUILD,
    )
    FEATURES_EXPLICIT = (
        "features-explicit",
        _N,
        "built for the devices' usual setting of xnack or sramecc only: refused on the other one",
        _H,
        _NONE,
    )
    OBJECT_VERSION = (
        "object-version",
        _P,
        "a code object version that no loader takes",
        _T,
        _REBUILD,
    )
    OBJECT_OLD = ("object-old", _N, "code object version 2 or 3: newer loaders may refuse it", _H, _REBUILD)
    BAD_METADATA = ("bad-metadata", _P, "the metadata note is damaged", _T, _REBUILD)
    NO_METADATA = ("no-metadata", _P, "no metadata note: HIP finds no kernel in the object", _T, _REBUILD)
    TARGET_DISAGREES = (
        "target-disagrees",
        _P,
        "the metadata names another target than the ELF flags",
        _W,
        _REBUILD,
    )
    NO_KERNELS = ("no-kernels", _P, "the object holds no kernel symbol (NAME.kd)", _T, _REBUILD)
    KERNEL_NO_METADATA = ("kernel-no-metadata", _P, "a kernel symbol without its metadata", _T, _REBUILD)
    METADATA_NO_KERNEL = (
        "metadata-no-kernel",
        _P,
        "metadata of a kernel that is not there",
        _T,
        _REBUILD,
    )
    SYMBOL_MISSING = (
        "symbol-missing",
        _P,
        "the object lacks a kernel that the source defines: launching it throws",
        _T,
        _REBUILD,
    )
    SYMBOL_EXTRA = ("symbol-extra", _N, "the object has a kernel that the source does not define", _H, _NONE)
    BAD_DESCRIPTOR = (
        "bad-descriptor",
        _P,
        "a kernel descriptor lies outside the loaded bytes or points outside them",
        _T,
        _REBUILD,
    )

    def __init__(
        self, code: str, severity: Severity, reason: str, consequence: Consequence, step: str
    ) -> None:
        self.code = code
        self.severity = severity
        self.reason = reason
        self.consequence = consequence
        self.step = step

    def next_command(self, path: Path | str, miopen: str | None = None) -> str:
        """What to do next about it, for the file `path` judged against `--miopen`."""
        text = self.step.replace("VERSION", shlex.quote(printable(miopen))) if miopen else self.step
        return text.replace("{file}", shlex.quote(printable(str(path))))


BY_CODE = {c.code: c for c in Code}


@dataclass(frozen=True)
class Finding:
    """One finding: where and what exactly. `row`: the rowid; None for the file or a row that is absent."""

    code: Code
    detail: str = ""
    row: int | None = None
    name: bytes = b""

    def at(self, row: int, name: bytes) -> Finding:
        """The same finding, placed at a row."""
        return replace(self, row=row, name=name)

    @property
    def is_problem(self) -> bool:
        """Whether it makes the file unfit."""
        return self.code.severity is Severity.PROBLEM

    def json(self, path: Path, miopen: str | None = None) -> dict[str, Any]:
        """As `--json` shows it; `path` and `miopen` as in Code.next_command."""
        return {
            "code": self.code.code,
            "severity": self.code.severity.value,
            "row": self.row,
            "name": printable(self.name) if self.name or self.row is not None else None,
            "reason": self.code.reason,
            "detail": printable(self.detail),
            "consequence": self.code.consequence.value,
            "next": self.code.next_command(path, miopen),
        }
