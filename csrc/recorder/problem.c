/* MIOpen's own key of a convolution, as its find-db spells it.
 *
 * The rules are those of MIOpen (src/tensor.cpp, src/conv/problem_description.cpp, develop of
 * 2024-10-24, checked against 6.4.3's own user find-db): without a layout the strides decide, by
 * descending (stride, length); then the first of NCHW, NHWC, CHWN, NCDHW that fits all three tensors
 * replaces theirs. */
#include "describe.h"

static struct kdb_map problems = {.value_bytes = sizeof(struct kdb_told *)};

/* miopenTensorLayout_t 0 to 8 */
static const char *const layouts[] = {"NCHW",  "NHWC",  "CHWN",  "NCHWc", "NCHWc",
                                      "CHWNc", "CHWNc", "NCDHW", "NDHWC"};
/* miopenDataType_t 0 to 9; 4 was INT8x4 up to 5.7 */
static const char *const types[] = {"FP16", "FP32", "INT32", "INT8", "INT8x4",
                                    "BF16", "FP64", "FP8",   "BF8",  "INT64"};

const char *kdb_type_name(int type) {
    return type >= 0 && type < (int)(sizeof types / sizeof *types) ? types[type] : NULL;
}

static int vector_of(const struct kdb_tensor *t) {
    return t->layout == 3 || t->layout == 5 ? 4 : t->layout == 4 || t->layout == 6 ? 8 : 1;
}
static bool is_chwnc(const struct kdb_tensor *t) {
    return t->layout == 5 || t->layout == 6;
}
static const char *storage(const struct kdb_tensor *t) {
    return is_chwnc(t) ? "CHWN" : t->dims == 5 ? "NCDHW" : "NCHW";
}

static bool fits(const struct kdb_tensor *t, const char *layout) {
    const char *stored = storage(t);
    if (vector_of(t) > 1 || (int)strlen(layout) != t->dims)
        return false;
    for (int i = 0; i + 1 < t->dims; i++)
        if (t->strides[strchr(stored, layout[i]) - stored] <
            t->strides[strchr(stored, layout[i + 1]) - stored])
            return false;
    return true;
}

/* Dimensions from the slowest to the fastest: a stable sort, MIOpen's find_permutation. */
static void order_of(const struct kdb_tensor *t, int order[KDB_DIMS]) {
    for (int i = 0; i < t->dims; i++) {
        int j = i;
        for (; j > 0; j--) {
            int p = order[j - 1];
            if (t->strides[p] > t->strides[i] || (t->strides[p] == t->strides[i] && t->lens[p] >= t->lens[i]))
                break;
            order[j] = p;
        }
        order[j] = i;
    }
}

static void own_layout(const struct kdb_tensor *t, char text[8]) {
    int order[KDB_DIMS];
    if (t->layout >= 0) {
        strcpy(text, layouts[t->layout]);
        return;
    }
    order_of(t, order);
    for (int i = 0; i < t->dims; i++)
        text[i] = storage(t)[order[i]];
    text[t->dims] = 0;
}

static void add_sizes(struct kdb_line *line, const struct kdb_tensor *t, char separator) {
    int first = is_chwnc(t) ? 1 : 2, last = is_chwnc(t) ? 3 : t->dims;
    for (int i = first; i < last; i++)
        kdb_add(line, "%c%lld", i == first ? '-' : separator, (long long)t->lens[i]);
}

static void add_list(struct kdb_line *line, const int32_t *values, int n) {
    for (int i = 0; i < n; i++)
        kdb_add(line, "%c%d", i ? 'x' : '-', values[i]);
}

size_t kdb_problem_key(char *room, size_t bytes, const struct kdb_tensor *in, const struct kdb_tensor *w,
                       const struct kdb_tensor *out, const struct kdb_conv *conv, char direction) {
    static const char *const shared[] = {"NCHW", "NHWC", "CHWN", "NCDHW"};
    const struct kdb_tensor *const all[3] = {in, w, out};
    char own[3][8];
    struct kdb_line line = {room, bytes, 0};
    for (int i = 0; i < 3; i++) {
        if (all[i]->dims != conv->dims + 2 || all[i]->dims < 4 || all[i]->dims > 5 ||
            !kdb_type_name(all[i]->type) || (all[i]->cast >= 0 && !kdb_type_name(all[i]->cast)))
            return 0;
        own_layout(all[i], own[i]);
    }
    for (int i = 0; i < 4; i++)
        if (fits(in, shared[i]) && fits(w, shared[i]) && fits(out, shared[i])) {
            for (int k = 0; k < 3; k++)
                strcpy(own[k], shared[i]);
            break;
        }
    kdb_add(&line, "%lld", (long long)in->lens[1]);
    add_sizes(&line, in, '-');
    add_sizes(&line, w, 'x');
    kdb_add(&line, "-%lld", (long long)out->lens[1]);
    add_sizes(&line, out, '-');
    kdb_add(&line, "-%lld", (long long)in->lens[0]);
    add_list(&line, conv->pads, conv->dims);
    add_list(&line, conv->strides, conv->dims);
    add_list(&line, conv->dilations, conv->dims);
    bool plain = strcmp(own[0], own[1]) == 0 && strcmp(own[0], own[2]) == 0 &&
                 (strcmp(own[0], "NCHW") == 0 || strcmp(own[0], "NCDHW") == 0);
    if (plain)
        kdb_add(&line, "-0-%s", own[0]);
    else
        kdb_add(&line, "-0-%s-%s-%s", own[0], own[1], own[2]);
    kdb_add(&line, "-%s", types[in->type]);
    if (in->type != w->type || in->type != out->type)
        kdb_add(&line, "%s%s", types[w->type], types[out->type]);
    kdb_add(&line, "-%c", direction);
    if (conv->groups != 1)
        kdb_add(&line, "_g%d", conv->groups);
    for (int i = 0; i < 3; i++)
        if (all[i]->cast >= 0)
            kdb_add(&line, "_c%c%s", "iwo"[i], types[all[i]->cast]);
    return line.used < bytes ? line.used : 0;
}

