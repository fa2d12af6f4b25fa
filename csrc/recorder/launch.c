/* A launch that is not the expected one: its slot in the thread's table, its shape in the trace. */
#include "launch.h"

static struct kdb_map shapes = {.value_bytes = sizeof(struct kdb_id)}; /* by hash of a whole shape */

static bool new_shape(struct kdb_thread *t, struct kdb_shape_slot *slot, const void *function, uint32_t epoch,
                      const struct kdb_words *w, const void *real) {
    const struct kdb_words v = *w;
    struct kdbt_shape full = {
        .form = (uint32_t)(v.at[0] >> 32),
        .lds = (uint32_t)v.at[0],
        .grid = {(uint32_t)v.at[1], (uint32_t)(v.at[1] >> 32), (uint32_t)v.at[2]},
        .block = {(uint32_t)(v.at[2] >> 32), (uint32_t)v.at[3], (uint32_t)(v.at[3] >> 32)},
        .device = (uint32_t)v.at[4],
        .stream = v.at[5],
    };
    kdb_library_facts(t, KDB_LIB_HIP, real);
    kdb_device_facts(t);
    struct kdb_id id;
    slot->id = 0;
    slot->function = slot; /* no launch's, until all of it is right */
    full.device = (uint32_t)kdb_stream_device(full.stream, (int)full.device);
    struct kdb_told *kernel;
    full.kernel = kdb_function_kernel(t, function, &kernel);
    if (!full.kernel)
        return false;
    /* Written already, by another thread or before it lost its slot: a record a launch would be many. */
    uint64_t hash = kdb_hash(4, &full, sizeof full);
    if (!kdb_map_get(&shapes, hash, &id) || id.generation != t->generation) {
        id.id = kdb_new_id();
        id.generation = t->generation;
        if (!kdb_put(t, KDBT_SHAPE, id.id, kdb_ticks(), &full, sizeof full, NULL, 0, NULL, 0))
            return false;
        kdb_map_set(&shapes, hash, &id);
    }
    slot->function = function;
    slot->epoch = epoch;
    slot->counter = kdb_counter_of(kernel, full.device);
    memcpy(slot->shape, v.at, sizeof slot->shape);
    slot->id = id.id;
    return true;
}

/* The slot of a launch, or the one to use for it: up to four in a row, then the first is given up. */
static struct kdb_shape_slot *slot_of(struct kdb_thread *t, const void *function, uint32_t epoch,
                                      const struct kdb_words *w, bool *known) {
    uint64_t h = ((uintptr_t)function + w->at[5]) * 0x9e3779b97f4a7c15u;
    h ^= (w->at[1] + (w->at[2] << 21 | w->at[2] >> 43)) * 0xd6e8feb86659fd93u;
    h ^= (w->at[0] + w->at[3] + (w->at[4] << 17)) * 0xa0761d6478bd642fu;
    h ^= h >> 32;
    struct kdb_shape_slot *unused = NULL;
    for (unsigned i = 0; i < 4; i++) {
        struct kdb_shape_slot *slot = &t->shapes[(h + i) & (KDB_SHAPES - 1)];
        if ((*known = kdb_slot_is(slot, function, epoch, w)))
            return slot;
        if (!unused && (!slot->id || slot->epoch != epoch))
            unused = slot;
    }
    return unused ? unused : &t->shapes[h & (KDB_SHAPES - 1)];
}

/* NULL: it cannot be written. */
static struct kdb_shape_slot *find_shape(struct kdb_thread *t, const void *function, uint32_t epoch,
                                         const struct kdb_words *w, const void *real) {
    struct kdb_shape_slot *next = t->shape ? t->shape->next : NULL;
    if (next && kdb_slot_is(next, function, epoch, w))
        return next;
    bool known;
    struct kdb_shape_slot *slot = slot_of(t, function, epoch, w, &known);
    if (!known && !new_shape(t, slot, function, epoch, w, real))
        return NULL;
    if (t->shape)
        t->shape->next = slot;
    return slot;
}

void kdb_launched_slowly(const void *real, const void *function, const struct kdb_words *w) {
    uint64_t ticks = kdb_ticks();
    struct kdb_thread *t = kdb_enter_at((uintptr_t)w); /* in the hook's own frame: see kdb_abandoned */
    if (!t)
        return;
    uint32_t epoch = atomic_load_explicit(&kdb_function_epoch, memory_order_acquire);
    struct kdb_shape_slot *slot = find_shape(t, function, epoch, w, real);
    if (slot)
        t->shape = slot;
    if (slot && (!atomic_load_explicit(&kdb_gate, memory_order_relaxed) || kdb_keeps(t, slot->counter))) {
        uint64_t now = ticks >> KDBT_TICK_SHIFT;
        if (t->at < t->full && now - t->run_ticks <= UINT32_MAX)
            kdb_append(t, slot->id, now);
        else
            kdb_launch_slowly(t, slot->id, ticks);
    }
    kdb_leave();
}
