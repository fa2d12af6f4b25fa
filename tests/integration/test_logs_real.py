"""The real MIOpen's log against the recorder of the same run: look-ups one for one, problem keys equal."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from support.miopen_logs import read

from kdbtool.miopen.driver import parse_command
from kdbtool.miopen.logs import read_log
from kdbtool.root import Root
from kdbtool.shim.trace import find_traces, read_trace
from kdbtool.shim.trace_model import Lookup, Trace

LOGGING = {"MIOPEN_LOG_LEVEL": "6", "MIOPEN_ENABLE_LOGGING_CMD": "1", "MIOPEN_FIND_MODE": "2"}
# One command each. Those whose layouts no solver takes end with an error, after MIOpen made their keys.
COMMANDS = """\
conv -n 2 -c 4 -H 8 -W 9 -k 6 -y 3 -x 3 -p 1 -q 1 -F 1
conv -n 2 -c 4 -H 8 -W 9 -k 6 -y 3 -x 3 -p 1 -q 1 -F 2
conv -n 2 -c 4 -H 8 -W 9 -k 6 -y 3 -x 3 -p 1 -q 1 -F 4
conv -n 2 -c 4 -H 8 -W 9 -k 6 -y 3 -x 3 -p 1 -q 1 -F 3
conv -n 2 -c 4 -H 8 -W 9 -k 6 -y 3 -x 3 -p 1 -q 1
conv -n 1 -k 4 -y 5 -x 3 -p 2 -q 0 -u 2 -v 3 -l 1 -j 2 -F 1
convfp16 -n 2 -c 4 -H 8 -W 8 -k 8 -y 1 -x 1 -F 1
convbfp16 -n 2 -c 4 -H 8 -W 8 -k 8 -y 3 -x 3 -F 1
convint8 -n 2 -c 4 -H 8 -W 8 -k 8 -y 3 -x 3 -F 1
convint8 -n 2 -c 4 -H 8 -W 8 -k 8 -y 3 -x 3 -F 2
conv -n 2 -c 8 -H 8 -W 8 -k 16 -y 3 -x 3 -g 4 -F 0
conv -n 2 -c 8 -H 7 -W 7 -k 8 -y 3 -x 3 -g 8 -p 1 -q 1 -u 2 -v 2 -F 0
conv -n 2 -c 4 -H 8 -W 8 -k 6 -y 3 -x 3 -m trans -F 0
conv -n 2 -c 4 -H 8 -W 8 -k 6 -y 3 -x 3 -m trans -u 2 -v 2 -p 1 -q 1 -F 0
conv -n 2 -c 4 -H 8 -W 8 -k 6 -y 3 -x 3 -m trans -u 2 -v 2 -p 1 -q 1 -Y 1 -X 1 -F 0
conv -n 2 -c 4 -H 8 -W 8 -k 8 -y 3 -x 3 -m trans -g 2 -F 0
conv -n 2 -c 4 -H 8 -W 8 -k 6 -y 3 -x 3 --in_layout NHWC --fil_layout NHWC --out_layout NHWC -F 0
convfp16 -n 2 -c 4 -H 8 -W 8 -k 6 -y 3 -x 3 --in_layout nhwc --fil_layout nhwc --out_layout nhwc -F 0
conv -n 2 -c 4 -H 8 -W 8 -k 6 -y 1 -x 1 -I NHWC -f NHWC -O NHWC -F 0
conv -n 2 -c 4 -H 1 -W 1 -k 6 -y 1 -x 1 -I NHWC -f NHWC -O NHWC -F 0
conv -n 1 -c 1 -H 1 -W 8 -k 1 -y 1 -x 1 -I NHWC -f NHWC -O NHWC -F 0
conv -n 2 -c 4 -H 8 -W 8 -k 6 -y 3 -x 3 -I NHWC -F 0
conv -n 2 -c 4 -H 8 -W 8 -k 6 -y 3 -x 3 -I NHWC -O NHWC -F 0
conv -n 2 -c 4 -H 8 -W 8 -k 6 -y 8 -x 8 -I NHWC -O NHWC -F 0
conv -n 2 -c 4 -H 8 -W 8 -k 6 -y 3 -x 3 -I CHWN -f CHWN -O CHWN -F 0
conv -n 2 -c 1 -H 8 -W 8 -k 1 -y 3 -x 3 -I NHWC -f NHWC -O NHWC -F 0
conv -n 1 -c 4 -H 8 -W 8 -k 6 -y 3 -x 3 -z same -F 1
conv -n 1 -c 4 -H 9 -W 7 -k 6 -y 3 -x 5 -z same -u 2 -v 2 -F 1
conv -n 1 -c 4 -H 9 -W 7 -k 6 -y 3 -x 5 -p 1 -q 1 -z valid -F 1
conv -n 1 -c 4 -H 9 -W 7 -k 6 -y 3 -x 3 -l 2 -j 2 -z same -F 1
conv -n 1 -c 4 -H 9 -W 7 -k 6 -y 3 -x 3 -m trans -z same -F 1
conv --spatial_dim 3 -n 1 -c 2 --in_d 5 -H 6 -W 7 -k 3 --fil_d 3 -y 3 -x 3 --pad_d 1 -p 1 -q 1 -F 0
conv --spatial_dim 3 -n 1 -c 2 --in_d 5 -H 6 -W 7 -k 3 --fil_d 1 -y 3 -x 2 --conv_stride_d 2 -u 1 \
-v 2 --dilation_d 1 -l 2 -j 1 -F 0
conv --spatial_dim 3 -n 1 -c 2 --in_d 5 -H 6 -W 7 -k 3 --fil_d 3 -y 3 -x 3 --in_layout NDHWC \
--fil_layout NDHWC --out_layout NDHWC -F 0
conv --spatial_dim 3 -n 1 -c 4 --in_d 5 -H 6 -W 7 -k 4 --fil_d 3 -y 3 -x 3 -g 2 -m trans -F 0
convfp16 --spatial_dim 3 -n 1 -c 2 --in_d 4 -H 4 -W 4 -k 3 --fil_d 1 -y 1 -x 1 --trans_output_pad_d \
0 -F 1
conv -n 1 -c 4 -H 8 -W 8 -k 6 -y 3 -x 3 -U fp8 -T bf8 -R fp8 -F 1
convfp16 -n 1 -c 4 -H 8 -W 8 -k 6 -y 3 -x 3 -U fp8 -T bf8 -R fp8 -F 0
conv --batchsize 3 --in_channels 5 --in_h 10 --in_w 11 --out_channels 7 --fil_h 2 --fil_w 4 --pad_h \
1 --pad_w 2 --conv_stride_h 2 --conv_stride_w 1 --dilation_h 1 --dilation_w 2 --group_count 1 --forw 1
conv -n 2 -c 4 -H 8 -W 8 -k 6 -y 3 -x 3 -b 1 -F 1
conv -n 2 -c 4 -H 8 -W 8 -k 6 -y 3 -x 3 -g 0 -F 1
conv
""".splitlines()
REFUSED = "convint8 -n 2 -c 4 -H 8 -W 8 -k 8 -y 3 -x 3 -F 2"  # by the driver: it asks for a workspace


class Run(NamedTuple):
    """A command, the recorder's trace of it, and its log."""

    command: str
    trace: Trace
    log: Path


