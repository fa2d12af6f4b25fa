/* Facts of the process: what it is, the switches that change keys, the libraries, the devices.
 *
 * Nothing is asked of MIOpen or HIP that they could log: devices are noted when the host itself
 * asks, HIP's version too (it is asked for only with logging off and HIP in use). miopenGetVersion
 * is called, since it logs in no version. The environment is read for the published list below alone
 * (docs/recorder.md). */
#include "gate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The published list; a name that ends in * is a prefix. */
static const char *const switches[] = {"MIOPEN_DEBUG_*",
                                       "MIOPEN_FIND_*",
                                       "MIOPEN_DEVICE_ARCH",
                                       "MIOPEN_DEVICE_CU",
                                       "MIOPEN_DISABLE_CACHE",
                                       "MIOPEN_COMPILE_PARALLEL_LEVEL",
                                       "MIOPEN_EXPERIMENTAL_*",
                                       "MIOPEN_SYSTEM_DB_PATH",
                                       "HSA_OVERRIDE_GFX_VERSION",
                                       "HSA_XNACK",
                                       "HIP_VISIBLE_DEVICES",
                                       "ROCR_VISIBLE_DEVICES",
                                       NULL};

extern char **environ;
static struct {
    _Atomic uint32_t known;
    int units;
    char name[128];
} devices[16];
static _Atomic int hip_version;
static _Atomic uint32_t facts_known; /* a bit for each device, and bit 16 for HIP's version */

void kdb_fact(struct kdb_thread *t, const char *name, const char *value) {
    struct kdbt_pair pair = {(uint32_t)strlen(name), (uint32_t)strlen(value)};
    kdb_put(t, KDBT_FACT, 0, kdb_ticks(), &pair, sizeof pair, name, pair.name_bytes, value, pair.value_bytes);
    if (!kdb_rotates)
        return;
    struct kdb_told *told =
        kdb_tell(KDBT_FACT, &pair, sizeof pair, name, pair.name_bytes, value, pair.value_bytes);
    if (!told)
        return;
    kdb_told_as(t, told, 0);
    told->next = atomic_load(&kdb_process->facts);
    while (!atomic_compare_exchange_weak(&kdb_process->facts, &told->next, told))
        ;
}

