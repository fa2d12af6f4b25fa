/* Finding the real function.
 *
 * RTLD_NEXT alone is not enough: it is NULL when the library came in through Python's RTLD_LOCAL.
 * So a direct call goes to the function that the caller's own library depends on, then to the next
 * one in the global scope, then to one by soname. Where the first two differ, the global one wins
 * if it is no HIP, MIOpen or SQLite library: another preload that wants to be asked too; or if it was
 * there before the caller, since then ld.so bound the caller's other functions to it. A call
 * through a pointer from dlsym goes to what that dlsym found (hooks_dl.c).
 *
 * The first call out of a library may use the loader; later ones walk a short list. */
#include "internal.h"

#include "elf_symbol.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>

#define KDB_HOOK(library, need, name, params, result) #name,
const char *const kdb_hook_names[KDB_HOOKS] = {
#include "hooks.def"
};
#undef KDB_HOOK
#define KDB_HOOK(library, need, name, params, result) KDB_LIB_##library,
const uint8_t kdb_hook_library[KDB_HOOKS] = {
#include "hooks.def"
};
#undef KDB_HOOK

_Atomic(struct kdb_caller *) kdb_callers[KDB_HOOKS];
_Atomic uint32_t kdb_epoch = 1;

static const char *const provider[KDB_LIBRARIES] = {
    [KDB_LIB_HIP] = "libamdhip64.so",    [KDB_LIB_MIOPEN] = "libMIOpen.so",
    [KDB_LIB_SQLITE] = "libsqlite3.so",  [KDB_LIB_HIPRTC] = "libhiprtc.so",
    [KDB_LIB_COMGR] = "libamd_comgr.so", [KDB_LIB_ROCTX] = "libroctx64.so"};
static const char *const sonames[KDB_LIBRARIES][4] = {
    [KDB_LIB_HIP] = {"libamdhip64.so.6", "libamdhip64.so.7", "libamdhip64.so.5", "libamdhip64.so"},
    [KDB_LIB_MIOPEN] = {"libMIOpen.so.1", "libMIOpen.so"},
    [KDB_LIB_SQLITE] = {"libsqlite3.so.0", "libsqlite3.so"},
    [KDB_LIB_HIPRTC] = {"libhiprtc.so.6", "libhiprtc.so.7", "libhiprtc.so.5", "libhiprtc.so"},
    [KDB_LIB_COMGR] = {"libamd_comgr.so.3", "libamd_comgr.so.2", "libamd_comgr.so"},
    [KDB_LIB_ROCTX] = {"libroctx64.so.4", "libroctx64.so", "librocprofiler-sdk-roctx.so.1",
                       "librocprofiler-sdk-roctx.so.0"}};

/* ---- the program headers of what is loaded ---- */

extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

bool kdb_is_ours(const void *address) {
    return (const char *)address >= __ehdr_start && (const char *)address < _end;
}

static void read_build_id(struct kdb_object *object, const char *note, size_t bytes) {
    while (bytes >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) head;
        memcpy(&head, note, sizeof head);
        size_t name = (head.n_namesz + 3u) & ~3u, text = (head.n_descsz + 3u) & ~3u;
        if (name > bytes || text > bytes || sizeof head + name + text > bytes)
            return;
        if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == 4 &&
            head.n_descsz <= sizeof object->build_id) {
            memcpy(object->build_id, note + sizeof head + name, head.n_descsz);
            object->build_id_bytes = head.n_descsz;
            return;
        }
        note += sizeof head + name + text;
        bytes -= sizeof head + name + text;
    }
}

struct wanted {
    uintptr_t address;
    struct kdb_object *object;
};

static int look_at(struct dl_phdr_info *info, size_t size, void *data) {
    struct wanted *wanted = data;
    uintptr_t low = UINTPTR_MAX, high = 0;
    bool inside = false;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t from = info->dlpi_addr + p->p_vaddr, to = from + p->p_memsz;
        if (p->p_type != PT_LOAD)
            continue;
        low = from < low ? from : low;
        high = to > high ? to : high;
        inside |= wanted->address >= from && wanted->address < to;
    }
    if (!inside)
        return 0;
    memset(wanted->object, 0, sizeof *wanted->object);
    wanted->object->low = low;
    wanted->object->high = high;
    wanted->object->base = info->dlpi_addr;
    wanted->object->path = info->dlpi_name ? info->dlpi_name : "";
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        const char *at = (const char *)(info->dlpi_addr + p->p_vaddr);
        if (p->p_type == PT_DYNAMIC)
            wanted->object->dynamic = at;
        else if (p->p_type == PT_NOTE && !wanted->object->build_id_bytes)
            read_build_id(wanted->object, at, p->p_memsz);
    }
    return 1;
}

