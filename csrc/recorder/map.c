/* A map from an address or a 64-bit hash to a small value: lock-free, never shrinks, never moves.
 *
 * Levels of open addressing, each four times the one before, made with mmap when the one before is
 * full around a key. A slot's value is guarded by a version (odd while it is written), so a reader
 * never sees half of one. One thread may set a key while another looks it up; two that set the same
 * key at once leave either value, perhaps in two slots, of which the first is found. Keys 0 and 1 (a host's
 * NULL handle) are never in a map. */
#include "internal.h"

#include <errno.h>
#include <sys/mman.h>

enum { FIRST = 1024, PROBES = 8, LEVELS = 10, EMPTY = 0, TAKEN = 1 };

struct slot {
    _Atomic uint64_t key;
    _Atomic uint32_t version;
    uint32_t unused;
    _Atomic uint64_t value[];
};

static uint64_t spread(uint64_t key) {
    key = (key ^ (key >> 32)) * 0x9e3779b97f4a7c15u;
    return key ^ (key >> 29);
}

uint64_t kdb_hash(uint64_t seed, const void *data, size_t bytes) {
    const unsigned char *p = data;
    uint64_t h = seed ^ (bytes * 0x9e3779b97f4a7c15u);
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        h = spread(h ^ word) * 0xd6e8feb86659fd93u;
    }
    for (; bytes; bytes--)
        h = spread(h ^ *p++) * 0xd6e8feb86659fd93u;
    h ^= h >> 32;
    return h > 1 ? h : h + 2;
}

static size_t slot_bytes(const struct kdb_map *map) {
    return sizeof(struct slot) + ((map->value_bytes + 7u) & ~7u);
}

static struct slot *slot_at(const struct kdb_map *map, void *level, int depth, uint64_t key, unsigned probe) {
    uint64_t mask = ((uint64_t)FIRST << (2 * depth)) - 1;
    return (struct slot *)((char *)level + ((spread(key) + probe) & mask) * slot_bytes(map));
}

static struct slot *find(struct kdb_map *map, uint64_t key) {
    for (int depth = 0; depth < LEVELS && key > TAKEN; depth++) {
        void *level = atomic_load_explicit(&map->level[depth], memory_order_acquire);
        if (!level)
            break;
        for (unsigned i = 0; i < PROBES; i++) {
            struct slot *s = slot_at(map, level, depth, key, i);
            if (atomic_load_explicit(&s->key, memory_order_acquire) == key)
                return s;
        }
    }
    return NULL;
}

bool kdb_map_get(struct kdb_map *map, uint64_t key, void *value) {
    struct slot *s = find(map, key);
    for (int tries = 0; s && tries < 1000; tries++) {
        uint32_t before = atomic_load_explicit(&s->version, memory_order_acquire);
        const uint32_t bytes = map->value_bytes;
        for (uint32_t i = 0; i < bytes / 8; i++) {
            uint64_t word = atomic_load_explicit(&s->value[i], memory_order_relaxed);
            memcpy((char *)value + 8 * i, &word, 8);
        }
        if (bytes & 4) {
            uint64_t word = atomic_load_explicit(&s->value[bytes / 8], memory_order_relaxed);
            memcpy((char *)value + (bytes & ~7u), &word, 4);
        }
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&s->key, memory_order_relaxed) != key)
            return false;
        if (!(before & 1) && atomic_load_explicit(&s->version, memory_order_relaxed) == before)
            return true;
    }
    return false;
}

/* One writer at a time. One that never ends its turn was another thread at a fork: it is passed over. */
static void write_value(struct kdb_map *map, struct slot *s, const void *value) {
    uint32_t version = atomic_load_explicit(&s->version, memory_order_relaxed);
    for (int tries = 0; tries < 10000; tries++) {
        if (!(version & 1) &&
            atomic_compare_exchange_weak_explicit(&s->version, &version, version + 1, memory_order_acquire,
                                                  memory_order_relaxed))
            break;
        version = atomic_load_explicit(&s->version, memory_order_relaxed);
    }
    atomic_thread_fence(memory_order_release); /* readers that see a byte of it see the odd version */
    for (uint32_t at = 0; at < map->value_bytes; at += 8) {
        uint64_t word = 0;
        memcpy(&word, (const char *)value + at, map->value_bytes - at < 8 ? 4 : 8);
        atomic_store_explicit(&s->value[at / 8], word, memory_order_relaxed);
    }
    atomic_store_explicit(&s->version, (version | 1) + 1, memory_order_release);
}

static void *make_level(struct kdb_map *map, int depth) {
    size_t bytes = ((size_t)FIRST << (2 * depth)) * slot_bytes(map);
    int error = errno; /* the host's */
    void *made =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void *other = NULL;
    if (made == MAP_FAILED) {
        errno = error;
        return NULL;
    }
    if (atomic_compare_exchange_strong(&map->level[depth], &other, made))
        return made;
    munmap(made, bytes);
    return other;
}

void kdb_map_set(struct kdb_map *map, uint64_t key, const void *value) {
    struct slot *s = find(map, key);
    if (s) {
        write_value(map, s, value);
        return;
    }
    for (int depth = 0; depth < LEVELS && key > TAKEN; depth++) {
        void *level = atomic_load_explicit(&map->level[depth], memory_order_acquire);
        if (!level && !(level = make_level(map, depth)))
            return;
        for (unsigned i = 0; i < PROBES; i++) {
            uint64_t empty = EMPTY;
            s = slot_at(map, level, depth, key, i);
            if (!atomic_compare_exchange_strong(&s->key, &empty, TAKEN))
                continue;
            write_value(map, s, value);
            atomic_store_explicit(&s->key, key, memory_order_release);
            return;
        }
    }
}

void kdb_map_drop(struct kdb_map *map, uint64_t key) {
    struct slot *s;
    while ((s = find(map, key)) != NULL) {
        uint64_t still = key;
        atomic_compare_exchange_strong(&s->key, &still, EMPTY);
    }
}
