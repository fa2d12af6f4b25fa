/* Kernels that are compiled into a program: what `<<< >>>` and its registration code call.
 *
 * The fat binary itself is not opened: libraries carry them for dozens of architectures, compressed,
 * and a launch only needs the name. So a kernel that was not built for the device launches here too.
 */
#define _GNU_SOURCE
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

typedef struct sim_handle *handle_t;

struct symbol { /* a kernel by the address of its host stub, or a variable by that of its shadow */
    const void *host;
    void *owner;
    char *name;
    void *device; /* variable: its memory, made when first asked for */
    size_t size;
    bool variable;
    struct symbol *next;
};

struct fatbin {
    struct symbol *symbols;
};

static void *tree;                            /* of struct symbol, by host address */
static const uint32_t FAT_MAGIC = 0x48495046; /* "HIPF" */

static int by_host(const void *left, const void *right) {
    uintptr_t a = (uintptr_t)((const struct symbol *)left)->host,
              b = (uintptr_t)((const struct symbol *)right)->host;
    return a < b ? -1 : a > b;
}

static struct symbol *find(const void *host, bool variable) {
    struct symbol key = {.host = host};
    sim_lock();
    struct symbol **found = host ? tfind(&key, &tree, by_host) : NULL;
    struct symbol *symbol = found ? *found : NULL;
    sim_unlock();
    return symbol && symbol->variable == variable ? symbol : NULL;
}

SIM_API_OF(void *, __hipRegisterFatBinary)(const void *data) {
    const uint32_t *wrapper = data;
    if (!wrapper || (wrapper[0] != FAT_MAGIC && wrapper[0] != 0x4b504948 /* "HIPK" */)) {
        sim_log("fatbin refused");
        return NULL;
    }
    return calloc(1, sizeof(struct fatbin));
}

static void add(struct fatbin *owner, const void *host, const char *name, size_t size, bool variable) {
    struct symbol *symbol = owner && host && name ? calloc(1, sizeof *symbol) : NULL;
    char *copy = symbol ? strdup(name) : NULL;
    if (!copy) {
        free(symbol);
        return;
    }
    *symbol = (struct symbol){.host = host, .owner = owner, .name = copy, .size = size, .variable = variable};
    sim_lock();
    struct symbol **at = tsearch(symbol, &tree, by_host);
    bool kept = at && *at == symbol;
    if (kept) {
        symbol->next = owner->symbols;
        owner->symbols = symbol;
    }
    sim_unlock();
    if (!kept) { /* registered twice: the first stays, as with AMD's library */
        free(copy);
        free(symbol);
    }
}

SIM_API_OF(void, __hipRegisterFunction)(void *owner, const void *host, char *device, const char *name,
                                        unsigned threads, void *tid, void *bid, void *block, void *grid,
                                        int *warp) {
    (void)device, (void)threads, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
    add(owner, host, name, 0, false);
}

SIM_API_OF(void, __hipRegisterVar)(void *owner, void *host, char *host_name, char *name, int external,
                                   size_t size, int constant, int global) {
    (void)host_name, (void)external, (void)constant, (void)global;
    add(owner, host, name, size, true);
}

SIM_API_OF(void, __hipUnregisterFatBinary)(void *owner) {
    struct fatbin *fatbin = owner;
    if (!fatbin)
        return;
    sim_lock();
    struct symbol *symbols = fatbin->symbols;
    for (struct symbol *s = symbols; s; s = s->next)
        tdelete(s, &tree, by_host);
    sim_unlock();
    while (symbols) {
        struct symbol *next = symbols->next;
        sim_free(symbols->device, false);
        free(symbols->name);
        free(symbols);
        symbols = next;
    }
    free(fatbin);
}

/* The `<<< >>>` of a launch, kept for the stub that the compiler wrote. Calls nest rarely. */
enum { DEPTH = 8 };
static _Thread_local struct configuration {
    struct hip_dim3 grid, block;
    size_t lds;
    handle_t stream;
} *pushed;
static _Thread_local unsigned depth;

