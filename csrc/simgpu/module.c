/* Modules: loading, look-up of functions and variables, and the module log. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

typedef struct sim_handle *handle_t;

static int load(handle_t *out, const struct sim_bytes *bytes, const char *source) {
    struct sim_module *module = calloc(1, sizeof *module);
    if (!module)
        return hipErrorOutOfMemory;
    int error = sim_module_read(bytes, module);
    handle_t handle = error ? NULL : sim_handle_new(SIM_MODULE);
    if (!error && !handle)
        error = hipErrorOutOfMemory;
    sim_log("module source=%s size=%llu target=%s kernels=%zu result=%d%s%s%s", source,
            (unsigned long long)module->size, module->target[0] ? module->target : "?", module->kernel_count,
            error, module->why ? " why=\"" : "", module->why ? module->why : "", module->why ? "\"" : "");
    if (error) {
        atomic_fetch_add(&sim_counts.modules_refused, 1);
        sim_module_clear(module);
        free(module);
        return error;
    }
    atomic_fetch_add(&sim_counts.modules, 1);
    handle->data = module;
    *out = handle;
    return hipSuccess;
}

static int load_data(handle_t *out, const void *image) {
    NEED_DEVICE();
    NEED(out && image, hipErrorInvalidValue);
    *out = NULL;
    /* No object is larger than this; the ceiling keeps sums of offsets far from wrapping. */
    const struct sim_bytes bytes = {.fd = -1, .base = image, .size = UINT64_C(1) << 40};
    return sim_return(load(out, &bytes, "memory"));
}

SIM_API(hipModuleLoadData)(handle_t *out, const void *image) {
    return load_data(out, image);
}

SIM_API(hipModuleLoadDataEx)(handle_t *out, const void *image, unsigned count, int *options, void **values) {
    (void)count, (void)options, (void)values;
    return load_data(out, image);
}

SIM_API(hipModuleLoad)(handle_t *out, const char *path) {
    NEED_DEVICE();
    NEED(out && path, hipErrorInvalidValue);
    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    NEED(fd >= 0, hipErrorFileNotFound);
    struct stat st;
    int error = hipErrorInvalidImage;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        const struct sim_bytes bytes = {.fd = fd, .size = (uint64_t)st.st_size};
        error = load(out, &bytes, "file");
    }
    close(fd);
    return sim_return(error);
}

SIM_API(hipModuleUnload)(handle_t module) {
    NEED(sim_handle_is(module, SIM_MODULE), hipErrorInvalidHandle);
    struct sim_module *m = module->data;
    NEED(sim_handle_free(module, SIM_MODULE), hipErrorInvalidHandle);
    sim_module_clear(m);
    free(m);
    return sim_return(hipSuccess);
}

SIM_API(hipModuleGetFunction)(handle_t *out, handle_t module, const char *name) {
    NEED(out && name, hipErrorInvalidValue);
    *out = NULL;
    NEED(sim_handle_is(module, SIM_MODULE), hipErrorInvalidHandle);
    struct sim_kernel *kernel = sim_module_kernel(module->data, name);
    NEED(kernel, hipErrorNotFound);
    sim_lock();
    handle_t handle = kernel->handle;
    sim_unlock();
    if (!handle) {
        handle_t made = sim_handle_new(SIM_FUNCTION);
        NEED(made, hipErrorOutOfMemory);
        made->data = kernel;
        sim_lock();
        handle = kernel->handle ? kernel->handle : (kernel->handle = made);
        sim_unlock();
        if (handle != made) /* another thread was first */
            sim_handle_free(made, SIM_FUNCTION);
    }
    *out = handle;
    return sim_return(hipSuccess);
}

SIM_API(hipModuleGetGlobal)(void **out, size_t *size, handle_t module, const char *name) {
    NEED(name && (out || size), hipErrorInvalidValue);
    NEED(sim_handle_is(module, SIM_MODULE), hipErrorInvalidHandle);
    const struct sim_module *m = module->data;
    for (size_t i = 0; i < m->global_count; i++)
        if (strcmp(m->globals[i].name, name) == 0) {
            if (out)
                *out = m->globals[i].device;
            if (size)
                *size = m->globals[i].size;
            return sim_return(hipSuccess);
        }
    return sim_return(hipErrorNotFound);
}