bool kdb_object_at(const void *address, struct kdb_object *object) {
    struct wanted wanted = {(uintptr_t)address, object};
    return dl_iterate_phdr(look_at, &wanted) == 1;
}

/* ---- a symbol of one object, from its own tables: the loader is not asked, nobody's scope matters ---- */

static void *symbol_in(const struct kdb_object *object, const char *name) {
    return elf_symbol(object->base, object->low, object->dynamic, name);
}

void *kdb_symbol_at(const void *address, const char *name) {
    struct kdb_object object;
    return address && kdb_object_at(address, &object) ? symbol_in(&object, name) : NULL;
}

/* ---- the real dlsym ---- */

void *kdb_dlsym_real, *kdb_dlvsym_real; /* libc's */
/* where a host's own call goes on: another preload's or libc's */
void *kdb_dlsym_next, *kdb_dlvsym_next, *kdb_dlopen_next, *kdb_dlmopen_next;
static void *libcs_dlopen, *libcs_dlmopen;
static int (*dlclose_real)(void *); /* ours would say that a library has gone */

/* Along the loader's list and with no call out: a sanitizer's first act is a dlsym, and then none of
 * its stand-ins for strcmp or dl_iterate_phdr works yet. What stands before libc in the list was
 * loaded with the program and stays. */
static void *libcs_dlsym(void) {
    for (const struct link_map *m = _r_debug.r_map; m; m = m->l_next) {
        struct kdb_object object = {.low = m->l_addr, .base = m->l_addr, .dynamic = m->l_ld};
        const char *base = m->l_name;
        for (const char *c = base; c && *c; c++)
            base = *c == '/' ? c + 1 : base;
        /* glibc has both in libc.so.6 since 2.34, before that in libdl.so.2 */
        if (!base || (!elf_same(base, "libc.so.6") && !elf_same(base, "libdl.so.2")))
            continue;
        void *found = symbol_in(&object, "dlsym");
        if (found) {
            kdb_dlvsym_real = symbol_in(&object, "dlvsym");
            libcs_dlopen = symbol_in(&object, "dlopen");
            libcs_dlmopen = symbol_in(&object, "dlmopen");
            dlclose_real = (int (*)(void *))symbol_in(&object, "dlclose");
            return found;
        }
    }
    return NULL;
}

/* What a call would reach without us. */
static void *after_us(void *real, const char *name, void *libcs) {
    void *next = libcs ? ((void *(*)(void *, const char *))real)(RTLD_NEXT, name) : NULL;
    return next && !kdb_is_ours(next) ? next : libcs;
}

void kdb_find_dlsym(void) {
    if (__atomic_load_n(&kdb_dlsym_real, __ATOMIC_ACQUIRE))
        return;
    void *real = libcs_dlsym();
    if (!real)
        return;
    kdb_dlsym_next = after_us(real, "dlsym", real);
    kdb_dlvsym_next = after_us(real, "dlvsym", kdb_dlvsym_real);
    kdb_dlopen_next = after_us(real, "dlopen", libcs_dlopen);
    kdb_dlmopen_next = after_us(real, "dlmopen", libcs_dlmopen);
    __atomic_store_n(&kdb_dlsym_real, real, __ATOMIC_RELEASE);
}

void *kdb_look_up(void *handle, const char *name, const char *version) {
    kdb_find_dlsym();
    void *(*real)(void *, const char *) = (void *(*)(void *, const char *))kdb_dlsym_real;
    void *(*versioned)(void *, const char *, const char *) =
        (void *(*)(void *, const char *, const char *))kdb_dlvsym_real;
    void *found = NULL;
    if (version && versioned)
        found = versioned(handle, name, version);
    else if (!version && real)
        found = real(handle, name);
    return kdb_is_ours(found) ? NULL : found;
}

void *kdb_dlsym(void *handle, const char *name) {
    return kdb_look_up(handle, name, NULL);
}

/* ---- the real function of a hook ---- */

void *kdb_in_dependencies_of(const char *path, const char *name, const char *version) {
    if (!*path) /* the program: its scope is the global one, where we are first */
        return NULL;
    void *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    void *found = handle ? kdb_look_up(handle, name, version) : NULL;
    if (handle && dlclose_real)
        dlclose_real(handle);
    return found;
}

/* Whether a library of that path is one that has the functions of `library`. */
static bool brings(const char *path, enum kdb_library library) {
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    /* libamdhip64 has hipRTC's functions, too; rocprofiler-sdk brings a ROCTx of its own */
    const char *other = library == KDB_LIB_HIPRTC  ? provider[KDB_LIB_HIP]
                        : library == KDB_LIB_ROCTX ? "librocprofiler-sdk-roctx.so"
                                                   : provider[library];
    return strncmp(base, provider[library], strlen(provider[library])) == 0 ||
           strncmp(base, other, strlen(other)) == 0;
}

