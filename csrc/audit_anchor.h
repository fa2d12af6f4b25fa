/* What the audit library finds in the recorder without calling it: libkdbshim.so exports one of these as
 * `kdb_audit_anchor`. Offsets count from the field itself, so nothing needs relocation: bindings are
 * audited before the recorder is relocated. */
#ifndef KDB_AUDIT_ANCHOR_H
#define KDB_AUDIT_ANCHOR_H
#include <stdint.h>

enum { KDB_ANCHOR_VERSION = 1 };

struct kdb_audit_anchor {
    int64_t thunks; /* code: `thunk_bytes` for each slot */
    int64_t slots;  /* _Atomic(void *) for each slot: the real function */
    int64_t kept;   /* _Atomic char for each slot: 1: never to be given to another */
    int64_t names;  /* of the hooks, each with its zero byte */
    uint32_t version, hooks;
    uint32_t slots_each, thunk_bytes;
};

#endif
