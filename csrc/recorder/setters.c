/* What MIOpen's setters say of a descriptor. Called once MIOpen took it. */
#include "describe.h"

static void note_tensor(const void *desc, int type, int layout, int dims, const int64_t *lens,
                        const int64_t *strides) {
    struct kdb_desc d;
    memset(&d, 0, sizeof d);
    d.kind = KDB_TENSOR;
    if (kdb_tensor_fill(&d.tensor, type, layout, dims, lens, strides))
        kdb_seen(desc, &d);
    else
        kdb_forget(desc);
}

void kdb_tensor_set(const void *desc, int type, int layout, int dims, const int *lens, const int *strides) {
    int64_t l[KDB_DIMS], s[KDB_DIMS];
    if (dims < 0 || dims > KDB_DIMS || !lens)
        dims = 0; /* not known */
    for (int i = 0; i < dims; i++) {
        l[i] = lens[i];
        s[i] = strides ? strides[i] : 0;
    }
    note_tensor(desc, type, layout, dims, l, strides ? s : NULL);
}

void kdb_tensor_set_wide(const void *desc, int type, int dims, const size_t *lens, const size_t *strides) {
    int64_t l[KDB_DIMS], s[KDB_DIMS];
    if (dims < 0 || dims > KDB_DIMS || !lens)
        dims = 0;
    for (int i = 0; i < dims; i++) {
        l[i] = (int64_t)lens[i];
        s[i] = strides ? (int64_t)strides[i] : 0;
    }
    note_tensor(desc, type, KDB_NONE, dims, l, strides ? s : NULL);
}

void kdb_tensor_cast(const void *desc, int type) {
    struct kdb_desc d;
    if (kdb_content(kdb_known(desc, KDB_TENSOR), &d)) {
        d.tensor.cast = type;
        kdb_seen(desc, &d);
    }
}

/* MIOpen src/batch_norm.cpp, DeriveBNTensorDescriptor */
void kdb_tensor_derived(const void *desc, const void *x_desc, int mode) {
    struct kdb_desc x;
    int64_t lens[KDB_DIMS];
    if (!kdb_content(kdb_known(x_desc, KDB_TENSOR), &x) || x.tensor.dims < 4 || x.tensor.dims > 5) {
        kdb_forget(desc);
        return;
    }
    for (int i = 0; i < x.tensor.dims; i++)
        lens[i] = i == 1 || (i > 1 && mode == 0) ? x.tensor.lens[i] : 1;
    note_tensor(desc, 1, KDB_NONE, x.tensor.dims, lens, NULL);
}

void kdb_conv_set(const void *desc, int dims, const int *pads, const int *strides, const int *dilations,
                  int mode) {
    struct kdb_desc d;
    memset(&d, 0, sizeof d);
    d.kind = KDB_CONV;
    if (dims < 2 || dims > 3) {
        kdb_forget(desc);
        return;
    }
    d.conv.dims = dims;
    d.conv.mode = mode;
    d.conv.groups = 1;
    memcpy(d.conv.pads, pads, (size_t)dims * sizeof *pads);
    memcpy(d.conv.strides, strides, (size_t)dims * sizeof *strides);
    memcpy(d.conv.dilations, dilations, (size_t)dims * sizeof *dilations);
    kdb_seen(desc, &d);
}

void kdb_conv_groups(const void *desc, int groups) {
    struct kdb_desc d;
    if (kdb_content(kdb_known(desc, KDB_CONV), &d)) {
        d.conv.groups = groups;
        kdb_seen(desc, &d);
    }
}

void kdb_plain_set(const void *desc, enum kdb_kind kind, size_t n, const int *numbers, size_t m,
                   const double *reals) {
    struct kdb_desc d;
    memset(&d, 0, sizeof d);
    d.kind = kind;
    if (n) /* of none, there may be no address */
        memcpy(d.plain.numbers, numbers, n * sizeof *numbers);
    if (m)
        memcpy(d.plain.reals, reals, m * sizeof *reals);
    kdb_seen(desc, &d);
}

void kdb_plain_change(const void *desc, enum kdb_kind kind, int at, int number) {
    struct kdb_desc d;
    if (kdb_content(kdb_known(desc, kind), &d)) {
        d.plain.numbers[at] = number;
        kdb_seen(desc, &d);
    }
}

/* It starts anew: indices are uint8 and count within the window (MIOpen src/pooling.cpp). */
void kdb_pool_set(const void *desc, int mode, int dims, const int *window, const int *pads,
                  const int *strides) {
    int n[KDB_NUMBERS] = {mode, dims};
    if (dims < 1 || dims > 3) {
        kdb_forget(desc);
        return;
    }
    for (int i = 0; i < dims; i++) {
        n[2 + i] = window[i];
        n[5 + i] = pads[i];
        n[8 + i] = strides[i];
    }
    kdb_plain_set(desc, KDB_POOL, KDB_NUMBERS, n, 0, NULL);
}

double kdb_dropout_rate(const void *desc) {
    struct kdb_desc d;
    return kdb_content(kdb_known(desc, KDB_DROPOUT), &d) ? d.plain.reals[0] : 0;
}
