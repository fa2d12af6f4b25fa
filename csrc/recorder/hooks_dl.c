/* dlsym and dlvsym: a pointer that a program takes with them must be recorded too. JAX and
 * TensorFlow take every MIOpen function that way.
 *
 * For a name that is not ours, and for RTLD_NEXT, the thunk jumps to the next
 * dlsym (libc's, or that of another preload) with everything as the caller left it, return address included,
 * so that RTLD_NEXT means the library after the *caller*. For a hook's name the real pointer is looked up,
 * and what the caller gets is a small entry of its own (kdb_thunks) that notes which real function it stands
 * for and goes on into the hook: two HIP runtimes each get their own calls back.
 *
 * RTLD_DEFAULT would find our own hook, even in a program without HIP that only looks whether it is
 * there: it is answered by what comes after us in the global scope, or by the caller's own dependencies.
 *
 * dlopen and dlmopen only count what takes a library's bindings away from a preload. dlclose counts up
 * `kdb_epoch` when it unloaded something: a remembered address may be gone. */
#include "internal.h"

#include "audit_anchor.h"

#include <dlfcn.h>
#include <link.h>

#if defined(__x86_64__)

_Atomic(void *) kdb_slot_real[KDB_HOOKS * KDB_SLOTS];
/* the anchor below has its address */
__attribute__((visibility("hidden"))) extern _Atomic char kdb_slot_kept[KDB_HOOKS * KDB_SLOTS];
_Atomic char kdb_slot_kept[KDB_HOOKS * KDB_SLOTS];
extern const char kdb_thunks[] __attribute__((visibility("hidden")));
enum { THUNK_BYTES = 32 };

/* One 32-byte entry: note the slot in kdb_forced, go on into the hook. r10 and r11 carry no
 * argument of a C function. */
__asm__(".text\n"
        ".macro kdb_thunk target\n"
        "  .balign 32, 0xcc\n"
        "  endbr64\n"
        "  leaq kdb_slot_real+8*kdb_slot(%rip), %r11\n"
        "  movq kdb_local@gottpoff(%rip), %r10\n"
        "  movq %r11, %fs:(%r10)\n"
        "  jmp \\target\n"
        "  .set kdb_slot, kdb_slot+1\n"
        ".endm\n"
        ".set kdb_slot, 0\n"
        ".balign 32, 0xcc\n"
        ".globl kdb_thunks\n"
        ".hidden kdb_thunks\n"
        ".type kdb_thunks,@function\n"
        "kdb_thunks:\n"
        ".cfi_startproc\n"
#define KDB_HOOK(library, need, name, params, result) ".rept 4\n kdb_thunk " #name "\n.endr\n"
#include "hooks.def"
#undef KDB_HOOK
        ".cfi_endproc\n"
        ".size kdb_thunks, .-kdb_thunks\n");
_Static_assert(KDB_SLOTS == 4, "the .rept above");

/* csrc/audit_anchor.h */
__asm__(".section .rodata\n"
        "kdb_hook_text:\n"
#define KDB_HOOK(library, need, name, params, result) ".asciz \"" #name "\"\n"
#include "hooks.def"
#undef KDB_HOOK
        ".balign 8\n"
        ".globl kdb_audit_anchor\n"
        ".type kdb_audit_anchor,@object\n"
        "kdb_audit_anchor:\n"
        ".quad kdb_thunks - .\n"
        ".quad kdb_slot_real - .\n"
        ".quad kdb_slot_kept - .\n"
        ".quad kdb_hook_text - .\n"
        ".long 1, kdb_slot / 4, 4, 32\n"
        ".size kdb_audit_anchor, .-kdb_audit_anchor\n"
        ".text\n");
_Static_assert(KDB_ANCHOR_VERSION == 1 && KDB_SLOTS == 4 && THUNK_BYTES == 32 &&
                   sizeof(struct kdb_audit_anchor) == 48,
               "the anchor above");

/* Hooks by their name's hash: 0 or hook + 1. Filled by whoever comes first, with the same values. */
enum { NAMES = 2048 };
static _Atomic uint16_t by_name[NAMES];
static _Atomic uint32_t names_ready;
_Static_assert(KDB_HOOKS < NAMES / 2, "room in by_name");

