/* The recorder inside: what its files share.
 *
 * A hook does three things: find the real function (resolve.c), call it with the host's own
 * arguments, and write down what happened (writer.c) between kdb_enter and kdb_leave. Nothing of
 * ours is on during the real call, so hooks nest and exceptions pass through. Nothing here
 * allocates from the host's heap, takes a lock, or prints (but see kdb_say). */
#ifndef KDB_INTERNAL_H
#define KDB_INTERNAL_H
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "trace_format.h"

/* Exported, and not preemptible from inside: the thunks jump straight to it. */
#define KDB_EXPORT __attribute__((visibility("protected")))
#define KDB_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define KDB_LIKELY(x) __builtin_expect(!!(x), 1)

/* What is only declared here would else be looked up by way of the GOT. */
#pragma GCC visibility push(hidden)

struct kdb_dim3 {
    uint32_t x, y, z;
};
struct kdb_perf { /* miopenConvAlgoPerf_t */
    int algorithm;
    float time;
    size_t memory;
};
struct kdb_solution { /* miopenConvSolution_t */
    float time;
    size_t workspace;
    uint64_t id;
    int algorithm;
};

struct kdb_argument { /* miopenTensorArgument_t */
    int32_t id;
    void **descriptor;
    void *buffer;
};

struct kdb_handle { /* amd_comgr_data_t, amd_comgr_data_set_t, amd_comgr_action_info_t */
    uint64_t handle;
};

enum kdb_library {
    KDB_LIB_HIP,
    KDB_LIB_MIOPEN,
    KDB_LIB_SQLITE,
    KDB_LIB_HIPRTC,
    KDB_LIB_COMGR,
    KDB_LIB_ROCTX,
    KDB_LIBRARIES
};
enum kdb_hook {
#define KDB_HOOK(library, need, name, params, result) KDB_##name,
#include "hooks.def"
#undef KDB_HOOK
    KDB_HOOKS
};
#define KDB_HOOK(library, need, name, params, result) typedef result(*kdb_fn_##name) params;
#include "hooks.def"
#undef KDB_HOOK
#define KDB_HOOK(library, need, name, params, result) KDB_EXPORT result name params;
#include "hooks.def"
#undef KDB_HOOK

/* What a hook returns when there is no real function: the library's own "unknown error". */
enum {
    KDB_ERROR_HIP = 999,
    KDB_ERROR_MIOPEN = 7,
    KDB_ERROR_SQLITE = 1,
    KDB_ERROR_HIPRTC = 11,
    KDB_ERROR_COMGR = 1
};

/* What nearly every hook reads of its thread: in one place, found by one load. */
struct kdb_local {
    _Atomic(void *) *forced; /* set by a thunk (hooks_dl.c: at offset 0): this slot, not the caller's */
    struct kdb_thread *self;
    /* The stack pointer of the event that this thread is in the middle of, 0 if none; odd: it is
     * counted as lost. */
    _Atomic uintptr_t busy;
    int device; /* the current one, as far as the thread said */
};
extern _Thread_local struct kdb_local kdb_local;
#define kdb_forced kdb_local.forced
#define kdb_self kdb_local.self
#define kdb_device kdb_local.device
#define kdb_busy kdb_local.busy

