/* Descriptors as the host set them, and MIOpen's own key of a convolution.
 *
 * The rules are those of MIOpen (src/tensor.cpp, src/conv/problem_description.cpp, develop of
 * 2024-10-24, checked against 6.4.3's own user find-db): lengths and strides of a vectorised layout
 * are reordered and divided; without a layout the strides decide, by descending (stride, length);
 * then the first of NCHW, NHWC, CHWN, NCDHW that fits all three tensors replaces theirs. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>

static struct kdb_map tensors = {.value_bytes = sizeof(struct kdb_tensor)};
static struct kdb_map convs = {.value_bytes = sizeof(struct kdb_conv)};
static struct kdb_map problems = {.value_bytes = sizeof(struct kdb_id)};

/* miopenTensorLayout_t 0 to 8 */
static const char *const layouts[] = {"NCHW",  "NHWC",  "CHWN",  "NCHWc", "NCHWc",
                                      "CHWNc", "CHWNc", "NCDHW", "NDHWC"};
static const uint8_t vectors[] = {1, 1, 1, 4, 8, 4, 8, 1, 1};
/* miopenDataType_t 0 to 9; 4 was INT8x4 up to 5.7 */
static const char *const types[] = {"FP16", "FP32", "INT32", "INT8", "INT8x4",
                                    "BF16", "FP64", "FP8",   "BF8",  "INT64"};

static int vector_of(const struct kdb_tensor *t) {
    return t->layout >= 0 && t->layout <= 8 ? vectors[t->layout] : 1;
}
static bool is_chwnc(const struct kdb_tensor *t) {
    return t->layout == 5 || t->layout == 6;
}
static const char *storage(const struct kdb_tensor *t) {
    return is_chwnc(t) ? "CHWN" : t->dims == 5 ? "NCDHW" : "NCHW";
}

bool kdb_tensor_fill(struct kdb_tensor *t, int type, int layout, int dims, const int64_t *lens,
                     const int64_t *strides) {
    memset(t, 0, sizeof *t);
    if (dims < 4 || dims > KDB_DIMS || layout > 8)
        return false;
    t->type = type;
    t->cast = KDB_NONE;
    t->dims = dims;
    t->layout = strides ? KDB_NONE : layout >= 0 ? layout : dims == 5 ? 7 : 0;
    for (int i = 0; i < dims; i++)
        t->lens[i] = lens[i];
    if (strides) {
        for (int i = 0; i < dims; i++)
            t->strides[i] = strides[i];
        return true;
    }
    if ((t->layout >= 7) != (dims == 5))
        return false;
    int vector = vector_of(t);
    if (is_chwnc(t))
        for (int i = 0; i < 4; i++)
            t->lens[i] = lens[(i + 1) & 3];
    if (vector > 1)
        t->lens[is_chwnc(t) ? 0 : 1] /= vector;
    /* packed: the last letter of the layout varies fastest */
    const char *order = vector > 1 ? storage(t) : layouts[t->layout];
    int64_t step = vector;
    for (int i = dims - 1; i >= 0; i--) {
        int at = (int)(strchr(storage(t), order[i]) - storage(t));
        t->strides[at] = step;
        step *= t->lens[at];
    }
    return true;
}

void kdb_tensor_seen(const void *desc, const struct kdb_tensor *tensor) {
    if (desc && tensor)
        kdb_map_set(&tensors, (uintptr_t)desc, tensor);
    else if (desc)
        kdb_map_drop(&tensors, (uintptr_t)desc);
}

void kdb_tensor_cast(const void *desc, int type) {
    struct kdb_tensor t;
    if (desc && kdb_map_get(&tensors, (uintptr_t)desc, &t)) {
        t.cast = type;
        kdb_map_set(&tensors, (uintptr_t)desc, &t);
    }
}

void kdb_conv_seen(const void *desc, const struct kdb_conv *conv) {
    if (desc && conv)
        kdb_map_set(&convs, (uintptr_t)desc, conv);
    else if (desc)
        kdb_map_drop(&convs, (uintptr_t)desc);
}

