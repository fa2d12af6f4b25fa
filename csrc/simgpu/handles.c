/* The one lock, and the handles of streams, events, modules and functions.
 *
 * A destroyed handle goes to a free list and never back to malloc: using it afterwards is answered
 * with an error instead of reading freed memory. A fork takes the lock, so a child can go on.
 */
#include <pthread.h>
#include <stdlib.h>

#include "internal.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct sim_handle *spare;
static struct sim_handle default_stream = {.kind = SIM_STREAM, .clock = 1};

void sim_lock(void) {
    pthread_mutex_lock(&mutex);
}

void sim_unlock(void) {
    pthread_mutex_unlock(&mutex);
}

/* The child has done nothing yet: its exit line must not repeat the parent's work. */
static void in_child(void) {
    pthread_mutex_unlock(&mutex);
    atomic_store(&sim_counts.launches, 0);
    atomic_store(&sim_counts.fatbin_launches, 0);
    atomic_store(&sim_counts.modules, 0);
    atomic_store(&sim_counts.modules_refused, 0);
    for (unsigned i = 0; i < sim_stub_count; i++)
        atomic_store(&sim_stubs[i].calls, 0);
}

__attribute__((constructor)) static void at_load(void) {
    pthread_atfork(sim_lock, sim_unlock, in_child);
}

struct sim_handle *sim_handle_new(enum sim_kind kind) {
    enum { BLOCK = 64 };
    sim_lock();
    if (!spare) {
        struct sim_handle *block = calloc(BLOCK, sizeof *block);
        for (int i = 0; block && i < BLOCK; i++) {
            block[i].next = spare;
            spare = &block[i];
        }
    }
    struct sim_handle *handle = spare;
    if (handle) {
        spare = handle->next;
        handle->flags = 0;
        handle->priority = 0;
        handle->data = NULL;
        atomic_store(&handle->clock, 0);
        atomic_store(&handle->kind, kind);
    }
    sim_unlock();
    return handle;
}

bool sim_handle_free(struct sim_handle *handle, enum sim_kind kind) {
    sim_lock();
    bool live = sim_handle_is(handle, kind);
    if (live) {
        atomic_store(&handle->kind, 0);
        handle->next = spare;
        spare = handle;
    }
    sim_unlock();
    return live;
}

bool sim_handle_is(const struct sim_handle *handle, enum sim_kind kind) {
    return handle && (uintptr_t)handle % _Alignof(struct sim_handle) == 0 &&
           atomic_load(&handle->kind) == kind;
}

struct sim_handle *sim_stream(struct sim_handle *stream) {
    if ((uintptr_t)stream <= 2) /* NULL, hipStreamLegacy, hipStreamPerThread */
        return &default_stream;
    return sim_handle_is(stream, SIM_STREAM) ? stream : NULL;
}