SIM_API(__hipPushCallConfiguration)(struct hip_dim3 grid, struct hip_dim3 block, size_t lds,
                                    handle_t stream) {
    /* Held by a pointer: static TLS is scarce in a library that may be opened late. Freed with depth 0. */
    if (!pushed)
        pushed = malloc(DEPTH * sizeof *pushed);
    NEED(pushed && depth < DEPTH, hipErrorOutOfMemory);
    pushed[depth++] = (struct configuration){grid, block, lds, stream};
    return sim_return(hipSuccess);
}

SIM_API(__hipPopCallConfiguration)(struct hip_dim3 *grid, struct hip_dim3 *block, size_t *lds,
                                   handle_t *stream) {
    NEED(grid && block && lds && stream, hipErrorInvalidValue);
    NEED(depth > 0, hipErrorMissingConfiguration);
    const struct configuration *c = &pushed[--depth];
    *grid = c->grid;
    *block = c->block;
    *lds = c->lds;
    *stream = c->stream;
    if (depth == 0) {
        free(pushed);
        pushed = NULL;
    }
    return sim_return(hipSuccess);
}

static int launch(const void *host, struct hip_dim3 grid, struct hip_dim3 block, size_t lds, handle_t stream,
                  handle_t start, handle_t stop) {
    NEED_DEVICE();
    const struct symbol *symbol = find(host, false);
    NEED(symbol, hipErrorInvalidDeviceFunction);
    const uint32_t g[3] = {grid.x, grid.y, grid.z}, b[3] = {block.x, block.y, block.z};
    int error = sim_launch(symbol->name, g, b, lds, stream, start, stop);
    if (!error)
        atomic_fetch_add_explicit(&sim_counts.fatbin_launches, 1, memory_order_relaxed);
    return sim_return(error);
}

SIM_API(hipLaunchKernel)(const void *host, struct hip_dim3 grid, struct hip_dim3 block, void **args,
                         size_t lds, handle_t stream) {
    (void)args;
    return launch(host, grid, block, lds, stream, NULL, NULL);
}

SIM_API(hipLaunchKernel_spt)(const void *host, struct hip_dim3 grid, struct hip_dim3 block, void **args,
                             size_t lds, handle_t stream) {
    (void)args;
    return launch(host, grid, block, lds, stream, NULL, NULL);
}

SIM_API(hipLaunchCooperativeKernel)(const void *host, struct hip_dim3 grid, struct hip_dim3 block,
                                    void **args, unsigned lds, handle_t stream) {
    (void)args;
    return launch(host, grid, block, lds, stream, NULL, NULL);
}

SIM_API(hipExtLaunchKernel)(const void *host, struct hip_dim3 grid, struct hip_dim3 block, void **args,
                            size_t lds, handle_t stream, handle_t start, handle_t stop, int flags) {
    (void)args, (void)flags;
    return launch(host, grid, block, lds, stream, start, stop);
}

SIM_API_OF(const char *, hipKernelNameRefByPtr)(const void *host, handle_t stream) {
    (void)stream;
    const struct symbol *symbol = find(host, false);
    return symbol ? symbol->name : NULL;
}

static int occupancy(int *blocks, const void *host, int block_size, size_t lds) {
    NEED(find(host, false), hipErrorInvalidDeviceFunction);
    return sim_return(sim_occupancy(blocks, block_size, lds));
}

SIM_API(hipOccupancyMaxActiveBlocksPerMultiprocessor)(int *blocks, const void *host, int block_size,
                                                      size_t lds) {
    return occupancy(blocks, host, block_size, lds);
}

