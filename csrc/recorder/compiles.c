/* The events of a compile, and which one is inside another.
 *
 * The event is written when the call returns, so that a process that is killed then has it. How large the
 * result is, hipRTC and COMGR tell when the host asks them: that is a record of its own, since asking for it
 * ourselves could show in hipRTC's log and in its last error. */
#include "compile.h"

static _Thread_local uintptr_t frame; /* of the innermost compile that is running; 0: none */

void kdb_name_of(struct kdb_name *name, const char *path) {
    const char *base = kdb_base_name(path);
    size_t bytes = strnlen(base, sizeof name->text - 1);
    memset(name, 0, sizeof *name);
    memcpy(name->text, base, bytes);
}

/* By place on the stack: a frame that an exception left behind does not lie around a later call. */
void kdb_compile_begins(struct kdb_compiling *c) {
    c->outer = frame;
    c->nested = frame > (uintptr_t)c;
    frame = (uintptr_t)c;
    c->ticks = kdb_ticks();
}

uint64_t kdb_compile_ends(const struct kdb_compiling *c) {
    frame = c->nested ? c->outer : 0;
    return kdb_ticks() - c->ticks;
}

struct kdb_id kdb_compiled(struct kdb_thread *t, uint64_t ticks, struct kdbt_compile *c, const char *name,
                           const char *options) {
    struct kdb_id id = {kdb_new_id(), t->generation};
    c->name_bytes = (uint32_t)strlen(name);
    if (!kdb_put(t, KDBT_COMPILE, id.id, ticks, c, sizeof *c, name, c->name_bytes, options, c->option_bytes))
        id.id = 0;
    return id;
}

void kdb_output_is(struct kdb_id compile, uint64_t bytes) {
    struct kdb_thread *t = compile.id ? kdb_enter() : NULL;
    if (!t)
        return;
    if (compile.generation == t->generation) {
        struct kdbt_output output = {.compile = compile.id, .bytes = bytes};
        kdb_put(t, KDBT_OUTPUT, 0, kdb_ticks(), &output, sizeof output, NULL, 0, NULL, 0);
    }
    kdb_leave();
}
