/* Records into the mapped trace.
 *
 * Each thread owns blocks of the file: it claims room with one atomic add, maps it, and appends.
 * A record counts once `committed` of its block covers it, which is stored last (release), so a
 * process killed at any instruction leaves whole records only. Room is allocated on disk before it
 * is mapped: a full disk is an error of posix_fallocate here, not a SIGBUS in the host. */

#include "gate.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

_Thread_local struct kdb_local kdb_local;
static _Thread_local struct kdb_thread *put_aside; /* see kdb_abandoned; the newest of a list */

/* A host that starts a thread per request has thousands that launch once: after the first few threads
 * each begins with the least that there is. */
enum { FIRST_BLOCK = 16384, LAST_BLOCK = 1048576, LARGE_FIRST = 16 };
static const uint64_t CLOCK_EVERY = 100000000; /* ticks between clock records: some 30 to 100 ms */

/* ---- what is lost ---- */

void kdb_drop_another(void) {
    struct kdb_process *p = kdb_process;
    struct kdbt_header *header = p ? atomic_load(&p->header) : NULL;
    if (header)
        __atomic_fetch_add(&header->dropped, 1, __ATOMIC_RELAXED);
    else if (p && kdb_phase() != KDB_OFF)
        atomic_fetch_add(&p->lost, 1);
}

void kdb_drop(void) {
    uintptr_t busy = atomic_load_explicit(&kdb_busy, memory_order_relaxed);
    if (busy & 1)
        return;
    if (busy)
        atomic_store_explicit(&kdb_busy, busy | 1, memory_order_relaxed);
    kdb_drop_another();
}

/* A handler may jump out of an event (siglongjmp). The next one on this thread then begins at or above
 * that event's place on the stack, where a handler's own event never is, unless it has a stack of its
 * own. The writer that the event left half done is put aside: should that event go on after all, as
 * where handlers switch between stacks, it finds everything in its place. */
bool kdb_abandoned(uintptr_t stack) {
    uintptr_t busy = atomic_load_explicit(&kdb_busy, memory_order_relaxed);
    stack_t own;
    if (stack < (busy & ~(uintptr_t)1))
        return false;
    struct kdb_quiet quiet = kdb_quiet_begin();
    bool abandoned = sigaltstack(NULL, &own) == 0 && !(own.ss_flags & SS_ONSTACK);
    kdb_quiet_end(quiet);
    if (!abandoned)
        return false;
    kdb_drop();
    if (kdb_self)
        put_aside = kdb_self;
    kdb_self = NULL;
    return true;
}

