/* Copies and fills. They take effect at once, and are held inside the allocations they touch. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

enum { hipMemcpyDefault = 4, hipMemcpyDeviceToDeviceNoCU = 1024 };
typedef struct sim_handle *stream_t;

int sim_copy(void *to, const void *from, size_t size, int kind) {
    if (!sim_spec())
        return hipErrorNoDevice;
    if ((kind < 0 || kind > hipMemcpyDefault) && kind != hipMemcpyDeviceToDeviceNoCU)
        return hipErrorInvalidMemcpyDirection;
    if (size == 0)
        return hipSuccess;
    if (!to || !from || !sim_in_bounds(to, size) || !sim_in_bounds(from, size))
        return hipErrorInvalidValue;
    memmove(to, from, size);
    return hipSuccess;
}

static int copy(void *to, const void *from, size_t size, int kind, stream_t stream) {
    NEED(sim_stream(stream), hipErrorInvalidHandle);
    return sim_return(sim_copy(to, from, size, kind));
}

/* The bytes that `height` rows of a pitched area span; SIZE_MAX when that overflows. */
static size_t span(size_t pitch, size_t width, size_t height) {
    size_t rows;
    if (__builtin_mul_overflow(pitch, height - 1, &rows) || rows > SIZE_MAX - width)
        return SIZE_MAX;
    return rows + width;
}

static int copy_2d(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                   size_t height, int kind, stream_t stream) {
    NEED_DEVICE();
    NEED(sim_stream(stream), hipErrorInvalidHandle);
    if (width == 0 || height == 0)
        return sim_return(hipSuccess);
    NEED(to && from, hipErrorInvalidValue);
    NEED(width <= to_pitch && width <= from_pitch, hipErrorInvalidPitchValue);
    NEED(kind >= 0 && kind <= hipMemcpyDefault, hipErrorInvalidMemcpyDirection);
    size_t to_span = span(to_pitch, width, height), from_span = span(from_pitch, width, height);
    NEED(to_span != SIZE_MAX && from_span != SIZE_MAX, hipErrorInvalidValue);
    NEED(sim_in_bounds(to, to_span) && sim_in_bounds(from, from_span), hipErrorInvalidValue);
    for (size_t y = 0; y < height; y++)
        memmove((char *)to + y * to_pitch, (const char *)from + y * from_pitch, width);
    return sim_return(hipSuccess);
}

/* `count` elements of `bytes` each. Zeroing whole pages of device memory gives them back instead of
 * touching them, or a cleared workspace of gigabytes would be committed. */
static int fill(void *to, unsigned value, size_t bytes, size_t count, stream_t stream) {
    NEED_DEVICE();
    NEED(sim_stream(stream), hipErrorInvalidHandle);
    size_t size;
    NEED(!__builtin_mul_overflow(count, bytes, &size), hipErrorInvalidValue);
    if (size == 0)
        return sim_return(hipSuccess);
    NEED(to && sim_in_bounds(to, size), hipErrorInvalidValue);
    char *at = to, *end = at + size;
    struct sim_alloc a;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (value == 0 && size >= 16 * page && sim_find(to, &a) && a.kind != SIM_REGISTERED) {
        char *first = (char *)(((uintptr_t)at + page - 1) / page * page);
        char *last = (char *)((uintptr_t)end / page * page);
        if (madvise(first, (size_t)(last - first), MADV_DONTNEED) == 0) {
            memset(at, 0, (size_t)(first - at));
            memset(last, 0, (size_t)(end - last)); /* what is left need not be whole elements */
            return sim_return(hipSuccess);
        }
    }
    if (bytes == 1)
        memset(at, (int)value, (size_t)(end - at));
    else /* the first element may be unaligned: hipMemsetD32 of a byte address is the caller's right */
        for (; at < end; at += bytes)
            memcpy(at, bytes == 2 ? (const void *)&(uint16_t){(uint16_t)value} : &value, bytes);
    return sim_return(hipSuccess);
}

static int fill_2d(void *to, size_t pitch, int value, size_t width, size_t height, stream_t stream) {
    NEED_DEVICE();
    NEED(sim_stream(stream), hipErrorInvalidHandle);
    if (width == 0 || height == 0)
        return sim_return(hipSuccess);
    NEED(width <= pitch, hipErrorInvalidPitchValue);
    size_t size = span(pitch, width, height);
    NEED(to && size != SIZE_MAX && sim_in_bounds(to, size), hipErrorInvalidValue);
    for (size_t y = 0; y < height; y++)
        memset((char *)to + y * pitch, value, width);
    return sim_return(hipSuccess);
}