void kdb_conv_groups(const void *desc, int groups) {
    struct kdb_conv c;
    if (desc && kdb_map_get(&convs, (uintptr_t)desc, &c)) {
        c.groups = groups;
        kdb_map_set(&convs, (uintptr_t)desc, &c);
    }
}

/* ---- the key ---- */

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

static void own_layout(const struct kdb_tensor *t, char text[8]) {
    int order[KDB_DIMS];
    if (t->layout >= 0) {
        strcpy(text, layouts[t->layout]);
        return;
    }
    for (int i = 0; i < t->dims; i++) { /* a stable sort: MIOpen's find_permutation */
        int j = i;
        for (; j > 0; j--) {
            int p = order[j - 1];
            if (t->strides[p] > t->strides[i] || (t->strides[p] == t->strides[i] && t->lens[p] >= t->lens[i]))
                break;
            order[j] = p;
        }
        order[j] = i;
    }
    for (int i = 0; i < t->dims; i++)
        text[i] = storage(t)[order[i]];
    text[t->dims] = 0;
}

static bool named(int type) {
    return type >= 0 && type < (int)(sizeof types / sizeof *types);
}

struct text {
    char *at;
    size_t room, used;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *text, const char *format, ...) {
    va_list list;
    va_start(list, format);
    int n = vsnprintf(text->at + (text->used < text->room ? text->used : 0),
                      text->used < text->room ? text->room - text->used : 0, format, list);
    va_end(list);
    text->used += n > 0 ? (size_t)n : 0;
}

static void add_sizes(struct text *text, const struct kdb_tensor *t, char separator) {
    int first = is_chwnc(t) ? 1 : 2, last = is_chwnc(t) ? 3 : t->dims;
    for (int i = first; i < last; i++)
        add(text, "%c%lld", i == first ? '-' : separator, (long long)t->lens[i]);
}

static void add_list(struct text *text, const int32_t *values, int n) {
    for (int i = 0; i < n; i++)
        add(text, "%c%d", i ? 'x' : '-', values[i]);
}

size_t kdb_problem_key(char *room, size_t bytes, const struct kdb_tensor *in, const struct kdb_tensor *w,
                       const struct kdb_tensor *out, const struct kdb_conv *conv, char direction) {
    static const char *const shared[] = {"NCHW", "NHWC", "CHWN", "NCDHW"};
    const struct kdb_tensor *const all[3] = {in, w, out};
    char own[3][8];
    struct text text = {room, bytes, 0};
    for (int i = 0; i < 3; i++) {
        if (all[i]->dims != conv->dims + 2 || !named(all[i]->type) ||
            (all[i]->cast >= 0 && !named(all[i]->cast)))
            return 0;
        own_layout(all[i], own[i]);
    }
    for (int i = 0; i < 4; i++)
        if (fits(in, shared[i]) && fits(w, shared[i]) && fits(out, shared[i])) {
            for (int k = 0; k < 3; k++)
                strcpy(own[k], shared[i]);
            break;
        }
    add(&text, "%lld", (long long)in->lens[1]);
    add_sizes(&text, in, '-');
    add_sizes(&text, w, 'x');
    add(&text, "-%lld", (long long)out->lens[1]);
    add_sizes(&text, out, '-');
    add(&text, "-%lld", (long long)in->lens[0]);
    add_list(&text, conv->pads, conv->dims);
    add_list(&text, conv->strides, conv->dims);
    add_list(&text, conv->dilations, conv->dims);
    bool plain = strcmp(own[0], own[1]) == 0 && strcmp(own[0], own[2]) == 0 &&
                 (strcmp(own[0], "NCHW") == 0 || strcmp(own[0], "NCDHW") == 0);
    add(&text, plain ? "-0-%s" : "-0-%s-%s-%s", own[0], own[1], own[2]);
    bool same = in->type == w->type && in->type == out->type;
    add(&text, same ? "-%s" : "-%s%s%s", types[in->type], types[w->type], types[out->type]);
    add(&text, "-%c", direction);
    if (conv->groups != 1)
        add(&text, "_g%d", conv->groups);
    for (int i = 0; i < 3; i++)
        if (all[i]->cast >= 0)
            add(&text, "_c%c%s", "iwo"[i], types[all[i]->cast]);
    return text.used < bytes ? text.used : 0;
}

/* ---- of a call ---- */

