/* LD_AUDIT=libkdbaudit.so beside LD_PRELOAD=libkdbshim.so: the bindings that a preload cannot have.
 *
 * ld.so asks for each symbol that it binds or that dlsym finds. Where that is a function which the
 * recorder hooks, in one of the libraries that have such functions, the answer is one of the recorder's
 * thunks, with the function's address in its slot: so RTLD_DEEPBIND, other link namespaces and pointers
 * that libc's own dlsym gave out are recorded, too. Left as it is: what is bound to the recorder
 * already, what the recorder asks for, and what a library asks for that has a function of that name
 * itself (another preload that goes on to the next one).
 *
 * This library lives in a namespace of its own. It calls nothing of the recorder, which may not be
 * relocated yet; it reads and writes the tables that csrc/audit_anchor.h describes. */
#define _GNU_SOURCE
#include "audit_anchor.h"
#include "elf_symbol.h"

#include <elf.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static const struct kdb_audit_anchor *_Atomic anchor;
static _Atomic uintptr_t recorder; /* its cookie */

/* Base names begin so. */
static const char *const providers[] = {"libamdhip64.so",
                                        "libMIOpen.so",
                                        "libsqlite3.so",
                                        "libhiprtc.so",
                                        "libamd_comgr.so",
                                        "libroctx64.so",
                                        "librocprofiler-sdk-roctx.so"};
static const char RECORDER[] = "libkdbshim.so";

static const char *base_name(const char *path) {
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path ? path : "";
}

static void *symbol_in(const struct link_map *map, const char *name) {
    return elf_symbol(map->l_addr, map->l_addr, map->l_ld, name);
}

EXPORT unsigned la_version(unsigned version) {
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

EXPORT unsigned la_objopen(struct link_map *map, Lmid_t namespace, uintptr_t *cookie) {
    const char *base = base_name(map->l_name);
    unsigned flags = LA_FLG_BINDFROM;
    *cookie = (uintptr_t)map;
    if (namespace == LM_ID_BASE && !atomic_load(&recorder) &&
        strncmp(base, RECORDER, sizeof RECORDER - 1) == 0) {
        const struct kdb_audit_anchor *found = symbol_in(map, "kdb_audit_anchor");
        if (found && found->version == KDB_ANCHOR_VERSION) {
            atomic_store(&recorder, *cookie);
            atomic_store(&anchor, found);
        }
    }
    for (size_t i = 0; i < sizeof providers / sizeof *providers; i++)
        if (strncmp(base, providers[i], strlen(providers[i])) == 0)
            flags |= LA_FLG_BINDTO;
    return flags;
}

static const void *at(const int64_t *offset) {
    return (const char *)offset + *offset;
}

static int hook_named(const struct kdb_audit_anchor *a, const char *name) {
    const char *names = at(&a->names);
    for (uint32_t i = 0; i < a->hooks; i++, names += strlen(names) + 1)
        if (strcmp(names, name) == 0)
            return (int)i;
    return -1;
}

/* 0: every slot of this hook is another function's. */
static uintptr_t thunk(const struct kdb_audit_anchor *a, uint32_t hook, void *real) {
    void *_Atomic *slots = (void *_Atomic *)at(&a->slots);
    _Atomic char *kept = (_Atomic char *)at(&a->kept);
    for (uint32_t i = hook * a->slots_each; i < (hook + 1) * a->slots_each; i++) {
        void *none = NULL;
        if (!atomic_compare_exchange_strong(&slots[i], &none, real) && none != real)
            continue;
        atomic_store(&kept[i], 1);
        return (uintptr_t)at(&a->thunks) + (uintptr_t)i * a->thunk_bytes;
    }
    return 0;
}

EXPORT uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned index, uintptr_t *from, uintptr_t *to,
                              unsigned *flags, const char *name) {
    const struct kdb_audit_anchor *a = atomic_load(&anchor);
    (void)index, (void)flags;
    if (!a || *from == atomic_load(&recorder) || *to == atomic_load(&recorder) || *from == *to)
        return symbol->st_value;
    int hook = hook_named(a, name);
    if (hook < 0 || symbol_in((const struct link_map *)*from, name))
        return symbol->st_value;
    uintptr_t instead = thunk(a, (uint32_t)hook, (void *)symbol->st_value);
    return instead ? instead : symbol->st_value;
}
