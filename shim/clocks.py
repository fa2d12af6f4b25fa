"""Samples the clocks of AMD's cards out of sysfs into a trace of its own, in kdbtool's process alone.

The program that is recorded gets no thread and no descriptor of this. One thread per card, so that a
card whose driver hangs holds up no other; what a card does not tell is not valid in that sample, and a
card that is gone is asked again. A sample is in the page cache as soon as it is made: kill -9 of
kdbtool loses none. Times are CLOCK_MONOTONIC, as in the program's own traces.

Sources: Linux, Documentation/gpu/amdgpu/thermal.rst (hwmon: hertz, microwatts, thousandths of a degree;
freq1 is sclk, freq2 mclk; temp1 edge, temp2 junction, temp3 memory) and pp_dpm_sclk in
drivers/gpu/drm/amd/pm/amdgpu_pm.c ("1: 1000Mhz *", the star at the level in use).
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import threading
import time
from pathlib import Path
from types import TracebackType

from kdbtool.errors import KdbtoolError
from kdbtool.shim import trace_write as write
from kdbtool.shim._trace import ffi, lib

SHORTEST_S, LONGEST_S = 0.01, 3600.0
_AMD = 0x1002
_BLOCK = 65536  # bytes of file that a card takes at a time: some 1300 samples
_COMMITTED, _CLOSED = (ffi.offsetof("struct kdbt_block", field) for field in ("committed", "closed"))
_STOPPED, _FILE_BYTES = (ffi.offsetof("struct kdbt_header", field) for field in ("stop_errno", "file_bytes"))
_FACTS = 1 << 16  # number of the "thread" whose block holds the facts: no card's
_PATIENCE_S = 1.0  # at the end, for a card that is just being read


def parse_interval(text: str) -> float:
    """Seconds of "100ms" or "1.5s", 10 ms to an hour; KdbtoolError for anything else."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s)", text)
    seconds = float(found[1]) / (1000 if found[2] == "ms" else 1) if found else 0.0
    if not found or not SHORTEST_S <= seconds <= LONGEST_S:
        why = "an interval is a number and ms or s, 10ms at least, 3600s at most"
        raise KdbtoolError("no such interval", where=text, why=why, hint="e.g. --clocks 100ms")
    return seconds


class Sampler:
    """Samples every card while it is entered; enter it once the program runs (a fork and threads do
    not go together). It raises nothing: `problem` says why there are no samples, or fewer.

    `folder`: of the traces. `sysfs`: where sysfs is mounted.
    """

    def __init__(self, folder: Path, interval_s: float, sysfs: Path = Path("/sys")) -> None:
        self.folder, self.interval_s = folder, max(interval_s, SHORTEST_S)
        self.cards = find_cards(sysfs)
        self.problem = None if self.cards else f"no AMD card in {sysfs / 'class/drm'}"
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self._file: _File | None = None

    def __enter__(self) -> Sampler:
        if self.cards:
            try:
                self._file = _File(self.folder, self._facts())
            except OSError as error:
                self.problem = f"no trace of the clocks can be made: {error.strerror or error}".lower()
                return self
            for number, card in enumerate(self.cards, 1):
                arguments = (card, self._file, number)
                self._threads.append(threading.Thread(target=self._sample, args=arguments, daemon=True))
                self._threads[-1].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        patience = time.monotonic() + _PATIENCE_S
        for thread in self._threads:  # one that the driver holds is a daemon: it ends with the process
            thread.join(max(0.0, patience - time.monotonic()))
        if self._file:
            self._file.close()
            self.problem = self.problem or self._file.problem

    def _facts(self) -> list[bytes]:
        facts = {"clocks.interval_ms": f"{self.interval_s * 1000:g}"}
        for card in self.cards:
            facts |= card.facts()
        return [
            write.record(lib.KDBT_FACT, write.pair(name.encode(), os.fsencode(value)))
            for name, value in facts.items()
        ]

    def _sample(self, card: Card, file: _File, thread: int) -> None:
        """One card, at multiples of the interval: a late sample puts none off and is not made up for."""
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are the main thread's
        begin = time.monotonic()
        turn = 0
        while True:
            now = time.monotonic_ns()
            if sample := card.sample():
                if self._ended.is_set() and turn:
                    return  # the driver held this one up beyond the program's end
                file.put(thread, write.record(lib.KDBT_SAMPLE, sample, ticks=now))
            turn = max(turn + 1, int((time.monotonic() - begin) / self.interval_s))
            if self._ended.wait(max(0.0, begin + turn * self.interval_s - time.monotonic())):
                return