Asked = list[tuple[bytes, bytes, bool | None]]


def asked(lookups: list[Lookup]) -> Asked:
    return [(one.name, one.args, one.hit) for one in lookups]


def _runs(kdbtool: Callable[..., Any], root: Path, folder: Path) -> list[Run]:
    """All commands in one recorded shell: the first find an empty cache, later ones what those compiled."""
    script = folder / "run.sh"
    lines = (
        f"RANK={i} MIOpenDriver {line} -V 0 -i 1 >/dev/null 2>{folder}/{i}.log\n"
        for i, line in enumerate(COMMANDS)
    )
    script.write_text("".join(lines) + "true\n")
    traces = folder / "traces"
    options = ["--simulate", "gfx1030:36", "-o", traces, "--root", root]
    done = kdbtool("record", *options, "--", "sh", script, env=LOGGING, timeout=500)
    assert done.code == 0, done.err
    found = [trace for trace in map(read_trace, find_traces([traces])) if trace.facts.exe == "MIOpenDriver"]
    by_rank = {trace.facts.rank: trace for trace in found}
    assert set(by_rank) == set(range(len(COMMANDS)))
    refused = by_rank.pop(COMMANDS.index(REFUSED))
    assert (refused.lookups, len(refused.launches)) == ([], 0)
    assert {one.api for one in refused.problems} == {"miopenConvolutionBackwardDataGetWorkSpaceSize"}
    return [Run(COMMANDS[i], trace, folder / f"{i}.log") for i, trace in sorted(by_rank.items())]


def test_log_and_recorder_agree(kdbtool: Callable[..., Any], opened_root: Root, tmp_path: Path) -> None:
    runs = _runs(kdbtool, opened_root.path, tmp_path)
    _look_ups_are_the_recorders(runs)
    _commands_make_the_recorders_problem_keys(runs)
    _logs_state_the_recorders_problem_keys(runs)
    _spellings_of_other_versions(runs, tmp_path)


def _look_ups_are_the_recorders(runs: list[Run]) -> None:
    hits = misses = 0
    for command, trace, log in runs:
        found = read_log(log)
        assert asked(found.lookups) == asked(trace.lookups), command
        hits += sum(one.hit is True for one in found.lookups)
        misses += sum(one.hit is False for one in found.lookups)
        assert found.facts.miopen_version == trace.facts.miopen_version, command
        assert found.facts.device == trace.facts.device and found.facts.cu == trace.facts.cu, command
    assert hits > 10 and misses > 10


def _commands_make_the_recorders_problem_keys(runs: list[Run]) -> None:
    for command, trace, _ in runs:
        keys = {key for _, key in parse_command(command).keys}
        assert keys == {problem.key for problem in trace.problems}, command


def _logs_state_the_recorders_problem_keys(runs: list[Run]) -> None:
    for command, trace, log in runs:
        keys = {problem.key for problem in read_log(log).problems}
        assert keys == {problem.key for problem in trace.problems}, command


def _spellings_of_other_versions(runs: list[Run], tmp_path: Path) -> None:
    """The same log as 5.x and 4.x write it, with Windows line ends, behind a tag of mpirun."""
    checked = 0
    for command, trace, log in runs:
        text = log.read_bytes()
        quoted = b' binary for: "'
        middle = b"\n".join(
            line.replace(quoted, quoted[:-1]).replace(b'.o"; args: ', b".o; args: ")
            for line in text.split(b"\n")
        )
        old = middle.replace(b".o; args: ", b" ;args: ").replace(b"Successfully", b"Sucessfully")
        tagged = b"\r\n".join(b"[1,3]<stderr>:" + line for line in text.split(b"\n"))
        for form in (middle, old, tagged):
            found = read(tmp_path / "a.log", form)
            assert asked(found.lookups) == asked(trace.lookups), command
            checked += len(found.lookups)
    assert checked > 50
