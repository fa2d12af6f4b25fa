"""The closed list of reasons why a row is dropped, skipped, missed or failed.

Law 6 of the design: each such row carries all its reasons and is counted under the first of this
order. Commands print the code; the text beside it is what `--json` and the docs show. A reason
says what MIOpen or the build would do, never what we would like.
"""

from __future__ import annotations

import enum


class Reason(enum.Enum):
    """Ordered: the first that applies is the one that a row is counted under."""

    # Dead: MIOpen of the judged version can never ask for the row (reference: liveness test).
    NO_DOT_O = ("no-dot-o", "the kernel name does not end in .o, MIOpen always asks for one that does")
    QUOTE = ("quote", "a quote in the key ends MIOpen's SQL text early, so the row is never found")
    TARGET_ID = ("target-id", "-mcpu has a target id, MIOpen asks with the bare architecture")
    NO_MCPU = ("no-mcpu", "the arguments do not end in -mcpu=<arch>, MIOpen always appends it")
    FOREIGN_MCPU = ("foreign-mcpu", "-mcpu names another architecture than the database is for")
    NO_SOURCE = ("no-source", "this MIOpen has no kernel source of that name")
    EPOCH = ("epoch", "the data type defines are those of another MIOpen version")
    TWIN = ("twin", "once repaired, the row is the same as another one")
    # Dropped on request.
    ASM = ("asm", "an assembly kernel, dropped on request")
    ASM_GENERATED = ("asm-generated", "an assembly kernel that AMD's generator wrote, dropped on request")
    ASM_DISASSEMBLED = ("asm-disassembled", "assembly whose true source is not public, dropped on request")
    ASM_HANDWRITTEN = ("asm-handwritten", "an assembly kernel written by hand, dropped on request")
    SOURCE_DROPPED = ("source-dropped", "its kernel source matches --drop-source")
    FILTER = ("filter", "not selected by --arch, --kernel or --language")
    UNUSED = ("unused", "no trace of --used-by looked it up or loaded its object")
    NOT_TOP = ("not-top", "not among the most used kernels of --top")
    OVER_SIZE = ("over-size", "the kernel database would be larger than --max-size, and others are used more")
    # Never built.
    ASKED_UNBUILT = ("asked-unbuilt", "MIOpen asked, had no source, and went on without the kernel")
    # Not moved to another architecture.
    ARCH_SOURCE = ("arch-source", "the kernel source is written for a family of architectures")
    ARCH_OPTION = ("arch-option", "an option names the architecture or follows from the device")
    TUNED_OPTION = ("tuned-option", "an option is tuned, and another device is tuned otherwise")
    UNKNOWN_OPTION = ("unknown-option", "what an option depends on is not known")
    # Skipped or failed by rebuild.
    SOURCE_ABSENT = ("source-absent", "the kernel source is not among the given sources")
    SOURCE_CHANGED = ("source-changed", "the kernel source or a header differs from the manifest's")
    OPTION_REFUSED = ("option-refused", "a compiler option is not on the allow-list")
    NO_COMPILER = ("no-compiler", "no back end here builds this language")
    COMPILE_FAILED = ("compile-failed", "the compiler reported an error")
    COMPILE_TIMEOUT = ("compile-timeout", "the compiler ran past the time limit")
    COMPILE_KILLED = ("compile-killed", "the compiler was killed by a signal")
    BAD_OBJECT = ("bad-object", "the compiler's output did not pass verification")

    def __init__(self, code: str, text: str) -> None:
        self.code = code
        self.text = text

    @property
    def order(self) -> int:
        """Position in the fixed order."""
        return list(Reason).index(self)


BY_CODE = {r.code: r for r in Reason}


def first(reasons: set[Reason] | list[Reason] | tuple[Reason, ...]) -> Reason:
    """The one that a row with these reasons is counted under."""
    return min(reasons, key=lambda r: r.order)
