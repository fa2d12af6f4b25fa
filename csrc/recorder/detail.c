/* What the record of a call says of its descriptors: name=value, by blanks.
 *
 * A tensor is its type and lengths, `FP32[2,8,16,16]`, with `/[strides]` where they are not those of
 * rows one after another, `:NCHWc4` for a vectorised layout, `->FP8` for a cast. `?` is a descriptor
 * that was set out of sight, `-` none. What can be another at each step (learning rates, step counts,
 * averaging factors, seeds) is left out: each distinct text is in the trace once. */
#include "describe.h"

enum { LONGEST = 4096, RUNS = 32 }; /* bytes of one text; different tensors of one list */

static struct kdb_map details = {.value_bytes = sizeof(struct kdb_told *)}; /* by what is said */
static struct kdb_map texts = {.value_bytes = sizeof(struct kdb_told *)};   /* by the text */

/* ---- enums, in MIOpen's order (miopen.h) ---- */

static const char *const bn_modes[] = {"per-activation", "spatial", NULL};
static const char *const norm_modes[] = {
    "elementwise",    "weight-bias", "elementwise-fused-add", "weight-bias-fused-add", "elementwise-t5",
    "weight-bias-t5", NULL};
static const char *const tensor_ops[] = {"add", "mul", "min", "max", NULL};
static const char *const softmax_algorithms[] = {"fast", "accurate", "log", NULL};
static const char *const softmax_modes[] = {"instance", "channel", NULL};
static const char *const reductions[] = {"none", "sum", "mean", NULL};
static const char *const extremes[] = {"", "argmin", "argmax", "min", "max", NULL};
static const char *const calculations[] = {"", "prod", "sum", NULL};
static const char *const forward_modes[] = {"training", "inference", NULL};
static const char *const directions[] = {"forward", "backward", "weights", "", "inference", NULL};
static const char *const pool_modes[] = {"max", "average", "average-inclusive", NULL};
static const char *const index_types[] = {"uint8", "uint16", "uint32", "uint64", NULL};
static const char *const index_modes[] = {"mask", "image", NULL};
static const char *const activations[] = {"passthru", "logistic",     "tanh",       "relu", "softrelu", "abs",
                                          "power",    "clipped-relu", "leaky-relu", "elu",  "clamp",    NULL};
static const char *const lrn_modes[] = {"within-channel", "cross-channel", NULL};
static const char *const reduce_ops[] = {"add", "mul", "min", "max", "amax", "avg", "norm1", "norm2", NULL};
static const char *const reduce_indices[] = {"none", "flattened", NULL};
static const char *const index_bits[] = {"32", "64", "16", "8", NULL};
static const char *const rnn_modes[] = {"relu", "tanh", "lstm", "gru", NULL};
static const char *const rnn_inputs[] = {"linear", "skip", NULL};
static const char *const rnn_directions[] = {"one", "both", NULL};
static const char *const rnn_algorithms[] = {"default", "fundamental", NULL};
static const char *const rnn_layouts[] = {"unknown", "seq-major-unpadded", "seq-major", "batch-major", NULL};
/* enum kdb_kind */
static const char *const parts[] = {"",    "",         "",       "conv",      "pool",    "activation",
                                    "lrn", "softmax",  "reduce", "rnn",       "dropout", "ctc",
                                    "mha", "sequence", "graph",  "batchnorm", "bias",    NULL};
static const char *const backends[] = {"convolution",
                                       "engine",
                                       "engine-config",
                                       "engine-heuristic",
                                       "execution-plan",
                                       "intermediate-info",
                                       "knob-choice",
                                       "knob-info",
                                       "layout-info",
                                       "matmul",
                                       "op-concat",
                                       "op-convolution-backward-data",
                                       "op-convolution-backward-filter",
                                       "op-convolution-forward",
                                       "op-gen-stats",
                                       "op-matmul",
                                       "op-norm-backward",
                                       "op-norm-forward",
                                       "op-pointwise",
                                       "op-reduction",
                                       "op-resample-backward",
                                       "op-resample-forward",
                                       "op-reshape",
                                       "op-rng",
                                       "op-signal",
                                       "operation-graph",
                                       "pointwise",
                                       "reduction",
                                       "resample",
                                       "rng",
                                       "tensor",
                                       "variant-pack",
                                       NULL};

