"""Stand-ins for debootstrap, apt, chroot and the namespace tools, to test `make` without an archive.

Each notes its name in `$HOME/journal`. When `$HOME/kill-at` holds that name, it kills its parent
(the maker) with -9 half way through its work, once.
"""

from __future__ import annotations

import os
from pathlib import Path

_HEAD = """#!/bin/sh
set -e
step() {
    echo "$*" >> "$HOME/journal"
    if [ -e "$HOME/kill-at" ] && [ "$1" = "$(cat "$HOME/kill-at")" ]; then
        rm "$HOME/kill-at"
        kill -9 $PPID
        exit 1
    fi
    if [ -e "$HOME/fail-at" ] && [ "$1" = "$(cat "$HOME/fail-at")" ]; then
        echo "E: no such thing" >&2
        exit 100
    fi
}
"""

_TOOLS = {
    "setpriv": 'shift 2; exec "$@"',
    "unshare": 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"',
    "mount": ":",
    "newuidmap": ":",
    "apt-config": ":",
    "dpkg-deb": 'echo Package: $(basename "$2" | cut -d_ -f1)',
    "debootstrap": r"""
for last; do from=$target; target=$last; done
target=$from
for a; do case $a in --cache-dir=*) echo base > "${a#*=}/base_1_amd64.deb";; esac; done
mkdir -p "$target/etc" "$target/usr/sbin" "$target/var/lib/dpkg"
step debootstrap "$@"
""",
    "chroot": r"""
root=$1; shift
debs=${root%.making}.debs
case "$1 $2" in
"dpkg --configure") step configure ;;
"apt-get update") step update ;;
"apt-get -y")
    case "$*" in
    *--fix-broken*) step mend ;;
    *)
        echo tool > "$debs/tool_1%3a2_amd64.deb"
        step install "$@"
        for n in NEEDS; do mkdir -p "$(dirname "$root/$n")"; : > "$root/$n"; done
        ;;
    esac ;;
"dpkg-query -W") step query; printf 'base 1 amd64\ntool 1:2 amd64\n' ;;
"apt-cache show")
    step show
    printf 'Package: base\nVersion: 1\nFilename: pool/base_1_amd64.deb\n\n'
    printf 'Package: tool\nVersion: 1:2\nFilename: pool/tool_2_amd64.deb\n' ;;
"sh -c") step clean ;;
*) echo "unknown: $*" >&2; exit 64 ;;
esac
""",
}


def install(folder: Path, needs: tuple[str, ...]) -> dict[str, str]:
    """Write the tools; the environment in which they are found. `folder` becomes HOME."""
    tools = folder / "bin"
    tools.mkdir(parents=True)
    for name, text in _TOOLS.items():
        path = tools / name
        path.write_text(_HEAD + text.replace("NEEDS", " ".join(needs)) + "\n")
        path.chmod(0o755)
    return {
        "HOME": str(folder),
        "PATH": f"{tools}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": "",
        "KDBTOOL_ROOT": "",
    }


def journal(folder: Path) -> list[str]:
    """First words of what ran so far."""
    path = folder / "journal"
    return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []
