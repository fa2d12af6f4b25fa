/* Answers MIOpen's look-ups of compiled kernels, so that a harvest compiles none. Loaded by `kdbtool
 * harvest` alone, behind the recorder, which has noted the look-up before it comes here.
 *
 * `sqlite3_prepare_v2` of a SELECT on kern_db (MIOpen src/include/miopen/kern_db.hpp, KernDb::FindRecord,
 * 5.0 to 7.2) prepares $KDBTOOL_HARVEST_ANSWER instead, a SELECT of the same three columns that gives a
 * stand-in (csrc/simgpu/elf.c). rocBLAS, whose kernels are in no kernel database, does nothing and says
 * that it went well: creating one handle of its own takes longer than a hundred look-ups. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "harvest.h"

#define EXPORT __attribute__((visibility("default")))

enum { SQLITE_ERROR = 1 };
static _Atomic uint64_t answered;

EXPORT uint64_t kdb_harvest_answered(void) {
    return atomic_load(&answered);
}

static bool asks_for_a_kernel(const char *sql, int bytes) {
    static const char FROM[] = " FROM kern_db WHERE (kernel_name = '";
    size_t length = !sql        ? 0
                    : bytes < 0 ? strnlen(sql, 256)
                                : strnlen(sql, bytes < 256 ? (size_t)bytes : 256);
    return length > 7 && memcmp(sql, "SELECT ", 7) == 0 && memmem(sql, length, FROM, sizeof FROM - 1);
}

EXPORT int sqlite3_prepare_v2(void *db, const char *sql, int bytes, void **stmt, const char **tail) {
    static int (*_Atomic next)(void *, const char *, int, void **, const char **);
    int (*real)(void *, const char *, int, void **, const char **) = atomic_load(&next);
    if (!real) {
        real = (int (*)(void *, const char *, int, void **, const char **))dlsym(RTLD_NEXT,
                                                                                 "sqlite3_prepare_v2");
        atomic_store(&next, real);
    }
    const char *answer = getenv("KDBTOOL_HARVEST_ANSWER");
    if (!real)
        return SQLITE_ERROR;
    if (!answer || !asks_for_a_kernel(sql, bytes))
        return real(db, sql, bytes, stmt, tail);
    if (tail)
        *tail = sql + (bytes < 0 ? strlen(sql) : strnlen(sql, (size_t)bytes));
    int result = real(db, answer, -1, stmt, NULL);
    atomic_fetch_add(&answered, 1);
    return result;
}

/* ---- MIOpen's user database of kernels: opened once, though each handle opens and closes it. Nothing is
 * ever found in it, and making and deleting its write-ahead log is half of what a look-up costs. */
static struct {
    char *path;
    void *db;
} kept;

static void *next_of(const char *name) {
    return dlsym(RTLD_NEXT, name);
}

EXPORT int sqlite3_open_v2(const char *path, void **db, int flags, const char *vfs) {
    int (*real)(const char *, void **, int, const char *);
    *(void **)&real = next_of("sqlite3_open_v2");
    size_t bytes = path ? strlen(path) : 0;
    bool is_user = bytes > 5 && strcmp(path + bytes - 5, ".ukdb") == 0;
    if (is_user && kept.path && strcmp(kept.path, path) == 0) {
        *db = kept.db;
        return 0;
    }
    int result = real ? real(path, db, flags, vfs) : SQLITE_ERROR;
    if (is_user && result == 0 && !kept.path && (kept.path = strdup(path)) != NULL)
        kept.db = *db;
    return result;
}

EXPORT int sqlite3_close(void *db) {
    int (*real)(void *);
    *(void **)&real = next_of("sqlite3_close");
    if (db && db == kept.db)
        return 0;
    return real ? real(db) : SQLITE_ERROR;
}

/* ---- rocBLAS: what libMIOpen imports of it (3.4); 0 is rocblas_status_success. A product computes nothing,
 * but takes the simulated device's time, or Find would not believe it. */
struct blas {
    void *stream;
};

/* The stand-in's bytes, out of the answer's first literal: x'...' */
static bool stand_in(unsigned char image[64]) {
    const char *answer = getenv("KDBTOOL_HARVEST_ANSWER");
    const char *hex = answer ? strstr(answer, "x'") : NULL;
    for (int i = 0; i < 64; i++) {
        char byte[3] = {0}, *end = byte;
        if (!hex || strnlen(hex, 4) < 4)
            return false;
        memcpy(byte, hex + 2, 2);
        image[i] = (unsigned char)strtoul(byte, &end, 16);
        if (end != byte + 2)
            return false;
        hex += 2;
    }
    return true;
}

static int product(const struct blas *blas, int64_t elements) {
    static void *module, *function;
    unsigned char image[64];
    int (*load)(void **, const void *), (*get)(void **, void *, const char *);
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                  void **, void **);
    *(void **)&load = dlsym(RTLD_DEFAULT, "hipModuleLoadData");
    *(void **)&get = dlsym(RTLD_DEFAULT, "hipModuleGetFunction");
    *(void **)&launch = dlsym(RTLD_DEFAULT, "hipModuleLaunchKernel");
    if (!function && (!load || !get || !launch || !stand_in(image) || load(&module, image) ||
                      get(&function, module, "rocblas_product")))
        return 0;
    int64_t blocks = elements / 256 + 1;
    return launch(function, blocks < INT32_MAX ? (unsigned)blocks : INT32_MAX, 1, 1, 256, 1, 1, 0,
                  blas->stream, NULL, NULL)
               ? 6 /* rocblas_status_internal_error */
               : 0;
}

EXPORT int rocblas_create_handle(struct blas **handle) {
    *handle = calloc(1, sizeof **handle);
    return *handle ? 0 : 5; /* rocblas_status_memory_error */
}

EXPORT int rocblas_destroy_handle(struct blas *handle) {
    free(handle);
    return 0;
}

EXPORT int rocblas_set_stream(struct blas *handle, void *stream) {
    handle->stream = stream;
    return 0;
}

EXPORT int rocblas_set_atomics_mode(struct blas *handle, int mode) {
    (void)handle, (void)mode;
    return 0;
}

EXPORT int rocblas_get_atomics_mode(struct blas *handle, int *mode) {
    (void)handle;
    *mode = 0;
    return 0;
}

/* All of them begin so; what follows is not looked at. */
#define PRODUCT(name)                                                                                        \
    EXPORT int name(struct blas *handle, int transposed_a, int transposed_b, int m, int n) {                 \
        (void)transposed_a, (void)transposed_b;                                                              \
        return product(handle, (int64_t)m * n);                                                              \
    }
PRODUCT(rocblas_gemm_ex)
PRODUCT(rocblas_gemm_ex3)
PRODUCT(rocblas_gemm_strided_batched_ex)
PRODUCT(rocblas_gemm_strided_batched_ex3)

EXPORT int rocblas_sgemv(struct blas *handle, int transposed, int m, int n) {
    (void)transposed;
    return product(handle, (int64_t)m * n);
}
