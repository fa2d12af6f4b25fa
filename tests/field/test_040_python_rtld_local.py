"""Field case 40 (reference G26): a library that Python loads RTLD_LOCAL, where RTLD_NEXT is NULL."""

from __future__ import annotations

from pathlib import Path

from support.standins import Standins, python, same, standins, traces

__all__ = ["standins", "traces"]  # fixtures


def test_python_rtld_local(standins: Standins, traces: Path) -> None:
    user = standins.folder / "libuser1.so"
    ran = same(standins, traces, *python(f"import ctypes; print(ctypes.CDLL({str(user)!r}).g(1))"))
    assert ran.out == "1001\n"
    assert [x.kernel for x in ran.trace.launches] == ["user_kernel"]
