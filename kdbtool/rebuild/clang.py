"""The back end that starts clang as a process: ROCm's, a distribution's (15 to 22), here or in a root.

MIOpen's own offline builds do the same (src/hip/hip_build_utils.cpp), so the code is the same too.
Each worker has a folder with the headers of the source set; a kernel's source is written beside them
and everything but the headers is removed after it. Names on the command line are relative, so no
folder reaches an object.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import stat
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from kdbtool.reasons import Reason
from kdbtool.rebuild.backend import Backend, Identity, Limits, Outcome, Task, Toolchain
from kdbtool.rebuild.place import ENVIRONMENT, MAX_FILE, Place, Ran
from kdbtool.rebuild.recipe import Recipe

OBJECT = ".object"  # no kernel source or header begins with a dot
_VERSION = re.compile(r"clang version (\d+)\.[^\n]*")
_LINE = re.compile(r'^# \d+ "(/[^"\n]+)"', re.MULTILINE)  # where preprocessed text came from

# What the kernels of MIOpen include; whether a header is there is part of a compiler's identity.
_PROBES = {
    "hip": (
        "probe.cpp",
        "".join(
            f"#if __has_include(<{name}>)\n#include <{name}>\n#endif\n"
            for name in (
                "hip/hip_fp16.h",
                "hip/hip_bfloat16.h",
                "hip/hip_fp8.h",
                "cmath",
                "limits",
                "type_traits",
                "cstdint",
                "array",
                "initializer_list",
            )
        )
        + "#include <hip/hip_runtime.h>\n__global__ void probe(float* x) { *x = __expf(*x); }\n",
    ),
    "opencl": ("probe.cl", "__kernel void probe(__global float* x) { *x = exp(*x); }\n"),
    "asm": ("probe.s", "s_endpgm\n"),
}


class Clang(Backend):
    """`compiler` is the path of a clang, as its `place` sees it."""

    def __init__(self, compiler: str, recipe: Recipe, place: Place) -> None:
        self.compiler, self.recipe, self.place = compiler, recipe, place
        self.kept: frozenset[str] = frozenset()

    def describe(self) -> str:
        return f"{self.compiler} ({self.place})"

    def enter(self, work: Path, headers: Mapping[str, bytes]) -> None:
        for name, text in headers.items():
            (work / name).write_bytes(text)
        self.kept = frozenset(headers)
        self.place.enter(work)

    def compile(self, task: Task, identity: Identity, limits: Limits) -> Outcome:
        argv = self._argv(task.language, task.options, task.target, identity.major, task.source)
        began = time.monotonic()
        try:
            (self.place.work / task.source).write_bytes(task.text)
            ran = self.place.run(argv, timeout=limits.seconds, memory=limits.memory)
            code, reason, detail = self._judge(ran, limits)
        finally:
            self._clean()
        seconds = time.monotonic() - began
        return Outcome(task.digest, code, reason, detail, "" if code else ran.log, argv, seconds)

    def probe(self, targets: Mapping[str, list[str]], limits: Limits) -> Identity:
        ran = self.place.run([self.compiler, "--version"], timeout=limits.seconds, memory=limits.memory)
        match = _VERSION.search(ran.log)
        if ran.returncode != 0 or not match:
            said = _first_error(ran.log) or f"exit status {ran.returncode}"
            tool = Toolchain(why=f"{self.compiler} does not say that it is a clang: {said}")
            return Identity(
                "clang", "unknown", 0, {(lang, t): tool for lang in targets for t in targets[lang]}
            )
        major = int(match[1])
        found: dict[tuple[str, str], Toolchain] = {}
        for language, ids in targets.items():
            headers = ""
            for target in ids:
                tool = self._toolchain(language, target, major, limits, headers)
                found[language, target] = tool
                headers = headers or tool.headers
        return Identity("clang", match[0], major, found)

    def reproduce(self, outcome: Outcome) -> str:
        environment = " ".join(shlex.quote(f"{name}={value}") for name, value in sorted(ENVIRONMENT.items()))
        where = "" if self.place.root is None else f"# Run it inside {self.place}.\n"
        return (
            "#!/bin/sh\n# Compiles this kernel again as kdbtool rebuild did.\n"
            f'{where}set -e\ncd "$(dirname "$0")"\n'
            'work=$(mktemp -d)\ncp -- ../headers/* ./source/* "$work"\ncd "$work"\n'
            f"exec env -i {environment} {shlex.join(outcome.argv)}\n"
        )

    def _argv(
        self, language: str, options: tuple[str, ...], target: str, major: int, source: str
    ) -> tuple[str, ...]:
        # One binary for all: clang++ is clang in this mode. A crash is logged, not written up in files.
        mode = ("--driver-mode=g++",) if language == "hip" else ()
        words = self.recipe.arguments(language, options, target, major, source=source, output=OBJECT)
        return (self.compiler, *mode, "-fno-crash-diagnostics", *words)

    def _judge(self, ran: Ran, limits: Limits) -> tuple[bytes | None, Reason | None, str]:
        if ran.returncode is None:
            return None, Reason.COMPILE_TIMEOUT, f"still running after {limits.seconds:g} s"
        if ran.returncode < 0:
            return None, Reason.COMPILE_KILLED, f"signal {-ran.returncode}"
        if ran.returncode > 0:
            said = _first_error(ran.log)
            return None, Reason.COMPILE_FAILED, said or f"exit status {ran.returncode}, nothing said"
        try:
            # The compiler's output is no more trusted than its input: a link could lead anywhere.
            handle = os.open(self.place.work / OBJECT, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            return None, Reason.BAD_OBJECT, f"no output file ({error.strerror})"
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE:
            os.close(handle)
            return None, Reason.BAD_OBJECT, "the output is no file, or too large"
        with os.fdopen(handle, "rb") as file:
            code = file.read(MAX_FILE)
        return (code, None, "") if code else (None, Reason.BAD_OBJECT, "the output file is empty")

    def _clean(self) -> None:
        for entry in list(os.scandir(self.place.work)):
            if entry.name not in self.kept:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    with contextlib.suppress(OSError):
                        os.unlink(entry.path)  # noqa: PTH108 - a DirEntry, not a Path

    def _toolchain(self, language: str, target: str, major: int, limits: Limits, headers: str) -> Toolchain:
        """Build a small kernel, or say why not; what was it built from? `headers`: their hash if known."""
        name, text = _PROBES[language]
        argv = self._argv(language, (), target, major, name)
        libraries: set[str] = set()
        included: set[str] = set()
        for more in ("", "-###", "-E"):
            if more == "-E" and (headers or language == "asm"):
                continue
            try:
                (self.place.work / name).write_text(text)
                ran = self.place.run(
                    [*argv, more] if more else argv, timeout=limits.seconds, memory=limits.memory
                )
                code, _, why = self._judge(ran, limits)
                if more == "-###":
                    libraries = _following(ran.log, "-mlink-builtin-bitcode")
                elif code is None:
                    return Toolchain(why=why)
                elif more == "-E":  # -M does nothing for HIP with --cuda-device-only
                    included = set(_LINE.findall(code.decode("utf-8", "replace")))
            finally:
                self._clean()
        try:
            return Toolchain(self._hash(libraries), headers or self._hash(included))
        except OSError as error:
            return Toolchain(why=f"cannot read {error.filename}: {error.strerror}")

    def _hash(self, paths: Iterable[str]) -> str:
        """sha256 over the contents, in an order that no path decides."""
        each = {hashlib.sha256(self.place.outside(path).read_bytes()).hexdigest() for path in paths}
        return hashlib.sha256("\n".join(sorted(each)).encode()).hexdigest()


def _following(log: str, option: str) -> set[str]:
    """The words after each `option` in what `clang -###` prints."""
    found: set[str] = set()
    for line in log.splitlines():
        if option in line:
            words = shlex.split(line)
            found |= {words[i + 1] for i, word in enumerate(words[:-1]) if word == option}
    return found


def _first_error(log: str) -> str:
    """The first line that says `error`, else the last that says anything; at most 300 characters."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line]
    return (errors or lines[-1:] or [""])[0][:300]
