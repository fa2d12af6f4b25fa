/* A preload that stands in for dlsym, as VirtualGL and overlays do: it knows one name more. */
#include <dlfcn.h>
#include <string.h>

int extra_symbol(void) {
    return 4711;
}

void *dlsym(void *handle, const char *name) {
    static void *(*real)(void *, const char *);
    if (!real)
        real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return strcmp(name, "no_such_symbol") == 0 ? (void *)extra_symbol : real(handle, name);
}
