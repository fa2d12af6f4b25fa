/* HIP: streams that are being captured into a graph. A launch into one does not run.
 *
 * A capture begins on one stream and spreads: a stream that waits for an event which was recorded
 * on a captured one is captured too, until the whole capture ends. Nothing is asked of HIP: while no
 * capture is going on each of these costs one load. */
#include "hip.h"

enum { MOST = 32, UNCOUNTED = MOST, INVALIDATED = 901 }; /* 901: hipErrorStreamCaptureInvalidated */

struct part { /* of a capture, by stream or by event */
    uint32_t capture, serial;
};
static struct {
    _Atomic uint32_t
        serial; /* 0 free; counted up with each capture, so that what is left of one is told apart */
    _Atomic int32_t kernels;
    _Atomic uint32_t uncertain;
    uint64_t origin;
    void *graph;      /* it is captured into; NULL: a new one */
} captures[MOST + 1]; /* the last is shared by those beyond, and counts nothing */

_Atomic uint32_t kdb_captures;
static _Atomic uint32_t serials;
static struct kdb_map streams = {.value_bytes = sizeof(struct part)};
static struct kdb_map events = {.value_bytes = sizeof(struct part)};
static _Thread_local char own_stream; /* its address stands for hipStreamPerThread */

static uint64_t key_of(const void *stream) {
    return stream == KDB_STREAM_PER_THREAD ? (uintptr_t)&own_stream : (uintptr_t)stream;
}

/* The null streams, 0 and 1, cannot be captured. */
static bool part_of(struct kdb_map *map, uint64_t key, struct part *part) {
    return key > 1 && kdb_map_get(map, key, part) &&
           atomic_load(&captures[part->capture].serial) == part->serial;
}

static void begins(const void *stream, void *graph) {
    struct part part = {0, 0};
    uint64_t key = key_of(stream);
    if (key <= 1 || !kdb_recording())
        return;
    while (!part.serial)
        part.serial = atomic_fetch_add(&serials, 1) + 1;
    for (; part.capture < UNCOUNTED; part.capture++) {
        uint32_t none = 0;
        if (atomic_compare_exchange_strong(&captures[part.capture].serial, &none, part.serial))
            break;
    }
    if (part.capture == UNCOUNTED) {
        atomic_store(&captures[UNCOUNTED].serial, UINT32_MAX);
        part.serial = UINT32_MAX;
    } else {
        captures[part.capture].origin = key;
        captures[part.capture].graph = graph;
        atomic_store(&captures[part.capture].kernels, 0);
        atomic_store(&captures[part.capture].uncertain, 0);
    }
    kdb_map_set(&streams, key, &part);
    atomic_fetch_add(&kdb_captures, 1);
}

/* `graph` is what came out of it, or NULL. */
static void ends(const void *stream, void *graph) {
    struct part part;
    uint64_t key = key_of(stream);
    bool seen = atomic_load(&kdb_captures) && part_of(&streams, key, &part);
    if (!seen) {
        kdb_graph_captured(graph, false, 0, false);
        return;
    }
    bool counted = part.capture != UNCOUNTED && !atomic_load(&captures[part.capture].uncertain);
    bool known_graph = part.capture != UNCOUNTED && captures[part.capture].graph;
    kdb_graph_captured(graph, counted, atomic_load(&captures[part.capture].kernels), known_graph);
    kdb_map_drop(&streams, key);
    if (part.capture != UNCOUNTED)
        atomic_store(&captures[part.capture].serial, 0);
    atomic_fetch_sub(&kdb_captures, 1);
}

uint32_t kdb_captured_slowly(const void *stream) {
    struct part part;
    if (!part_of(&streams, key_of(stream), &part))
        return 0;
    atomic_fetch_add(&captures[part.capture].kernels, 1);
    return KDBT_LAUNCH_CAPTURED;
}

void kdb_capture_uncertain(const void *stream) {
    struct part part;
    if (atomic_load_explicit(&kdb_captures, memory_order_relaxed) && part_of(&streams, key_of(stream), &part))
        atomic_store(&captures[part.capture].uncertain, 1);
}