/* ---- resolve.c ---- */
struct kdb_caller { /* calls that come out of [low, high) go to `real` */
    struct kdb_caller *next;
    uintptr_t low, high;
    _Atomic(void *) real;
    _Atomic uint32_t epoch;
};
struct kdb_object { /* a loaded library or program */
    uintptr_t low, high;
    const char *path; /* "" for the program itself */
    const void *dynamic;
    uintptr_t base;
    uint8_t build_id[32];
    uint32_t build_id_bytes;
};
enum { KDB_SLOTS = 4 }; /* libraries whose function a dlsym can give out apart, per hook */
extern const char *const kdb_hook_names[KDB_HOOKS];
extern const uint8_t kdb_hook_library[KDB_HOOKS];
extern _Atomic(struct kdb_caller *) kdb_callers[KDB_HOOKS];
extern _Atomic uint32_t kdb_epoch; /* counted up when a library may have gone */
extern _Atomic(void *) kdb_slot_real[KDB_HOOKS * KDB_SLOTS];
void *kdb_resolve(enum kdb_hook hook, const void *caller);
bool kdb_object_at(const void *address, struct kdb_object *object);
void *kdb_symbol_at(const void *address, const char *name); /* in the object that has `address` */
void kdb_find_dlsym(void);                     /* the real ones, and where a host's own calls go on */
extern void *kdb_dlsym_real, *kdb_dlvsym_real; /* libc's; NULL: not there */
/* By libc's dlsym, with a version by its dlvsym; our own address is NULL. */
void *kdb_look_up(void *handle, const char *name, const char *version);
void *kdb_dlsym(void *handle, const char *name); /* without a version */
/* What the library at `path`, which is loaded, finds in itself and what it depends on. */
void *kdb_in_dependencies_of(const char *path, const char *name, const char *version);
bool kdb_is_ours(const void *address);
void *kdb_thunk_for(const char *name, void *real); /* NULL: not a hook, or no slot left */

static inline void *kdb_real(enum kdb_hook hook, const void *caller) {
    _Atomic(void *) *slot = kdb_forced;
    if (KDB_UNLIKELY(slot != NULL) && (size_t)(slot - kdb_slot_real) / KDB_SLOTS == (size_t)hook) {
        kdb_forced = NULL;
        return atomic_load_explicit(slot, memory_order_relaxed);
    }
    uint32_t epoch = atomic_load_explicit(&kdb_epoch, memory_order_acquire);
    for (struct kdb_caller *c = atomic_load_explicit(&kdb_callers[hook], memory_order_acquire); c;
         c = c->next)
        if ((uintptr_t)caller - c->low < c->high - c->low &&
            atomic_load_explicit(&c->epoch, memory_order_acquire) == epoch)
            return atomic_load_explicit(&c->real, memory_order_relaxed);
    return kdb_resolve(hook, caller);
}
/* The real function for whoever called this hook; NULL if there is none. */
#define KDB_REAL(name) ((kdb_fn_##name)kdb_real(KDB_##name, __builtin_return_address(0)))
/* It as `real`; where there is none the hook returns `error`. */
#define KDB_REAL_OR(name, error)                                                                             \
    kdb_fn_##name real = KDB_REAL(name);                                                                     \
    if (!real)                                                                                               \
    return error

/* ---- map.c: from an address or a hash to a small value, without locks ---- */
struct kdb_map {
    uint32_t value_bytes; /* a multiple of 4 */
    _Atomic(void *) level[10];
};
bool kdb_map_get(struct kdb_map *map, uint64_t key, void *value);
void kdb_map_set(struct kdb_map *map, uint64_t key, const void *value);
void kdb_map_drop(struct kdb_map *map, uint64_t key);
uint64_t kdb_hash(uint64_t seed, const void *data, size_t bytes);
struct kdb_id { /* an id, and the trace (process) that it belongs to */
    uint32_t id, generation;
};

/* ---- gate.c ---- */
extern _Atomic uint32_t kdb_gate; /* 0: every event is kept */
enum {
    KDB_PAUSED = 1,
    KDB_OUTSIDE = 2,
    KDB_GATE_CHANGED = 4,
    KDB_CHOOSY = 8 /* single launches are judged */
};

