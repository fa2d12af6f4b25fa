"""Every compile is an event: hipRTC's, COMGR's, and those of compilers as processes of their own."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import traces as make
from support.standins import Ran, Standins, compile_standin, python, same, standins, traces

from kdbtool.shim._trace import lib
from kdbtool.shim.compiles import action_name, children, compiled
from kdbtool.shim.trace_model import Compile, Trace

__all__ = ["standins", "traces"]  # fixtures


@dataclass(frozen=True)
class Compilers:
    """`folder`: libhiprtc and libamd_comgr 3; `two`: COMGR 2; `hip5`: hipRTC within libamdhip64."""

    folder: Path
    two: Path
    hip5: Path
    clang: Path


@pytest.fixture(scope="session")
def compilers(standins: Standins, tmp_path_factory: pytest.TempPathFactory) -> Compilers:
    folder = tmp_path_factory.mktemp("compilers")
    two, hip5 = folder / "two", folder / "hip5"
    for place in (two, hip5):
        place.mkdir()
    for place, major in ((folder, 3), (two, 2), (hip5, 3)):
        comgr = place / f"libamd_comgr.so.{major}"
        compile_standin(comgr, "comgr.c", f"-DMAJOR={major}", f"-Wl,-soname,{comgr.name}")
        rtc = place / ("libamdhip64.so.5" if place == hip5 else "libhiprtc.so.6")
        tag = ['-DTAG="HIP"'] if place == hip5 else []
        compile_standin(rtc, "hiprtc.c", *tag, f"-Wl,-soname,{rtc.name}", "-ldl")
        compile_standin(place / "librtcuser.so", "rtcuser.c", f"-DCOMGR={major}", str(rtc), str(comgr))
    compile_standin(folder / "clang++-21", "compiler.c")
    return Compilers(folder, two, hip5, folder / "clang++-21")


PREPARED = """
import ctypes
user = ctypes.CDLL({user!r})
def listed(*options):
    return (ctypes.c_char_p * max(len(options), 1))(*options)
def rtc(name, *options):
    print(user.rtc_compile(name, len(options), listed(*options)), flush=True)
def comgr(name, first, second, *options):
    n = ctypes.c_size_t(len(options))
    print(user.comgr_compile(name, n, listed(*options), first, second), flush=True)
"""


def run(standins: Standins, traces: Path, place: Path, code: str) -> Ran:
    """Output and exit code are the same with the recorder."""
    whole = PREPARED.format(user=str(place / "librtcuser.so")) + code
    return same(standins, traces, *python(whole), env={"LD_LIBRARY_PATH": str(place)})


def told(one: Compile) -> tuple[object, ...]:
    return one.by, one.name, one.options, one.left_out, one.result, one.nested, one.size


OPTIONS = 'b"-DA=1", b"-O3", b"-I/secret/dir", b"-DP=/secret", b"--offload-arch=gfx1030"'
KEPT = ("-DA=1", "-O3", "--offload-arch=gfx1030")
ISA = "isa=amdgcn-amd-amdhsa--gfx1030"


@pytest.mark.parametrize("where", ["folder", "hip5"])
def test_hiprtc_with_comgr_inside(standins: Standins, traces: Path, compilers: Compilers, where: str) -> None:
    """hipRTC takes COMGR by dlopen and dlsym; the program hipRTC by linking, from libamdhip64 in HIP 5."""
    ran = run(standins, traces, getattr(compilers, where), f'rtc(b"/secret/kernel.cpp", {OPTIONS})')
    inner, outer = ran.trace.compiles
    assert told(outer) == ("hiprtc", "kernel.cpp", KEPT, 2, 0, False, 12345)
    assert told(inner) == ("comgr", "kernel.cpp", (ISA, *KEPT), 2, 0, True, 0)
    assert outer.time_ns <= inner.time_ns
    assert outer.duration_ns >= inner.duration_ns > 0
    assert action_name(ran.trace.facts, inner) == "COMPILE_SOURCE_TO_BC"
    assert action_name(ran.trace.facts, outer) is None
    assert compiled(ran.trace) == 1
    assert ran.trace.facts.all["comgr.version"] == "3.5"
    assert ran.trace.facts.all["hiprtc.path"].startswith(str(compilers.folder))
    assert ran.trace.notes == []
    assert b"secret" not in b"".join(p for p in ran.trace.path.read_bytes().split(b"\0") if b".so" not in p)


def test_dlsym(standins: Standins, traces: Path, compilers: Compilers) -> None:
    code = """
