/* The files of a process: one, or, with a size that is to rotate, parts that follow each other.
 *
 * $KDBTOOL_TRACE_LIMIT=BYTES:stop ends the recording there. BYTES:rotate gives each part a quarter of
 * it. Where a part is full, the event in flight still ends in it (at most one block for each thread
 * that is in the middle of one), and the next event of any thread makes the next part, of another
 * generation, as after a fork. The fifth part takes the place of the oldest. A file is opened by name
 * whenever more room is needed, so that a host may close every descriptor, fork, or run out of them. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

uint64_t kdb_part_limit = UINT64_MAX;
bool kdb_rotates;

static const char MADE[] = ".kdbtrace", MAKING[] = ".kdbtrace.part";
enum { NAME = sizeof((struct kdb_process *)0)->name, PATH = sizeof kdb_folder + NAME + 32 };
static _Atomic uint32_t generations; /* not wiped in a child: what it inherited is of another one */
static char *headers;                /* a page for the header of each of KDB_PARTS */

static void path_of(uint32_t number, const char *suffix, char path[PATH]) {
    char dot[16] = "";
    if (number)
        snprintf(dot, sizeof dot, ".%u", number);
    snprintf(path, PATH, "%s/%s%s%s", kdb_folder, kdb_process->name, dot, suffix);
}

static bool is_of(const struct kdb_part *part, int fd) {
    struct stat st;
    return fstat(fd, &st) == 0 && (uint64_t)st.st_dev == part->device && (uint64_t)st.st_ino == part->inode;
}

int kdb_part_open(const struct kdb_part *part) {
    char path[PATH];
    path_of(part->number, MADE, path);
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && !is_of(part, fd)) {
        close(fd); /* somebody put another file there */
        errno = ESTALE;
        return -1;
    }
    return fd;
}

void kdb_stop(uint32_t generation, int error) {
    uint64_t from = (uint64_t)generation << 2 | KDB_RECORDING;
    if (!atomic_compare_exchange_strong(&kdb_process->state, &from, (uint64_t)generation << 2 | KDB_OFF))
        return; /* an older part's trouble */
    struct kdbt_header *header = atomic_load(&kdb_process->header);
    __atomic_store_n(&header->stop_errno, (uint32_t)error, __ATOMIC_RELAXED);
    kdb_say("recording stopped", error);
}

void kdb_part_full(uint32_t generation) {
    uint64_t from = (uint64_t)generation << 2 | KDB_RECORDING;
    if (atomic_compare_exchange_strong(&kdb_process->state, &from, (uint64_t)generation << 2 | KDB_NO_FILE))
        /* Not if there is a newer part by now. */
        atomic_compare_exchange_strong(&kdb_process->generation, &generation, 0);
}

/* ---- a file is made ---- */

static void fill_header(struct kdbt_header *h) {
    struct timespec now;
    struct utsname node;
    *h = kdb_header_facts;
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

/* HOST-PID-START-RANDOM: a reused pid, a copied random state or a shared folder cannot make two
 * processes meet. */
static void make_name(const struct kdbt_header *h, uint64_t salt) {
    char host[33];
    size_t n = 0;
    uint64_t random = 0;
    for (; h->host[n] && n < sizeof host - 1; n++)
        host[n] = strchr("/-.", h->host[n]) || (unsigned char)h->host[n] <= ' ' ? '_' : h->host[n];
    host[n] = 0;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random)
        random = (h->start_ticks ^ (uintptr_t)&n) * 0x9e3779b97f4a7c15u + salt;
    snprintf(kdb_process->name, NAME, "%s-%u-%llx-%016llx", host, h->pid,
             (unsigned long long)h->start_realtime_ns, (unsigned long long)random);
}

/* O_EXCL | O_NOFOLLOW follows nothing that is planted there. Until its header is written the file has
 * another suffix: a process killed right here leaves nothing that looks like a trace. */
static int make_file(uint32_t number, const struct kdbt_header *h) {
    char path[PATH];
    if (!kdb_may_grow(KDBT_HEADER_BYTES)) {
        errno = EFBIG;
        return -1;
    }
    for (uint64_t tries = 0; tries < 16; tries++) {
        if (number == 0)
            make_name(h, tries);
        path_of(number, MAKING, path);
        int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0 || errno != EEXIST || number != 0)
            return fd;
    }
    return -1;
}

