/* Uses hipRTC and COMGR by linking. */
#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t handle;
} handle;
int hiprtcCreateProgram(void **, const char *, const char *, int, const char **, const char **);
int hiprtcCompileProgram(void *, int, const char **);
int hiprtcGetCodeSize(void *, size_t *);
int hiprtcDestroyProgram(void **);
int rtc_compile(const char *name, int count, const char **options) {
    const char *texts[] = {"text"}, *names[] = {"a.h"};
    void *program;
    size_t bytes;
    hiprtcCreateProgram(&program, "source", name, 1, texts, names);
    int result = hiprtcCompileProgram(program, count, options);
    if (result == 0)
        hiprtcGetCodeSize(program, &bytes);
    hiprtcDestroyProgram(&program);
    return result;
}
#ifdef COMGR
int amd_comgr_create_data(int, handle *);
int amd_comgr_set_data_name(handle, const char *);
int amd_comgr_release_data(handle);
int amd_comgr_create_data_set(handle *);
int amd_comgr_data_set_add(handle, handle);
int amd_comgr_action_data_get_data(handle, int, size_t, handle *);
int amd_comgr_get_data(handle, size_t *, char *);
int amd_comgr_create_action_info(handle *);
int amd_comgr_destroy_action_info(handle);
int amd_comgr_action_info_set_isa_name(handle, const char *);
int amd_comgr_action_info_set_language(handle, int);
int amd_comgr_action_info_set_option_list(handle, const char **, size_t);
int amd_comgr_action_info_set_options(handle, const char *);
int amd_comgr_do_action(int, handle, handle, handle);
/* A header, a source that is released as soon as it is in the set, then two actions in a row. */
int comgr_compile(const char *name, size_t count, const char **options, int first, int second) {
    handle info, header, source, input, middle, output, made;
    size_t bytes;
    amd_comgr_create_data(2, &header);
    amd_comgr_set_data_name(header, "dir/header.h");
    amd_comgr_create_data(1, &source);
    amd_comgr_set_data_name(source, name);
    amd_comgr_create_data_set(&input);
    amd_comgr_create_data_set(&middle);
    amd_comgr_create_data_set(&output);
    amd_comgr_data_set_add(input, header);
    amd_comgr_data_set_add(input, source);
    amd_comgr_release_data(source);
    amd_comgr_create_action_info(&info);
    amd_comgr_action_info_set_isa_name(info, "amdgcn-amd-amdhsa--gfx906:xnack-");
    amd_comgr_action_info_set_language(info, 3);
#if COMGR == 2
    (void)count;
    amd_comgr_action_info_set_options(info, options[0]);
#else
    amd_comgr_action_info_set_option_list(info, options, count);
#endif
    int result = amd_comgr_do_action(first, info, input, middle);
    if (result == 0)
        result = amd_comgr_do_action(second, info, middle, output);
    amd_comgr_action_data_get_data(output, 5, 0, &made); /* the log first */
    amd_comgr_get_data(made, &bytes, NULL);
    amd_comgr_action_data_get_data(output, 8, 0, &made);
    amd_comgr_get_data(made, &bytes, NULL);
    amd_comgr_destroy_action_info(info);
    return result;
}
#endif