static const char *const *const sayings[KDB_SAYINGS] = {[KDB_BN_MODE] = bn_modes,
                                                        [KDB_NORM_MODE] = norm_modes,
                                                        [KDB_TENSOR_OP] = tensor_ops,
                                                        [KDB_SOFTMAX_ALGORITHM] = softmax_algorithms,
                                                        [KDB_SOFTMAX_MODE] = softmax_modes,
                                                        [KDB_REDUCTION] = reductions,
                                                        [KDB_EXTREME] = extremes,
                                                        [KDB_CALCULATION] = calculations,
                                                        [KDB_FORWARD_MODE] = forward_modes,
                                                        [KDB_DIRECTION] = directions,
                                                        [KDB_ACTIVATION_MODE] = activations,
                                                        [KDB_PART] = parts};

/* ---- descriptors that are a few numbers ---- */

static const char *const data_type[] = {NULL}, *const sizes[] = {NULL}, *const hidden[] = {NULL};
struct field { /* a number: by name in `names`; `sizes` are three numbers of which the second number counts */
    const char *name;
    const char *const *names;
};
struct shape {
    struct field numbers[KDB_NUMBERS];
    const char *reals[KDB_REALS];
};
static const struct shape shapes[KDB_KINDS] = {
    [KDB_POOL] = {{{"pool", pool_modes},
                   {"", hidden},
                   {"window", sizes},
                   {"", hidden},
                   {"", hidden},
                   {"pads", sizes},
                   {"", hidden},
                   {"", hidden},
                   {"strides", sizes},
                   {"", hidden},
                   {"", hidden},
                   {"index", index_types},
                   {"index_mode", index_modes}},
                  {NULL}},
    [KDB_ACTIVATION] = {{{"activation", activations}}, {"alpha", "beta", "gamma"}},
    [KDB_LRN] = {{{"lrn", lrn_modes}, {"n", NULL}}, {"alpha", "beta", "k"}},
    [KDB_SOFTMAX] = {{{"softmax", softmax_algorithms}, {"mode", softmax_modes}}, {"alpha", "beta"}},
    [KDB_REDUCE] = {{{"reduce", reduce_ops},
                     {"type", data_type},
                     {"nan", NULL},
                     {"indices", reduce_indices},
                     {"index_bits", index_bits}},
                    {NULL}},
    [KDB_RNN] = {{{"rnn", rnn_modes},
                  {"hidden", NULL},
                  {"layers", NULL},
                  {"input", rnn_inputs},
                  {"directions", rnn_directions},
                  {"bias", NULL},
                  {"algorithm", rnn_algorithms},
                  {"type", data_type},
                  {"padded", NULL}},
                 {"dropout"}},
    [KDB_DROPOUT] = {{{"mask", NULL}, {"rng", NULL}}, {"dropout"}},
    [KDB_CTC] = {{{"ctc", data_type}, {"blank", NULL}, {"softmax", NULL}}, {NULL}},
    [KDB_MHA] = {{{NULL, NULL}}, {"mha_scale"}},
    [KDB_SEQUENCE] = {{{"", data_type}, {"", rnn_layouts}, {"", NULL}, {"", NULL}, {"", NULL}}, {NULL}},
    [KDB_BACKEND] = {{{"descriptor", backends}}, {NULL}},
    [KDB_NORM] = {{{"batchnorm", bn_modes}, {"running", NULL}}, {NULL}},
};

static void add_choice(struct kdb_line *line, const char *const *names, int64_t value) {
    int64_t i = 0;
    const char *type = names == data_type ? kdb_type_name((int)value) : NULL;
    while (names && i < value && names[i])
        i++;
    if (type)
        kdb_add(line, "%s", type);
    else if (names && value >= 0 && i == value && names[i] && *names[i])
        kdb_add(line, "%s", names[i]);
    else
        kdb_add(line, "%lld", (long long)value);
}