/* The getters, for a descriptor that was set before the recorder could see it. */
static bool ask_tensor(const void *library, const void *desc, struct kdb_tensor *t) {
    int (*size)(const void *, int *) =
        (int (*)(const void *, int *))kdb_symbol_at(library, "miopenGetTensorDescriptorSize");
    int (*get)(const void *, int *, int *, int *) =
        (int (*)(const void *, int *, int *, int *))kdb_symbol_at(library, "miopenGetTensorDescriptor");
    int dims = 0, type = 0, lens[KDB_DIMS], strides[KDB_DIMS];
    int64_t l[KDB_DIMS], s[KDB_DIMS];
    if (!desc || !size || !get || size(desc, &dims) != 0 || dims < 4 || dims > KDB_DIMS ||
        get(desc, &type, lens, strides) != 0)
        return false;
    for (int i = 0; i < dims; i++) {
        l[i] = lens[i];
        s[i] = strides[i];
    }
    return kdb_tensor_fill(t, type, KDB_NONE, dims, l, s);
}

static bool ask_conv(const void *library, const void *desc, struct kdb_conv *c) {
    int (*size)(const void *, int *) =
        (int (*)(const void *, int *))kdb_symbol_at(library, "miopenGetConvolutionSpatialDim");
    int (*get)(const void *, int, int *, int *, int *, int *, int *) =
        (int (*)(const void *, int, int *, int *, int *, int *, int *))kdb_symbol_at(
            library, "miopenGetConvolutionNdDescriptor");
    int (*groups)(const void *, int *) =
        (int (*)(const void *, int *))kdb_symbol_at(library, "miopenGetConvolutionGroupCount");
    int dims = 0;
    memset(c, 0, sizeof *c);
    return desc && size && get && groups && size(desc, &dims) == 0 && dims >= 2 && dims <= 3 &&
           get(desc, dims, &c->dims, c->pads, c->strides, c->dilations, &c->mode) == 0 && c->dims == dims &&
           groups(desc, &c->groups) == 0;
}

static bool know_tensor(const void *library, const void *desc, struct kdb_tensor *t) {
    if (!desc || kdb_map_get(&tensors, (uintptr_t)desc, t))
        return desc != NULL;
    if (kdb_getters_log() || !ask_tensor(library, desc, t))
        return false;
    kdb_tensor_seen(desc, t);
    return true;
}

uint32_t kdb_problem(struct kdb_thread *t, const void *library, char direction, const void *x, const void *w,
                     const void *y, const void *conv) {
    struct {
        struct kdb_tensor in, w, out;
        struct kdb_conv conv;
        uint32_t direction, unused;
    } p;
    memset(&p, 0, sizeof p);
    if (!conv || !know_tensor(library, w, &p.w))
        return 0;
    if (!kdb_map_get(&convs, (uintptr_t)conv, &p.conv)) {
        if (kdb_getters_log() || !ask_conv(library, conv, &p.conv))
            return 0;
        kdb_conv_seen(conv, &p.conv);
    }
    /* MIOpen src/convolution_api.cpp, Make*CtxAndProblem: a transposed convolution swaps forward and
     * backward and, with them, the sides; weights keep their letter. */
    bool transposed = p.conv.mode == 1;
    bool x_first = direction == 'F' || (direction == 'W' && transposed);
    if (direction != 'W' && transposed)
        direction = direction == 'F' ? 'B' : 'F';
    if (!know_tensor(library, x_first ? x : y, &p.in) || !know_tensor(library, x_first ? y : x, &p.out))
        return 0;
    p.direction = (uint32_t)direction;
    struct kdb_id id;
    uint64_t hash = kdb_hash(2, &p, sizeof p);
    if (kdb_map_get(&problems, hash, &id) && id.generation == t->generation)
        return id.id;
    size_t bytes = kdb_problem_key((char *)t->scratch, KDB_SCRATCH, &p.in, &p.w, &p.out, &p.conv, direction);
    id.id = bytes ? kdb_text(t, KDBT_PROBLEM_KEY, t->scratch, bytes) : 0;
    id.generation = t->generation;
    if (id.id)
        kdb_map_set(&problems, hash, &id);
    return id.id;
}
