"""The peak memory of a program of its own, however large the tests' own process is.

`ru_maxrss` will not do: Linux hands it down over fork and exec, so a child of a large process begins with
that one's peak.
"""

from __future__ import annotations

import subprocess
import sys

_TAIL = """
import sys
with open("/proc/self/status") as status:
    peak = next(line.split()[1] for line in status if line.startswith("VmHWM:"))
print("peak", peak, file=sys.stderr)
"""


def peak_of(program: str, *arguments: object) -> tuple[int, str, str]:
    """(peak in KiB, standard output, standard error) of a Python program, which must end well."""
    command = [sys.executable, "-c", program + _TAIL, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said, _, peak = done.stderr.rpartition("peak ")
    return int(peak), done.stdout, said


def peak_of_kdbtool(*arguments: object) -> tuple[int, int, str]:
    """(peak in KiB, exit code, standard error) of a kdbtool command."""
    program = "import sys\nfrom kdbtool.cli import main\nprint(chr(10), main(sys.argv[1:]))\n"
    peak, out, said = peak_of(program, *arguments)
    return peak, int(out.split()[-1]), said
