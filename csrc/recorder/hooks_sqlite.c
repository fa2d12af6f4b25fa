/* MIOpen's kernel lookups, out of the SQL that it pastes together.
 *
 * `SELECT ... FROM kern_db WHERE (kernel_name = 'N') AND (kernel_args = 'A');` with nothing escaped
 * (MIOpen src/include/miopen/kern_db.hpp, KernelConfig::Where, 5.0 to 7.2): the fixed text around N
 * and A finds them, whatever quotes they hold. The statement is written before SQLite is asked, so
 * it is in the trace even if the process dies right there; what SQLite answers is a record of its
 * own. All other SQL passes by. */
#include "internal.h"

struct statement {
    struct kdb_id id;
    int32_t result; /* the last one written; 0: none */
};
static struct kdb_map statements = {.value_bytes = sizeof(struct statement)};
static struct kdb_map databases = {.value_bytes = sizeof(struct kdb_id)};
struct filename_of { /* sqlite3_db_filename of the SQLite that has a prepare: two may be loaded */
    const char *(*call)(void *, const char *);
    uint32_t epoch;
};
static struct kdb_map filenames = {.value_bytes = sizeof(struct filename_of)};
static _Atomic uint32_t live; /* statements that a step may belong to */

static const char FROM[] = " FROM kern_db WHERE (kernel_name = '";
static const char BETWEEN[] = "') AND (kernel_args = '";

struct span {
    const char *at;
    size_t bytes;
};

static const char *find(const char *text, size_t bytes, const char *what, size_t what_bytes) {
    return bytes < what_bytes ? NULL : memmem(text, bytes, what, what_bytes);
}

static bool parse(const char *sql, int limit, struct span *name, struct span *args) {
    static const char SELECT[] = "SELECT ";
    if (!sql || limit == 0 || strncmp(sql, SELECT, limit < 0 || limit > 7 ? 7 : (size_t)limit) != 0)
        return false;
    size_t bytes = limit < 0 ? strlen(sql) : strnlen(sql, (size_t)limit);
    const char *from = find(sql, bytes < 256 ? bytes : 256, FROM, sizeof FROM - 1);
    if (!from)
        return false;
    const char *end = sql + bytes;
    while (end > from && (end[-1] == ';' || end[-1] == ' ' || end[-1] == '\n'))
        end--;
    name->at = from + sizeof FROM - 1;
    if (end - name->at < 2 || end[-1] != ')' || end[-2] != '\'')
        return false;
    end -= 2;
    const char *between = NULL, *p = name->at;
    while ((p = find(p, (size_t)(end - p), BETWEEN, sizeof BETWEEN - 1)) != NULL)
        between = p++;
    if (!between)
        return false;
    name->bytes = (size_t)(between - name->at);
    args->at = between + sizeof BETWEEN - 1;
    args->bytes = (size_t)(end - args->at);
    return true;
}

static uint32_t key_id(struct kdb_thread *t, struct span name, struct span args) {
    if (t->key && name.bytes == t->key_name_bytes && args.bytes == t->key_args_bytes &&
        memcmp(t->key, name.at, name.bytes) == 0 && memcmp(t->key + name.bytes, args.at, args.bytes) == 0)
        return t->key_id;
    if (name.bytes > KDBT_RECORD_MAX || args.bytes > KDBT_RECORD_MAX) {
        kdb_drop();
        return 0;
    }
    struct kdbt_pair pair = {(uint32_t)name.bytes, (uint32_t)args.bytes};
    uint32_t id = kdb_new_id();
    if (!kdb_put(t, KDBT_KEY, id, kdb_ticks(), &pair, sizeof pair, name.at, name.bytes, args.at, args.bytes))
        return 0;
    t->key_id = id;
    t->key_name_bytes = pair.name_bytes;
    t->key_args_bytes = pair.value_bytes;
    t->key = t->at - ((sizeof(struct kdbt_record) + sizeof pair + name.bytes + args.bytes + 7) & ~(size_t)7) +
             sizeof(struct kdbt_record) + sizeof pair;
    return id;
}

