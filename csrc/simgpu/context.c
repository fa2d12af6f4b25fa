/* Contexts, flags, limits and the other state that a device has and that decides nothing here. */
#include "internal.h"

/* One context exists: the primary one. Its address is its handle. */
static _Atomic int retained;
static _Atomic unsigned device_flags;
static _Atomic size_t limits[3] = {1024, 4 << 20, 8 << 20}; /* stack, printf, heap */
enum { DEPTH = 32 };
static _Thread_local unsigned depth; /* contexts pushed by this thread */
static _Thread_local bool current;

static int ok(int device) {
    NEED_DEVICE();
    return sim_return(device == 0 ? hipSuccess : hipErrorInvalidDevice);
}

static bool is_context(const void *context) {
    return context == &retained;
}

SIM_API(hipDevicePrimaryCtxRetain)(void **out, int device) {
    NEED(out, hipErrorInvalidValue);
    NEED_DEVICE_0(device);
    atomic_fetch_add(&retained, 1);
    *out = &retained;
    return sim_return(hipSuccess);
}

SIM_API(hipDevicePrimaryCtxRelease)(int device) {
    if (atomic_load(&retained) > 0)
        atomic_fetch_sub(&retained, 1);
    return ok(device);
}

SIM_API(hipDevicePrimaryCtxReset)(int device) {
    return ok(device);
}

SIM_API(hipDevicePrimaryCtxGetState)(int device, unsigned *flags, int *active) {
    NEED(flags && active, hipErrorInvalidValue);
    *flags = atomic_load(&device_flags);
    *active = atomic_load(&retained) > 0;
    return ok(device);
}

SIM_API(hipDevicePrimaryCtxSetFlags)(int device, unsigned flags) {
    atomic_store(&device_flags, flags);
    return ok(device);
}

SIM_API(hipCtxCreate)(void **out, unsigned flags, int device) {
    (void)flags;
    NEED(out, hipErrorInvalidValue);
    *out = &retained;
    current = true;
    return ok(device);
}

SIM_API(hipCtxDestroy)(void *context) {
    NEED(is_context(context), hipErrorInvalidValue);
    return ok(0);
}

SIM_API(hipCtxSetCurrent)(void *context) {
    NEED(!context || is_context(context), hipErrorInvalidValue);
    current = context != NULL;
    return ok(0);
}

SIM_API(hipCtxGetCurrent)(void **out) {
    NEED(out, hipErrorInvalidValue);
    *out = current ? (void *)&retained : NULL;
    return ok(0);
}

SIM_API(hipCtxPushCurrent)(void *context) {
    NEED(is_context(context), hipErrorInvalidContext);
    NEED(depth < DEPTH, hipErrorOutOfMemory);
    depth++;
    current = true;
    return ok(0);
}

SIM_API(hipCtxPopCurrent)(void **out) {
    NEED(depth > 0 || current, hipErrorInvalidContext);
    if (out)
        *out = &retained;
    if (depth > 0)
        depth--;
    current = depth > 0;
    return ok(0);
}

SIM_API(hipCtxGetDevice)(int *out) {
    NEED(out, hipErrorInvalidValue);
    *out = 0;
    return ok(0);
}

SIM_API(hipCtxGetApiVersion)(void *context, int *out) {
    (void)context;
    NEED(out, hipErrorInvalidValue);
    *out = 4;
    return ok(0);
}

SIM_API(hipCtxGetFlags)(unsigned *out) {
    NEED(out, hipErrorInvalidValue);
    *out = atomic_load(&device_flags);
    return ok(0);
}

SIM_API(hipCtxSynchronize)(void) {
    return ok(0);
}

SIM_API(hipGetDeviceFlags)(unsigned *out) {
    NEED(out, hipErrorInvalidValue);
    *out = atomic_load(&device_flags);
    return ok(0);
}

SIM_API(hipSetDeviceFlags)(unsigned flags) {
    atomic_store(&device_flags, flags);
    return ok(0);
}

SIM_API(hipDeviceGetLimit)(size_t *out, int limit) {
    NEED(out && limit >= 0 && limit < 3, hipErrorInvalidValue);
    *out = atomic_load(&limits[limit]);
    return ok(0);
}

SIM_API(hipDeviceSetLimit)(int limit, size_t value) {
    NEED(limit >= 0 && limit < 3, hipErrorInvalidValue);
    atomic_store(&limits[limit], value);
    return ok(0);
}

/* AMD's devices have neither preference; the real library accepts both and does nothing. */
SIM_API(hipDeviceSetCacheConfig)(int config) {
    (void)config;
    return ok(0);
}

SIM_API(hipDeviceGetCacheConfig)(int *out) {
    NEED(out, hipErrorInvalidValue);
    *out = 0;
    return ok(0);
}

SIM_API(hipDeviceSetSharedMemConfig)(int config) {
    (void)config;
    return ok(0);
}

SIM_API(hipDeviceGetSharedMemConfig)(int *out) {
    NEED(out, hipErrorInvalidValue);
    *out = 1; /* banks of four bytes */
    return ok(0);
}

/* Everything but modules, streams and events that the process holds goes on existing: clients that
 * reset do so at their end. */
SIM_API(hipDeviceReset)(void) {
    return ok(0);
}

SIM_API(hipProfilerStart)(void) {
    return ok(0);
}

SIM_API(hipProfilerStop)(void) {
    return ok(0);
}
