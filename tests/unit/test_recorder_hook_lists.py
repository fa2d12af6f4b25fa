"""scripts/update-hooks: the page of hooks, and the lists held against the header of a MIOpen release."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import miopen_standin as standin

SCRIPT = standin.REPO / "scripts" / "update-hooks"


def header() -> str:
    """A miopen.h that declares what the lists have, as MIOpen would."""
    functions = []
    for hook in standin.HOOKS:
        parameters = ", ".join(
            p.replace("void *handle", "miopenHandle_t handle").replace("struct kdb_", "miopen_")
            for p in hook.parameters
        )
        functions.append(f"MIOPEN_EXPORT miopenStatus_t {hook.name}({parameters});\n")
    return "/* miopenStatus_t miopenOld(int x); */\n" + "".join(functions)


def check(path: Path, text: str) -> subprocess.CompletedProcess[str]:
    path.write_text(text)
    command = [sys.executable, str(SCRIPT), str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_header_of_a_release_fits(tmp_path: Path) -> None:
    done = check(tmp_path / "miopen.h", header())
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("double lrn_beta", "float lrn_beta", "miopenSetLRNDescriptor: "),
        (", double lrn_beta", "", "miopenSetLRNDescriptor: "),
        ("bool exhaustive_search", "size_t exhaustive_search", "miopenFindConvolutionForwardAlgorithm: "),
        (
            "miopenStatus_t miopenSetTensor(",
            "miopenStatus_t miopenSetTensorToo(",
            "miopenSetTensorToo is in no",
        ),
        ("miopenStatus_t", "int", "no miopen.h: 0 functions"),
    ],
)
def test_a_header_that_does_not(tmp_path: Path, before: str, after: str, said: str) -> None:
    text = header()
    assert before in text
    done = check(tmp_path / "miopen.h", text.replace(before, after))
    assert done.returncode == 1 and said in done.stderr


def test_a_page_that_is_behind_its_lists(tmp_path: Path) -> None:
    for folder in ("scripts", "csrc/recorder", "docs"):
        shutil.copytree(standin.REPO / folder, tmp_path / folder)
    page = tmp_path / "docs" / "recorder-hooks.md"
    command = [sys.executable, str(tmp_path / "scripts" / "update-hooks")]
    page.write_text(page.read_text().replace("- `miopenSetTensor`\n", ""))
    behind = subprocess.run([*command, "--check"], capture_output=True, text=True, check=False)
    assert behind.returncode == 1 and "run scripts/update-hooks" in behind.stderr
    subprocess.run(command, check=True)
    subprocess.run([*command, "--check"], check=True)
    assert page.read_text() == (standin.REPO / "docs" / "recorder-hooks.md").read_text()


def test_a_line_that_no_macro_would_take_is_refused(tmp_path: Path) -> None:
    for folder in ("scripts", "csrc/recorder", "docs"):
        shutil.copytree(standin.REPO / folder, tmp_path / folder)
    lists = tmp_path / "csrc" / "recorder" / "hooks_ops.def"
    lists.write_text(
        re.sub(r"KDB_OP\(MIOPEN, REQUIRED", "KDB_OP(MIOPEN, SOMETIMES", lists.read_text(), count=1)
    )
    command = [sys.executable, str(tmp_path / "scripts" / "update-hooks")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.startswith("hooks_ops.def: a line is not")
