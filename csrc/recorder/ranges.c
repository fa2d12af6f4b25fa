/* Open ROCTx ranges, in a fixed pool that all threads share without locks.
 *
 * A range may be open long before the first event that makes a trace, across a fork, or when a trace
 * is rotated: each new trace begins with those that are open. A push that finds the pool full is
 * counted, so that its pop closes no other; it is in the trace, but would not be in the next one. */
#include "ranges.h"

#include <errno.h>
#include <sys/mman.h>

enum { MOST = 1024, FREE = 0, MINE = 1, PUSHED = 2, STARTED = 3 };

static _Atomic uint32_t state[MOST];
static _Atomic int32_t used; /* no entry from here on was ever taken */
static _Atomic(struct kdb_open_range *) pool;
static _Thread_local int32_t top_plus_1; /* the innermost push of this thread */
static _Thread_local uint32_t without_room;

static struct kdb_open_range *entries(void) {
    struct kdb_open_range *all = atomic_load_explicit(&pool, memory_order_acquire), *other = NULL;
    size_t bytes = MOST * sizeof *all;
    int error = errno; /* the host's */
    if (all)
        return all;
    all = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all != MAP_FAILED && atomic_compare_exchange_strong(&pool, &other, all))
        return all;
    if (all != MAP_FAILED)
        munmap(all, bytes);
    errno = error;
    return other;
}

/* The index of a new entry, which is still MINE; or -1. */
static int32_t take(const char *name, uint64_t id, uint64_t ticks) {
    struct kdb_open_range *all = entries();
    for (int32_t i = 0; all && i < MOST; i++) {
        uint32_t is = FREE;
        if (atomic_load_explicit(&state[i], memory_order_relaxed) != FREE ||
            !atomic_compare_exchange_strong(&state[i], &is, MINE))
            continue;
        struct kdb_open_range *r = &all[i];
        r->ticks = ticks;
        r->id = id;
        r->below = -1;
        r->bytes = (uint32_t)strnlen(name, sizeof r->name - 1);
        memcpy(r->name, name, r->bytes);
        r->name[r->bytes] = 0;
        int32_t end = atomic_load(&used);
        while (end < i + 1 && !atomic_compare_exchange_weak(&used, &end, i + 1))
            ;
        return i;
    }
    return -1;
}

void kdb_range_push(const char *name, uint64_t ticks) {
    int32_t i = without_room ? -1 : take(name, 0, ticks);
    if (i < 0) {
        without_room++;
        return;
    }
    entries()[i].below = top_plus_1 - 1;
    atomic_store(&state[i], PUSHED);
    top_plus_1 = i + 1;
}

bool kdb_range_pop(void) {
    int32_t i = top_plus_1 - 1;
    if (without_room) {
        without_room--;
        return true;
    }
    if (i < 0)
        return false;
    top_plus_1 = entries()[i].below + 1;
    atomic_store(&state[i], FREE);
    return true;
}

void kdb_range_start(const char *name, uint64_t id, uint64_t ticks) {
    int32_t i = take(name, id, ticks);
    if (i >= 0)
        atomic_store(&state[i], STARTED);
}

void kdb_range_stop(uint64_t id) {
    int32_t end = atomic_load(&used);
    for (int32_t i = 0; i < end; i++) {
        uint32_t is = STARTED;
        if (atomic_load(&state[i]) != STARTED || entries()[i].id != id ||
            !atomic_compare_exchange_strong(&state[i], &is, MINE))
            continue;
        atomic_store(&state[i], FREE);
        return;
    }
}

void kdb_each_push(void (*put)(struct kdb_thread *t, const struct kdb_open_range *r), struct kdb_thread *t) {
    const struct kdb_open_range *all = atomic_load(&pool);
    uint16_t stack[MOST];
    int depth = 0;
    for (int32_t i = top_plus_1 - 1; all && i >= 0 && depth < MOST; i = all[i].below)
        stack[depth++] = (uint16_t)i;
    while (depth)
        put(t, &all[stack[--depth]]);
}

void kdb_each_start(void (*put)(struct kdb_thread *t, const struct kdb_open_range *r), struct kdb_thread *t) {
    const struct kdb_open_range *all = atomic_load(&pool);
    int32_t end = atomic_load(&used);
    for (int32_t i = 0; all && i < end; i++)
        if (atomic_load(&state[i]) == STARTED)
            put(t, &all[i]);
}
