/* Loads libraries that link HIP, each in the way that the argument before it names, and lets each launch
 * three times: `ways local libuser1.so deepbind libuser2.so`. `default` takes no library: it looks for the
 * launch by RTLD_DEFAULT and calls it; `weak` does the same with a weak reference. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef int launch(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned lds, void *stream, void **args, void **extra);
extern launch hipModuleLaunchKernel __attribute__((weak));

static int by_pointer(launch *found) {
    return found ? found((void *)64, 1, 1, 1, 64, 1, 1, 0, NULL, NULL, NULL) : -1;
}

static void *load(const char *how, const char *file) {
    if (strcmp(how, "namespace") == 0)
        return dlmopen(LM_ID_NEWLM, file, RTLD_NOW);
    if (strcmp(how, "deepbind") == 0)
        return dlopen(file, RTLD_NOW | RTLD_DEEPBIND);
    if (strcmp(how, "lazy-deepbind") == 0)
        return dlopen(file, RTLD_LAZY | RTLD_DEEPBIND);
    return dlopen(file, RTLD_NOW | (strcmp(how, "global") == 0 ? RTLD_GLOBAL : RTLD_LOCAL));
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "default") == 0) {
            launch *found = (launch *)dlsym(RTLD_DEFAULT, "hipModuleLaunchKernel");
            const char *error = dlerror();
            printf("%s %s %d\n", found ? "found" : "none", error ? "error" : "-", by_pointer(found));
        } else if (strcmp(argv[i], "weak") == 0) {
            printf("%d\n", by_pointer(hipModuleLaunchKernel));
        } else {
            void *library = load(argv[i], argv[i + 1]);
            int (*g)(int) = library ? (int (*)(int))dlsym(library, "g") : NULL;
            if (!g)
                return fprintf(stderr, "%s\n", dlerror()), 3;
            printf("%d\n", g(3));
            i++;
        }
    }
    return 0;
}
