/* HIP graphs: each launch of one is recorded, with the number of its kernel nodes.
 *
 * The kernels of a graph are not seen when it runs. How many there are is counted as the host puts them
 * in, node by node or by capturing a stream; it is not known (-1) once anything happened that was not
 * seen. Nodes are not asked for. */
#include "hip.h"

enum { NODE_KERNEL = 0, NODE_GRAPH = 4, NODE_PARAMS_AT = 16 }; /* hipGraphNodeType, hipGraphNodeParams */

struct count {
    int32_t kernels;
    /* 0: not known; 1: only what was added by hand to a graph that something else makes; else all of it is
     * known, if this is still the epoch. */
    uint32_t epoch;
    uint32_t serial; /* tells graphs apart that had one handle */
};
struct node {
    uint64_t graph;
    int32_t kernels;
    uint32_t serial; /* the graph's */
};
static struct kdb_map graphs = {.value_bytes = sizeof(struct count)};
static struct kdb_map execs = {.value_bytes = sizeof(int32_t)};
static struct kdb_map nodes = {.value_bytes = sizeof(struct node)};
static _Atomic uint32_t epoch = 2; /* counted up when no graph's count is to be trusted */
static _Atomic uint32_t serials;

static int32_t known(const void *graph) {
    struct count c;
    return kdb_map_get(&graphs, (uintptr_t)graph, &c) && c.epoch == atomic_load(&epoch) ? c.kernels : -1;
}

static void set(const void *graph, int32_t kernels, uint32_t as) {
    struct count c = {kernels, as, atomic_fetch_add(&serials, 1)};
    if ((uintptr_t)graph > 1)
        kdb_map_set(&graphs, (uintptr_t)graph, &c);
}

/* A node that holds so many kernels, or -1. */
static void add(void *const *node, const void *graph, int32_t kernels) {
    struct count c;
    if ((uintptr_t)graph <= 1 || !kdb_recording())
        return;
    if (!kdb_map_get(&graphs, (uintptr_t)graph, &c))
        c = (struct count){0, 1, atomic_fetch_add(&serials, 1)};
    if (kernels < 0)
        c.epoch = 0;
    c.kernels += kernels;
    kdb_map_set(&graphs, (uintptr_t)graph, &c);
    struct node n = {(uintptr_t)graph, kernels, c.serial};
    if (node)
        kdb_map_set(&nodes, (uintptr_t)*node, &n);
}

/* What a capture made: `counted` kernels, if they are; into a graph that was there before, or beside what the
 * host has added by hand meanwhile. */
void kdb_graph_captured(const void *graph, bool counted, int32_t kernels, bool before) {
    struct count c;
    uint32_t now = atomic_load(&epoch);
    if ((uintptr_t)graph <= 1 || !kdb_recording())
        return;
    bool seen = kdb_map_get(&graphs, (uintptr_t)graph, &c);
    bool sum = seen && c.epoch == (before ? now : 1);
    counted &= before ? sum : !seen || sum;
    set(graph, kernels + (sum ? c.kernels : 0), counted ? now : 0);
}

int hipGraphCreate(void **graph, unsigned flags) {
    KDB_REAL_HIP(hipGraphCreate);
    int result = real(graph, flags);
    if (result == 0 && graph && kdb_recording())
        set(*graph, 0, atomic_load(&epoch));
    return result;
}

int hipGraphDestroy(void *graph) {
    KDB_REAL_HIP(hipGraphDestroy);
    kdb_map_drop(&graphs, (uintptr_t)graph); /* before: the handle may be given out again right after */
    return real(graph);
}

int hipGraphClone(void **clone, void *graph) {
    KDB_REAL_HIP(hipGraphClone);
    int result = real(clone, graph);
    if (result == 0 && clone && kdb_recording()) {
        int32_t kernels = known(graph);
        set(*clone, kernels, kernels < 0 ? 0 : atomic_load(&epoch));
    }
    return result;
}

int hipGraphAddKernelNode(void **node, void *graph, void *const *after, size_t count, const void *params) {
    KDB_REAL_HIP(hipGraphAddKernelNode);
    int result = real(node, graph, after, count, params);
    if (result == 0)
        add(node, graph, 1);
    return result;
}

