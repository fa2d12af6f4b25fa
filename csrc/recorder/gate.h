/* The selection at run time: gate.c. A hook need not ask: kdb_put and kdb_launched do. */
#ifndef KDB_GATE_H
#define KDB_GATE_H
#include "internal.h"
#include "selection.h"

struct kdb_counter { /* launches of one kernel on one device */
    _Atomic uint64_t key, launches;
};

bool kdb_gate_setup(void);                    /* false: this process records nothing */
void kdb_gate_begins(struct kdb_thread *t);   /* of a part: the selection, and a gate that is closed */
bool kdb_gate_passes(struct kdb_thread *t);   /* asked where kdb_gate is not 0 */
void kdb_left_out(struct kdb_thread *t);      /* count an event */
bool kdb_kernel_selected(const char *symbol); /* by its name */
/* NULL: every launch of it is kept. */
struct kdb_counter *kdb_counter_of(const struct kdb_told *kernel, uint32_t device);
bool kdb_keeps(struct kdb_thread *t,
               struct kdb_counter *counter); /* this launch; one that is not is counted */
#endif
