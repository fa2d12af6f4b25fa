/* HIP's forms of a launch. Only launches that HIP accepted are recorded. */
#include "hip.h"
#include "launch.h"

#define PAIR(high, low) ((uint64_t)(high) << 32 | (uint32_t)(low))
#define WORDS(form, gx, gy, gz, bx, by, bz, lds, stream)                                                     \
    (struct kdb_words) {                                                                                     \
        {                                                                                                    \
            PAIR(form, lds), PAIR(gy, gx), PAIR(bx, gz), PAIR(bz, by), (uint32_t)kdb_device,                 \
                (uintptr_t)(stream)                                                                          \
        }                                                                                                    \
    }
#define SHAPE(form) WORDS(form, gx, gy, gz, bx, by, bz, lds, stream)
#define HOST_SHAPE(form, stream) WORDS(form, grid.x, grid.y, grid.z, block.x, block.y, block.z, lds, stream)

/* One that is not worth a copy of the fast path: a rare form, or any while something is being captured. */
static __attribute__((noinline)) void launched(const void *real, const void *function,
                                               const struct kdb_words *w) {
    struct kdb_words v = *w;
    v.at[0] |= (uint64_t)kdb_captured((const void *)(uintptr_t)v.at[KDB_SHAPE_WORDS - 1]) << 32;
    kdb_launched(real, function, v);
}

#define LAUNCHED(function, words)                                                                            \
    do {                                                                                                     \
        if (KDB_UNLIKELY(atomic_load_explicit(&kdb_captures, memory_order_relaxed)))                         \
            launched((void *)real, function, &words);                                                        \
        else                                                                                                 \
            kdb_launched((void *)real, function, words);                                                     \
    } while (0)

/* ---- of a module's function ---- */

int hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned lds, void *stream, void **args, void **extra) {
    KDB_REAL_HIP(hipModuleLaunchKernel);
    int result = real(function, gx, gy, gz, bx, by, bz, lds, stream, args, extra);
    if (result == 0)
        LAUNCHED(function, SHAPE(KDBT_LAUNCH_MODULE));
    return result;
}

#define EXT(name)                                                                                            \
    int name(void *function, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz,   \
             size_t lds, void *stream, void **args, void **extra, void *start, void *stop, uint32_t flags) { \
        KDB_REAL_HIP(name);                                                                                  \
        int result = real(function, gx, gy, gz, bx, by, bz, lds, stream, args, extra, start, stop, flags);   \
        if (result == 0)                                                                                     \
            LAUNCHED(function, SHAPE(KDBT_LAUNCH_EXT));                                                      \
        return result;                                                                                       \
    }
#define HCC(name)                                                                                            \
    int name(void *function, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz,   \
             size_t lds, void *stream, void **args, void **extra, void *start, void *stop) {                 \
        KDB_REAL_HIP(name);                                                                                  \
        int result = real(function, gx, gy, gz, bx, by, bz, lds, stream, args, extra, start, stop);          \
        if (result == 0)                                                                                     \
            launched((void *)real, function, &SHAPE(KDBT_LAUNCH_EXT));                                       \
        return result;                                                                                       \
    }
EXT(hipExtModuleLaunchKernel)
EXT(_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j)
HCC(hipHccModuleLaunchKernel)
HCC(_Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_)

int hipModuleLaunchCooperativeKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                     unsigned by, unsigned bz, unsigned lds, void *stream, void **args) {
    KDB_REAL_HIP(hipModuleLaunchCooperativeKernel);
    int result = real(function, gx, gy, gz, bx, by, bz, lds, stream, args);
    if (result == 0)
        LAUNCHED(function, SHAPE(KDBT_LAUNCH_COOPERATIVE));
    return result;
}

struct driver_config { /* HIP_LAUNCH_CONFIG; what follows says how to run it, not what */
    uint32_t gx, gy, gz, bx, by, bz, lds;
    void *stream;
};

int hipDrvLaunchKernelEx(const void *config, void *function, void **args, void **extra) {
    KDB_REAL_HIP(hipDrvLaunchKernelEx);
    int result = real(config, function, args, extra);
    const struct driver_config *c = config;
    if (result == 0 && c)
        launched((void *)real, function,
                 &WORDS(KDBT_LAUNCH_MODULE, c->gx, c->gy, c->gz, c->bx, c->by, c->bz, c->lds, c->stream));
    return result;
}

/* ---- of a host function ---- */

int hipLaunchKernel(const void *function, struct kdb_dim3 grid, struct kdb_dim3 block, void **args,
                    size_t lds, void *stream) {
    KDB_REAL_HIP(hipLaunchKernel);
    int result = real(function, grid, block, args, lds, stream);
    if (result == 0)
        LAUNCHED(function, HOST_SHAPE(KDBT_LAUNCH_HOST, stream));
    return result;
}

int hipLaunchKernel_spt(const void *function, struct kdb_dim3 grid, struct kdb_dim3 block, void **args,
                        size_t lds, void *stream) {
    KDB_REAL_HIP(hipLaunchKernel_spt);
    int result = real(function, grid, block, args, lds, stream);
    if (result == 0)
        LAUNCHED(function, HOST_SHAPE(KDBT_LAUNCH_HOST, kdb_or_per_thread(stream)));
    return result;
}