rtc = ctypes.CDLL("libhiprtc.so.6")
p, size, none = ctypes.c_void_p(), ctypes.c_size_t(), None
print(rtc.hiprtcCreateProgram(ctypes.byref(p), b"s", b"k.cu", 0, none, none), flush=True)
print(rtc.hiprtcCompileProgram(p, 1, listed(b"-DX")))
print(rtc.hiprtcGetBitcodeSize(p, ctypes.byref(size)), size.value)
print(rtc.hiprtcGetCodeSize(p, ctypes.byref(size)), size.value, rtc.hiprtcDestroyProgram(ctypes.byref(p)))
"""
    ran = run(standins, traces, compilers.folder, code)
    _, outer = ran.trace.compiles
    assert told(outer) == (
        "hiprtc",
        "k.cu",
        ("-DX",),
        0,
        0,
        False,
        54321,
    )  # the first size that was asked for


@pytest.mark.parametrize("first", ["user", "hip"])
def test_the_copy_within_hip_is_not_taken_for_hiprtc(
    standins: Standins, traces: Path, compilers: Compilers, first: str
) -> None:
    """The program's calls go where ld.so bound them: `same` compares what the libraries print."""
    loads = [
        f"user = ctypes.CDLL({str(compilers.folder / 'librtcuser.so')!r})",
        f"ctypes.CDLL({str(compilers.hip5 / 'libamdhip64.so.5')!r}, ctypes.RTLD_GLOBAL)",
    ]
    code = "import ctypes\n" + "\n".join(loads if first == "user" else reversed(loads))
    code += "\nuser.rtc_compile(b'a.cpp', 0, None)"
    ran = same(standins, traces, *python(code), env={"LD_LIBRARY_PATH": str(compilers.folder)})
    assert ("create libhiprtc" if first == "user" else "create HIP") in ran.out
    assert compiled(ran.trace) == 1


def test_compile_that_fails(standins: Standins, traces: Path, compilers: Compilers) -> None:
    ran = run(standins, traces, compilers.folder, 'rtc(b"bad.cpp", b"-DA"); comgr(b"bad.s", 8, 7, b"-DB")')
    assert ran.out.startswith("6\n1\n")
    assert [told(one) for one in ran.trace.compiles] == [
        ("comgr", "bad.cpp", (ISA, "-DA"), 0, 1, True, 0),
        ("hiprtc", "bad.cpp", ("-DA",), 0, 6, False, 0),
        ("comgr", "bad.s", ("isa=amdgcn-amd-amdhsa--gfx906:xnack-", "language=3", "-DB"), 0, 1, False, 0),
    ]
    assert compiled(ran.trace) == 2


@pytest.mark.parametrize(
    ("where", "actions", "names"),
    [
        ("folder", (2, 7), ["COMPILE_SOURCE_TO_BC", "LINK_RELOCATABLE_TO_EXECUTABLE"]),
        ("folder", (12, 4), ["COMPILE_SOURCE_WITH_DEVICE_LIBS_TO_BC", "CODEGEN_BC_TO_RELOCATABLE"]),
        ("two", (15, 4), ["COMPILE_SOURCE_WITH_DEVICE_LIBS_TO_BC", "LINK_BC_TO_BC"]),
        ("two", (10, 9), ["ASSEMBLE_SOURCE_TO_RELOCATABLE", "LINK_RELOCATABLE_TO_EXECUTABLE"]),
    ],
)
def test_comgr_of_each_version(
    standins: Standins,
    traces: Path,
    compilers: Compilers,
    where: str,
    actions: tuple[int, int],
    names: list[str],
) -> None:
    """Handles by value; a source is released before it is compiled; options as a list and as one text."""
    options = 'b"-DA=1 -O2  -I /secret -mllvm -amdgpu-prelink=1"'
    if where == "folder":
        options = 'b"-DA=1", b"-O2", b"-I", b"/secret", b"-mllvm", b"-amdgpu-prelink=1"'
    ran = run(
        standins,
        traces,
        getattr(compilers, where),
        f'comgr(b"dir/conv.s", {actions[0]}, {actions[1]}, {options})',
    )
    kept = (
        "isa=amdgcn-amd-amdhsa--gfx906:xnack-",
        "language=3",
        "-DA=1",
        "-O2",
        "-mllvm",
        "-amdgpu-prelink=1",
    )
    assert [told(one) for one in ran.trace.compiles] == [
        ("comgr", "conv.s", kept, 1, 0, False, 0),
        ("comgr", "conv.s", kept, 1, 0, False, 1008),  # of the executable, not of the log
    ]
    assert [action_name(ran.trace.facts, one) for one in ran.trace.compiles] == names
    assert compiled(ran.trace) == 1


