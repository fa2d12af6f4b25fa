"""Every form of a launch: which kernel, how large, where; graphs and captures; a million of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from support.hip_calls import hip_program
from support.standins import Standins, same, standins, traces

from kdbtool.shim.trace import Launch, Trace

__all__ = ["standins", "traces"]  # fixtures

PER_THREAD = 2


def one(standins: Standins, traces: Path, code: str, *, tag: int = 1) -> Launch:
    (launch,) = hip_program(standins, traces, code, tag=tag).trace.launches
    return launch


def captured(trace: Trace) -> list[bool]:
    """Of each launch, in order."""
    return [x.captured for x in trace.launches]


def graphs(trace: Trace) -> list[int | None]:
    """Kernel nodes of each graph launch, None: not known."""
    return [x.kernels for x in trace.graphs]


# -- forms

EXT = "*GB, c.c_size_t(16), S, None, None, None, None"
FORMS = {
    "hipModuleLaunchKernel": ("F, *GB, 16, S, None, None", "module"),
    "hipExtModuleLaunchKernel": (f"F, {EXT}, 1", "ext"),
    "_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j": (
        f"F, {EXT}, 1",
        "ext",
    ),
    "hipHccModuleLaunchKernel": (f"F, {EXT}", "ext"),
    "_Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_": (
        f"F, {EXT}",
        "ext",
    ),
    "hipModuleLaunchCooperativeKernel": ("F, *GB, 16, S, None", "cooperative"),
    "hipDrvLaunchKernelEx": ("c.byref(DriverConfig(G, B, 16, S)), F, None, None", "module"),
    "hipModuleLaunchCooperativeKernelMultiDevice": (
        "c.byref(ModuleLaunch(F, G, B, 16, S)), 1, 0",
        "cooperative",
    ),
    "hipLaunchKernel": ("HOST, G, B, None, c.c_size_t(16), S", "host"),
    "hipExtLaunchKernel": ("HOST, G, B, None, c.c_size_t(16), S, None, None, 0", "host"),
    "hipLaunchCooperativeKernel": ("HOST, G, B, None, 16, S", "cooperative"),
    "hipLaunchKernel_spt": ("HOST, G, B, None, c.c_size_t(16), S", "host"),
    "hipLaunchCooperativeKernel_spt": ("HOST, G, B, None, 16, S", "cooperative"),
    "hipLaunchKernelExC": ("c.byref(HostConfig(G, B, 16, S)), HOST, None", "host"),
    "hipLaunchCooperativeKernelMultiDevice": (
        "c.byref(HostLaunch(HOST, G, B, None, 16, S)), 1, 0",
        "cooperative",
    ),
    "hipExtLaunchMultiKernelMultiDevice": ("c.byref(HostLaunch(HOST, G, B, None, 16, S)), 1, 0", "host"),
}


@pytest.mark.parametrize("name", FORMS)
def test_form(standins: Standins, traces: Path, name: str) -> None:
    args, form = FORMS[name]
    x = one(standins, traces, f"F = function('module_kernel'); register(); call({name!r}, {args})")
    kernel = "module_kernel" if "F" in args.replace("HOST", "") else "host_kernel"
    grid = (1, 2, 2) if form == "ext" else (4, 3, 2)  # that form counts work-items
    assert (x.kernel, x.grid, x.block, x.lds, x.stream, x.device, x.form) == (
        *(kernel, grid, (64, 2, 1), 16, 0x5000, 0, form),
    )


@pytest.mark.parametrize("tag", [1, 2])
def test_in_two_calls(standins: Standins, traces: Path, tag: int) -> None:
    """The configuration is per thread and nests. What HIP 5 then launches itself is one launch, by name."""
    code = """
register(); register(b"inner", P(0x7100))
def run():
    call("hipConfigureCall", G, B, c.c_size_t(16), S)
    call("hipLaunchByPtr", HOST)
    call("hipConfigureCall", G, dim3(8, 1, 1), c.c_size_t(0), None)
    call("hipConfigureCall", dim3(1, 1, 1), dim3(9, 1, 1), c.c_size_t(0), None)
    call("hipLaunchByPtr", P(0x7100))
    call("hipLaunchByPtr", HOST)
thread = threading.Thread(target=run)
run(); thread.start(); thread.join()
"""
    ran = hip_program(standins, traces, code, tag=tag)
    blocks = [(x.kernel, x.thread, x.block) for x in ran.trace.launches]
    if tag == 1:
        assert blocks == [
            (name, thread, block)
            for thread in (1, 2)
            for name, block in (("host_kernel", (64, 2, 1)), ("inner", (9, 1, 1)), ("host_kernel", (8, 1, 1)))
        ]
    else:  # the stand-in keeps one configuration
        assert [name for name, *_ in blocks] == ["host_kernel", "inner", "host_kernel"] * 2


def test_several_devices_are_as_many_launches(standins: Standins, traces: Path) -> None:
    code = """