static int hook_named(const char *name) {
    if (!atomic_load_explicit(&names_ready, memory_order_acquire)) {
        for (int hook = 0; hook < KDB_HOOKS; hook++) {
            uint16_t value = (uint16_t)(hook + 1), empty = 0;
            uint64_t i = kdb_hash(5, kdb_hook_names[hook], strlen(kdb_hook_names[hook]));
            for (; !atomic_compare_exchange_strong(&by_name[i % NAMES], &empty, value) && empty != value; i++)
                empty = 0;
        }
        atomic_store_explicit(&names_ready, 1, memory_order_release);
    }
    for (uint64_t i = kdb_hash(5, name, strlen(name));; i++) {
        int hook = (int)atomic_load_explicit(&by_name[i % NAMES], memory_order_relaxed) - 1;
        if (hook < 0 || strcmp(kdb_hook_names[hook], name) == 0)
            return hook;
    }
}

void *kdb_thunk_for(const char *name, void *real) {
    int hook = !real || kdb_is_ours(real) ? -1 : hook_named(name);
    if (hook < 0)
        return NULL;
    for (int pass = 0; pass < 2; pass++)
        for (int i = hook * KDB_SLOTS; i < (hook + 1) * KDB_SLOTS; i++) {
            void *held = atomic_load(&kdb_slot_real[i]);
            struct kdb_object object;
            if (held && held != real &&
                (pass == 0 || atomic_load(&kdb_slot_kept[i]) || kdb_object_at(held, &object)))
                continue; /* another library's; in the second pass one that is gone makes room, if no audited
                             binding has it */
            if (held == real || atomic_compare_exchange_strong(&kdb_slot_real[i], &held, real) ||
                held == real)
                return (void *)(kdb_thunks + (size_t)i * THUNK_BYTES);
        }
    return NULL;
}

/* Not strncmp: see libcs_dlsym in resolve.c. */
static bool begins(const char *text, const char *with) {
    for (; *with && *text == *with; text++, with++)
        ;
    return !*with;
}

static bool hooked(const char *name) {
    return name &&
           (begins(name, "hip") || begins(name, "miopen") || begins(name, "sqlite3_") ||
            begins(name, "__hip") || begins(name, "_Z24hip") || begins(name, "roctx") ||
            begins(name, "amd_comgr_")) &&
           hook_named(name) >= 0;
}

/* What the caller would find by RTLD_DEFAULT without us; NULL and a dlerror if nothing. */
static void *by_default(const char *name, const char *version, const void *caller) {
    struct kdb_object object;
    void *found = kdb_look_up(RTLD_NEXT, name, version);
    if (!found && kdb_object_at(caller, &object))
        found = kdb_in_dependencies_of(object.path, name, version);
    return found;
}

struct answer { /* in rax and rdx */
    void *pointer;
    uintptr_t final; /* 0: jump to the real one */
};

static struct answer answer(void *handle, const char *name, const char *version, const void *caller) {
    kdb_find_dlsym();
    if (handle == RTLD_NEXT || !hooked(name) || (version && !kdb_dlvsym_real))
        return (struct answer){NULL, 0};
    if (handle != RTLD_DEFAULT && !kdb_recording())
        return (struct answer){NULL, 0};
    void *real =
        handle == RTLD_DEFAULT ? by_default(name, version, caller) : kdb_look_up(handle, name, version);
    void *thunk = real && kdb_recording() ? kdb_thunk_for(name, real) : NULL;
    if (handle == RTLD_DEFAULT)
        return (struct answer){thunk ? thunk : real, 1};
    return (struct answer){thunk, thunk != NULL};
}

__attribute__((used, visibility("hidden"))) struct answer
kdb_at_dlsym(void *handle, const char *name, const void *unused, const void *caller) {
    (void)unused;
    return answer(handle, name, NULL, caller);
}

__attribute__((used, visibility("hidden"))) struct answer
kdb_at_dlvsym(void *handle, const char *name, const char *version, const void *caller) {
    return version ? answer(handle, name, version, caller) : (struct answer){NULL, 0};
}

