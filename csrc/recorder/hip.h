/* What the HIP hooks' files share. */
#ifndef KDB_HIP_H
#define KDB_HIP_H
#include "internal.h"

#define KDB_REAL_HIP(name) KDB_REAL_OR(name, KDB_ERROR_HIP)

/* ---- hooks_hip.c ---- */
/* While hipLaunchByPtr runs: its function. HIP 5 launches by its own exported hipModuleLaunchKernel, so with
 * a handle that was never asked for. */
extern _Thread_local const void *kdb_by_pointer;

/* ---- hooks_device.c ---- */
#define KDB_STREAM_PER_THREAD ((void *)2) /* hipStreamPerThread */
/* The `_spt` forms mean the thread's own stream where the others mean the null stream. */
static inline void *kdb_or_per_thread(void *stream) {
    return stream ? stream : KDB_STREAM_PER_THREAD;
}

/* ---- hooks_capture.c, hooks_graph.c ---- */
extern _Atomic uint32_t kdb_captures; /* streams that are being captured */
uint32_t kdb_captured_slowly(const void *stream);
/* Of a launch that HIP took: KDBT_LAUNCH_CAPTURED if it went into a graph, and it is counted there. */
static inline uint32_t kdb_captured(const void *stream) {
    return KDB_UNLIKELY(atomic_load_explicit(&kdb_captures, memory_order_relaxed))
               ? kdb_captured_slowly(stream)
               : 0;
}

void kdb_capture_new_stream(const void *stream);
/* Something that may hold kernels went into the graph that this stream is captured into. */
void kdb_capture_uncertain(const void *stream);
void kdb_graph_captured(const void *graph, bool counted, int32_t kernels, bool before);

#endif
