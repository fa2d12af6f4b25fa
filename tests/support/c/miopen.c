/* A stand-in libMIOpen: an execution asks both databases for a key, as MIOpen does, and launches. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

int sqlite3_prepare_v2(void *db, const char *sql, int bytes, void **stmt, const char **tail);
int sqlite3_step(void *stmt);
int sqlite3_finalize(void *stmt);
int hipModuleLoadData(void **module, const void *image);
int hipModuleGetFunction(void **function, void *module, const char *name);
int hipExtModuleLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                             unsigned bz, size_t lds, void *stream, void **args, void **extra, void *start,
                             void *stop, unsigned flags);

static const unsigned char image[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
static int getters;

int standin_getters(void) {
    return getters;
}
int standin_launches(void);
int standin_launches_of_hip(void) {
    return standin_launches();
}
int miopenGetVersion(size_t *major, size_t *minor, size_t *patch) {
    *major = 3;
    *minor = 4;
    *patch = 0;
    return 0;
}

/* One statement; 1 a row, 0 none, -1 an error. `steps` 0 leaves it unstepped. */
int standin_ask(const char *file, const char *name, const char *args, int steps) {
    char sql[65536];
    void *stmt;
    int n = snprintf(
        sql, sizeof sql,
        "SELECT kernel_blob, kernel_hash, uncompressed_size FROM kern_db WHERE (kernel_name = '%s') AND "
        "(kernel_args = '%s');",
        name, args);
    if (sqlite3_prepare_v2((void *)file, sql, n, &stmt, NULL) != 0)
        return -1;
    int result = 101;
    for (int i = 0; i < steps; i++)
        do
            result = sqlite3_step(stmt);
        while (result == 5);
    if (steps)
        sqlite3_finalize(stmt);
    return result == 100 ? 1 : result == 101 ? 0 : -1;
}

int standin_lookup(const char *name, const char *args) {
    int user = standin_ask("/user.ukdb", name, args, 1);
    return user ? user : standin_ask("/system.kdb", name, args, 1);
}

int miopenSet4dTensorDescriptor(void *desc, int type, int n, int c, int h, int w) {
    (void)type, (void)n, (void)c, (void)h, (void)w;
    return desc ? 0 : 3;
}
int miopenSetTensorDescriptor(void *desc, int type, int dims, const int *lens, const int *strides) {
    (void)type, (void)dims, (void)lens, (void)strides;
    return desc ? 0 : 3;
}
int miopenDestroyTensorDescriptor(void *desc) {
    return desc ? 0 : 3;
}
int miopenInitConvolutionDescriptor(void *conv, int mode, int ph, int pw, int sh, int sw, int dh, int dw) {
    (void)mode, (void)ph, (void)pw, (void)sh, (void)sw, (void)dh, (void)dw;
    return conv ? 0 : 3;
}
int miopenSetConvolutionGroupCount(void *conv, int groups) {
    return conv && groups > 0 ? 0 : 3;
}
int miopenGetTensorDescriptorSize(void *desc, int *size) {
    (void)desc;
    getters++;
    *size = 4;
    return 0;
}
int miopenGetTensorDescriptor(void *desc, int *type, int *lens, int *strides) {
    static const int all[4] = {2, 8, 16, 16}, steps[4] = {2048, 256, 16, 1};
    (void)desc;
    *type = 1;
    memcpy(lens, all, sizeof all);
    memcpy(strides, steps, sizeof steps);
    return 0;
}
int miopenGetConvolutionSpatialDim(void *conv, int *dims) {
    (void)conv;
    *dims = 2;
    return 0;
}
int miopenGetConvolutionNdDescriptor(void *conv, int wanted, int *dims, int *pads, int *strides,
                                     int *dilations, int *mode) {
    (void)conv;
    *dims = wanted;
    for (int i = 0; i < wanted; i++) {
        pads[i] = 0;
        strides[i] = dilations[i] = 1;
    }
    *mode = 0;
    return 0;
}
int miopenGetConvolutionGroupCount(void *conv, int *groups) {
    (void)conv;
    *groups = 1;
    return 0;
}

int miopenConvolutionForward(void *handle, const void *alpha, void *x_desc, const void *x, void *w_desc,
                             const void *w, void *conv, int algorithm, const void *beta, void *y_desc,
                             void *y, void *space, size_t bytes) {
    void *module, *function;
    (void)handle, (void)alpha, (void)x, (void)w, (void)conv, (void)beta, (void)y, (void)space, (void)bytes;
    if (!x_desc || !w_desc || !y_desc)
        return 3;
    standin_lookup("a.cl.o", " -DHIT=1  -mcpu=gfx1030");
    standin_lookup("b.cl.o", "-DMISS=1 -mcpu=gfx1030");
    hipModuleLoadData(&module, image);
    hipModuleGetFunction(&function, module, "kernel_a");
    for (int i = 0; i < 3; i++)
        hipExtModuleLaunchKernel(function, 512, 2, 1, 256, 1, 1, 64, NULL, NULL, NULL, NULL, NULL, 0);
    return 40 + algorithm; /* a result that nobody else makes up */
}
