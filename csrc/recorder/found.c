/* Fusion plans and Find 2.0: objects that a program puts together call by call. An address stands for
 * a content that is interned like a descriptor's; a solution is about the content of its problem. */
#include "describe.h"

enum { PARTS = 8, TENSORS = 40 };
struct part {      /* an operation */
    uint32_t kind; /* enum kdb_kind */
    int32_t direction, mode, unused;
    uint64_t desc, tensor; /* hashes: its descriptor; its weights or bias */
};
struct whole {
    uint32_t what, parts, tensors, unused;
    uint64_t input; /* of a plan */
    struct part part[PARTS];
    struct {
        uint32_t id, part; /* miopenTensorArgumentId_t of that part */
        uint64_t hash;
    } tensor[TENSORS];
};
struct about { /* what a whole is in the trace */
    struct kdb_told *told;
    uint64_t convolution;
};
struct solution {
    uint64_t hash, solver;
};

static struct kdb_map objects = {.value_bytes = sizeof(struct solution)}; /* address: content */
static struct kdb_map contents = {.value_bytes = sizeof(struct whole)};
static struct kdb_map abouts = {.value_bytes = sizeof(struct about)}; /* content: ids */

static bool content_of(const void *address, struct whole *w) {
    struct solution object;
    return address && kdb_map_get(&objects, (uintptr_t)address, &object) &&
           kdb_map_get(&contents, object.hash, w);
}

static void keep(const void *address, const struct whole *w) {
    struct whole known;
    struct solution object = {kdb_hash(5, w, sizeof *w), 0};
    if (!address)
        return;
    if (!kdb_map_get(&contents, object.hash, &known))
        kdb_map_set(&contents, object.hash, w);
    kdb_map_set(&objects, (uintptr_t)address, &object);
}

void kdb_whole_gone(const void *whole) {
    if (whole)
        kdb_map_drop(&objects, (uintptr_t)whole);
}

static void made(const void *address, enum kdb_whole what, uint64_t input) {
    struct whole w;
    memset(&w, 0, sizeof w);
    w.what = what;
    w.input = input;
    keep(address, &w);
}

/* One part more than there is room for, and the whole is not known. */
static void add_part(const void *address, const struct part *part) {
    struct whole w;
    if (!content_of(address, &w))
        return;
    if (w.parts == PARTS) {
        kdb_whole_gone(address);
        return;
    }
    w.part[w.parts++] = *part;
    keep(address, &w);
}

/* ---- fusion plans ---- */

void kdb_plan_made(const void *plan, const void *library, const void *input) {
    made(plan, KDB_PLAN, kdb_described(library, input, KDB_TENSOR));
}

void kdb_plan_op(const void *plan, const void *library, enum kdb_kind kind, int direction, int mode,
                 const void *conv, const void *tensor) {
    struct part part = {kind,
                        direction,
                        mode,
                        0,
                        kdb_described(library, conv, KDB_CONV),
                        kdb_described(library, tensor, KDB_TENSOR)};
    add_part(plan, &part);
}

/* ---- Find 2.0 ---- */

void kdb_problem_made(const void *problem, const void *library, enum kdb_kind kind, const void *desc,
                      int direction) {
    struct part part = {kind, direction, 0, 0, kdb_described(library, desc, kind), 0};
    made(problem, KDB_PROBLEM_OBJECT, 0);
    add_part(problem, &part);
}

void kdb_norm_problem_made(const void *problem, int mode, bool running, int direction) {
    struct kdb_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.kind = KDB_NORM;
    desc.plain.numbers[0] = mode;
    desc.plain.numbers[1] = running;
    struct part part = {KDB_NORM, direction, 0, 0, kdb_intern(&desc), 0};
    made(problem, KDB_PROBLEM_OBJECT, 0);
    add_part(problem, &part);
}

static uint64_t tensor_of(const struct whole *w, uint32_t part, uint32_t id) {
    for (uint32_t i = 0; i < w->tensors; i++)
        if (w->tensor[i].id == id && w->tensor[i].part == part)
            return w->tensor[i].hash;
    return KDB_UNKNOWN;
}