def test_links_of_hiprtc(standins: Standins, traces: Path, compilers: Compilers) -> None:
    code = """
rtc = ctypes.CDLL("libhiprtc.so.6")
s, out, size, none = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t(), None
print(rtc.hiprtcLinkCreate(2, none, none, ctypes.byref(s)), flush=True)
print(rtc.hiprtcLinkAddFile(s, 3, b"/secret/a.bc", 0, none, none), flush=True)
print(rtc.hiprtcLinkAddData(s, 4, b"xy", ctypes.c_size_t(2), b"b.bc", 1, none, none), flush=True)
print(rtc.hiprtcLinkComplete(s, ctypes.byref(out), ctypes.byref(size)), size.value, rtc.hiprtcLinkDestroy(s))
"""
    ran = run(standins, traces, compilers.folder, code)
    (link,) = ran.trace.compiles
    assert told(link) == ("hiprtc", "a.bc", (), 3, 0, False, 777)
    assert compiled(ran.trace) == 0


# -- options


@pytest.mark.parametrize(
    ("words", "kept", "left"),
    [
        (["-DA", "-DB=", "-DC=a::b", "-DD=4,2", "-DE=-1.5e+3"], 5, 0),
        (["-D", "A=1", "-U", "B", "-x", "hip", "-mllvm", "-enable-misched=false"], 8, 0),
        (["-D", "A=/b", "-x", "a/b", "-mllvm", "-load=x.so", "-mllvm"], 0, 4),
        (['-DA="x"', "-DA='x'", "-DA=a b", "-DA=\udcff", "-DA=<x>", "-D1=2", "-D", "-DA=a:b"], 0, 7),
        (["-mcpu=gfx906:sramecc+:xnack-", "--offload-arch=gfx90a", "-mwavefrontsize64", "-mno-cumode"], 4, 0),
        (["-mcode-object-version=5", "-std=c++17", "--std=c++20", "-cl-std=CL2.0", "-Ofast", "-O3"], 6, 0),
        (["-Wa,-defsym,A=1", "-Wa,-defsym,A=0xfF", "-Wno-error=x", "-ffp-contract=fast", "-fno-a"], 5, 0),
        (["-Wa,-I,x", "-Wl,-rpath,x", "-fplugin=x.so", "-ffile-prefix-map=a=b", "-Wa,-defsym,A=b"], 0, 5),
        (["-include", "secret.h", "-isystem", "secret", "-o", "secret", "-Isecret", "-Xclang", "-Ds"], 0, 5),
        (["@secret", "-", "--unknown", "-MF", "secret.d", "-mlink-builtin-bitcode=secret.bc"], 0, 4),
        (["-c", "-S", "-E", "-w", "-nogpuinc", "-target", "amdgcn-amd-amdhsa", "--target=amdgcn--"], 8, 0),
        (["-D" + "A" * 257, "-DA=" + "1" * 3000], 0, 2),
    ],
)  # fmt: skip
def test_the_list_of_options(
    standins: Standins, traces: Path, compilers: Compilers, words: list[str], kept: int, left: int
) -> None:
    options = ", ".join(repr(word.encode("utf-8", "surrogateescape")) for word in words)
    trace = run(standins, traces, compilers.folder, f'rtc(b"k.cpp", {options})').trace
    one = next(one for one in trace.compiles if one.by == "hiprtc")
    assert (one.options, one.left_out) == (tuple(words) if kept else (), left)
    assert b"secret" not in trace.path.read_bytes()


