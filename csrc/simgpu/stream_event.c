/* Streams and events. A stream's clock counts the simulated time of the kernels launched to it;
 * an event takes that clock. All work is done when its call returns, so nothing is ever pending.
 */
#include <string.h>

#include "internal.h"

typedef struct sim_handle *handle_t;
enum { hipStreamNonBlocking = 1, hipEventDisableTiming = 2 };
/* hipEvent flags: blocking sync, no timing, interprocess, no fence, release to device, to system */
static const unsigned event_flags = 0xe0000007u;

static int new_stream(handle_t *out, unsigned flags, int priority) {
    NEED_DEVICE();
    NEED(out && flags <= hipStreamNonBlocking, hipErrorInvalidValue);
    handle_t stream = sim_handle_new(SIM_STREAM);
    NEED(stream, hipErrorOutOfMemory);
    stream->flags = flags;
    stream->priority = priority < -1 ? -1 : priority > 1 ? 1 : priority;
    atomic_store(&stream->clock, 1); /* 0 is kept for "event never recorded" */
    *out = stream;
    return sim_return(hipSuccess);
}

SIM_API(hipStreamCreate)(handle_t *out) {
    return new_stream(out, 0, 0);
}

SIM_API(hipStreamCreateWithFlags)(handle_t *out, unsigned flags) {
    return new_stream(out, flags, 0);
}

SIM_API(hipStreamCreateWithPriority)(handle_t *out, unsigned flags, int priority) {
    return new_stream(out, flags, priority);
}

SIM_API(hipExtStreamCreateWithCUMask)(handle_t *out, uint32_t words, const uint32_t *mask) {
    NEED(words && mask, hipErrorInvalidValue);
    return new_stream(out, 0, 0);
}

SIM_API(hipStreamDestroy)(handle_t stream) {
    handle_t own = (uintptr_t)stream <= 2 ? NULL : stream; /* the default stream stays */
    NEED(sim_handle_free(own, SIM_STREAM), hipErrorInvalidHandle);
    return sim_return(hipSuccess);
}

static int done(handle_t stream) {
    NEED_DEVICE();
    NEED(sim_stream(stream), hipErrorInvalidHandle);
    return sim_return(hipSuccess);
}

SIM_API(hipStreamSynchronize)(handle_t stream) {
    return done(stream);
}

SIM_API(hipStreamSynchronize_spt)(handle_t stream) {
    return done(stream);
}

SIM_API(hipStreamQuery)(handle_t stream) {
    return done(stream);
}

SIM_API(hipStreamQuery_spt)(handle_t stream) {
    return done(stream);
}

SIM_API(hipStreamGetFlags)(handle_t stream, unsigned *out) {
    NEED(sim_stream(stream), hipErrorInvalidHandle);
    NEED(out, hipErrorInvalidValue);
    *out = sim_stream(stream)->flags;
    return sim_return(hipSuccess);
}

SIM_API(hipStreamGetPriority)(handle_t stream, int *out) {
    NEED(sim_stream(stream), hipErrorInvalidHandle);
    NEED(out, hipErrorInvalidValue);
    *out = sim_stream(stream)->priority;
    return sim_return(hipSuccess);
}

SIM_API(hipStreamGetDevice)(handle_t stream, int *out) {
    NEED(sim_stream(stream), hipErrorInvalidHandle);
    NEED(out, hipErrorInvalidValue);
    *out = 0;
    return sim_return(hipSuccess);
}

SIM_API(hipGetStreamDeviceId)(handle_t stream) {
    return sim_stream(stream) ? 0 : -1;
}

/* Capture is not simulated: no stream ever captures. */
static int not_capturing(handle_t stream, int *out) {
    NEED(sim_stream(stream), hipErrorInvalidHandle);
    NEED(out, hipErrorInvalidValue);
    *out = 0; /* hipStreamCaptureStatusNone */
    return sim_return(hipSuccess);
}

SIM_API(hipStreamIsCapturing)(handle_t stream, int *out) {
    return not_capturing(stream, out);
}

SIM_API(hipStreamIsCapturing_spt)(handle_t stream, int *out) {
    return not_capturing(stream, out);
}

SIM_API(hipStreamGetCaptureInfo)(handle_t stream, int *out, unsigned long long *id) {
    if (id)
        *id = 0;
    return not_capturing(stream, out);
}

