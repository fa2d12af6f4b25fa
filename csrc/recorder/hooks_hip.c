/* HIP: module and library loads, functions.
 *
 * A function's handle does not name a kernel (MIOpen asks again and again, handles repeat): module
 * and name do. Handles of functions and addresses of host functions share one
 * map, since both are addresses of live things. */
#include "fatbin.h"
#include "gate.h"
#include "hip.h"

_Atomic uint32_t kdb_function_epoch;

struct host_function {
    const char *name;
    void *fatbin;
};
struct fat_binary {
    const void *image;
    uint32_t live, unused;
};
/* To struct kdb_told: handles outlive a part of the trace. */
static struct kdb_map modules = {.value_bytes = sizeof(struct kdb_told *)};   /* by handle, fat binary, MD5 */
static struct kdb_map kernels = {.value_bytes = sizeof(struct kdb_told *)};   /* by module and name */
static struct kdb_map functions = {.value_bytes = sizeof(struct kdb_told *)}; /* by handle or host address */
/* Of a listed kernel's handle: its module. */
static struct kdb_map owners = {.value_bytes = sizeof(struct kdb_told *)};
static struct kdb_map host_functions = {.value_bytes = sizeof(struct host_function)};
static struct kdb_map fat_binaries = {.value_bytes = sizeof(struct fat_binary)};
_Thread_local const void *kdb_by_pointer;

#define REAL KDB_REAL_HIP

/* ---- modules ---- */

/* Each load is a record; what a later part says again is kept once for the same code object. */
static struct kdb_told *write_module(struct kdb_thread *t, const struct kdb_image *image, int source,
                                     int result, uint64_t ticks, uint64_t duration) {
    struct kdbt_module m = {{0}, image->size, duration, (uint32_t)source, result};
    uint32_t id = kdb_new_id();
    struct kdb_told *told = NULL;
    memcpy(m.md5, image->md5, sizeof m.md5);
    uint64_t hash = kdb_hash((uint64_t)source << 32 | (uint32_t)result, m.md5, sizeof m.md5);
    hash = kdb_hash(hash ^ image->mark, &m.size, sizeof m.size);
    if (!m.size || !kdb_map_get(&modules, hash, &told)) {
        told = kdb_tell(KDBT_MODULE, &m, sizeof m, image->target, strlen(image->target), NULL, 0);
        if (told && m.size)
            kdb_map_set(&modules, hash, &told);
    }
    if (kdb_put(t, KDBT_MODULE, id, ticks, &m, sizeof m, image->target, strlen(image->target), NULL, 0) &&
        told)
        kdb_told_as(t, told, id);
    return told;
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
    struct kdb_told *told = write_module(t, &image, source, result, ticks, duration);
    if (result == 0 && module && *module)
        kdb_map_set(&modules, (uintptr_t)*module, &told);
    kdb_leave();
}

#define LOAD(name, params, args, source, what)                                                               \
    int name params {                                                                                        \
        REAL(name);                                                                                          \
        uint64_t ticks = kdb_ticks();                                                                        \
        int result = real args;                                                                              \
        loaded((void *)real, module, result, source, what, ticks);                                           \
        return result;                                                                                       \
    }

LOAD(hipModuleLoad, (void **module, const char *file), (module, file), KDBT_FROM_FILE, file)
LOAD(hipModuleLoadData, (void **module, const void *image), (module, image), KDBT_FROM_MEMORY, image)
LOAD(hipModuleLoadDataEx, (void **module, const void *image, unsigned count, void *options, void **values),
     (module, image, count, options, values), KDBT_FROM_MEMORY, image)
LOAD(hipModuleLoadFatBinary, (void **module, const void *image), (module, image), KDBT_FROM_MEMORY, image)
/* HIP 7 may put the work off until a kernel is asked for: the load's time is what the call took. */
LOAD(hipLibraryLoadData,
     (void **module, const void *image, void *jit, void **jit_values, unsigned jits, void *options,
      void **values, unsigned count),
     (module, image, jit, jit_values, jits, options, values, count), KDBT_FROM_MEMORY, image)
LOAD(hipLibraryLoadFromFile,
     (void **module, const char *file, void *jit, void **jit_values, unsigned jits, void *options,
      void **values, unsigned count),
     (module, file, jit, jit_values, jits, options, values, count), KDBT_FROM_FILE, file)