/* ---- writer.c ---- */
enum { KDB_SHAPES = 512, KDB_SHAPE_WORDS = 6, KDB_SCRATCH = 65536 };
struct kdb_shape_slot {
    const void *function;
    uint32_t epoch, id;
    struct kdb_counter *counter;     /* NULL: each launch is kept */
    struct kdb_shape_slot *next;     /* of the launch that came after this one the last time */
    uint64_t shape[KDB_SHAPE_WORDS]; /* see struct kdb_words of launch.h */
};
struct kdb_thread {
    uint32_t generation, number, tid, sequence;
    uint32_t first;            /* of the process that it belongs to: a forked child finds its parent's here */
    struct kdb_thread *before; /* the writer that this one took the place of: see kdb_abandoned */
    struct kdbt_block *block;
    unsigned char *at, *end;   /* where the next record goes */
    struct kdbt_record *run;   /* launches still being added; NULL if none */
    const unsigned char *full; /* from here on the run takes no more; NULL if there is none */
    uint64_t run_ticks;        /* of the last launch, shifted */
    uint64_t launches;         /* in the block's runs that are whole */
    uint64_t left_out;         /* events that the selection left out */
    uint64_t clock_ticks;      /* of the last clock record */
    uint32_t block_bytes;      /* the next block's */
    uint64_t filled;           /* bytes of all blocks so far */
    uint32_t key_id, key_name_bytes, key_args_bytes;
    const unsigned char *key;     /* the last key's bytes, in the block */
    struct kdb_shape_slot *shape; /* of the last launch; NULL before the first */
    struct kdb_shape_slot shapes[KDB_SHAPES];
    unsigned char scratch[KDB_SCRATCH];
};
enum kdb_phase { KDB_NO_FILE, KDB_MAKING_IT, KDB_RECORDING, KDB_OFF };
/* One file of the process. An event in flight ends in the part that it began in, so a part's place is
 * used again only long after its file is gone. */
struct kdb_part {
    _Atomic uint32_t generation; /* 0: none, or its file is gone */
    uint32_t number;
    _Atomic uint64_t end; /* where the next block goes */
    uint64_t device, inode;
    struct kdbt_header *header; /* stays mapped: when the file is gone, to memory that nobody reads */
};
enum { KDB_PARTS = 16, KDB_PARTS_KEPT = 4, KDB_LEAST_ROTATED = 1048576 };
/* Wiped in a forked child (MADV_WIPEONFORK), so that a child finds no file. What is remembered of
 * what a trace says (ids, facts) goes with the generation it was said in: each part says it anew. */
struct kdb_process {
    _Atomic uint64_t state;      /* generation << 2 | enum kdb_phase */
    _Atomic uint32_t generation; /* of the newest part; 0: there is none, or a new one is wanted */
    uint32_t first;              /* generation of part 0 */
    _Atomic uint32_t ids, threads;
    _Atomic uint64_t lost;                /* events before there was a file to count them in */
    _Atomic uint64_t removed;             /* launches in parts that are gone */
    _Atomic uint64_t left_out;            /* counted in parts that are gone, for the next one */
    _Atomic uint32_t deepbound;           /* see struct kdbt_header */
    _Atomic(struct kdbt_header *) header; /* of the newest part */
    _Atomic uint32_t facts_in;            /* generation whose part has the facts */
    _Atomic(struct kdb_told *) facts;     /* for the parts to come */
    _Atomic uint32_t said[KDB_LIBRARIES]; /* facts of that library are written */
    _Atomic uint32_t devices_said;
    _Atomic(void *) pattern;                /* gate.c: of this process alone, as are */
    _Atomic(struct kdb_counter *) counters; /* the numbers of launches */
    _Atomic uint64_t api_ids[KDB_HOOKS];    /* generation << 32 | id */
    uint32_t oldest;                        /* number of the oldest part that is still there */
    char name[240];                         /* of all parts, without number and suffix */
    struct kdb_part parts[KDB_PARTS];
};
extern struct kdb_process *kdb_process;
extern _Atomic uint32_t kdb_mode; /* 0 not looked at, 1 inert, 2 active */
void kdb_writer_setup(void);
struct kdb_thread *kdb_enter_slowly(void);
bool kdb_abandoned(uintptr_t stack); /* the event in flight will never end: this one may begin */
void kdb_drop(void);                 /* count the event in flight as lost, once */
void kdb_drop_another(void);         /* count an event that could not begin */
void kdb_removed(uint64_t launches);
uint32_t kdb_new_id(void);
/* Append a record of up to three parts. False: not written (counted). */
bool kdb_put(struct kdb_thread *t, int type, uint32_t id, uint64_t ticks, const void *a, size_t a_bytes,
             const void *b, size_t b_bytes, const void *c, size_t c_bytes);
