/* What a later part of a rotated trace has to say again: facts, and the modules and kernels behind
 * handles that the host still holds. Kept in memory of our own, from the first time they are said to
 * the end of the process; a forked child finds what its parent knew. */
#include "internal.h"

#include <sys/mman.h>

enum { CHUNK = 65536, HEAD = 16 };

struct chunk {
    _Atomic size_t used;
    size_t bytes;
};
static _Atomic(struct chunk *) chunks;

static void *take(struct chunk *chunk, size_t bytes) {
    size_t at = chunk ? atomic_load_explicit(&chunk->used, memory_order_relaxed) : 0;
    while (chunk && bytes <= chunk->bytes - at)
        if (atomic_compare_exchange_weak(&chunk->used, &at, at + bytes))
            return (char *)chunk + at;
    return NULL;
}

/* Two threads may both make a chunk: what is left of one of them is then never used. */
static void *allocate(size_t bytes) {
    bytes = (bytes + 15) & ~(size_t)15;
    void *found = take(atomic_load(&chunks), bytes);
    if (found)
        return found;
    size_t whole = bytes + HEAD > CHUNK ? (bytes + HEAD + kdb_page - 1) & ~(kdb_page - 1) : CHUNK;
    struct kdb_quiet quiet = kdb_quiet_begin();
    struct chunk *made =
        mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    kdb_quiet_end(quiet);
    if (made == MAP_FAILED)
        return NULL;
    made->bytes = whole;
    atomic_store(&made->used, HEAD);
    found = take(made, bytes);
    if (whole == CHUNK)
        atomic_store(&chunks, made);
    return found;
}

struct kdb_told *kdb_tell(int type, const void *a, size_t a_bytes, const void *b, size_t b_bytes,
                          const void *c, size_t c_bytes) {
    size_t bytes = a_bytes + b_bytes + c_bytes;
    if (a_bytes > KDBT_RECORD_MAX || b_bytes > KDBT_RECORD_MAX || c_bytes > KDBT_RECORD_MAX ||
        bytes > KDBT_RECORD_MAX)
        return NULL;
    struct kdb_told *k = allocate(sizeof *k + bytes);
    if (!k)
        return NULL;
    atomic_store_explicit(&k->id, 0, memory_order_relaxed);
    k->module = k->next = NULL;
    k->left_out = false;
    k->type = (uint32_t)type;
    k->bytes = (uint32_t)bytes;
    memcpy(k->payload, a, a_bytes);
    if (b_bytes)
        memcpy(k->payload + a_bytes, b, b_bytes);
    if (c_bytes)
        memcpy(k->payload + a_bytes + b_bytes, c, c_bytes);
    return k;
}

struct kdb_told *kdb_tell_text(struct kdb_thread *t, int type, const void *text, size_t bytes) {
    struct kdb_told *told = kdb_tell(type, text, bytes, NULL, 0, NULL, 0);
    if (told)
        kdb_told_id(t, told);
    return told;
}

void kdb_told_as(struct kdb_thread *t, struct kdb_told *k, uint32_t id) {
    atomic_store_explicit(&k->id, (uint64_t)t->generation << 32 | id, memory_order_release);
}

uint32_t kdb_told_id(struct kdb_thread *t, struct kdb_told *k) {
    uint64_t said = atomic_load_explicit(&k->id, memory_order_acquire);
    if (said >> 32 == t->generation)
        return (uint32_t)said;
    uint32_t id = k->type == KDBT_FACT ? 0 : kdb_new_id();
    size_t head = 0;
    struct kdbt_kernel kernel = {0, 0};
    struct kdbt_module module;
    const void *first = NULL;
    if (k->type == KDBT_KERNEL) {
        if (k->module && !(kernel.module = kdb_told_id(t, k->module)))
            return 0;
        first = &kernel;
        head = sizeof kernel;
    } else if (k->type == KDBT_MODULE) {
        memcpy(&module, k->payload, sizeof module);
        module.duration = 0;
        module.source |= KDBT_FROM_BEFORE;
        first = &module;
        head = sizeof module;
    }
    if (!kdb_put(t, (int)k->type, id, kdb_ticks(), first, head, k->payload + head, k->bytes - head, NULL, 0))
        return 0;
    kdb_told_as(t, k, id);
    return id;
}