register()
streams = []
for device in (2, 1):
    call("hipSetDevice", device)
    streams.append(new("hipStreamCreate"))
call("hipSetDevice", 0)
both = (HostLaunch * 2)(*(HostLaunch(HOST, G, B, None, 0, s) for s in streams))
call("hipLaunchCooperativeKernelMultiDevice", both, 2, 0)
call("hipLaunchCooperativeKernelMultiDevice", both, 0, 0)
"""
    assert [x.device for x in hip_program(standins, traces, code).trace.launches] == [2, 1]


def test_rejected_launches_are_not_recorded(standins: Standins, traces: Path) -> None:
    code = """
f = function("k")
launch(None, want=400)
call("hipLaunchKernel", None, G, B, None, c.c_size_t(0), None, want=400)
call("hipDrvLaunchKernelEx", c.byref(DriverConfig()), None, None, None, want=400)
call("hipExtLaunchMultiKernelMultiDevice", None, 2, 0, want=400)
call("hipGraphLaunch", None, None, want=1)
call("hipConfigureCall", G, B, c.c_size_t(0), None)
call("hipLaunchByPtr", None, want=400)
launch(f, grid=7)
"""
    trace = hip_program(standins, traces, code).trace
    assert [x.grid for x in trace.launches] == [(7, 1, 1)]
    assert graphs(trace) == []


# -- which kernel


def test_library_of_hip_7(standins: Standins, traces: Path) -> None:
    code = """
for load, what in (("hipLibraryLoadData", IMAGE), ("hipLibraryLoadFromFile", b"/no/such/file")):
    library = new(load, what, None, None, 0, None, None, 0)
    kernel = new("hipLibraryGetKernel", library, load.encode())
    launch(kernel)
    launch(new("hipKernelGetFunction", kernel))
    call("hipLaunchKernel", kernel, G, B, None, c.c_size_t(0), None)
    call("hipLibraryUnload", library)
"""
    trace = hip_program(standins, traces, code).trace
    assert Counter((x.kernel, x.module and x.module.source) for x in trace.launches) == {
        ("hipLibraryLoadData", "memory"): 3,
        ("hipLibraryLoadFromFile", "file"): 3,
    }
    assert [(m.size, m.source) for m in trace.modules] == [(64, "memory"), (0, "file")]


def test_kernels_that_are_listed(standins: Standins, traces: Path) -> None:
    """Nameless until the host asks; another library's at the same handles are others."""
    code = """
for ask, image in (True, IMAGE), (False, IMAGE.replace(bytes(9), b"another 9", 1)):
    library = new("hipLibraryLoadData", image, None, None, 0, None, None, 0)
    kernels = (P * 2)()
    call("hipLibraryEnumerateKernels", kernels, 2, library)
    launch(P(kernels[1])); name = c.c_char_p()
    if ask:
        for kernel in kernels: call("hipKernelGetName", c.byref(name), P(kernel))
        call("hipLibraryEnumerateKernels", kernels, 2, library)
    for kernel in kernels: launch(P(kernel))
    call("hipLibraryUnload", library)
"""
    launches = list(hip_program(standins, traces, code).trace.launches)
    assert [x.kernel for x in launches] == ["", "first", "second", "", "", ""]
    assert len({x.module for x in launches}) == 2 and None not in {x.module for x in launches}


def test_function_of_a_host_function(standins: Standins, traces: Path) -> None:
    x = one(standins, traces, "register(); launch(new('hipGetFuncBySymbol', HOST))")
    assert (x.kernel, x.form, x.module and x.module.source) == ("host_kernel", "module", "fatbin")


def test_unregistered_library(standins: Standins, traces: Path) -> None:
    """Its names are gone with it: not read. Another one at its place has its own."""
    code = """
go = lambda: call("hipLaunchKernel", HOST, G, B, None, c.c_size_t(0), None)
fat = register(b"first"); hip["__hipUnregisterFatBinary"](fat); go()
fat = register(b"second"); go(); hip["__hipUnregisterFatBinary"](fat)
register(b"third"); go()
"""
    launches = list(hip_program(standins, traces, code).trace.launches)
    assert [x.kernel for x in launches] == ["", "second", "third"]
    assert len({x.module for x in launches}) == 3