int hipModuleUnload(void *module) {
    REAL(hipModuleUnload);
    kdb_map_drop(&modules, (uintptr_t)module); /* before: the handle may be given out again right after */
    return real(module);
}

int hipLibraryUnload(void *library) {
    REAL(hipLibraryUnload);
    kdb_map_drop(&modules, (uintptr_t)library);
    return real(library);
}

/* ---- functions ---- */

static struct kdb_told *kernel_of(struct kdb_told *module, const char *name) {
    struct kdbt_kernel k = {0, 0};
    struct kdb_told *told;
    size_t bytes = strlen(name);
    uint64_t hash = kdb_hash((uintptr_t)module, name, bytes);
    if (kdb_map_get(&kernels, hash, &told))
        return told;
    told = kdb_tell(KDBT_KERNEL, &k, sizeof k, name, bytes, NULL, 0);
    if (told) {
        told->module = module;
        told->left_out = !kdb_kernel_selected(name);
        kdb_map_set(&kernels, hash, &told);
    }
    return told;
}

static void function_is(const void *function, struct kdb_told *kernel) {
    struct kdb_told *old;
    bool known = kdb_map_get(&functions, (uintptr_t)function, &old);
    if (!kernel || (known && old == kernel))
        return;
    kdb_map_set(&functions, (uintptr_t)function, &kernel);
    if (known) /* shapes remembered under this handle are another kernel's */
        atomic_fetch_add_explicit(&kdb_function_epoch, 1, memory_order_release);
}

static struct kdb_told *module_behind(const void *module) {
    struct kdb_told *told;
    return kdb_map_get(&modules, (uintptr_t)module, &told) ? told : NULL;
}

static void is_named(struct kdb_thread *t, const void *function, struct kdb_told *module, const char *name) {
    struct kdb_told *kernel = kernel_of(module, name);
    function_is(function, kernel);
    if (kernel)
        kdb_told_id(t, kernel);
}

static void named(void *const *function, const void *module, const char *name) {
    struct kdb_thread *t;
    if (!function || !*function || !name || (t = kdb_enter()) == NULL)
        return;
    is_named(t, *function, module_behind(module), name);
    kdb_leave();
}

int hipModuleGetFunction(void **function, void *module, const char *name) {
    REAL(hipModuleGetFunction);
    int result = real(function, module, name);
    if (result == 0)
        named(function, module, name);
    return result;
}

int hipLibraryGetKernel(void **kernel, void *library, const char *name) {
    REAL(hipLibraryGetKernel);
    int result = real(kernel, library, name);
    if (result == 0)
        named(kernel, library, name);
    return result;
}

/* Kernels that are listed and not asked for have no name until the host wants to know it. */
static void listed(void *const *all, unsigned count, const void *library) {
    struct kdb_thread *t = kdb_enter();
    if (!t)
        return;
    struct kdb_told *module = module_behind(library), *owner;
    for (unsigned i = 0; i < count && all[i]; i++) {
        if (kdb_map_get(&owners, (uintptr_t)all[i], &owner) && owner == module)
            continue;
        is_named(t, all[i], module, "");
        kdb_map_set(&owners, (uintptr_t)all[i], &module);
    }
    kdb_leave();
}

int hipLibraryEnumerateKernels(void **all, unsigned count, void *library) {
    REAL(hipLibraryEnumerateKernels);
    int result = real(all, count, library);
    if (result == 0 && all)
        listed(all, count, library);
    return result;
}

int hipKernelGetName(const char **name, void *kernel) {
    REAL(hipKernelGetName);
    int result = real(name, kernel);
    struct kdb_thread *t;
    struct kdb_told *module;
    if (result == 0 && name && *name && kdb_map_get(&owners, (uintptr_t)kernel, &module) &&
        (t = kdb_enter()) != NULL) {
        is_named(t, kernel, module, *name);
        kdb_leave();
    }
    return result;
}

