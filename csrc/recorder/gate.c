/* What the user selected (csrc/selection.h, docs/selection.md), while the program runs.
 *
 * The gate is for every kind of event: closed while paused, or with regions while no range of such a
 * name is open in any thread. Kernel, device and numbers are for launches. A kernel is judged once, when
 * it is first asked for, never at a launch. What is left out is counted in the trace's header, by groups
 * of threads: four threads that leave out nearly all would fight for one counter. */
#include "gate.h"
#include "ranges.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { CLOSED = KDB_PAUSED | KDB_OUTSIDE };
enum { COUNTERS = 65536 }; /* kernels times devices that can be numbered */
enum { DEPTH = 1024 };     /* of pushes that can be of a selected name: as many as ranges.c keeps */

_Atomic uint32_t kdb_gate;
static struct kdb_counter never; /* of launches that are never kept */
static struct kdbt_selection selection;
static char given[KDBT_SELECT_BYTES];
static _Atomic uint32_t cause;
static _Atomic uint64_t told; /* whether the trace says that the gate is closed, and a count of changes */

/* ---- set-up ---- */

static void toggle(int number) {
    (void)number;
    atomic_store(&cause, KDBT_GATE_SIGNAL);
    atomic_fetch_xor(&kdb_gate, KDB_PAUSED);
    atomic_fetch_or(&kdb_gate, KDB_GATE_CHANGED);
}

static void *pattern(void) {
    char why[8];
    void *made = atomic_load(&kdb_process->pattern), *other = NULL;
    if (made || !selection.kernel)
        return made;
    /* Of this process alone: after a fork the parent's may be locked for ever. */
    made = kdbt_pattern_new(selection.text + selection.kernel, why, sizeof why);
    if (made && !atomic_compare_exchange_strong(&kdb_process->pattern, &other, made)) {
        kdbt_pattern_free(made);
        return other;
    }
    return made;
}

/* ---- regions ---- */

struct stack { /* pushes of this thread, and which have a selected name */
    uint64_t selected[DEPTH / 64];
    uint32_t depth;
};
static _Thread_local struct stack stack;
static struct kdb_map starts = {.value_bytes = 4}; /* open starts of a selected name, by hash of their id */
static _Atomic int32_t open_ranges, open_starts;   /* of selected names; the first counts both kinds */
static pthread_key_t at_exit_key;
static bool have_key;

static void opened(int by) {
    bool outside;
    atomic_fetch_add(&open_ranges, by);
    do { /* until the bit says what the count says, whoever else is at it */
        outside = atomic_load(&open_ranges) <= 0;
        uint32_t bit = KDB_OUTSIDE;
        uint32_t before = outside ? atomic_fetch_or(&kdb_gate, bit) : atomic_fetch_and(&kdb_gate, ~bit);
        if (!(before & bit) == outside) {
            atomic_store(&cause, KDBT_GATE_REGION);
            atomic_fetch_or(&kdb_gate, KDB_GATE_CHANGED);
        }
    } while ((atomic_load(&open_ranges) <= 0) != outside);
}

static bool popped(void) {
    if (!stack.depth || --stack.depth >= DEPTH)
        return false;
    uint64_t *word = &stack.selected[stack.depth / 64], bit = 1ull << stack.depth % 64;
    bool selected = *word & bit;
    *word &= ~bit;
    return selected;
}

static void pushed(bool selected) {
    if (selected && stack.depth < DEPTH) {
        stack.selected[stack.depth / 64] |= 1ull << stack.depth % 64;
        opened(1);
    }
    if (!stack.depth++ && have_key)
        pthread_setspecific(at_exit_key, &stack);
}

