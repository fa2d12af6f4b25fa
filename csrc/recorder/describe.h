/* MIOpen's descriptors as the host set them, and what a call's record says of them.
 *
 * A descriptor is an address that the host owns; what it says is interned once, under the hash of its
 * content with its kind in the low bits (shadow.c). A hook looks up addresses, hashes the hashes, and
 * finds the id of a text that is in the trace already: text is made once per distinct call. */
#ifndef KDB_DESCRIBE_H
#define KDB_DESCRIBE_H
#include "internal.h"

enum kdb_kind {
    KDB_TENSOR = 2, /* with its kind in it, no hash is 0 or 1 */
    KDB_CONV,
    KDB_POOL, /* from here on struct kdb_plain; its fields are in detail.c */
    KDB_ACTIVATION,
    KDB_LRN,
    KDB_SOFTMAX,
    KDB_REDUCE,
    KDB_RNN,
    KDB_DROPOUT,
    KDB_CTC,
    KDB_MHA,
    KDB_SEQUENCE,
    KDB_BACKEND,
    KDB_NORM, /* of a Find 2.0 problem */
    KDB_BIAS, /* the same; it has no content */
    KDB_KINDS,
    KDB_KIND_BITS = 31
};
enum { KDB_DIMS = 8, KDB_NONE = -1, KDB_NUMBERS = 13, KDB_REALS = 3 };
struct kdb_tensor {
    int32_t type, cast, layout, dims; /* layout: miopenTensorLayout_t or KDB_NONE: by strides */
    int64_t lens[KDB_DIMS], strides[KDB_DIMS];
};
struct kdb_conv {
    int32_t dims, mode, groups; /* dims: spatial; mode 1 is transposed */
    int32_t pads[3], strides[3], dilations[3];
};
struct kdb_plain {
    int32_t numbers[KDB_NUMBERS + 1]; /* the last one is padding */
    double reals[KDB_REALS];
};
struct kdb_desc {
    uint32_t kind, unused;
    union {
        struct kdb_tensor tensor;
        struct kdb_conv conv;
        struct kdb_plain plain;
    };
};

/* ---- shadow.c: every content starts as zeroes, its padding included ---- */
void kdb_seen(const void *address, const struct kdb_desc *desc);
void kdb_forget(const void *address);
uint64_t kdb_intern(const struct kdb_desc *desc);            /* its hash */
bool kdb_content(uint64_t hash, struct kdb_desc *desc);      /* of an interned one */
enum { KDB_UNKNOWN = 0, KDB_ABSENT = 1 };                    /* instead of a hash: not seen; NULL */
uint64_t kdb_known(const void *address, enum kdb_kind kind); /* as it was seen */
/* As it was seen, else as the getter in `library` says, unless getters would log. */
uint64_t kdb_described(const void *library, const void *address, enum kdb_kind kind);
bool kdb_tensor_fill(struct kdb_tensor *t, int type, int layout, int dims, const int64_t *lens,
                     const int64_t *strides);

/* ---- setters.c ---- */
void kdb_tensor_set(const void *desc, int type, int layout, int dims, const int *lens, const int *strides);
void kdb_tensor_set_wide(const void *desc, int type, int dims, const size_t *lens, const size_t *strides);
void kdb_tensor_cast(const void *desc, int type);
void kdb_tensor_derived(const void *desc, const void *x_desc, int mode);
void kdb_conv_set(const void *desc, int dims, const int *pads, const int *strides, const int *dilations,
                  int mode);
void kdb_conv_groups(const void *desc, int groups);
void kdb_plain_set(const void *desc, enum kdb_kind kind, size_t n, const int *numbers, size_t m,
                   const double *reals);
void kdb_plain_change(const void *desc, enum kdb_kind kind, int at, int number);
void kdb_pool_set(const void *desc, int mode, int dims, const int *window, const int *pads,
                  const int *strides);
double kdb_dropout_rate(const void *desc);

/* ---- ask.c: the getters, for a descriptor that was set before the recorder could see it ---- */
bool kdb_ask(const void *library, const void *address, struct kdb_desc *desc);

/* ---- text.c: numbers as text, whatever the host's locale, without memory ---- */
struct kdb_line {
    char *at;
    size_t room, used; /* used > room: it did not fit */
};
__attribute__((format(printf, 2, 3))) void kdb_add(struct kdb_line *line, const char *format, ...);
/* The shortest that reads back: as a float, where a float holds the value. */
void kdb_add_real(struct kdb_line *line, double value);

