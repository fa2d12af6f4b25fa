/* Another preload, with RTLD_NEXT as its only way to the real function; it doubles every launch. */
#include <dlfcn.h>

typedef int launch(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned lds, void *stream, void **args, void **extra);

int hipModuleLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned lds, void *stream, void **args, void **extra) {
    launch *next = (launch *)dlsym(RTLD_NEXT, "hipModuleLaunchKernel");
    if (!next)
        return 777;
    next(f, gx, gy, gz, bx, by, bz, lds, stream, args, extra);
    return next(f, gx, gy, gz, bx, by, bz, lds, stream, args, extra);
}
