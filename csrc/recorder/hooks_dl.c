/* dlsym and dlvsym: a pointer that a program takes with them must be recorded too. JAX and
 * TensorFlow take every MIOpen function that way.
 *
 * For a name that is not ours, and for RTLD_NEXT and RTLD_DEFAULT, the thunk jumps to the next
 * dlsym (libc's, or that of another preload) with everything as the caller left it, return address included,
 * so that RTLD_NEXT means the library after the *caller*. For a hook's name the real pointer is looked up,
 * and what the caller gets is a small entry of its own (kdb_thunks) that notes which real function it stands
 * for and goes on into the hook: two HIP runtimes each get their own calls back.
 *
 * dlclose counts up `kdb_epoch` when it unloaded something: a remembered address may be gone. */
#include "internal.h"

#include <dlfcn.h>
#include <link.h>

#if defined(__x86_64__)

_Atomic(void *) kdb_slot_real[KDB_HOOKS * KDB_SLOTS];
extern const char kdb_thunks[] __attribute__((visibility("hidden")));
enum { THUNK_BYTES = 32 };

/* One 32-byte entry: note the slot in kdb_forced, go on into the hook. r10 and r11 carry no
 * argument of a C function. */
__asm__(".text\n"
        ".macro kdb_thunk target\n"
        "  .balign 32, 0xcc\n"
        "  endbr64\n"
        "  leaq kdb_slot_real+8*kdb_slot(%rip), %r11\n"
        "  movq kdb_forced@gottpoff(%rip), %r10\n"
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

void *kdb_thunk_for(const char *name, void *real) {
    int hook = 0;
    if (!real || kdb_is_ours(real))
        return NULL;
    while (hook < KDB_HOOKS && strcmp(kdb_hook_names[hook], name) != 0)
        hook++;
    if (hook == KDB_HOOKS)
        return NULL;
    for (int pass = 0; pass < 2; pass++)
        for (int i = hook * KDB_SLOTS; i < (hook + 1) * KDB_SLOTS; i++) {
            void *held = atomic_load(&kdb_slot_real[i]);
            struct kdb_object object;
            if (held && held != real && (pass == 0 || kdb_object_at(held, &object)))
                continue; /* another library's; in the second pass one that is gone makes room */
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

static bool worth_a_look(void *handle, const char *name) {
    if (handle == RTLD_NEXT || handle == RTLD_DEFAULT || !name)
        return false;
    if (!begins(name, "hip") && !begins(name, "miopen") && !begins(name, "sqlite3_") &&
        !begins(name, "__hip") && !begins(name, "_Z24hip") && !begins(name, "roctx") &&
        !begins(name, "amd_comgr_"))
        return false;
    kdb_setup();
    return atomic_load_explicit(&kdb_mode, memory_order_acquire) == 2;
}

void kdb_find_dlsym(void);
extern void *kdb_dlsym_real, *kdb_dlvsym_real;

/* NULL: jump to the real one. */
__attribute__((used, visibility("hidden"))) void *kdb_at_dlsym(void *handle, const char *name) {
    kdb_find_dlsym();
    if (!worth_a_look(handle, name))
        return NULL;
    return kdb_thunk_for(name, ((void *(*)(void *, const char *))kdb_dlsym_real)(handle, name));
}

__attribute__((used, visibility("hidden"))) void *kdb_at_dlvsym(void *handle, const char *name,
                                                                const char *version) {
    kdb_find_dlsym();
    if (!kdb_dlvsym_real || !version || !worth_a_look(handle, name))
        return NULL;
    void *(*real)(void *, const char *, const char *) =
        (void *(*)(void *, const char *, const char *))kdb_dlvsym_real;
    return kdb_thunk_for(name, real(handle, name, version));
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
            "  call kdb_at_" #name "\n"                                                                      \
            "  popq %rdx\n  .cfi_adjust_cfa_offset -8\n"                                                     \
            "  popq %rsi\n  .cfi_adjust_cfa_offset -8\n"                                                     \
            "  popq %rdi\n  .cfi_adjust_cfa_offset -8\n"                                                     \
            "  testq %rax, %rax\n"                                                                           \
            "  jz 1f\n"                                                                                      \
            "  ret\n"                                                                                        \
            "1:\n"                                                                                           \
            "  movq kdb_" #name "_next(%rip), %r11\n"                                                        \
            "  testq %r11, %r11\n"                                                                           \
            "  jz 2f\n"                                                                                      \
            "  jmp *%r11\n"                                                                                  \
            "2: ret\n"                                                                                       \
            ".cfi_endproc\n"                                                                                 \
            ".size " #name ", .-" #name "\n")
KDB_PASS_ON(dlsym);
KDB_PASS_ON(dlvsym);

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
