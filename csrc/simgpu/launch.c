/* Launches: checked, counted, timed, never run. The time is a published pure function, see
 * docs/simulated-gpu.md: same name and grid, same time, on every machine and in every run.
 */
#include <string.h>

#include "internal.h"

typedef struct sim_handle *handle_t;

uint64_t sim_kernel_time(const char *name, uint64_t work_items) {
    uint32_t hash = 2166136261u; /* FNV-1a: distinct kernels get distinct times */
    for (const char *c = name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    uint64_t ns = 4000 + hash % 1000 + work_items / 16;
    return strstr(name, "naive") ? ns * 100 : ns;
}

int sim_launch(const char *name, const uint32_t grid[3], const uint32_t block[3], uint64_t lds,
               handle_t stream, handle_t start, handle_t stop) {
    const struct sim_spec *spec = sim_spec();
    if (!spec)
        return hipErrorNoDevice;
    handle_t on = sim_stream(stream);
    if (!on || (start && !sim_handle_is(start, SIM_EVENT)) || (stop && !sim_handle_is(stop, SIM_EVENT)))
        return hipErrorInvalidHandle;
    uint64_t items = 1, threads = 1;
    for (int i = 0; i < 3; i++) {
        uint64_t side = (uint64_t)grid[i] * block[i];
        if (side == 0 || side > UINT32_MAX || block[i] > 1024)
            return hipErrorInvalidConfiguration;
        threads *= block[i];
        items = items > (UINT64_MAX >> 16) / side ? UINT64_MAX >> 16 : items * side;
    }
    if (threads > 1024 || lds > spec->lds)
        return hipErrorInvalidConfiguration;
    uint64_t ns = sim_kernel_time(name, items);
    uint64_t before = atomic_fetch_add(&on->clock, ns);
    if (start)
        atomic_store(&start->clock, before);
    if (stop)
        atomic_store(&stop->clock, before + ns);
    atomic_fetch_add_explicit(&sim_counts.launches, 1, memory_order_relaxed);
    return hipSuccess;
}

/* A module's function: grid in blocks. */
static int launch(handle_t function, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by,
                  uint32_t bz, uint64_t lds, handle_t stream, void **params, void **extra, handle_t start,
                  handle_t stop) {
    NEED(sim_handle_is(function, SIM_FUNCTION), hipErrorInvalidHandle);
    NEED(!params || !extra, hipErrorInvalidValue);
    const struct sim_kernel *kernel = function->data;
    const uint32_t grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
    return sim_return(sim_launch(kernel->name, grid, block, lds, stream, start, stop));
}

SIM_API(hipModuleLaunchKernel)(handle_t function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                               unsigned by, unsigned bz, unsigned lds, handle_t stream, void **params,
                               void **extra) {
    return launch(function, gx, gy, gz, bx, by, bz, lds, stream, params, extra, NULL, NULL);
}

SIM_API(hipModuleLaunchCooperativeKernel)(handle_t function, unsigned gx, unsigned gy, unsigned gz,
                                          unsigned bx, unsigned by, unsigned bz, unsigned lds,
                                          handle_t stream, void **params) {
    return launch(function, gx, gy, gz, bx, by, bz, lds, stream, params, NULL, NULL, NULL);
}

/* Here the grid is in work items, and the last block of a row may be partial. */
static int launch_items(handle_t function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, size_t lds, handle_t stream, void **params, void **extra, handle_t start,
                        handle_t stop) {
    NEED(bx && by && bz, hipErrorInvalidConfiguration);
    return launch(function, gx / bx + (gx % bx != 0), gy / by + (gy % by != 0), gz / bz + (gz % bz != 0), bx,
                  by, bz, lds, stream, params, extra, start, stop);
}

SIM_API(hipExtModuleLaunchKernel)(handle_t function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                  unsigned by, unsigned bz, size_t lds, handle_t stream, void **params,
                                  void **extra, handle_t start, handle_t stop, unsigned flags) {
    (void)flags;
    return launch_items(function, gx, gy, gz, bx, by, bz, lds, stream, params, extra, start, stop);
}

SIM_API(hipHccModuleLaunchKernel)(handle_t function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                  unsigned by, unsigned bz, size_t lds, handle_t stream, void **params,
                                  void **extra, handle_t start, handle_t stop) {
    return launch_items(function, gx, gy, gz, bx, by, bz, lds, stream, params, extra, start, stop);
}

/* The same two under the C++ names that code built before they were extern "C" asks for. */
SIM_API(_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j)
(handle_t function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, size_t lds,
 handle_t stream, void **params, void **extra, handle_t start, handle_t stop, unsigned flags) {
    (void)flags;
    return launch_items(function, gx, gy, gz, bx, by, bz, lds, stream, params, extra, start, stop);
}

SIM_API(_Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_)
(handle_t function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, size_t lds,
 handle_t stream, void **params, void **extra, handle_t start, handle_t stop) {
    return launch_items(function, gx, gy, gz, bx, by, bz, lds, stream, params, extra, start, stop);
}

SIM_API_OF(const char *, hipKernelNameRef)(handle_t function) {
    return sim_handle_is(function, SIM_FUNCTION) ? ((const struct sim_kernel *)function->data)->name : NULL;
}

/* Blocks that fit a compute unit by threads and LDS; registers are not looked at. */
int sim_occupancy(int *blocks, int block_size, size_t lds) {
    const struct sim_spec *spec = sim_spec();
    if (!spec)
        return hipErrorNoDevice;
    if (!blocks || block_size <= 0)
        return hipErrorInvalidValue;
    int fit = block_size > 1024 ? 0 : 2048 / block_size;
    if (lds > 0 && spec->lds / lds < (uint64_t)fit)
        fit = (int)(spec->lds / lds);
    *blocks = fit;
    return hipSuccess;
}

/* The largest block, and as many of them as fill the device. `limit` 0: none. */
int sim_best_block(int *grid, int *block, size_t lds, int limit) {
    if (!grid || !block || limit < 0)
        return hipErrorInvalidValue;
    int size = limit > 0 && limit < 1024 ? limit : 1024, fit = 0;
    int error = sim_occupancy(&fit, size, lds);
    if (error)
        return error;
    *block = size;
    *grid = fit * (int)sim_spec()->cu;
    return hipSuccess;
}

static int function_occupancy(int *blocks, handle_t function, int block_size, size_t lds) {
    NEED(sim_handle_is(function, SIM_FUNCTION), hipErrorInvalidHandle);
    const struct sim_kernel *kernel = function->data;
    NEED(lds <= SIZE_MAX - kernel->lds, hipErrorInvalidValue);
    return sim_return(sim_occupancy(blocks, block_size, lds + kernel->lds));
}

SIM_API(hipModuleOccupancyMaxActiveBlocksPerMultiprocessor)(int *blocks, handle_t function, int block_size,
                                                            size_t lds) {
    return function_occupancy(blocks, function, block_size, lds);
}

SIM_API(hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(int *blocks, handle_t function,
                                                                     int block_size, size_t lds,
                                                                     unsigned flags) {
    (void)flags;
    return function_occupancy(blocks, function, block_size, lds);
}

SIM_API(hipModuleOccupancyMaxPotentialBlockSize)(int *grid, int *block, handle_t function, size_t lds,
                                                 int limit) {
    NEED(sim_handle_is(function, SIM_FUNCTION), hipErrorInvalidHandle);
    const struct sim_kernel *kernel = function->data;
    NEED(lds <= SIZE_MAX - kernel->lds, hipErrorInvalidValue);
    return sim_return(sim_best_block(grid, block, lds + kernel->lds, limit));
}

enum { /* hipFunction_attribute */
       MAX_THREADS,
       SHARED_SIZE,
       CONST_SIZE,
       LOCAL_SIZE,
       MAX_DYNAMIC_SHARED = 8
};

SIM_API(hipFuncGetAttribute)(int *out, int attribute, handle_t function) {
    NEED_DEVICE();
    NEED(out, hipErrorInvalidValue);
    NEED(sim_handle_is(function, SIM_FUNCTION), hipErrorInvalidDeviceFunction);
    const struct sim_kernel *kernel = function->data;
    switch (attribute) {
    case MAX_THREADS:
        *out = 1024;
        break;
    case SHARED_SIZE:
        *out = (int)(kernel->lds & INT32_MAX);
        break;
    case LOCAL_SIZE:
        *out = (int)(kernel->scratch & INT32_MAX);
        break;
    case MAX_DYNAMIC_SHARED:
        *out = sim_spec()->lds > kernel->lds ? (int)(sim_spec()->lds - kernel->lds) : 0;
        break;
    case CONST_SIZE:
    case CONST_SIZE + 2: /* registers, PTX and binary version, cache mode: not read from the object */
    case CONST_SIZE + 3:
    case CONST_SIZE + 4:
    case CONST_SIZE + 5:
        *out = 0;
        break;
    default:
        return sim_return(hipErrorInvalidValue);
    }
    return sim_return(hipSuccess);
}