static struct kdb_told *host_kernel(struct kdb_thread *t, const void *host) {
    struct host_function f;
    struct fat_binary fat = {NULL, 1, 0};
    struct kdb_told *module;
    if (!kdb_map_get(&host_functions, (uintptr_t)host, &f))
        return NULL;
    kdb_map_get(&fat_binaries, (uintptr_t)f.fatbin, &fat);
    if (!fat.live)
        return NULL;
    if (!kdb_map_get(&modules, (uintptr_t)f.fatbin, &module)) {
        struct kdb_image image = {0};
        kdb_fatbin_read(&image, fat.image, t->scratch, KDB_SCRATCH);
        module = write_module(t, &image, KDBT_FROM_FATBIN, 0, kdb_ticks(), 0);
        if (module)
            kdb_map_set(&modules, (uintptr_t)f.fatbin, &module);
    }
    return kernel_of(module, f.name);
}

/* A handle, or the address of a host function; HIP 7 takes either in each form. */
static struct kdb_told *kernel_behind(struct kdb_thread *t, const void *function) {
    struct kdb_told *kernel;
    if (kdb_map_get(&functions, (uintptr_t)function, &kernel))
        return kernel;
    kernel = host_kernel(t, function);
    if (!kernel && kdb_by_pointer)
        return host_kernel(t, kdb_by_pointer);
    if (!kernel)
        kernel = kernel_of(NULL, ""); /* loaded where we could not see it */
    function_is(function, kernel);
    return kernel;
}

/* The kernel behind `known` is behind `*function` too. */
static void also(void **function, const void *known) {
    struct kdb_thread *t;
    if (!function || !*function || *function == known || (t = kdb_enter()) == NULL)
        return;
    function_is(*function, kernel_behind(t, known));
    kdb_leave();
}

int hipKernelGetFunction(void **function, void *kernel) {
    REAL(hipKernelGetFunction);
    int result = real(function, kernel);
    if (result == 0)
        also(function, kernel);
    return result;
}

int hipGetFuncBySymbol(void **function, const void *host) {
    REAL(hipGetFuncBySymbol);
    int result = real(function, host);
    if (result == 0)
        also(function, host);
    return result;
}

/* ---- what a compiler puts into a library: called before main, or by dlopen, and only noted ---- */

void **__hipRegisterFatBinary(const void *wrapper) {
    kdb_fn___hipRegisterFatBinary real = KDB_REAL(__hipRegisterFatBinary);
    void **modules_ = real ? real(wrapper) : NULL;
    if (modules_ && kdb_recording()) {
        struct fat_binary fat = {kdb_fatbin_image(wrapper), 1, 0};
        kdb_map_drop(&modules, (uintptr_t)modules_);
        kdb_map_set(&fat_binaries, (uintptr_t)modules_, &fat);
    }
    return modules_;
}

/* The names that it registered lie in a library that is about to go: not to be read any more. */
void __hipUnregisterFatBinary(void **fatbin) {
    kdb_fn___hipUnregisterFatBinary real = KDB_REAL(__hipUnregisterFatBinary);
    struct fat_binary gone = {NULL, 0, 0};
    if (fatbin && kdb_recording()) {
        kdb_map_set(&fat_binaries, (uintptr_t)fatbin, &gone);
        kdb_map_drop(&modules, (uintptr_t)fatbin);
    }
    if (real)
        real(fatbin);
}

void __hipRegisterFunction(void **fatbin, const void *host, char *function, const char *name, unsigned limit,
                           void *tid, void *bid, void *block, void *grid, int *warp) {
    kdb_fn___hipRegisterFunction real = KDB_REAL(__hipRegisterFunction);
    struct host_function f = {name, fatbin};
    if (host && name && kdb_recording()) {
        struct kdb_told *old;
        kdb_map_set(&host_functions, (uintptr_t)host, &f);
        if (kdb_map_get(&functions, (uintptr_t)host, &old)) { /* where an unloaded library had another */
            kdb_map_drop(&functions, (uintptr_t)host);
            atomic_fetch_add_explicit(&kdb_function_epoch, 1, memory_order_release);
        }
    }
    if (real)
        real(fatbin, host, function, name, limit, tid, bid, block, grid, warp);
}

uint32_t kdb_function_kernel(struct kdb_thread *t, const void *function, struct kdb_told **kernel) {
    *kernel = kernel_behind(t, function);
    return *kernel ? kdb_told_id(t, *kernel) : 0;
}
