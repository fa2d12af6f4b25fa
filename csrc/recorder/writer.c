/* Records into the mapped trace.
 *
 * Each thread owns blocks of the file: it claims room with one atomic add, maps it, and appends.
 * A record counts once `committed` of its block covers it, which is stored last (release), so a
 * process killed at any instruction leaves whole records only. Room is allocated on disk before it
 * is mapped: a full disk is an error of posix_fallocate here, not a SIGBUS in the host. */

#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

_Thread_local struct kdb_thread *kdb_self;
_Thread_local _Atomic bool kdb_busy;

enum { FIRST_BLOCK = 16384, LAST_BLOCK = 1048576 };
static const uint64_t CLOCK_EVERY = 100000000; /* ticks between clock records: some 30 to 100 ms */

void kdb_drop(void) {
    struct kdb_process *p = kdb_process;
    uint32_t phase = p ? atomic_load(&p->phase) : 0;
    if (phase >= 2 && p->header)
        __atomic_fetch_add(&p->header->dropped, 1, __ATOMIC_RELAXED);
}

uint32_t kdb_new_id(void) {
    return atomic_fetch_add(&kdb_process->ids, 1) + 1;
}

static void stop(int error) {
    struct kdb_process *p = kdb_process;
    __atomic_store_n(&p->header->stop_errno, (uint32_t)error, __ATOMIC_RELAXED);
    atomic_store(&p->phase, 3);
    kdb_say("recording stopped", error);
}

static unsigned char *payload(struct kdbt_block *block) {
    return (unsigned char *)(block + 1);
}

static void publish(struct kdb_thread *t) {
    __atomic_store_n(&t->block->committed, (uint32_t)(t->at - payload(t->block)), __ATOMIC_RELEASE);
}

static void close_run(struct kdb_thread *t) {
    struct kdbt_record *run = t->run;
    if (!run)
        return;
    uint32_t bytes = (uint32_t)(t->at - (unsigned char *)run);
    struct kdbt_record head = *run;
    head.bytes = bytes;
    head.check = 0;
    uint32_t check = kdbt_crc32(0, &head, sizeof head);
    run->check = kdbt_crc32(check, run + 1, bytes - sizeof head);
    __atomic_store_n(&run->bytes, bytes, __ATOMIC_RELEASE);
    t->run = NULL;
}

static void leave_block(struct kdb_thread *t) {
    if (!t->block)
        return;
    close_run(t);
    __atomic_store_n(&t->block->closed, 1, __ATOMIC_RELEASE);
    size_t before = (uintptr_t)t->block & (kdb_page - 1);
    munmap((char *)t->block - before, before + t->block->bytes);
    t->block = NULL;
    t->key = NULL;
}