static bool provides(const void *address, enum kdb_library library) {
    struct kdb_object object;
    return kdb_object_at(address, &object) && brings(object.path, library);
}

struct pair {
    uintptr_t first, second;
    bool before;
};

static int first_of(struct dl_phdr_info *info, size_t size, void *data) {
    struct pair *pair = data;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t from = info->dlpi_addr + p->p_vaddr;
        if (p->p_type != PT_LOAD)
            continue;
        if (pair->second - from < p->p_memsz)
            return 1;
        if (pair->first - from < p->p_memsz) {
            pair->before = true;
            return 1;
        }
    }
    return 0;
}

/* The library around `a` was loaded before that around `b`: the loader's list has that order. */
static bool loaded_before(const void *a, const void *b) {
    struct pair pair = {(uintptr_t)a, (uintptr_t)b, false};
    dl_iterate_phdr(first_of, &pair);
    return pair.before;
}

/* Nodes come from one anonymous page at a time and are never given back: a handful per library. */
static struct kdb_caller *new_caller(void) {
    static _Atomic(struct kdb_caller *) page;
    static _Atomic uint32_t used;
    enum { PER_PAGE = 4096 / sizeof(struct kdb_caller), MOST = 64 * PER_PAGE };
    struct kdb_caller *nodes = atomic_load(&page);
    if (!nodes) {
        size_t bytes = MOST * sizeof *nodes;
        void *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (made == MAP_FAILED)
            return NULL;
        if (atomic_compare_exchange_strong(&page, &nodes, made))
            nodes = made;
        else
            munmap(made, bytes);
    }
    uint32_t n = atomic_fetch_add(&used, 1);
    if (n >= MOST) {
        atomic_store(&used, MOST);
        return NULL;
    }
    return &nodes[n];
}

/* A node of the same library from before a dlclose is brought up to date: the list stays as short as
 * the list of libraries. */
static void remember(enum kdb_hook hook, const void *caller, const struct kdb_object *object, void *real,
                     uint32_t epoch) {
    uintptr_t low = object->path ? object->low : (uintptr_t)caller;
    uintptr_t high = object->path ? object->high : (uintptr_t)caller + 1;
    struct kdb_caller *node = atomic_load(&kdb_callers[hook]);
    while (node && (node->low != low || node->high != high))
        node = node->next;
    bool fresh = !node;
    if (fresh && !(node = new_caller()))
        return;
    atomic_store_explicit(&node->real, real, memory_order_relaxed);
    atomic_store_explicit(&node->epoch, epoch, memory_order_release);
    if (!fresh)
        return;
    node->low = low;
    node->high = high;
    node->next = atomic_load(&kdb_callers[hook]);
    while (!atomic_compare_exchange_weak(&kdb_callers[hook], &node->next, node))
        ;
}

/* The loader allocates, and a host's malloc may call HIP: then this thread is here a second time, and
 * looks along the loader's list alone. */
static void *without_loader(enum kdb_library library, const char *name) {
    for (const struct link_map *m = _r_debug.r_map; m; m = m->l_next) {
        struct kdb_object object = {.low = m->l_addr, .base = m->l_addr, .dynamic = m->l_ld};
        void *found = m->l_name && brings(m->l_name, library) ? symbol_in(&object, name) : NULL;
        if (found)
            return found;
    }
    return NULL;
}

void *kdb_resolve(enum kdb_hook hook, const void *caller) {
    static _Thread_local bool resolving;
    const char *name = kdb_hook_names[hook];
    enum kdb_library library = kdb_hook_library[hook];
    uint32_t epoch = atomic_load_explicit(&kdb_epoch, memory_order_acquire);
    if (resolving)
        return without_loader(library, name);
    struct kdb_quiet quiet = kdb_quiet_begin();
    struct kdb_object object = {0};
    void *own = NULL;
    resolving = true;
    if (kdb_object_at(caller, &object))
        own = kdb_in_dependencies_of(object.path, name, NULL);
    /* Another preload, before us, that wraps this function and asked for the next one: us. */
    if (own && (uintptr_t)own - object.low < object.high - object.low && !provides(own, library))
        own = NULL;
    void *next = kdb_dlsym(RTLD_NEXT, name);
    void *real = own ? own : next;
    if (own && next && own != next && (!provides(next, library) || loaded_before(next, caller)))
        real = next;
    for (int i = 0; !real && i < 4 && sonames[library][i]; i++)
        real = kdb_in_dependencies_of(sonames[library][i], name, NULL);
    resolving = false;
    dlerror(); /* what failed here is not the host's to see */
    if (real)
        remember(hook, caller, &object, real, epoch);
    kdb_quiet_end(quiet);
    return real;
}
