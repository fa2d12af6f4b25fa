"""The sampler on a made sysfs: what it reads, what it does not take for a value, what cannot end it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kdbtool.errors import KdbtoolError
from kdbtool.shim import clocks
from kdbtool.shim._trace import lib
from kdbtool.shim.clocks import Sampler, find_cards, parse_interval
from kdbtool.shim.ties import Clocks, sclk_by_kernel, sclk_by_region
from kdbtool.shim.trace import Trace, find_traces, read_trace
from tests.support import traces as made

RDNA = "0: 500Mhz \n1: 0Mhz *\n2: 2575Mhz \n"
MI = "S: 19Mhz *\n0: 500Mhz \n1: 1700Mhz \n"
HWMON = {
    "freq1_input": "1502000000\n",
    "freq2_input": "1200000000\n",
    "power1_average": "35000000\n",
    "temp1_input": "41500\n",
    "temp1_label": "edge\n",
}


class Tree:
    """A sysfs with cards: `card(0, vendor=..., files={...}, hwmon={...})`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "class/drm").mkdir(parents=True)

    def card(
        self,
        number: int,
        *,
        vendor: str = "0x1002",
        files: dict[str, str] | None = None,
        hwmon: dict[str, str] | None = None,
    ) -> Path:
        device = self.root / f"devices/pci0000:00/0000:{number + 3:02x}:00.0"
        place = self.root / f"class/drm/card{number}"
        place.mkdir()
        device.mkdir(parents=True)
        (place / "device").symlink_to(device)
        (device / "vendor").write_text(f"{vendor}\n")
        for name, text in (files or {}).items():
            (device / name).write_text(text)
        if hwmon is not None:
            self.hwmon(device, hwmon)
        return device

    def hwmon(self, device: Path, files: dict[str, str], name: str = "hwmon3") -> None:
        (device / "hwmon" / name).mkdir(parents=True)
        for file, text in files.items():
            (device / "hwmon" / name / file).write_text(text)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "sys")


def wait(done: Callable[[], bool]) -> None:
    for _ in range(2000):
        if done():
            return
        time.sleep(0.005)
    raise AssertionError("nothing happened within 10 s")


def sampled(tree: Tree, folder: Path, then: Callable[[Callable[[], Trace]], None] | None = None) -> Trace:
    """The trace of a sampler that ran while `then` did (default: until there are three samples)."""
    folder.mkdir()
    with Sampler(folder, 0.01, tree.root) as sampler:

        def now() -> Trace:
            return read_trace(find_traces([folder])[0])

        if then:
            then(now)
        else:
            wait(lambda: len(now().samples) >= 3)
    assert sampler.problem is None
    trace = now()
    assert trace.notes == [] and trace.facts.role == "sampler" and trace.facts.exe == "kdbtool"
    return trace


def first(trace: Trace) -> tuple[float | None, ...]:
    s = trace.samples[0]
    return s.sclk_mhz, s.mclk_mhz, s.power_w, s.temperature_c


@pytest.mark.parametrize(
    "files, hwmon, values",
    [
        ({"pp_dpm_sclk": RDNA, "pp_dpm_mclk": "0: 96Mhz \n1: 1000Mhz *\n"}, {}, (0, 1000, None, None)),
        ({"pp_dpm_sclk": MI}, {"power1_input": "550000000"}, (19, None, 550, None)),
        ({"pp_dpm_sclk": "0: 500Mhz \n1: 2000Mhz \n"}, {"temp1_input": "-12500"}, (None, None, None, -12.5)),
        ({}, HWMON, (1502, 1200, 35, 41.5)),
        ({"pp_dpm_sclk": RDNA}, {**HWMON, "power1_input": "99000000"}, (1502, 1200, 35, 41.5)),
        ({}, {"temp1_input": "1", "power1_average": ""}, (None, None, None, 0.001)),
        ({"pp_dpm_mclk": "1: 1000MHz*"}, {"temp2_input": "70000", "temp2_label": "junction"},
         (None, 1000, None, 70)),
        ({"pp_dpm_sclk": "0: 9Mhz *"}, {"freq1_input": "12x", "freq2_input": "-5", "temp1_input": "9999999"},
         (9, None, None, None)),
        ({"pp_dpm_sclk": "0: 9Mhz *"}, {"power1_average": "9" * 4000, "temp1_input": "\x00\xff\n"},
         (9, None, None, None)),
        ({"pp_dpm_sclk": "*\n: *\n0: Mhz *\n99999999999Mhz *\n"}, {"temp1_input": "30000"},
         (None, None, None, 30)),
    ],
)  # fmt: skip
def test_values(
    tree: Tree,
    tmp_path: Path,
    files: dict[str, str],
    hwmon: dict[str, str],
    values: tuple[float | None, ...],
) -> None:
    tree.card(0, files=files, hwmon=hwmon)
    assert first(sampled(tree, tmp_path / "t")) == values


