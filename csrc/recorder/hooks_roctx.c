/* ROCTx: ranges and marks.
 *
 * They make no trace: a program that uses neither HIP nor MIOpen leaves none. Ranges that are still
 * open when a trace begins are written first, with the time of their begin; marks and ranges that were
 * over by then are not. A range that the library refused (a result below 0) is not recorded. */
#include "ranges.h"

enum { NAME_MOST = 65536 }; /* bytes of a name; a longer one is cut */

static struct kdb_map names = {.value_bytes = sizeof(struct kdb_id)}; /* by hash */

static uint32_t name_id(struct kdb_thread *t, const char *name) {
    struct kdb_id id;
    size_t bytes = strnlen(name, NAME_MOST);
    uint64_t hash = kdb_hash(5, name, bytes);
    if (kdb_map_get(&names, hash, &id) && id.generation == t->generation)
        return id.id;
    id.id = kdb_text(t, KDBT_RANGE_NAME, name, bytes);
    id.generation = t->generation;
    if (id.id)
        kdb_map_set(&names, hash, &id);
    return id.id;
}

static void put(struct kdb_thread *t, uint32_t op, const char *name, uint64_t id, uint64_t ticks) {
    struct kdbt_range range = {op, name ? name_id(t, name) : 0, id};
    kdb_put(t, KDBT_RANGE, 0, ticks, &range, sizeof range, NULL, 0, NULL, 0);
}

static void put_push(struct kdb_thread *t, const struct kdb_open_range *r) {
    put(t, KDBT_RANGE_PUSH, r->name, 0, r->ticks);
}

static void put_start(struct kdb_thread *t, const struct kdb_open_range *r) {
    put(t, KDBT_RANGE_START, r->name, r->id, r->ticks);
}

void kdb_ranges_so_far(struct kdb_thread *t, bool first) {
    if (first)
        kdb_each_start(put_start, t);
    kdb_each_push(put_push, t);
}

/* Whether ranges are to be noted at all, and the thread's writer if there is a trace already. A thread that
 * is new to the trace writes its open ranges in here, so what opens now is noted after this. */
static bool begin(struct kdb_thread **t) {
    *t = NULL;
    if (!kdb_recording())
        return false;
    if (kdb_has_trace())
        *t = kdb_enter();
    return true;
}

static void end(struct kdb_thread *t) {
    if (t)
        kdb_leave();
}

void roctxMarkA(const char *message) {
    kdb_fn_roctxMarkA real = KDB_REAL(roctxMarkA);
    struct kdb_thread *t;
    if (real)
        real(message);
    uint64_t ticks = kdb_ticks();
    if (!begin(&t) || !t)
        return;
    put(t, KDBT_RANGE_MARK, message ? message : "", 0, ticks);
    kdb_leave();
}

int roctxRangePushA(const char *message) {
    kdb_fn_roctxRangePushA real = KDB_REAL(roctxRangePushA);
    int level = real ? real(message) : -1;
    const char *name = message ? message : "";
    uint64_t ticks = kdb_ticks();
    struct kdb_thread *t;
    if (level < 0 || !begin(&t))
        return level;
    if (t)
        put(t, KDBT_RANGE_PUSH, name, 0, ticks);
    kdb_range_push(name, ticks);
    kdb_region(t, KDBT_RANGE_PUSH, name, 0);
    end(t);
    return level;
}

int roctxRangePop(void) {
    kdb_fn_roctxRangePop real = KDB_REAL(roctxRangePop);
    int level = real ? real() : -1;
    uint64_t ticks = kdb_ticks();
    struct kdb_thread *t;
    if (level < 0 || !begin(&t))
        return level;
    if (kdb_range_pop()) {
        if (t)
            put(t, KDBT_RANGE_POP, NULL, 0, ticks);
        kdb_region(t, KDBT_RANGE_POP, NULL, 0);
    }
    end(t);
    return level;
}

uint64_t roctxRangeStartA(const char *message) {
    kdb_fn_roctxRangeStartA real = KDB_REAL(roctxRangeStartA);
    uint64_t id = real ? real(message) : 0;
    const char *name = message ? message : "";
    uint64_t ticks = kdb_ticks();
    struct kdb_thread *t;
    if (!real || !begin(&t))
        return id;
    if (t)
        put(t, KDBT_RANGE_START, name, id, ticks);
    kdb_range_start(name, id, ticks);
    kdb_region(t, KDBT_RANGE_START, name, id);
    end(t);
    return id;
}

void roctxRangeStop(uint64_t id) {
    kdb_fn_roctxRangeStop real = KDB_REAL(roctxRangeStop);
    struct kdb_thread *t;
    if (real)
        real(id);
    uint64_t ticks = kdb_ticks();
    if (!begin(&t))
        return;
    kdb_range_stop(id);
    if (t)
        put(t, KDBT_RANGE_STOP, NULL, id, ticks);
    kdb_region(t, KDBT_RANGE_STOP, NULL, id);
    end(t);
}