static void raise_to(uint64_t *field, uint64_t value) {
    uint64_t seen = __atomic_load_n(field, __ATOMIC_RELAXED);
    while (seen < value &&
           !__atomic_compare_exchange_n(field, &seen, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

void kdb_removed(uint64_t launches) {
    struct kdb_process *p = kdb_process;
    uint64_t sum = atomic_fetch_add(&p->removed, launches) + launches;
    struct kdbt_header *header = atomic_load(&p->header);
    if (header)
        raise_to(&header->removed, sum);
}

uint32_t kdb_new_id(void) {
    return atomic_fetch_add(&kdb_process->ids, 1) + 1;
}

/* ---- blocks ---- */

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
    t->launches += (bytes - sizeof head) / sizeof(struct kdbt_launch);
    __atomic_store_n(&t->block->launches, t->launches, __ATOMIC_RELAXED);
    __atomic_store_n(&t->block->run, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&run->bytes, bytes, __ATOMIC_RELEASE);
    t->run = NULL;
    t->full = NULL;
}

static void unmap(struct kdb_thread *t) {
    size_t before = (uintptr_t)t->block & (kdb_page - 1);
    munmap((char *)t->block - before, (size_t)(t->end - (unsigned char *)t->block) + before);
    t->block = NULL;
    t->key = NULL;
}

static void leave_block(struct kdb_thread *t) {
    struct kdbt_block *block = t->block;
    uint32_t open = 0;
    if (!block)
        return;
    close_run(t);
    if (!__atomic_compare_exchange_n(&block->closed, &open, 1, false, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE))
        kdb_removed(t->launches - block->counted); /* its file is gone: see empty() of part.c */
    else if (atomic_load(&kdb_part_of(t->generation)->generation) != t->generation) {
        open = 1;
        if (__atomic_compare_exchange_n(&block->closed, &open, 2, false, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE))
            kdb_removed(t->launches);
    }
    unmap(t);
}

/* Room in the part: a whole block, or what is left of one. When none is left, stop: 0. Rotate: what the
 * event in flight still needs, beyond the limit. */
static uint64_t claim(struct kdb_part *part, uint64_t want, uint64_t size, uint64_t *offset) {
    uint64_t end = atomic_load(&part->end), take;
    do {
        uint64_t room = kdb_part_limit > end ? kdb_part_limit - end : 0;
        take = size <= room ? size : want <= room ? room : want;
        if (want > room && !kdb_rotates)
            return 0;
    } while (!atomic_compare_exchange_weak(&part->end, &end, end + take));
    *offset = end;
    return take;
}

/* The next block's size, if nothing forces another: with a limit, no thread takes too much of it. */
static uint32_t grown(uint32_t bytes) {
    uint64_t most = kdb_part_limit / 16 & ~(uint64_t)(KDBT_BLOCK_ALIGN - 1);
    most = most < KDBT_BLOCK_ALIGN ? KDBT_BLOCK_ALIGN : most > LAST_BLOCK ? LAST_BLOCK : most;
    return (uint32_t)(bytes > most ? most : bytes);
}

/* A new block with room for `bytes`. Out of descriptors is a moment's trouble: this event is lost,
 * the next one tries again. Anything else stops the recording; so does a failed mmap, since each
 * attempt takes room in the file. */
static bool next_block(struct kdb_thread *t, size_t bytes) {
    struct kdb_part *part = kdb_part_of(t->generation);
    if (kdb_phase() == KDB_OFF || atomic_load(&part->generation) != t->generation)
        return false;
    struct kdb_quiet quiet = kdb_quiet_begin();
    size_t want =
        (bytes + sizeof(struct kdbt_block) + KDBT_BLOCK_ALIGN - 1) & ~(size_t)(KDBT_BLOCK_ALIGN - 1);
    uint64_t offset = 0, size = 0;
    int error = 0, fd = kdb_part_open(part);
    if (fd < 0) {
        error = errno;
        if (!kdb_passing(error))
            kdb_stop(t->generation, error);
        kdb_quiet_end(quiet);
        return false;
    }
    size = claim(part, want, want > t->block_bytes ? want : t->block_bytes, &offset);
    size_t before = offset & (kdb_page - 1); /* pages of 64 KiB hold many blocks: mapped by each owner */
    void *map = MAP_FAILED;
    if (!size)
        error = KDBT_STOP_LIMIT;
    else if (!kdb_may_grow(offset + size))
        error = EFBIG;
    else
        error = kdb_allocate(fd, offset, size);
    if (!error && (map = mmap(NULL, before + size, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                              (off_t)(offset - before))) == MAP_FAILED)
        error = errno;
    close(fd);
#ifdef MADV_POPULATE_WRITE
    if (map != MAP_FAILED) /* or each 512th launch would fault; a kernel before 5.14 knows no better */
        madvise(map, before + size, MADV_POPULATE_WRITE);
#endif
    if (map == MAP_FAILED) {
        kdb_stop(t->generation, error);
        kdb_quiet_end(quiet);
        return false;
    }
    if (offset + size > kdb_part_limit)
        kdb_part_full(t->generation);
    leave_block(t);
    raise_to(&part->header->file_bytes, offset + size); /* a shorter file was cut */
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
    t->launches = 0;
    t->filled += size;
    uint64_t eighth = t->filled / 8 & ~(uint64_t)(KDBT_BLOCK_ALIGN - 1);
    if (eighth > t->block_bytes) /* what is left unused at the end is an eighth of the whole at most */
        t->block_bytes = grown(eighth < LAST_BLOCK ? (uint32_t)eighth : LAST_BLOCK);
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

/* What the gate is for. Not what others refer to, nor the answer to a statement that is written. */
static bool gated(int type) {
    return type == KDBT_STATEMENT || type == KDBT_PROBLEM || type == KDBT_CALL || type == KDBT_COMPILE ||
           type == KDBT_GRAPH;
}

bool kdb_put(struct kdb_thread *t, int type, uint32_t id, uint64_t ticks, const void *a, size_t a_bytes,
             const void *b, size_t b_bytes, const void *c, size_t c_bytes) {
    if (kdb_use_tsc && kdb_ticks() - t->clock_ticks > CLOCK_EVERY)
        clock_point(t);
    if (KDB_UNLIKELY(atomic_load_explicit(&kdb_gate, memory_order_relaxed)) && gated(type) &&
        !kdb_gate_passes(t)) {
        kdb_left_out(t);
        return false;
    }
    bool done = put(t, type, id, ticks, a, a_bytes, b, b_bytes, c, c_bytes);
    if (!done)
        kdb_drop();
    return done;
}

uint32_t kdb_text(struct kdb_thread *t, int type, const void *text, size_t bytes) {
    uint32_t id = kdb_new_id();
    return kdb_put(t, type, id, kdb_ticks(), text, bytes, NULL, 0, NULL, 0) ? id : 0;
}

uint32_t kdb_api_id(struct kdb_thread *t, enum kdb_hook hook) {
    _Atomic uint64_t *said = &kdb_process->api_ids[hook];
    uint64_t known = atomic_load_explicit(said, memory_order_acquire);
    if (known >> 32 == t->generation)
        return (uint32_t)known;
    uint32_t id = kdb_text(t, KDBT_API, kdb_hook_names[hook], strlen(kdb_hook_names[hook]));
    if (id)
        atomic_store_explicit(said, (uint64_t)t->generation << 32 | id, memory_order_release);
    return id;
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
    t->full = t->end - sizeof launch + 1;
    __atomic_store_n(&t->block->run, (uint64_t)((char *)run - (char *)t->block), __ATOMIC_RELAXED);
    t->run_ticks = ticks >> KDBT_TICK_SHIFT;
    publish(t);
    return true;
}

/* ---- threads ---- */

static pthread_key_t at_exit_key;
static _Atomic uint32_t have_key;

static void end_of(struct kdb_thread *t) {
    if (t->first == kdb_process->first)
        leave_block(t);
    else if (t->block)
        unmap(t); /* the parent's, from before a fork */
    munmap(t, sizeof *t);
}

static void thread_ends(void *state) {
    struct kdb_thread *t = state, *next = put_aside;
    kdb_self = put_aside = NULL; /* a hook in a later destructor begins anew */
    while (next) {
        struct kdb_thread *other = next;
        next = other->before;
        end_of(other);
    }
    end_of(t);
}

void kdb_writer_setup(void) {
    if (pthread_key_create(&at_exit_key, thread_ends) == 0)
        atomic_store(&have_key, 1);
}

static struct kdb_thread *new_thread(void) {
    enum { ASIDE = 16 };
    struct kdb_thread *t, **last = &put_aside;
    int n = 0;
    for (; *last && n < ASIDE - 1; n++)
        last = &(*last)->before;
    if ((t = *last) != NULL) { /* the oldest of many: it is used again */
        *last = t->before;
        if (t->block)
            unmap(t);
        memset(t, 0, offsetof(struct kdb_thread, scratch));
    } else {
        t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (t == MAP_FAILED)
            return NULL;
    }
    kdb_self = t;
    if (atomic_load(&have_key))
        pthread_setspecific(at_exit_key, t);
    return t;
}

/* A thread's first event in this part: it knows nothing that it could refer to. */
struct kdb_thread *kdb_enter_slowly(void) {
    struct kdb_process *p = kdb_process;
    struct kdb_thread *t = kdb_self, *before = t ? t->before : put_aside;
    uint32_t generation = kdb_part_ready(), number = 0, sequence = 0;
    if (!generation) {
        kdb_drop();
        return NULL;
    }
    struct kdb_quiet quiet = kdb_quiet_begin();
    if (!t && !(t = new_thread())) {
        kdb_drop();
        kdb_quiet_end(quiet);
        return NULL;
    }
    if (t->first == p->first) {
        leave_block(t);
        number = t->number;
    } else if (t->block) {
        unmap(t); /* the parent's, from before a fork */
    }
    if (before && before->first == p->first) {
        number = before->number;
        sequence = before->generation == generation ? before->sequence : 0;
    }
    memset(t, 0, offsetof(struct kdb_thread, scratch));
    t->generation = generation;
    t->first = p->first;
    t->before = before;
    t->number = number ? number : atomic_fetch_add(&p->threads, 1) + 1;
    t->sequence = sequence;
    t->tid = (uint32_t)syscall(SYS_gettid);
    bool least = kdb_part_limit < UINT64_MAX || sequence || t->number > LARGE_FIRST;
    t->block_bytes = least ? KDBT_BLOCK_ALIGN : FIRST_BLOCK;
    t->clock_ticks = kdb_ticks();
    kdb_quiet_end(quiet);
    bool first = atomic_exchange(&p->facts_in, generation) != generation;
    if (first)
        kdb_first_facts(t);
    kdb_ranges_so_far(t, first);
    return t;
}
