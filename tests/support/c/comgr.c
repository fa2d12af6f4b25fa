/* A stand-in libamd_comgr that prints what it is given. Handles are numbers that are never used again. An
 * action fails for an input that is named bad*; what it makes is 1000 bytes and its kind. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#pragma GCC diagnostic ignored "-Wunused-parameter"

typedef struct {
    uint64_t handle;
} handle;
static uint64_t last = 0x100000000u;
static char names[4096][32];
static uint64_t in_set[4096];

static int made(handle *h) {
    h->handle = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
    return 0;
}
void amd_comgr_get_version(size_t *major, size_t *minor) {
    *major = MAJOR;
    *minor = 5;
}
int amd_comgr_create_data(int kind, handle *data) {
    return kind == 99 ? 2 : made(data);
}
int amd_comgr_set_data_name(handle data, const char *name) {
    snprintf(names[data.handle % 4096], sizeof *names, "%s", name ? name : "");
    return 0;
}
int amd_comgr_release_data(handle data) {
    return 0;
}
int amd_comgr_create_data_set(handle *set) {
    return made(set);
}
int amd_comgr_destroy_data_set(handle set) {
    return 0;
}
int amd_comgr_data_set_add(handle set, handle data) {
    in_set[set.handle % 4096] = data.handle;
    return 0;
}
int amd_comgr_action_data_get_data(handle set, int kind, size_t index, handle *data) {
    data->handle = 0x200000000u + set.handle * 64 + (uint64_t)kind;
    return index ? 2 : 0;
}
int amd_comgr_get_data(handle data, size_t *bytes, char *content) {
    *bytes = 1000 + data.handle % 64;
    return 0;
}
int amd_comgr_create_action_info(handle *info) {
    return made(info);
}
int amd_comgr_destroy_action_info(handle info) {
    return 0;
}
int amd_comgr_action_info_set_isa_name(handle info, const char *name) {
    printf("isa %s\n", name ? name : "-");
    return 0;
}
int amd_comgr_action_info_set_language(handle info, int language) {
    printf("language %d\n", language);
    return 0;
}
int amd_comgr_action_info_set_option_list(handle info, const char *options[], size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++)
        for (const char *c = options[i]; c && *c; c++)
            sum = sum * 31 + (unsigned char)*c;
    printf("options %zu %llx\n", count, (unsigned long long)sum);
    return 0;
}
#if MAJOR == 2
int amd_comgr_action_info_set_options(handle info, const char *options) {
    printf("options %s\n", options);
    return 0;
}
#endif
int amd_comgr_do_action(int kind, handle info, handle input, handle result) {
    const char *name = names[in_set[input.handle % 4096] % 4096];
    handle made; /* as COMGR does: by its own exported functions */
    amd_comgr_create_data(6, &made);
    amd_comgr_data_set_add(result, made);
    printf("action %d %d %s\n", kind, input.handle != result.handle && info.handle >> 32 == 1, name);
    return strncmp(name, "bad", 3) == 0;
}
