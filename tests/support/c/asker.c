/* With SQLITE: a libsqlite3 that prints what it is asked. Else a program that asks it as MIOpen does, and
 * its rocBLAS. */
#include <stdio.h>
#include <string.h>

#ifdef SQLITE
static int opened;

int sqlite3_open_v2(const char *path, void **db, int flags, const char *vfs) {
    static int connections[64];
    (void)vfs;
    printf("open %s %d\n", path, flags);
    *db = &connections[opened++];
    return strstr(path, "missing") ? 14 : 0;
}
int sqlite3_close(void *db) {
    printf("close %s\n", db ? "it" : "nothing");
    return 0;
}
int sqlite3_prepare_v2(void *db, const char *sql, int bytes, void **stmt, const char **tail) {
    printf("prepare %.*s\n", bytes < 0 ? (int)strlen(sql) : bytes, sql);
    *stmt = db;
    if (tail)
        *tail = sql + 1;
    return 7;
}
#else
int sqlite3_open_v2(const char *path, void **db, int flags, const char *vfs);
int sqlite3_close(void *db);
int sqlite3_prepare_v2(void *db, const char *sql, int bytes, void **stmt, const char **tail);
int rocblas_create_handle(void **handle);
int rocblas_gemm_ex(void *handle, int a, int b, int m, int n);
int rocblas_destroy_handle(void *handle);
unsigned long long kdb_harvest_answered(void);

int main(int argc, char **argv) {
    void *db, *stmt, *blas = NULL;
    for (int i = 1; i < argc; i++) {
        const char *tail = NULL;
        if (strncmp(argv[i], "open ", 5) == 0) {
            printf("%d\n", sqlite3_open_v2(argv[i] + 5, &db, 6, NULL));
        } else if (strcmp(argv[i], "close") == 0) {
            printf("%d\n", sqlite3_close(db));
        } else {
            int cut = argv[i][0] == '!'; /* a length that ends before the text does */
            const char *sql = argv[i] + cut;
            int result = sqlite3_prepare_v2(NULL, sql, cut ? 20 : -1, &stmt, &tail);
            printf("%d tail %d\n", result, (int)(tail - sql));
        }
    }
    int status = rocblas_create_handle(&blas);
    int product = rocblas_gemm_ex(blas, 0, 0, 4, 4); /* there is no device */
    printf("answered %llu blas %d %d %d\n", kdb_harvest_answered(), status, blas != NULL, product);
    rocblas_destroy_handle(blas);
    return 0;
}
#endif
