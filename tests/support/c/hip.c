/* A stand-in libamdhip64 that counts. TAG tells two of them apart. */
#include <stddef.h>
#include <stdint.h>

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
int hipModuleLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned lds, void *stream, void **args, void **extra) {
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)lds, (void)stream, (void)args,
        (void)extra;
    return count(f);
}
int hipExtModuleLaunchKernel(void *f, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by,
                             uint32_t bz, size_t lds, void *stream, void **args, void **extra, void *start,
                             void *stop, uint32_t flags) {
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)lds, (void)stream, (void)args,
        (void)extra;
    (void)start, (void)stop, (void)flags;
    return count(f);
}
int hipLaunchKernel(const void *f, struct dim3 grid, struct dim3 block, void **args, size_t lds,
                    void *stream) {
    (void)grid, (void)block, (void)args, (void)lds, (void)stream;
    return count(f);
}
void __hipRegisterFunction(void **modules, const void *host, char *function, const char *name, unsigned limit,
                           void *tid, void *bid, void *block, void *grid, int *warp) {
    (void)modules, (void)host, (void)function, (void)name, (void)limit, (void)tid, (void)bid, (void)block,
        (void)grid, (void)warp;
}
int hipSetDevice(int device) {
    return device < 4 ? 0 : 101;
}
int hipRuntimeGetVersion(int *version) {
    *version = TAG * 10000000;
    return 0;
}
int hipGetProcAddress(const char *name, void **function, int version, uint64_t flags, void *status) {
    (void)version, (void)flags, (void)status;
    if (name[0] != 'h')
        return 500;
    *function = (void *)hipModuleLaunchKernel;
    return 0;
}
