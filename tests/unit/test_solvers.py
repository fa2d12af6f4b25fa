"""Solver names by release, as data, and out of libraries: whole, hidden, hostile."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from support.mutate import mutations, survives

from kdbtool.errors import KdbtoolError
from kdbtool.miopen import solvers
from kdbtool.miopen.solvers import from_library, solver_ids, solver_set, solvers_of
from kdbtool.miopen.versions import known_releases, resolve

ANY = "N6miopen6solver9AnySolver14AnySolver_tmplINS0_4conv{}EEE"
TYPE = "std::string_view miopen::type_name() [T = miopen::solver::{}]"


def library(folder: Path, names: Iterable[str], functions: str = "") -> Path:
    """A shared library with these strings and functions, and a .dynsym."""
    cc = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if cc is None:
        pytest.skip("no C compiler")
    strings = "".join(f'const char s{n}[] = "\\0" "{name}";\n' for n, name in enumerate(names))
    (folder / "lib.c").write_text(strings + functions)
    out = folder / "libMIOpen.so.1"
    subprocess.run([cc, "-O2", "-shared", "-fPIC", "-o", out, folder / "lib.c"], check=True, timeout=60)
    return out


@pytest.mark.parametrize("release", known_releases())
def test_every_known_release_has_solvers(release: str) -> None:
    found = solver_set(resolve(release))
    assert found.usable == solvers_of(resolve(release)) and len(found.usable) > 80
    assert {"ConvDirectNaiveConvFwd", "ConvBinWinogradRxSf2x3", "ConvMPBidirectWinograd<2-3>"} <= found.usable
    assert not found.usable & found.without_code and not found.usable & found.left_out
    assert all(re.fullmatch(r"\w+(<[0-9-]+>)?", name) and solver_ids()[name] for name in found.usable)


def test_what_changed_between_releases() -> None:
    def usable(release: str) -> frozenset[str]:
        return solvers_of(resolve(release))

    assert "ConvOclDirectFwdFused" in usable("5.4") and "ConvOclDirectFwdFused" not in usable("5.5")
    assert "ConvOclDirectFwdFused" in solver_set(resolve("6.4.3")).without_code
    assert "ConvMlirIgemmFwd" in usable("6.2") and "ConvMlirIgemmFwd" in solver_set(resolve("6.4")).left_out
    assert "ConvWinoFuryRxS<2-3>" not in usable("5.7") and "ConvWinoFuryRxS<2-3>" in usable("6.0")
    assert solver_ids()["ConvOclDirectFwd"] == 11 and solver_ids()["GemmFwdRest"] == 91


def test_a_library_is_read_without_its_symbols(tmp_path: Path) -> None:
    path = library(
        tmp_path,
        [
            ANY.format("11ConvAsm3x3U"),
            ANY.format("14ConvBinWinoRxSILi2ELi3EE"),
            ANY.format("27ConvWinograd3x3MultipassWrWILi7ELi2ELi1ELi1EE"),
            ANY.format("27ConvWinograd3x3MultipassWrWILi3ELi4ELi3ELi4EE"),
            ANY.format("15ConvWinoFuryRxSILj2ELj3EE"),
            ANY.format("16ConvMlirIgemmFwd"),
            ANY.format("33ConvHipImplicitGemmGroupFwdXdlops"),
            ANY.format("36ConvHipImplicitGemmForwardV4R4Xdlops"),
            TYPE.format("fusion::ConvOclDirectFwdFused"),
            TYPE.format("fusion::ConvWinoFuryRxSFused<2u, 3u>"),
            TYPE.format("conv::ConvAsm3x3U"),
        ],
    )
    found = from_library(path)
    assert found.usable == {
        "ConvAsm3x3U",
        "ConvBinWinogradRxSf2x3",
        "ConvWinograd3x3MultipassWrW<7-2-1-1>",
        "ConvWinograd3x3MultipassWrW<3-4>",
        "ConvWinoFuryRxS<2-3>",
        "ConvHipImplicitGemmForwardV4R4Xdlops",
    }
    assert found.left_out == {"ConvMlirIgemmFwd", "ConvHipImplicitGemmGroupFwdXdlops"}
    assert found.without_code == {"ConvOclDirectFwdFused", "ConvWinoFuryRxSFused<2-3>"}


def test_a_back_end_that_is_built_in_is_seen(tmp_path: Path) -> None:
    names = [ANY.format("16ConvMlirIgemmFwd"), ANY.format("28ConvHipImplicitGemmFwdXdlops")]
    marks = [" MIIR_BUILD_FAILURE", "N2ck16tensor_operation6deviceE"]
    assert from_library(library(tmp_path, names + marks)).left_out == set()


def test_an_exported_is_applicable_tells_the_truth(tmp_path: Path) -> None:
    """The code of the function wins over the mark of the back end."""
    names = [ANY.format("16ConvMlirIgemmFwd"), ANY.format("16ConvMlirIgemmBwd"), " MIIR_BUILD_FAILURE"]
    symbol = "_ZNK6miopen6solver4conv16ConvMlirIgemm{}12IsApplicableERKNS_16ExecutionContextE"
    functions = f"int {symbol.format('Fwd')}(void) {{ return 0; }}\n"
    functions += f"int {symbol.format('Bwd')}(int a) {{ return a * 3; }}\n"
    assert from_library(library(tmp_path, names, functions)).left_out == {"ConvMlirIgemmFwd"}


@pytest.mark.parametrize(
    "strings",
    [
        [],
        ["nothing of interest"],
        [ANY.format("99ConvAsm3x3U")],
        [ANY.format("11ConvAsm3x3UILi2")],
        [ANY.format("11ConvAsm3x3UIdE")],
        [ANY.format("0")],
    ],
)
def test_a_library_without_readable_solvers_is_refused(tmp_path: Path, strings: list[str]) -> None:
    with pytest.raises(KdbtoolError) as caught:
        from_library(library(tmp_path, strings))
    assert caught.value.exit_code == 2 and "\n" not in caught.value.line()


def test_too_many_solvers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solvers, "MAX_NAMES", 10)
    with pytest.raises(KdbtoolError, match="over 10 solver types"):
        from_library(library(tmp_path, [ANY.format(f"6Conv{n:02}") for n in range(20)]))


def test_corrupted_libraries_give_names_or_one_line(tmp_path: Path) -> None:
    """5,000 of them; what is read are names that a registry could have."""
    names = [
        ANY.format("11ConvAsm3x3U"),
        ANY.format("14ConvBinWinoRxSILi2ELi3EE"),
        TYPE.format("fusion::A<2u>"),
    ]
    symbol = "_ZNK6miopen6solver4conv11ConvAsm3x3U12IsApplicableERKNS_16ExecutionContextE"
    good = library(tmp_path, names, f"int {symbol}(void) {{ return 0; }}\n")
    subprocess.run(["strip", good], check=False, timeout=60)  # a smaller file, the same .dynsym

    def read(path: Path) -> None:
        found = from_library(path)
        for name in found.usable | found.left_out | found.without_code:
            assert re.fullmatch(r"\w+(<[0-9-]+>)?", name)

    assert from_library(good).left_out == {"ConvAsm3x3U"}
    tally = survives(read, mutations(good.read_bytes(), 5000, 65), tmp_path / "bad", ".so")
    assert tally.accepted and tally.refused
