/* Threads that launch for ever; each counts its launches that have returned in a file that is mapped
 * (argument 1, a cache line each). The grid says which launch (x: 1 to 5, in turn) and which thread (y). */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int hipModuleLoadData(void **module, const void *image);
int hipModuleGetFunction(void **function, void *module, const char *name);
int hipModuleLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned lds, void *stream, void **args, void **extra);

static const unsigned char image[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
static uint64_t *counters;
static void *function;
static int slow;

static void *work(void *number) {
    unsigned mine = (unsigned)(uintptr_t)number;
    for (uint64_t n = 0;; n++) {
        hipModuleLaunchKernel(function, 1 + n % 5, 1 + mine, 1, 64, 1, 1, 0, NULL, NULL, NULL);
        __atomic_store_n(&counters[8 * mine], n + 1, __ATOMIC_RELEASE);
        if (slow)
            sched_yield();
    }
    return NULL;
}

int main(int argc, char **argv) {
    int fd = argc > 3 ? open(argv[1], O_RDWR) : -1;
    void *module, *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pthread_t thread;
    if (map == MAP_FAILED || hipModuleLoadData(&module, image) != 0 ||
        hipModuleGetFunction(&function, module, "kernel") != 0)
        return 1;
    counters = map;
    slow = strcmp(argv[3], "slow") == 0;
    for (int i = 1; i < atoi(argv[2]); i++)
        pthread_create(&thread, NULL, work, (void *)(uintptr_t)i);
    work(NULL);
    return 0;
}
