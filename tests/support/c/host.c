/* A program that reaches MIOpen and HIP in the way that its first argument names, and prints what it
 * got back. Compiled twice: with LINKED it links them, else it knows dlopen alone. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int set4d(void *desc, int type, int n, int c, int h, int w);
typedef int init_conv(void *conv, int mode, int ph, int pw, int sh, int sw, int dh, int dw);
typedef int set_groups(void *conv, int groups);
typedef int forward(void *handle, const void *alpha, void *x_desc, const void *x, void *w_desc, const void *w,
                    void *conv, int algorithm, const void *beta, void *y_desc, void *y, void *space,
                    size_t bytes);
typedef int launch(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned lds, void *stream, void **args, void **extra);

static char x, w, y, conv;

static int convolve(set4d *set, init_conv *init, set_groups *groups, forward *run) {
    if (set(&x, 1, 2, 8, 16, 16) || set(&w, 1, 4, 4, 3, 3) || set(&y, 1, 2, 4, 16, 16) ||
        init(&conv, 0, 1, 1, 1, 1, 1, 1) || groups(&conv, 2))
        return -1;
    return run(NULL, NULL, &x, NULL, &w, NULL, &conv, 2, NULL, &y, NULL, NULL, 0);
}

#ifdef LINKED
set4d miopenSet4dTensorDescriptor;
init_conv miopenInitConvolutionDescriptor;
set_groups miopenSetConvolutionGroupCount;
forward miopenConvolutionForward;
launch hipModuleLaunchKernel;
int hipModuleGetFunction(void **function, void *module, const char *name);
int hipModuleLoadData(void **module, const void *image);
int hipModuleUnload(void *module);
int standin_launches(void);
int standin_lookup(const char *name, const char *args);
int standin_ask(const char *file, const char *name, const char *args, int steps);
int standin_getters(void);

static int work(void) {
    return convolve(miopenSet4dTensorDescriptor, miopenInitConvolutionDescriptor,
                    miopenSetConvolutionGroupCount, miopenConvolutionForward);
}

static void *many(void *argument) {
    static const unsigned char image[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
    void *module, *function;
    long n = (long)argument;
    hipModuleLoadData(&module, image);
    hipModuleGetFunction(&function, module, "thread_kernel");
    for (long i = 0; i < n; i++)
        hipModuleLaunchKernel(function, 1 + (unsigned)i % 3, 1, 1, 64, 1, 1, 0, NULL, NULL, NULL);
    return NULL;
}

/* Five kernels in turn. */
static void *several(void *argument) {
    static const unsigned char image[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
    void *module, *function[5];
    long n = (long)argument;
    char name[] = "0_kernel";
    hipModuleLoadData(&module, image);
    for (int i = 0; i < 5; i++, name[0]++)
        hipModuleGetFunction(&function[i], module, name);
    for (long i = 0; i < n; i++)
        hipModuleLaunchKernel(function[i % 5], 1, 1, 1, 64, 1, 1, 0, NULL, NULL, NULL);
    return NULL;
}

static void threads(int count, long each, void *(*work)(void *)) {
    pthread_t *all = calloc((size_t)count, sizeof *all);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    for (int i = 0; i < count; i++)
        if (pthread_create(&all[i], &small, work, (void *)each) != 0)
            abort();
    for (int i = 0; i < count; i++)
        pthread_join(all[i], NULL);
    free(all);
}

static void *signal_function;

static void at_alarm(int number) {
    (void)number;
    hipModuleLaunchKernel(signal_function, 9, 1, 1, 64, 1, 1, 0, NULL, NULL, NULL);
}

/* Launches that signal handlers interrupt with launches of their own. */
static void interrupted(long n) {
    static const unsigned char image[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
    struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};
    void *module;
    hipModuleLoadData(&module, image);
    hipModuleGetFunction(&signal_function, module, "signal_kernel");
    at_alarm(0);
    signal(SIGALRM, at_alarm);
    setitimer(ITIMER_REAL, &often, NULL);
    many((void *)n);
    setitimer(ITIMER_REAL, &never, NULL);
}

static int mode(int argc, char **argv) {
    const char *how = argv[1];
    if (strcmp(how, "interrupted") == 0) {
        interrupted(atol(argv[2]));
        return printf("%d\n", standin_launches());
    }
    if (strcmp(how, "forever") == 0) {
        printf("begun\n");
        fflush(stdout);
        for (;;)
            work();
    }
    if (strcmp(how, "linked") == 0) {
        int result = work();
        return printf("%d %d\n", result, standin_launches());
    }
    if (strcmp(how, "nothing") == 0)
        return printf("nothing\n");
    if (strcmp(how, "getters") == 0) { /* descriptors that nobody has set */
        int result =
            miopenConvolutionForward(NULL, NULL, &x, NULL, &w, NULL, &conv, 2, NULL, &y, NULL, NULL, 0);
        return printf("%d %d\n", result, standin_getters());
    }
    if (strcmp(how, "ask") == 0) { /* name, arguments, and so on */
        for (int i = 2; i + 1 < argc; i += 2)
            printf("%d\n", standin_lookup(argv[i], argv[i + 1]));
        return 0;
    }
    if (strcmp(how, "die-unstepped") == 0) {
        standin_ask("/user.ukdb", "last.cl.o", " -mcpu=gfx1030", 0);
        kill(getpid(), SIGKILL);
    }
    if (strcmp(how, "threads") == 0) {
        threads(atoi(argv[2]), atol(argv[3]), many);
        return printf("%d\n", standin_launches());
    }
    if (strcmp(how, "several") == 0) {
        threads(atoi(argv[2]), atol(argv[3]), several);
        return printf("%d\n", standin_launches());
    }
    if (strcmp(how, "pool") == 0) { /* workers that leave by _exit, then a program of another kind */
        work();
        for (int i = 0; i < atoi(argv[2]); i++) {
            pid_t pid = fork();
            if (pid == 0) {
                work();
                _exit(7);
            }
            int status;
            waitpid(pid, &status, 0);
            printf("%d\n", WEXITSTATUS(status));
        }
        fflush(stdout);
        execl(argv[0], argv[0], "linked", NULL);
    }
    if (strcmp(how, "close-all") == 0) { /* a daemon's habit */
        work();
        for (int fd = 3; fd < 256; fd++)
            close(fd);
        FILE *file = fopen(argv[2], "w");
        threads(4, 20000, many);
        fprintf(file, "mine alone\n");
        fclose(file);
        return printf("%d\n", standin_launches());
    }
    if (strcmp(how, "reused") == 0) { /* one handle, two kernels */
        void *module, *function;
        static const unsigned char image[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
        for (int i = 0; i < 4; i++) {
            hipModuleLoadData(&module, image);
            hipModuleGetFunction(&function, module, i & 1 ? "kernel_odd" : "kernel_even");
            hipModuleLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, NULL, NULL, NULL);
            hipModuleUnload(module);
        }
        return printf("%d\n", standin_launches());
    }
    return -1;
}
#else
static int mode(int argc, char **argv) {
    const char *how = argv[1], *version = strcmp(how, "dlvsym") == 0 ? "MIOPEN_HIP_1" : NULL;
    if (argc < 2)
        return -1;
    if (strcmp(how, "proc-address") == 0) {
        void *hip = dlopen("libamdhip64.so.6", RTLD_NOW | RTLD_LOCAL), *call = NULL;
        int (*get)(const char *, void **, int, unsigned long, void *) =
            (int (*)(const char *, void **, int, unsigned long, void *))dlsym(hip, "hipGetProcAddress");
        int result = get("hipModuleLaunchKernel", &call, 600, 0, NULL);
        int launched = ((launch *)call)(&x, 1, 1, 1, 64, 1, 1, 0, NULL, NULL, NULL);
        return printf("%d %d %d\n", result, launched, ((int (*)(void))dlsym(hip, "standin_launches"))());
    }
    void *lib = dlopen("libMIOpen.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return printf("%s\n", dlerror());
#define TAKE(name) (version ? dlvsym(lib, name, version) : dlsym(lib, name))
    int result = convolve(
        (set4d *)TAKE("miopenSet4dTensorDescriptor"), (init_conv *)TAKE("miopenInitConvolutionDescriptor"),
        (set_groups *)TAKE("miopenSetConvolutionGroupCount"), (forward *)TAKE("miopenConvolutionForward"));
    const char *none = dlerror();
    void *absent = TAKE("miopenNoSuchFunction");
    const char *error = dlerror();
    void *optional = TAKE("miopenSetTensorDescriptorV2"); /* a hook's name that this library lacks */
    return printf("%d %d %s %s %s\n", result, ((int (*)(void))TAKE("standin_launches_of_hip"))(),
                  none ? none : "-", !absent && error ? "no" : "found", optional ? "found" : "no");
}
#endif

int main(int argc, char **argv) {
    int first = errno;
    if (argc > 1 && strcmp(argv[1], "errno") == 0)
        return printf("%d\n", first) < 0;
    if (argc < 2 || mode(argc, argv) < 0)
        return 2;
    return 0;
}