static int wait_event(handle_t stream, handle_t event) {
    NEED_DEVICE();
    NEED(sim_stream(stream) && sim_handle_is(event, SIM_EVENT), hipErrorInvalidHandle);
    uint64_t at = atomic_load(&event->clock), clock = atomic_load(&sim_stream(stream)->clock);
    while (clock < at && !atomic_compare_exchange_weak(&sim_stream(stream)->clock, &clock, at))
        ;
    return sim_return(hipSuccess);
}

SIM_API(hipStreamWaitEvent)(handle_t stream, handle_t event, unsigned flags) {
    (void)flags;
    return wait_event(stream, event);
}

SIM_API(hipStreamWaitEvent_spt)(handle_t stream, handle_t event, unsigned flags) {
    (void)flags;
    return wait_event(stream, event);
}

typedef void (*stream_callback)(handle_t stream, int status, void *user);

SIM_API(hipStreamAddCallback)(handle_t stream, stream_callback callback, void *user, unsigned flags) {
    NEED_DEVICE();
    NEED(callback && flags == 0, hipErrorInvalidValue);
    NEED(sim_stream(stream), hipErrorInvalidHandle);
    callback(stream, hipSuccess, user);
    return sim_return(hipSuccess);
}

SIM_API(hipLaunchHostFunc)(handle_t stream, void (*function)(void *), void *user) {
    NEED_DEVICE();
    NEED(function, hipErrorInvalidValue);
    NEED(sim_stream(stream), hipErrorInvalidHandle);
    function(user);
    return sim_return(hipSuccess);
}

static int new_event(handle_t *out, unsigned flags) {
    NEED_DEVICE();
    NEED(out && (flags & ~event_flags) == 0, hipErrorInvalidValue);
    handle_t event = sim_handle_new(SIM_EVENT);
    NEED(event, hipErrorOutOfMemory);
    event->flags = flags;
    *out = event;
    return sim_return(hipSuccess);
}

SIM_API(hipEventCreate)(handle_t *out) {
    return new_event(out, 0);
}

SIM_API(hipEventCreateWithFlags)(handle_t *out, unsigned flags) {
    return new_event(out, flags);
}

SIM_API(hipEventDestroy)(handle_t event) {
    NEED(sim_handle_free(event, SIM_EVENT), hipErrorInvalidHandle);
    return sim_return(hipSuccess);
}

static int record(handle_t event, handle_t stream) {
    NEED_DEVICE();
    NEED(sim_handle_is(event, SIM_EVENT) && sim_stream(stream), hipErrorInvalidHandle);
    atomic_store(&event->clock, atomic_load(&sim_stream(stream)->clock));
    return sim_return(hipSuccess);
}

SIM_API(hipEventRecord)(handle_t event, handle_t stream) {
    return record(event, stream);
}

SIM_API(hipEventRecord_spt)(handle_t event, handle_t stream) {
    return record(event, stream);
}

SIM_API(hipEventRecordWithFlags)(handle_t event, handle_t stream, unsigned flags) {
    NEED(flags <= 1, hipErrorInvalidValue);
    return record(event, stream);
}

static int reached(handle_t event) {
    NEED_DEVICE();
    NEED(sim_handle_is(event, SIM_EVENT), hipErrorInvalidHandle);
    return sim_return(hipSuccess);
}

SIM_API(hipEventSynchronize)(handle_t event) {
    return reached(event);
}

SIM_API(hipEventQuery)(handle_t event) {
    return reached(event);
}

/* Milliseconds of simulated time between two events. On different streams, whose clocks are only
 * joined by hipStreamWaitEvent, it is never less than 0. */
SIM_API(hipEventElapsedTime)(float *out, handle_t start, handle_t stop) {
    NEED_DEVICE();
    NEED(out, hipErrorInvalidValue);
    NEED(sim_handle_is(start, SIM_EVENT) && sim_handle_is(stop, SIM_EVENT), hipErrorInvalidHandle);
    NEED(((start->flags | stop->flags) & hipEventDisableTiming) == 0, hipErrorInvalidHandle);
    uint64_t from = atomic_load(&start->clock), to = atomic_load(&stop->clock);
    NEED(from && to, hipErrorInvalidHandle);
    *out = to > from ? (float)((double)(to - from) / 1e6) : 0.0f;
    return sim_return(hipSuccess);
}