def test_function_that_was_never_seen(standins: Standins, traces: Path) -> None:
    code = """
launch(P(0x9000)); launch(P(0x9000))
f = function("known")
launch(f)
"""
    trace = hip_program(standins, traces, code).trace
    assert [(x.kernel, x.module is None) for x in trace.launches] == [("", True)] * 2 + [("known", False)]


def test_handles_that_are_reused(standins: Standins, traces: Path) -> None:
    code = """
for load in range(3):
    module = new("hipModuleLoadData", IMAGE)
    launch(function("kernel_%d" % load, module))
    call("hipModuleUnload", module)
call("hipModuleUnload", None, want=1)
"""
    trace = hip_program(standins, traces, code).trace
    assert [x.kernel for x in trace.launches] == ["kernel_0", "kernel_1", "kernel_2"]
    assert len(trace.modules) == 3


# -- where


def test_device_is_the_stream_s(standins: Standins, traces: Path) -> None:
    code = """
f = function("k")
call("hipSetDevice", 3)
streams = [new("hipStreamCreate"), new("hipStreamCreateWithFlags", 1),
    new("hipStreamCreateWithPriority", 0, -1), new("hipExtStreamCreateWithCUMask", 1, None)]
launch(f); call("hipSetDevice", 1)
for s in streams: launch(f, s)
launch(f); launch(f, P(2)); launch(f, P(0x8888))
call("hipStreamDestroy", streams[0])
launch(f, new("hipStreamCreate"))  # the same handle, on another device
"""
    launches = list(hip_program(standins, traces, code).trace.launches)
    assert [x.device for x in launches] == [3, 3, 3, 3, 3, 1, 1, 1, 1]
    assert launches[1].stream == launches[-1].stream


def test_context_is_a_device(standins: Standins, traces: Path) -> None:
    code = """
f = function("k")
primary, made = new("hipDevicePrimaryCtxRetain", 2), new("hipCtxCreate", 0, 1)
for name, context in ("Set", primary), ("Push", made), ("Set", P(0x99)):
    call(f"hipCtx{name}Current", context); launch(f)
threading.Thread(target=launch, args=(f,)).start()
"""
    assert [x.device for x in hip_program(standins, traces, code).trace.launches] == [2, 1, 1, 0]


@pytest.mark.parametrize("name", ["hipGetDevicePropertiesR0600", "hipGetDeviceProperties"])
def test_device_facts(standins: Standins, traces: Path, name: str) -> None:
    code = f"for n in (0, 1): call({name!r}, c.create_string_buffer(1472), n)\nlaunch(function('k'))"
    facts = hip_program(standins, traces, code).trace.facts
    assert (facts.device, facts.cu) == ("gfx1030", 100)
    assert (facts.all["device.1"], facts.all["device.1.cu"]) == ("gfx90a:sramecc+:xnack-", "101")


def test_per_thread_stream(standins: Standins, traces: Path) -> None:
    code = """
register()
for name in ("hipLaunchKernel", "hipLaunchKernel_spt"):
    call(name, HOST, G, B, None, c.c_size_t(0), None)
"""
    assert [x.stream for x in hip_program(standins, traces, code).trace.launches] == [0, PER_THREAD]


POINTERS = {
    "hipGetProcAddress": "600, c.c_uint64(2), None",
    "hipGetProcAddress_spt": "600, c.c_uint64(0), None",
    "hipGetDriverEntryPoint": "c.c_ulonglong(2), None",
    "hipGetDriverEntryPoint_spt": "c.c_ulonglong(0), None",
}


@pytest.mark.parametrize("name", POINTERS)
def test_pointer_to_another_function_than_asked_for(standins: Standins, traces: Path, name: str) -> None:
    code = f"""
register()
def pointer(asked, *types):
    call({name!r}, asked, c.byref(found := P()), {POINTERS[name]})
    return c.CFUNCTYPE(c.c_int, *types)(found.value)
pointer(b"hipGetDeviceProperties", P, c.c_int)(c.create_string_buffer(1472), 0)
pointer(b"hipLaunchKernel", P, dim3, dim3, P, c.c_size_t, P)(HOST, G, B, None, 0, None)
call({name!r}, b"nothing", c.byref(P()), {POINTERS[name]}, want=500)
"""
    trace = hip_program(standins, traces, code).trace
    assert [(x.kernel, x.stream) for x in trace.launches] == [("host_kernel", PER_THREAD)]
    assert (trace.facts.device, trace.facts.cu) == ("gfx1030", 100)


# -- captures and graphs