def test_a_hundred_thousand_options_and_one_of_a_megabyte(
    standins: Standins, traces: Path, compilers: Compilers
) -> None:
    code = """
rtc(b"many.cpp", *[b"-DA%06d=1" % i for i in range(100000)])
rtc(b"long.cpp", b"-DA=" + b"1" * 1000000, b"-DB")
rtc(b"n" * 50000)
"""
    trace = run(standins, traces, compilers.folder, code).trace
    many, long, name = (one for one in trace.compiles if one.by == "hiprtc")
    room = 32768 // len(b"-DA000000=1\0")
    assert many.options == tuple(f"-DA{i:06}=1" for i in range(room))
    assert many.left_out == 100000 - room
    assert (long.options, long.left_out) == (("-DB",), 1)
    assert name.name == "n" * 123
    assert trace.notes == []


def test_null_and_wrong_arguments(standins: Standins, traces: Path, compilers: Compilers) -> None:
    code = """
lib, comgr3, none = ctypes.CDLL("libhiprtc.so.6"), ctypes.CDLL("libamd_comgr.so.3"), None
h = ctypes.c_uint64
rtc(none, b"-DA", none)
print(lib.hiprtcCompileProgram(none, 3, listed(b"-DA")))
print(lib.hiprtcCompileProgram(ctypes.c_void_p(64), 2, none))
print(lib.hiprtcLinkComplete(none, ctypes.byref(h()), ctypes.byref(h())), flush=True)
print(comgr3.amd_comgr_create_data(99, none))
print(comgr3.amd_comgr_do_action(77, h(1), h(2), h(2)), flush=True)
print(comgr3.amd_comgr_action_info_set_option_list(h(5), none, h(0)))
print(comgr3.amd_comgr_set_data_name(h(0), none))
"""
    trace = run(standins, traces, compilers.folder, code).trace
    assert [(one.name, one.options, one.left_out, one.result) for one in trace.compiles] == [
        ("", (ISA, "-DA"), 1, 0),
        ("", ("-DA",), 1, 0),
        ("", (), 0, 4),
        ("", (), 0, 3),
        *[("", (), 0, 0)] * 2,
    ]
    assert action_name(trace.facts, trace.compiles[-1]) is None


def test_threads(standins: Standins, traces: Path, compilers: Compilers) -> None:
    code = """
import threading
def work(n):
    for i in range(25):
        rtc(b"t%d.cpp" % n, b"-DT=%d" % n, b"-DI=%d" % i)
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for t in threads: t.start()
for t in threads: t.join()
"""
    whole = PREPARED.format(user=str(compilers.folder / "librtcuser.so")) + code
    trace = standins.run(traces, *python(whole), env={"LD_LIBRARY_PATH": str(compilers.folder)}).trace
    outer = [one for one in trace.compiles if one.by == "hiprtc"]
    assert len(trace.compiles) == 400
    assert compiled(trace) == 200
    assert all(one.size == 12345 and one.options[0] == f"-DT={one.name[1]}" for one in outer)
    assert all(one.nested for one in trace.compiles if one.by == "comgr")


def test_a_size_after_fork_is_nobodys(standins: Standins, traces: Path, compilers: Compilers) -> None:
    code = """
import os
rtc = ctypes.CDLL("libhiprtc.so.6")
p, size = ctypes.c_void_p(), ctypes.c_size_t()
rtc.hiprtcCreateProgram(ctypes.byref(p), b"s", b"k.cu", 0, None, None)
rtc.hiprtcCompileProgram(p, 0, None)
print(flush=True)
if os.fork() == 0:
    rtc.hiprtcGetCodeSize(p, ctypes.byref(size)); rtc.hiprtcCompileProgram(p, 0, None); os._exit(0)
os.wait()
"""
    ran = standins.run(traces, *python(PREPARED.format(user=str(compilers.folder / "librtcuser.so")) + code),
                       env={"LD_LIBRARY_PATH": str(compilers.folder)})  # fmt: skip
    assert [[one.size for one in t.compiles if one.by == "hiprtc"] for t in ran.traces] == [[0], [0]]
    assert all(t.notes == [] for t in ran.traces)


