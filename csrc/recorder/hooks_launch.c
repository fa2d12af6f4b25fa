/* HIP's forms of a launch. Only launches that HIP accepted are recorded. */
#include "launch.h"

#define REAL(name)                                                                                           \
    kdb_fn_##name real = KDB_REAL(name);                                                                     \
    if (!real)                                                                                               \
    return KDB_ERROR_HIP

#define PAIR(high, low) ((uint64_t)(high) << 32 | (uint32_t)(low))
#define WORDS(form, gx, gy, gz, bx, by, bz)                                                                  \
    (struct kdb_words) {                                                                                     \
        {                                                                                                    \
            PAIR(form, lds), PAIR(gy, gx), PAIR(bx, gz), PAIR(bz, by), (uint32_t)kdb_device,                 \
                (uintptr_t)stream                                                                            \
        }                                                                                                    \
    }
#define SHAPE(form) WORDS(form, gx, gy, gz, bx, by, bz)
#define HOST_SHAPE WORDS(KDBT_LAUNCH_HOST, grid.x, grid.y, grid.z, block.x, block.y, block.z)

int hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned lds, void *stream, void **args, void **extra) {
    REAL(hipModuleLaunchKernel);
    int result = real(function, gx, gy, gz, bx, by, bz, lds, stream, args, extra);
    if (result == 0)
        kdb_launched((void *)real, function, SHAPE(KDBT_LAUNCH_MODULE));
    return result;
}

int hipExtModuleLaunchKernel(void *function, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by,
                             uint32_t bz, size_t lds, void *stream, void **args, void **extra, void *start,
                             void *stop, uint32_t flags) {
    REAL(hipExtModuleLaunchKernel);
    int result = real(function, gx, gy, gz, bx, by, bz, lds, stream, args, extra, start, stop, flags);
    if (result == 0)
        kdb_launched((void *)real, function, SHAPE(KDBT_LAUNCH_EXT));
    return result;
}

int hipHccModuleLaunchKernel(void *function, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by,
                             uint32_t bz, size_t lds, void *stream, void **args, void **extra, void *start,
                             void *stop) {
    REAL(hipHccModuleLaunchKernel);
    int result = real(function, gx, gy, gz, bx, by, bz, lds, stream, args, extra, start, stop);
    if (result == 0)
        kdb_launched((void *)real, function, SHAPE(KDBT_LAUNCH_EXT));
    return result;
}

int hipModuleLaunchCooperativeKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                     unsigned by, unsigned bz, unsigned lds, void *stream, void **args) {
    REAL(hipModuleLaunchCooperativeKernel);
    int result = real(function, gx, gy, gz, bx, by, bz, lds, stream, args);
    if (result == 0)
        kdb_launched((void *)real, function, SHAPE(KDBT_LAUNCH_COOPERATIVE));
    return result;
}

int hipLaunchKernel(const void *function, struct kdb_dim3 grid, struct kdb_dim3 block, void **args,
                    size_t lds, void *stream) {
    REAL(hipLaunchKernel);
    int result = real(function, grid, block, args, lds, stream);
    if (result == 0)
        kdb_launched((void *)real, function, HOST_SHAPE);
    return result;
}

int hipExtLaunchKernel(const void *function, struct kdb_dim3 grid, struct kdb_dim3 block, void **args,
                       size_t lds, void *stream, void *start, void *stop, int flags) {
    REAL(hipExtLaunchKernel);
    int result = real(function, grid, block, args, lds, stream, start, stop, flags);
    if (result == 0)
        kdb_launched((void *)real, function, HOST_SHAPE);
    return result;
}

int hipLaunchCooperativeKernel(const void *function, struct kdb_dim3 grid, struct kdb_dim3 block, void **args,
                               unsigned lds, void *stream) {
    REAL(hipLaunchCooperativeKernel);
    int result = real(function, grid, block, args, lds, stream);
    if (result == 0)
        kdb_launched((void *)real, function, HOST_SHAPE);
    return result;
}
