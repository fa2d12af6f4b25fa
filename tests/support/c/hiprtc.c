/* A stand-in of hipRTC that prints what it is given, and has COMGR compile, as HIP's does. Linked into
 * a libamdhip64 it is that of HIP 5. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#pragma GCC diagnostic ignored "-Wunused-parameter"

#ifndef TAG
#define TAG "libhiprtc"
#endif
typedef struct {
    uint64_t handle;
} handle;
struct program {
    char name[64];
};
#define GET(result, name, ...)                                                                               \
    result (*name)(__VA_ARGS__) = (result(*)(__VA_ARGS__))dlsym(comgr, "amd_comgr_" #name)

static int compile(const char *name, int count, const char **options) {
    void *comgr = dlopen("libamd_comgr.so.3", RTLD_LAZY);
    handle info, data, input, output;
    GET(int, create_data, int, handle *);
    GET(int, set_data_name, handle, const char *);
    GET(int, create_data_set, handle *);
    GET(int, data_set_add, handle, handle);
    GET(int, create_action_info, handle *);
    GET(int, destroy_action_info, handle);
    GET(int, action_info_set_isa_name, handle, const char *);
    GET(int, action_info_set_option_list, handle, const char **, size_t);
    GET(int, do_action, int, handle, handle, handle);
    create_data(1, &data);
    set_data_name(data, name);
    create_data_set(&input);
    create_data_set(&output);
    data_set_add(input, data);
    create_action_info(&info);
    action_info_set_isa_name(info, "amdgcn-amd-amdhsa--gfx1030");
    action_info_set_option_list(info, options, (size_t)count);
    int result = do_action(2, info, input, output);
    destroy_action_info(info);
    return result ? 6 : 0;
}
int hiprtcCreateProgram(void **program, const char *source, const char *name, int headers, const char **texts,
                        const char **names) {
    struct program *p = calloc(1, sizeof *p);
    snprintf(p->name, sizeof p->name, "%s", name ? name : "");
    printf("create " TAG " %s %s %d %s %s\n", source, p->name, headers, headers ? texts[0] : "-",
           headers ? names[0] : "-");
    *program = p;
    return 0;
}
int hiprtcCompileProgram(void *program, int count, const char **options) {
    struct program *p = program;
    if (!p)
        return 4;
    if (count && !options)
        return 3;
    return compile(p->name, count, options);
}
int hiprtcDestroyProgram(void **program) {
    free(*program);
    *program = NULL;
    return 0;
}
int hiprtcGetCodeSize(void *program, size_t *bytes) {
    *bytes = 12345;
    return 0;
}
int hiprtcGetBitcodeSize(void *program, size_t *bytes) {
    *bytes = 54321;
    return 0;
}
int hiprtcLinkCreate(unsigned count, int *options, void **values, void **state) {
    *state = calloc(1, 8);
    printf("link %u\n", count);
    return 0;
}
int hiprtcLinkAddFile(void *state, int kind, const char *path, unsigned count, int *options, void **values) {
    printf("file %d %s %u\n", kind, path, count);
    return 0;
}
int hiprtcLinkAddData(void *state, int kind, void *image, size_t bytes, const char *name, unsigned count,
                      int *options, void **values) {
    printf("data %d %zu %s %u\n", kind, bytes, name, count);
    return 0;
}
int hiprtcLinkComplete(void *state, void **binary, size_t *bytes) {
    *binary = state;
    *bytes = 777;
    return 0;
}
int hiprtcLinkDestroy(void *state) {
    free(state);
    return 0;
}