# -- compilers as processes

CLANG = (
    *("-x", "hip", "-DA=1", "-DQ=/x", "--offload-arch=gfx1030", "-c"),
    *("/tmp/miopen-1/conv.cpp", "-o", "/tmp/conv.o"),
)
SHOWN = ("-x", "hip", "-DA=1", "--offload-arch=gfx1030", "-c")


def start(
    standins: Standins,
    traces: Path,
    command: str,
    *,
    miopen: bool = True,
    env: Mapping[str, str] | None = None,
) -> Ran:
    """A program, with libMIOpen or without, that starts this as MIOpen does: popen. It has a trace."""
    library = f"ctypes.CDLL({str(standins.folder / 'libMIOpen.so.1')!r})" if miopen else ""
    code = f"""
import ctypes
{library}
hip = ctypes.CDLL({str(standins.folder / "libamdhip64.so.6")!r})
hip.hipModuleLaunchKernel(ctypes.c_void_p(64), 1, 1, 1, 1, 1, 1, 0, None, None, None)
libc = ctypes.CDLL(None)
libc.popen.restype = ctypes.c_void_p
pipe = ctypes.c_void_p(libc.popen({command.encode()!r}, b"w"))
print(libc.pclose(pipe))
"""
    return same(standins, traces, *python(code), env=env)


def driver(ran: Ran, role: str = "compiler") -> Trace:
    return next(trace for trace in ran.traces if trace.facts.role == role)


@pytest.mark.parametrize("end", ["0", "1", "77", "255"])
def test_compiler_that_miopen_starts(
    standins: Standins, traces: Path, compilers: Compilers, end: str
) -> None:
    ran = start(standins, traces, f"cd /tmp; {compilers.clang} {shlex.join(CLANG)}", env={"END": end})
    assert "/tmp/conv.o" in ran.out + ran.err  # all arguments as they are
    (one,) = driver(ran).compiles
    host = driver(ran, "host")
    assert told(one) == ("process", "conv.cpp", SHOWN, 2, None, False, 0)
    assert (one.starter, one.exit_code) == (host.facts.pid, int(end))
    assert one.duration_ns > 0
    assert host.facts.start_ns <= one.time_ns + 10_000_000
    assert children(ran.traces) == {host.path: [driver(ran)]}
    assert [compiled(trace) for trace in (driver(ran), host)] == [1, 0]
    data = driver(ran).path.read_bytes()
    assert not any(word in data for word in (b"/tmp", b"conv.o", b"miopen-1"))


@pytest.mark.parametrize("how", ["posix_spawn", "fork"])
def test_started_without_a_shell(standins: Standins, traces: Path, compilers: Compilers, how: str) -> None:
    before = "None" if how == "posix_spawn" else "lambda: None"
    code = f"""
import ctypes, subprocess
ctypes.CDLL({str(standins.folder / "libMIOpen.so.1")!r})
print(subprocess.run({[str(compilers.clang), *CLANG]!r}, close_fds=False, preexec_fn={before}).returncode)
"""
    (one,) = driver(same(standins, traces, *python(code), env={"END": "2"})).compiles
    assert (one.name, one.options, one.exit_code) == ("conv.cpp", SHOWN, 2)
    assert one.starter is not None


def test_several_shells_up(standins: Standins, traces: Path, compilers: Compilers) -> None:
    inner = f"true; {compilers.clang} {shlex.join(CLANG)}; true"
    ran = start(
        standins, traces, f"true; sh -c {shlex.quote('true; sh -c ' + shlex.quote(inner) + '; true')}; true"
    )
    (one,) = driver(ran).compiles
    assert one.starter == driver(ran, "host").facts.pid


@pytest.mark.parametrize("end", ["abort", "_exit"])
def test_a_compiler_that_does_not_exit(
    standins: Standins, traces: Path, compilers: Compilers, end: str
) -> None:
    ran = start(standins, traces, f"{compilers.clang} {shlex.join(CLANG)}", env={"END": end})
    (one,) = driver(ran).compiles
    assert (one.name, one.exit_code, one.duration_ns) == ("conv.cpp", None, 0)