static void add_plain(struct kdb_line *line, uint32_t kind, const struct kdb_plain *p) {
    const struct shape *shape = &shapes[kind];
    for (int i = 0; i < KDB_NUMBERS && shape->numbers[i].name; i++) {
        const struct field *f = &shape->numbers[i];
        if (f->names == hidden)
            continue;
        kdb_add(line, " %s=", f->name);
        if (f->names == sizes)
            for (int k = 0; k < 3 && k < p->numbers[1]; k++)
                kdb_add(line, "%s%d", k ? "x" : "", p->numbers[i + k]);
        else
            add_choice(line, f->names, p->numbers[i]);
    }
    for (int i = 0; i < KDB_REALS && shape->reals[i]; i++) {
        kdb_add(line, " %s=", shape->reals[i]);
        kdb_add_real(line, p->reals[i]);
    }
}

static void add_conv(struct kdb_line *line, const struct kdb_conv *c) {
    const struct {
        const char *name;
        const int32_t *values;
    } lists[3] = {{"pads", c->pads}, {"strides", c->strides}, {"dilations", c->dilations}};
    kdb_add(line, " transposed=%d groups=%d", c->mode == 1, c->groups);
    for (int i = 0; i < 3; i++) {
        kdb_add(line, " %s=", lists[i].name);
        for (int k = 0; k < c->dims; k++)
            kdb_add(line, "%s%d", k ? "x" : "", lists[i].values[k]);
    }
}

/* ---- tensors ---- */

static void add_list(struct kdb_line *line, const int64_t *values, int n) {
    for (int i = 0; i < n; i++)
        kdb_add(line, "%c%lld", i ? ',' : '[', (long long)values[i]);
    kdb_add(line, "]");
}

static void add_tensor(struct kdb_line *line, const struct kdb_tensor *t) {
    static const char *const vectors[] = {":NCHWc4", ":NCHWc8", ":CHWNc4", ":CHWNc8"};
    int64_t step = 1;
    bool packed = true, vector = t->layout >= 3 && t->layout <= 6;
    add_choice(line, data_type, t->type);
    add_list(line, t->lens, t->dims);
    for (int i = t->dims - 1; i >= 0; i--) {
        packed &= t->strides[i] == step;
        step *= t->lens[i];
    }
    if (vector)
        kdb_add(line, "%s", vectors[t->layout - 3]);
    else if (!packed) {
        kdb_add(line, "/");
        add_list(line, t->strides, t->dims);
    }
    if (t->cast >= 0) {
        kdb_add(line, "->");
        add_choice(line, data_type, t->cast);
    }
}

static void add_value(struct kdb_line *line, uint64_t hash) {
    struct kdb_desc desc;
    if (!kdb_content(hash, &desc))
        kdb_add(line, "%s", hash == KDB_ABSENT ? "-" : "?");
    else if (desc.kind == KDB_TENSOR)
        add_tensor(line, &desc.tensor);
    else { /* a sequence: type, layout, length, batch, vector */
        const int32_t *n = desc.plain.numbers;
        add_choice(line, data_type, n[0]);
        kdb_add(line, "[%d,%d,%d]", n[3], n[2], n[4]);
        kdb_add(line, ":");
        add_choice(line, rnn_layouts, n[1]);
    }
}

static const void *address_of(const struct kdb_item *item, uint32_t i) {
    return ((void *const *)(uintptr_t)item->value)[i];
}

/* One after another, equal ones by their number: x=FP32[4,16]*3,FP32[2,16]. */
static void add_tensors(struct kdb_line *line, const struct kdb_item *item) {
    uint32_t runs = 0;
    if (!item->count)
        kdb_add(line, "-");
    for (uint32_t i = 0, same; i < item->count; i += same) {
        uint64_t hash = kdb_known(address_of(item, i), KDB_TENSOR);
        for (same = 1; i + same < item->count && kdb_known(address_of(item, i + same), KDB_TENSOR) == hash;)
            same++;
        kdb_add(line, "%s", i ? "," : "");
        if (++runs > RUNS) {
            kdb_add(line, "...");
            return;
        }
        add_value(line, hash);
        if (same > 1)
            kdb_add(line, "*%u", same);
    }
}

