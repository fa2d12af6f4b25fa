/* The device that $KDBTOOL_SIMGPU describes: "name=value" joined by ";".
 *
 * kdbtool.shim.simulate writes the text out of kdbtool/targets/; a missing, incomplete or malformed
 * one is no device, with one line in the log. Unknown names are malformed: a typo must not pass.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static struct sim_spec device;
static const char *problem = "KDBTOOL_SIMGPU is not set";
static pthread_once_t once = PTHREAD_ONCE_INIT;

#define TEXT(field) {#field, offsetof(struct sim_spec, field), sizeof device.field, 0, 0}
#define NUMBER(field, low, high) {#field, offsetof(struct sim_spec, field), 0, low, high}
static const struct field {
    const char *name;
    size_t offset, text; /* text: room for it, 0 for a number */
    uint64_t low, high;
} fields[] = {
    TEXT(arch),
    TEXT(device),
    TEXT(name),
    NUMBER(mem, 1 << 20, 1ull << 46),
    NUMBER(mach, 1, 0xff),
    NUMBER(cu, 1, 4096),
    NUMBER(warp, 32, 64),
    NUMBER(lds, 1024, 1 << 20),
    NUMBER(major, 1, 99),
    NUMBER(minor, 0, 99),
    NUMBER(clock_khz, 1, 100000000),
    NUMBER(mem_clock_khz, 1, 100000000),
    NUMBER(bus_bits, 1, 65536),
    NUMBER(l2, 0, 1 << 30),
    NUMBER(integrated, 0, 1),
};
enum { FIELDS = sizeof fields / sizeof *fields };

static bool feature(const char *text, size_t n, enum sim_feature *out) {
    if (*out != SIM_UNSUPPORTED || (text[n - 1] != '+' && text[n - 1] != '-'))
        return false;
    *out = text[n - 1] == '+' ? SIM_ON : SIM_OFF;
    return true;
}

bool sim_target_id(const char *id, size_t n, char arch[32], enum sim_feature *xnack,
                   enum sim_feature *sramecc) {
    *xnack = *sramecc = SIM_UNSUPPORTED;
    const char *end = id + n, *colon = memchr(id, ':', n);
    size_t length = (size_t)((colon ? colon : end) - id);
    if (length < 4 || length > 31 || memcmp(id, "gfx", 3) != 0)
        return false;
    memcpy(arch, id, length);
    arch[length] = 0;
    while (colon) {
        const char *text = colon + 1;
        colon = memchr(text, ':', (size_t)(end - text));
        length = (size_t)((colon ? colon : end) - text);
        bool ok = false;
        if (length == 6 && memcmp(text, "xnack", 5) == 0)
            ok = feature(text, length, xnack);
        else if (length == 8 && memcmp(text, "sramecc", 7) == 0)
            ok = feature(text, length, sramecc);
        if (!ok)
            return false;
    }
    return true;
}

bool sim_feature_fits(enum sim_feature object, enum sim_feature of_device) {
    return object == SIM_UNSUPPORTED || object == SIM_ANY || object == of_device;
}

static bool number(const char *text, size_t n, uint64_t *out) {
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9' || i > 17)
            return false;
        *out = *out * 10 + (uint64_t)(text[i] - '0');
    }
    return n > 0;
}

/* One "name=value" of `n` bytes; the bit of its field, 0 when it is none. */
static unsigned item(const char *text, size_t n) {
    const char *equals = memchr(text, '=', n);
    if (!equals)
        return 0;
    size_t name = (size_t)(equals - text), value = n - name - 1;
    for (int i = 0; i < FIELDS; i++) {
        const struct field *f = &fields[i];
        char *at = (char *)&device + f->offset;
        if (strlen(f->name) != name || memcmp(f->name, text, name) != 0)
            continue;
        if (f->text) {
            if (value == 0 || value >= f->text)
                return 0;
            memcpy(at, equals + 1, value);
            at[value] = 0;
            return 1u << i;
        }
        uint64_t v;
        if (!number(equals + 1, value, &v) || v < f->low || v > f->high)
            return 0;
        memcpy(at, &v, sizeof v);
        return 1u << i;
    }
    return 0;
}

static const char *parse(const char *text) {
    unsigned seen = 0;
    while (*text) {
        size_t n = strcspn(text, ";");
        unsigned bit = item(text, n);
        if (!bit || (seen & bit))
            return "KDBTOOL_SIMGPU has an unknown, repeated or malformed item";
        seen |= bit;
        text += n + (text[n] == ';');
    }
    if (seen != (1u << FIELDS) - 1)
        return "KDBTOOL_SIMGPU is incomplete";
    char arch[32];
    if (!sim_target_id(device.device, strlen(device.device), arch, &device.xnack, &device.sramecc) ||
        strcmp(arch, device.arch) != 0)
        return "KDBTOOL_SIMGPU: the device is not a target id of its arch";
    if (device.warp != 32 && device.warp != 64)
        return "KDBTOOL_SIMGPU: warp is neither 32 nor 64";
    return NULL;
}

static void load(void) {
    const char *text = secure_getenv("KDBTOOL_SIMGPU");
    if (text)
        problem = parse(text);
    if (problem)
        sim_log("no-device why=\"%s\"", problem);
}

const struct sim_spec *sim_spec(void) {
    pthread_once(&once, load);
    return problem ? NULL : &device;
}