/* ---- problem.c ---- */
const char *kdb_type_name(int type); /* NULL: not one of miopenDataType_t */
/* A convolution: the hashes of x, w, y as in the forward direction, and of its descriptor. */
enum { KDB_X, KDB_W, KDB_Y, KDB_BY, KDB_SIDES };
/* The problem key, NULL if a descriptor is not known. `direction`: F, B or W, as the function's name
 * says: a transposed one turns it round here. */
struct kdb_told *kdb_problem(struct kdb_thread *t, char direction, const uint64_t sides[KDB_SIDES]);
size_t kdb_problem_key(char *text, size_t room, const struct kdb_tensor *in, const struct kdb_tensor *w,
                       const struct kdb_tensor *out, const struct kdb_conv *conv, char direction);
/* What a convolution makes of x and w: its hash, or KDB_UNKNOWN. */
uint64_t kdb_conv_output(uint64_t x, uint64_t w, uint64_t conv);

/* ---- detail.c ---- */
enum kdb_saying {                          /* kinds of items that are no descriptor */
                  KDB_TENSORS = KDB_KINDS, /* `count` addresses at `value` */
                  KDB_NUMBER,
                  KDB_INTS, /* `count` int32_t at `value` */
                  KDB_REAL,
                  KDB_BN_MODE, /* enums by name */
                  KDB_NORM_MODE,
                  KDB_TENSOR_OP,
                  KDB_SOFTMAX_ALGORITHM,
                  KDB_SOFTMAX_MODE,
                  KDB_REDUCTION,
                  KDB_EXTREME,
                  KDB_CALCULATION,
                  KDB_FORWARD_MODE,
                  KDB_DIRECTION,
                  KDB_ACTIVATION_MODE,
                  KDB_PART, /* enum kdb_kind */
                  KDB_SAYINGS
};
enum { KDB_ITEMS = 72 };
struct kdb_item {
    const char *name;
    uint16_t kind;   /* enum kdb_kind: `value` is its address; or enum kdb_saying */
    uint16_t hashed; /* 1: `value` is a hash already */
    uint32_t count;
    uint64_t value;
};
/* The text, NULL if there is none. `of`: what tells lists of different items apart. */
struct kdb_told *kdb_detail(struct kdb_thread *t, const void *library, uint64_t of,
                            const struct kdb_item *items, size_t n);

/* ---- calls.c: around the real call ---- */
struct kdb_call {
    uint64_t ticks;
    struct kdb_told
        *about; /* the problem's key or the detail: the trace may go on in another part meanwhile */
    bool convolution, nested;
};
void kdb_begin(struct kdb_call *call, enum kdb_hook hook, const void *real, const void *caller,
               const struct kdb_item *items, size_t n);
void kdb_begin_conv(struct kdb_call *call, enum kdb_hook hook, const void *real, const void *caller,
                    char direction, const void *x, const void *w, const void *y, const void *conv);
/* A call with a fusion plan, a problem or a solution: one with a convolution has its key. */
void kdb_begin_whole(struct kdb_call *call, enum kdb_hook hook, const void *real, const void *caller,
                     const void *whole);
/* Writes the record; returns `result`. */
int kdb_end(const struct kdb_call *call, enum kdb_hook hook, int result, int algorithm, uint64_t solution,
            uint64_t space);

/* ---- found.c: fusion plans and Find 2.0 ---- */
enum kdb_whole { KDB_PLAN = 1, KDB_PROBLEM_OBJECT };
/* What a plan, a problem or a solution is about: the key of its convolution, or its detail. */
void kdb_whole_about(struct kdb_thread *t, const void *whole, struct kdb_call *call);
void kdb_whole_gone(const void *whole);
void kdb_plan_made(const void *plan, const void *library, const void *input);
/* `direction`: 0 forward, 1 backward, 4 inference; `mode`: of an activation or batch norm. */
void kdb_plan_op(const void *plan, const void *library, enum kdb_kind kind, int direction, int mode,
                 const void *conv, const void *tensor);
void kdb_problem_made(const void *problem, const void *library, enum kdb_kind kind, const void *desc,
                      int direction);
void kdb_norm_problem_made(const void *problem, int mode, bool running, int direction);
void kdb_problem_tensor(const void *problem, const void *library, uint32_t id, const void *tensor);
void kdb_problems_fused(const void *first, const void *second);
void kdb_solutions_found(const void *problem, void *const *solutions, const size_t *count, size_t most);
void kdb_solution_solver(const void *solution, const uint64_t *solver);
uint64_t kdb_solver_of(const void *solution); /* 0 not known */
#endif
