/* A stand-in libamdhip64 that counts. TAG tells two of them apart; 2 launches as HIP 5 did, through its own
 * exported functions. A handle that was given back is the next to be given out. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#pragma GCC diagnostic ignored "-Wunused-parameter"

struct dim3 {
    uint32_t x, y, z;
};
static int launches, handles[64];

int standin_launches(void) {
    return launches;
}
int standin_tag(void) {
    return TAG;
}

int hipModuleLoadData(void **module, const void *image) {
    if (!image)
        return 1;
    *module = &handles[0];
    return 0;
}
int hipModuleLoad(void **module, const char *file) {
    return hipModuleLoadData(module, file);
}
int hipModuleUnload(void *module) {
    return module ? 0 : 1;
}
int hipModuleGetFunction(void **function, void *module, const char *name) {
    if (!module || name[0] == '?')
        return 500;
    *function = &handles[1 + (unsigned char)name[0] % 63];
    return 0;
}
static int count(const void *f) {
    if (!f)
        return 400;
    __atomic_fetch_add(&launches, 1, __ATOMIC_RELAXED);
    return 0;
}
#define GRID unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz
#define OF_MODULE(name, ...)                                                                                 \
    int name(void *f, GRID, __VA_ARGS__) {                                                                   \
        return count(f);                                                                                     \
    }
#define EXT size_t lds, void *stream, void **args, void **extra, void *start, void *stop
OF_MODULE(hipModuleLaunchKernel, unsigned lds, void *stream, void **args, void **extra)
OF_MODULE(hipModuleLaunchCooperativeKernel, unsigned lds, void *stream, void **args)
OF_MODULE(hipExtModuleLaunchKernel, EXT, uint32_t flags)
OF_MODULE(hipHccModuleLaunchKernel, EXT)
OF_MODULE(_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j,
          EXT, uint32_t flags)
OF_MODULE(_Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_, EXT)
#define OF_HOST(name, ...)                                                                                   \
    int name(const void *f, struct dim3 grid, struct dim3 block, void **args, __VA_ARGS__) {                 \
        return count(f);                                                                                     \
    }
OF_HOST(hipLaunchKernel, size_t lds, void *stream)
OF_HOST(hipLaunchKernel_spt, size_t lds, void *stream)
OF_HOST(hipExtLaunchKernel, size_t lds, void *stream, void *start, void *stop, int flags)
OF_HOST(hipLaunchCooperativeKernel, unsigned lds, void *stream)
OF_HOST(hipLaunchCooperativeKernel_spt, uint32_t lds, void *stream)
#define SEVERAL(name)                                                                                        \
    int name(void *list, unsigned n, unsigned flags) {                                                       \
        return count(list);                                                                                  \
    }
SEVERAL(hipModuleLaunchCooperativeKernelMultiDevice)
SEVERAL(hipLaunchCooperativeKernelMultiDevice)
SEVERAL(hipExtLaunchMultiKernelMultiDevice)
int hipLaunchKernelExC(const void *config, const void *f, void **args) {
    return count(f);
}
int hipDrvLaunchKernelEx(const void *config, void *f, void **args, void **extra) {
    return count(f);
}
static struct dim3 configured[2];
int hipConfigureCall(struct dim3 grid, struct dim3 block, size_t lds, void *stream) {
    configured[0] = grid, configured[1] = block;
    return 0;
}
int hipLaunchByPtr(const void *f) {
    const struct dim3 *c = configured;
    return f && TAG == 2 ? hipModuleLaunchKernel(&handles[(uintptr_t)f >> 8 & 63], c->x, c->y, c->z, c[1].x,
                                                 c[1].y, c[1].z, 0, NULL, NULL, NULL)
                         : count(f);
}

static int given[256], taken, back = -1;
static int give(void **handle) {
    if (!handle)
        return 1;
    *handle = &given[back >= 0 ? back : taken++];
    back = -1;
    return 0;
}
static int take(void *handle) {
    if (!handle)
        return 1;
    back = (int)((int *)handle - given);
    return 0;
}
#define GIVE(name, ...)                                                                                      \
    int name(void **made, ##__VA_ARGS__) {                                                                   \
        return give(made);                                                                                   \
    }
#define TAKE(name)                                                                                           \
    int name(void *handle) {                                                                                 \
        return take(handle);                                                                                 \
    }
#define FINE(name, ...)                                                                                      \
    int name(void *first, ##__VA_ARGS__) {                                                                   \
        return first ? 0 : 1;                                                                                \
    }
#define OPTIONS void *jit, void **jits, unsigned n, void *options, void **values, unsigned m
GIVE(hipLibraryLoadData, const void *image, OPTIONS)
GIVE(hipLibraryLoadFromFile, const char *file, OPTIONS)
TAKE(hipLibraryUnload)
int hipLibraryGetKernel(void **kernel, void *library, const char *name) {
    return hipModuleGetFunction(kernel, library, name);
}
GIVE(hipKernelGetFunction, void *kernel)
int hipLibraryEnumerateKernels(void **all, unsigned n, void *library) {
    for (unsigned i = 0; i < n; i++)
        all[i] = &handles[40 + i % 20];
    return 0;
}
int hipKernelGetName(const char **name, void *kernel) {
    *name = kernel == &handles[40] ? "first" : "second";
    return 0;
}
GIVE(hipGetFuncBySymbol, const void *host)
GIVE(hipModuleLoadFatBinary, const void *image)
GIVE(hipStreamCreate)
GIVE(hipStreamCreateWithFlags, unsigned flags)
GIVE(hipStreamCreateWithPriority, unsigned flags, int priority)
GIVE(hipExtStreamCreateWithCUMask, uint32_t n, const uint32_t *mask)
TAKE(hipStreamDestroy)
FINE(hipStreamBeginCapture, int mode)
FINE(hipStreamBeginCaptureToGraph, void *graph, void **after, void *edges, size_t n, int mode)
int hipStreamBeginCapture_spt(void *stream, int mode) {
    return 0;
}
int hipStreamEndCapture(void *stream, void **graph) {
    return stream ? give(graph) : 901;
}
int hipStreamEndCapture_spt(void *stream, void **graph) {
    return give(graph);
}
FINE(hipEventRecord, void *stream)
FINE(hipEventRecord_spt, void *stream)
FINE(hipEventRecordWithFlags, void *stream, unsigned flags)
FINE(hipStreamWaitEvent, void *event, unsigned flags)
FINE(hipStreamWaitEvent_spt, void *event, unsigned flags)
GIVE(hipGraphCreate, unsigned flags)
TAKE(hipGraphDestroy)
GIVE(hipGraphClone, void *graph)
#define NODE void *graph, void **after, size_t n
GIVE(hipGraphAddKernelNode, NODE, const void *params)
GIVE(hipGraphAddChildGraphNode, NODE, void *child)
GIVE(hipGraphAddNode, NODE, void *params)
TAKE(hipGraphDestroyNode)
GIVE(hipGraphInstantiate, void *graph, void **bad, char *log, size_t room)
GIVE(hipGraphInstantiateWithFlags, void *graph, unsigned long long flags)
GIVE(hipGraphInstantiateWithParams, void *graph, void *params)
FINE(hipGraphNodeSetEnabled, void *node, unsigned enabled)
TAKE(hipGraphExecDestroy)
FINE(hipGraphLaunch, void *stream)
FINE(hipGraphLaunch_spt, void *stream)

static int devices[4];
int hipCtxCreate(void **context, unsigned flags, int device) {
    *context = &devices[device];
    return 0;
}
int hipDevicePrimaryCtxRetain(void **context, int device) {
    return hipCtxCreate(context, 0, device);
}
int hipCtxGetCurrent(void **context) {
    *context = &devices[3];
    return 0;
}
FINE(hipCtxSetCurrent)
FINE(hipCtxPushCurrent)
static int properties(char *of, int device, size_t units_at, size_t name_at) {
    int units = 100 + device;
    memcpy(of + units_at, &units, sizeof units);
    strcpy(of + name_at, device ? "gfx90a:sramecc+:xnack-" : "gfx1030");
    return 0;
}
int hipGetDeviceProperties(void *of, int device) {
    return properties(of, device, 336, 396);
}
int hipGetDevicePropertiesR0600(void *of, int device) {
    return properties(of, device, 388, 1160);
}

static int fatbins[4], registered;
void **__hipRegisterFatBinary(const void *wrapper) {
    return (void **)&fatbins[registered++ & 3];
}
void __hipUnregisterFatBinary(void **modules) {
    registered = (int)((int *)modules - fatbins);
}
void __hipRegisterFunction(void **modules, const void *host, char *function, const char *name, unsigned limit,
                           void *tid, void *bid, void *block, void *grid, int *warp) {}
int hipSetDevice(int device) {
    return device < 4 ? 0 : 101;
}
int hipRuntimeGetVersion(int *version) {
    *version = TAG * 10000000;
    return 0;
}
/* Of a later version or for the thread's own stream, as HIP does it. */
int hipGetProcAddress(const char *name, void **function, int version, uint64_t flags, void *status) {
    if (strcmp(name, "hipModuleLaunchKernel") == 0)
        *function = (void *)hipModuleLaunchKernel;
    else if (strcmp(name, "hipLaunchKernel") == 0)
        *function = flags == 2 ? (void *)hipLaunchKernel_spt : (void *)hipLaunchKernel;
    else if (strcmp(name, "hipGetDeviceProperties") == 0)
        *function = (void *)hipGetDevicePropertiesR0600;
    else
        return 500;
    return 0;
}
int hipGetProcAddress_spt(const char *name, void **function, int version, uint64_t flags, void *status) {
    return hipGetProcAddress(name, function, version, 2, status);
}
int hipGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, void *status) {
    return hipGetProcAddress(name, function, 700, flags, status);
}
int hipGetDriverEntryPoint_spt(const char *name, void **function, unsigned long long flags, void *status) {
    return hipGetProcAddress(name, function, 700, 2, status);
}
/* What is to be given out next. */
void standin_next(void *handle) {
    take(handle);
}
