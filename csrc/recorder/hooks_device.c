/* HIP: devices and streams, as the host makes and asks for them. Noted, never asked for.
 *
 * A launch runs on its stream's device, which is the one that was current where the stream was made; on
 * the null stream, on the thread's current one. That is hipSetDevice's or a context's: HIP's context is
 * a device by another name, and popping one changes nothing (clr, hip_context.cpp). */
#include "hip.h"

static struct kdb_map contexts = {.value_bytes = sizeof(int)};
static struct kdb_map streams = {.value_bytes = sizeof(int)};

int hipSetDevice(int number) {
    KDB_REAL_HIP(hipSetDevice);
    int result = real(number);
    if (result == 0)
        kdb_device = number;
    return result;
}

/* ---- contexts ---- */

static void context_is(void *const *context, int result, int device) {
    if (result == 0 && context && *context && kdb_recording())
        kdb_map_set(&contexts, (uintptr_t)*context, &device);
}

static void current(const void *context, int result) {
    int device;
    if (result == 0 && context && kdb_map_get(&contexts, (uintptr_t)context, &device))
        kdb_device = device;
}

int hipCtxCreate(void **context, unsigned flags, int device) {
    KDB_REAL_HIP(hipCtxCreate);
    int result = real(context, flags, device);
    context_is(context, result, device);
    return result;
}

int hipDevicePrimaryCtxRetain(void **context, int device) {
    KDB_REAL_HIP(hipDevicePrimaryCtxRetain);
    int result = real(context, device);
    context_is(context, result, device);
    return result;
}

int hipCtxGetCurrent(void **context) {
    KDB_REAL_HIP(hipCtxGetCurrent);
    int result = real(context);
    context_is(context, result, kdb_device);
    return result;
}

int hipCtxSetCurrent(void *context) {
    KDB_REAL_HIP(hipCtxSetCurrent);
    int result = real(context);
    current(context, result);
    return result;
}

int hipCtxPushCurrent(void *context) {
    KDB_REAL_HIP(hipCtxPushCurrent);
    int result = real(context);
    current(context, result);
    return result;
}

/* ---- streams ---- */

int kdb_stream_device(uint64_t stream, int device) {
    if (stream > (uintptr_t)KDB_STREAM_PER_THREAD)
        kdb_map_get(&streams, stream, &device);
    return device;
}

static void stream_is(void *const *stream, int result) {
    int device = kdb_device, old;
    if (result != 0 || !stream || !*stream || !kdb_recording())
        return;
    kdb_capture_new_stream(*stream);
    bool known = kdb_map_get(&streams, (uintptr_t)*stream, &old);
    if (known && old == device)
        return;
    kdb_map_set(&streams, (uintptr_t)*stream, &device);
    if (known) /* shapes remembered with this handle are on another device */
        atomic_fetch_add_explicit(&kdb_function_epoch, 1, memory_order_release);
}

int hipStreamCreate(void **stream) {
    KDB_REAL_HIP(hipStreamCreate);
    int result = real(stream);
    stream_is(stream, result);
    return result;
}

int hipStreamCreateWithFlags(void **stream, unsigned flags) {
    KDB_REAL_HIP(hipStreamCreateWithFlags);
    int result = real(stream, flags);
    stream_is(stream, result);
    return result;
}

int hipStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
    KDB_REAL_HIP(hipStreamCreateWithPriority);
    int result = real(stream, flags, priority);
    stream_is(stream, result);
    return result;
}

int hipExtStreamCreateWithCUMask(void **stream, uint32_t words, const uint32_t *mask) {
    KDB_REAL_HIP(hipExtStreamCreateWithCUMask);
    int result = real(stream, words, mask);
    stream_is(stream, result);
    return result;
}

/* ---- properties ---- */

static void saw(const void *properties, int result, int device, size_t units_at, size_t name_at) {
    char name[128];
    int units;
    if (result != 0 || !properties)
        return;
    memcpy(&units, (const char *)properties + units_at, sizeof units);
    memcpy(name, (const char *)properties + name_at, sizeof name - 1);
    name[sizeof name - 1] = 0;
    kdb_saw_device(device, name, units);
}

/* hipDeviceProp_tR0600 of HIP 6 and 7, 1472 bytes, and hipDeviceProp_t of HIP 5, which HIP 6 goes on
 * filling under its old names: where multiProcessorCount and gcnArchName are. */
enum { UNITS_6 = 388, NAME_6 = 1160, UNITS_5 = 336, NAME_5 = 396 };

int hipGetDevicePropertiesR0600(void *properties, int device) {
    KDB_REAL_HIP(hipGetDevicePropertiesR0600);
    int result = real(properties, device);
    saw(properties, result, device, UNITS_6, NAME_6);
    return result;
}

int hipGetDevicePropertiesR0000(void *properties, int device) {
    KDB_REAL_HIP(hipGetDevicePropertiesR0000);
    int result = real(properties, device);
    saw(properties, result, device, UNITS_5, NAME_5);
    return result;
}

int hipGetDeviceProperties(void *properties, int device) {
    KDB_REAL_HIP(hipGetDeviceProperties);
    int result = real(properties, device);
    saw(properties, result, device, UNITS_5, NAME_5);
    return result;
}

int hipRuntimeGetVersion(int *version) {
    KDB_REAL_HIP(hipRuntimeGetVersion);
    int result = real(version);
    if (result == 0 && version)
        kdb_saw_hip_version(*version);
    return result;
}
