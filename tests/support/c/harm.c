/* A program that does, with HIP, what its first argument names: things that hosts do and that a
 * recorder may die of. It prints what it saw. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

int hipModuleLoadData(void **module, const void *image);
int hipModuleGetFunction(void **function, void *module, const char *name);
int hipModuleLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned lds, void *stream, void **args, void **extra);
int standin_launches(void);
extern void (*standin_inside)(void);
extern char **environ;

static const unsigned char image[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
static void *function;

static void load(const char *name) {
    void *module;
    if (hipModuleLoadData(&module, image) || hipModuleGetFunction(&function, module, name))
        abort();
}

__attribute__((noinline, noclone)) static int launch(unsigned n) {
    int bad = 0;
    for (unsigned i = 0; i < n; i++)
        bad += hipModuleLaunchKernel(function, 1 + i % 3, 1, 1, 64, 1, 1, 0, NULL, NULL, NULL) != 0;
    return bad;
}

static int done(void) {
    printf("%d launches\n", standin_launches());
    fflush(stdout);
    return 0;
}

/* ---- out of the real call ---- */

static sigjmp_buf back;

static void jump(void) {
    siglongjmp(back, 1);
}
static void leave_thread(void) {
    pthread_exit((void *)7);
}
static void be_cancelled(void) {
    pthread_cancel(pthread_self());
    pthread_testcancel();
}

static int jump_out(void) {
    for (volatile int i = 0; i < 100; i++) {
        standin_inside = jump;
        if (sigsetjmp(back, 1) == 0)
            launch(1);
        standin_inside = NULL;
        launch(2);
    }
    return done();
}

static void *leaving(void *how) {
    launch(5);
    standin_inside = (void (*)(void))how;
    launch(1);
    return NULL;
}

static int leave_inside(void (*how)(void)) {
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        void *result;
        standin_inside = NULL;
        pthread_create(&thread, NULL, leaving, (void *)how);
        pthread_join(thread, &result);
        if (result != (how == leave_thread ? (void *)7 : PTHREAD_CANCELED))
            abort();
    }
    standin_inside = NULL;
    launch(3);
    return done();
}

/* ---- signal handlers ---- */

static volatile sig_atomic_t jumps;

static void jump_on_alarm(int number) {
    (void)number;
    jumps++;
    siglongjmp(back, 1);
}

static void often(int microseconds) {
    struct itimerval timer = {{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

/* A handler that jumps out of wherever it came in: many times out of the recorder itself. */
static int jumping_handler(unsigned wanted) {
    volatile unsigned total = 0;
    signal(SIGALRM, jump_on_alarm);
    often(100);
    while ((unsigned)jumps < wanted)
        if (sigsetjmp(back, 1) == 0)
            for (;;) {
                launch(1);
                total++;
            }
    often(0);
    printf("%d\n", launch(1000));
    return 0;
}

static void launch_in_handler(int number) {
    (void)number;
    launch(1);
}

static int handler_on_its_own_stack(unsigned n) {
    static char memory[65536];
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
    struct sigaction action = {.sa_handler = launch_in_handler, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigaltstack(&stack, NULL);
    sigaction(SIGALRM, &action, NULL);
    often(50);
    launch(n);
    often(0);
    return done();
}

/* ---- stacks ---- */

static void *some(void *n) {
    void *mine = function;
    load("small");
    launch((unsigned)(uintptr_t)n);
    function = mine;
    return NULL;
}

static int small_stacks(void) {
    pthread_attr_t attr;
    size_t size = 16384;
    pthread_attr_init(&attr);
    if (pthread_attr_setstacksize(&attr, size) != 0)
        abort();
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        if (pthread_create(&thread, &attr, some, (void *)100) != 0)
            abort();
        pthread_join(thread, NULL);
    }
    return done();
}

/* ---- many threads ---- */

static pthread_barrier_t gate;

static void *at_once(void *n) {
    pthread_barrier_wait(&gate);
    launch((unsigned)(uintptr_t)n);
    return NULL;
}

static int threads(unsigned count, unsigned each) {
    pthread_t *all = calloc(count, sizeof *all);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 65536);
    pthread_barrier_init(&gate, NULL, count);
    for (unsigned i = 0; i < count; i++)
        if (pthread_create(&all[i], &attr, at_once, (void *)(uintptr_t)each) != 0)
            abort();
    for (unsigned i = 0; i < count; i++)
        pthread_join(all[i], NULL);
    free(all);
    return done();
}

/* ---- processes ---- */

static void *for_ever(void *unused) {
    for (;;)
        launch(1);
    return unused;
}

/* Children use HIP at once, while other threads are inside hooks. */
static int fork_among_threads(unsigned children) {
    pthread_t thread;
    unsigned well = 0;
    for (int i = 0; i < 3; i++)
        pthread_create(&thread, NULL, for_ever, NULL);
    for (unsigned i = 0; i < children; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            int bad = launch(10);
            load("child");
            bad += launch(10);
            _exit(bad ? 1 : 3);
        }
        int status;
        waitpid(pid, &status, 0);
        well += WIFEXITED(status) && WEXITSTATUS(status) == 3;
    }
    printf("%u children\n", well);
    fflush(stdout);
    _exit(0);
}

static int start(const char *how, char **argv) {
    char *bare[] = {"PATH=/usr/bin:/bin", NULL};
    char **env = strcmp(how, "exec-bare") == 0 ? bare : environ;
    int status = 0;
    pid_t pid = 0;
    launch(2);
    fflush(stdout);
    if (strncmp(how, "exec", 4) == 0)
        execve(argv[0], argv, env);
    else if (strcmp(how, "vfork") == 0) {
        pid = vfork();
        if (pid == 0) {
            execve(argv[0], argv, env);
            _exit(127);
        }
    } else if (posix_spawn(&pid, argv[0], NULL, NULL, argv, env) != 0)
        return 1;
    waitpid(pid, &status, 0);
    launch(3);
    printf("%d: ", WEXITSTATUS(status));
    return done();
}

static int end(const char *how) {
    launch(10);
    printf("here\n");
    fflush(stdout);
    if (strcmp(how, "_exit") == 0)
        _exit(5);
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "segv") == 0)
        *(volatile int *)(uintptr_t)(getpid() > 0 ? 8 : 0) = 1;
    if (strcmp(how, "exit") == 0)
        exit(6);
    if (strcmp(how, "thread-exit") == 0)
        syscall(SYS_exit, 4); /* of the only thread */
    raise(SIGKILL);
    return 0;
}