/* Of this slot: the same address each time, so that a late writer never finds it gone. */
static char *header_page(uint32_t generation) {
    if (!headers) {
        void *made = mmap(NULL, KDB_PARTS * kdb_page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (made == MAP_FAILED)
            return NULL;
        headers = made;
    }
    return headers + generation % KDB_PARTS * kdb_page;
}

/* The header's page, written, under its final name, and mapped; or an errno, and no file. Mapped last:
 * valgrind 3.19 trips over two mappings of one file under two names. */
static int publish(struct kdb_part *part, int fd, uint32_t generation, const struct kdbt_header *header) {
    char from[PATH], to[PATH], *page = header_page(generation);
    struct stat st;
    if (!page)
        return ENOMEM;
    path_of(part->number, MAKING, from);
    path_of(part->number, MADE, to);
    int error = kdb_allocate(fd, 0, KDBT_HEADER_BYTES);
    if (!error && (pwrite(fd, header, sizeof *header, 0) != sizeof *header || fstat(fd, &st) != 0))
        error = errno ? errno : EIO;
    if (!error && rename(from, to) != 0)
        error = errno;
    if (error) {
        unlink(from);
        return error;
    }
    if (mmap(page, KDBT_HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        error = errno;
        unlink(to);
        return error;
    }
    part->device = (uint64_t)st.st_dev;
    part->inode = (uint64_t)st.st_ino;
    part->header = (struct kdbt_header *)page;
    return 0;
}

/* ---- a file goes ---- */

/* Launches in a block whose thread may be in the middle of another one. */
static uint64_t launches_in(const struct kdbt_block *block) {
    uint64_t run = __atomic_load_n(&block->run, __ATOMIC_RELAXED);
    uint64_t end = sizeof *block + __atomic_load_n(&block->committed, __ATOMIC_ACQUIRE);
    uint64_t inside =
        run && end > run + sizeof(struct kdbt_record) ? end - run - sizeof(struct kdbt_record) : 0;
    return __atomic_load_n(&block->launches, __ATOMIC_RELAXED) + inside / sizeof(struct kdbt_launch);
}

static void give_back(int fd, uint64_t from, uint64_t to) {
    if (to > from)
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(to - from));
}

/* Launches in the file; and the room of blocks that nobody has mapped is given back, since one mapping
 * keeps all of a file. `closed` becomes 2: who makes it so counts what is in the block. A thread that
 * is still in its block adds the rest when it leaves it. */
static uint64_t empty(int fd, uint64_t bytes) {
    uint64_t sum = 0, from = 0, to = 0;
    struct stat st;
    if (fstat(fd, &st) != 0 || (uint64_t)st.st_size < bytes)
        bytes = st.st_size > 0 ? (uint64_t)st.st_size : 0;
    char *file = bytes ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (file == MAP_FAILED)
        return 0;
    for (uint64_t at = KDBT_HEADER_BYTES; at + KDBT_BLOCK_ALIGN <= bytes;) {
        struct kdbt_block *block = (struct kdbt_block *)(file + at);
        bool begun = __atomic_load_n(&block->magic, __ATOMIC_ACQUIRE) == KDBT_BLOCK_MAGIC;
        uint64_t size = begun && block->bytes <= bytes - at ? block->bytes : KDBT_BLOCK_ALIGN;
        if (begun) {
            uint64_t now = launches_in(block);
            uint32_t open = 0;
            __atomic_store_n(&block->counted, now, __ATOMIC_RELAXED);
            if (__atomic_compare_exchange_n(&block->closed, &open, 2, false, __ATOMIC_ACQ_REL,
                                            __ATOMIC_ACQUIRE))
                sum += now;
            else if (open == 1 && __atomic_compare_exchange_n(&block->closed, &open, 2, false,
                                                              __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
                sum += __atomic_load_n(&block->launches, __ATOMIC_RELAXED);
                if (at != to) {
                    give_back(fd, from, to);
                    from = at;
                }
                to = at + size;
            }
        }
        at += size;
    }
    give_back(fd, from, to);
    munmap(file, bytes);
    return sum;
}

static uint64_t take_left_out(struct kdbt_header *header) {
    struct kdbt_left_out *groups = (struct kdbt_left_out *)((char *)header + KDBT_LEFT_OUT_AT);
    uint64_t sum = __atomic_exchange_n(&header->unselected, 0, __ATOMIC_RELAXED);
    for (size_t i = 0; i < sizeof *groups / sizeof groups->events[0]; i++)
        sum += __atomic_exchange_n(&groups->events[i], 0, __ATOMIC_RELAXED);
    return sum;
}

/* 0, or an errno. Only our own file is removed; one that somebody took away is theirs. */
static int remove_part(struct kdb_part *part) {
    char path[PATH];
    path_of(part->number, MADE, path);
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno != ENOENT && errno != ELOOP)
        return errno;
    bool ours = fd >= 0 && is_of(part, fd);
    if (ours && unlink(path) != 0) {
        int error = errno;
        close(fd);
        return error;
    }
    atomic_store(&part->generation, 0);
    if (ours) {
        atomic_fetch_add(&kdb_process->lost,
                         __atomic_exchange_n(&part->header->dropped, 0, __ATOMIC_RELAXED));
        atomic_fetch_add(&kdb_process->left_out, take_left_out(part->header));
        atomic_fetch_add(&kdb_process->removed, empty(fd, atomic_load(&part->end)));
    }
    if (fd >= 0)
        close(fd);
    /* If this fails the mapping stays, and with it a file without a name. */
    mmap(part->header, kdb_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return 0;
}

/* ---- the next part ---- */

/* A moment's trouble: this event is lost, the next one tries again. */
bool kdb_passing(int error) {
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == EINTR;
}

static void carry_over(struct kdbt_header *h, const struct kdbt_header *before) {
    h->dropped = atomic_exchange(&kdb_process->lost, 0);
    h->unselected = atomic_exchange(&kdb_process->left_out, 0);
    h->removed = atomic_load(&kdb_process->removed);
    h->deepbound = atomic_load(&kdb_process->deepbound);
    if (before)
        h->part = before->part + 1;
    h->file_bytes = KDBT_HEADER_BYTES;
}

/* `before`: generation of the part that is full, 0: none. Returns the new one's, or 0. */
static uint32_t begin(uint32_t before) {
    struct kdb_process *p = kdb_process;
    struct kdbt_header header, *old = atomic_load(&p->header);
    uint32_t number = before ? kdb_part_of(before)->number + 1 : 0, generation = 0;
    int error = 0, fd = -1;
    if (number - p->oldest >= KDB_PARTS_KEPT && (error = remove_part(kdb_part_of(p->first + p->oldest))) == 0)
        p->oldest++;
    if (!error) {
        fill_header(&header);
        carry_over(&header, old);
        fd = make_file(number, &header);
        error = fd < 0 ? errno : 0;
        /* In order, so that the generation of part n is the first one's plus n; a child goes on. */
        generation = atomic_load(&generations) + 1;
        struct kdb_part *part = kdb_part_of(generation);
        if (!error) {
            part->number = number;
            error = publish(part, fd, generation, &header);
        }
        if (!error) {
            atomic_store(&part->end, KDBT_HEADER_BYTES);
            atomic_store(&part->generation, generation);
        } else {
            atomic_fetch_add(&p->lost, header.dropped);
            atomic_fetch_add(&p->left_out, header.unselected);
        }
    }
    if (fd >= 0)
        close(fd);
    if (error) {
        /* A file that is made and undone at each event would cost the host too much. */
        static _Atomic uint32_t short_of_memory;
        bool again = kdb_passing(error) && (error != ENOMEM || atomic_fetch_add(&short_of_memory, 1) < 16);
        kdb_say(before ? "recording stopped" : "no trace can be made in $KDBTOOL_TRACE_DIR", error);
        if (old && !again)
            __atomic_store_n(&old->stop_errno, (uint32_t)error, __ATOMIC_RELAXED);
        atomic_store(&p->state, (uint64_t)before << 2 | (again ? KDB_NO_FILE : KDB_OFF));
        return 0;
    }
    atomic_store(&generations, generation);
    if (!before)
        p->first = generation;
    atomic_store(&p->header, kdb_part_of(generation)->header);
    kdb_removed(0); /* what was counted meanwhile */
    atomic_store(&p->state, (uint64_t)generation << 2 | KDB_RECORDING);
    atomic_store(&p->generation, generation);
    return generation;
}

uint32_t kdb_part_ready(void) {
    struct kdb_process *p = kdb_process;
    for (int i = 0; i < 100000; i++) {
        uint64_t state = atomic_load(&p->state);
        uint32_t generation = (uint32_t)(state >> 2);
        if ((state & 3) == KDB_RECORDING)
            return generation;
        if ((state & 3) == KDB_OFF)
            return 0;
        if ((state & 3) == KDB_NO_FILE &&
            atomic_compare_exchange_strong(&p->state, &state, (uint64_t)generation << 2 | KDB_MAKING_IT)) {
            /* A signal handler that jumped out of here would leave all other threads waiting. */
            sigset_t all, host;
            struct kdb_quiet quiet = kdb_quiet_begin();
            sigfillset(&all);
            pthread_sigmask(SIG_SETMASK, &all, &host);
            generation = begin(generation);
            pthread_sigmask(SIG_SETMASK, &host, NULL);
            kdb_quiet_end(quiet);
            return generation;
        }
        sched_yield(); /* another thread makes the file: some system calls long */
    }
    return 0;
}
