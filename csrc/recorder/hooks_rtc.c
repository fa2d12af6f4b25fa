/* hipRTC: programs, what their compile was told, how large the code is once the host asks.
 *
 * A program's name is kept from its creation, as a base name. The options are read after the call, from
 * the host's own array, and only if hipRTC got as far as reading them. */
#include "compile.h"

struct program {
    struct kdb_name name;
    uint32_t left_out; /* options of a link */
    struct kdb_id compile;
    uint32_t unused;
};
static struct kdb_map programs = {.value_bytes = sizeof(struct program)};
static struct kdb_map links = {.value_bytes = sizeof(struct program)};

enum { LINK = 1 }; /* action of the event; 0: a compile */
/* hiprtcResult after which the options had been read: all right, unknown option, compile error, internal. */
static bool read_options(int result) {
    return result == 0 || result == 5 || result == 6 || result == 11;
}

#define KDB_REAL_RTC(name) KDB_REAL_OR(name, KDB_ERROR_HIPRTC)

int hiprtcCreateProgram(void **program, const char *source, const char *name, int headers, const char **texts,
                        const char **names) {
    KDB_REAL_RTC(hiprtcCreateProgram);
    int result = real(program, source, name, headers, texts, names);
    if (result == 0 && program && kdb_recording()) {
        struct program p = {0};
        kdb_name_of(&p.name, name);
        kdb_map_set(&programs, (uintptr_t)*program, &p);
    }
    return result;
}

int hiprtcCompileProgram(void *program, int count, const char **options) {
    KDB_REAL_RTC(hiprtcCompileProgram);
    struct kdb_compiling c;
    struct program p = {0};
    kdb_compile_begins(&c);
    int result = real(program, count, options);
    uint64_t duration = kdb_compile_ends(&c);
    struct kdb_thread *t = kdb_enter();
    if (!t)
        return result;
    kdb_library_facts(t, KDB_LIB_HIPRTC, (const void *)real);
    struct kdb_options o = {.at = (char *)t->scratch, .room = KDB_OPTION_ROOM};
    for (int i = 0; options && i < count && read_options(result); i++)
        kdb_option(&o, options[i]);
    kdb_options_end(&o);
    bool known = kdb_map_get(&programs, (uintptr_t)program, &p);
    struct kdbt_compile event = {.by = KDBT_BY_HIPRTC,
                                 .result = result,
                                 .nested = c.nested,
                                 .duration = duration,
                                 .option_bytes = o.used,
                                 .left_out = o.left_out};
    p.compile = kdb_compiled(t, c.ticks, &event, p.name.text, o.at);
    if (known && result == 0)
        kdb_map_set(&programs, (uintptr_t)program, &p);
    kdb_leave();
    return result;
}

/* Before the call: another thread may get the same address right after it. */
int hiprtcDestroyProgram(void **program) {
    KDB_REAL_RTC(hiprtcDestroyProgram);
    if (program && kdb_recording())
        kdb_map_drop(&programs, (uintptr_t)*program);
    return real(program);
}

/* The host asks: code or bitcode, whichever comes first is what this program was compiled to. */
static void asked(void *program, int result, const size_t *bytes) {
    struct program p;
    if (result != 0 || !bytes || !*bytes || !kdb_recording() ||
        !kdb_map_get(&programs, (uintptr_t)program, &p) || !p.compile.id)
        return;
    kdb_output_is(p.compile, *bytes);
    p.compile.id = 0;
    kdb_map_set(&programs, (uintptr_t)program, &p);
}

int hiprtcGetCodeSize(void *program, size_t *bytes) {
    KDB_REAL_RTC(hiprtcGetCodeSize);
    int result = real(program, bytes);
    asked(program, result, bytes);
    return result;
}

int hiprtcGetBitcodeSize(void *program, size_t *bytes) {
    KDB_REAL_RTC(hiprtcGetBitcodeSize);
    int result = real(program, bytes);
    asked(program, result, bytes);
    return result;
}

/* ---- links ---- */

int hiprtcLinkCreate(unsigned count, int *options, void **values, void **state) {
    KDB_REAL_RTC(hiprtcLinkCreate);
    int result = real(count, options, values, state);
    if (result == 0 && state && kdb_recording()) {
        struct program p = {.left_out = count};
        kdb_map_set(&links, (uintptr_t)*state, &p);
    }
    return result;
}

/* The first input gives the link its name. */
static void added(void *state, int result, const char *name, unsigned count) {
    struct program p;
    if (result != 0 || !kdb_recording() || !kdb_map_get(&links, (uintptr_t)state, &p))
        return;
    p.left_out += count;
    if (!*p.name.text)
        kdb_name_of(&p.name, name);
    kdb_map_set(&links, (uintptr_t)state, &p);
}

int hiprtcLinkAddFile(void *state, int kind, const char *path, unsigned count, int *options, void **values) {
    KDB_REAL_RTC(hiprtcLinkAddFile);
    int result = real(state, kind, path, count, options, values);
    added(state, result, path, count);
    return result;
}

int hiprtcLinkAddData(void *state, int kind, void *image, size_t bytes, const char *name, unsigned count,
                      int *options, void **values) {
    KDB_REAL_RTC(hiprtcLinkAddData);
    int result = real(state, kind, image, bytes, name, count, options, values);
    added(state, result, name, count);
    return result;
}

int hiprtcLinkComplete(void *state, void **binary, size_t *bytes) {
    KDB_REAL_RTC(hiprtcLinkComplete);
    struct kdb_compiling c;
    struct program p = {0};
    kdb_compile_begins(&c);
    int result = real(state, binary, bytes);
    uint64_t duration = kdb_compile_ends(&c);
    struct kdb_thread *t = kdb_enter();
    if (!t)
        return result;
    kdb_library_facts(t, KDB_LIB_HIPRTC, (const void *)real);
    kdb_map_get(&links, (uintptr_t)state, &p);
    struct kdbt_compile event = {.by = KDBT_BY_HIPRTC,
                                 .result = result,
                                 .action = LINK,
                                 .nested = c.nested,
                                 .duration = duration,
                                 .bytes = result == 0 && bytes ? *bytes : 0,
                                 .left_out = p.left_out};
    kdb_compiled(t, c.ticks, &event, p.name.text, NULL);
    kdb_leave();
    return result;
}

int hiprtcLinkDestroy(void *state) {
    KDB_REAL_RTC(hiprtcLinkDestroy);
    if (kdb_recording())
        kdb_map_drop(&links, (uintptr_t)state);
    return real(state);
}
