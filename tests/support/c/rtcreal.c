/* Compiles a kernel with the real hipRTC ("hiprtc", or "bad" for one that does not compile) or the real COMGR
 * ("comgr"), taken by dlsym as frameworks do. Prints results and the size of the code. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    uint64_t handle;
} handle;
#define GET(name, ...) int (*name)(__VA_ARGS__) = (int (*)(__VA_ARGS__))dlsym(lib, #name)
#define DO(call)                                                                                             \
    do {                                                                                                     \
        int result = call;                                                                                   \
        printf("%s %d\n", strtok(strdup(#call), "("), result);                                               \
    } while (0)

static const char HIP[] = "extern \"C\" __global__ void add(float *x) { x[threadIdx.x] += SUMMAND; }\n";
static const char CL[] = "__kernel void add(__global float *x) { x[0] += SUMMAND; }\n";

static int hiprtc(void *lib, const char *summand) {
    GET(hiprtcCreateProgram, void **, const char *, const char *, int, const char **, const char **);
    GET(hiprtcCompileProgram, void *, int, const char **);
    GET(hiprtcGetCodeSize, void *, size_t *);
    GET(hiprtcDestroyProgram, void **);
    const char *options[] = {"--offload-arch=gfx1030", summand, "-O3", "-I/nowhere"};
    void *program;
    size_t bytes = 0;
    DO(hiprtcCreateProgram(&program, HIP, "somewhere/add.cpp", 0, NULL, NULL));
    DO(hiprtcCompileProgram(program, 4, options));
    DO(hiprtcGetCodeSize(program, &bytes));
    DO(hiprtcDestroyProgram(&program));
    printf("size %zu\n", bytes);
    return 0;
}

static int comgr(void *lib) {
    GET(amd_comgr_create_data, int, handle *);
    GET(amd_comgr_set_data, handle, size_t, const char *);
    GET(amd_comgr_set_data_name, handle, const char *);
    GET(amd_comgr_get_data, handle, size_t *, char *);
    GET(amd_comgr_create_data_set, handle *);
    GET(amd_comgr_data_set_add, handle, handle);
    GET(amd_comgr_action_data_get_data, handle, int, size_t, handle *);
    GET(amd_comgr_create_action_info, handle *);
    GET(amd_comgr_destroy_action_info, handle);
    GET(amd_comgr_action_info_set_isa_name, handle, const char *);
    GET(amd_comgr_action_info_set_language, handle, int);
    GET(amd_comgr_action_info_set_option_list, handle, const char **, size_t);
    GET(amd_comgr_do_action, int, handle, handle, handle);
    const char *options[] = {"-DSUMMAND=2", "-O2"};
    handle data, input, bitcode, object, output, info, made;
    size_t bytes = 0;
    DO(amd_comgr_create_data(1, &data));
    DO(amd_comgr_set_data(data, sizeof CL - 1, CL));
    DO(amd_comgr_set_data_name(data, "add.cl"));
    DO(amd_comgr_create_data_set(&input));
    DO(amd_comgr_create_data_set(&bitcode));
    DO(amd_comgr_create_data_set(&object));
    DO(amd_comgr_create_data_set(&output));
    DO(amd_comgr_data_set_add(input, data));
    DO(amd_comgr_create_action_info(&info));
    DO(amd_comgr_action_info_set_isa_name(info, "amdgcn-amd-amdhsa--gfx1030"));
    DO(amd_comgr_action_info_set_language(info, 2));
    DO(amd_comgr_action_info_set_option_list(info, options, 2));
    DO(amd_comgr_do_action(12, info, input, bitcode)); /* COMPILE_SOURCE_WITH_DEVICE_LIBS_TO_BC */
    DO(amd_comgr_do_action(4, info, bitcode, object)); /* CODEGEN_BC_TO_RELOCATABLE */
    DO(amd_comgr_do_action(7, info, object, output));  /* LINK_RELOCATABLE_TO_EXECUTABLE */
    DO(amd_comgr_action_data_get_data(output, 8, 0, &made));
    DO(amd_comgr_get_data(made, &bytes, NULL));
    DO(amd_comgr_destroy_action_info(info));
    printf("size %zu\n", bytes);
    return 0;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    void *lib = dlopen(strcmp(how, "comgr") == 0 ? "libamd_comgr.so.3" : "libhiprtc.so.6", RTLD_NOW);
    if (!lib)
        return 99;
    return strcmp(how, "comgr") == 0 ? comgr(lib)
                                     : hiprtc(lib, strcmp(how, "bad") == 0 ? "-DSUMMAND=z" : "-DSUMMAND=1");
}