def find_cards(sysfs: Path) -> list[Card]:
    """AMD's cards (vendor 0x1002) by number. `card0-DP-1` is a connector of a card."""
    found = []
    with contextlib.suppress(OSError):
        for place in (sysfs / "class/drm").iterdir():
            number = re.fullmatch(r"card([0-9]{1,4})", place.name)
            vendor = _text(place / "device/vendor").strip()
            if number and re.fullmatch(r"0x[0-9a-f]{1,8}", vendor) and int(vendor, 16) == _AMD:
                found.append(Card(int(number[1]), place / "device"))
    return sorted(found, key=lambda card: card.number)


class Card:
    """One card's files. They are found again whenever none of them answers: hwmon numbers change when a
    driver is loaded anew."""

    def __init__(self, number: int, device: Path) -> None:
        self.number, self.device = number, device
        self.hwmon: Path | None = None
        self._look()

    def _look(self) -> None:
        """Reads nothing that would ask the card: this runs in the main thread, too."""
        self.hwmon, self.temperature = None, "temp1"
        with contextlib.suppress(OSError):
            self.hwmon = min((self.device / "hwmon").glob("hwmon[0-9]*"), default=None)
            edge = self.hwmon / "temp1_input" if self.hwmon else None
            if edge and not edge.exists():  # MI300 has no edge sensor: the junction's then
                self.temperature = "temp2"

    def facts(self) -> dict[str, str]:
        """`card.N.pci` and what else tells which card it is; no serial number."""
        start = f"card.{self.number}"
        label = _text(self.hwmon / f"{self.temperature}_label").strip() if self.hwmon else ""
        found = {
            f"{start}.pci": Path(os.path.realpath(self.device)).name,
            f"{start}.device": _text(self.device / "device").strip(),
            f"{start}.name": _text(self.device / "product_name").strip(),
            f"{start}.temperature": label,
        }
        return {name: value for name, value in found.items() if value}

    def sample(self) -> bytes:
        """struct kdbt_sample of now; empty where the card told nothing."""
        values = self._values()
        if not values:
            self._look()
            values = self._values()
        if not values:
            return b""
        valid = sum(int(getattr(lib, f"KDBT_SAMPLED_{name}")) for name in values)
        return write.struct(
            "sample",
            device=self.number,
            valid=valid,
            sclk_khz=values.get("SCLK", 0),
            mclk_khz=values.get("MCLK", 0),
            power_uw=values.get("POWER", 0),
            temperature_mc=values.get("TEMPERATURE", 0),
        )

    def _values(self) -> dict[str, int]:
        """In the units of struct kdbt_sample; what is absent, or cannot be so, is left out."""
        power = self._hwmon("power1_average")
        found = {
            "SCLK": _within(self._clock("freq1", "pp_dpm_sclk"), 0, 2**32 - 1),
            "MCLK": _within(self._clock("freq2", "pp_dpm_mclk"), 0, 2**32 - 1),
            "POWER": _within(self._hwmon("power1_input") if power is None else power, 0, 2**32 - 1),
            "TEMPERATURE": _within(self._hwmon(f"{self.temperature}_input"), -273_150, 1_000_000),
        }
        return {name: value for name, value in found.items() if value is not None}

    def _hwmon(self, name: str) -> int | None:
        text = _text(self.hwmon / name).strip() if self.hwmon else ""
        return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else None

    def _clock(self, sensor: str, table: str) -> int | None:
        """kHz: what the card measures, else the table's level with a star."""
        hertz = self._hwmon(f"{sensor}_input")
        if hertz is not None:
            return hertz // 1000
        level = re.search(
            r"^\s*(?:[0-9]+|S):\s*([0-9]{1,7})\s*MHz\s*\*\s*$", _text(self.device / table), re.M | re.I
        )
        return int(level[1]) * 1000 if level else None