static bool starts(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

/* By the name it was started under (clang++-21 is a link to clang), version suffix and all. A clang
 * driver may start itself again as `clang -cc1`: that is no second compiler. */
int kdb_role(int argc, char **argv, char *exe, size_t room) {
    const char *name = argc > 0 && argv && argv[0] ? argv[0] : "";
    const char *base = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
    char path[512];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    const char *file = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    snprintf(exe, room, "%.63s", *base ? base : file);
    if (starts(base, "hipcc"))
        return KDBT_ROLE_WRAPPER;
    if (starts(base, "clang-offload-") || starts(base, "llvm-offload-"))
        return KDBT_ROLE_BUNDLER;
    if (strcmp(base, "lld") == 0 || starts(base, "lld-") || starts(base, "ld.lld"))
        return KDBT_ROLE_LINKER;
    const char *rest = starts(base, "amdclang") ? base + 8 : starts(base, "clang") ? base + 5 : NULL;
    if (!rest)
        return KDBT_ROLE_HOST;
    rest += starts(rest, "++") ? 2 : starts(rest, "-cpp") ? 4 : starts(rest, "-cl") ? 3 : 0;
    if (rest[strspn(rest, "-.0123456789")]) /* clang-format, clangd: no compilers */
        return KDBT_ROLE_HOST;
    return argc > 1 && argv[1] && starts(argv[1], "-cc1") ? KDBT_ROLE_FRONTEND : KDBT_ROLE_COMPILER;
}

static bool published(const char *name, size_t bytes) {
    for (int i = 0; switches[i]; i++) {
        size_t n = strlen(switches[i]);
        bool prefix = switches[i][n - 1] == '*';
        if (prefix ? bytes >= n - 1 && memcmp(name, switches[i], n - 1) == 0
                   : bytes == n && memcmp(name, switches[i], n) == 0)
            return true;
    }
    return false;
}

void kdb_first_facts(struct kdb_thread *t) {
    struct kdb_told *told = atomic_load(&kdb_process->facts);
    if (kdb_header_facts.role != KDBT_ROLE_HOST)
        return;
    kdb_gate_begins(t);
    if (kdb_part_of(t->generation)->number) {
        for (; told; told = told->next)
            kdb_told_id(t, told);
        return;
    }
    for (char **e = environ; e && *e; e++) {
        const char *equals = strchr(*e, '=');
        char name[96] = "env.";
        size_t bytes = equals ? (size_t)(equals - *e) : 0;
        if (!bytes || bytes > sizeof name - 5 || strlen(equals) > 1024 || !published(*e, bytes))
            continue;
        memcpy(name + 4, *e, bytes);
        kdb_fact(t, name, equals + 1);
    }
    const struct kdb_rank r = kdb_find_rank();
    const int numbers[] = {r.rank, r.size, r.local};
    static const char *const names[] = {"rank", "ranks", "rank.local"};
    for (int i = 0; i < 3; i++) {
        char text[16];
        if (numbers[i] < 0)
            continue;
        snprintf(text, sizeof text, "%d", numbers[i]);
        kdb_fact(t, names[i], text);
    }
}

bool kdb_getters_log(void) {
    if (getenv("MIOPEN_LOG_LEVEL") || getenv("AMD_LOG_LEVEL"))
        return true;
    for (char **e = environ; e && *e; e++)
        if (starts(*e, "MIOPEN_ENABLE_LOGGING"))
            return true;
    return false;
}

void kdb_library_facts(struct kdb_thread *t, enum kdb_library library, const void *address) {
    static const char *const names[KDB_LIBRARIES] = {"hip", "miopen", "sqlite", "hiprtc", "comgr", "roctx"};
    struct kdb_object object;
    if (atomic_load_explicit(&kdb_process->said[library], memory_order_relaxed) ||
        atomic_exchange(&kdb_process->said[library], 1))
        return;
    struct kdb_quiet quiet = kdb_quiet_begin();
    if (kdb_object_at(address, &object)) {
        char name[32], text[80] = "";
        snprintf(name, sizeof name, "%s.path", names[library]);
        kdb_fact(t, name, object.path);
        for (uint32_t i = 0; i < object.build_id_bytes; i++)
            snprintf(text + 2 * i, 3, "%02x", object.build_id[i]);
        snprintf(name, sizeof name, "%s.build_id", names[library]);
        kdb_fact(t, name, text);
        if (library == KDB_LIB_MIOPEN) {
            int (*get)(size_t *, size_t *, size_t *) =
                (int (*)(size_t *, size_t *, size_t *))kdb_symbol_at(address, "miopenGetVersion");
            size_t major = 0, minor = 0, patch = 0;
            if (get && get(&major, &minor, &patch) == 0) {
                snprintf(text, sizeof text, "%zu.%zu.%zu", major, minor, patch);
                kdb_fact(t, "miopen.version", text);
            }
        } else if (library == KDB_LIB_COMGR) { /* tells two numbers, and logs nothing */
            void (*get)(size_t *, size_t *) =
                (void (*)(size_t *, size_t *))kdb_symbol_at(address, "amd_comgr_get_version");
            size_t major = 0, minor = 0;
            if (get) {
                get(&major, &minor);
                snprintf(text, sizeof text, "%zu.%zu", major, minor);
                kdb_fact(t, "comgr.version", text);
            }
        } else if (library == KDB_LIB_HIP) {
            int (*get)(int *) = (int (*)(int *))kdb_symbol_at(address, "hipRuntimeGetVersion");
            int version = 0;
            if (getenv("KDBTOOL_SIMGPU") && kdb_symbol_at(address, "kdbtool_simgpu"))
                kdb_fact(t, "simulated", "1");
            if (get && !kdb_getters_log() && get(&version) == 0)
                kdb_saw_hip_version(version);
        }
    }
    kdb_quiet_end(quiet);
}

void kdb_saw_device(int device, const char *name, int units) {
    uint32_t unknown = 0;
    if (device < 0 || device >= 16 || !atomic_compare_exchange_strong(&devices[device].known, &unknown, 1))
        return;
    snprintf(devices[device].name, sizeof devices[device].name, "%.127s", name);
    devices[device].units = units;
    atomic_store_explicit(&devices[device].known, 2, memory_order_release);
    atomic_fetch_or(&facts_known, 1u << device);
}

int kdb_device_named(int device, char *name, size_t room) {
    if (device < 0 || device >= 16)
        return -1;
    bool known = atomic_load_explicit(&devices[device].known, memory_order_acquire) == 2;
    return snprintf(name, room, "%s", known ? devices[device].name : "");
}

void kdb_saw_hip_version(int version) {
    atomic_store(&hip_version, version);
    atomic_fetch_or(&facts_known, 1u << 16);
}

void kdb_device_facts(struct kdb_thread *t) {
    uint32_t done = atomic_load_explicit(&kdb_process->devices_said, memory_order_relaxed);
    if (!(atomic_load_explicit(&facts_known, memory_order_acquire) & ~done))
        return;
    for (uint32_t i = 0; i <= 16; i++) {
        char name[32], text[160];
        bool known = i == 16 ? atomic_load_explicit(&hip_version, memory_order_relaxed) != 0
                             : atomic_load_explicit(&devices[i].known, memory_order_acquire) == 2;
        if (!known || done >> i & 1 || atomic_fetch_or(&kdb_process->devices_said, 1u << i) >> i & 1)
            continue;
        if (i == 16) {
            int v = atomic_load(&hip_version);
            snprintf(text, sizeof text, "%d.%d.%d", v / 10000000, v / 100000 % 100, v % 100000);
            kdb_fact(t, "hip.version", text);
            continue;
        }
        snprintf(name, sizeof name, "device.%u", i);
        snprintf(text, sizeof text, "%.127s", devices[i].name);
        kdb_fact(t, name, text);
        snprintf(name, sizeof name, "device.%u.cu", i);
        snprintf(text, sizeof text, "%d", devices[i].units);
        kdb_fact(t, name, text);
    }
}