static void count_unreached(void) {
    struct kdb_process *p = kdb_process;
    if (!kdb_recording())
        return;
    uint32_t now = atomic_fetch_add(&p->deepbound, 1) + 1;
    struct kdbt_header *header = atomic_load(&p->header);
    if (header)
        __atomic_store_n(&header->deepbound, now, __ATOMIC_RELAXED);
}

__attribute__((used, visibility("hidden"))) struct answer kdb_at_dlopen(const char *file, int flags) {
    kdb_find_dlsym();
    if (file && flags & RTLD_DEEPBIND && !(flags & RTLD_NOLOAD))
        count_unreached();
    return (struct answer){NULL, 0};
}

__attribute__((used, visibility("hidden"))) struct answer kdb_at_dlmopen(Lmid_t namespace, const char *file) {
    kdb_find_dlsym();
    if (file && namespace != LM_ID_BASE)
        count_unreached();
    return (struct answer){NULL, 0};
}

#define KDB_PASS_ON(name)                                                                                    \
    __asm__(".text\n"                                                                                        \
            ".balign 16\n"                                                                                   \
            ".globl " #name "\n"                                                                             \
            ".type " #name ",@function\n" #name ":\n"                                                        \
            ".cfi_startproc\n"                                                                               \
            "  endbr64\n"                                                                                    \
            "  pushq %rdi\n  .cfi_adjust_cfa_offset 8\n"                                                     \
            "  pushq %rsi\n  .cfi_adjust_cfa_offset 8\n"                                                     \
            "  pushq %rdx\n  .cfi_adjust_cfa_offset 8\n"                                                     \
            "  movq 24(%rsp), %rcx\n" /* who calls */                                                        \
            "  call kdb_at_" #name "\n"                                                                      \
            "  movq %rdx, %r11\n"                                                                            \
            "  popq %rdx\n  .cfi_adjust_cfa_offset -8\n"                                                     \
            "  popq %rsi\n  .cfi_adjust_cfa_offset -8\n"                                                     \
            "  popq %rdi\n  .cfi_adjust_cfa_offset -8\n"                                                     \
            "  testq %r11, %r11\n"                                                                           \
            "  jz 1f\n"                                                                                      \
            "  ret\n"                                                                                        \
            "1:\n"                                                                                           \
            "  movq kdb_" #name "_next(%rip), %r11\n"                                                        \
            "  testq %r11, %r11\n"                                                                           \
            "  jz 2f\n"                                                                                      \
            "  jmp *%r11\n"                                                                                  \
            "2: xorl %eax, %eax\n"                                                                           \
            "  ret\n"                                                                                        \
            ".cfi_endproc\n"                                                                                 \
            ".size " #name ", .-" #name "\n")
KDB_PASS_ON(dlsym);
KDB_PASS_ON(dlvsym);
KDB_PASS_ON(dlopen);
KDB_PASS_ON(dlmopen);

#else /* no thunks for other machines: pointers taken with dlsym go unseen there */

_Atomic(void *) kdb_slot_real[KDB_HOOKS * KDB_SLOTS];
void *kdb_thunk_for(const char *name, void *real) {
    (void)name;
    (void)real;
    return NULL;
}

#endif

static int count_unloads(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    *(unsigned long long *)data = info->dlpi_subs;
    return 1;
}

__attribute__((visibility("default"))) int dlclose(void *handle) {
    static int (*_Atomic real)(void *);
    static _Atomic unsigned long long unloads;
    unsigned long long now = 0;
    int (*call)(void *) = atomic_load_explicit(&real, memory_order_relaxed);
    if (!call) {
        call = (int (*)(void *))kdb_dlsym(RTLD_NEXT, "dlclose");
        atomic_store_explicit(&real, call, memory_order_relaxed);
    }
    int result = call ? call(handle) : -1;
    dl_iterate_phdr(count_unloads, &now);
    if (atomic_exchange(&unloads, now) != now)
        atomic_fetch_add_explicit(&kdb_epoch, 1, memory_order_release);
    return result;
}