int hipExtLaunchKernel(const void *function, struct kdb_dim3 grid, struct kdb_dim3 block, void **args,
                       size_t lds, void *stream, void *start, void *stop, int flags) {
    KDB_REAL_HIP(hipExtLaunchKernel);
    int result = real(function, grid, block, args, lds, stream, start, stop, flags);
    if (result == 0)
        LAUNCHED(function, HOST_SHAPE(KDBT_LAUNCH_HOST, stream));
    return result;
}

int hipLaunchCooperativeKernel(const void *function, struct kdb_dim3 grid, struct kdb_dim3 block, void **args,
                               unsigned lds, void *stream) {
    KDB_REAL_HIP(hipLaunchCooperativeKernel);
    int result = real(function, grid, block, args, lds, stream);
    if (result == 0)
        launched((void *)real, function, &HOST_SHAPE(KDBT_LAUNCH_COOPERATIVE, stream));
    return result;
}

int hipLaunchCooperativeKernel_spt(const void *function, struct kdb_dim3 grid, struct kdb_dim3 block,
                                   void **args, uint32_t lds, void *stream) {
    KDB_REAL_HIP(hipLaunchCooperativeKernel_spt);
    int result = real(function, grid, block, args, lds, stream);
    if (result == 0)
        launched((void *)real, function, &HOST_SHAPE(KDBT_LAUNCH_COOPERATIVE, kdb_or_per_thread(stream)));
    return result;
}

struct host_config { /* hipLaunchConfig_t */
    struct kdb_dim3 grid, block;
    size_t lds;
    void *stream;
};

int hipLaunchKernelExC(const void *config, const void *function, void **args) {
    KDB_REAL_HIP(hipLaunchKernelExC);
    int result = real(config, function, args);
    const struct host_config *c = config;
    if (result == 0 && c)
        launched((void *)real, function,
                 &WORDS(KDBT_LAUNCH_HOST, c->grid.x, c->grid.y, c->grid.z, c->block.x, c->block.y, c->block.z,
                        c->lds, c->stream));
    return result;
}

/* ---- on several devices at once: each is a launch on its stream ---- */

struct host_launch { /* hipLaunchParams */
    const void *function;
    struct kdb_dim3 grid, block;
    void **args;
    size_t lds;
    void *stream;
};
struct module_launch { /* hipFunctionLaunchParams */
    const void *function;
    struct kdb_dim3 grid, block;
    uint32_t lds;
    void *stream;
    void **args;
};

#define EACH(type, launches, count, form)                                                                    \
    const type *each = launches;                                                                             \
    for (long i = 0; result == 0 && each && i < (long)(count); i++)                                          \
    launched((void *)real, each[i].function,                                                                 \
             &WORDS(form, each[i].grid.x, each[i].grid.y, each[i].grid.z, each[i].block.x, each[i].block.y,  \
                    each[i].block.z, each[i].lds, each[i].stream))

int hipModuleLaunchCooperativeKernelMultiDevice(void *launches, unsigned count, unsigned flags) {
    KDB_REAL_HIP(hipModuleLaunchCooperativeKernelMultiDevice);
    int result = real(launches, count, flags);
    EACH(struct module_launch, launches, count, KDBT_LAUNCH_COOPERATIVE);
    return result;
}

int hipLaunchCooperativeKernelMultiDevice(void *launches, int count, unsigned flags) {
    KDB_REAL_HIP(hipLaunchCooperativeKernelMultiDevice);
    int result = real(launches, count, flags);
    EACH(struct host_launch, launches, count, KDBT_LAUNCH_COOPERATIVE);
    return result;
}

int hipExtLaunchMultiKernelMultiDevice(void *launches, int count, unsigned flags) {
    KDB_REAL_HIP(hipExtLaunchMultiKernelMultiDevice);
    int result = real(launches, count, flags);
    EACH(struct host_launch, launches, count, KDBT_LAUNCH_HOST);
    return result;
}

/* ---- in two calls, as the first HIP compilers did it ---- */

/* HIP keeps a stack per thread, since an argument may launch something itself. A launch whose
 * configuration lies too deep, or came by __hipPushCallConfiguration, has grid 0: that function is called for
 * every <<<>>> and is left alone. */
enum { DEEPEST = 4 };
static _Thread_local struct host_config configured[DEEPEST];
static _Thread_local unsigned depth;

int hipConfigureCall(struct kdb_dim3 grid, struct kdb_dim3 block, size_t lds, void *stream) {
    KDB_REAL_HIP(hipConfigureCall);
    int result = real(grid, block, lds, stream);
    if (result == 0 && depth++ < DEEPEST)
        configured[depth - 1] = (struct host_config){grid, block, lds, stream};
    return result;
}

int hipLaunchByPtr(const void *function) {
    KDB_REAL_HIP(hipLaunchByPtr);
    struct host_config none = {{0, 0, 0}, {0, 0, 0}, 0, NULL}, *c = &none;
    const struct kdb_thread *t = kdb_self;
    const unsigned char *at = t ? t->at : NULL;
    uint64_t left_out = t ? t->left_out : 0;
    if (depth && --depth < DEEPEST)
        c = &configured[depth];
    kdb_by_pointer = function;
    int result = real(function);
    kdb_by_pointer = NULL;
    /* else HIP's own call was seen, and written or left out */
    if (result == 0 && (!kdb_self || (kdb_self == t && t->at == at && t->left_out == left_out)))
        launched((void *)real, function,
                 &WORDS(KDBT_LAUNCH_HOST, c->grid.x, c->grid.y, c->grid.z, c->block.x, c->block.y, c->block.z,
                        c->lds, c->stream));
    return result;
}