def test_a_forked_child_of_a_compiler_says_nothing(
    standins: Standins, traces: Path, compilers: Compilers
) -> None:
    ran = start(standins, traces, f"{compilers.clang} {shlex.join(CLANG)}", env={"END": "fork"})
    (one,) = driver(ran).compiles
    assert one.exit_code == 3
    assert len(ran.traces) == 2


@pytest.mark.parametrize(
    ("miopen", "words"),
    [(False, CLANG), (True, ("-DSECRET=1", "-O2", "-c", "secret.c"))],
    ids=["no libMIOpen", "not for a GPU"],
)
def test_other_compilers_have_no_name_and_no_options(
    standins: Standins, traces: Path, compilers: Compilers, miopen: bool, words: tuple[str, ...]
) -> None:
    ran = start(standins, traces, f"{compilers.clang} {shlex.join(words)}", miopen=miopen)
    assert driver(ran).compiles == []
    assert driver(ran).path.stat().st_size <= 4096 + 16384
    data = driver(ran).path.read_bytes()
    assert not any(word in data for word in (b"SECRET", b"secret", b"conv", b"gfx"))
    assert children(ran.traces) == {}


@pytest.mark.parametrize("name", ["ld.lld", "clang-offload-bundler", "hipcc"])
def test_helpers_of_a_compiler_tell_only_how_they_ended(
    standins: Standins, traces: Path, compilers: Compilers, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).symlink_to(compilers.clang)
    ran = start(standins, traces, f"{tmp_path / name} {shlex.join(CLANG)}", env={"END": "4"})
    (helper,) = (trace for trace in ran.traces if trace.facts.role != "host")
    (one,) = helper.compiles
    assert (one.name, one.options, one.left_out, one.exit_code) == ("", (), 6, 4)
    assert compiled(helper) == 0
    assert children(ran.traces) == {}


# -- reading


def event(**fields: object) -> bytes:
    return make.record(lib.KDBT_COMPILE, make.struct("compile", **fields), id=7)


def test_children_of_a_reused_pid_and_of_parts(tmp_path: Path) -> None:
    """Each goes to the last program of that pid, and that host, that had begun."""

    def trace(name: str, role: int, start: int, pid: int, host: bytes = b"node", starter: int = 0) -> Trace:
        header = make.header(role=role, start_realtime_ns=start, pid=pid, host=host)
        return make.read(tmp_path / name, header, make.block(event(by=lib.KDBT_BY_PROCESS, starter=starter)))

    hosts = [trace("a", 0, 1000, 50), trace("b", 0, 3000, 50), trace("c", 0, 1000, 50, b"other")]
    drivers = [trace(f"d{n}", 1, n, 60 + n, b"node", 50) for n in (500, 1500, 2999, 3000, 9000)]
    lost = trace("e", 1, 2000, 99, b"node", 51)
    found = children([lost, *reversed(drivers), *hosts])
    assert found == {hosts[0].path: drivers[:3], hosts[1].path: drivers[3:]}


def test_a_size_of_no_compile_is_counted(tmp_path: Path) -> None:
    sizes = [
        make.record(lib.KDBT_OUTPUT, make.struct("output", compile=n, bytes=b))
        for n, b in ((7, 5), (7, 9), (8, 1))
    ]
    trace = make.read(tmp_path / "t", make.header(), make.block(event(by=lib.KDBT_BY_HIPRTC), *sizes))
    assert [one.size for one in trace.compiles] == [9]
    assert len(trace.notes) == 1


@pytest.mark.parametrize("options", [bytes(1 << 16), b"-DA\0" * (1 << 15), b"\0-DA\0", b"-DA\0\0"])
def test_options_that_no_recorder_writes(tmp_path: Path, options: bytes) -> None:
    """Millions of empty ones would be hundreds of megabytes."""
    fields = make.struct("compile", by=lib.KDBT_BY_COMGR, option_bytes=len(options))
    trace = make.read(
        tmp_path / "t", make.header(), make.block(make.record(lib.KDBT_COMPILE, fields + options, id=7))
    )
    assert trace.compiles == []
    assert len(trace.notes) == 1
