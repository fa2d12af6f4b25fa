/* HIP: module loads, functions, and what the host learns of its devices.
 *
 * A function's handle does not name a kernel (MIOpen asks again and again, handles repeat): module
 * and name do. Handles of functions and addresses of host functions share one
 * map, since both are addresses of live things. */
#include "image.h"

_Atomic uint32_t kdb_function_epoch;

struct host_function {
    const char *name;
    void *fatbin;
};
static struct kdb_map modules = {.value_bytes = sizeof(struct kdb_id)};   /* by handle, and by fat binary */
static struct kdb_map kernels = {.value_bytes = sizeof(struct kdb_id)};   /* by hash of module and name */
static struct kdb_map functions = {.value_bytes = sizeof(struct kdb_id)}; /* by handle or host address */
static struct kdb_map host_functions = {.value_bytes = sizeof(struct host_function)};
_Thread_local int kdb_device;

#define REAL(name)                                                                                           \
    kdb_fn_##name real = KDB_REAL(name);                                                                     \
    if (!real)                                                                                               \
    return KDB_ERROR_HIP

/* ---- modules ---- */

static uint32_t write_module(struct kdb_thread *t, const struct kdb_image *image, int source, int result,
                             uint64_t ticks, uint64_t duration) {
    struct kdbt_module m = {{0}, image->size, duration, (uint32_t)source, result};
    uint32_t id = kdb_new_id();
    memcpy(m.md5, image->md5, sizeof m.md5);
    return kdb_put(t, KDBT_MODULE, id, ticks, &m, sizeof m, image->target, strlen(image->target), NULL, 0)
               ? id
               : 0;
}

static void loaded(void *real, void **module, int result, int source, const void *what, uint64_t ticks) {
    uint64_t duration = kdb_ticks() - ticks;
    struct kdb_thread *t = kdb_enter();
    struct kdb_image image = {0};
    if (!t)
        return;
    kdb_library_facts(t, KDB_LIB_HIP, real);
    kdb_device_facts(t);
    /* Only what HIP took is read: its headers were found sane. */
    if (result == 0 && source == KDBT_FROM_FILE)
        kdb_image_in_file(&image, what, t->scratch, KDB_SCRATCH);
    else if (result == 0)
        kdb_image_in_memory(&image, what, t->scratch, KDB_SCRATCH);
    struct kdb_id id = {write_module(t, &image, source, result, ticks, duration), t->generation};
    if (result == 0 && module && *module)
        kdb_map_set(&modules, (uintptr_t)*module, &id);
    kdb_leave();
}

int hipModuleLoad(void **module, const char *file) {
    REAL(hipModuleLoad);
    uint64_t ticks = kdb_ticks();
    int result = real(module, file);
    loaded((void *)real, module, result, KDBT_FROM_FILE, file, ticks);
    return result;
}

int hipModuleLoadData(void **module, const void *image) {
    REAL(hipModuleLoadData);
    uint64_t ticks = kdb_ticks();
    int result = real(module, image);
    loaded((void *)real, module, result, KDBT_FROM_MEMORY, image, ticks);
    return result;
}

int hipModuleLoadDataEx(void **module, const void *image, unsigned count, void *options, void **values) {
    REAL(hipModuleLoadDataEx);
    uint64_t ticks = kdb_ticks();
    int result = real(module, image, count, options, values);
    loaded((void *)real, module, result, KDBT_FROM_MEMORY, image, ticks);
    return result;
}

int hipModuleUnload(void *module) {
    REAL(hipModuleUnload);
    kdb_map_drop(&modules, (uintptr_t)module); /* before: the handle may be given out again right after */
    return real(module);
}

/* ---- functions ---- */

static uint32_t kernel_id(struct kdb_thread *t, uint32_t module, const char *name) {
    struct kdbt_kernel k = {module, 0};
    struct kdb_id id;
    size_t bytes = strlen(name);
    uint64_t hash = kdb_hash((uint64_t)module << 32 | 3, name, bytes);
    if (kdb_map_get(&kernels, hash, &id) && id.generation == t->generation)
        return id.id;
    id.id = kdb_new_id();
    id.generation = t->generation;
    if (!kdb_put(t, KDBT_KERNEL, id.id, kdb_ticks(), &k, sizeof k, name, bytes, NULL, 0))
        return 0;
    kdb_map_set(&kernels, hash, &id);
    return id.id;
}

static void function_is(const void *function, uint32_t kernel, uint32_t generation) {
    struct kdb_id id = {kernel, generation}, old;
    bool known = kdb_map_get(&functions, (uintptr_t)function, &old);
    if (known && old.id == kernel && old.generation == generation)
        return;
    kdb_map_set(&functions, (uintptr_t)function, &id);
    if (known) /* shapes remembered under this handle are another kernel's */
        atomic_fetch_add_explicit(&kdb_function_epoch, 1, memory_order_release);
}