/* ---- a call ---- */

static void add_item(struct kdb_line *line, const struct kdb_item *item, uint64_t word) {
    struct kdb_desc desc;
    double real;
    if (item->kind > KDB_CONV && item->kind < KDB_KINDS && item->kind != KDB_SEQUENCE) {
        if (!kdb_content(word, &desc))
            kdb_add(line, " %s=%s", parts[item->kind], word == KDB_ABSENT ? "-" : "?");
        else
            add_plain(line, desc.kind, &desc.plain);
        return;
    }
    if (item->kind == KDB_CONV && kdb_content(word, &desc)) {
        add_conv(line, &desc.conv);
        return;
    }
    kdb_add(line, " %s=", item->name);
    if (item->kind < KDB_KINDS)
        add_value(line, word);
    else if (item->kind == KDB_TENSORS)
        add_tensors(line, item);
    else if (item->kind == KDB_REAL) {
        memcpy(&real, &item->value, sizeof real);
        kdb_add_real(line, real);
    } else if (item->kind == KDB_INTS)
        for (uint32_t i = 0; i < item->count && i < RUNS; i++)
            kdb_add(line, "%s%d", i ? "," : "", ((const int32_t *)(uintptr_t)item->value)[i]);
    else
        add_choice(line, sayings[item->kind], (int64_t)item->value);
}

/* What tells this item from others: the content of what it points to. */
static uint64_t word_of(const void *library, const struct kdb_item *item) {
    uint64_t word = item->count;
    if (item->hashed)
        return item->value;
    if (item->kind < KDB_KINDS)
        return kdb_described(library, (const void *)(uintptr_t)item->value, item->kind);
    if (item->kind == KDB_TENSORS)
        for (uint32_t i = 0; i < item->count; i++) {
            uint64_t pair[2] = {word, kdb_described(library, address_of(item, i), KDB_TENSOR)};
            word = kdb_hash(1, pair, sizeof pair);
        }
    else if (item->kind == KDB_INTS)
        word = kdb_hash(word, (const void *)(uintptr_t)item->value, item->count * sizeof(int32_t));
    else
        word = item->value;
    return word;
}

static struct kdb_told *say(struct kdb_thread *t, const struct kdb_item *items, const uint64_t *words,
                            size_t n) {
    struct kdb_line line = {(char *)t->scratch, LONGEST, 0};
    struct kdb_told *told;
    for (size_t i = 0; i < n; i++)
        add_item(&line, &items[i], words[i]);
    size_t bytes = line.used < LONGEST ? line.used : LONGEST - 1;
    if (bytes < 2)
        return NULL;
    uint64_t hash = kdb_hash(0, t->scratch + 1, bytes - 1); /* without the first blank */
    if (!kdb_map_get(&texts, hash, &told) &&
        (told = kdb_tell_text(t, KDBT_DETAIL, t->scratch + 1, bytes - 1)) != NULL)
        kdb_map_set(&texts, hash, &told);
    return told;
}

struct kdb_told *kdb_detail(struct kdb_thread *t, const void *library, uint64_t of,
                            const struct kdb_item *items, size_t n) {
    uint64_t words[KDB_ITEMS];
    struct kdb_told *told;
    if (n == 0 || n > KDB_ITEMS)
        return NULL;
    for (size_t i = 0; i < n; i++)
        words[i] = word_of(library, &items[i]);
    uint64_t hash = kdb_hash(of, words, n * sizeof *words);
    if (kdb_map_get(&details, hash, &told)) {
        kdb_told_id(t, told);
        return told;
    }
    struct kdb_quiet quiet = kdb_quiet_begin();
    told = say(t, items, words, n);
    kdb_quiet_end(quiet);
    if (told)
        kdb_map_set(&details, hash, &told);
    return told;
}