uint32_t kdb_text(struct kdb_thread *t, int type, const void *text, size_t bytes); /* id; 0: not written */
uint32_t kdb_api_id(struct kdb_thread *t, enum kdb_hook hook);                     /* likewise */
bool kdb_launch_slowly(struct kdb_thread *t, uint32_t shape, uint64_t ticks);

/* ---- told.c: what a later part of the trace has to say again ---- */
struct kdb_told {
    _Atomic uint64_t id;     /* generation << 32 | id */
    struct kdb_told *module; /* of a kernel */
    struct kdb_told *next;   /* of the facts */
    bool left_out;           /* a kernel that is not selected */
    uint32_t type, bytes;    /* of the record */
    unsigned char payload[];
};
/* NULL: no memory. */
struct kdb_told *kdb_tell(int type, const void *a, size_t a_bytes, const void *b, size_t b_bytes,
                          const void *c, size_t c_bytes);
/* Its id in this thread's part, where it is written now if it was not yet; 0: not written. */
uint32_t kdb_told_id(struct kdb_thread *t, struct kdb_told *told);
struct kdb_told *kdb_tell_text(struct kdb_thread *t, int type, const void *text, size_t bytes);
void kdb_told_as(struct kdb_thread *t, struct kdb_told *told, uint32_t id);

/* ---- part.c ---- */
extern uint64_t kdb_part_limit; /* bytes of one part */
extern bool kdb_rotates;        /* a part that is full is followed by another; else recording stops */
uint32_t
kdb_part_ready(void); /* generation of the newest part, made now if there is none; 0: not recording */
int kdb_part_open(const struct kdb_part *part); /* no descriptor is kept that a host could close; -1: errno */
void kdb_part_full(uint32_t generation);        /* the next event begins another */
void kdb_stop(uint32_t generation, int error);
bool kdb_passing(int error);
static inline struct kdb_part *kdb_part_of(uint32_t generation) {
    return &kdb_process->parts[generation % KDB_PARTS];
}

/* ---- init.c ---- */
void kdb_setup(void);
bool kdb_may_grow(uint64_t bytes);
int kdb_allocate(int fd, uint64_t at, uint64_t bytes); /* room on the disk; 0 or an errno */
extern struct kdbt_header kdb_header_facts;            /* what each header of this program begins with */
uint64_t kdb_now_ns(void);
extern bool kdb_use_tsc;
extern size_t kdb_page; /* the kernel's page size */
extern char kdb_folder[3072];
void kdb_say(const char *what, int error); /* on stderr, with KDBTOOL_VERBOSE alone, once */
struct kdb_quiet {
    int error, cancel;
};
struct kdb_quiet kdb_quiet_begin(void); /* around system calls: errno and cancellation stay the host's */
void kdb_quiet_end(struct kdb_quiet q);

/* Whether it is worth noting what the host does, before there is any trace, too. */
static inline bool kdb_recording(void) {
    if (KDB_UNLIKELY(atomic_load_explicit(&kdb_mode, memory_order_acquire) == 0))
        kdb_setup();
    return atomic_load_explicit(&kdb_mode, memory_order_acquire) == 2;
}

static inline enum kdb_phase kdb_phase(void) {
    return (enum kdb_phase)(atomic_load_explicit(&kdb_process->state, memory_order_acquire) & 3);
}

