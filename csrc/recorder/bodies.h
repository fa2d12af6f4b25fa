/* Bodies of the forms of hooks.def that hooks_miopen.def and hooks_ops.def share. */
#ifndef KDB_BODIES_H
#define KDB_BODIES_H
#include "describe.h"

#define KDB_REAL_OR_FAIL(name) KDB_REAL_OR(name, KDB_ERROR_MIOPEN)

/* What a function that sets a descriptor, or makes an object, says of it. */
#undef KDB_SET
#define KDB_SET(library, need, name, params, args, then)                                                     \
    int name params {                                                                                        \
        KDB_REAL_OR_FAIL(name);                                                                              \
        int result = real args;                                                                              \
        if (result == 0 && kdb_recording())                                                                  \
            then;                                                                                            \
        return result;                                                                                       \
    }
/* Before the call: another thread may get the same address right after it. */
#undef KDB_END
#define KDB_END(library, need, name, params, args, object)                                                   \
    int name params {                                                                                        \
        KDB_REAL_OR_FAIL(name);                                                                              \
        if (kdb_recording()) {                                                                               \
            kdb_forget(object);                                                                              \
            kdb_whole_gone(object);                                                                          \
        }                                                                                                    \
        return real args;                                                                                    \
    }

#define KDB_UNPACK(...) __VA_ARGS__
#define KDB_COUNT(type, ...) (sizeof((const type[]){__VA_ARGS__}) / sizeof(type))
#define OUT(pointer) ((pointer) ? *(pointer) : NULL)
#define PLAIN(kind, desc, whole_numbers, real_numbers)                                                       \
    kdb_plain_set(desc, KDB_##kind, KDB_COUNT(int, KDB_UNPACK whole_numbers),                                \
                  (const int[]){KDB_UNPACK whole_numbers}, KDB_COUNT(double, KDB_UNPACK real_numbers),       \
                  (const double[]){KDB_UNPACK real_numbers})
#endif
