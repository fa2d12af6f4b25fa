/* Compiles: what hipRTC, COMGR and a compiler's own process share.
 *
 * Of a command line only what options.c lists is kept, and base names of sources. */
#ifndef KDB_COMPILE_H
#define KDB_COMPILE_H
#include "internal.h"

/* ---- options.c: words in, those of the published list out ---- */
enum { KDB_OPTION_ROOM = 32768 };
struct kdb_options {
    char *at; /* kept words, a zero byte behind each */
    uint32_t room, used, left_out;
    const char *source; /* the first word that is no option and belongs to none; NULL: none */
    bool device;        /* it compiles for a GPU */
    char pending;       /* what the next word is: see options.c; 0: a word of its own */
};
void kdb_option(struct kdb_options *o, const char *word); /* in order; NULL counts as left out */
void kdb_options_end(struct kdb_options *o);
const char *kdb_base_name(const char *path); /* NULL gives "" */

/* ---- compiles.c ---- */
enum { KDB_NAME_MOST = 124 };
struct kdb_name { /* a base name, cut to fit */
    char text[KDB_NAME_MOST];
};
void kdb_name_of(struct kdb_name *name, const char *path);

struct kdb_compiling { /* one on the stack of each hook that compiles */
    uint64_t ticks;
    uintptr_t outer;
    bool nested;
};
/* Around the real call. */
void kdb_compile_begins(struct kdb_compiling *c);
uint64_t kdb_compile_ends(const struct kdb_compiling *c); /* ticks that it took */

/* The event; its id, so that a size that is asked for later can be told. id 0: not written. */
struct kdb_id kdb_compiled(struct kdb_thread *t, uint64_t ticks, struct kdbt_compile *c, const char *name,
                           const char *options);
void kdb_output_is(struct kdb_id compile, uint64_t bytes);
#endif