/* There is one, or one is being made; a rotated one may be between two parts. */
static inline bool kdb_has_trace(void) {
    return atomic_load_explicit(&kdb_process->state, memory_order_acquire) != 0 && kdb_phase() != KDB_OFF;
}

static inline uint64_t kdb_ticks(void) {
#if defined(__x86_64__)
    if (kdb_use_tsc)
        return __rdtsc();
#endif
    return kdb_now_ns();
}

static inline __attribute__((always_inline)) uintptr_t kdb_stack(void) {
#if defined(__x86_64__)
    uintptr_t at;
    __asm__ volatile("mov %%rsp, %0" : "=r"(at));
    return at;
#else
    return (uintptr_t)__builtin_frame_address(0) & ~(uintptr_t)1;
#endif
}

/* The calling thread's writer, or NULL: inert, stopped, or in the middle of an event already (a
 * signal handler). */
static inline __attribute__((always_inline)) struct kdb_thread *kdb_enter_at(uintptr_t stack) {
    if (KDB_UNLIKELY(atomic_load_explicit(&kdb_mode, memory_order_acquire) != 2) && !kdb_recording())
        return NULL;
    if (KDB_UNLIKELY(atomic_load_explicit(&kdb_busy, memory_order_relaxed)) && !kdb_abandoned(stack)) {
        kdb_drop_another();
        return NULL;
    }
    atomic_store_explicit(&kdb_busy, stack, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    struct kdb_thread *t = kdb_self;
    if (KDB_UNLIKELY(!t ||
                     t->generation != atomic_load_explicit(&kdb_process->generation, memory_order_relaxed)))
        t = kdb_enter_slowly();
    if (KDB_UNLIKELY(!t))
        atomic_store_explicit(&kdb_busy, 0, memory_order_relaxed);
    return t;
}
static inline __attribute__((always_inline)) struct kdb_thread *kdb_enter(void) {
    return kdb_enter_at(kdb_stack());
}
static inline void kdb_leave(void) {
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(&kdb_busy, 0, memory_order_relaxed);
}

/* ---- facts.c ---- */
int kdb_role(int argc, char **argv, char *exe, size_t exe_bytes);
void kdb_fact(struct kdb_thread *t, const char *name, const char *value);
void kdb_first_facts(struct kdb_thread *t); /* of a part */
/* What is known of the library behind `address`, once per process. */
void kdb_library_facts(struct kdb_thread *t, enum kdb_library library, const void *address);
void kdb_device_facts(struct kdb_thread *t);
void kdb_saw_device(int device, const char *name, int units);
int kdb_device_named(int device, char *name, size_t room); /* its length, 0 not known; -1: no such number */
void kdb_saw_hip_version(int version);
bool kdb_getters_log(void); /* MIOpen's or HIP's API logging is on: never call a getter */

/* ---- child.c: of a compiler's process, at its begin ---- */
void kdb_child(struct kdb_thread *t, int role, int argc, char **argv, uint64_t ticks);

/* ---- rank.c ---- */
struct kdb_rank {
    int rank, size, local; /* each -1: not known */
};
struct kdb_rank kdb_find_rank(void); /* of this process within its job */

/* ---- hooks_roctx.c ---- */
/* A trace, or a thread in it, begins: the ROCTx ranges that are open already. */
void kdb_ranges_so_far(struct kdb_thread *t, bool first);

/* ---- hooks_hip.c, hooks_device.c ---- */
extern _Atomic uint32_t kdb_function_epoch; /* counted up when a handle changes its kernel or device */
/* The kernel behind a handle or the address of a host function, and its id; 0: not written. */
uint32_t kdb_function_kernel(struct kdb_thread *t, const void *function, struct kdb_told **kernel);
/* Of a stream, by where it was made; `current` for the null stream, or if that was not seen. */
int kdb_stream_device(uint64_t stream, int current);
#pragma GCC visibility pop
#endif
