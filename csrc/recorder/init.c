/* The recorder comes up: whether it records at all, how much, and by which clock.
 *
 * Without KDBTOOL_TRACE_DIR it is inert. With it, no file is made until the first event, except in a
 * compiler or linker (child.c). */
#include "gate.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

_Atomic uint32_t kdb_mode;
struct kdb_process *kdb_process;
bool kdb_use_tsc;
size_t kdb_page = 4096;
char kdb_folder[3072];

struct kdbt_header kdb_header_facts;
static _Atomic uint32_t said;
static bool verbose;

uint64_t kdb_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

struct kdb_quiet kdb_quiet_begin(void) {
    struct kdb_quiet quiet = {errno, 0};
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &quiet.cancel);
    return quiet;
}

void kdb_quiet_end(struct kdb_quiet quiet) {
    int ignored;
    pthread_setcancelstate(quiet.cancel, &ignored);
    errno = quiet.error;
}

void kdb_say(const char *what, int error) {
    char line[256];
    if (!verbose || atomic_exchange(&said, 1))
        return;
    int n =
        error == KDBT_STOP_LIMIT
            ? snprintf(line, sizeof line, "kdbtool: %s: size limit; the program goes on unrecorded\n", what)
            : snprintf(line, sizeof line, "kdbtool: %s: error %d; the program goes on unrecorded\n", what,
                       error);
    if (n > 0 && write(2, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1) < 0)
        return;
}

/* Ticks that stand still or differ by core would lie: CPUID must promise an invariant counter. */
static bool invariant_tsc(void) {
#if defined(__x86_64__)
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d >> 8 & 1);
#else
    return false;
#endif
}

static void child_after_fork(void) {
    if (kdb_process)
        memset(kdb_process, 0, sizeof *kdb_process);
}

static bool find_folder(void) {
    const char *folder = getenv("KDBTOOL_TRACE_DIR");
    if (!folder || !*folder || getauxval(AT_SECURE))
        return false;
    size_t used = 0;
    if (*folder != '/') { /* the host may change its directory before the first event */
        if (!getcwd(kdb_folder, sizeof kdb_folder - 1))
            return false;
        used = strlen(kdb_folder);
        kdb_folder[used++] = '/';
    }
    if (used + strlen(folder) >= sizeof kdb_folder)
        return false;
    memcpy(kdb_folder + used, folder, strlen(folder) + 1);
    return true;
}

/* $KDBTOOL_TRACE_LIMIT=BYTES:stop|rotate. One that is not understood is no licence to fill a disk. */
static bool find_limit(void) {
    const char *text = getenv("KDBTOOL_TRACE_LIMIT");
    char *end;
    if (!text || !*text)
        return true;
    errno = 0;
    unsigned long long bytes = strtoull(text, &end, 10);
    kdb_rotates = strcmp(end, ":rotate") == 0;
    if (*text < '0' || *text > '9' || errno || (!kdb_rotates && strcmp(end, ":stop") != 0) ||
        bytes < (kdb_rotates ? KDB_LEAST_ROTATED : KDBT_HEADER_BYTES)) {
        kdb_say("KDBTOOL_TRACE_LIMIT is not BYTES:stop or BYTES:rotate, or too small", EINVAL);
        return false;
    }
    kdb_part_limit = bytes / (kdb_rotates ? KDB_PARTS_KEPT : 1) & ~(uint64_t)(KDBT_BLOCK_ALIGN - 1);
    return true;
}

/* Idempotent; another library's constructor may call a hook before ours has run. */
void kdb_setup(void) {
    static _Atomic uint32_t begun;
    uint32_t fresh = 0;
    if (atomic_load_explicit(&kdb_mode, memory_order_acquire) ||
        !atomic_compare_exchange_strong(&begun, &fresh, 1))
        return;
    struct kdb_quiet quiet = kdb_quiet_begin();
    uint32_t mode = 1;
    verbose = getenv("KDBTOOL_VERBOSE") != NULL;
    if (find_folder() && find_limit()) {
        void *page =
            mmap(NULL, sizeof *kdb_process, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page != MAP_FAILED) {
            kdb_process = page;
            if (madvise(page, sizeof *kdb_process, MADV_WIPEONFORK) != 0)
                pthread_atfork(NULL, NULL, child_after_fork);
            kdb_use_tsc = invariant_tsc();
            kdb_page = (size_t)sysconf(_SC_PAGESIZE);
            kdb_header_facts.load_ns = kdb_now_ns();
            kdb_header_facts.load_ticks = kdb_ticks();
            mode = kdb_gate_setup() ? 2 : 1; /* its end of a thread comes before the writer's */
            kdb_writer_setup();
        }
    }
    atomic_store_explicit(&kdb_mode, mode, memory_order_release);
    kdb_quiet_end(quiet);
}

/* Growing a file past this limit is a SIGXFSZ, which would end the host. */
bool kdb_may_grow(uint64_t bytes) {
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur;
}

/* Where the file system, or a seccomp filter, knows no fallocate: written out, so that a full disk is an
 * error here and no SIGBUS in the host. */
int kdb_allocate(int fd, uint64_t at, uint64_t bytes) {
    static const char zeros[4096];
    int error;
    do
        error = posix_fallocate(fd, (off_t)at, (off_t)bytes);
    while (error == EINTR);
    if (error != ENOSYS && error != EPERM && error != EINVAL && error != ENODEV && error != EOPNOTSUPP)
        return error;
    for (uint64_t done = 0; done < bytes;) {
        size_t take = bytes - done < sizeof zeros ? (size_t)(bytes - done) : sizeof zeros;
        ssize_t n = pwrite(fd, zeros, take, (off_t)(at + done));
        if (n <= 0 && (n == 0 || errno != EINTR))
            return n ? errno : EIO;
        done += n > 0 ? (uint64_t)n : 0;
    }
    return 0;
}

/* glibc hands argc and argv to a constructor. They are looked at, never kept. */
__attribute__((constructor)) static void loaded(int argc, char **argv) {
    kdb_setup();
    if (atomic_load(&kdb_mode) != 2)
        return;
    struct kdb_quiet quiet = kdb_quiet_begin(); /* a program begins with errno 0, whatever /proc says */
    kdb_header_facts.role = (uint32_t)kdb_role(argc, argv, kdb_header_facts.exe, sizeof kdb_header_facts.exe);
    struct kdb_thread *t = kdb_header_facts.role == KDBT_ROLE_HOST ? NULL : kdb_enter();
    if (t) {
        kdb_child(t, (int)kdb_header_facts.role, argc, argv, kdb_header_facts.load_ticks);
        kdb_leave();
    }
    kdb_quiet_end(quiet);
}
