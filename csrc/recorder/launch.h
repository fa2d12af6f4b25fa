/* What a launch costs: it is found in a table of the thread by all that it has but its time, and what
 * is found is one 8-byte record. Included by each file whose hooks launch something. */
#ifndef KDB_LAUNCH_H
#define KDB_LAUNCH_H
#include "gate.h"

/* All of a launch but its function and time, to be compared and mixed a word at a time. */
struct kdb_words {
    uint64_t at[KDB_SHAPE_WORDS];
};

static inline bool kdb_slot_is(const struct kdb_shape_slot *slot, const void *function, uint32_t epoch,
                               const struct kdb_words *w) {
    const uint64_t *held = slot->shape, *now = w->at;
    uint64_t differs = ((uintptr_t)slot->function ^ (uintptr_t)function) | (slot->epoch ^ epoch) |
                       (held[0] ^ now[0]) | (held[1] ^ now[1]) | (held[2] ^ now[2]) | (held[3] ^ now[3]) |
                       (held[4] ^ now[4]) | (held[5] ^ now[5]);
    return !differs; /* an unused slot is no launch's: its form is 0, or its function is itself */
}

/* To the run that is being added to, which has room; `now` is shifted, and `now` - run_ticks fits. */
static inline void kdb_append(struct kdb_thread *t, uint32_t shape, uint64_t now) {
    struct kdbt_launch *launch = (struct kdbt_launch *)t->at;
    /* Atomic, or gcc puts the two together in a vector first. */
    __atomic_store_n(&launch->shape, shape, __ATOMIC_RELAXED);
    __atomic_store_n(&launch->delta, (uint32_t)(now - t->run_ticks), __ATOMIC_RELAXED);
    t->at = (unsigned char *)(launch + 1);
    t->run_ticks = now;
    __atomic_store_n(&t->block->committed, (uint32_t)(t->at - (unsigned char *)(t->block + 1)),
                     __ATOMIC_RELEASE);
}

/* A launch that is not the one that came next the last time, or that cannot simply be appended. */
void kdb_launched_slowly(const void *real, const void *function, const struct kdb_words *w);

static inline __attribute__((always_inline)) void kdb_launched(const void *real, const void *function,
                                                               const struct kdb_words w) {
    uint32_t epoch = atomic_load_explicit(&kdb_function_epoch, memory_order_acquire);
    if (KDB_LIKELY(!atomic_load_explicit(&kdb_busy, memory_order_relaxed))) {
        atomic_store_explicit(&kdb_busy, kdb_stack(), memory_order_relaxed);
        atomic_signal_fence(memory_order_seq_cst);
        struct kdb_thread *t = kdb_self; /* NULL, too, where nothing is recorded */
        /* A network makes the same launches in the same order again and again: no look-up then. */
        struct kdb_shape_slot *slot = t && t->shape ? t->shape->next : NULL;
        if (KDB_LIKELY(slot &&
                       t->generation ==
                           atomic_load_explicit(&kdb_process->generation, memory_order_relaxed) &&
                       !atomic_load_explicit(&kdb_gate, memory_order_relaxed) &&
                       kdb_slot_is(slot, function, epoch, &w) && t->at < t->full)) {
            /* Only now: what comes after this instruction hardly overlaps it, what comes before does. */
            uint64_t now = kdb_ticks() >> KDBT_TICK_SHIFT;
            if (KDB_LIKELY(now - t->run_ticks <= UINT32_MAX)) {
                t->shape = slot;
                kdb_append(t, slot->id, now);
                kdb_leave();
                return;
            }
        }
        kdb_leave();
    }
    struct kdb_words copy = w;
    kdb_launched_slowly(real, function, &copy);
}
#endif