/* A thread ends inside of ranges: they are popped, in the trace too, while its writer is still there. */
static void thread_ends(void *unused) {
    (void)unused;
    struct kdb_thread *t = kdb_self ? kdb_enter() : NULL;
    while (stack.depth) {
        struct kdbt_range range = {KDBT_RANGE_POP, 0, 0};
        if (kdb_range_pop() && t)
            kdb_put(t, KDBT_RANGE, 0, kdb_ticks(), &range, sizeof range, NULL, 0, NULL, 0);
        if (popped())
            opened(-1);
    }
    if (t) {
        kdb_gate_passes(t);
        kdb_leave();
    }
}

/* The other threads are not in the child; what they started can still be stopped there. */
static void child_after_fork(void) {
    int32_t mine = 0;
    for (int i = 0; i < DEPTH / 64; i++)
        mine += __builtin_popcountll(stack.selected[i]);
    atomic_store(&open_ranges, atomic_load(&open_starts) + mine);
    opened(0);
}

void kdb_region(struct kdb_thread *t, int op, const char *name, uint64_t id) {
    uint64_t hash = kdb_hash(6, &id, sizeof id);
    uint32_t one = 1;
    if (!selection.regions)
        return;
    bool selected = name && kdbt_select_region(&selection, name);
    if (op == KDBT_RANGE_PUSH) {
        pushed(selected);
    } else if (op == KDBT_RANGE_POP) {
        if (popped())
            opened(-1);
    } else if (op == KDBT_RANGE_START && selected) {
        kdb_map_set(&starts, hash, &one);
        atomic_fetch_add(&open_starts, 1);
        opened(1);
    } else if (op == KDBT_RANGE_STOP && kdb_map_get(&starts, hash, &one)) {
        kdb_map_drop(&starts, hash);
        atomic_fetch_sub(&open_starts, 1);
        opened(-1);
    }
    if (t)
        kdb_gate_passes(t);
}

/* ---- the gate ---- */

bool kdb_gate_setup(void) {
    const char *text = getenv("KDBTOOL_SELECT");
    char why[160];
    kdbt_select_parse(&selection, "", why, sizeof why);
    if (!text || !*text)
        return true;
    if (kdbt_select_parse(&selection, text, why, sizeof why) != 0 || (selection.kernel && !pattern())) {
        kdb_say("KDBTOOL_SELECT is not understood", EINVAL); /* to record everything would be to lie */
        return false;
    }
    strcpy(given, text);
    uint32_t gate = kdbt_select_judges(&selection) ? KDB_CHOOSY : 0;
    if (selection.regions) {
        have_key = pthread_key_create(&at_exit_key, thread_ends) == 0;
        pthread_atfork(NULL, NULL, child_after_fork);
        gate |= KDB_OUTSIDE;
    }
    if (selection.paused)
        gate |= KDB_PAUSED;
    atomic_store(&cause, selection.paused ? KDBT_GATE_START : KDBT_GATE_REGION);
    atomic_store(&kdb_gate, gate);
    if (selection.signal) { /* in every rank: who is sent it by mistake shall not die of it */
        struct sigaction action = {.sa_handler = toggle, .sa_flags = SA_RESTART | SA_ONSTACK};
        sigemptyset(&action.sa_mask);
        sigaction(selection.signal, &action, NULL);
    }
    return kdbt_select_rank(&selection, kdb_find_rank().rank);
}

/* One that is not open is told to each part. */
void kdb_gate_begins(struct kdb_thread *t) {
    if (!*given)
        return;
    if (!kdb_part_of(t->generation)->number)
        kdb_fact(t, "select", given);
    atomic_fetch_and(&told, ~(uint64_t)1);
    atomic_fetch_or(&kdb_gate, KDB_GATE_CHANGED);
    kdb_gate_passes(t);
}

static uint64_t ticks_after_loads(void) {
#if defined(__x86_64__)
    _mm_lfence(); /* or the counter is read before `told`, and changes are told in no order of time */
#endif
    return kdb_ticks();
}