int hipModuleGetFunction(void **function, void *module, const char *name) {
    REAL(hipModuleGetFunction);
    int result = real(function, module, name);
    struct kdb_thread *t;
    if (result == 0 && function && *function && name && (t = kdb_enter()) != NULL) {
        struct kdb_id id;
        bool seen = kdb_map_get(&modules, (uintptr_t)module, &id) && id.generation == t->generation;
        uint32_t kernel = kernel_id(t, seen ? id.id : 0, name);
        if (kernel)
            function_is(*function, kernel, t->generation);
        kdb_leave();
    }
    return result;
}

/* Called for each kernel of each library before main: only noted, written when one is launched. */
void __hipRegisterFunction(void **fatbin, const void *host, char *function, const char *name, unsigned limit,
                           void *tid, void *bid, void *block, void *grid, int *warp) {
    kdb_fn___hipRegisterFunction real = KDB_REAL(__hipRegisterFunction);
    struct host_function f = {name, fatbin};
    if (atomic_load_explicit(&kdb_mode, memory_order_acquire) == 0)
        kdb_setup();
    if (host && name && atomic_load_explicit(&kdb_mode, memory_order_acquire) == 2) {
        struct kdb_id old;
        kdb_map_set(&host_functions, (uintptr_t)host, &f);
        if (kdb_map_get(&functions, (uintptr_t)host, &old)) { /* where an unloaded library had another */
            kdb_map_drop(&functions, (uintptr_t)host);
            atomic_fetch_add_explicit(&kdb_function_epoch, 1, memory_order_release);
        }
    }
    if (real)
        real(fatbin, host, function, name, limit, tid, bid, block, grid, warp);
}

static uint32_t host_kernel(struct kdb_thread *t, const void *host) {
    struct host_function f;
    struct kdb_id id;
    struct kdb_image none = {0};
    if (!kdb_map_get(&host_functions, (uintptr_t)host, &f))
        return 0;
    if (!kdb_map_get(&modules, (uintptr_t)f.fatbin, &id) || id.generation != t->generation) {
        id.id = write_module(t, &none, KDBT_FROM_FATBIN, 0, kdb_ticks(), 0);
        id.generation = t->generation;
        kdb_map_set(&modules, (uintptr_t)f.fatbin, &id);
    }
    return kernel_id(t, id.id, f.name);
}

uint32_t kdb_function_kernel(struct kdb_thread *t, const void *function, uint32_t form) {
    struct kdb_id id;
    if (kdb_map_get(&functions, (uintptr_t)function, &id) && id.generation == t->generation)
        return id.id;
    uint32_t kernel = form == KDBT_LAUNCH_HOST ? host_kernel(t, function) : 0;
    if (!kernel)
        kernel = kernel_id(t, 0, ""); /* loaded where we could not see it */
    if (kernel)
        function_is(function, kernel, t->generation);
    return kernel;
}

/* ---- what the host asks of its devices: noted, not asked ---- */

int hipSetDevice(int number) {
    REAL(hipSetDevice);
    int result = real(number);
    if (result == 0)
        kdb_device = number;
    return result;
}

/* hipDeviceProp_tR0600 of HIP 6 and 7: 1472 bytes, the two fields at these offsets. */
int hipGetDevicePropertiesR0600(void *properties, int number) {
    enum { UNITS = 388, ARCH_NAME = 1160 };
    REAL(hipGetDevicePropertiesR0600);
    int result = real(properties, number);
    if (result == 0 && properties) {
        char name[128];
        int units;
        memcpy(&units, (char *)properties + UNITS, sizeof units);
        memcpy(name, (char *)properties + ARCH_NAME, sizeof name - 1);
        name[sizeof name - 1] = 0;
        kdb_saw_device(number, name, units);
    }
    return result;
}

int hipRuntimeGetVersion(int *version) {
    REAL(hipRuntimeGetVersion);
    int result = real(version);
    if (result == 0 && version)
        kdb_saw_hip_version(*version);
    return result;
}

/* A pointer taken this way is as good as one from dlsym. */
int hipGetProcAddress(const char *name, void **function, int version, uint64_t flags, void *status) {
    REAL(hipGetProcAddress);
    int result = real(name, function, version, flags, status);
    if (result == 0 && name && function && *function) {
        kdb_setup();
        void *ours = atomic_load(&kdb_mode) == 2 ? kdb_thunk_for(name, *function) : NULL;
        if (ours)
            *function = ours;
    }
    return result;
}
