/* What a launch costs: it is found in a table of the thread by all that it has but its time, and what
 * is found is one 8-byte record. Included by each file whose hooks launch something. */
#ifndef KDB_LAUNCH_H
#define KDB_LAUNCH_H
#include "internal.h"

/* All of a launch but its function and time, to be compared and mixed a word at a time. */
struct kdb_words {
    uint64_t at[KDB_SHAPE_WORDS];
};

static inline bool kdb_slot_is(const struct kdb_shape_slot *slot, const void *function, uint32_t epoch,
                               const struct kdb_words *w) {
    const uint64_t *held = slot->shape, *now = w->at;
    uint64_t differs = ((uintptr_t)slot->function ^ (uintptr_t)function) | (held[0] ^ now[0]) |
                       (held[1] ^ now[1]) | (held[2] ^ now[2]) | (held[3] ^ now[3]) | (held[4] ^ now[4]) |
                       (held[5] ^ now[5]);
    return slot->id && slot->epoch == epoch && !differs;
}

/* A launch that did not come after the same one as the last time; NULL: it cannot be written. */
struct kdb_shape_slot *kdb_find_shape(struct kdb_thread *t, const void *function, uint32_t epoch,
                                      const struct kdb_words *w, const void *real);

static inline __attribute__((always_inline)) void kdb_launched(const void *real, const void *function,
                                                               const struct kdb_words w) {
    uint64_t ticks = kdb_ticks();
    struct kdb_thread *t = kdb_enter();
    if (!t)
        return;
    uint32_t epoch = atomic_load_explicit(&kdb_function_epoch, memory_order_acquire);
    /* A network makes the same launches in the same order again and again: no look-up then. */
    struct kdb_shape_slot *slot = t->shape ? t->shape->next : NULL;
    if (KDB_UNLIKELY(!slot || !kdb_slot_is(slot, function, epoch, &w))) {
        struct kdb_words copy = w;
        slot = kdb_find_shape(t, function, epoch, &copy, real);
        if (!slot) {
            kdb_leave();
            return;
        }
    }
    t->shape = slot;
    uint64_t delta = (ticks >> KDBT_TICK_SHIFT) - t->run_ticks;
    if (t->run && t->end - t->at >= (ptrdiff_t)sizeof(struct kdbt_launch) && delta <= UINT32_MAX) {
        struct kdbt_launch launch = {slot->id, (uint32_t)delta};
        memcpy(t->at, &launch, sizeof launch);
        t->at += sizeof launch;
        t->run_ticks += delta;
        __atomic_store_n(&t->block->committed, (uint32_t)(t->at - (unsigned char *)(t->block + 1)),
                         __ATOMIC_RELEASE);
    } else {
        kdb_launch_slowly(t, slot->id, ticks);
    }
    kdb_leave();
}
#endif