def test_only_cards_of_amd_and_no_connectors(tree: Tree, tmp_path: Path) -> None:
    tree.card(0, hwmon=HWMON, vendor="0x10de")
    tree.card(1, hwmon=HWMON, files={"product_name": "Radeon Pro\n", "device": "0x73bf\n"})
    tree.card(12, hwmon={"temp2_input": "50000", "temp2_label": "junction"}, vendor="0x1002")
    tree.card(13, hwmon=HWMON, vendor="garbage")
    for other in ("card1-DP-1", "renderD128", "card", "version"):
        (tree.root / "class/drm" / other).mkdir()
    trace = sampled(
        tree, tmp_path / "t", lambda now: wait(lambda: len({s.device for s in now().samples}) == 2)
    )
    assert {s.device for s in trace.samples} == {1, 12}
    assert trace.facts.all == {
        "clocks.interval_ms": "10",
        "card.1.pci": "0000:04:00.0",
        "card.1.device": "0x73bf",
        "card.1.name": "Radeon Pro",
        "card.1.temperature": "edge",
        "card.12.pci": "0000:0f:00.0",
        "card.12.temperature": "junction",
    }  # fmt: skip


def test_changing_values_are_followed(tree: Tree, tmp_path: Path) -> None:
    device = tree.card(0, hwmon=HWMON)

    def change(now: Callable[[], Trace]) -> None:
        wait(lambda: len(now().samples) > 0)
        (device / "hwmon/hwmon3/temp1_input").write_text("90000")
        wait(lambda: any(s.temperature_c == 90 for s in now().samples))

    trace = sampled(tree, tmp_path / "t", change)
    times = [s.time_ns for s in trace.samples]
    assert times == sorted(set(times))
    assert abs(times[0] - time.time_ns()) < 60e9 and {s.temperature_c for s in trace.samples} >= {41.5, 90}


def test_a_card_that_vanishes_and_comes_back_under_another_number(tree: Tree, tmp_path: Path) -> None:
    device = tree.card(0, hwmon=HWMON)
    tree.card(1, hwmon=HWMON)

    def vanish(now: Callable[[], Trace]) -> None:
        wait(lambda: len({s.device for s in now().samples}) == 2)
        (device / "hwmon").rename(device / "gone")
        count = len(now().samples)
        wait(lambda: len([s for s in now().samples if s.device == 1]) > count)  # the other one goes on
        tree.hwmon(device, {"temp1_input": "77000"}, "hwmon9")
        wait(lambda: any(s.temperature_c == 77 for s in now().samples))

    sampled(tree, tmp_path / "t", vanish)


def test_what_blocks_or_is_no_file(tree: Tree, tmp_path: Path) -> None:
    device = tree.card(0, hwmon=HWMON)
    hwmon = device / "hwmon/hwmon3"
    for name in ("freq1_input", "power1_average", "freq2_input"):
        (hwmon / name).unlink()
    os.mkfifo(hwmon / "freq1_input")
    (hwmon / "power1_average").mkdir()
    (hwmon / "freq2_input").symlink_to("freq2_input")
    assert first(sampled(tree, tmp_path / "t")) == (None, None, None, 41.5)


