/* Around a call of MIOpen: what it is about goes into the trace before it, so that it is known if the
 * process dies in it; the record with time and result after it. */
#include "describe.h"

/* The call comes out of the library that it goes to: some first versions call their successors. The
 * caller was noted when the real function was found (kdb_resolve); one that came by a pointer from
 * dlsym was not, and is no library's own call. */
static bool inside(enum kdb_hook hook, const void *real, const void *caller) {
    struct kdb_caller *c = atomic_load_explicit(&kdb_callers[hook], memory_order_acquire);
    while (c && (uintptr_t)caller - c->low >= c->high - c->low)
        c = c->next;
    return c && (uintptr_t)real - c->low < c->high - c->low;
}

static struct kdb_thread *enter(struct kdb_call *call, enum kdb_hook hook, const void *real,
                                const void *caller) {
    memset(call, 0, sizeof *call);
    struct kdb_thread *t = kdb_enter();
    if (!t)
        return NULL;
    kdb_library_facts(t, KDB_LIB_MIOPEN, real);
    kdb_device_facts(t);
    call->nested = inside(hook, real, caller);
    return t;
}

void kdb_begin(struct kdb_call *call, enum kdb_hook hook, const void *real, const void *caller,
               const struct kdb_item *items, size_t n) {
    struct kdb_thread *t = enter(call, hook, real, caller);
    if (t) {
        call->about = n ? kdb_detail(t, real, hook, items, n) : NULL;
        kdb_leave();
    }
    call->ticks = kdb_ticks();
}

void kdb_begin_conv(struct kdb_call *call, enum kdb_hook hook, const void *real, const void *caller,
                    char direction, const void *x, const void *w, const void *y, const void *conv) {
    struct kdb_thread *t = enter(call, hook, real, caller);
    call->convolution = true;
    if (t) {
        uint64_t sides[KDB_SIDES] = {kdb_described(real, x, KDB_TENSOR), kdb_described(real, w, KDB_TENSOR),
                                     kdb_described(real, y, KDB_TENSOR), kdb_described(real, conv, KDB_CONV)};
        call->about = kdb_problem(t, direction, sides);
        kdb_leave();
    }
    call->ticks = kdb_ticks();
}

void kdb_begin_whole(struct kdb_call *call, enum kdb_hook hook, const void *real, const void *caller,
                     const void *whole) {
    struct kdb_thread *t = enter(call, hook, real, caller);
    if (t) {
        kdb_whole_about(t, whole, call);
        kdb_leave();
    }
    call->ticks = kdb_ticks();
}

int kdb_end(const struct kdb_call *call, enum kdb_hook hook, int result, int algorithm, uint64_t solution,
            uint64_t space) {
    uint64_t duration = kdb_ticks() - call->ticks;
    struct kdb_thread *t = kdb_enter();
    if (!t)
        return result;
    uint32_t api = kdb_api_id(t, hook), about = call->about ? kdb_told_id(t, call->about) : 0;
    if (call->convolution) {
        struct kdbt_problem p = {about, api, algorithm, result, solution, space, duration};
        kdb_put(t, KDBT_PROBLEM, 0, call->ticks, &p, sizeof p, NULL, 0, NULL, 0);
    } else {
        struct kdbt_call c = {api, about, result, call->nested, duration};
        kdb_put(t, KDBT_CALL, 0, call->ticks, &c, sizeof c, NULL, 0, NULL, 0);
    }
    kdb_leave();
    return result;
}