#define BEGIN(name, params, args, stream, graph)                                                             \
    int name params {                                                                                        \
        KDB_REAL_HIP(name);                                                                                  \
        int result = real args;                                                                              \
        if (result == 0)                                                                                     \
            begins(stream, graph);                                                                           \
        return result;                                                                                       \
    }
BEGIN(hipStreamBeginCapture, (void *stream, int mode), (stream, mode), stream, NULL)
BEGIN(hipStreamBeginCapture_spt, (void *stream, int mode), (stream, mode), kdb_or_per_thread(stream), NULL)
BEGIN(hipStreamBeginCaptureToGraph,
      (void *stream, void *graph, void *const *after, const void *edges, size_t count, int mode),
      (stream, graph, after, edges, count, mode), stream, graph)

/* Other errors leave the stream as it was. */
#define END(name, which)                                                                                     \
    int name(void *stream, void **graph) {                                                                   \
        KDB_REAL_HIP(name);                                                                                  \
        int result = real(stream, graph);                                                                    \
        if (result == 0 || result == INVALIDATED)                                                            \
            ends(which, result == 0 && graph ? *graph : NULL);                                               \
        return result;                                                                                       \
    }
END(hipStreamEndCapture, stream)
END(hipStreamEndCapture_spt, kdb_or_per_thread(stream))

/* What was captured at this handle is over, for all of it if it began here. */
static void forget(const void *stream, const struct part *part) {
    if (part->capture == UNCOUNTED || captures[part->capture].origin == key_of(stream))
        ends(stream, NULL);
    else
        kdb_map_drop(&streams, key_of(stream));
}

/* A stream that is new is not captured, whatever became of the one before it. */
void kdb_capture_new_stream(const void *stream) {
    struct part part;
    if (atomic_load_explicit(&kdb_captures, memory_order_relaxed) && part_of(&streams, key_of(stream), &part))
        forget(stream, &part);
}

int hipStreamDestroy(void *stream) {
    KDB_REAL_HIP(hipStreamDestroy);
    struct part part;
    bool captured = KDB_UNLIKELY(atomic_load_explicit(&kdb_captures, memory_order_relaxed)) &&
                    part_of(&streams, key_of(stream), &part);
    int result = real(stream);
    if (captured && result == 0)
        forget(stream, &part);
    return result;
}

/* ---- how a capture spreads ---- */

static void recorded(const void *event, const void *stream) {
    struct part part;
    if (part_of(&streams, key_of(stream), &part))
        kdb_map_set(&events, (uintptr_t)event, &part);
    else
        kdb_map_drop(&events, (uintptr_t)event);
}

static void waits(const void *stream, const void *event) {
    struct part part, before;
    uint64_t key = key_of(stream);
    if (part_of(&events, (uintptr_t)event, &part) && key > 1 && !part_of(&streams, key, &before))
        kdb_map_set(&streams, key, &part);
}

#define SPREAD(name, params, args, what)                                                                     \
    int name params {                                                                                        \
        KDB_REAL_HIP(name);                                                                                  \
        int result = real args;                                                                              \
        if (KDB_UNLIKELY(atomic_load_explicit(&kdb_captures, memory_order_relaxed)) && result == 0)          \
            what;                                                                                            \
        return result;                                                                                       \
    }
SPREAD(hipEventRecord, (void *event, void *stream), (event, stream), recorded(event, stream))
SPREAD(hipEventRecord_spt, (void *event, void *stream), (event, stream),
       recorded(event, kdb_or_per_thread(stream)))
SPREAD(hipEventRecordWithFlags, (void *event, void *stream, unsigned flags), (event, stream, flags),
       recorded(event, stream))
SPREAD(hipStreamWaitEvent, (void *stream, void *event, unsigned flags), (stream, event, flags),
       waits(stream, event))
SPREAD(hipStreamWaitEvent_spt, (void *stream, void *event, unsigned flags), (stream, event, flags),
       waits(kdb_or_per_thread(stream), event))
