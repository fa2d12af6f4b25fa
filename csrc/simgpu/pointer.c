/* What is known of a pointer, and the memory pools, of which the device has one. */
#include <string.h>

#include "internal.h"

/* CUDA's rule before version 11, which HIP documents: a pointer that is not ours is an error. */
SIM_API(hipPointerGetAttributes)(struct hip_pointer_attributes *out, const void *pointer) {
    NEED_DEVICE();
    NEED(out && pointer, hipErrorInvalidValue);
    memset(out, 0, sizeof *out);
    struct sim_alloc a;
    NEED(sim_find(pointer, &a), hipErrorInvalidValue);
    out->type = a.kind == SIM_DEVICE    ? hipMemoryTypeDevice
                : a.kind == SIM_MANAGED ? hipMemoryTypeManaged
                                        : hipMemoryTypeHost;
    out->devicePointer = (void *)(uintptr_t)pointer;
    out->hostPointer = a.kind == SIM_DEVICE ? NULL : (void *)(uintptr_t)pointer;
    out->isManaged = a.kind == SIM_MANAGED;
    out->allocationFlags = a.flags;
    return sim_return(hipSuccess);
}

enum { /* hipPointer_attribute */
       CONTEXT = 1,
       MEMORY_TYPE,
       DEVICE_POINTER,
       HOST_POINTER,
       BUFFER_ID = 7,
       IS_MANAGED,
       DEVICE_ORDINAL,
       RANGE_START = 11,
       RANGE_SIZE,
       MAPPED
};

SIM_API(hipPointerGetAttribute)(void *out, int attribute, void *pointer) {
    NEED_DEVICE();
    struct sim_alloc a;
    NEED(out && sim_find(pointer, &a), hipErrorInvalidValue);
    switch (attribute) {
    case MEMORY_TYPE:
        *(unsigned *)out = a.kind == SIM_DEVICE    ? hipMemoryTypeDevice
                           : a.kind == SIM_MANAGED ? hipMemoryTypeManaged
                                                   : hipMemoryTypeHost;
        break;
    case DEVICE_POINTER:
        *(void **)out = pointer;
        break;
    case HOST_POINTER:
        NEED(a.kind != SIM_DEVICE, hipErrorInvalidValue);
        *(void **)out = pointer;
        break;
    case BUFFER_ID:
        *(uint64_t *)out = a.id;
        break;
    case IS_MANAGED:
        *(bool *)out = a.kind == SIM_MANAGED;
        break;
    case DEVICE_ORDINAL:
        *(int *)out = 0;
        break;
    case RANGE_START:
        *(void **)out = (void *)a.base;
        break;
    case RANGE_SIZE:
        *(size_t *)out = a.size;
        break;
    case MAPPED:
        *(bool *)out = true;
        break;
    default:
        return sim_return(hipErrorInvalidValue);
    }
    return sim_return(hipSuccess);
}

SIM_API(hipHostGetDevicePointer)(void **out, void *host, unsigned flags) {
    (void)flags;
    struct sim_alloc a;
    NEED(out && sim_find(host, &a) && a.kind != SIM_DEVICE, hipErrorInvalidValue);
    *out = host;
    return sim_return(hipSuccess);
}

SIM_API(hipHostGetFlags)(unsigned *out, void *host) {
    struct sim_alloc a;
    NEED(out && sim_find(host, &a) && a.kind == SIM_HOST, hipErrorInvalidValue);
    *out = a.flags;
    return sim_return(hipSuccess);
}

static _Atomic uint64_t threshold;
static _Atomic int reuse[4] = {0, 1, 1, 1}; /* hipMemPoolReuse*, 1 to 3 */

static void *default_pool(void) {
    return &threshold;
}

static int get_pool(void **out, int device) {
    NEED_DEVICE();
    NEED(out, hipErrorInvalidValue);
    NEED(device == 0, hipErrorInvalidDevice);
    *out = default_pool();
    return sim_return(hipSuccess);
}

SIM_API(hipDeviceGetDefaultMemPool)(void **out, int device) {
    return get_pool(out, device);
}

SIM_API(hipDeviceGetMemPool)(void **out, int device) {
    return get_pool(out, device);
}

SIM_API(hipDeviceSetMemPool)(int device, void *pool) {
    NEED_DEVICE();
    NEED(device == 0, hipErrorInvalidDevice);
    NEED(pool == default_pool(), hipErrorInvalidValue);
    return sim_return(hipSuccess);
}

/* Freed memory is given back at once, so there is nothing to trim. */
SIM_API(hipMemPoolTrimTo)(void *pool, size_t keep) {
    (void)keep;
    NEED(pool == default_pool(), hipErrorInvalidValue);
    return sim_return(hipSuccess);
}

SIM_API(hipMemPoolSetAttribute)(void *pool, int attribute, void *value) {
    NEED(pool == default_pool() && value && attribute >= 1 && attribute <= 8, hipErrorInvalidValue);
    if (attribute < 4)
        atomic_store(&reuse[attribute], *(int *)value);
    else if (attribute == 4)
        atomic_store(&threshold, *(uint64_t *)value);
    else /* the high-water marks, which may only be reset, and are not kept */
        NEED(*(uint64_t *)value == 0, hipErrorInvalidValue);
    return sim_return(hipSuccess);
}

SIM_API(hipMemPoolGetAttribute)(void *pool, int attribute, void *value) {
    NEED(pool == default_pool() && value && attribute >= 1 && attribute <= 8, hipErrorInvalidValue);
    if (attribute < 4)
        *(int *)value = atomic_load(&reuse[attribute]);
    else
        *(uint64_t *)value = attribute == 4 ? atomic_load(&threshold) : sim_memory_used();
    return sim_return(hipSuccess);
}
