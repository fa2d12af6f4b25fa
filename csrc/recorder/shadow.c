/* Descriptors as the host set them: an address for each one that lives, a content for each that was
 * ever said. Contents are never changed or dropped, so whoever holds a hash has the content. */
#include "describe.h"

static struct kdb_map addresses = {.value_bytes = sizeof(uint64_t)};
static struct kdb_map contents = {.value_bytes = sizeof(struct kdb_desc)};
_Static_assert(sizeof(struct kdb_desc) % 8 == 0 && KDB_KINDS <= KDB_KIND_BITS, "hashed as a whole");

static uint64_t hash_of(const struct kdb_desc *desc) {
    return (kdb_hash(desc->kind, desc, sizeof *desc) & ~(uint64_t)KDB_KIND_BITS) | desc->kind;
}

uint64_t kdb_intern(const struct kdb_desc *desc) {
    struct kdb_desc known;
    uint64_t hash = hash_of(desc);
    if (!kdb_map_get(&contents, hash, &known))
        kdb_map_set(&contents, hash, desc);
    return hash;
}

bool kdb_content(uint64_t hash, struct kdb_desc *desc) {
    return hash > KDB_ABSENT && kdb_map_get(&contents, hash, desc);
}

void kdb_seen(const void *address, const struct kdb_desc *desc) {
    uint64_t known, hash = hash_of(desc);
    if (!address || (kdb_map_get(&addresses, (uintptr_t)address, &known) && known == hash))
        return;
    kdb_intern(desc);
    kdb_map_set(&addresses, (uintptr_t)address, &hash);
}

void kdb_forget(const void *address) {
    if (address)
        kdb_map_drop(&addresses, (uintptr_t)address);
}

uint64_t kdb_known(const void *address, enum kdb_kind kind) {
    uint64_t hash;
    if (!address)
        return KDB_ABSENT;
    bool seen = kdb_map_get(&addresses, (uintptr_t)address, &hash);
    return seen && (hash & KDB_KIND_BITS) == kind ? hash : KDB_UNKNOWN;
}

uint64_t kdb_described(const void *library, const void *address, enum kdb_kind kind) {
    uint64_t hash = kdb_known(address, kind);
    struct kdb_desc desc;
    if (hash != KDB_UNKNOWN || kdb_getters_log())
        return hash;
    memset(&desc, 0, sizeof desc);
    desc.kind = kind;
    if (!kdb_ask(library, address, &desc))
        return KDB_UNKNOWN;
    kdb_seen(address, &desc);
    return hash_of(&desc);
}

/* ---- tensors: MIOpen src/tensor.cpp ---- */

/* miopenTensorLayout_t 0 to 8: the order of storage of N, C, [D,] H, W, and channels in one element */
static const char *const orders[] = {"NCHW", "NHWC", "CHWN",  "NCHW", "NCHW",
                                     "CHWN", "CHWN", "NCDHW", "NDHWC"};
static const uint8_t vectors[] = {1, 1, 1, 4, 8, 4, 8, 1, 1};

/* Lengths and strides as MIOpen keeps them: those of a vectorised layout are reordered and divided. */
static bool by_layout(struct kdb_tensor *t) {
    int64_t lens[KDB_DIMS], step = vectors[t->layout];
    bool chwn = t->layout == 5 || t->layout == 6;
    const char *stored = chwn ? "CHWN" : t->dims == 5 ? "NCDHW" : "NCHW";
    if ((t->layout >= 7) != (t->dims == 5) || t->dims < 4 || t->dims > 5)
        return false;
    memcpy(lens, t->lens, sizeof lens);
    if (chwn)
        for (int i = 0; i < 4; i++)
            t->lens[i] = lens[(i + 1) & 3];
    if (step > 1)
        t->lens[chwn ? 0 : 1] /= step;
    for (int i = t->dims - 1; i >= 0; i--) { /* the last letter of the layout varies fastest */
        long at = strchr(stored, orders[t->layout][i]) - stored;
        t->strides[at] = step;
        step *= t->lens[at];
    }
    return true;
}

bool kdb_tensor_fill(struct kdb_tensor *t, int type, int layout, int dims, const int64_t *lens,
                     const int64_t *strides) {
    memset(t, 0, sizeof *t);
    if (dims < 1 || dims > KDB_DIMS || layout > 8)
        return false;
    t->type = type;
    t->cast = KDB_NONE;
    t->dims = dims;
    t->layout = KDB_NONE;
    for (int i = 0; i < dims; i++)
        t->lens[i] = lens[i];
    if (strides) {
        for (int i = 0; i < dims; i++)
            t->strides[i] = strides[i];
        return true;
    }
    if (layout < 0 && (dims == 4 || dims == 5)) /* MIOpen gives these a layout's name */
        layout = dims == 5 ? 7 : 0;
    if (layout >= 0) {
        t->layout = layout;
        return by_layout(t);
    }
    int64_t step = 1;
    for (int i = dims - 1; i >= 0; i--) {
        t->strides[i] = step;
        step *= lens[i];
    }
    return true;
}
