/* A fat binary: a bundle of code objects, one per target, in the data of a library.
 *
 * Read when the first kernel out of it is launched, not when it is registered: a framework's have
 * gigabytes that a run never touches. HIP took one object for the device; it is named here only if no
 * other can be meant: the bundle's only one, or the only best match for all devices that the host has
 * asked about. A compressed bundle ("CCOB") is left alone: what HIP loads is nowhere in memory as it is
 * read, and decompressing it is not a recorder's work. So is an object above KDB_HASHED bytes, since its MD5
 * would hold up the launch. */
#include "fatbin.h"

enum { ENTRIES = 64, ID_BYTES = 256, WRAPPER_MAGIC = 0x48495046 };
static const char TRIPLE[] = "amdgcn-amd-amdhsa-";

const void *kdb_fatbin_image(const void *wrapper) {
    struct {
        uint32_t magic, version;
        const void *image, *unused;
    } w;
    if (!wrapper)
        return NULL;
    memcpy(&w, wrapper, sizeof w); /* HIP has read it */
    return w.magic == WRAPPER_MAGIC && w.version == 1 ? w.image : NULL;
}

/* "hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+": the text behind the triple's dashes, or NULL. */
static const char *target_in(const char *id) {
    const char *p = strstr(id, TRIPLE);
    if (!p || !(p == id || p[-1] == '-'))
        return NULL;
    p += sizeof TRIPLE - 1;
    return *p == '-' ? p + 1 : p;
}

/* How many features `target` asks for, if `device` is its processor and has them all; else -1. */
static int fits(const char *target, const char *device) {
    size_t processor = strcspn(target, ":");
    int features = 0;
    if (strcspn(device, ":") != processor || memcmp(target, device, processor) != 0)
        return -1;
    for (const char *f = target + processor; *f == ':'; features++) {
        size_t n = 1 + strcspn(f + 1, ":");
        const char *d = device + processor;
        for (; *d == ':'; d += 1 + strcspn(d + 1, ":"))
            if (1 + strcspn(d + 1, ":") == n && memcmp(d, f, n) == 0)
                break;
        if (*d != ':')
            return -1;
        f += n;
    }
    return features;
}

static int fits_all(const char *target) {
    int known = 0, least = 0;
    char device[128];
    for (int i = 0; kdb_device_named(i, device, sizeof device) >= 0; i++) {
        if (!*device)
            continue;
        int n = fits(target, device);
        if (n < 0)
            return -1;
        least = n;
        known++;
    }
    return known ? least : -1;
}

void kdb_fatbin_read(struct kdb_image *image, const void *bundle, unsigned char *scratch, size_t room) {
    struct kdb_quiet quiet = kdb_quiet_begin();
    const char *from = bundle, *at = from;
    char magic[sizeof KDB_BUNDLE - 1], id[ID_BYTES];
    uint64_t count = 0, entry[3], only[2] = {0, 0}, best[2] = {0, 0};
    int objects = 0, features = -1, equals = 0;
    bool whole = from && kdb_read_memory(at, magic, sizeof magic) &&
                 memcmp(magic, KDB_BUNDLE, sizeof magic) == 0 &&
                 kdb_read_memory(at + sizeof magic, &count, sizeof count) && count <= ENTRIES;
    at += sizeof magic + sizeof count;
    for (uint64_t i = 0; whole && i < count; i++) {
        whole = kdb_read_memory(at, entry, sizeof entry) && entry[2] < sizeof id &&
                kdb_read_memory(at + sizeof entry, id, (size_t)entry[2]);
        if (!whole)
            break;
        at += sizeof entry + entry[2];
        id[entry[2]] = 0;
        const char *target = target_in(id);
        if (!target || !entry[1])
            continue;
        int n = fits_all(target);
        objects++;
        memcpy(only, entry, sizeof only);
        equals = n == features ? equals + 1 : n > features ? 1 : equals;
        if (n > features)
            memcpy(best, entry, sizeof best);
        features = n > features ? n : features;
    }
    const uint64_t *chosen = features >= 0 && equals == 1 ? best : objects == 1 ? only : NULL;
    if (whole && chosen && chosen[0] <= INT64_MAX && chosen[1] <= KDB_HASHED)
        kdb_image_in_memory(image, from + chosen[0], scratch, room);
    kdb_quiet_end(quiet);
}
