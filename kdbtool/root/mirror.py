"""The host's own Debian archive and the apt settings that reaching it needs.

Nothing here has a default address: it is the host's first Debian source (one-line or deb822
format), or `--mirror`. Security suites, other vendors' archives and disabled entries are passed over.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from kdbtool.errors import KdbtoolError

# Suites that only Debian's main archive has; Ubuntu's and vendors' have other names.
_DEBIAN = re.compile(
    r"(?:(?:old)*stable|testing|unstable|sid|experimental|bullseye|bookworm|trixie|forky|duke)"
    r"(?:-(?:updates|backports|proposed-updates))?\Z"
)
# Of the host's apt configuration, only how to reach an archive; never hooks or credentials files.
_CARRIED = re.compile(
    r"Acquire::(?:(?:http|https|ftp)::(?:Proxy(?:::[^\s]+)?|Timeout|No-Cache)|Retries|Check-Date"
    r"|Check-Valid-Until|ForceIPv4|ForceIPv6)\Z"
)
_SIZE_LIMIT = 1 << 20


def host_mirror(etc: Path = Path("/etc/apt")) -> str:
    """The address of the host's Debian archive, without a closing slash.

    KdbtoolError when the host has none: the user names one with `--mirror`.
    """
    files = [etc / "sources.list"]
    files += sorted((etc / "sources.list.d").glob("*"))
    for file in files:
        if not file.is_file() or file.stat().st_size > _SIZE_LIMIT:
            continue
        text = file.read_text("utf-8", "replace")
        if file.suffix == ".list":
            found = _one_line(text)
        elif file.suffix == ".sources":
            found = _deb822(text)
        else:
            continue
        for uri, suite, components in found:
            if _DEBIAN.match(suite) and "main" in components:
                return uri.rstrip("/")
    raise KdbtoolError(
        "no Debian archive among the host's apt sources", where=etc, hint="name one with --mirror URL"
    )


def _one_line(text: str) -> Iterator[tuple[str, str, list[str]]]:
    for line in text.splitlines():
        line = re.sub(r"\[[^]]*\]", " ", line.partition("#")[0], count=1)
        words = line.split()
        if len(words) >= 4 and words[0] == "deb":
            yield words[1], words[2], words[3:]


def _deb822(text: str) -> Iterator[tuple[str, str, list[str]]]:
    # Comment lines may stand inside a field (deb822(5)), so they go first.
    text = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for stanza in re.split(r"\n[ \t]*\n", text):
        fields: dict[str, str] = {}
        name = ""
        for line in stanza.splitlines():
            if line[:1] in (" ", "\t"):
                if name:
                    fields[name] += " " + line.strip()
            elif ":" in line:
                name, _, value = line.partition(":")
                name = name.strip().lower()
                fields[name] = value.strip()
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in (
            "no",
            "false",
            "0",
            "off",
        ):
            continue
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                yield uri, suite, fields.get("components", "").split()


def checked_mirror(uri: str) -> str:
    """A `--mirror` value, or KdbtoolError: an http, https or file address without blanks."""
    if not re.match(r"(?:https?|file)://?[^\s\"\[\]]+\Z", uri):
        raise KdbtoolError(f"not a mirror address: {uri!r}", why="wanted: http://, https:// or file:///")
    return uri.rstrip("/")


def host_apt_settings() -> dict[str, str]:
    """Proxy, retry and date settings of the host's apt; empty where there is no apt."""
    try:
        done = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return {}
    settings = {}
    for line in done.stdout.splitlines():
        match = re.match(r'(\S+) "(.*)";\Z', line)
        if match and _CARRIED.match(match[1]) and '"' not in match[2]:
            settings[match[1]] = match[2]
    return settings


def apt_conf(settings: dict[str, str]) -> str:
    """The root's apt configuration.

    An archive snapshot's Release is past its Valid-Until; in a root that is pinned by a lock that
    says nothing about safety, so the check is off there, and only there.
    """
    lines = {"Acquire::Check-Valid-Until": "false", "APT::Install-Recommends": "false"} | settings
    lines["Acquire::Check-Valid-Until"] = "false"
    return "".join(f'{name} "{value}";\n' for name, value in sorted(lines.items()))


def proxy_environment(settings: dict[str, str]) -> dict[str, str]:
    """http_proxy and https_proxy for programs that do not read apt's configuration."""
    found = {}
    for scheme in ("http", "https"):
        value = settings.get(f"Acquire::{scheme}::Proxy", "")
        if value and value != "DIRECT":
            found[f"{scheme}_proxy"] = value
    return found