/* A file that is shorter than the header says was cut. Blocks become ready in any order. */
static void reaches(uint64_t end) {
    uint64_t *bytes = &kdb_process->header->file_bytes, seen = __atomic_load_n(bytes, __ATOMIC_RELAXED);
    while (seen < end &&
           !__atomic_compare_exchange_n(bytes, &seen, end, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

/* A new block with room for `bytes`. Out of descriptors is a moment's trouble: this event is lost,
 * the next one tries again. Anything else stops the recording; so does a failed mmap, since each
 * attempt takes room in the file. */
static bool next_block(struct kdb_thread *t, size_t bytes) {
    struct kdb_process *p = kdb_process;
    if (atomic_load(&p->phase) != 2)
        return false;
    struct kdb_quiet quiet = kdb_quiet_begin();
    size_t want =
        (bytes + sizeof(struct kdbt_block) + KDBT_BLOCK_ALIGN - 1) & ~(size_t)(KDBT_BLOCK_ALIGN - 1);
    size_t size = want > t->block_bytes ? want : t->block_bytes;
    int error = 0, fd = kdb_open_file();
    if (fd < 0) {
        error = errno;
        if (error != EMFILE && error != ENFILE && error != ENOMEM && error != EINTR)
            stop(error);
        kdb_quiet_end(quiet);
        return false;
    }
    uint64_t offset = atomic_fetch_add(&p->file_end, size);
    size_t before = offset & (kdb_page - 1); /* pages of 64 KiB hold many blocks: mapped by each owner */
    void *map = MAP_FAILED;
    if (!kdb_may_grow(offset + size))
        error = EFBIG;
    while (!error && (error = posix_fallocate(fd, (off_t)offset, (off_t)size)) == EINTR)
        error = 0;
    if (!error && (map = mmap(NULL, before + size, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                              (off_t)(offset - before))) == MAP_FAILED)
        error = errno;
    close(fd);
#ifdef MADV_POPULATE_WRITE
    if (map != MAP_FAILED) /* or each 512th launch would fault; a kernel before 5.14 knows no better */
        madvise(map, before + size, MADV_POPULATE_WRITE);
#endif
    if (map == MAP_FAILED) {
        stop(error);
        kdb_quiet_end(quiet);
        return false;
    }
    leave_block(t);
    reaches(offset + size);
    struct kdbt_block *block = (void *)((char *)map + before);
    struct kdbt_block head = {.magic = KDBT_BLOCK_MAGIC,
                              .bytes = (uint32_t)size,
                              .thread = t->number,
                              .tid = t->tid,
                              .sequence = t->sequence++,
                              .ticks = kdb_ticks()};
    head.check = kdbt_block_check(&head);
    head.magic = 0;
    *block = head;
    /* last: a block that was being begun when the process ended has none, and is no damage */
    __atomic_store_n(&block->magic, KDBT_BLOCK_MAGIC, __ATOMIC_RELEASE);
    t->block = block;
    t->at = payload(block);
    t->end = (unsigned char *)block + size;
    if (t->block_bytes < LAST_BLOCK)
        t->block_bytes *= 4;
    kdb_quiet_end(quiet);
    return true;
}

static bool put(struct kdb_thread *t, int type, uint32_t id, uint64_t ticks, const void *a, size_t a_bytes,
                const void *b, size_t b_bytes, const void *c, size_t c_bytes) {
    size_t bytes = sizeof(struct kdbt_record) + a_bytes + b_bytes + c_bytes,
           padded = (bytes + 7) & ~(size_t)7;
    if (a_bytes > KDBT_RECORD_MAX || b_bytes > KDBT_RECORD_MAX || c_bytes > KDBT_RECORD_MAX ||
        bytes > KDBT_RECORD_MAX)
        return false;
    close_run(t);
    if ((!t->block || padded > (size_t)(t->end - t->at)) && !next_block(t, padded))
        return false;
    struct kdbt_record *record = (struct kdbt_record *)t->at;
    unsigned char *p = (unsigned char *)(record + 1);
    record->type = (uint16_t)type;
    record->reserved = 0;
    record->bytes = (uint32_t)bytes;
    record->id = id;
    record->ticks = ticks;
    if (a_bytes)
        memcpy(p, a, a_bytes);
    if (b_bytes)
        memcpy(p + a_bytes, b, b_bytes);
    if (c_bytes)
        memcpy(p + a_bytes + b_bytes, c, c_bytes);
    record->check = kdbt_record_check(record, bytes);
    t->at += padded;
    publish(t);
    return true;
}

static void clock_point(struct kdb_thread *t) {
    uint64_t ticks = kdb_ticks();
    struct kdbt_clock clock = {kdb_now_ns()};
    if (put(t, KDBT_CLOCK, 0, ticks, &clock, sizeof clock, NULL, 0, NULL, 0))
        t->clock_ticks = ticks;
}

bool kdb_put(struct kdb_thread *t, int type, uint32_t id, uint64_t ticks, const void *a, size_t a_bytes,
             const void *b, size_t b_bytes, const void *c, size_t c_bytes) {
    if (kdb_use_tsc && kdb_ticks() - t->clock_ticks > CLOCK_EVERY)
        clock_point(t);
    bool done = put(t, type, id, ticks, a, a_bytes, b, b_bytes, c, c_bytes);
    if (!done)
        kdb_drop();
    return done;
}

uint32_t kdb_text(struct kdb_thread *t, int type, const void *text, size_t bytes) {
    uint32_t id = kdb_new_id();
    return kdb_put(t, type, id, kdb_ticks(), text, bytes, NULL, 0, NULL, 0) ? id : 0;
}

/* The first launch of a run, or one after too long a gap for `delta`. */
bool kdb_launch_slowly(struct kdb_thread *t, uint32_t shape, uint64_t ticks) {
    struct kdbt_launch launch = {shape, 0};
    size_t bytes = sizeof(struct kdbt_record) + sizeof launch;
    close_run(t);
    if (kdb_use_tsc && ticks - t->clock_ticks > CLOCK_EVERY)
        clock_point(t);
    if ((!t->block || bytes > (size_t)(t->end - t->at)) && !next_block(t, bytes)) {
        kdb_drop();
        return false;
    }
    struct kdbt_record *run = (struct kdbt_record *)t->at;
    memset(run, 0, sizeof *run);
    run->type = KDBT_LAUNCHES;
    run->ticks = ticks;
    memcpy(run + 1, &launch, sizeof launch);
    t->at += bytes;
    t->run = run;
    t->run_ticks = ticks >> KDBT_TICK_SHIFT;
    publish(t);
    return true;
}

/* ---- threads ---- */

static pthread_key_t at_exit_key;
static _Atomic uint32_t have_key;

static void thread_ends(void *state) {
    struct kdb_thread *t = state;
    kdb_self = NULL; /* a hook in a later destructor begins anew */
    if (t->generation == atomic_load(&kdb_process->generation))
        leave_block(t);
    munmap(t, sizeof *t);
}

__attribute__((visibility("hidden"))) void kdb_writer_setup(void) {
    if (pthread_key_create(&at_exit_key, thread_ends) == 0)
        atomic_store(&have_key, 1);
}

static bool file_ready(void) {
    struct kdb_process *p = kdb_process;
    for (int i = 0; i < 100000; i++) {
        uint32_t fresh = 0;
        if (atomic_compare_exchange_strong(&p->phase, &fresh, 1))
            return kdb_begin_file();
        if (fresh != 1)
            return fresh == 2;
        sched_yield(); /* another thread makes the file: some system calls long */
    }
    return false;
}

struct kdb_thread *kdb_enter_slowly(void) {
    struct kdb_process *p = kdb_process;
    struct kdb_thread *t = kdb_self;
    if (!file_ready()) {
        if (atomic_load(&p->phase) == 0)
            atomic_fetch_add(&p->lost, 1);
        return NULL;
    }
    struct kdb_quiet quiet = kdb_quiet_begin();
    if (!t) {
        t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (t == MAP_FAILED) {
            kdb_drop();
            kdb_quiet_end(quiet);
            return NULL;
        }
        kdb_self = t;
        if (atomic_load(&have_key))
            pthread_setspecific(at_exit_key, t);
    } else {
        /* Ours from before a fork: its block belongs to the parent. */
        memset(t, 0, offsetof(struct kdb_thread, scratch));
    }
    t->generation = atomic_load(&p->generation);
    t->number = atomic_fetch_add(&p->threads, 1) + 1;
    t->tid = (uint32_t)syscall(SYS_gettid);
    t->block_bytes = FIRST_BLOCK;
    t->clock_ticks = kdb_ticks();
    kdb_quiet_end(quiet);
    if (t->number == 1)
        kdb_first_facts(t);
    kdb_ranges_so_far(t);
    return t;
}
