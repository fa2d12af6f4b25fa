"""Commands of MIOpenDriver as problem keys. tests/integration/test_logs_real.py runs the real one."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdbtool.errors import KdbtoolError
from kdbtool.miopen.driver import TYPES, parse_command
from kdbtool.miopen.problems import parse_problem

BASE = "conv -n 2 -c 4 -H 8 -W 8 -k 6 -y 3 -x 3 "


def keys(text: str, **options: object) -> list[str]:
    return [key for _, key in parse_command(text, **options).keys]  # type: ignore[arg-type]


def test_directions() -> None:
    command = parse_command(BASE + "-F 5 -S 85")
    assert command.keys == (
        ("F", "4-8-8-3x3-6-6-6-2-0x0-1x1-1x1-0-NCHW-FP32-F"),
        ("W", "6-6-6-3x3-4-8-8-2-0x0-1x1-1x1-0-NCHW-FP32-W"),
    )
    assert command.solution == 85 and len(keys(BASE)) == len(keys(BASE + "-F 7")) == 3
    # a transposed convolution is its counterpart turned round
    assert parse_command(BASE + "-m trans -F 1").keys == (
        ("F", "4-8-8-3x3-6-10-10-2-0x0-1x1-1x1-0-NCHW-FP32-B"),
    )


def test_the_shell_ends_it() -> None:
    for end in ("", "> out 2>&1", "| tee log", "&& echo", "; true", "2>/dev/null", "# a comment", ")"):
        assert keys(BASE + "-F 1 " + end) == ["4-8-8-3x3-6-6-6-2-0x0-1x1-1x1-0-NCHW-FP32-F"]
    assert keys(BASE + "-F '1'") == keys(BASE + "--forw 1")


def test_int8_by_version() -> None:
    text = BASE.replace("conv", "convint8") + "-F 1"
    assert keys(text)[0].endswith("-INT8-F") and keys(text, version=(3, 4, 0))[0].endswith("-INT8-F")
    assert keys(text, version=(3, 2, 0))[0].endswith("-INT8INT8INT32-F")


def test_what_mioopen_writes_of_transposed_convolutions() -> None:
    """Filters by group from 6.0 on, the input's channels before; never the output padding."""
    text = "conv -n 2 -c 4 -H 8 -W 8 -k 4 -y 3 -x 3 -p 0 -q 0 -u 1 -v 1 -l 1 -j 1 -m trans -g 2 -F 1 -t 1"
    assert keys(text, logged=True, version=(3, 4, 0)) == ["4-8-8-3x3-8-10-10-2-0x0-1x1-1x1-0-NCHW-FP32-B_g2"]
    for version in (None, (2, 20, 0)):
        with pytest.raises(KdbtoolError, match="filters MIOpen may not have written"):
            keys(text, logged=True, version=version)
    with pytest.raises(KdbtoolError, match="output padding"):
        keys(text + " -u 2", logged=True, version=(3, 4, 0))


@pytest.mark.parametrize(
    "text",
    [
        "", "pool -n 1", "bnorm -n 1", "convfp64 -n 1", BASE + "-n", BASE + "-n | tee", BASE + "-n x",
        BASE + "-n 1.5", BASE + "-n 99999999999999999999", BASE + "-B 1", BASE + "--nonsense 1",
        BASE + "-nn 1", BASE + "1",
        BASE + "-m deconv", BASE + "--spatial_dim 1", BASE + "--spatial_dim 4", BASE + "-g 3", BASE + "-g 5",
        BASE + "-I NCDHW", BASE + "-I nhwc", BASE + "--in_layout NCHWc4", BASE + "-Z 1 -L 4", BASE + "-y 9",
        BASE + "-H 0", BASE + "-H -1", BASE + "-u 0", BASE + "-p -1", BASE + "-l 0", BASE + "-U int8",
        BASE + "-z", "conv -n 1 -c 0",
    ],
)  # fmt: skip
def test_refused(text: str) -> None:
    with pytest.raises(KdbtoolError) as error:
        parse_command(text)
    assert "\n" not in error.value.line()


sizes = st.integers(1, 40)


@given(
    st.sampled_from(sorted(TYPES)), st.sampled_from([2, 3]), st.lists(sizes, min_size=9, max_size=9),
    st.sampled_from(["conv", "trans"]), st.sampled_from([1, 2, 4]), st.integers(0, 7),
    st.lists(st.sampled_from(["", "channels last"]), min_size=3, max_size=3),
)  # fmt: skip
def test_keys_are_keys(
    kind: str, dims: int, numbers: list[int], mode: str, groups: int, forw: int, layouts: list[str]
) -> None:
    n, c, d, h, w, k, y, p, s = numbers
    last = "NHWC" if dims == 2 else "NDHWC"
    text = (
        f"{kind} --spatial_dim {dims} -n {n} -c {c * groups} --in_d {d} -H {h} -W {w} -k {k * groups} "
        f"-y {min(y, h)} -x 1 --fil_d 1 -p {p} -q {p} --pad_d {p} -u {s} -v {s} "
        f"-g {groups} -m {mode} -F {forw} "
    )
    for name, layout in zip(("in", "fil", "out"), layouts, strict=True):
        text += f"--{name}_layout {last} " if layout else ""
    for _, key in parse_command(text).keys:
        problem = parse_problem(key)
        assert problem.batch == n and problem.groups == groups and problem.dimensions == dims


@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    for prefix in ("", "conv ", BASE):
        with contextlib.suppress(KdbtoolError):
            parse_command(prefix + text)
