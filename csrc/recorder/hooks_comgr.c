/* COMGR: what an action was told, on which inputs, and how large its outputs are once the host reads them.
 *
 * Nothing is asked of the library: names, options and sets are noted as the host makes them. An object of
 * COMGR lives on in a set after the host released it, so its name is kept until the same address is
 * given out anew. */
#include "compile.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

struct data {
    struct kdb_name name;
    int32_t kind;
    struct kdb_id compile; /* that made it, until its size is told */
    uint32_t unused;
};
struct set {
    uint64_t first;        /* its source, else the first thing that was added */
    struct kdb_id compile; /* that wrote into it */
    struct kdb_name name;  /* what that compile's input was called */
    uint32_t unused;
};
struct info { /* in pages of its own: most have a few options, some a hundred thousand */
    uint32_t used, left_out, language;
    char isa[108];
    char options[KDB_OPTION_ROOM];
};
static struct kdb_map datas = {.value_bytes = sizeof(struct data)};
static struct kdb_map sets = {.value_bytes = sizeof(struct set)};
static struct kdb_map infos = {.value_bytes = sizeof(struct info *)};

enum { SOURCE = 1, DIAGNOSTIC = 4, LOG = 5 }; /* amd_comgr_data_kind_t */

#define KDB_REAL_COMGR(name) KDB_REAL_OR(name, KDB_ERROR_COMGR)

/* ---- data and sets ---- */

int amd_comgr_create_data(int kind, struct kdb_handle *data) {
    KDB_REAL_COMGR(amd_comgr_create_data);
    int result = real(kind, data);
    if (result == 0 && data && kdb_recording()) {
        struct data d = {.kind = kind};
        kdb_map_set(&datas, data->handle, &d);
    }
    return result;
}

int amd_comgr_set_data_name(struct kdb_handle data, const char *name) {
    KDB_REAL_COMGR(amd_comgr_set_data_name);
    int result = real(data, name);
    struct data d = {0};
    if (result == 0 && kdb_recording()) {
        kdb_map_get(&datas, data.handle, &d);
        kdb_name_of(&d.name, name);
        kdb_map_set(&datas, data.handle, &d);
    }
    return result;
}

int amd_comgr_get_data(struct kdb_handle data, size_t *bytes, char *content) {
    KDB_REAL_COMGR(amd_comgr_get_data);
    int result = real(data, bytes, content);
    struct data d;
    if (result == 0 && bytes && kdb_recording() && kdb_map_get(&datas, data.handle, &d) && d.compile.id) {
        kdb_output_is(d.compile, *bytes);
        d.compile.id = 0;
        kdb_map_set(&datas, data.handle, &d);
    }
    return result;
}

int amd_comgr_create_data_set(struct kdb_handle *set) {
    KDB_REAL_COMGR(amd_comgr_create_data_set);
    int result = real(set);
    if (result == 0 && set && kdb_recording())
        kdb_map_drop(&sets, set->handle);
    return result;
}

int amd_comgr_destroy_data_set(struct kdb_handle set) {
    KDB_REAL_COMGR(amd_comgr_destroy_data_set);
    if (kdb_recording())
        kdb_map_drop(&sets, set.handle);
    return real(set);
}

int amd_comgr_data_set_add(struct kdb_handle set, struct kdb_handle data) {
    KDB_REAL_COMGR(amd_comgr_data_set_add);
    int result = real(set, data);
    struct set s = {0};
    struct data first = {0}, d = {0};
    if (result != 0 || !kdb_recording())
        return result;
    kdb_map_get(&datas, data.handle, &d);
    if (kdb_map_get(&sets, set.handle, &s) && s.first)
        kdb_map_get(&datas, s.first, &first);
    if (!s.first || (d.kind == SOURCE && first.kind != SOURCE)) {
        s.first = data.handle;
        kdb_map_set(&sets, set.handle, &s);
    }
    return result;
}

/* An output that the host takes out: known by this handle from here on. One of its own, it made before. */
int amd_comgr_action_data_get_data(struct kdb_handle set, int kind, size_t index, struct kdb_handle *data) {
    KDB_REAL_COMGR(amd_comgr_action_data_get_data);
    int result = real(set, kind, index, data);
    struct set s;
    if (result == 0 && data && kind != DIAGNOSTIC && kind != LOG && kdb_recording() &&
        kdb_map_get(&sets, set.handle, &s) && s.compile.id) {
        struct data d = {.kind = kind, .compile = s.compile};
        kdb_map_set(&datas, data->handle, &d);
    }
    return result;
}

/* ---- action info ---- */

int amd_comgr_create_action_info(struct kdb_handle *info) {
    KDB_REAL_COMGR(amd_comgr_create_action_info);
    int result = real(info), error = errno;
    if (result != 0 || !info || !kdb_recording())
        return result;
    struct info *page =
        mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    errno = error;
    if (page != MAP_FAILED)
        kdb_map_set(&infos, info->handle, &page);
    return result;
}