static uint32_t database_id(struct kdb_thread *t, void *prepare, void *db) {
    uint32_t epoch = atomic_load_explicit(&kdb_epoch, memory_order_acquire);
    struct filename_of name;
    if (!kdb_map_get(&filenames, (uintptr_t)prepare, &name) || name.epoch != epoch) {
        memset(&name, 0, sizeof name);
        name.call = (const char *(*)(void *, const char *))kdb_symbol_at(prepare, "sqlite3_db_filename");
        name.epoch = epoch;
        kdb_map_set(&filenames, (uintptr_t)prepare, &name);
    }
    const char *file = db && name.call ? name.call(db, "main") : NULL;
    if (!file)
        return 0;
    struct kdb_id id;
    uint64_t hash = kdb_hash(1, file, strlen(file));
    if (kdb_map_get(&databases, hash, &id) && id.generation == t->generation)
        return id.id;
    id.id = kdb_text(t, KDBT_DATABASE, file, strlen(file));
    id.generation = t->generation;
    if (id.id)
        kdb_map_set(&databases, hash, &id);
    return id.id;
}

static uint32_t write_statement(struct kdb_thread *t, void *prepare, const void *caller, void *db,
                                struct span name, struct span args) {
    struct kdb_object object;
    if (!atomic_load_explicit(&kdb_process->said[KDB_LIB_MIOPEN], memory_order_relaxed) &&
        kdb_object_at(caller, &object) && strstr(object.path, "libMIOpen"))
        kdb_library_facts(t, KDB_LIB_MIOPEN, caller);
    kdb_device_facts(t);
    struct kdbt_statement s;
    s.database = database_id(t, prepare, db);
    s.key = key_id(t, name, args);
    uint32_t id = kdb_new_id();
    if (!s.key || !kdb_put(t, KDBT_STATEMENT, id, kdb_ticks(), &s, sizeof s, NULL, 0, NULL, 0))
        return 0;
    return id;
}

static void write_step(struct kdb_thread *t, uint32_t statement, int result) {
    struct kdbt_step step = {statement, result};
    kdb_put(t, KDBT_STEP, 0, kdb_ticks(), &step, sizeof step, NULL, 0, NULL, 0);
}

int sqlite3_prepare_v2(void *db, const char *sql, int bytes, void **stmt, const char **tail) {
    kdb_fn_sqlite3_prepare_v2 real = KDB_REAL(sqlite3_prepare_v2);
    struct span name, args;
    struct kdb_thread *t;
    struct statement made = {{0, 0}, 0};
    if (!real)
        return KDB_ERROR_SQLITE;
    if (parse(sql, bytes, &name, &args) && (t = kdb_enter()) != NULL) {
        made.id.id = write_statement(t, (void *)real, __builtin_return_address(0), db, name, args);
        made.id.generation = t->generation;
        kdb_leave();
    }
    int result = real(db, sql, bytes, stmt, tail);
    if (!made.id.id)
        return result;
    if (result == 0 && stmt && *stmt) {
        atomic_fetch_add(&live, 1);
        kdb_map_set(&statements, (uintptr_t)*stmt, &made);
    } else if ((t = kdb_enter()) != NULL) {
        write_step(t, made.id.id, result ? result : KDB_ERROR_SQLITE);
        kdb_leave();
    }
    return result;
}

int sqlite3_step(void *stmt) {
    kdb_fn_sqlite3_step real = KDB_REAL(sqlite3_step);
    struct statement s;
    struct kdb_thread *t;
    if (!real)
        return KDB_ERROR_SQLITE;
    int result = real(stmt);
    if (!atomic_load_explicit(&live, memory_order_relaxed) ||
        !kdb_map_get(&statements, (uintptr_t)stmt, &s) || s.result == result || (t = kdb_enter()) == NULL)
        return result;
    if (s.id.generation == t->generation)
        write_step(t, s.id.id, result);
    s.result = result;
    kdb_map_set(&statements, (uintptr_t)stmt, &s);
    kdb_leave();
    return result;
}

int sqlite3_finalize(void *stmt) {
    kdb_fn_sqlite3_finalize real = KDB_REAL(sqlite3_finalize);
    struct statement s;
    if (!real)
        return KDB_ERROR_SQLITE;
    /* before the call: another thread may get the same address right after it */
    if (stmt && atomic_load_explicit(&live, memory_order_relaxed) &&
        kdb_map_get(&statements, (uintptr_t)stmt, &s)) {
        kdb_map_drop(&statements, (uintptr_t)stmt);
        atomic_fetch_sub(&live, 1);
    }
    return real(stmt);
}
