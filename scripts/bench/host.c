/* host THREADS LAUNCHES: prints each thread's own CPU time per launch, in ns, after a round to warm up.
 * Four kernels with eight grids each, as a network's launches repeat. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int hipModuleLoadData(void **out, const void *image);
int hipModuleGetFunction(void **out, void *from, const char *name);
int hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned lds, void *stream, void **args, void **extra);

static void *functions[4];
static long launches;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void run(long n) {
    for (long i = 0; i < n; i++)
        if (hipModuleLaunchKernel(functions[i & 3], 1 + (unsigned)(i >> 2 & 7), 1, 1, 256, 1, 1, 0, NULL,
                                  NULL, NULL) != 0)
            abort();
}

static void *thread(void *result) {
    run(launches / 10);
    double begin = now();
    run(launches);
    *(double *)result = (now() - begin) / (double)launches;
    return NULL;
}

int main(int argc, char **argv) {
    static const unsigned char image[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
    static const char *const names[] = {"a_kernel", "b_kernel", "c_kernel", "d_kernel"};
    int count = argc > 2 ? atoi(argv[1]) : 0;
    void *module;
    if (count < 1 || count > 64 || (launches = atol(argv[2])) < 10 || hipModuleLoadData(&module, image) != 0)
        return 2;
    for (int i = 0; i < 4; i++)
        if (hipModuleGetFunction(&functions[i], module, names[i]) != 0)
            return 2;
    pthread_t all[64];
    double results[64];
    for (int i = 0; i < count; i++)
        if (pthread_create(&all[i], NULL, thread, &results[i]) != 0)
            return 2;
    for (int i = 0; i < count; i++) {
        pthread_join(all[i], NULL);
        printf("%.3f\n", results[i]);
    }
    return 0;
}
