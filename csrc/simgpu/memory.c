/* Device memory: host address space, reserved and not committed, so that a batch of 512 fits anywhere.
 *
 * What a program never touches costs nothing. The total is held to the device's memory; every
 * allocation is known by range, for attributes and for bounds.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

static void *tree;    /* of struct sim_alloc, by range */
static uint64_t used; /* bytes of device and managed memory */
static uint64_t next_id = 1;

/* Ranges that touch compare equal, so a look-up with one byte finds the allocation around it. */
static int by_range(const void *left, const void *right) {
    const struct sim_alloc *a = left, *b = right;
    if (a->base + a->size <= b->base)
        return -1;
    return b->base + b->size <= a->base ? 1 : 0;
}

static struct sim_alloc *find_locked(const void *pointer) {
    struct sim_alloc key = {.base = (uintptr_t)pointer, .size = 1};
    struct sim_alloc **found = pointer ? tfind(&key, &tree, by_range) : NULL;
    return found ? *found : NULL;
}

static bool on_device(enum sim_memory kind) {
    return kind == SIM_DEVICE || kind == SIM_MANAGED;
}

/* Put `a` into the tree; false when it overlaps another or memory is out. */
static bool insert_locked(struct sim_alloc *a) {
    a->id = next_id++;
    struct sim_alloc **at = tsearch(a, &tree, by_range);
    if (!at || *at != a)
        return false;
    if (on_device(a->kind))
        used += a->size;
    return true;
}

