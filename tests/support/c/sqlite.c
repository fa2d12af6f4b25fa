/* A stand-in libsqlite3: a connection is the path of its file, a statement its text. A key with HIT
 * in it gives a row in a file with "system" in its name, BUSY is busy once, WRONG fails. */
#include <stdlib.h>
#include <string.h>

struct stmt {
    const char *db;
    char *sql;
    int steps;
};

const char *sqlite3_db_filename(void *db, const char *name) {
    return strcmp(name, "main") ? NULL : db;
}

int sqlite3_prepare_v2(void *db, const char *sql, int bytes, void **stmt, const char **tail) {
    (void)tail;
    *stmt = NULL;
    if (strncmp(sql, "BAD", 3) == 0 || strstr(sql, "NOPREPARE"))
        return 1;
    struct stmt *s = calloc(1, sizeof *s);
    s->db = db;
    s->sql = bytes < 0 ? strdup(sql) : strndup(sql, (size_t)bytes);
    *stmt = s;
    return 0;
}

int sqlite3_step(void *stmt) {
    struct stmt *s = stmt;
    if (strstr(s->sql, "BUSY") && s->steps++ == 0)
        return 5;
    if (strstr(s->sql, "WRONG"))
        return 11;
    return strstr(s->sql, "HIT") && strstr(s->db, "system") ? 100 : 101;
}

int sqlite3_finalize(void *stmt) {
    struct stmt *s = stmt;
    if (s)
        free(s->sql);
    free(s);
    return 0;
}
