/* The recorder comes up: whether it records at all, the clock, and the trace file.
 *
 * Without KDBTOOL_TRACE_DIR it is inert. With it, nothing is made until the first event, except in a
 * compiler or linker, whose trace says only that it ran. The file is opened by name whenever more
 * room is needed, so that a host may close every descriptor, fork, or run out of them. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

_Atomic uint32_t kdb_mode;
struct kdb_process *kdb_process;
bool kdb_use_tsc;
size_t kdb_page = 4096;
char kdb_folder[3072];

static const char PART[] = ".part";
enum { PATH_BYTES = sizeof kdb_folder + sizeof((struct kdb_process *)0)->file + sizeof PART };
static struct kdbt_header facts; /* what every file of this process image begins with */
static _Atomic uint32_t generations, said;
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
        snprintf(line, sizeof line, "kdbtool: %s: error %d; the program goes on unrecorded\n", what, error);
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

void kdb_writer_setup(void);

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
    if (find_folder()) {
        void *page =
            mmap(NULL, sizeof *kdb_process, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page != MAP_FAILED) {
            kdb_process = page;
            if (madvise(page, sizeof *kdb_process, MADV_WIPEONFORK) != 0)
                pthread_atfork(NULL, NULL, child_after_fork);
            kdb_use_tsc = invariant_tsc();
            kdb_page = (size_t)sysconf(_SC_PAGESIZE);
            facts.load_ns = kdb_now_ns();
            facts.load_ticks = kdb_ticks();
            kdb_writer_setup();
            mode = 2;
        }
    }
    atomic_store_explicit(&kdb_mode, mode, memory_order_release);
    kdb_quiet_end(quiet);
}

static void fill_header(struct kdbt_header *h) {
    struct timespec now;
    struct utsname node;
    *h = facts;
    memcpy(h->magic, "KDBTRACE", sizeof h->magic);
    h->version = KDBT_VERSION;
    h->byte_order = KDBT_BYTE_ORDER;
    h->header_bytes = KDBT_HEADER_BYTES;
    h->pid = (uint32_t)getpid();
    h->ppid = (uint32_t)getppid();
    h->clock = kdb_use_tsc ? KDBT_CLOCK_TSC : KDBT_CLOCK_NANOSECONDS;
    h->tick_shift = KDBT_TICK_SHIFT;
    h->start_ns = kdb_now_ns();
    h->start_ticks = kdb_ticks();
    clock_gettime(CLOCK_REALTIME, &now);
    h->start_realtime_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    if (uname(&node) == 0)
        snprintf(h->host, sizeof h->host, "%.63s", node.nodename);
    h->header_check = kdbt_header_check(h);
}

static void path_of(const char *file, const char *suffix, char path[PATH_BYTES]) {
    snprintf(path, PATH_BYTES, "%s/%s%s", kdb_folder, file, suffix);
}

/* Growing a file past this limit is a SIGXFSZ, which would end the host. */
bool kdb_may_grow(uint64_t bytes) {
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur;
}

/* HOST-PID-START-RANDOM.kdbtrace: a reused pid, a copied random state or a shared folder cannot make
 * two processes meet, and O_EXCL | O_NOFOLLOW follows nothing that is planted there. Until its header
 * is written it has another suffix: a process killed right here leaves nothing that looks like a
 * trace. */
static int make_file(struct kdb_process *p, const struct kdbt_header *h) {
    char path[PATH_BYTES], host[33];
    size_t n = 0;
    if (!kdb_may_grow(KDBT_HEADER_BYTES)) {
        errno = EFBIG;
        return -1;
    }
    for (; h->host[n] && n < sizeof host - 1; n++)
        host[n] = strchr("/-.", h->host[n]) || (unsigned char)h->host[n] <= ' ' ? '_' : h->host[n];
    host[n] = 0;
    for (int tries = 0; tries < 16; tries++) {
        uint64_t random = 0;
        if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random)
            random = h->start_ticks * 0x9e3779b97f4a7c15u + (uint64_t)tries;
        snprintf(p->file, sizeof p->file, "%s-%u-%llx-%016llx.kdbtrace", host, h->pid,
                 (unsigned long long)h->start_realtime_ns, (unsigned long long)random);
        path_of(p->file, PART, path);
        int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

/* The header's page, written, under its final name, and mapped; or an errno, and no file. Mapped last:
 * valgrind 3.19 trips over two mappings of one file under two names. */
static int map_header(struct kdb_process *p, int fd, const struct kdbt_header *header) {
    char from[PATH_BYTES], to[PATH_BYTES];
    struct stat st;
    void *map = MAP_FAILED;
    path_of(p->file, PART, from);
    path_of(p->file, "", to);
    int error = posix_fallocate(fd, 0, KDBT_HEADER_BYTES);
    if (!error && (pwrite(fd, header, sizeof *header, 0) != sizeof *header || fstat(fd, &st) != 0))
        error = errno ? errno : EIO;
    if (!error && rename(from, to) != 0)
        error = errno;
    if (error) {
        unlink(from);
        return error;
    }
    map = mmap(NULL, KDBT_HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        error = errno;
        unlink(to);
        return error;
    }
    p->device = (uint64_t)st.st_dev;
    p->inode = (uint64_t)st.st_ino;
    p->header = map;
    return 0;
}

int kdb_open_file(void) {
    struct kdb_process *p = kdb_process;
    char path[PATH_BYTES];
    struct stat st;
    path_of(p->file, "", path);
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 &&
        (fstat(fd, &st) != 0 || (uint64_t)st.st_dev != p->device || (uint64_t)st.st_ino != p->inode)) {
        close(fd); /* somebody put another file there */
        errno = ESTALE;
        return -1;
    }
    return fd;
}

bool kdb_begin_file(void) {
    struct kdb_process *p = kdb_process;
    struct kdb_quiet quiet = kdb_quiet_begin();
    struct kdbt_header header;
    fill_header(&header);
    header.dropped = atomic_load(&p->lost);
    header.file_bytes = KDBT_HEADER_BYTES;
    int fd = make_file(p, &header);
    int error = fd < 0 ? errno : map_header(p, fd, &header);
    if (fd >= 0)
        close(fd);
    if (error) {
        bool passing = error == EMFILE || error == ENFILE || error == ENOMEM || error == EINTR;
        kdb_say("no trace can be made in $KDBTOOL_TRACE_DIR", error);
        atomic_store(&p->phase, passing ? 0 : 3);
    } else {
        atomic_store(&p->file_end, KDBT_HEADER_BYTES);
        atomic_store(&p->generation, atomic_fetch_add(&generations, 1) + 1);
        atomic_store(&p->phase, 2);
    }
    kdb_quiet_end(quiet);
    return error == 0;
}

/* glibc hands argc and argv to a constructor. They are looked at, never kept. */
__attribute__((constructor)) static void loaded(int argc, char **argv) {
    kdb_setup();
    if (atomic_load(&kdb_mode) != 2)
        return;
    struct kdb_quiet quiet = kdb_quiet_begin(); /* a program begins with errno 0, whatever /proc says */
    facts.role = (uint32_t)kdb_role(argc, argv, facts.exe, sizeof facts.exe);
    kdb_quiet_end(quiet);
    if (facts.role != KDBT_ROLE_HOST && kdb_enter())
        kdb_leave();
}
