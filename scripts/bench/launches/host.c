/* host MODE THREADS LAUNCHES: prints two numbers per thread, ns per launch: the thread's own CPU time and
 * wall time, after a tenth as many to warm up.
 *
 * hot: four kernels with eight grids each, as a network's launches repeat.
 * shapes: 4096 kernels and grids in no order that repeats soon: more than a thread's table holds.
 * cold: as hot, but 4 MiB are read before each launch, so that nothing of the hook is in the first
 * two caches; the median over single launches, the clock's own reading included, both times wall. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int hipModuleLoadData(void **out, const void *image);
int hipModuleGetFunction(void **out, void *from, const char *name);
int hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned lds, void *stream, void **args, void **extra);

enum { EVICT = 4 << 20, LINE = 64 };
static void *functions[4];
static long launches;
static char mode;
struct result {
    double cpu, wall;
};

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void launch(unsigned kernel, unsigned grid) {
    if (hipModuleLaunchKernel(functions[kernel & 3], 1 + grid, 1, 1, 256, 1, 1, 0, NULL, NULL, NULL) != 0)
        abort();
}

static void hot(long n) {
    for (long i = 0; i < n; i++)
        launch((unsigned)i, (unsigned)(i >> 2 & 7));
}

static void shapes(long n) {
    uint64_t random = 1;
    for (long i = 0; i < n; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        launch((unsigned)(random >> 40), (unsigned)(random >> 42 & 1023));
    }
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double cold(long n) {
    volatile char *memory = malloc(EVICT);
    double *each = malloc((size_t)n * sizeof *each);
    if (!memory || !each)
        abort();
    memset((void *)memory, 1, EVICT);
    for (long i = 0; i < n; i++) {
        for (long at = 0; at < EVICT; at += LINE)
            (void)memory[at];
        double begin = now(CLOCK_MONOTONIC);
        launch((unsigned)i, (unsigned)(i >> 2 & 7));
        each[i] = now(CLOCK_MONOTONIC) - begin;
    }
    qsort(each, (size_t)n, sizeof *each, by_value);
    double median = each[n / 2];
    free(each);
    free((void *)memory);
    return median;
}

static void *thread(void *out) {
    struct result *result = out;
    if (mode == 'c') {
        cold(launches / 10);
        result->cpu = result->wall = cold(launches);
        return NULL;
    }
    void (*run)(long) = mode == 's' ? shapes : hot;
    run(launches / 10);
    double cpu = now(CLOCK_THREAD_CPUTIME_ID), wall = now(CLOCK_MONOTONIC);
    run(launches);
    result->cpu = (now(CLOCK_THREAD_CPUTIME_ID) - cpu) / (double)launches;
    result->wall = (now(CLOCK_MONOTONIC) - wall) / (double)launches;
    return NULL;
}

int main(int argc, char **argv) {
    static const unsigned char image[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
    static const char *const names[] = {"a_kernel", "b_kernel", "c_kernel", "d_kernel"};
    int count = argc == 4 ? atoi(argv[2]) : 0;
    void *module;
    if (count < 1 || count > 64 || (launches = atol(argv[3])) < 10 || hipModuleLoadData(&module, image) != 0)
        return 2;
    mode = argv[1][0];
    for (int i = 0; i < 4; i++)
        if (hipModuleGetFunction(&functions[i], module, names[i]) != 0)
            return 2;
    pthread_t all[64];
    struct result results[64];
    for (int i = 0; i < count; i++)
        if (pthread_create(&all[i], NULL, thread, &results[i]) != 0)
            return 2;
    for (int i = 0; i < count; i++) {
        pthread_join(all[i], NULL);
        printf("%.3f %.3f\n", results[i].cpu, results[i].wall);
    }
    return 0;
}