SIM_API(hipMemcpy)(void *to, const void *from, size_t n, int kind) {
    return copy(to, from, n, kind, NULL);
}

SIM_API(hipMemcpy_spt)(void *to, const void *from, size_t n, int kind) {
    return copy(to, from, n, kind, NULL);
}

SIM_API(hipMemcpyAsync)(void *to, const void *from, size_t n, int kind, stream_t stream) {
    return copy(to, from, n, kind, stream);
}

SIM_API(hipMemcpyAsync_spt)(void *to, const void *from, size_t n, int kind, stream_t stream) {
    return copy(to, from, n, kind, stream);
}

SIM_API(hipMemcpyWithStream)(void *to, const void *from, size_t n, int kind, stream_t stream) {
    return copy(to, from, n, kind, stream);
}

SIM_API(hipMemcpyHtoD)(void *to, const void *from, size_t n) {
    return copy(to, from, n, 1, NULL);
}

SIM_API(hipMemcpyDtoH)(void *to, const void *from, size_t n) {
    return copy(to, from, n, 2, NULL);
}

SIM_API(hipMemcpyDtoD)(void *to, const void *from, size_t n) {
    return copy(to, from, n, 3, NULL);
}

SIM_API(hipMemcpyHtoDAsync)(void *to, const void *from, size_t n, stream_t stream) {
    return copy(to, from, n, 1, stream);
}

SIM_API(hipMemcpyDtoHAsync)(void *to, const void *from, size_t n, stream_t stream) {
    return copy(to, from, n, 2, stream);
}

SIM_API(hipMemcpyDtoDAsync)(void *to, const void *from, size_t n, stream_t stream) {
    return copy(to, from, n, 3, stream);
}

SIM_API(hipMemcpyPeer)(void *to, int to_device, const void *from, int from_device, size_t n) {
    NEED(to_device == 0 && from_device == 0, hipErrorInvalidDevice);
    return copy(to, from, n, 3, NULL);
}

SIM_API(hipMemcpyPeerAsync)(void *to, int to_device, const void *from, int from_device, size_t n,
                            stream_t stream) {
    NEED(to_device == 0 && from_device == 0, hipErrorInvalidDevice);
    return copy(to, from, n, 3, stream);
}

SIM_API(hipMemcpy2D)(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                     size_t height, int kind) {
    return copy_2d(to, to_pitch, from, from_pitch, width, height, kind, NULL);
}

SIM_API(hipMemcpy2DAsync)(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                          size_t height, int kind, stream_t stream) {
    return copy_2d(to, to_pitch, from, from_pitch, width, height, kind, stream);
}

SIM_API(hipMemset)(void *to, int value, size_t n) {
    return fill(to, (uint8_t)value, 1, n, NULL);
}

SIM_API(hipMemset_spt)(void *to, int value, size_t n) {
    return fill(to, (uint8_t)value, 1, n, NULL);
}

SIM_API(hipMemsetAsync)(void *to, int value, size_t n, stream_t stream) {
    return fill(to, (uint8_t)value, 1, n, stream);
}

SIM_API(hipMemsetAsync_spt)(void *to, int value, size_t n, stream_t stream) {
    return fill(to, (uint8_t)value, 1, n, stream);
}

SIM_API(hipMemsetD8)(void *to, unsigned char value, size_t n) {
    return fill(to, value, 1, n, NULL);
}

SIM_API(hipMemsetD8Async)(void *to, unsigned char value, size_t n, stream_t stream) {
    return fill(to, value, 1, n, stream);
}

SIM_API(hipMemsetD16)(void *to, unsigned short value, size_t n) {
    return fill(to, value, 2, n, NULL);
}

SIM_API(hipMemsetD16Async)(void *to, unsigned short value, size_t n, stream_t stream) {
    return fill(to, value, 2, n, stream);
}

SIM_API(hipMemsetD32)(void *to, int value, size_t n) {
    return fill(to, (unsigned)value, 4, n, NULL);
}

SIM_API(hipMemsetD32Async)(void *to, int value, size_t n, stream_t stream) {
    return fill(to, (unsigned)value, 4, n, stream);
}

SIM_API(hipMemset2D)(void *to, size_t pitch, int value, size_t width, size_t height) {
    return fill_2d(to, pitch, value, width, height, NULL);
}

SIM_API(hipMemset2DAsync)(void *to, size_t pitch, int value, size_t width, size_t height, stream_t stream) {
    return fill_2d(to, pitch, value, width, height, stream);
}