void kdb_problem_tensor(const void *problem, const void *library, uint32_t id, const void *tensor) {
    struct whole w;
    uint32_t i = 0;
    if (!content_of(problem, &w))
        return;
    while (i < w.tensors && w.tensor[i].id != id)
        i++;
    if (i == TENSORS) {
        kdb_whole_gone(problem);
        return;
    }
    w.tensors += i == w.tensors;
    w.tensor[i].id = id;
    w.tensor[i].hash = kdb_described(library, tensor, KDB_TENSOR);
    keep(problem, &w);
}

/* The second's operations follow those of the first, and stay what they are. */
void kdb_problems_fused(const void *first, const void *second) {
    struct whole a, b;
    if (!content_of(first, &a) || !content_of(second, &b) || a.parts + b.parts > PARTS ||
        a.tensors + b.tensors > TENSORS) {
        kdb_whole_gone(first);
        return;
    }
    for (uint32_t i = 0; i < b.tensors; i++) {
        a.tensor[a.tensors] = b.tensor[i];
        a.tensor[a.tensors++].part += a.parts;
    }
    memcpy(&a.part[a.parts], b.part, b.parts * sizeof *b.part);
    a.parts += b.parts;
    keep(first, &a);
}

void kdb_solutions_found(const void *problem, void *const *solutions, const size_t *count, size_t most) {
    struct solution object;
    bool known = problem && kdb_map_get(&objects, (uintptr_t)problem, &object);
    for (size_t i = 0; solutions && count && i < *count && i < most; i++)
        if (known)
            kdb_map_set(&objects, (uintptr_t)solutions[i], &object);
        else
            kdb_whole_gone(solutions[i]);
}

void kdb_solution_solver(const void *solution, const uint64_t *solver) {
    struct solution object;
    if (solver && solution && kdb_map_get(&objects, (uintptr_t)solution, &object) &&
        object.solver != *solver) {
        object.solver = *solver;
        kdb_map_set(&objects, (uintptr_t)solution, &object);
    }
}

uint64_t kdb_solver_of(const void *solution) {
    struct solution object;
    return solution && kdb_map_get(&objects, (uintptr_t)solution, &object) ? object.solver : 0;
}

/* ---- what a whole is about ---- */

enum { ID_CONV_X = 1, ID_CONV_W = 2, ID_CONV_Y = 3, ID_NAMES = 62 };
static const char *const tensor_names[ID_NAMES] = {"",
                                                   "x",
                                                   "w",
                                                   "y",
                                                   "k",
                                                   "q",
                                                   "v",
                                                   "descale_k",
                                                   "descale_q",
                                                   "descale_v",
                                                   "descale_s",
                                                   "scale_s",
                                                   "scale_o",
                                                   "dropout_probability",
                                                   "dropout_seed",
                                                   "dropout_offset",
                                                   "o",
                                                   "amax_o",
                                                   "amax_s",
                                                   "m",
                                                   "z_inv",
                                                   "do",
                                                   "descale_o",
                                                   "descale_do",
                                                   "descale_ds",
                                                   "scale_ds",
                                                   "scale_dq",
                                                   "scale_dk",
                                                   "scale_dv",
                                                   "dq",
                                                   "dk",
                                                   "dv",
                                                   "amax_dq",
                                                   "amax_dk",
                                                   "amax_dv",
                                                   "amax_ds",
                                                   "bias",
                                                   "x",
                                                   "y",
                                                   "dx",
                                                   "dy",
                                                   "x",
                                                   "y",
                                                   "bias",
                                                   "x",
                                                   "y",
                                                   "dx",
                                                   "dy",
                                                   "x",
                                                   "y",
                                                   "running_mean",
                                                   "running_variance",
                                                   "saved_mean",
                                                   "saved_variance",
                                                   "scale",
                                                   "dscale",
                                                   "mean",
                                                   "variance",
                                                   "bias",
                                                   "dbias",
                                                   "dx",
                                                   "dy"};

/* The convolution of a plan is forward, and nothing before it changes its input; that of fused problems
 * may have no tensor of its own for what comes out. */