def test_capture(standins: Standins, traces: Path) -> None:
    """Flagged from begin to end, on its stream and on what waits for it; counted into the graph."""
    code = """
f, s, joined, other = function("k"), *(new("hipStreamCreate") for _ in range(3))
event, idle = P(0x600), P(0x700)
launch(f, s)
call("hipStreamBeginCapture", s, 0)
launch(f, s); launch(f, other); launch(f, None)
call("hipEventRecord", event, s); call("hipEventRecord", idle, other)
call("hipStreamWaitEvent", joined, event, 0); call("hipStreamWaitEvent", other, idle, 0)
launch(f, joined); launch(f, other); launch(f, s); launch(None, s, want=400)
graph = new_graph = P()
call("hipStreamEndCapture", s, c.byref(graph))
launch(f, s); launch(f, joined)
exec = new("hipGraphInstantiate", graph, None, None, c.c_size_t(0))
call("hipGraphLaunch", exec, s); call("hipGraphLaunch_spt", exec, None)
"""
    trace = hip_program(standins, traces, code).trace
    assert captured(trace) == [False, True, False, False, True, False, True, False, False]
    assert graphs(trace) == [3, 3]
    first, second = trace.graphs
    assert first.graph == second.graph and second.stream == PER_THREAD


def test_capture_of_the_threads_own_stream(standins: Standins, traces: Path) -> None:
    """Each thread's is another, though all have one name."""
    code = """
f = function("k")
call("hipStreamBeginCapture_spt", None, 2)
threading.Thread(target=launch, args=(f, P(2))).start()
launch(f, P(2))
graph = P(); call("hipStreamEndCapture_spt", None, c.byref(graph))
launch(f, P(2))
call("hipGraphLaunch", new("hipGraphInstantiateWithFlags", graph, c.c_ulonglong(0)), None)
"""
    trace = hip_program(standins, traces, code).trace
    assert sorted(captured(trace)) == [False, False, True]
    assert graphs(trace) == [1]


def test_captures_at_once(standins: Standins, traces: Path) -> None:
    """Four threads capture into graphs of their own, while a fifth launches."""
    code = """
f, execs = function("k"), []
def capture(count):
    s, graph = new("hipStreamCreate"), P()
    call("hipStreamBeginCapture", s, 2)
    for _ in range(count): launch(f, s)
    with lock: call("hipStreamEndCapture", s, c.byref(graph)); execs.append(graph)
def run(s):
    for _ in range(500): launch(f, s)
lock = threading.Lock()
threads = [threading.Thread(target=capture, args=(500 + i,)) for i in range(4)]
threads.append(threading.Thread(target=run, args=(new("hipStreamCreate"),)))
for t in threads: t.start()
for t in threads: t.join()
for graph in execs:
    call("hipGraphLaunch", new("hipGraphInstantiateWithParams", graph, None), None)
"""
    trace = hip_program(standins, traces, code).trace
    assert Counter(captured(trace)) == {True: 2006, False: 500}
    assert sorted(n for n in graphs(trace) if n is not None) == [500, 501, 502, 503]


def test_captures_that_end_without_a_graph(standins: Standins, traces: Path) -> None:
    code = """
f, s = function("k"), new("hipStreamCreate")
call("hipStreamBeginCapture", s, 0); launch(f, s)
call("hipStreamDestroy", s)
assert new("hipStreamCreate").value == s.value
launch(f, s)
call("hipStreamBeginCapture", s, 0); hip.standin_next(s)
assert new("hipStreamCreateWithFlags", 0).value == s.value  # hipDeviceReset took it
launch(f, s)
call("hipStreamEndCapture", None, None, want=901)
call("hipStreamBeginCapture", None, 0, want=1)
launch(f)
"""
    assert captured(hip_program(standins, traces, code).trace) == [True, False, False, False]


def test_more_captures_than_are_counted(standins: Standins, traces: Path) -> None:
    code = """
f, streams = function("k"), [new("hipStreamCreate") for _ in range(40)]
for s in streams: call("hipStreamBeginCapture", s, 0)
for s in streams: launch(f, s)
for s in streams:
    graph = P(); call("hipStreamEndCapture", s, c.byref(graph))
    call("hipGraphLaunch", new("hipGraphInstantiate", graph, None, None, c.c_size_t(0)), None)
for s in streams: launch(f, s)
"""
    trace = hip_program(standins, traces, code).trace
    assert captured(trace) == [True] * 40 + [False] * 40
    assert graphs(trace) == [1] * 32 + [None] * 8


