/* The ROCTx ranges that are open now, whether there is a trace or not. */
#ifndef KDB_RANGES_H
#define KDB_RANGES_H
#include "internal.h"

enum { KDB_RANGE_ROOM = 1000 }; /* bytes of a name that is kept while its range is open */
struct kdb_open_range {
    uint64_t ticks, id; /* id: of a start; 0 of a push */
    int32_t below;      /* of a push: the one that was open before it, or -1 */
    uint32_t bytes;
    char name[KDB_RANGE_ROOM]; /* zero-terminated, cut */
};

void kdb_range_push(const char *name, uint64_t ticks);
bool kdb_range_pop(void); /* whether one was open in this thread */
void kdb_range_start(const char *name, uint64_t id, uint64_t ticks);
void kdb_range_stop(uint64_t id);

/* gate.c: after the record, which is not written (`t` NULL) while there is no trace. A pop only of what was
 * pushed; a pop and a stop without a name. */
void kdb_region(struct kdb_thread *t, int op, const char *name, uint64_t id);

/* For a trace, or a thread in it, that begins: the thread's pushes, outermost first; all starts. */
void kdb_each_push(void (*put)(struct kdb_thread *t, const struct kdb_open_range *r), struct kdb_thread *t);
void kdb_each_start(void (*put)(struct kdb_thread *t, const struct kdb_open_range *r), struct kdb_thread *t);

#endif