static bool convolution_of(const struct whole *w, char *direction, uint64_t sides[KDB_SIDES]) {
    uint32_t i = 0;
    while (i < w->parts && w->part[i].kind != KDB_CONV)
        i++;
    if (i == w->parts)
        return false;
    const struct part *part = &w->part[i];
    bool plan = w->what == KDB_PLAN;
    *direction = part->direction >= 0 && part->direction <= 2 ? "FBW"[part->direction] : '?';
    sides[KDB_BY] = part->desc;
    sides[KDB_X] = plan ? w->input : tensor_of(w, i, ID_CONV_X);
    sides[KDB_W] = plan ? part->tensor : tensor_of(w, i, ID_CONV_W);
    sides[KDB_Y] = plan ? KDB_UNKNOWN : tensor_of(w, i, ID_CONV_Y);
    if (sides[KDB_Y] == KDB_UNKNOWN && *direction == 'F')
        sides[KDB_Y] = kdb_conv_output(sides[KDB_X], sides[KDB_W], sides[KDB_BY]);
    return true;
}

static struct kdb_told *detail_of(struct kdb_thread *t, uint64_t hash, const struct whole *w) {
    static const char *const names[2][PARTS] = {
        {"op1", "op2", "op3", "op4", "op5", "op6", "op7", "op8"},
        {"mode1", "mode2", "mode3", "mode4", "mode5", "mode6", "mode7", "mode8"}};
    struct kdb_item items[KDB_ITEMS];
    size_t n = 0;
    if (w->what == KDB_PLAN)
        items[n++] = (struct kdb_item){"input", KDB_TENSOR, 1, 0, w->input};
    for (uint32_t i = 0; i < w->parts; i++) {
        const struct part *part = &w->part[i];
        items[n++] = (struct kdb_item){names[0][i], KDB_PART, 1, 0, part->kind};
        if (w->what == KDB_PROBLEM_OBJECT || part->kind == KDB_NORM || part->kind == KDB_ACTIVATION)
            items[n++] =
                (struct kdb_item){"direction", KDB_DIRECTION, 1, 0, (uint64_t)(int64_t)part->direction};
        if (w->what == KDB_PROBLEM_OBJECT && part->desc > KDB_ABSENT)
            items[n++] = (struct kdb_item){"desc", (uint16_t)part->kind, 1, 0, part->desc};
        if (w->what == KDB_PLAN && part->kind == KDB_ACTIVATION)
            items[n++] = (struct kdb_item){names[1][i], KDB_ACTIVATION_MODE, 1, 0, (uint64_t)part->mode};
        if (w->what == KDB_PLAN && part->kind == KDB_NORM)
            items[n++] = (struct kdb_item){names[1][i], KDB_BN_MODE, 1, 0, (uint64_t)part->mode};
    }
    for (uint32_t i = 0; i < w->tensors && n < KDB_ITEMS; i++) {
        uint32_t id = w->tensor[i].id;
        const char *name = id < ID_NAMES ? tensor_names[id] : id == 0x80000001u ? "mask" : "scalar";
        items[n++] = (struct kdb_item){name, KDB_TENSOR, 1, 0, w->tensor[i].hash};
    }
    return kdb_detail(t, NULL, hash, items, n);
}

void kdb_whole_about(struct kdb_thread *t, const void *address, struct kdb_call *call) {
    static const struct kdb_item unknown = {"about", KDB_TENSOR, 1, 0, KDB_UNKNOWN};
    struct solution object;
    struct about about;
    struct whole w;
    uint64_t sides[KDB_SIDES];
    char direction;
    bool known = address && kdb_map_get(&objects, (uintptr_t)address, &object);
    bool told = known && kdb_map_get(&abouts, object.hash, &about);
    if (!known || (!told && !kdb_map_get(&contents, object.hash, &w))) {
        call->about = kdb_detail(t, NULL, 0, &unknown, 1);
        return;
    }
    if (!told) {
        about.convolution = convolution_of(&w, &direction, sides);
        about.told = about.convolution ? kdb_problem(t, direction, sides) : detail_of(t, object.hash, &w);
        if (about.told)
            kdb_map_set(&abouts, object.hash, &about);
    }
    call->convolution = about.convolution != 0;
    if (about.told)
        kdb_told_id(t, about.told);
    call->about = about.told;
}