def _within(value: int | None, low: int, high: int) -> int | None:
    return value if value is not None and low <= value <= high else None


def _text(path: Path) -> str:
    """What a file says, "" for one that is absent or busy. It waits for no writer of a FIFO."""
    try:
        place = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.read(place, 4096).decode("ascii", "replace")
        finally:
            os.close(place)
    except (OSError, ValueError):
        return ""


class _File:
    """The trace: a header, one block of facts, then blocks of the cards, each its thread's.

    `committed` of a block is written after the record that it covers. A failed write (a full disk) ends
    the sampling; the trace says so.
    """

    def __init__(self, folder: Path, facts: list[bytes]) -> None:
        self.problem: str | None = None
        self._lock = threading.Lock()
        self._blocks: dict[int, list[int]] = {}  # thread: where its block begins, bytes in it, sequence
        load, unix, start = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        host, pid = os.uname().nodename, os.getpid()
        random = secrets.token_hex(8)
        node = re.sub(r"[-/.\s\0]", "_", host)[:32]  # as the recorder names its files
        path = folder / f"{node}-{pid}-{unix:x}-{random}.kdbtrace"
        part = path.with_name(path.name + ".part")
        fields = {
            "pid": pid,
            "ppid": os.getppid(),
            "role": lib.KDBT_ROLE_SAMPLER,
            "load_ns": load,
            "load_ticks": load,
            "start_ns": start,
            "start_ticks": start,
            "start_realtime_ns": unix + (start - load) // 2,
            "host": os.fsencode(host)[:63],
            "exe": b"kdbtool",
        }
        first = write.block(*facts, thread=_FACTS)
        self._end = int(lib.KDBT_HEADER_BYTES) + len(first)
        self._fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            self._write(write.header(**fields, file_bytes=self._end) + first, 0)
            part.rename(path)
        except OSError:
            os.close(self._fd)
            with contextlib.suppress(OSError):
                part.unlink()
            raise

    def put(self, thread: int, record: bytes) -> None:
        """Append a record to the thread's block, or to a new one."""
        with self._lock:
            if self._fd < 0:
                return
            try:
                self._put(thread, record)
            except OSError as error:
                self.problem = f"sampling of the clocks stopped: {error.strerror or error}".lower()
                with contextlib.suppress(OSError):
                    self._number(_STOPPED, error.errno or 5)
                self._finish()

    def _put(self, thread: int, record: bytes) -> None:
        begin, used, sequence = self._blocks.get(thread, [0, 0, -1])
        room = _BLOCK - ffi.sizeof("struct kdbt_block")
        if not begin or used + len(record) > room:
            if begin:
                self._number(begin + _CLOSED, 1)
            begin, used, sequence = self._end, 0, sequence + 1
            empty = write.block(thread=thread, sequence=sequence, room=room)
            os.ftruncate(self._fd, begin + _BLOCK)
            self._write(empty[: ffi.sizeof("struct kdbt_block")], begin)
            self._end = begin + _BLOCK
            self._number(_FILE_BYTES, self._end, "uint64_t")
        self._write(record, begin + ffi.sizeof("struct kdbt_block") + used)
        self._number(begin + _COMMITTED, used + len(record))
        self._blocks[thread] = [begin, used + len(record), sequence]

    def _number(self, at: int, value: int, kind: str = "uint32_t") -> None:
        self._write(bytes(ffi.buffer(ffi.new(f"{kind} *", value))), at)

    def _write(self, data: bytes, at: int) -> None:
        while data:
            done = os.pwrite(self._fd, data, at)
            data, at = data[done:], at + done

    def close(self) -> None:
        """Every block is closed; the file is whole without this, too."""
        with self._lock, contextlib.suppress(OSError):
            if self._fd >= 0:
                self._finish()

    def _finish(self) -> None:
        with contextlib.suppress(OSError):
            for begin, _, _ in self._blocks.values():
                self._number(begin + _CLOSED, 1)
        os.close(self._fd)
        self._fd = -1
