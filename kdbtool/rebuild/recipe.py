"""What MIOpen puts on a compiler's command line beside a key's options, as data per version.

The data is `recipes/*.toml`; each file says where it was read. A recipe turns (options, target) into
the arguments of one compiler process. Its identity goes into a kdb's provenance, since another recipe
makes another object of the same key.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from kdbtool.errors import KdbtoolError

LANGUAGES = ("hip", "opencl", "asm")
_RELEASE = re.compile(r"(\d{1,4})\.(\d{1,4})(?:\.\d{1,4}){0,2}")


@dataclass(frozen=True)
class Command:
    """One language of a recipe. `command` is a list of words, `{...}` among them filled in per row."""

    words: tuple[str, ...]
    append: str = ""  # text that MIOpen puts behind the source
    std: str = ""  # the language standard unless the options name one
    since_clang: dict[str, int] = field(default_factory=dict)  # options unknown to older compilers
    arch_defines: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """The commands of one MIOpen release. `id` names the recipe, `digest` its content (sha256, hex)."""

    id: str
    release: str  # ROCm, "6.4"
    hip_version: int  # HIP_PACKAGE_VERSION_FLAT
    commands: dict[str, Command]
    digest: str

    def source_text(self, language: str, source: bytes) -> bytes:
        """The text that is compiled for a kernel source."""
        return source + self.commands[language].append.encode()

    def arguments(
        self,
        language: str,
        options: tuple[str, ...],
        target: str,
        clang: int,
        *,
        source: str,
        output: str,
    ) -> tuple[str, ...]:
        """The arguments of a clang of major version `clang`, without the compiler's own name.

        `target` is a target id (`gfx1030`, `gfx906:xnack-`); `source` and `output` are file names in
        the folder that clang runs in.
        """
        command = self.commands[language]
        named = any("-std=" in option for option in options)
        fill: dict[str, tuple[str, ...]] = {
            "{options}": tuple(o for o in options if not o.startswith("-mcpu=")),
            "{std}": (command.std,) if command.std and not named else (),
            "{arch-defines}": command.arch_defines.get(target.split(":")[0], ()),
            "{in}": (source,),
            "{out}": (output,),
        }
        out: list[str] = []
        for word in command.words:
            if word in fill:
                out += fill[word]
            elif clang >= command.since_clang.get(word, 0):
                out.append(word.replace("{target}", target).replace("{hip-version}", str(self.hip_version)))
        return tuple(out)


def for_release(release: str) -> Recipe:
    """The recipe of a ROCm release (`6.4.3`), or KdbtoolError."""
    match = _RELEASE.fullmatch(release)
    data = _data()
    found = None
    if match:
        version = (int(match[1]), int(match[2]))
        for entry in data["recipe"]:
            if _version(entry["since"]) <= version < _version(entry["until"]):
                found = entry
    if match is None or found is None:
        known = f"{data['recipe'][0]['since']} to {data['recipe'][-1]['until']} (not included)"
        raise KdbtoolError(
            f"no build recipe for MIOpen {release}",
            why=f"recipes are there for ROCm {known}",
            hint="--miopen RELEASE takes the recipe of another one",
        )
    minor = f"{match[1]}.{match[2]}"
    hip_version = data["hip_versions"].get(minor, int(match[1]) * 10**9 + int(match[2]) * 10**6)
    commands = {language: _command(found[language]) for language in LANGUAGES if language in found}
    decides = {name: value for name, value in found.items() if name != "source"}  # where it was read
    content = json.dumps([decides, hip_version], sort_keys=True)
    return Recipe(found["id"], minor, hip_version, commands, hashlib.sha256(content.encode()).hexdigest())


def _command(entry: dict[str, Any]) -> Command:
    return Command(
        tuple(entry["command"].split()),
        entry.get("append", ""),
        entry.get("std", ""),
        dict(entry.get("since_clang", {})),
        {arch: tuple(words) for arch, words in entry.get("arch_defines", {}).items()},
    )


def _version(text: str) -> tuple[int, int]:
    parts = [int(part) for part in text.split(".")]
    return parts[0], parts[1] if len(parts) > 1 else 0


@cache
def _data() -> dict[str, Any]:
    text = resources.files("kdbtool.rebuild").joinpath("recipes/offline.toml").read_text("utf-8")
    return tomllib.loads(text)