static struct info *noted(struct kdb_handle info) {
    struct info *page = NULL;
    return kdb_recording() && kdb_map_get(&infos, info.handle, &page) ? page : NULL;
}

int amd_comgr_destroy_action_info(struct kdb_handle info) {
    KDB_REAL_COMGR(amd_comgr_destroy_action_info);
    struct info *page = noted(info);
    if (page) {
        int error = errno;
        kdb_map_drop(&infos, info.handle);
        munmap(page, sizeof *page);
        errno = error;
    }
    return real(info);
}

int amd_comgr_action_info_set_isa_name(struct kdb_handle info, const char *name) {
    KDB_REAL_COMGR(amd_comgr_action_info_set_isa_name);
    int result = real(info, name);
    struct info *page = result == 0 ? noted(info) : NULL;
    if (page) {
        size_t bytes = name && !strchr(name, '/') ? strnlen(name, sizeof page->isa - 1) : 0;
        memset(page->isa, 0, sizeof page->isa);
        if (bytes)
            memcpy(page->isa, name, bytes);
    }
    return result;
}

int amd_comgr_action_info_set_language(struct kdb_handle info, int language) {
    KDB_REAL_COMGR(amd_comgr_action_info_set_language);
    int result = real(info, language);
    struct info *page = result == 0 ? noted(info) : NULL;
    if (page)
        page->language = (uint32_t)language;
    return result;
}

int amd_comgr_action_info_set_option_list(struct kdb_handle info, const char **options, size_t count) {
    KDB_REAL_COMGR(amd_comgr_action_info_set_option_list);
    int result = real(info, options, count);
    struct info *page = result == 0 ? noted(info) : NULL;
    if (page) {
        struct kdb_options o = {.at = page->options, .room = sizeof page->options};
        for (size_t i = 0; options && i < count; i++)
            kdb_option(&o, options[i]);
        kdb_options_end(&o);
        page->used = o.used;
        page->left_out = o.left_out;
    }
    return result;
}

/* The old form: one text, split at blanks as COMGR does. */
int amd_comgr_action_info_set_options(struct kdb_handle info, const char *options) {
    KDB_REAL_COMGR(amd_comgr_action_info_set_options);
    int result = real(info, options);
    struct info *page = result == 0 ? noted(info) : NULL;
    if (!page)
        return result;
    struct kdb_options o = {.at = page->options, .room = sizeof page->options};
    char word[2056]; /* longer than any that is kept */
    for (const char *c = options ? options : ""; *(c += strspn(c, " "));) {
        size_t bytes = strcspn(c, " "), part = bytes < sizeof word - 1 ? bytes : sizeof word - 1;
        memcpy(word, c, part);
        word[part] = 0;
        kdb_option(&o, word);
        c += bytes;
    }
    kdb_options_end(&o);
    page->used = o.used;
    page->left_out = o.left_out;
    return result;
}

/* ---- the action ---- */

/* isa=, language=, then the options. */
static uint32_t told(char *at, size_t room, const struct info *info) {
    size_t used = 0;
    if (*info->isa)
        used += (size_t)snprintf(at, room, "isa=%s", info->isa) + 1;
    if (info->language)
        used += (size_t)snprintf(at + used, room - used, "language=%u", info->language) + 1;
    memcpy(at + used, info->options, info->used);
    return (uint32_t)(used + info->used);
}

int amd_comgr_do_action(int kind, struct kdb_handle info, struct kdb_handle input, struct kdb_handle output) {
    KDB_REAL_COMGR(amd_comgr_do_action);
    struct kdb_compiling c;
    struct data first = {0};
    struct set in = {0}, out = {0};
    kdb_compile_begins(&c);
    int result = real(kind, info, input, output);
    uint64_t duration = kdb_compile_ends(&c);
    struct kdb_thread *t = kdb_enter();
    if (!t)
        return result;
    struct kdb_quiet quiet = kdb_quiet_begin();
    kdb_library_facts(t, KDB_LIB_COMGR, (const void *)real);
    struct info *page = noted(info);
    if (kdb_map_get(&sets, input.handle, &in) && in.first)
        kdb_map_get(&datas, in.first, &first);
    else
        first.name = in.name; /* what another action made: the name of where it began */
    struct kdbt_compile event = {.by = KDBT_BY_COMGR,
                                 .result = result,
                                 .action = (uint32_t)kind,
                                 .nested = c.nested,
                                 .duration = duration,
                                 .left_out = page ? page->left_out : 0};
    event.option_bytes = page ? told((char *)t->scratch, sizeof t->scratch, page) : 0;
    struct kdb_id id = kdb_compiled(t, c.ticks, &event, first.name.text, (const char *)t->scratch);
    kdb_map_get(&sets, output.handle, &out);
    out.first = 0; /* COMGR puts the results in by its own exported functions */
    out.compile = id;
    out.name = first.name;
    kdb_map_set(&sets, output.handle, &out);
    kdb_quiet_end(quiet);
    kdb_leave();
    return result;
}
