/* MIOpen's other operations: the bodies of hooks_ops.def. What a call is about is a list of items on
 * the stack; they become text once per distinct content (detail.c). */
#include "describe.h"

#include "bodies.h"

static uint64_t bits(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

#define ADDRESS(pointer) (uint64_t)(uintptr_t)(pointer)
#define TENSOR(name) {#name, KDB_TENSOR, 0, 1, ADDRESS(name##_desc)}
#define SEQUENCE(name) {#name, KDB_SEQUENCE, 0, 1, ADDRESS(name##_desc)}
#define TENSORS(name, list, n) {#name, KDB_TENSORS, 0, LENGTH(list, n), ADDRESS(list)}
#define INTS(name, list, n) {#name, KDB_INTS, 0, LENGTH(list, n), ADDRESS(list)}
#define LENGTH(list, n) (list) && (int32_t)(n) > 0 ? (uint32_t)(n) : 0
#define OBJECT(kind, desc) {"", KDB_##kind, 0, 1, ADDRESS(desc)}
#define CHOICE(name, saying, value) {#name, KDB_##saying, 0, 1, (uint64_t)(int64_t)(value)}
#define NUMBER(name, value) {#name, KDB_NUMBER, 0, 1, (uint64_t)(int64_t)(value)}
#define REAL_NUMBER(name, value) {#name, KDB_REAL, 0, 1, bits((double)(value))}

#undef KDB_OP_SET
#define KDB_OP_SET(library, need, name, params, args, items, then)                                           \
    int name params {                                                                                        \
        struct kdb_call call;                                                                                \
        const void *caller = __builtin_return_address(0);                                                    \
        const struct kdb_item list[] = {KDB_UNPACK items};                                                   \
        KDB_REAL_OR_FAIL(name);                                                                              \
        kdb_begin(&call, KDB_##name, (void *)real, caller, list, sizeof list / sizeof *list);                \
        int result = real args;                                                                              \
        if (result == 0 && kdb_recording())                                                                  \
            then;                                                                                            \
        return kdb_end(&call, KDB_##name, result, KDB_NONE, 0, 0);                                           \
    }
#undef KDB_OP
#define KDB_OP(library, need, name, params, args, items)                                                     \
    KDB_OP_SET(library, need, name, params, args, items, (void)0)
#include "hooks_ops.def"