def test_a_driver_that_hangs_holds_up_neither_the_other_card_nor_the_end(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (0, 1):
        tree.card(number, hwmon=HWMON)
    (tmp_path / "t").mkdir()
    sampler = Sampler(tmp_path / "t", 0.01, tree.root)
    real, (slow, _) = clocks._text, sampler.cards

    def hang(path: Path) -> str:
        if path.parent == slow.hwmon and path.name.endswith("_input"):
            time.sleep(30)
        return real(path)

    monkeypatch.setattr(clocks, "_PATIENCE_S", 0.05)
    monkeypatch.setattr(clocks, "_text", hang)
    begin = time.monotonic()
    with sampler:
        wait(lambda: len(read_trace(find_traces([tmp_path / "t"])[0]).samples) > 5)
    assert time.monotonic() - begin < 20 and sampler.problem is None
    samples = read_trace(find_traces([tmp_path / "t"])[0]).samples
    assert len(samples) > 5 and {s.device for s in samples} == {1}


def test_no_card_is_no_trace_and_one_line(tree: Tree, tmp_path: Path) -> None:
    with Sampler(tmp_path, 0.01, tree.root) as sampler:
        pass
    assert sampler.problem == f"no AMD card in {tree.root}/class/drm" and not list(tmp_path.glob("*.kdb*"))
    assert find_cards(tmp_path / "nowhere") == []


def test_a_folder_that_is_gone_is_one_line(tree: Tree, tmp_path: Path) -> None:
    tree.card(0, hwmon=HWMON)
    with Sampler(tmp_path / "gone", 0.01, tree.root) as sampler:
        pass
    assert sampler.problem == "no trace of the clocks can be made: no such file or directory"


def test_a_write_that_fails_ends_the_sampling_alone(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.card(0, hwmon=HWMON)
    (tmp_path / "t").mkdir()

    def full(fd: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "ftruncate", full)
    with Sampler(tmp_path / "t", 0.01, tree.root) as sampler:
        wait(lambda: sampler._file is not None and sampler._file.problem is not None)
    assert sampler.problem == "sampling of the clocks stopped: no space left on device"
    trace = read_trace(find_traces([tmp_path / "t"])[0])
    assert trace.samples == [] and trace.notes == ["recording stopped: no space left on device"]


def test_more_than_a_block(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.card(0, hwmon=HWMON)
    monkeypatch.setattr(clocks, "_BLOCK", 4096)  # 84 samples
    trace = sampled(tree, tmp_path / "t", lambda now: wait(lambda: len(now().samples) > 100))
    assert trace.path.stat().st_size >= 4096 * 4


def test_kill_9_loses_no_sample(tree: Tree, tmp_path: Path) -> None:
    tree.card(0, hwmon=HWMON)
    (tmp_path / "t").mkdir()
    code = (
        "import sys, time; from pathlib import Path; from kdbtool.shim.clocks import Sampler\n"
        "with Sampler(Path(sys.argv[1]), 0.01, Path(sys.argv[2])): time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "t"), str(tree.root)]
    with subprocess.Popen(command) as process:

        def count() -> int:
            return sum(len(read_trace(p).samples) for p in (tmp_path / "t").glob("*.kdbtrace"))

        wait(lambda: count() > 5)
        before = count()
        process.send_signal(signal.SIGKILL)
        process.wait()
    trace = read_trace(find_traces([tmp_path / "t"])[0])
    assert (
        len(trace.samples) >= before and trace.notes == [] and trace.facts.all["card.0.temperature"] == "edge"
    )


@pytest.mark.parametrize(
    "text, seconds", [("100ms", 0.1), ("10ms", 0.01), ("1s", 1), ("0.5s", 0.5), ("3600s", 3600)]
)
def test_intervals(text: str, seconds: float) -> None:
    assert parse_interval(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "100", "9ms", "9.99ms", "0s", "-1s", "1m", "1 s", "3601s", "infs", "nans", "1e3ms", "ms", "\u0661s",
     "1s\n"],
)  # fmt: skip
def test_no_intervals(text: str) -> None:
    with pytest.raises(KdbtoolError, match="no such interval"):
        parse_interval(text)


def test_samples_are_tied_to_regions_and_kernels_by_time(tmp_path: Path) -> None:
    """Nanoseconds as ticks: 100 MHz at 1 s, 200 at 3 s, 300 at 5 s; of another card 900 at 3 s."""
    second = 1_000_000_000

    def sample(at: int, sclk: int, device: int = 0) -> bytes:
        valid = lib.KDBT_SAMPLED_SCLK if sclk else lib.KDBT_SAMPLED_POWER
        return made.record(
            lib.KDBT_SAMPLE,
            made.struct("sample", device=device, valid=valid, sclk_khz=sclk * 1000),
            ticks=at * second,
        )

    def op(at: float, op: int, name: int = 0, id: int = 0) -> bytes:
        fields = made.struct("range", op=op, name=name, id=id)
        return made.record(lib.KDBT_RANGE, fields, ticks=int(at * second))

    names = ((1, b"step"), (2, b"inner"), (3, b"late"))
    launches = ((6, 1.5), (6, 5.5), (7, 3.1), (7, 4.5), (7, 50))
    samples = [sample(1, 100), sample(3, 200), sample(3, 900, 1), sample(4, 0), sample(5, 300)]
    records = [
        *(made.record(lib.KDBT_RANGE_NAME, name, id=i) for i, name in names),
        op(0.5, lib.KDBT_RANGE_PUSH, 1),  # step: 1 s and 3 s
        op(3.25, lib.KDBT_RANGE_PUSH, 2),  # inner: none inside, 3 s before
        op(3.5, lib.KDBT_RANGE_POP),
        op(3.75, lib.KDBT_RANGE_POP),
        op(3.8, lib.KDBT_RANGE_POP),  # of nothing
        op(100, lib.KDBT_RANGE_START, 3, 7),  # late: nothing fresh
        op(101, lib.KDBT_RANGE_STOP, 0, 7),
        op(102, lib.KDBT_RANGE_PUSH, 1),  # never closed
        made.kernel(4, b"k"),
        made.kernel(5, b"l"),
        made.shape(6, 4),
        made.shape(7, 5),
        *(made.launches((s, 0), ticks=int(at * second)) for s, at in launches),
    ]  # fmt: skip
    times = {"load_ns": 0, "load_ticks": 0, "start_ns": 1, "start_ticks": 1}
    blocks = made.block(*samples), made.block(*records, thread=2)
    trace = made.read(tmp_path / "a.kdbtrace", made.header(**times), *blocks)
    assert trace.notes == []
    clock = Clocks(trace.samples, 0)
    assert sclk_by_region(trace, clock) == {"step": 150, "inner": 200}
    assert sclk_by_kernel(trace, clock) == {"k": 200, "l": 200}
    assert sclk_by_kernel(trace, Clocks(trace.samples, 2)) == {}
