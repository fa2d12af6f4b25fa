/* A stand-in libamdhip64 whose launch runs what the host puts into `standin_inside`: a place within the
 * real call, where a host may do anything. */
#include <stddef.h>

static int launches, handles[64];
void (*standin_inside)(void);

int standin_launches(void) {
    return __atomic_load_n(&launches, __ATOMIC_RELAXED);
}
int hipModuleLoadData(void **module, const void *image) {
    *module = &handles[0];
    return image ? 0 : 1;
}
int hipModuleGetFunction(void **function, void *module, const char *name) {
    *function = &handles[1 + (unsigned char)name[0] % 63];
    return module ? 0 : 1;
}
int hipModuleLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned lds, void *stream, void **args, void **extra) {
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)lds, (void)stream, (void)args,
        (void)extra;
    if (standin_inside)
        standin_inside();
    __atomic_fetch_add(&launches, 1, __ATOMIC_RELAXED);
    return f ? 0 : 400;
}
