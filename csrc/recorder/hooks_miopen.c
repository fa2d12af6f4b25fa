/* MIOpen's descriptors and convolutions: the bodies of hooks_miopen.def. A descriptor is noted only
 * when MIOpen took it. */
#include "describe.h"

#include "bodies.h"

#define BEST_PERF                                                                                            \
    FOUND(returned_algo_count, perf_results) ? perf_results->algorithm : KDB_NONE, 0,                        \
        FOUND(returned_algo_count, perf_results) ? perf_results->memory : 0
#define BEST_SOLUTION                                                                                        \
    FOUND(solution_count, solutions) ? solutions->algorithm : KDB_NONE,                                      \
        FOUND(solution_count, solutions) ? solutions->id : 0,                                                \
        FOUND(solution_count, solutions) ? solutions->workspace : 0
#define FOUND(count, list) (result == 0 && (count) && *(count) > 0 && (list))
#define SIZE(size) result == 0 && (size) ? *(size) : 0

#undef KDB_CONVOLUTION
#define KDB_CONVOLUTION(library, need, name, params, args, direction, x, w, y, ...)                          \
    int name params {                                                                                        \
        struct kdb_call call;                                                                                \
        const void *caller = __builtin_return_address(0);                                                    \
        KDB_REAL_OR_FAIL(name);                                                                              \
        kdb_begin_conv(&call, KDB_##name, (void *)real, caller, direction, x, w, y, conv_desc);              \
        int result = real args;                                                                              \
        return kdb_end(&call, KDB_##name, result, __VA_ARGS__);                                              \
    }
#undef KDB_WHOLE
#define KDB_WHOLE(library, need, name, params, args, whole, then, solver, space)                             \
    int name params {                                                                                        \
        struct kdb_call call;                                                                                \
        const void *caller = __builtin_return_address(0);                                                    \
        KDB_REAL_OR_FAIL(name);                                                                              \
        kdb_begin_whole(&call, KDB_##name, (void *)real, caller, whole);                                     \
        int result = real args;                                                                              \
        if (result == 0 && kdb_recording())                                                                  \
            then;                                                                                            \
        return kdb_end(&call, KDB_##name, result, KDB_NONE, solver, space);                                  \
    }
#include "hooks_miopen.def"