SIM_API(hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(int *blocks, const void *host, int block_size,
                                                               size_t lds, unsigned flags) {
    (void)flags;
    return occupancy(blocks, host, block_size, lds);
}

SIM_API(hipOccupancyMaxPotentialBlockSize)(int *grid, int *block, const void *host, size_t lds, int limit) {
    NEED(find(host, false), hipErrorInvalidDeviceFunction);
    return sim_return(sim_best_block(grid, block, lds, limit));
}

SIM_API(hipFuncGetAttributes)(struct hip_func_attributes *out, const void *host) {
    NEED_DEVICE();
    NEED(out, hipErrorInvalidValue);
    NEED(find(host, false), hipErrorInvalidDeviceFunction);
    *out = (struct hip_func_attributes){.maxDynamicSharedSizeBytes = (int)sim_spec()->lds,
                                        .maxThreadsPerBlock = 1024};
    return sim_return(hipSuccess);
}

SIM_API(hipFuncSetAttribute)(const void *host, int attribute, int value) {
    (void)attribute, (void)value;
    return sim_return(find(host, false) ? hipSuccess : hipErrorInvalidDeviceFunction);
}

SIM_API(hipFuncSetCacheConfig)(const void *host, int config) {
    (void)config;
    return sim_return(find(host, false) ? hipSuccess : hipErrorInvalidDeviceFunction);
}

/* The variable's device memory, zero: its initial bytes are in the fat binary, which stays closed. */
static int variable(const void *host, void **address, size_t *size) {
    if (!sim_spec())
        return hipErrorNoDevice;
    struct symbol *symbol = find(host, true);
    if (!symbol)
        return hipErrorInvalidSymbol;
    *size = symbol->size;
    sim_lock();
    *address = symbol->device;
    sim_unlock();
    if (*address)
        return hipSuccess;
    void *made;
    int error = sim_alloc(&made, symbol->size, SIM_DEVICE, 0);
    if (error)
        return error;
    sim_lock();
    *address = symbol->device ? symbol->device : (symbol->device = made);
    sim_unlock();
    return *address == made ? hipSuccess : sim_free(made, false);
}

SIM_API(hipGetSymbolAddress)(void **out, const void *symbol) {
    size_t size;
    NEED(out, hipErrorInvalidValue);
    return sim_return(variable(symbol, out, &size));
}

SIM_API(hipGetSymbolSize)(size_t *out, const void *symbol) {
    void *address;
    NEED(out, hipErrorInvalidValue);
    return sim_return(variable(symbol, &address, out));
}

static int copy_symbol(const void *symbol, void *to, const void *from, size_t n, size_t offset, int kind,
                       handle_t stream) {
    NEED(sim_stream(stream), hipErrorInvalidHandle);
    void *address;
    size_t size;
    int error = variable(symbol, &address, &size);
    NEED(!error, error);
    NEED(offset <= size && n <= size - offset, hipErrorInvalidValue);
    char *at = (char *)address + offset;
    return sim_return(sim_copy(to ? to : at, to ? at : from, n, kind));
}

SIM_API(hipMemcpyToSymbol)(const void *symbol, const void *from, size_t n, size_t offset, int kind) {
    return copy_symbol(symbol, NULL, from, n, offset, kind, NULL);
}

SIM_API(hipMemcpyToSymbolAsync)(const void *symbol, const void *from, size_t n, size_t offset, int kind,
                                handle_t stream) {
    return copy_symbol(symbol, NULL, from, n, offset, kind, stream);
}

SIM_API(hipMemcpyFromSymbol)(void *to, const void *symbol, size_t n, size_t offset, int kind) {
    NEED(to, hipErrorInvalidValue);
    return copy_symbol(symbol, to, NULL, n, offset, kind, NULL);
}

SIM_API(hipMemcpyFromSymbolAsync)(void *to, const void *symbol, size_t n, size_t offset, int kind,
                                  handle_t stream) {
    NEED(to, hipErrorInvalidValue);
    return copy_symbol(symbol, to, NULL, n, offset, kind, stream);
}