int hipGraphAddChildGraphNode(void **node, void *graph, void *const *after, size_t count, void *child) {
    KDB_REAL_HIP(hipGraphAddChildGraphNode);
    int result = real(node, graph, after, count, child);
    if (result == 0)
        add(node, graph, known(child));
    return result;
}

int hipGraphAddNode(void **node, void *graph, void *const *after, size_t count, void *params) {
    KDB_REAL_HIP(hipGraphAddNode);
    int result = real(node, graph, after, count, params), type;
    if (result == 0 && params) {
        const void *child;
        memcpy(&type, params, sizeof type);
        memcpy(&child, (const char *)params + NODE_PARAMS_AT, sizeof child);
        if (type == NODE_KERNEL)
            add(node, graph, 1);
        else if (type == NODE_GRAPH)
            add(node, graph, known(child));
    }
    return result;
}

/* One that was not seen may be any graph's, and a kernel or not: it was captured, say, or found in a clone.
 */
int hipGraphDestroyNode(void *node) {
    KDB_REAL_HIP(hipGraphDestroyNode);
    struct node n;
    struct count c;
    bool seen =
        kdb_map_get(&nodes, (uintptr_t)node, &n) && kdb_map_get(&graphs, n.graph, &c) && c.serial == n.serial;
    kdb_map_drop(&nodes, (uintptr_t)node); /* before: the handle may be given out again right after */
    int result = real(node);
    if (result == 0 && !seen)
        atomic_fetch_add(&epoch, 1);
    else if (result == 0 && n.kernels >= 0) {
        c.kernels -= n.kernels;
        kdb_map_set(&graphs, n.graph, &c);
    }
    return result;
}

static void instantiated(void *const *exec, const void *graph) {
    int32_t kernels = known(graph);
    if (exec && kdb_recording())
        kdb_map_set(&execs, (uintptr_t)*exec, &kernels);
}

#define INSTANTIATE(name, params, args)                                                                      \
    int name params {                                                                                        \
        KDB_REAL_HIP(name);                                                                                  \
        int result = real args;                                                                              \
        if (result == 0)                                                                                     \
            instantiated(exec, graph);                                                                       \
        return result;                                                                                       \
    }
INSTANTIATE(hipGraphInstantiate, (void **exec, void *graph, void **bad, char *log, size_t room),
            (exec, graph, bad, log, room))
INSTANTIATE(hipGraphInstantiateWithFlags, (void **exec, void *graph, unsigned long long flags),
            (exec, graph, flags))
INSTANTIATE(hipGraphInstantiateWithParams, (void **exec, void *graph, void *params), (exec, graph, params))

/* What is switched off does not run. */
int hipGraphNodeSetEnabled(void *exec, void *node, unsigned enabled) {
    KDB_REAL_HIP(hipGraphNodeSetEnabled);
    int result = real(exec, node, enabled);
    if (result == 0)
        kdb_map_drop(&execs, (uintptr_t)exec);
    return result;
}

int hipGraphExecDestroy(void *exec) {
    KDB_REAL_HIP(hipGraphExecDestroy);
    kdb_map_drop(&execs, (uintptr_t)exec);
    return real(exec);
}

static void launched(const void *real, const void *exec, const void *stream) {
    uint64_t ticks = kdb_ticks();
    struct kdbt_graph g = {(uintptr_t)exec, (uintptr_t)stream, 0, -1};
    kdb_capture_uncertain(stream); /* HIP up to 6.2 runs it all the same, others may put it in */
    struct kdb_thread *t = kdb_enter();
    if (!t)
        return;
    kdb_library_facts(t, KDB_LIB_HIP, real);
    kdb_device_facts(t);
    g.device = (uint32_t)kdb_stream_device(g.stream, kdb_device);
    kdb_map_get(&execs, g.graph, &g.kernels);
    kdb_put(t, KDBT_GRAPH, 0, ticks, &g, sizeof g, NULL, 0, NULL, 0);
    kdb_leave();
}

int hipGraphLaunch(void *exec, void *stream) {
    KDB_REAL_HIP(hipGraphLaunch);
    int result = real(exec, stream);
    if (result == 0)
        launched((void *)real, exec, stream);
    return result;
}

int hipGraphLaunch_spt(void *exec, void *stream) {
    KDB_REAL_HIP(hipGraphLaunch_spt);
    int result = real(exec, stream);
    if (result == 0)
        launched((void *)real, exec, kdb_or_per_thread(stream));
    return result;
}