/* ---- beginning and end ---- */

static void last(void) {
    launch(1);
    printf("atexit: ");
    done();
}
static pthread_key_t key;
static void of_thread(void *rounds) {
    launch(1);
    if (rounds > (void *)1) /* again, after other destructors */
        pthread_setspecific(key, (char *)rounds - 1);
}
static void *with_key(void *unused) {
    pthread_setspecific(key, (void *)3);
    launch(1);
    return unused;
}
static int destructors(void) {
    pthread_t thread;
    pthread_key_create(&key, of_thread);
    for (int i = 0; i < 10; i++) {
        pthread_create(&thread, NULL, with_key, NULL);
        pthread_join(thread, NULL);
    }
    atexit(last);
    return done();
}

__attribute__((constructor(101))) static void early(void) {
    if (getenv("HARM_EARLY")) {
        load("early");
        launch(1);
    }
}
__attribute__((destructor(101))) static void late(void) {
    if (getenv("HARM_LATE"))
        launch(1);
}

/* ---- rights and limits ---- */

static int drop_rights(const char *how) {
    launch(10);
    if (strcmp(how, "setuid") == 0 && (setgid(65534) || setuid(65534)))
        return 1;
    if (strcmp(how, "fsize") == 0) {
        struct rlimit limit = {30000, 30000};
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    if (strcmp(how, "as") == 0) {
        struct rlimit limit = {1 << 20, 1 << 20};
        setrlimit(RLIMIT_AS, &limit);
    }
    if (strcmp(how, "nproc") == 0) {
        struct rlimit limit = {1, 1};
        setrlimit(RLIMIT_NPROC, &limit);
    }
    if (strcmp(how, "chroot") == 0 && (chroot("/proc") || chdir("/")))
        return 1;
    printf("%d\n", launch(20000));
    return done();
}

/* From here on one system call is refused. */
static int refuse(unsigned call, unsigned error) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        return 1;
    load("refused");
    printf("%d\n", launch(20000));
    return done();
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    unsigned n = argc > 2 ? (unsigned)atol(argv[2]) : 0;
    if (strcmp(how, "nothing") == 0)
        return printf("nothing\n") < 0;
    if (strcmp(how, "refuse") == 0)
        return refuse(n, (unsigned)atol(argv[3]));
    load("kernel");
    if (strcmp(how, "jump-out") == 0)
        return jump_out();
    if (strcmp(how, "exit-inside") == 0)
        return leave_inside(leave_thread);
    if (strcmp(how, "cancel-inside") == 0)
        return leave_inside(be_cancelled);
    if (strcmp(how, "jumping-handler") == 0)
        return jumping_handler(n);
    if (strcmp(how, "own-stack") == 0)
        return handler_on_its_own_stack(n);
    if (strcmp(how, "small-stacks") == 0)
        return small_stacks();
    if (strcmp(how, "threads") == 0)
        return threads(n, (unsigned)atol(argv[3]));
    if (strcmp(how, "fork") == 0)
        return fork_among_threads(n);
    if (strcmp(how, "start") == 0)
        return start(argv[2], argv + 3);
    if (strcmp(how, "end") == 0)
        return end(argv[2]);
    if (strcmp(how, "destructors") == 0)
        return destructors();
    if (strcmp(how, "rights") == 0)
        return drop_rights(argv[2]);
    if (strcmp(how, "launch") == 0) {
        printf("%d\n", launch(n));
        return done();
    }
    return 2;
}