struct kdb_told *kdb_problem(struct kdb_thread *t, char direction, const uint64_t sides[KDB_SIDES]) {
    struct kdb_desc x, w, y, conv;
    struct kdb_told *told;
    uint64_t hash = kdb_hash((uint64_t)direction, sides, KDB_SIDES * sizeof *sides);
    if (kdb_map_get(&problems, hash, &told)) {
        kdb_told_id(t, told);
        return told;
    }
    if (!kdb_content(sides[KDB_X], &x) || !kdb_content(sides[KDB_W], &w) || !kdb_content(sides[KDB_Y], &y) ||
        !kdb_content(sides[KDB_BY], &conv))
        return NULL;
    /* MIOpen src/convolution_api.cpp, Make*CtxAndProblem: a transposed convolution swaps forward and
     * backward and, with them, the sides; weights keep their letter. */
    bool transposed = conv.conv.mode == 1;
    bool x_first = direction == 'F' || (direction == 'W' && transposed);
    if (direction != 'W' && transposed)
        direction = direction == 'F' ? 'B' : 'F';
    struct kdb_quiet quiet = kdb_quiet_begin();
    size_t bytes = kdb_problem_key((char *)t->scratch, KDB_SCRATCH, x_first ? &x.tensor : &y.tensor,
                                   &w.tensor, x_first ? &y.tensor : &x.tensor, &conv.conv, direction);
    kdb_quiet_end(quiet);
    told = bytes ? kdb_tell_text(t, KDBT_PROBLEM_KEY, t->scratch, bytes) : NULL;
    if (told)
        kdb_map_set(&problems, hash, &told);
    return told;
}

/* MIOpen src/convolution.cpp, GetForwardOutputTensor, of a packed layout; not transposed. An int8 convolution
 * makes int32, any other its own type. */
uint64_t kdb_conv_output(uint64_t x_hash, uint64_t w_hash, uint64_t conv_hash) {
    struct kdb_desc x, w, by, out;
    int order[KDB_DIMS];
    int64_t step = 1;
    if (!kdb_content(x_hash, &x) || !kdb_content(w_hash, &w) || !kdb_content(conv_hash, &by))
        return KDB_UNKNOWN;
    const struct kdb_tensor *in = &x.tensor, *filter = &w.tensor;
    const struct kdb_conv *conv = &by.conv;
    if (in->dims != conv->dims + 2 || filter->dims != in->dims || conv->mode == 1 || vector_of(in) > 1 ||
        vector_of(filter) > 1)
        return KDB_UNKNOWN;
    memset(&out, 0, sizeof out);
    out.kind = KDB_TENSOR;
    out.tensor.type = in->type == 3 ? 2 : in->type;
    out.tensor.cast = KDB_NONE;
    out.tensor.layout = in->layout;
    out.tensor.dims = in->dims;
    out.tensor.lens[0] = in->lens[0];
    out.tensor.lens[1] = filter->lens[0];
    for (int i = 0; i < conv->dims; i++) {
        int64_t covers = 1 + conv->dilations[i] * (filter->lens[i + 2] - 1);
        if (conv->strides[i] < 1)
            return KDB_UNKNOWN;
        int64_t size = (in->lens[i + 2] - covers + 2 * (int64_t)conv->pads[i]) / conv->strides[i] + 1;
        out.tensor.lens[i + 2] = size > 1 ? size : 1;
    }
    order_of(in, order);
    for (int i = in->dims - 1; i >= 0; i--) {
        out.tensor.strides[order[i]] = step;
        step *= out.tensor.lens[order[i]];
    }
    return kdb_intern(&out);
}