static void tell(struct kdb_thread *t) {
    atomic_fetch_and(&kdb_gate, ~(uint32_t)KDB_GATE_CHANGED);
    for (;;) { /* until nobody has changed it meanwhile */
        uint64_t before = atomic_load(&told), ticks = ticks_after_loads();
        uint32_t closed = (atomic_load(&kdb_gate) & CLOSED) != 0;
        if ((before & 1) == closed)
            return;
        if (!atomic_compare_exchange_strong(&told, &before, before + 1))
            continue;
        struct kdbt_gate gate = {!closed, atomic_load(&cause)};
        kdb_put(t, KDBT_GATE, 0, ticks, &gate, sizeof gate, NULL, 0, NULL, 0);
    }
}

/* A compiler's own process has no gate: it is part of the call that started it. */
bool kdb_gate_passes(struct kdb_thread *t) {
    uint32_t now = atomic_load(&kdb_gate);
    if (kdb_header_facts.role != KDBT_ROLE_HOST)
        return true;
    if (now & KDB_GATE_CHANGED) {
        tell(t);
        now = atomic_load(&kdb_gate);
    }
    return !(now & CLOSED);
}

void kdb_left_out(struct kdb_thread *t) {
    t->left_out++;
    char *page = (char *)kdb_part_of(t->generation)->header;
    struct kdbt_left_out *left_out = (struct kdbt_left_out *)(page + KDBT_LEFT_OUT_AT);
    size_t groups = sizeof *left_out / 64;
    __atomic_fetch_add(&left_out->events[t->number % groups * 8], 1, __ATOMIC_RELAXED);
}

/* ---- launches ---- */

bool kdb_kernel_selected(const char *symbol) {
    if (!selection.kernel)
        return true;
    struct kdb_quiet quiet = kdb_quiet_begin();
    bool matches = pattern() && kdbt_pattern_matches(pattern(), symbol);
    kdb_quiet_end(quiet);
    return matches;
}

/* Each key once, whoever comes first: two counters of one kernel would keep twice as much. */
static struct kdb_counter *counter(uint64_t key) {
    struct kdb_counter *all = atomic_load(&kdb_process->counters), *other = NULL;
    if (!all) {
        struct kdb_quiet quiet = kdb_quiet_begin();
        size_t bytes = COUNTERS * sizeof *all;
        all = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all == MAP_FAILED)
            all = NULL;
        else if (!atomic_compare_exchange_strong(&kdb_process->counters, &other, all)) {
            munmap(all, bytes);
            all = other;
        }
        kdb_quiet_end(quiet);
    }
    for (uint32_t i = 0; all && i < COUNTERS; i++) {
        struct kdb_counter *c = &all[(key + i) % COUNTERS];
        uint64_t empty = 0;
        if (atomic_load(&c->key) == key || atomic_compare_exchange_strong(&c->key, &empty, key) ||
            empty == key)
            return c;
    }
    return &never;
}

struct kdb_counter *kdb_counter_of(const struct kdb_told *kernel, uint32_t device) {
    if (kernel->left_out || !kdbt_select_device(&selection, device))
        return &never;
    if (!kdbt_select_numbers(&selection))
        return NULL;
    /* By its name and its module's code: a module that is loaded twice is one. */
    struct kdbt_module module = {0};
    if (kernel->module)
        memcpy(&module, kernel->module->payload, sizeof module);
    size_t head = sizeof(struct kdbt_kernel);
    uint64_t hash = kdb_hash(device, module.md5, sizeof module.md5);
    hash = kdb_hash(hash, &module.size, sizeof module.size); /* a large one has no MD5 */
    return counter(kdb_hash(hash, kernel->payload + head, kernel->bytes - head));
}

bool kdb_keeps(struct kdb_thread *t, struct kdb_counter *c) {
    if (kdb_gate_passes(t) &&
        (!c || (c != &never && kdbt_select_nth(&selection, atomic_fetch_add_explicit(&c->launches, 1,
                                                                                     memory_order_relaxed)))))
        return true;
    kdb_left_out(t);
    return false;
}