NODES = {
    "by hand": ("a = kernel(); b = kernel(); memory()", 2),
    "one taken out": ("a = kernel(); b = kernel(); call('hipGraphDestroyNode', a)", 1),
    "none": ("memory()", 0),
    "of hipGraphAddNode": ("add(0); add(1); add(0)", 2),
    "child": (
        "kernel(); child = graph; kernel(); graph = new('hipGraphCreate', 0); kernel(); inner(child)",
        3,
    ),
    "child by hipGraphAddNode": (
        "kernel(); child = graph; graph = new('hipGraphCreate', 0); add(4, child)",
        1,
    ),
    "unknown child": ("kernel(); inner(P(0x4440))", None),
    "clone": ("kernel(); graph = new('hipGraphClone', graph); kernel()", 2),
    "unknown node taken out": ("kernel(); call('hipGraphDestroyNode', P(0x4444))", None),
    "capture into it": (
        "kernel(); call('hipStreamBeginCaptureToGraph', s, graph, None, None, c.c_size_t(0), 0); "
        "launch(f, s); hip.standin_next(graph); graph = end()",
        2,
    ),
    "graph launched into a capture": (
        "call('hipStreamBeginCapture', s, 0); launch(f, s); call('hipGraphLaunch', P(0x30), s); "
        "graph = end()",
        None,
    ),
    "another graph's node at a handle that was a kernel's": (
        "a = kernel(); call('hipGraphDestroy', graph); graph = new('hipGraphCreate', 0); kernel(); "
        "call('hipGraphDestroyNode', a)",
        None,
    ),
    "never seen": ("graph = P(0x4448)", None),
    "destroyed, and its handle reused": (
        "kernel(); call('hipGraphDestroy', graph); old = graph.value; graph = new('hipGraphCreate', 0); "
        "assert graph.value == old; kernel()",
        1,
    ),
}


@pytest.mark.parametrize("how", NODES)
@pytest.mark.parametrize(
    "make", ["hipGraphInstantiate", "hipGraphInstantiateWithFlags", "hipGraphInstantiateWithParams"]
)
def test_kernel_nodes(standins: Standins, traces: Path, how: str, make: str) -> None:
    steps, nodes = NODES[how]
    rest = {
        "hipGraphInstantiate": "None, None, c.c_size_t(0)",
        "hipGraphInstantiateWithFlags": "c.c_ulonglong(0)",
    }
    code = f"""
f, s, graph = function("k"), new("hipStreamCreate"), new("hipGraphCreate", 0)
kernel = lambda: new("hipGraphAddKernelNode", graph, None, c.c_size_t(0), None)
inner = lambda child: new("hipGraphAddChildGraphNode", graph, None, c.c_size_t(0), child)
memory = lambda: None
def add(type, child=None):
    params = (c.c_uint64 * 32)(type, 0, child.value if child else 0)
    new("hipGraphAddNode", graph, None, c.c_size_t(0), params)
def end():
    graph = P(); call("hipStreamEndCapture", s, c.byref(graph)); return graph
{steps}
exec = new({make!r}, graph, {rest.get(make, "None")})
call("hipGraphLaunch", exec, s)
call("hipGraphNodeSetEnabled", exec, P(0x10), 0); call("hipGraphLaunch", exec, s)
call("hipGraphExecDestroy", exec)
"""
    assert graphs(hip_program(standins, traces, code).trace)[-2:] == [nodes, None]


def test_nodes_added_to_a_graph_being_captured(standins: Standins, traces: Path) -> None:
    """hipStreamGetCaptureInfo gives the graph out before the capture has ended."""
    code = """
f, s = function("k"), new("hipStreamCreate")
call("hipStreamBeginCapture", s, 0); launch(f, s)
graph = new("hipGraphCreate", 0); hip.standin_next(graph)
call("hipGraphDestroy", graph)
new("hipGraphAddKernelNode", graph, None, c.c_size_t(0), None)
hip.standin_next(graph)
graph = P(); call("hipStreamEndCapture", s, c.byref(graph))
call("hipGraphLaunch", new("hipGraphInstantiateWithParams", graph, None), s)
"""
    assert graphs(hip_program(standins, traces, code).trace) == [2]


# -- all of them


def test_a_million_launches_from_four_threads(standins: Standins, traces: Path) -> None:
    ran = same(standins, traces, "linked", "threads", 4, 250_000)
    assert ran.out == "1000000\n"
    assert len(ran.trace.launches) == 1_000_000
    assert ran.trace.launches.by_kernel() == {"thread_kernel": 1_000_000}
    assert ran.trace.notes == []


def test_threads_that_launch_once_take_one_page_each(standins: Standins, traces: Path) -> None:
    ran = standins.run(traces, "linked", "threads", 200, 1)
    assert len(ran.trace.launches) == 200
    (file,) = traces.iterdir()
    assert file.stat().st_size < 200 * 8192