int sim_alloc(void **out, size_t size, enum sim_memory kind, unsigned flags) {
    const struct sim_spec *spec = sim_spec();
    if (!spec)
        return hipErrorNoDevice;
    if (!out)
        return hipErrorInvalidValue;
    *out = NULL;
    if (size == 0)
        return hipSuccess;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (size > SIZE_MAX - page)
        return hipErrorOutOfMemory;
    struct sim_alloc *a = malloc(sizeof *a);
    if (!a)
        return hipErrorOutOfMemory;
    *a = (struct sim_alloc){
        .size = size, .mapped = (size + page - 1) / page * page, .kind = kind, .flags = flags};
    sim_lock();
    bool fits = !on_device(kind) || (used <= spec->mem && size <= spec->mem - used);
    void *map = fits ? mmap(NULL, a->mapped, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                     : MAP_FAILED;
    a->base = (uintptr_t)map;
    bool done = map != MAP_FAILED && insert_locked(a);
    sim_unlock();
    if (!done) {
        if (map != MAP_FAILED)
            munmap(map, a->mapped);
        free(a);
        return hipErrorOutOfMemory;
    }
    /* A core file of a crashed client would otherwise hold the whole device. */
    madvise(map, a->mapped, MADV_DONTDUMP);
    *out = map;
    return hipSuccess;
}

int sim_free(void *pointer, bool host) {
    if (!pointer)
        return hipSuccess;
    sim_lock();
    struct sim_alloc *a = find_locked(pointer);
    bool ok = a && a->base == (uintptr_t)pointer && (host ? a->kind == SIM_HOST : on_device(a->kind));
    if (ok) {
        tdelete(a, &tree, by_range);
        if (on_device(a->kind))
            used -= a->size;
        munmap(pointer, a->mapped);
        free(a);
    }
    sim_unlock();
    return ok ? hipSuccess : hipErrorInvalidValue;
}

bool sim_find(const void *pointer, struct sim_alloc *out) {
    sim_lock();
    const struct sim_alloc *a = find_locked(pointer);
    if (a)
        *out = *a;
    sim_unlock();
    return a != NULL;
}

bool sim_in_bounds(const void *pointer, size_t size) {
    struct sim_alloc a;
    return !sim_find(pointer, &a) || size <= a.base + a.size - (uintptr_t)pointer;
}

uint64_t sim_memory_used(void) {
    sim_lock();
    uint64_t bytes = used;
    sim_unlock();
    return bytes;
}

static int reserve(void **out, size_t size, enum sim_memory kind, unsigned flags) {
    return sim_return(sim_alloc(out, size, kind, flags));
}

SIM_API(hipMalloc)(void **out, size_t size) {
    return reserve(out, size, SIM_DEVICE, 0);
}

SIM_API(hipExtMallocWithFlags)(void **out, size_t size, unsigned flags) {
    return reserve(out, size, SIM_DEVICE, flags);
}

SIM_API(hipMallocManaged)(void **out, size_t size, unsigned flags) {
    return reserve(out, size, SIM_MANAGED, flags);
}

SIM_API(hipHostMalloc)(void **out, size_t size, unsigned flags) {
    return reserve(out, size, SIM_HOST, flags);
}

SIM_API(hipHostAlloc)(void **out, size_t size, unsigned flags) {
    return reserve(out, size, SIM_HOST, flags);
}

SIM_API(hipMallocHost)(void **out, size_t size) {
    return reserve(out, size, SIM_HOST, 0);
}

SIM_API(hipMemAllocHost)(void **out, size_t size) {
    return reserve(out, size, SIM_HOST, 0);
}

SIM_API(hipMallocPitch)(void **out, size_t *pitch, size_t width, size_t height) {
    NEED(out && pitch, hipErrorInvalidValue);
    NEED(width <= SIZE_MAX - 255, hipErrorOutOfMemory);
    size_t row = (width + 255) / 256 * 256;
    NEED(height == 0 || row <= SIZE_MAX / height, hipErrorOutOfMemory);
    *pitch = row;
    return reserve(out, row * height, SIM_DEVICE, 0);
}

SIM_API(hipFree)(void *pointer) {
    return sim_return(sim_free(pointer, false));
}

SIM_API(hipHostFree)(void *pointer) {
    return sim_return(sim_free(pointer, true));
}

SIM_API(hipFreeHost)(void *pointer) {
    return sim_return(sim_free(pointer, true));
}

SIM_API(hipMallocAsync)(void **out, size_t size, struct sim_handle *stream) {
    NEED(sim_stream(stream), hipErrorInvalidHandle);
    return reserve(out, size, SIM_DEVICE, 0);
}

SIM_API(hipMallocFromPoolAsync)(void **out, size_t size, void *pool, struct sim_handle *stream) {
    NEED(pool, hipErrorInvalidValue);
    NEED(sim_stream(stream), hipErrorInvalidHandle);
    return reserve(out, size, SIM_DEVICE, 0);
}

SIM_API(hipFreeAsync)(void *pointer, struct sim_handle *stream) {
    NEED(pointer, hipErrorInvalidValue);
    NEED(sim_stream(stream), hipErrorInvalidHandle);
    return sim_return(sim_free(pointer, false));
}

SIM_API(hipMemGetInfo)(size_t *available, size_t *total) {
    NEED_DEVICE();
    NEED(available && total, hipErrorInvalidValue);
    *total = sim_spec()->mem;
    *available = *total - sim_memory_used();
    return sim_return(hipSuccess);
}

SIM_API(hipMemPtrGetInfo)(void *pointer, size_t *size) {
    struct sim_alloc a;
    NEED(size && sim_find(pointer, &a), hipErrorInvalidValue);
    *size = a.size;
    return sim_return(hipSuccess);
}

SIM_API(hipMemGetAddressRange)(void **base, size_t *size, void *pointer) {
    struct sim_alloc a;
    NEED(sim_find(pointer, &a), hipErrorNotFound);
    if (base)
        *base = (void *)a.base;
    if (size)
        *size = a.size;
    return sim_return(hipSuccess);
}

SIM_API(hipHostRegister)(void *pointer, size_t size, unsigned flags) {
    NEED_DEVICE();
    NEED(pointer && size && size <= UINTPTR_MAX - (uintptr_t)pointer, hipErrorInvalidValue);
    struct sim_alloc *a = malloc(sizeof *a);
    NEED(a, hipErrorOutOfMemory);
    *a = (struct sim_alloc){.base = (uintptr_t)pointer, .size = size, .kind = SIM_REGISTERED, .flags = flags};
    sim_lock();
    bool done = insert_locked(a);
    sim_unlock();
    if (!done)
        free(a);
    return sim_return(done ? hipSuccess : hipErrorHostMemoryAlreadyRegistered);
}

SIM_API(hipHostUnregister)(void *pointer) {
    sim_lock();
    struct sim_alloc *a = find_locked(pointer);
    bool ok = a && a->base == (uintptr_t)pointer && a->kind == SIM_REGISTERED;
    if (ok) {
        tdelete(a, &tree, by_range);
        free(a);
    }
    sim_unlock();
    return sim_return(ok ? hipSuccess : hipErrorHostMemoryNotRegistered);
}
