"""Every operation that MIOpenDriver can run, on the real MIOpen: its own log of the API is the oracle."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from integration.test_recorder_real import KEY, Session, normal
from support import miopen_standin as standin

from kdbtool.root import Root
from kdbtool.shim.trace import Trace

OBJECTS = Path(__file__).resolve().parent.parent / "support" / "miopen_objects.py"
API = re.compile(r"^MIOpen\(HIP\): (?:(\S.*)\{|\t(\w+) = (.*))$")
EVENTS = {h.name for h in standin.HOOKS if h.form in standin.EVENTS}
# MIOpen 6.4.3 does not log these three.
UNLOGGED = {f"miopenConvolution{way}GetSolution" for way in ("Forward", "BackwardData", "BackwardWeights")}
SMALL = "-n 2 -c 4 -H 8 -W 8"
RUNS = {
    "activ": f"{SMALL} -m 3",
    "bnorm": f"{SMALL} -m 1",
    "bnormfp16": f"{SMALL} -m 0 -F 2",
    "conv": f"{SMALL} -k 4 -y 3 -x 3 -F 1",
    "ctc": "",
    "getitem": "",
    "glu": "",
    "groupnorm": "",
    "kthvalue": "",
    "layernorm": "",
    "lrn": SMALL,
    "multimarginloss": "",
    "pool": "",
    "reduce": "-D 4,8,4,8 -R 0,2",
    "rnn": "",
    "softmax": SMALL,
    "t5layernorm": "",
    "tensorop": "",
}


@pytest.fixture(scope="module")
def session(opened_root: Root, tmp_path_factory: pytest.TempPathFactory) -> Session:
    return Session(opened_root, tmp_path_factory.mktemp("miopen") / "session")


def unchanged(text: str) -> str:
    """Without what another run would not say again: lengths that are logged before they are set, too."""
    return normal(re.sub(r"^(MIOpen\(HIP\): \t[ncdhw] = ).*", r"\1", text, flags=re.M))


def logged(err: str) -> list[tuple[str, dict[str, str]]]:
    """The API's calls that are events: name, and the arguments that the log shows."""
    calls: list[tuple[str, dict[str, str]]] = []
    for head, name, value in (m.groups() for m in map(API.search, err.splitlines()) if m):
        if head:
            calls.append((head.split("(")[0].removeprefix("miopenStatus_t "), {}))
        elif calls:
            calls[-1][1][name] = value.rstrip(", ")
    return [call for call in calls if call[0] in EVENTS]


def seen(trace: Trace) -> list[tuple[str, str]]:
    """(function, detail or key) of each event, in the order of their begins."""
    events = [(c.time_ns, c.api, c.detail) for c in trace.calls]
    events += [(p.time_ns, p.api, p.key) for p in trace.problems]
    return [(api, text) for _, api, text in sorted(events) if api not in UNLOGGED]


def tensors(arguments: dict[str, str]) -> dict[str, str]:
    """name: lengths, of the tensors in a logged call: `xDesc = {2, 4}, {4, 1}, packed`."""
    found = {}
    for name, value in arguments.items():
        match = re.match(r"\{([\d, ]+)\}, \{", value)
        if match and name.endswith("Desc"):
            snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.removesuffix("Desc")).lower()
            found[snake] = match[1].replace(" ", "")
    return found


@pytest.mark.parametrize("base", RUNS)
def test_calls_are_those_of_miopens_own_log(session: Session, base: str) -> None:
    """In order and number; lengths of tensors too; what the program prints is the same."""
    argv = ("MIOpenDriver", base, *RUNS[base].split(), "-V", "0", "-i", "1")
    session.run(*argv, record=False)  # compiles
    switch = {"MIOPEN_ENABLE_LOGGING": "1"}
    plain, ran = session.run(*argv, record=False, **switch), session.run(*argv, **switch)
    same = (plain.code, unchanged(plain.out), unchanged(plain.err))
    assert (ran.code, unchanged(ran.out), unchanged(ran.err)) == same
    own, log = seen(ran.host), logged(ran.err)
    assert [api for api, _ in own] == [api for api, _ in log] and own
    for (api, detail), (_, arguments) in zip(own, log, strict=True):
        said = dict(re.findall(r"(\w+)=\w+\[([\d,]+)\]", detail))
        theirs = tensors(arguments)
        assert {n: v for n, v in said.items() if n in theirs} == {
            n: theirs[n] for n in said if n in theirs
        }, api
    assert ran.host.notes == []


def test_batch_norm_of_a_program_that_sets_descriptors_out_of_sight(session: Session) -> None:
    """MIOpenDriver's bnorm makes them through MIOpen's C++: without logging the getters answer."""
    ran = session.run("MIOpenDriver", "bnorm", *RUNS["bnorm"].split(), "-V", "0", "-i", "1")
    (call,) = ran.host.calls
    side = "FP32[1,4,1,1]"
    assert call.detail.startswith(
        f"mode=spatial x=FP32[2,4,8,8] y=FP32[2,4,8,8] scale={side} bias_var={side} saved_mean={side}"
    )


def test_every_function_is_hooked_or_named_as_not(opened_root: Root) -> None:
    """docs/recorder-hooks.md has all that the real library exports."""
    (library,) = opened_root.path.rglob("libMIOpen.so.1.0*")
    with library.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
        defined = {s.name for s in symbols if s["st_shndx"] != "SHN_UNDEF"}
    names = {name for name in defined if name.startswith("miopen")}
    page = (standin.REPO / "docs" / "recorder-hooks.md").read_text()
    listed = set(re.findall(r"^- \[?`?(miopen\w+)`?\]?$", page, re.M))
    assert len(names) == 263
    assert names - listed == set()


def test_find_2_and_fusion(session: Session) -> None:
    """Find 2.0's keys are MIOpen's own; a fusion plan has that of its convolution; output unchanged."""
    program = ("python3", str(OBJECTS))
    session.run(*program, record=False)
    plain, ran = session.run(*program, record=False), session.run(*program, MIOPEN_LOG_LEVEL="6")
    assert (ran.code, ran.out) == (plain.code, plain.out)
    assert ran.code == 0, ran.err[-2000:]
    statuses = [line.split() for line in ran.out.splitlines()]
    assert [api for api, _ in seen(ran.host)] == [name for name, _ in statuses]
    events = [(c.time_ns, c.result) for c in ran.host.calls] + [
        (p.time_ns, p.result) for p in ran.host.problems
    ]
    assert [result for _, result in sorted(events)] == [int(status) for _, status in statuses]

    found = [p.key for p in ran.host.problems if p.api == "miopenFindSolutions"]
    asked = list(dict.fromkeys(m.group(1) for m in map(KEY.search, ran.err.splitlines()) if m))
    assert list(dict.fromkeys(found)) == asked and len(asked) == 4
    assert found[-1] == found[0]  # fused: its convolution is the first one
    solved = [p for p in ran.host.problems if p.api == "miopenRunSolution"]
    assert [p.key for p in solved] == found[:4] and all(p.solution for p in solved)
    plans = [p for p in ran.host.problems if "FusionPlan" in p.api]
    assert [p.api for p in plans] == ["miopenCompileFusionPlan", "miopenExecuteFusionPlan"]
    assert {p.key for p in plans} == {found[0]}
